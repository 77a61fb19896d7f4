//! Signals that arrive while many settings are being changed or restored: an apply is taken back; an undo and a revert
//! go to their end.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use udpath_rig::{Said, TIMEOUT, awaited, campaign};

use super::place::Place;
use super::revert::reverting;
use super::systemd::Systemd;

/// Enough queues that an apply, or an undo, is far from done when a signal arrives: four changes for each.
const QUEUES: u32 = 96;
/// Every setting that changes.
const LISTING: &str = "cd /sys/class/net/eth0; grep -H . queues/*/*ps_cpus queues/*/rps_flow_cnt threaded napi_defer_hard_irqs || true; ethtool -k eth0";
const SETTINGS: [&str; 7] = [
    "eth0:channels/rx=95",
    // Without it a veth has no NAPI that could be threaded.
    "eth0:feature/rx-gro=on",
    "eth0:napi/threaded=on",
    "eth0:napi/defer-hard-irqs=2",
    "eth0:rps/rx-*=0-1",
    "eth0:rfs/rx-*=64",
    "eth0:xps/tx-*=0",
];
const SIGNALS: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];

/// Arguments that apply all settings.
fn apply(more: &[&str]) -> Vec<String> {
    let set = SETTINGS.iter().flat_map(|set| ["--set", set]);
    ["apply"].iter().chain(more).copied().chain(set).map(str::to_owned).collect()
}

/// Starts `udpath ARGUMENTS` with a journal.
fn started(place: &Place, arguments: &[String], state: &Path) -> Child {
    let mut command: Command = place.command(udpath_rig::program());
    command.args(arguments).arg("--state").arg(state);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until a journal's first entry has this many lines of a kind, without a pause, in which the program would make
/// progress.
fn has_written(state: &Path, kind: &str, lines: usize) {
    let (entry, kind) = (state.join("000001.journal"), format!("\"{kind}\""));
    let deadline = Instant::now() + TIMEOUT;
    while fs::read_to_string(&entry).unwrap_or_default().matches(&kind).count() < lines {
        assert!(Instant::now() < deadline, "no {lines} lines of {kind}");
    }
}

/// Two in a row are one request.
fn two_signals(pid: Pid, round: u32) {
    for signal in [SIGNALS[round as usize % 3], Signal::TERM] {
        // A process that has just ended needs none.
        let _ = kill_process(pid, signal);
    }
}

/// A signal that arrives during the first of many changes.
#[test]
fn a_signal_takes_an_apply_back_and_is_exit_4() {
    udpath_lab::needs_root!();
    let place = Place::with_queues("signals", QUEUES);
    let before = place.shell(LISTING).fine().out.clone();
    let (mut taken_back, mut round, wanted) = (0, 0, campaign::rounds(6, 60));
    // On a busy machine an apply may be done before the signal is sent: then another is tried.
    while taken_back < wanted {
        assert!(round < 10 * wanted, "of {round}, only {taken_back} were taken back");
        let state = place.state.path().join(round.to_string());
        let child = started(&place, &apply(&[]), &state);
        // Signal after this many changes, depending on the round.
        has_written(&state, "intent", 1 + round as usize / 3 % 4);
        two_signals(Pid::from_child(&child), round);
        let said = Said::from(child.wait_with_output().unwrap());
        match said.code {
            Some(4) => {
                taken_back += 1;
                let lines = said.err.lines().count();
                assert!(said.err.contains("interrupted by SIG") && lines == 1, "{}", said.err);
            }
            // It finished before the signal arrived.
            Some(0) => {
                place.shell(&format!("$U undo --state {}", state.display())).fine();
            }
            code => panic!("round {round}: {code:?} {}", said.err),
        }
        assert_eq!(place.shell(LISTING).fine().out, before, "round {round}");
        round += 1;
    }
    campaign::record(
        "applies ended by a signal",
        &format!("{round}, taken back or whole: {round}, of these taken back: {taken_back}"),
    );
}

#[test]
fn an_undo_goes_to_its_end() {
    udpath_lab::needs_root!();
    let place = Place::with_queues("undo-signals", QUEUES);
    let before = place.shell(LISTING).fine().out.clone();
    let (mut in_time, mut round, wanted) = (0, 0, campaign::rounds(3, 50));
    while in_time < wanted {
        assert!(round < 10 * wanted, "of {round}, only {in_time} signals came in time");
        let state = place.state.path().join(round.to_string());
        let applied = started(&place, &apply(&[]), &state).wait_with_output().unwrap();
        Said::from(applied).fine();
        let undo = started(&place, &["undo".to_owned()], &state);
        has_written(&state, "restored", 1 + round as usize / 3 % 4 * 40);
        let pid = Pid::from_child(&undo);
        two_signals(pid, round);
        // It has a handler for as long as it runs: then the signal was sent to it, and not to one that had ended.
        in_time += u32::from(still_runs(pid));
        let said = Said::from(undo.wait_with_output().unwrap());
        assert_eq!(said.fine().err.lines().count(), 1, "{}", said.err);
        assert_eq!(place.shell(LISTING).fine().out, before, "round {round}");
        round += 1;
    }
    campaign::record("undos that got two signals", &format!("{round}, not whole: 0"));
}

fn still_runs(pid: Pid) -> bool {
    let state = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    state.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// The process that reverts an unconfirmed apply, once it has begun.
#[test]
fn a_revert_goes_to_its_end() {
    udpath_lab::needs_root!();
    let place = Place::with_queues("revert-signals", QUEUES);
    let before = place.shell(LISTING).fine().out.clone();
    let rounds = campaign::rounds(2, 50);
    for round in 0..rounds {
        let state = place.state.path().join(round.to_string());
        let applied = started(&place, &apply(&["--confirm", "1s"]), &state).wait_with_output().unwrap();
        Said::from(applied).fine();
        let [pid] = reverting(&state)[..] else { panic!("one process waits") };
        has_written(&state, "restored", 1 + round as usize / 3 % 4 * 40);
        two_signals(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), round);
        awaited("it to end", TIMEOUT, || reverting(&state).is_empty().then_some(()));
        assert_eq!(place.shell(LISTING).fine().out, before, "round {round}");
        let status = place.shell(&format!("$U status --state {}", state.display()));
        assert!(status.fine().out.contains("reverted: not confirmed in time"), "{}", status.out);
    }
    campaign::record("reverts that got two signals", &format!("{rounds}, not whole: 0"));
}

/// A stop by systemd: SIGTERM to each process of the unit, and SIGHUP.
#[test]
fn a_stop_by_systemd_takes_an_apply_back_and_lets_an_undo_and_a_revert_end() {
    udpath_lab::needs_root!();
    let place = Place::with_queues("stop", QUEUES);
    let systemd = Systemd::start(&place);
    let before = place.shell(LISTING).fine().out.clone();
    let (mut taken_back, mut round, wanted) = (0, 0, campaign::rounds(2, 50));
    while taken_back < wanted {
        assert!(round < 10 * wanted, "of {round}, only {taken_back} were taken back");
        let state = place.state.path().join(round.to_string());
        let unit = format!("udpath-apply-{round}");
        systemd.start_unit(&unit, &apply(&[]), &state);
        has_written(&state, "intent", 1 + round as usize / 3 % 4);
        let code = systemd.stop(&unit);
        if place.shell(LISTING).fine().out == before {
            assert_eq!(code, Some(4), "round {round}");
            taken_back += 1;
        } else {
            // It had finished.
            assert_eq!(code, Some(0), "round {round}");
            let unit = format!("udpath-undo-{round}");
            systemd.start_unit(&unit, &["undo".to_owned()], &state);
            has_written(&state, "restored", 1);
            assert_eq!(systemd.stop(&unit), Some(0), "round {round}");
        }
        assert_eq!(place.shell(LISTING).fine().out, before, "round {round}");
        round += 1;
    }
    // Its own unit, once while it restores, and once while it waits.
    for (wait, restores) in [("1s", true), ("10m", false)] {
        let state = place.state.path().join(format!("revert-{wait}"));
        systemd.start_unit("udpath-confirmed", &apply(&["--confirm", wait]), &state);
        has_written(&state, "applied", 1);
        let units = systemd.units();
        let unit = units.split_whitespace().next().expect("a unit will revert it");
        if restores {
            has_written(&state, "restored", 3);
        }
        systemd.stop(unit);
        assert_eq!(place.shell(LISTING).fine().out == before, restores, "{wait}");
        let status = place.shell(&format!("$U status --state {}", state.display()));
        match restores {
            true => assert!(status.fine().out.contains("reverted: not confirmed in time"), "{}", status.out),
            false => status.refused(1, "the process that would revert it is gone"),
        }
        systemd.stop("udpath-confirmed");
    }
    campaign::record(
        "applies stopped by systemd",
        &format!("{round}, taken back or whole: {round}, of these taken back: {taken_back}"),
    );
}
