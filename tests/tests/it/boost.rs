//! `boost` of a server that runs already: what helps is found and kept, and whatever happens to the program or the server,
//! every setting is as it was.
//!
//! The arranged cause: the server's interface polls once in [`TIMER`], so that a closed loop waits for the timer. Without it
//! the loop runs many times faster, beyond any noise of the machine.

mod configuration;
mod link_reset;
mod live;
mod untrue;

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use udpath_lab::Lab;
use udpath_rig::{Ended, Run, Running, TIMEOUT, client_and_server, program};

use crate::inside::{addresses, udpath};

/// Time between two polls of the server's interface, nanoseconds.
const TIMER: &str = "3000000";
/// The files that the cause is arranged with.
const FILES: [(&str, &str); 2] = [("napi_defer_hard_irqs", "4"), ("gro_flush_timeout", TIMER)];
/// The server's port.
const PORT: u16 = 7000;

/// A lab with the cause, and its server.
struct Bed {
    lab: Lab,
    server: Running,
    state: tempfile::TempDir,
}

impl Bed {
    fn new(name: &str) -> Self {
        let lab = client_and_server(name, 2);
        // NAPI, whose timer is the cause.
        lab.machine("server").unwrap().towards("client").unwrap().keep_napi().unwrap();
        lab.machine("server").unwrap().run(|| FILES.map(|(file, value)| write(file, value))).unwrap();
        let server = udpath(&lab, "server", &["serve", "echo", "--io", "shared", "--bind", "0.0.0.0:7000"]);
        let mut bed = Self { lab, server, state: tempfile::tempdir().unwrap() };
        bed.server.says("ready io=shared");
        bed
    }

    /// `udpath boost` from outside of the lab's machines, with `more` options before the load.
    fn boost(&self, more: &[&str]) -> Run {
        let [v4, _] = addresses(&self.lab);
        let (target, pid) = (format!("{v4}:{PORT}"), self.server.pid().to_string());
        let from = self.lab.machine("client").unwrap().namespace();
        let state = self.state.path().to_str().unwrap();
        let mut command = std::process::Command::new(program());
        command.args(["boost", "--pid", &pid, "--from", from, "--state", state, "--json", "--no-profile"]);
        command.args(["--duration", "100ms", "--bound", "10", "--blocks", "6"]).args(more);
        command.args(["--load", "echo", &target, "--flows", "4", "--inflight", "1"]);
        Run::of(command, "boost").within(TIMEOUT * 4)
    }

    /// The arranged settings, and the journal's entries that have something to undo.
    fn settings(&self) -> Vec<String> {
        self.lab.machine("server").unwrap().run(|| FILES.map(|(file, _)| read(file)).to_vec()).unwrap()
    }

    fn arranged() -> Vec<String> {
        FILES.map(|(_, value)| value.to_owned()).to_vec()
    }

    /// `udpath VERB` in the server's namespace.
    fn inside(&self, verb: &str) -> Ended {
        let state = self.state.path().to_str().unwrap();
        let namespace = self.lab.machine("server").unwrap().namespace();
        Run::new(&[verb, "--netns", namespace, "--state", state]).finish()
    }
}

fn path(file: &str) -> std::path::PathBuf {
    Path::new("/sys/class/net/eth0").join(file)
}

fn write(file: &str, value: &str) {
    fs::write(path(file), value).unwrap();
}

fn read(file: &str) -> String {
    fs::read_to_string(path(file)).unwrap().trim().to_owned()
}

/// Names of what helps.
fn kept(result: &Value) -> Vec<&str> {
    let kept = result["running"]["kept"].as_array().unwrap();
    kept.iter().map(|helps| helps["name"].as_str().unwrap()).collect()
}

#[test]
fn what_helps_is_found_and_nothing_stays_changed() {
    udpath_lab::needs_root!();
    let bed = Bed::new("boost-found");
    let ended = bed.boost(&["--budget", "20s"]).finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    let result: Value = serde_json::from_str(&ended.out).unwrap();
    // Each removes the cause, as the gain shows; which of them is fastest is within the noise of a busy machine.
    let found = |name: &&str| ["no-defer", "defer-20us", "defer-75us"].contains(name);
    assert!(kept(&result).iter().any(found), "{}", result["running"]["kept"]);
    assert!(result["gain"]["low"].as_f64().unwrap() > 2.0, "{}", result["gain"]);
    assert_eq!(result["running"]["pids"][0], bed.server.pid());
    assert_eq!(bed.settings(), Bed::arranged());
    // Nothing to undo is left in the journal.
    let undo = bed.inside("undo");
    assert!(undo.err.contains("nothing to undo"), "{}", undo.err);
}

#[test]
fn what_helps_is_kept_on_request_and_undone_exactly() {
    udpath_lab::needs_root!();
    let bed = Bed::new("boost-kept");
    let ended = bed.boost(&["--budget", "1s", "--keep"]).finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    let result: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(kept(&result), ["no-defer"], "the budget is one race");
    assert_eq!(result["running"]["out_of_time"], true);
    assert_eq!(bed.settings(), ["0", "0"]);
    // A boot does not know this namespace.
    let fleeting = result["running"]["fleeting"].as_array().unwrap();
    assert_eq!((fleeting.len(), &fleeting[0]["until"]), (1, &Value::from("boot")), "{fleeting:?}");
    assert!(fleeting[0]["why"].as_str().unwrap().contains("network namespace"), "{fleeting:?}");
    let undo = bed.inside("undo");
    assert_eq!(undo.code(), Some(0), "{}", undo.err);
    assert_eq!(bed.settings(), Bed::arranged());
}

#[test]
fn ended_by_a_signal_it_restores_everything() {
    udpath_lab::needs_root!();
    let bed = Bed::new("boost-term");
    // As from a terminal, `timeout`, and systemd: several signals, which are one request.
    let ways: [&[Signal]; 4] = [
        &[Signal::INT, Signal::INT],
        &[Signal::TERM, Signal::TERM],
        &[Signal::TERM, Signal::HUP],
        &[Signal::HUP],
    ];
    let rounds = udpath_rig::campaign::rounds(4, 50);
    for round in 0..rounds {
        let boost = bed.boost(&[]).in_group().start();
        changed(&bed);
        // At other moments of a search each time.
        std::thread::sleep(Duration::from_millis(u64::from(round) * 137 % 1_000));
        ways[round as usize % ways.len()].iter().for_each(|signal| boost.signal_group(*signal));
        let ended = boost.finish();
        assert_eq!(ended.code(), Some(3), "{}", ended.err);
        assert!(ended.err.contains("interrupted; every setting is as found"), "{}", ended.err);
        assert!(!ended.err.contains("at once"), "{}", ended.err);
        assert_eq!(bed.settings(), Bed::arranged());
    }
    udpath_rig::campaign::record(
        "boosts of a running server ended by several signals",
        &format!("{rounds}, settings left: 0"),
    );
}

/// Killed, its changes stay until `undo`, or the next boost, restores them.
#[test]
fn killed_its_changes_are_undone_by_the_next_start() {
    udpath_lab::needs_root!();
    let bed = Bed::new("boost-kill");
    let kills = udpath_rig::campaign::rounds(2, 30);
    for kill in 0..kills {
        let how = if kill % 2 == 0 { "undo" } else { "boost" };
        let boost = bed.boost(&[]).start();
        changed(&bed);
        // At other moments of a search each time: in a trial, between two, while settings change.
        std::thread::sleep(Duration::from_millis(u64::from(kill) * 137 % 1_000));
        boost.signal(Signal::KILL);
        assert_eq!(boost.finish().code(), None, "ended by the signal");
        if how == "undo" {
            let undo = bed.inside("undo");
            assert_eq!(undo.code(), Some(0), "{}", undo.err);
        } else {
            let ended = bed.boost(&["--budget", "1s"]).finish();
            assert_eq!(ended.code(), Some(0), "{}", ended.err);
            assert!(ended.out.contains("an earlier boost that was killed"), "{}", ended.out);
        }
        assert_eq!(bed.settings(), Bed::arranged(), "after {how}");
    }
    udpath_rig::campaign::record("kills of boost on udpath's server", &format!("{kills}, settings left: 0"));
}

#[test]
fn a_server_that_ends_is_named_and_the_settings_are_restored() {
    udpath_lab::needs_root!();
    let bed = Bed::new("boost-gone");
    let boost = bed.boost(&[]).start();
    changed(&bed);
    bed.server.signal(Signal::KILL);
    let ended = boost.finish();
    assert_eq!(ended.code(), Some(3), "{}", ended.err);
    assert!(ended.err.contains("ended during the boost"), "{}", ended.err);
    assert_eq!(bed.settings(), Bed::arranged());
}

#[test]
fn wrong_arguments_are_named() {
    for (arguments, says) in [
        (&["boost", "--port", "53"][..], "--load"),
        (&["boost", "--load", "echo", "127.0.0.1:7"], "--port, --pid or --unit"),
        (&["boost", "--port", "53", "--lab", "--load", "echo", "127.0.0.1:7"], "--lab"),
        (&["boost", "--port", "53", "--load", "echo", "127.0.0.1:7", "--find-max"], "remove --find-max"),
        (&["boost", "--port", "53", "--load", "echo", "127.0.0.1:7", "-d", "1s"], "boost's own --duration"),
        (&["boost", "--port", "53", "--load", "ech", "127.0.0.1:7"], "--load: invalid value 'ech'"),
        (&["boost", "--port", "53", "--load", "sink", "127.0.0.1:7", "--mode", "flood"], "--mode"),
        (&["boost", "--port", "0", "--load", "echo", "127.0.0.1:7"], "0"),
        (&["boost", "--pid", "1", "--queues", "2", "--load", "echo", "127.0.0.1:7"], "--queues"),
    ] {
        let ended = Run::new(arguments).finish();
        assert_eq!(ended.code(), Some(2), "{arguments:?}: {}", ended.err);
        assert!(ended.err.contains(says), "{arguments:?}: {}", ended.err);
    }
    let state = tempfile::tempdir().unwrap();
    let state = state.path().to_str().unwrap();
    for (server, says) in [
        (["--port", "9"], "no UDP socket is bound to port 9"),
        (["--pid", "4194000"], "4194000"),
        (["--unit", "no-such"], "systemd, which would know no-such.service, is not running"),
    ] {
        let line = [&["boost"], &server[..], &["--state", state, "--load", "echo", "127.0.0.1:9"]].concat();
        let ended = Run::new(&line).finish();
        assert!([Some(2), Some(3)].contains(&ended.code()), "{server:?}: {}", ended.err);
        assert!(ended.err.contains(says), "{server:?}: {}", ended.err);
    }
}

/// Waits until the boost has changed the arranged settings.
fn changed(bed: &Bed) {
    udpath_rig::awaited("a trial without the timer", TIMEOUT * 2, || {
        (bed.settings() != Bed::arranged()).then_some(())
    });
}
