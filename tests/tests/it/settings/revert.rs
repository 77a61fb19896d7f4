//! Applies with --confirm: which process reverts them, what the revert survives, and where the outcome is visible.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use udpath_rig::{TIMEOUT, awaited};

use super::place::{Place, RPS};
use super::systemd::Systemd;

/// Pids of processes that will revert applies of this journal.
pub(crate) fn reverting(state: &Path) -> Vec<u32> {
    let wanted = state.to_str().unwrap();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&str> =
            line.split(|byte| *byte == 0).filter_map(|word| str::from_utf8(word).ok()).collect();
        words.get(1) == Some(&"revert") && words.contains(&wanted)
    })
    .collect()
}

fn kill(pid: u32) {
    send(pid, Signal::KILL);
}

fn send(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal).unwrap();
}

/// Series exported for this journal.
pub(crate) fn series(place: &Place, name: &str) -> String {
    let said = place.run(&["export", "--once"]);
    let found = said.fine().out.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("{name}: {}", said.out)).to_owned()
}

#[test]
fn an_apply_that_overlaps_an_unconfirmed_one_is_refused_and_the_revert_is_visible() {
    udpath_lab::needs_root!();
    let place = Place::new("overlap");
    let before = place.rps();
    let applied = place.run(&["apply", "--confirm", "4s", "--set", RPS]);
    // This lab has no systemd of its own: apply prints the consequences.
    assert!(applied.fine().err.contains("does not survive the end of its cgroup"), "{}", applied.err);
    place
        .run(&["apply", "--set", "eth0:rps/rx-0=1"])
        .refused(3, "run `udpath confirm 1` or `udpath undo 1` first");
    place.run(&["apply", "--set", "eth0:rps/rx-1=1"]).fine();
    assert_eq!(series(&place, "udpath_applies{state=\"awaiting\"}"), "1");
    awaited("the apply to be reverted", TIMEOUT, || (place.rps() == before).then_some(()));
    awaited("what reverted it to end", TIMEOUT, || reverting(place.state.path()).is_empty().then_some(()));
    place.run(&["undo"]).fine();
    // Fully reverted: reported while it is the last entry; no action is needed.
    place.run(&["apply", "--confirm", "1s", "--set", RPS]).fine();
    awaited("the revert to be told", TIMEOUT, || {
        place.run(&["status"]).fine().out.contains("reverted: not confirmed in time").then_some(())
    });
    assert_eq!(series(&place, "udpath_reverted_applies{outcome=\"complete\"}"), "1");
    // Partly reverted: an exit code and a series until it is closed.
    place.run(&["apply", "--confirm", "2s", "--set", RPS, "--set", "eth0:rps/rx-1=1"]).fine();
    place.shell("echo 1 > /sys/class/net/eth0/queues/rx-1/rps_cpus").fine();
    awaited("the apply to be reverted in part", TIMEOUT, || {
        place.run(&["status"]).out.contains("except: eth0:rps/rx-1").then_some(())
    });
    assert_eq!(place.rps(), before);
    place.run(&["status"]).refused(1, "eth0:rps/rx-1 is 0");
    assert_eq!(series(&place, "udpath_reverted_applies{outcome=\"partial\"}"), "1");
    place.run(&["undo", "--forget", "4"]).fine();
    place.run(&["status"]).fine();
    assert_eq!(series(&place, "udpath_reverted_applies{outcome=\"partial\"}"), "0");
}

#[test]
fn a_killed_revert_is_reported_at_once() {
    udpath_lab::needs_root!();
    let place = Place::new("killed");
    place.run(&["apply", "--confirm", "10m", "--set", RPS]).fine();
    assert!(place.run(&["status"]).fine().out.contains("unless confirmed"));
    let [pid] = reverting(place.state.path())[..] else { panic!("one process waits") };
    kill(pid);
    awaited("status to tell that nobody waits", TIMEOUT, || {
        (place.run(&["status"]).code == Some(1)).then_some(())
    });
    place.run(&["status"]).refused(1, "the process that would revert it is gone");
    assert_eq!(series(&place, "udpath_applies{state=\"unattended\"}"), "1");
    place.run(&["undo"]).fine();
    place.run(&["status"]).fine();
}

#[test]
fn a_stopped_revert_is_named_and_the_apply_can_be_undone() {
    udpath_lab::needs_root!();
    let place = Place::new("stopped");
    let before = place.rps();
    place.run(&["apply", "--confirm", "10m", "--set", RPS]).fine();
    let [pid] = reverting(place.state.path())[..] else { panic!("one process waits") };
    send(pid, Signal::STOP);
    awaited("the process to stop", TIMEOUT, || (place.run(&["status"]).code == Some(1)).then_some(()));
    let status = place.run(&["status"]);
    status.refused(1, &format!("the process that would revert it, pid {pid}, is stopped"));
    assert!(status.out.contains(&format!("pid {pid}, which would revert it, is stopped")), "{}", status.out);
    let json = place.run(&["status", "--json"]).out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["applies"][0]["reverter"], serde_json::json!({"pid": pid, "stopped": true}));
    assert_eq!(series(&place, "udpath_applies{state=\"unattended\"}"), "1");
    // Once it goes on, it waits as before.
    send(pid, Signal::CONT);
    awaited("the process to go on", TIMEOUT, || (place.run(&["status"]).code == Some(0)).then_some(()));
    send(pid, Signal::STOP);
    awaited("the process to stop", TIMEOUT, || (place.run(&["status"]).code == Some(1)).then_some(()));
    place.run(&["undo"]).fine();
    assert_eq!(place.rps(), before);
    send(pid, Signal::CONT);
    awaited("it to end", TIMEOUT, || reverting(place.state.path()).is_empty().then_some(()));
    // Past the deadline as well.
    place.run(&["apply", "--confirm", "2s", "--set", RPS]).fine();
    let [pid] = reverting(place.state.path())[..] else { panic!("one process waits") };
    send(pid, Signal::STOP);
    awaited("the deadline to pass", TIMEOUT, || {
        place.run(&["status"]).out.contains(&format!("not reverted: pid {pid} is stopped")).then_some(())
    });
    send(pid, Signal::CONT);
    awaited("the apply to be reverted", TIMEOUT, || (place.rps() == before).then_some(()));
}

#[test]
fn a_stopped_holder_of_the_lock_is_named() {
    udpath_lab::needs_root!();
    let place = Place::new("held");
    let mut holder = place.command("flock");
    let lock = place.state.path().join("lock");
    let mut holder = holder.arg(&lock).args(["sleep", "1000"]).spawn().unwrap();
    let child = awaited("flock to hold the lock", TIMEOUT, || {
        let path = format!("/proc/{0}/task/{0}/children", holder.id());
        fs::read_to_string(path).ok()?.trim().parse().ok()
    });
    send(holder.id(), Signal::STOP);
    let said = place.run(&["apply", "--set", RPS]);
    kill(child);
    kill(holder.id());
    holder.wait().unwrap();
    said.refused(3, &format!("`kill -CONT {}`", holder.id()));
}

#[test]
fn with_systemd_the_revert_outlives_the_cgroup_and_a_kill() {
    udpath_lab::needs_root!();
    let place = Place::new("systemd");
    let before = place.rps();
    let systemd = Systemd::start(&place);
    // When the unit that applies ends, systemd kills everything left in its cgroup.
    systemd.run(&["apply", "--confirm", "3s", "--set", RPS]).fine();
    assert!(place.rps().ends_with('3'));
    assert!(systemd.units().contains("udpath-revert-1-"), "{}", systemd.units());
    awaited("the apply to be reverted", TIMEOUT, || (place.rps() == before).then_some(()));
    awaited("its unit to go", TIMEOUT, || systemd.units().is_empty().then_some(()));
    assert!(place.run(&["status"]).fine().out.contains("reverted: not confirmed in time"));
    // If killed, it is restarted, and reverts when the time is up.
    systemd.run(&["apply", "--confirm", "8s", "--set", RPS]).fine();
    let [pid] = reverting(place.state.path())[..] else { panic!("one process waits") };
    kill(pid);
    awaited("systemd to start it again", TIMEOUT, || {
        matches!(reverting(place.state.path())[..], [again] if again != pid).then_some(())
    });
    awaited("the apply to be reverted", TIMEOUT, || (place.rps() == before).then_some(()));
    // Once confirmed, the unit is removed.
    systemd.run(&["apply", "--confirm", "10m", "--set", RPS]).fine();
    place.run(&["confirm"]).fine();
    awaited("its unit to go", TIMEOUT, || systemd.units().is_empty().then_some(()));
    assert!(place.rps().ends_with('3'));
    place.run(&["undo"]).fine();
}
