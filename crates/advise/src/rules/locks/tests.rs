use udpath_profile::classes::Class;
use udpath_profile::context::Context;
use udpath_profile::facts::{BoundSocket, Focus};
use udpath_profile::perf::Clock;
use udpath_profile::profile::Accounted;
use udpath_profile::trace::locks::Contention;
use udpath_profile::trace::{Locks, Times, Traces};

use super::*;
use crate::rules::of_profile;
use crate::rules::testing::{built, fires_above, of};

/// What the largest finding says.
fn evidence(profile: &Profile) -> String {
    of_profile(profile)[0].evidence.clone()
}

#[test]
fn a_shared_socket_is_named_with_its_readers() {
    let mut profile = built();
    let findings = of_profile(&profile);
    let [finding] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!(
        (finding.id.as_str(), finding.evidence.as_str()),
        (
            "receive-queue-lock",
            "34 % of CPU time waits for the receive-queue lock of one socket, 0.0.0.0:53, read by 20 threads of \
             knotd (pid 812)"
        )
    );
    assert_eq!(finding.locations, [Location::Process(812)]);
    assert!(finding.remedies[0].what().contains("SO_REUSEPORT"));
    // Several sockets of the port; then several ports, of which one was asked for.
    let socket = |text: &str| BoundSocket { local: text.parse().unwrap(), pids: vec![812], drops: 0 };
    profile.facts.sockets.push(socket("0.0.0.0:53"));
    assert!(evidence(&profile).contains("of the 2 sockets of port 53, read by 20 threads"));
    profile.facts.sockets = vec![socket("0.0.0.0:53"), socket("[::]:853")];
    assert!(evidence(&profile).contains("of UDP sockets read by 20 threads"));
    let profile = profile.about(Focus { port: Some(853), pids: vec![812] });
    assert!(evidence(&profile).contains("one socket, [::]:853, read by"));
}

/// A receive queue's lock: milliseconds in functions of the lock, beside as much of other work.
fn locked(functions: &[(&str, u64)]) -> Profile {
    let frames: Vec<String> =
        functions.iter().map(|(function, _)| format!("worker@ udp_recvmsg {function}")).collect();
    let mut lines = vec![(Context::Softirq, Class::Ip, None, None, "ip_rcv", 1_000)];
    lines.extend(frames.iter().zip(functions).map(|(frames, (_, ms))| {
        (Context::Syscall, Class::Lock, Some("socket-receive-queue"), Some("knotd"), frames.as_str(), *ms)
    }));
    of(&lines)
}

#[test]
fn waiting_for_a_lock_differs_from_taking_it() {
    for (functions, waits) in [
        // Taken and given back, at one cost.
        (&[("_raw_spin_lock_bh", 400), ("_raw_spin_unlock_bh", 400)][..], false),
        (&[("_raw_spin_lock_bh", 400), ("_raw_spin_unlock_bh", 250)], false),
        // The lock's memory is fetched from another CPU each time.
        (&[("_raw_spin_lock_bh", 400), ("_raw_spin_unlock_bh", 30)], true),
        (&[("native_queued_spin_lock_slowpath", 300), ("_raw_spin_unlock_bh", 200)], true),
        (&[("native_queued_spin_lock_slowpath", 200), ("_raw_spin_unlock_bh", 300)], false),
        // Waking the next one is not waiting.
        (&[("__pv_queued_spin_unlock_slowpath", 500)], false),
        // Interrupts were off: a timer comes at the end.
        (&[("_raw_spin_unlock_irqrestore", 500)], false),
    ] {
        let evidence = evidence(&locked(functions));
        let says = if waits { " waits for the receive" } else { " goes into the receive" };
        assert!(evidence.contains(says), "{functions:?}: {evidence}");
    }
    assert_eq!(of_profile(&locked(&[("_raw_spin_lock_bh", 30), ("_raw_spin_unlock_bh", 30)])), []);
}

fn traced(owner: &str, kind: LockKind, ms: u64) -> Traces {
    let waits = Times { count: 1, ns: ms * 1_000_000, ..Times::default() };
    let place = Contention { owner: owner.into(), lock: 1, kind, socket: None, frames: Vec::new(), waits };
    Traces { locks: Some(Locks { places: vec![place], ..Locks::default() }), ..Traces::default() }
}

#[test]
fn what_was_traced_of_a_lock_is_believed() {
    let mut profile = locked(&[("_raw_spin_unlock_irqrestore", 100)]);
    let begins = |profile: &Profile| evidence(profile).split(" the ").next().unwrap().to_owned();
    assert_eq!(begins(&profile), "9.1 % of CPU time goes into");
    profile.traces = traced("socket-receive-queue", LockKind::Spin, 60);
    assert_eq!(begins(&profile), "9.1 % of CPU time waits for");
    // Waiters that were halted are in no sample.
    profile.traces = traced("socket-receive-queue", LockKind::Spin, 220);
    assert_eq!(begins(&profile), "20 % of CPU time waits for");
    // That is of all CPUs, also where only some were sampled.
    profile.facts.online = 4;
    assert_eq!(begins(&profile), "9.1 % of CPU time goes into");
    profile.facts.online = 2;
    // A sleeping waiter takes no CPU time; and another lock is another lock.
    for (owner, kind) in [("socket-receive-queue", LockKind::Mutex), ("qdisc", LockKind::Spin)] {
        profile.traces = traced(owner, kind, 220);
        assert_eq!(begins(&profile), "9.1 % of CPU time goes into");
    }
}

#[test]
fn waking_a_sockets_readers_is_named_with_the_socket() {
    let line = (
        Context::Softirq,
        Class::Lock,
        Some("socket-wait-queue"),
        None,
        "sock_def_readable _raw_spin_unlock_irqrestore",
        900,
    );
    let recv = (Context::Syscall, Class::SocketRead, None, Some("knotd"), "worker@ udp_recvmsg", 1_000);
    let mut profile = of(&[line, recv]);
    // Cycles are counted with interrupts off as well: then it is the lock.
    let socket = "one socket, 0.0.0.0:53, read by 20 threads of knotd (pid 812)";
    assert_eq!(evidence(&profile), format!("47 % of CPU time goes into the wait-queue lock of {socket}"));
    profile.clock = Clock::CpuClock;
    assert_eq!(
        evidence(&profile),
        format!("47 % of CPU time goes into waking the readers of {socket}, and into the lock for that")
    );
}

#[test]
fn choosing_the_next_thread_is_no_lock_to_a_timer() {
    let found = |clock: Clock, function: &str| {
        let frames = format!("schedule {function}");
        let line = (Context::Syscall, Class::Lock, Some(RUN_QUEUE), None, frames.as_str(), 300);
        let mut profile = of(&[line]);
        profile.clock = clock;
        of_profile(&profile).iter().map(|finding| finding.evidence.clone()).collect::<Vec<_>>()
    };
    let (given_back, waited) = ("_raw_spin_unlock_irq", "native_queued_spin_lock_slowpath");
    assert_eq!(found(Clock::CpuClock, given_back), [""; 0]);
    assert!(found(Clock::CpuClock, waited)[0].ends_with("waits for the lock of a run queue"));
    assert!(found(Clock::Cycles, given_back)[0].ends_with("goes into the lock of a run queue"));
}

#[test]
fn one_reader_or_one_busy_cpu_does_not_compete() {
    for lock in [RECEIVE_QUEUE, WAIT_QUEUE] {
        let line = (Context::Softirq, Class::Lock, Some(lock), None, "x _raw_spin_lock_bh", 900);
        let recv = (Context::Syscall, Class::SocketRead, None, Some("knotd"), "worker@ udp_recvmsg", 1_000);
        let mut profile = of(&[line, recv]);
        assert_eq!(of_profile(&profile).len(), 1, "twenty threads read it");
        let readers = profile.processes.iter_mut().find(|process| process.pid == 812).unwrap();
        readers.threads.iter_mut().skip(1).for_each(|thread| thread.reads = false);
        assert_eq!(of_profile(&profile), [], "{lock}: one does");
    }
    let line = (Context::Softirq, Class::Lock, Some("qdisc"), None, "x _raw_spin_unlock", 900);
    let mut profile = of(&[line]);
    let mut busy = |first: f64, second: f64| {
        let lines = profile.cpus.iter_mut().zip([first, second]);
        lines.for_each(|(line, busy)| {
            line.accounted = Some(Accounted { idle: 1.0 - busy, ..Accounted::default() });
        });
        of_profile(&profile).iter().filter(|finding| finding.id == "lock").count()
    };
    assert_eq!((busy(0.9, 0.9), busy(0.9, 0.02)), (1, 0));
}

#[test]
fn what_the_hypervisor_took_is_no_locks() {
    let mut profile = locked(&[("_raw_spin_lock_bh", 120)]);
    let mut found = |steal: f64| {
        profile
            .cpus
            .iter_mut()
            .for_each(|line| line.accounted = Some(Accounted { steal, ..Accounted::default() }));
        of_profile(&profile).iter().filter(|finding| finding.id == "receive-queue-lock").count()
    };
    // 11 % of the CPU time.
    assert_eq!((found(0.0), found(0.04), found(0.08), found(0.3)), (1, 1, 0, 0));
}

#[test]
fn a_lock_of_the_way_out() {
    let line = (Context::Softirq, Class::Lock, Some("qdisc"), None, "x _raw_spin_unlock", 100);
    let finding = fires_above("lock", line, 40);
    assert_eq!(finding.evidence, "9.1 % of CPU time goes into the lock of a queueing discipline");
}
