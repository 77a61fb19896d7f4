//! Instances and supervisors that are killed.

use std::time::Duration;

use super::servers::kill;
use super::*;

#[test]
fn a_killed_instance_leaves_at_once_and_comes_back() {
    udpath_lab::needs_root!();
    udpath_rig::needs_cpus!(2);
    let _alone = udpath_rig::alone();
    let scene = Scene::new("one-killed");
    let mut running = scene.python(&["-n", "2"], "pid");
    for number in [2, 1] {
        let pids = scene.pids();
        let (killed, other) = (pids[number - 1], pids[2 - number]);
        kill(killed, Signal::KILL);
        udpath_rig::awaited("its end", TIMEOUT, || (!runs(killed)).then_some(()));
        // The kernel has closed its socket, or does so now: whatever is sent from then on reaches the other one.
        running.says(&format!("instance {number}: ended (signal: 9 (SIGKILL)); starts again in 0.1 s"));
        let counts = scene.answered(32, 1);
        assert!(counts.contains_key(&other) && !counts.contains_key(&killed), "{counts:?}");
        udpath_rig::awaited("another one", TIMEOUT, || (scene.pids().len() == 2).then_some(()));
        let counts = scene.answered(64, 1);
        assert!(counts.len() == 2 && counts.contains_key(&other), "{counts:?}");
    }
    scene.end(running);
}

#[test]
fn an_instance_that_reads_no_more_is_replaced_without_a_query() {
    udpath_lab::needs_root!();
    udpath_rig::needs_cpus!(2);
    let _alone = udpath_rig::alone();
    let scene = Scene::new("stuck");
    let mut running = scene.python(&["-n", "2"], "pid");
    let stuck = scene.pids()[0];
    kill(stuck, Signal::STOP);
    let clients: Vec<UdpSocket> = (0..64).map(|_| scene.client()).collect();
    clients.iter().for_each(|client| assert_eq!(client.send(b"waits").unwrap(), 5));
    running.says("instance 1: used no CPU time for 5 s while datagrams waited; it was killed");
    udpath_rig::awaited("another one", TIMEOUT, || (scene.pids().len() == 2).then_some(()));
    assert_eq!(scene.answered(64, 1).len(), 2);
    scene.end(running);
}

#[test]
fn a_killed_supervisor_leaves_nothing() {
    udpath_lab::needs_root!();
    udpath_rig::needs_cpus!(2);
    let _alone = udpath_rig::alone();
    let scene = Scene::new("guarded");
    for _ in 0..udpath_rig::campaign::rounds(2, 20) {
        let running = scene.python(&["-n", "2"], "pid");
        let pids = scene.pids();
        running.signal(Signal::KILL);
        // Waits for the guard and the instances as well.
        let _ = running.finish();
        scene.nothing_is_left();
        assert!(!pids.iter().any(|pid| runs(*pid)));
    }
}

#[test]
fn two_signals_in_a_row_end_it_in_order() {
    udpath_lab::needs_root!();
    udpath_rig::needs_cpus!(2);
    let _alone = udpath_rig::alone();
    let scene = Scene::new("twice");
    let rounds = udpath_rig::campaign::rounds(2, 50);
    for round in 0..rounds {
        let running = scene.python(&["-n", "2"], "pid");
        let signal = [Signal::TERM, Signal::INT, Signal::HUP][round as usize % 3];
        running.signal(signal);
        running.signal(signal);
        let ended = running.finish();
        // By its supervisor, which prints the table of the last state; not by the guard.
        assert_eq!(ended.code(), Some(0), "{}", ended.err);
        assert!(!ended.err.contains("at once") && !ended.out.is_empty(), "{}", ended.err);
        scene.nothing_is_left();
    }
    udpath_rig::campaign::record("instances ended by two signals", &format!("{rounds}, leaving anything: 0"));
}

#[test]
fn what_a_killed_guard_cannot_take_back_the_next_start_does() {
    udpath_lab::needs_root!();
    udpath_rig::needs_cpus!(2);
    let _alone = udpath_rig::alone();
    let scene = Scene::new("unguarded");
    let running = scene.python(&["-n", "2"], "pid");
    let (supervisor, pids) = (running.pid(), scene.pids());
    kill(guard_of(supervisor), Signal::KILL);
    running.signal(Signal::KILL);
    udpath_rig::awaited("its end", TIMEOUT, || {
        let list = Run::new(&["multiply", "--list"]).finish();
        list.err.contains("its supervisor was killed").then_some(())
    });
    assert!(pids.iter().all(|pid| runs(*pid)), "they still run");
    assert_eq!(scene.answered(64, 1).len(), 2, "and serve");
    // The policy alone can be undone without another start.
    let state = scene.text("journal");
    let undone = Run::new(&["undo", "--state", &state]).finish();
    assert_eq!(undone.code(), Some(0), "{}", undone.err);
    assert!(!Path::new(PINNED).exists());
    // Under another name, and at another port.
    let other = Scene::new("next");
    let mut next = other.python(&["-n", "1"], "pid");
    next.says(&format!("took back what a killed supervisor of {} had left", scene.name));
    assert!(!scene.cgroup().exists());
    assert!(!pids.iter().any(|pid| runs(*pid)));
    drop(running);
    other.end(next);
}

/// Whether a process has not ended; one that has, and was not waited for, runs no program.
pub(super) fn runs(pid: u32) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}

/// The other child of a supervisor: neither an instance nor the supervisor.
fn guard_of(supervisor: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).unwrap();
    let is_guard = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|words| words.contains("multiply-guard"))
    };
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).find(is_guard).expect("it has a guard")
}

#[test]
fn a_kill_during_the_start_leaves_nothing() {
    udpath_lab::needs_root!();
    let _alone = udpath_rig::alone();
    let scene = Scene::new("early");
    let (file, port) = (scene.text("server.py"), scene.port.to_string());
    for turn in 0..udpath_rig::campaign::rounds(10, 100) {
        let running = scene.run(&["-n", "1"], &["python3", &file, &port, "pid"]).start();
        // Spread over its start, of some 300 ms here.
        std::thread::sleep(Duration::from_millis(turn as u64 * 29 % 400));
        running.signal(Signal::KILL);
        let _ = running.finish();
        // Before its guard was started, it had recorded nothing but its folder.
        let list = Run::new(&["multiply", "--list"]).finish();
        if list.err.contains("killed") {
            assert!(!scene.cgroup().exists() && !Path::new(PINNED).exists());
            let running = scene.python(&["-n", "1"], "pid");
            scene.end(running);
        }
        scene.nothing_is_left();
    }
}
