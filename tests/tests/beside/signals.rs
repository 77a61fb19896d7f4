//! Every way in which a group of processes is ended, each of which sends several signals: nothing is left. Needs root.
//!
//! ```text
//! timeout      SIGTERM to its program, then to the program's process group
//! a pipeline   ^C: SIGINT to the group; a shell passes it on
//! a service    systemd's stop: SIGTERM to each process of the cgroup, and SIGHUP with SendSIGHUP=
//! ```
//! Moments are spread from the first instructions to the middle of a trial.

mod labs;
mod requests;
mod settings;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use udpath_rig::{Cgroup, Ended, Host, Run, TIMEOUT, alone, awaited, campaign, program};

/// Prints its pid, which its labs' names contain, and becomes the program.
const NAMED: &str = r#"echo "pid $$" >&2; exec "$@""#;
/// Longest time until a program has ended after the signals.
const END: Duration = Duration::from_secs(90);
/// Moments are within this: labs are up, and trials run, after about a second.
const SPAN: f64 = 2.5;

/// How a group of processes is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Timeout,
    Pipeline,
    Service,
}

const WAYS: [Way; 3] = [Way::Timeout, Way::Pipeline, Way::Service];

impl Way {
    /// Runs `udpath ARGUMENTS` and ends it after `moment`.
    fn end(self, arguments: &[&str], moment: Duration) -> Ended {
        let named = |mut command: Command| {
            command.args(["sh", "-c", NAMED, "-"]).arg(program()).args(arguments);
            Run::of(command, &format!("{self:?}: {}", arguments.join(" "))).within(END)
        };
        match self {
            Self::Timeout => {
                let mut timeout = Command::new("timeout");
                timeout.args(["--preserve-status", &format!("{:.3}", moment.as_secs_f64())]);
                named(timeout).finish()
            }
            Self::Pipeline => {
                let mut shell = Command::new("sh");
                shell.args(["-c", r#""$@" | cat"#, "-"]);
                let running = named(shell).in_group().start();
                std::thread::sleep(moment);
                running.signal_group(Signal::INT);
                // Whoever is in a hurry presses ^C twice.
                running.signal_group(Signal::INT);
                running.finish()
            }
            Self::Service => {
                let cgroup = Cgroup::new();
                cgroup.make("service");
                let running = named(cgroup.command("service", "env")).start();
                std::thread::sleep(moment);
                for signal in [Signal::TERM, Signal::HUP] {
                    cgroup.signal("service", signal);
                }
                let ended = running.finish();
                awaited("an empty cgroup", TIMEOUT, || {
                    (cgroup.pids("service").is_empty() && cgroup.below("service").is_empty()).then_some(())
                });
                ended
            }
        }
    }
}

/// The pid of a program that a way has run.
fn pid_of(ended: &Ended) -> u32 {
    let pid = ended.err.lines().find_map(|line| line.strip_prefix("pid ")?.parse().ok());
    pid.unwrap_or_else(|| panic!("no pid: {}", ended.err))
}

/// Files and folders that a run makes, and removes.
fn traces() -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut folders = vec![PathBuf::from("/run/netns"), PathBuf::from("/run/udpath")];
    while let Some(folder) = folders.pop() {
        for path in entries(&folder) {
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path);
            }
        }
    }
    found.extend(["/tmp", "/var/tmp", "/dev/shm"].iter().flat_map(|folder| entries(Path::new(folder))));
    let groups = entries(&Cgroup::root()).into_iter().filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.contains("udpath") && !name.starts_with("udpath-test-")
    });
    found.extend(groups);
    found
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    // Some of these do not exist on every machine.
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Where a program's last words are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Says {
    Out(&'static str),
    Err(&'static str),
    /// A result, or why there is none.
    Either(&'static str, &'static str),
}

/// Ends runs of `udpath ARGUMENTS` in every way, at moments over the span: `few` of each, fifty in `make soak`. Nothing
/// is left, and the last words, if it got so far, contain `says`.
fn leaves_nothing(name: &str, arguments: &[&str], few: u32, says: Says) {
    leaves_nothing_and(name, arguments, few, says, |_ended| ());
}

/// The same, with a check of its own after each run.
pub(crate) fn leaves_nothing_and(
    name: &str,
    arguments: &[&str],
    few: u32,
    says: Says,
    check: impl Fn(&Ended),
) {
    let _alone = alone();
    let host = Host::now();
    let before = traces();
    let rounds = campaign::rounds(few, 50);
    let mut spoke = 0;
    for way in WAYS {
        for round in 0..rounds {
            let moment = Duration::from_secs_f64(SPAN * (f64::from(round) + 0.9) / f64::from(rounds));
            let since = Instant::now();
            let ended = way.end(arguments, moment);
            let case =
                format!("{way:?} {name} after {moment:?}, {:?} in all: {}", since.elapsed(), ended.err);
            host.is_as_before(&[pid_of(&ended)]);
            awaited(&format!("nothing new: {case}"), TIMEOUT, || traces().is_subset(&before).then_some(()));
            check(&ended);
            assert!(!ended.err.contains("panicked"), "{case}");
            assert!(!ended.err.contains("at once"), "two signals in a row are one request: {case}");
            let spoken = match says {
                Says::Out(words) => ended.out.contains(words),
                Says::Err(words) => ended.err.contains(words),
                Says::Either(out, err) => ended.out.contains(out) || ended.err.contains(err),
            };
            // Before it watches for signals it has made nothing, and one ends it without a word. In a pipeline, the
            // reader of its stdout has got the signal as well.
            let silent = ended.out.is_empty() && ended.err.lines().count() == 1;
            let unread = way == Way::Pipeline && !matches!(says, Says::Err(_));
            assert!(spoken || silent || unread, "{case}");
            spoke += u32::from(spoken);
        }
    }
    assert!(spoke > 0, "{name}: every signal came before it had started");
    let all = rounds * 3;
    campaign::record(
        &format!("{name}: ended by timeout, ^C in a pipeline, a service's stop"),
        &format!("{all}, with last words: {spoke}, leaving anything: 0"),
    );
}

/// A climb that lasts longer than any test waits.
const CLIMB: [&str; 10] =
    ["boost", "--lab", "--queues", "2", "--seconds", "0.05", "--blocks", "500", "--bound", "0.1"];

#[test]
fn a_climb_in_a_lab() {
    udpath_lab::needs_root!();
    leaves_nothing("climb", &CLIMB, 2, Says::Err("udpath: interrupted; the lab has been removed"));
}

#[test]
fn a_load_in_a_lab() {
    udpath_lab::needs_root!();
    // Its server in the lab is ended as well, perhaps before it was ready.
    let says = Says::Either("transactions", "udpath: interrupted; the lab has been removed");
    leaves_nothing("load", &["load", "echo", "--lab", "-d", "60s"], 2, says);
}

#[test]
fn an_experiment() {
    udpath_lab::needs_root!();
    leaves_nothing(
        "experiment",
        &["experiment", "ladder", "--effort", "least"],
        1,
        Says::Err("udpath: interrupted"),
    );
}

#[test]
fn a_server_and_an_exporter() {
    udpath_lab::needs_root!();
    leaves_nothing("serve", &["serve", "echo", "--bind", "127.0.0.1:0"], 1, Says::Out("received"));
    leaves_nothing("export", &["export", "--listen", "127.0.0.1:0"], 1, Says::Err("ready http"));
    leaves_nothing("profile", &["profile", "--duration", "60s"], 1, Says::Out("CPU time"));
}

/// Most rounds of one way until a signal has come in time. Each halves what is between too early and too late, some
/// milliseconds.
const SEARCH: u32 = 40;

/// Moments around the one at which a program does its work, which takes a few milliseconds of its whole run.
struct Moments {
    early: Duration,
    late: Duration,
}

impl Moments {
    fn next(&self) -> Duration {
        (self.early + self.late) / 2
    }

    /// `late`: the work had been done by then.
    fn tried(&mut self, moment: Duration, late: bool) {
        *if late { &mut self.late } else { &mut self.early } = moment;
        // Runs differ: what was too late may be too early the next time.
        (self.early, self.late) = (self.early.mul_f64(0.95), self.late.mul_f64(1.05));
    }
}
