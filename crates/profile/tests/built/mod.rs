//! Synthetic profiles built from stacks, for tests here and in other crates.

use std::collections::BTreeMap;

use udpath_profile::Profile;
use udpath_profile::classes::Class;
use udpath_profile::context::Context;
use udpath_profile::facts::{BoundSocket, Facts};
use udpath_profile::perf::{Clock, Sight};
use udpath_profile::profile::{
    Accounted, Counted, CpuLine, Datagrams, ProcessShare, Share, Stack, ThreadShare,
};
use udpath_profile::trace::Traces;

const SECOND: u64 = 1_000_000_000;

/// Stacks of a name server: context, class, lock, process, frames, milliseconds.
pub(crate) type Line<'a> = (Context, Class, Option<&'a str>, Option<&'a str>, &'a str, u64);

/// A profile of two CPUs over five seconds, built from its stacks; the time is divided evenly between both CPUs.
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
    let thread = |tid| ThreadShare { tid, name: "knotd".into(), ns: own / 20, reads: true, cpu: None };
    Profile {
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
    }
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
