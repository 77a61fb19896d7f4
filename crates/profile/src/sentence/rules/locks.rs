//! Locks: which take long, whether that is waiting, and whose they are. Of a socket's locks also which socket, and who reads it.

use super::{Finding, Rule, finding, percent};
use crate::Profile;
use crate::profile::ProcessShare;
use crate::trace::locks::LockKind;

/// A lock's share. Taking locks that nobody contends costs 2 to 4 % of a loaded UDP path, and the receive queue's up to 5 %
/// of one that two CPUs read and still get by with.
const LOCK: f64 = 0.06;

/// Of locks that take long, whose they are, and whether CPUs wait for them.
pub(super) fn all(profile: &Profile) -> Vec<Finding> {
    let found = profile.locks.iter().filter_map(|lock| {
        let spun = spun(profile, &lock.of);
        // Who waits halted, as on a virtual CPU, is in no sample.
        let share = lock.share.max(spun as f64 / profile.busy() as f64);
        let waits = waits(profile, &lock.of) || spun * 2 > lock.ns;
        (share >= LOCK).then(|| lock_finding(profile, &lock.of, share, waits))
    });
    found.collect()
}

/// Locks of a socket, by their names in the class rules.
const RECEIVE_QUEUE: &str = "socket-receive-queue";
const WAIT_QUEUE: &str = "socket-wait-queue";

fn lock_finding(profile: &Profile, lock: &str, share: f64, waits: bool) -> Finding {
    let doing = if waits { "waits for" } else { "goes into" };
    let percent = percent(share);
    if lock == RECEIVE_QUEUE {
        let text = format!("{percent} {doing} the receive-queue lock of {}", socket(profile));
        let remedy =
            "give each thread a socket of its own (SO_REUSEPORT), or read many datagrams at once (recvmmsg)";
        return finding(Rule::ReceiveQueueLock, share, text, remedy);
    }
    if lock == WAIT_QUEUE {
        // Interrupts are off from before it is taken until readers are woken: a timer finds all of that at its end.
        let text = if waits || profile.clock.blind().is_none() {
            format!("{percent} {doing} the lock for those who wait for {}", socket(profile))
        } else {
            format!(
                "{percent} goes into waking whoever waits for {}, and into the lock for that",
                socket(profile)
            )
        };
        let remedy = "fewer threads on each socket, that read until it is empty; or busy polling";
        return finding(Rule::Lock, share, text, remedy);
    }
    let (whose, remedy) = whose(lock);
    finding(Rule::Lock, share, format!("{percent} {doing} {whose}"), remedy)
}

/// Is most of a lock's time spent waiting, by the innermost functions? Who waits long is in one that is made for it. Who
/// waits for no more than the lock's memory, which another CPU has written last, is where the lock is taken: without that,
/// taking it costs no more than giving it back.
fn waits(profile: &Profile, lock: &str) -> bool {
    const WAITING: [&str; 5] = ["slowpath", "osq_lock", "spin_on_owner", "pv_wait", "lock_wait"];
    let (mut waiting, mut taking, mut giving, mut all) = (0, 0, 0, 0);
    for stack in profile.stacks.iter().filter(|stack| stack.lock.as_deref() == Some(lock)) {
        let innermost = stack.frames.last().map_or("", String::as_str);
        all += stack.ns;
        // Giving back may have a slow path, too: it wakes the next one.
        if innermost.contains("unlock") {
            giving += stack.ns;
        } else if WAITING.iter().any(|part| innermost.contains(part)) {
            waiting += stack.ns;
        } else if innermost.contains("_lock") {
            taking += stack.ns;
        }
    }
    (waiting + u64::saturating_sub(taking, giving)) * 2 > all
}

/// Time that CPUs spun for a lock, nanoseconds, where that was traced; it is of all CPUs.
fn spun(profile: &Profile, lock: &str) -> u64 {
    if !profile.whole() {
        return 0;
    }
    let places = profile.traces.locks.iter().flat_map(|locks| &locks.places);
    let spins = places.filter(|place| {
        place.owner == lock && matches!(place.kind, LockKind::Spin | LockKind::SpinRead | LockKind::SpinWrite)
    });
    spins.map(|place| place.waits.ns).sum()
}

/// Whose lock, in words, and what helps.
fn whose(lock: &str) -> (String, &'static str) {
    let (whose, remedy) = match lock {
        "qdisc" => {
            ("the lock of a queueing discipline", "noqueue or mq, and XPS so that each CPU has a queue")
        }
        "transmit-queue" => ("the lock of a transmit queue", "as many transmit queues as CPUs, and XPS"),
        "receive-ring" => ("the lock of a receive ring", "a queue per sending CPU"),
        "backlog" => ("the lock of a CPU's backlog", "RPS over more CPUs, or RSS instead of it"),
        "socket-owner" => ("the lock of a socket that is used by several threads", "a socket per thread"),
        "epoll" => ("the lock of an epoll instance", "an epoll instance per thread, or EPOLLEXCLUSIVE"),
        "slab" | "page" => {
            ("the lock of a memory allocator", "free where it was allocated: RFS, or pinned threads")
        }
        "conntrack" => ("locks of connection tracking", "exempt the port from tracking (notrack)"),
        "netfilter" => ("locks of packet filters", "fewer rules that change on each packet"),
        "neighbour" => ("the lock of a neighbour", "connected sockets, or a newer kernel"),
        "route" => ("a counter of a route", "connected sockets"),
        "bpf-map" => ("the lock of a BPF map", "maps per CPU"),
        "futex" => ("locks of the program itself (futex)", "less that its threads share"),
        "run-queue" => ("the lock of a run queue", "fewer wake-ups: batches, or busy polling"),
        "memory-map" => ("the lock of a process's memory map", "less mapping and unmapping while serving"),
        other => {
            return (format!("locks of {}", other.replace('-', " ")), "see the stacks in the flame graph");
        }
    };
    (whose.to_owned(), remedy)
}

/// Whoever reads UDP sockets: of those asked for, or the one with the most readers' time.
fn reader(profile: &Profile) -> Option<(&ProcessShare, usize)> {
    let readers = |process: &&ProcessShare| process.threads.iter().filter(|thread| thread.reads).count();
    let focus = &profile.facts.focus.pids;
    let wanted = profile.processes.iter().filter(|process| focus.is_empty() || focus.contains(&process.pid));
    let found = wanted.filter(|process| readers(process) > 0).max_by_key(|process| process.ns)?;
    Some((found, readers(&found)))
}

/// A process by its name and number.
fn named(process: &ProcessShare) -> String {
    if process.name.is_empty() {
        format!("pid {}", process.pid)
    } else {
        format!("{} (pid {})", process.name, process.pid)
    }
}

/// The socket that is read most likely, as a part of a sentence.
fn socket(profile: &Profile) -> String {
    let Some((process, threads)) = reader(profile) else { return "a UDP socket".to_owned() };
    let port = profile.facts.focus.port;
    let its = profile.facts.sockets.iter().filter(|socket| socket.pids.contains(&process.pid));
    let its: Vec<_> = its.filter(|socket| port.is_none_or(|port| socket.local.port() == port)).collect();
    let threads = if threads == 1 { "one thread".to_owned() } else { format!("{threads} threads") };
    let read = format!("read by {threads} of {}", named(process));
    match its.as_slice() {
        [one] => format!("one socket, {}, {read}", one.local),
        [first, others @ ..] if others.iter().all(|other| other.local.port() == first.local.port()) => {
            format!("the {} sockets of port {}, {read}", its.len(), first.local.port())
        }
        _ => format!("UDP sockets {read}"),
    }
}
