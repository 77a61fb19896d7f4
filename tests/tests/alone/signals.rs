//! Every way in which a group of processes is ended, each of which sends several signals: nothing is left. Needs root.
//!
//! ```text
//! timeout      SIGTERM to its program, then to the program's process group
//! a pipeline   ^C: SIGINT to the group; a shell passes it on
//! a service    systemd's stop: SIGTERM to each process of the cgroup, and SIGHUP with SendSIGHUP=
//! ```
//! Moments are spread from the first instructions to the middle of a trial.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use udpath_rig::{
    Cgroup, Ended, Host, Run, Running, TIMEOUT, alone, awaited, campaign, client_and_server, named, program,
};

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
                awaited("an empty cgroup", TIMEOUT, || cgroup.pids("service").is_empty().then_some(()));
                ended
            }
        }
    }
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
enum Says {
    Out(&'static str),
    Err(&'static str),
    /// A result, or why there is none.
    Either(&'static str, &'static str),
}

/// Ends runs of `udpath ARGUMENTS` in every way, at moments over the span: `few` of each, fifty in `make soak`. Nothing is
/// left, and the last words, if it got so far, contain `says`.
fn leaves_nothing(name: &str, arguments: &[&str], few: u32, says: Says) {
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
            let pid = ended.err.lines().find_map(|line| line.strip_prefix("pid ")?.parse().ok());
            host.is_as_before(&[pid.unwrap_or_else(|| panic!("no pid: {case}"))]);
            awaited(&format!("nothing new: {case}"), TIMEOUT, || traces().is_subset(&before).then_some(()));
            assert!(!ended.err.contains("panicked"), "{case}");
            assert!(!ended.err.contains("at once"), "two signals in a row are one request: {case}");
            let spoken = match says {
                Says::Out(words) => ended.out.contains(words),
                Says::Err(words) => ended.err.contains(words),
                Says::Either(out, err) => ended.out.contains(out) || ended.err.contains(err),
            };
            // Before it watches for signals it has made nothing, and one ends it without a word. In a pipeline, the reader of its
            // stdout has got the signal as well.
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
fn a_kept_lab_that_is_not_complete() {
    udpath_lab::needs_root!();
    let _alone = alone();
    let host = Host::now();
    let machines: Vec<String> = (0..12).map(|number| format!("m{number}")).collect();
    let arguments = ["lab", "up", "interrupted", "--queues", "2", "--machines", &machines.join(",")];
    let rounds = campaign::rounds(3, 50);
    for _ in 0..rounds {
        let running = Run::new(&arguments).within(END).start();
        let pid = [running.pid()];
        awaited("the lab's record", TIMEOUT, || entries(Path::new("/run/udpath/lab")).pop());
        running.signal(Signal::TERM);
        running.signal(Signal::HUP);
        let ended = running.finish();
        // It may be complete by then.
        if ended.code() == Some(0) {
            assert_eq!(Run::new(&["lab", "down", "interrupted"]).finish().code(), Some(0));
        } else {
            assert_eq!(ended.code(), Some(3), "{}", ended.err);
            // Of two that wait, the kernel delivers the one with the lower number first.
            let removed =
                |signal| ended.err.contains(&format!("interrupted by {signal}; the lab has been removed"));
            assert!(removed("SIGTERM") || removed("SIGHUP"), "{}", ended.err);
        }
        host.is_as_before(&pid);
    }
    campaign::record("kept labs, ended while they are built", &format!("{rounds}, leaving anything: 0"));
}

#[test]
fn a_kept_lab_that_is_being_removed() {
    udpath_lab::needs_root!();
    let _alone = alone();
    let host = Host::now();
    let machines: Vec<String> = (0..12).map(|number| format!("m{number}")).collect();
    let up = ["lab", "up", "removed", "--machines", &machines.join(",")];
    let (rounds, mut in_time) = (campaign::rounds(3, 50), 0);
    for round in 0..rounds {
        let made = Run::new(&up).within(END).finish();
        assert_eq!(made.code(), Some(0), "{}", made.err);
        let running = Run::new(&["lab", "down", "removed"]).within(END).start();
        let pid = running.pid();
        // Its own handlers are set, or it has ended: before, a signal ends it, and the lab is whole.
        awaited("it to watch", TIMEOUT, || (catches(pid) || ended(pid)).then_some(()));
        std::thread::sleep(Duration::from_millis(u64::from(round % 10) * 5));
        in_time += u32::from(!ended(pid));
        running.signal(Signal::TERM);
        running.signal(Signal::HUP);
        let down = running.finish();
        assert_eq!((down.code(), down.err.as_str()), (Some(0), ""), "round {round}");
        host.is_as_before(&[made.pid, pid]);
    }
    assert!(in_time > 0, "each had ended before its signals");
    campaign::record(
        "kept labs that got two signals while removed",
        &format!("{rounds}, leaving anything: 0"),
    );
}

/// Whether a process has a handler for SIGTERM.
fn catches(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let bits = caught.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0);
    bits & 1 << (Signal::TERM.as_raw() - 1) != 0
}

/// Whether a child has ended, and waits for its parent.
fn ended(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('Z'))
}

#[test]
fn a_server_and_an_exporter() {
    udpath_lab::needs_root!();
    leaves_nothing("serve", &["serve", "echo", "--bind", "127.0.0.1:0"], 1, Says::Out("received"));
    leaves_nothing("export", &["export", "--listen", "127.0.0.1:0"], 1, Says::Err("ready http"));
    leaves_nothing("profile", &["profile", "--duration", "60s"], 1, Says::Out("CPU time"));
}

/// A climb whose servers hang takes seconds to end: time for more signals.
fn hanging() -> (Running, String) {
    // It waits for each stopped server as long as servers may take, some 30 s in all.
    let mut running = Run::new(&CLIMB).within(END * 3).start();
    running.says("first rung");
    let own = running.pid();
    // Stopped before its exec, a child would keep the thread that starts it waiting for ever.
    let serves = |pid: &String| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(b"serve")
    };
    let children = || {
        let tasks = fs::read_dir(format!("/proc/{own}/task")).unwrap().flatten();
        let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        lists
            .flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
            .filter(serves)
            .collect::<Vec<_>>()
    };
    for pid in awaited("its servers", TIMEOUT, || Some(children()).filter(|all| !all.is_empty())) {
        let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
        // One that has just ended is not needed.
        let _ = rustix::process::kill_process(pid, Signal::STOP);
    }
    running.signal(Signal::TERM);
    // The second request. Signals that come while a busy machine has not delivered the first belong to that, so that it may
    // take another; one that is only late must not become the third.
    let again = "udpath: restoring; a further signal ends at once and leaves network namespaces udpath-";
    let deadline = Instant::now() + TIMEOUT;
    let said = |running: &mut Running| {
        assert!(Instant::now() < deadline && !running.has_ended(), "{}", running.says(""));
        running.says("").contains(again)
    };
    while !said(&mut running) {
        std::thread::sleep(Duration::from_millis(1_050));
        running.signal(Signal::TERM);
        let late = Instant::now() + Duration::from_secs(3);
        while !said(&mut running) && Instant::now() < late {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let namespaces = format!("network namespaces udpath-{own}-*; to remove them: udpath lab down --stale");
    (running, namespaces)
}

#[test]
fn a_second_request_still_removes_the_lab_and_a_third_names_it() {
    udpath_lab::needs_root!();
    let _alone = alone();
    let host = Host::now();
    let (mut running, namespaces) = hanging();
    assert!(running.says("").contains(&namespaces), "{}", running.says(""));
    let ended = running.finish();
    assert_eq!(ended.code(), Some(3), "{}", ended.err);
    let interrupted = "udpath: interrupted; the lab has been removed";
    assert_eq!(ended.err.lines().last(), Some(interrupted), "{}", ended.err);
    host.is_as_before(&[ended.pid]);

    let (running, namespaces) = hanging();
    std::thread::sleep(Duration::from_millis(1_050));
    running.signal(Signal::TERM);
    let ended = running.finish();
    assert_eq!(ended.code(), Some(128 + 15), "{}", ended.err);
    let last = format!("udpath: ended at once by a third signal; left {namespaces}");
    assert_eq!(ended.err.lines().last(), Some(last.as_str()), "{}", ended.err);
    assert!(!named(&[ended.pid]).is_empty(), "it has left its lab");
    let swept = Run::new(&["lab", "down", "--stale"]).finish();
    assert_eq!((swept.code(), swept.err.as_str()), (Some(0), ""));
    host.is_as_before(&[ended.pid]);
}

/// Most rounds of one way until a signal has come in time. Each halves what is between too early and too late, some milliseconds.
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

/// An apply is taken back or complete, and an undo that has begun goes to its end: by each way, at moments from before their first
/// change to after their last.
#[test]
fn an_apply_and_its_undo() {
    const QUEUES: u32 = 16;
    udpath_lab::needs_root!();
    let _alone = alone();
    let lab = client_and_server("ended", QUEUES);
    let server = lab.machine("server").unwrap();
    let interface = server.towards("client").unwrap().name().to_owned();
    let masks = || {
        let mut cat = server.command("sh");
        cat.args(["-c", &format!("cat /sys/class/net/{interface}/queues/rx-*/rps_cpus")]);
        let masks = String::from_utf8(cat.output().unwrap().stdout).unwrap();
        assert_eq!(masks.lines().count(), QUEUES as usize, "{masks}");
        masks
    };
    let before = masks();
    let sets: Vec<String> = (0..QUEUES).map(|queue| format!("{interface}:rps/rx-{queue}=1")).collect();
    let state = tempfile::tempdir().unwrap();
    let at = ["--state", state.path().to_str().unwrap(), "--netns", server.namespace()];
    let apply: Vec<&str> =
        ["apply"].into_iter().chain(sets.iter().flat_map(|set| ["--set", set.as_str()])).chain(at).collect();
    let undo: Vec<&str> = ["undo"].into_iter().chain(at).collect();
    let whole = |arguments: &[&str]| Run::new(arguments).finish();
    let done = |ended: &Ended| assert_eq!(ended.code(), Some(0), "{}", ended.err);
    done(&whole(&apply));
    let all = masks();
    assert_ne!(all, before, "the apply changes what is there");
    let since = Instant::now();
    done(&whole(&undo));
    let span = since.elapsed();
    assert_eq!(masks(), before);

    let rounds = campaign::rounds(3, 50);
    let (mut tried, mut taken_back, mut undone) = (0, 0, 0);
    for way in WAYS {
        let [mut of_apply, mut of_undo] = [(); 2].map(|()| Moments { early: Duration::ZERO, late: span * 2 });
        let mut round = 0;
        while round < rounds || (taken_back == 0 && round < SEARCH) {
            round += 1;
            let moment = of_apply.next();
            let ended = way.end(&apply, moment);
            let now = masks();
            let case = format!("{way:?} after {moment:?}: {:?} {}{}", ended.code(), ended.out, ended.err);
            assert!(now == all || now == before, "half applied: {now} {case}");
            assert!(!ended.err.contains("panicked") && !ended.err.contains("at once"), "{case}");
            taken_back += u32::from(ended.err.contains("interrupted by"));
            of_apply.tried(moment, now == all);
            if now == before {
                let left = whole(&undo);
                assert!(left.err.contains("nothing to undo"), "{case}: {}", left.err);
                done(&whole(&apply));
            }
            let moment = of_undo.next();
            let ended = way.end(&undo, moment);
            let case = format!("{way:?} after {moment:?}: {:?} {}{}", ended.code(), ended.out, ended.err);
            let now = masks();
            assert!(now == before || now == all, "half undone: {now} {case}");
            of_undo.tried(moment, now == before);
            if now == before {
                undone += 1;
            } else {
                done(&whole(&undo));
            }
            assert_eq!(masks(), before, "{case}");
        }
        tried += round;
    }
    assert!(taken_back > 0 && undone > 0, "no signal came in time");
    campaign::record(
        "applies and undos ended by timeout, ^C in a pipeline, a service's stop",
        &format!("{tried} each, taken back {taken_back}, undone {undone}, half done: 0"),
    );
}
