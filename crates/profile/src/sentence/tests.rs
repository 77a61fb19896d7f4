use std::collections::BTreeMap;

use super::*;
use crate::classes::Class;
use crate::facts::{BoundSocket, Facts, Focus, Tap};
use crate::perf::{Clock, Sight};
use crate::profile::{
    Accounted, Counted, CpuLine, Datagrams, ProcessShare, SCHEMA, Share, Stack, ThreadShare,
};
use crate::trace::locks::{Contention, LockKind};
use crate::trace::{Locks, Times, Traces};

const SECOND: u64 = 1_000_000_000;

/// Stacks of a name server's machine: context, class, lock, process, frames, milliseconds.
type Line<'a> = (Context, Class, Option<&'a str>, Option<&'a str>, &'a str, u64);

/// A profile of two CPUs and five seconds, put together from its stacks; the time is spread over both CPUs evenly.
pub(crate) fn of(lines: &[Line<'_>]) -> Profile {
    let mut stacks: Vec<Stack> = lines
        .iter()
        .map(|(context, class, lock, process, frames, ms)| Stack {
            context: *context,
            class: *class,
            lock: lock.map(str::to_owned),
            process: process.map(str::to_owned),
            pid: None,
            frames: frames.split_whitespace().map(|frame| frame.replace('@', " [knotd]")).collect(),
            samples: *ms,
            ns: ms * 1_000_000,
        })
        .collect();
    stacks.sort_by_key(|stack| std::cmp::Reverse(stack.ns));
    let busy: u64 = stacks.iter().map(|stack| stack.ns).sum();
    let (mut contexts, mut classes, mut locks) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for stack in &stacks {
        *contexts.entry(stack.context).or_insert(0) += stack.ns;
        *classes.entry(stack.class).or_insert(0) += stack.ns;
        if let Some(lock) = &stack.lock {
            *locks.entry(lock.clone()).or_insert(0) += stack.ns;
        }
    }
    contexts.insert(Context::Idle, (10 * SECOND).saturating_sub(busy));
    fn shares<T>(from: BTreeMap<T, u64>, busy: u64) -> Vec<Share<T>> {
        let mut list: Vec<Share<T>> = from
            .into_iter()
            .map(|(of, ns)| Share { of, ns, share: ns as f64 / busy.max(1) as f64, others: 0 })
            .collect();
        list.sort_by_key(|share| std::cmp::Reverse(share.ns));
        list
    }
    let own: u64 = stacks.iter().filter(|stack| stack.process.is_some()).map(|stack| stack.ns).sum();
    let thread = |tid| ThreadShare { tid, name: "knotd".into(), ns: own / 20, reads: true };
    let mut profile = Profile {
        schema: SCHEMA.into(),
        sentence: String::new(),
        findings: Vec::new(),
        seconds: 5.0,
        cpus: (0..2)
            .map(|cpu| CpuLine {
                cpu,
                until: None,
                sampled: contexts.iter().map(|(context, ns)| (*context, ns / 2)).collect(),
                accounted: Some(Accounted {
                    usr: 0.1,
                    sys: 0.3,
                    soft: 0.5,
                    idle: 0.1,
                    ..Accounted::default()
                }),
                time_line: Vec::new(),
            })
            .collect(),
        clock: Clock::Cycles,
        sight: Sight::Machine,
        samples: Counted { rate: 997, taken: 9970, lost: 0, throttled: 0, malformed: 0, nameless: 0 },
        contexts,
        classes: shares(classes, busy),
        locks: shares(locks, busy),
        processes: vec![ProcessShare {
            pid: 812,
            name: "knotd".into(),
            ns: own,
            share: own as f64 / busy.max(1) as f64,
            threads: (812..832).map(thread).collect(),
        }],
        hardware: None,
        datagrams: Some(Datagrams { received: 1_000_000, sent: 1_000_000, dropped: 0 }),
        stacks,
        traces: Traces::default(),
        facts: Facts {
            online: 2,
            sockets: vec![BoundSocket { local: "0.0.0.0:53".parse().unwrap(), pids: vec![812], drops: 0 }],
            ..Facts::default()
        },
        notes: Vec::new(),
    };
    profile.conclude();
    profile
}

/// A name server with one socket for twenty threads.
pub(crate) fn built() -> Profile {
    use Class::*;
    use Context::{HardIrq, Softirq, Syscall as Call, User as Program};
    of(&[
        (
            Softirq,
            Lock,
            Some("socket-receive-queue"),
            None,
            "x@ sendto do_syscall_64 handle_softirqs net_rx_action udp_rcv _raw_spin_lock native_queued_spin_lock_slowpath",
            3_000,
        ),
        (
            Softirq,
            Lock,
            Some("socket-receive-queue"),
            None,
            "asm_common_interrupt handle_softirqs net_rx_action udp_rcv _raw_spin_lock native_queued_spin_lock_slowpath",
            100,
        ),
        (Softirq, UdpReceive, None, None, "handle_softirqs net_rx_action udp_rcv", 1_500),
        (Softirq, NapiGro, None, None, "handle_softirqs net_rx_action veth_poll", 1_400),
        (Call, SocketRead, None, Some("knotd"), "worker@ do_syscall_64 udp_recvmsg", 1_000),
        (Call, UdpSend, None, Some("knotd"), "worker@ do_syscall_64 udp_sendmsg", 700),
        (Program, User, None, Some("knotd"), "worker@ query@", 1_300),
        (HardIrq, Interrupt, None, None, "common_interrupt handle_irq_event", 200),
    ])
}

fn rules(profile: &Profile) -> Vec<Rule> {
    profile.findings.iter().map(|finding| finding.rule).collect()
}

#[test]
fn a_shared_socket_is_named_with_its_readers() {
    let mut profile = built();
    assert_eq!(
        profile.sentence,
        "65 % of the CPU time used is in softirq on CPUs 0-1, 34 % waits for the receive-queue lock of one socket, \
         0.0.0.0:53, read by 20 threads of knotd (pid 812)."
    );
    assert_eq!(rules(&profile), [Rule::ReceiveQueueLock]);
    assert!(profile.findings[0].remedy.contains("SO_REUSEPORT"));
    // Several sockets of the port; then several ports, of which one was asked for.
    let socket = |text: &str| BoundSocket { local: text.parse().unwrap(), pids: vec![812], drops: 0 };
    profile.facts.sockets.push(socket("0.0.0.0:53"));
    profile.conclude();
    assert!(
        profile.sentence.contains("of the 2 sockets of port 53, read by 20 threads"),
        "{}",
        profile.sentence
    );
    profile.facts.sockets = vec![socket("0.0.0.0:53"), socket("[::]:853")];
    profile.conclude();
    assert!(profile.sentence.contains("of UDP sockets read by 20 threads"), "{}", profile.sentence);
    let profile = profile.about(Focus { port: Some(853), pids: vec![812] });
    assert!(profile.sentence.contains("one socket, [::]:853, read by"), "{}", profile.sentence);
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
fn waiting_for_a_lock_is_told_from_taking_it() {
    for (functions, waits) in [
        // Taken and given back, at one cost.
        (&[("_raw_spin_lock_bh", 400), ("_raw_spin_unlock_bh", 400)][..], false),
        (&[("_raw_spin_lock_bh", 400), ("_raw_spin_unlock_bh", 250)], false),
        // The lock's memory is fetched from another CPU each time.
        (&[("_raw_spin_lock_bh", 400), ("_raw_spin_unlock_bh", 30)], true),
        (&[("native_queued_spin_lock_slowpath", 300), ("_raw_spin_unlock_bh", 200)], true),
        (&[("native_queued_spin_lock_slowpath", 200), ("_raw_spin_unlock_bh", 300)], false),
        // To wake the next one is no waiting.
        (&[("__pv_queued_spin_unlock_slowpath", 500)], false),
        // Interrupts were off: a timer comes at the end.
        (&[("_raw_spin_unlock_irqrestore", 500)], false),
    ] {
        let profile = locked(functions);
        let says = if waits { " waits for the receive" } else { " goes into the receive" };
        assert!(profile.sentence.contains(says), "{functions:?}: {}", profile.sentence);
    }
}

fn traced(owner: &str, kind: LockKind, ms: u64) -> Traces {
    let waits = Times { count: 1, ns: ms * 1_000_000, ..Times::default() };
    let place = Contention { owner: owner.into(), lock: 1, kind, socket: None, frames: Vec::new(), waits };
    Traces { locks: Some(Locks { places: vec![place], ..Locks::default() }), ..Traces::default() }
}

#[test]
fn what_was_traced_of_a_lock_is_believed() {
    let mut profile = locked(&[("_raw_spin_unlock_irqrestore", 100)]);
    let finding = |profile: &Profile| profile.findings[0].text.split(" the ").next().unwrap().to_owned();
    assert_eq!(finding(&profile), "9.1 % goes into");
    profile.traces = traced("socket-receive-queue", LockKind::Spin, 60);
    profile.conclude();
    assert_eq!(finding(&profile), "9.1 % waits for");
    // Waiters that were halted are in no sample.
    profile.traces = traced("socket-receive-queue", LockKind::Spin, 220);
    profile.conclude();
    assert_eq!(finding(&profile), "20 % waits for");
    // That is of all CPUs, also where only some were sampled.
    profile.facts.online = 4;
    profile.conclude();
    assert_eq!(finding(&profile), "9.1 % goes into");
    profile.facts.online = 2;
    // Who sleeps takes no CPU time; and another lock is another lock.
    for (owner, kind) in [("socket-receive-queue", LockKind::Mutex), ("qdisc", LockKind::Spin)] {
        profile.traces = traced(owner, kind, 220);
        profile.conclude();
        assert_eq!(finding(&profile), "9.1 % goes into");
    }
}

#[test]
fn waking_a_sockets_readers_is_told_with_the_socket() {
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
    assert_eq!(profile.findings[0].text, format!("47 % goes into the lock for those who wait for {socket}"));
    profile.clock = Clock::CpuClock;
    profile.conclude();
    let told = format!("47 % goes into waking whoever waits for {socket}, and into the lock for that");
    assert_eq!(profile.findings[0].text, told);
}

#[test]
fn each_rule_speaks_from_its_threshold_on_and_not_before() {
    use Class::*;
    use Context::{Softirq, Syscall as Call};
    let base = (Softirq, Ip, None, None, "handle_softirqs ip_rcv", 1_000);
    let gro = "handle_softirqs napi_gro_receive dev_gro_receive inet_gro_receive";
    let merged = "handle_softirqs napi_gro_receive dev_gro_receive skb_gro_receive_list";
    // What makes a rule speak, what is too little for it, and what it says.
    let cases: [(Rule, Line<'_>, u64, &str); 8] = [
        (
            Rule::Netfilter,
            (Softirq, Netfilter, None, None, "nft_do_chain", 60),
            40,
            "5.7 % is packet filters and connection tracking",
        ),
        (
            Rule::Taps,
            (Softirq, Taps, None, None, "packet_rcv", 30),
            15,
            "2.9 % copies packets for packet sockets that look on",
        ),
        (Rule::Mitigations, (Call, Mitigations, None, None, "srso_return_thunk", 60), 40, "5.7 % pays for"),
        (Rule::Security, (Call, Security, None, None, "audit_filter", 60), 30, "5.7 % is security modules"),
        (Rule::Tracing, (Call, Tracing, None, None, "ftrace_x", 60), 20, "5.7 % is tracing"),
        (Rule::WakeUps, (Call, Scheduling, None, None, "schedule", 300), 200, "23 % is sleeping and waking"),
        (Rule::Gro, (Softirq, NapiGro, None, None, gro, 60), 10, "5.7 % looks for packets to merge"),
        (
            Rule::Lock,
            (Softirq, Lock, Some("qdisc"), None, "x _raw_spin_unlock", 100),
            40,
            "9.1 % goes into the lock of a queueing discipline",
        ),
    ];
    for (rule, line, less, says) in cases {
        let profile = of(&[base, line]);
        assert_eq!(rules(&profile), [rule], "{}", profile.sentence);
        assert!(profile.findings[0].text.starts_with(says), "{}", profile.findings[0].text);
        assert!(!profile.findings[0].remedy.is_empty());
        let mut fewer = line;
        fewer.5 = less;
        assert_eq!(rules(&of(&[base, fewer])), [], "{rule:?}");
    }
    let merging =
        of(&[base, (Softirq, NapiGro, None, None, gro, 60), (Softirq, NapiGro, None, None, merged, 20)]);
    assert_eq!(rules(&merging), []);
    let complete = format!("{gro} gro_complete");
    assert_eq!(rules(&of(&[base, (Softirq, NapiGro, None, None, &complete, 60)])), []);
}

#[test]
fn a_tap_is_named_by_its_process() {
    let mut profile = of(&[
        (Context::Softirq, Class::Ip, None, None, "ip_rcv", 900),
        (Context::Softirq, Class::Taps, None, None, "packet_rcv", 100),
    ]);
    profile.facts.taps = vec![Tap { inode: 7, pid: Some(99), name: "tcpdump".into() }];
    profile.conclude();
    assert!(profile.sentence.ends_with("10 % copies packets for tcpdump (pid 99)."), "{}", profile.sentence);
}

#[test]
fn tracked_connections_are_counted() {
    let mut profile = of(&[(Context::Softirq, Class::Netfilter, None, None, "nf_conntrack_in", 900)]);
    profile.facts.tracked = Some(12);
    profile.conclude();
    assert!(profile.sentence.contains("(12 connections are tracked)"), "{}", profile.sentence);
}

#[test]
fn a_slow_program_is_named_with_its_function() {
    let profile = of(&[
        (Context::User, Class::User, None, Some("knotd"), "worker@ query@", 6_000),
        (Context::User, Class::User, None, Some("knotd"), "worker@ parse@", 1_000),
        (Context::Softirq, Class::Ip, None, None, "ip_rcv", 3_000),
    ]);
    assert_eq!(
        profile.sentence,
        "70 % of the CPU time used is knotd's own work, 86 % of it in query [knotd]."
    );
    assert_eq!(rules(&profile), [Rule::User]);
}

#[test]
fn other_programs_are_named_to_whoever_asked_for_one() {
    let mut profile = built();
    let compiler = ProcessShare { pid: 9, name: "rustc".into(), ns: 0, share: 0.4, threads: Vec::new() };
    profile.processes.push(compiler);
    profile.conclude();
    assert_eq!(rules(&profile), [Rule::ReceiveQueueLock]);
    let profile = profile.about(Focus { port: None, pids: vec![812] });
    assert!(profile.sentence.ends_with("40 % is other programs' (rustc)."), "{}", profile.sentence);
}

#[test]
fn one_full_cpu_beside_free_ones_is_said() {
    let mut profile = of(&[(Context::Softirq, Class::Ip, None, None, "ip_rcv", 5_000)]);
    profile.cpus[0].sampled = BTreeMap::from([(Context::Softirq, 49 * SECOND / 10)]);
    profile.cpus[1].sampled =
        BTreeMap::from([(Context::Softirq, SECOND / 10), (Context::Idle, 49 * SECOND / 10)]);
    profile.conclude();
    assert_eq!(
        profile.sentence,
        "100 % of the CPU time used is in softirq on CPU 0, CPU 0 is full while the other is 2.0 % used."
    );
    profile.cpus[1].sampled = BTreeMap::from([(Context::Softirq, 4 * SECOND)]);
    profile.conclude();
    assert_eq!(rules(&profile), []);
}

#[test]
fn what_is_no_class_of_its_own_is_said_too() {
    let mut profile = of(&[(Context::Softirq, Class::Ip, None, None, "ip_rcv", 5_000)]);
    for line in &mut profile.cpus {
        line.accounted = Some(Accounted { steal: 0.1, ..Accounted::default() });
    }
    profile.datagrams = Some(Datagrams { received: 70, sent: 0, dropped: 30 });
    profile.conclude();
    assert_eq!(rules(&profile), [Rule::Drops, Rule::Steal]);
    assert!(
        profile.sentence.ends_with(", 30 % of the datagrams that came were dropped."),
        "{}",
        profile.sentence
    );
    assert_eq!(profile.findings[1].text, "the hypervisor took 10 % of the CPUs");
}

#[test]
fn an_idle_machine_is_called_idle() {
    let profile = of(&[(Context::Syscall, Class::Files, None, Some("x"), "vfs_read", 100)]);
    assert_eq!(
        profile.sentence,
        "1.0 % of the CPU time was used; 100 % of that is in system calls on CPUs 0-1."
    );
    assert_eq!(of(&[]).sentence, "Nothing ran on the sampled CPUs.");
}
