//! `boost` of a server that runs already: whatever happens to the program or the server, every setting is as it was.
//! What it finds depends on the CPUs, so `alone running` tests that.

mod configuration;
mod link_reset;
mod live;
mod untrue;

use std::time::Duration;

use rustix::process::Signal;
use udpath_rig::{DeferredServer as Bed, Run, TIMEOUT};

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
