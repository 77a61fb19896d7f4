//! Locks: which ones cost time, whether that is waiting, and what they protect; for a socket's locks also which socket,
//! and who reads it.
//!
//! A lock limits only those that compete for it: with one busy CPU, or one thread that reads the socket, nobody does,
//! and what it costs to take is the price of the path. While the hypervisor takes CPU time, a holder that it stopped
//! makes others wait: as much as it took is no finding.

use udpath_profile::Profile;
use udpath_profile::profile::ProcessShare;
use udpath_profile::trace::locks::LockKind;

use crate::finding::{Location, Severity};
use crate::rule::{Found, Look, Rule};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "receive-queue-lock",
        severity: Severity::Limit,
        look: Look::Profile(receive_queue),
        cause: "several threads read one socket",
        fix: &["give each thread its own socket (SO_REUSEPORT), or read many datagrams per call (recvmmsg)"],
    },
    Rule {
        id: "lock",
        severity: Severity::Limit,
        look: Look::Profile(others),
        cause: "several CPUs use what it protects",
        fix: &[],
    },
];

/// A lock's share. Taking locks without contention costs 2 to 4 % of a loaded UDP path, and the receive queue's up to 5
/// % of one that two CPUs read and still get by with.
const LOCK: f64 = 0.06;
/// Busy time from which on a CPU may compete for a lock. Lower: a CPU that only looks after itself counts; higher: one
/// that a light load leaves mostly idle does not.
const BUSY_CPU: f64 = 0.1;
/// Locks of a socket, by their names in the class rules.
const RECEIVE_QUEUE: &str = "socket-receive-queue";
const WAIT_QUEUE: &str = "socket-wait-queue";
/// A CPU's, by its name there.
const RUN_QUEUE: &str = "run-queue";

/// A lock that takes long.
struct Held<'a> {
    name: &'a str,
    share: f64,
    waits: bool,
}

impl Held<'_> {
    /// What the CPU time does.
    const fn does(&self) -> &'static str {
        if self.waits { "waits for" } else { "goes into" }
    }
}

/// Locks that take long, whose they are, and whether CPUs wait for them.
fn held(profile: &Profile) -> impl Iterator<Item = Held<'_>> {
    let (stolen, contended) = (super::hypervisor::stolen(profile), several_busy(profile));
    profile.locks.iter().filter_map(move |lock| {
        let spun = spun(profile, &lock.of);
        // A waiter that is halted, as on a virtual CPU, is in no sample.
        let share = lock.share.max(spun as f64 / profile.busy() as f64);
        let waits = waits(profile, &lock.of) || spun * 2 > lock.ns;
        (contended && share - stolen >= LOCK).then_some(Held { name: &lock.of, share, waits })
    })
}

/// Whether several CPUs were busy, as far as the kernel's accounting says.
fn several_busy(profile: &Profile) -> bool {
    let known: Vec<f64> = profile.cpus.iter().filter_map(|line| Some(1.0 - line.accounted?.idle)).collect();
    known.is_empty() || known.iter().filter(|busy| **busy >= BUSY_CPU).count() > 1
}

/// Whether the socket's locks have one reader only: then no readers compete.
fn one_reader(profile: &Profile) -> bool {
    reader(profile).is_some_and(|(_, threads)| threads == 1)
}

fn receive_queue(profile: &Profile) -> Vec<Found> {
    let (socket, pid) = socket(profile);
    let held = held(profile).filter(|lock| lock.name == RECEIVE_QUEUE && !one_reader(profile));
    held.map(|lock| {
        let does = format!("{} the receive-queue lock of {socket}", lock.does());
        Found::cpu_time(lock.share, &does).at_all(pid.map(Location::Process))
    })
    .collect()
}

fn others(profile: &Profile) -> Vec<Found> {
    held(profile)
        .filter(|lock| match lock.name {
            RECEIVE_QUEUE => false,
            WAIT_QUEUE => !one_reader(profile),
            // Interrupts are off while the next thread is chosen: a timer finds all of that where the lock is given
            // back.
            RUN_QUEUE => lock.waits || profile.clock.blind().is_none(),
            _ => true,
        })
        .map(|lock| other(profile, &lock))
        .collect()
}

fn other(profile: &Profile, lock: &Held<'_>) -> Found {
    if lock.name == WAIT_QUEUE {
        let (socket, pid) = socket(profile);
        // Interrupts are off from before it is taken until readers are woken: a timer finds all of that at its end.
        let does = if lock.waits || profile.clock.blind().is_none() {
            format!("{} the wait-queue lock of {socket}", lock.does())
        } else {
            format!("goes into waking the readers of {socket}, and into the lock for that")
        };
        return Found::cpu_time(lock.share, &does)
            .at_all(pid.map(Location::Process))
            .cause("each datagram wakes a reader, and readers take the lock to sleep")
            .advice("use fewer threads per socket that read until it is empty, or busy polling");
    }
    let (whose, fix) = whose(lock.name);
    Found::cpu_time(lock.share, &format!("{} {whose}", lock.does())).at(Location::Machine).advice(fix)
}

/// Is most of a lock's time spent waiting, by the innermost functions? A long wait is in a function made for it. A wait
/// for the lock's memory alone, which another CPU wrote last, is where the lock is taken: without that, taking it costs
/// no more than giving it back.
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

/// Whose lock, in words, and the fix.
fn whose(lock: &str) -> (String, &'static str) {
    let (whose, fix) = match lock {
        "qdisc" => (
            "the lock of a queueing discipline",
            "use noqueue or mq, and XPS so that each CPU has a transmit queue",
        ),
        "transmit-queue" => ("the lock of a transmit queue", "use as many transmit queues as CPUs, and XPS"),
        "receive-ring" => ("the lock of a receive ring", "give each sending CPU a queue"),
        "backlog" => ("the lock of a CPU's backlog", "steer to more CPUs by RPS, or use RSS instead"),
        "socket-owner" => {
            ("the lock of a socket that several threads use", "give each thread its own socket")
        }
        "epoll" => (
            "the lock of an epoll instance",
            "give each thread its own epoll instance, or use EPOLLEXCLUSIVE",
        ),
        "slab" | "page" => (
            "the lock of a memory allocator",
            "free memory on the CPU that allocated it: use RFS, or pin the threads",
        ),
        "conntrack" => ("locks of connection tracking", "exempt the service's port from tracking (notrack)"),
        "netfilter" => ("locks of packet filters", "remove rules that change at each packet (limit, quota)"),
        "neighbour" => ("the lock of a neighbour entry", "connect the sockets, or use a newer kernel"),
        "route" => ("a reference count of a route", "connect the sockets"),
        "bpf-map" => ("the lock of a BPF map", "use per-CPU maps"),
        "futex" => ("locks of the program itself (futex)", "share less between its threads"),
        "run-queue" => ("the lock of a run queue", "wake threads less often: use batches or busy polling"),
        "memory-map" => ("the lock of a process's memory map", "map and unmap less memory while serving"),
        other => {
            let fix = "look at its stacks in the flame graph";
            return (format!("locks of {}", other.replace('-', " ")), fix);
        }
    };
    (whose.to_owned(), fix)
}

/// The process that reads UDP sockets: of those asked for, or the one with the most readers' time.
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

/// The socket that is most likely read, as a part of a sentence, and its reader.
fn socket(profile: &Profile) -> (String, Option<u32>) {
    let Some((process, threads)) = reader(profile) else { return ("a UDP socket".to_owned(), None) };
    let port = profile.facts.focus.port;
    let its = profile.facts.sockets.iter().filter(|socket| socket.pids.contains(&process.pid));
    let its: Vec<_> = its.filter(|socket| port.is_none_or(|port| socket.local.port() == port)).collect();
    let threads = if threads == 1 { "one thread".to_owned() } else { format!("{threads} threads") };
    let read = format!("read by {threads} of {}", named(process));
    let socket = match its.as_slice() {
        [one] => format!("one socket, {}, {read}", one.local),
        [first, others @ ..] if others.iter().all(|other| other.local.port() == first.local.port()) => {
            format!("the {} sockets of port {}, {read}", its.len(), first.local.port())
        }
        _ => format!("UDP sockets {read}"),
    };
    (socket, Some(process.pid))
}

#[cfg(test)]
mod tests;
