//! The threads that read sockets: too slow, blocked, unevenly loaded, or sharing one socket.
//!
//! ```text
//! no socket drops ──── a thread never slept, and CPUs are left             ─▸ reader-limit
//! a socket drops ─┬─ its queue was never shorter than before, its process ran ─▸ socket-not-read
//!                 ├─ its threads did not run                                ─▸ reader-blocked
//!                 ├─ its group's other threads were idle                    ─▸ group-uneven
//!                 ├─ its threads never slept, or its queue stayed full      ─▸ reader-slow
//!                 ├─ its threads slept, and its queue was empty in between  ─▸ receive-buffer-small
//!                 └─ its threads were not seen (no interval, not root)      ─▸ socket-drops, of loss.rs
//! ```
//! Whether a queue stayed full is decided by looks within the interval (`udpath diagnose`), else by its two ends, which
//! may be chance: then most datagrams must have arrived for a burst to be named. The kernel does not say which thread
//! reads which socket: a process's threads count for all of its sockets.

mod bound;
mod cause;
mod limit;
mod look_ups;
mod seen;
mod unread;

use udpath_host::map::SocketMap;

use crate::diagnosis::busy_of;
use crate::finding::{Location, Severity};
use crate::rule::{Found, Look, Observed, Rule, counted, number, percent};

pub(super) use cause::{Cause, cause};
use cause::{is_blocked, lost_share, stays_full, uneven_group};
pub(crate) use limit::held_back;
pub(crate) use seen::looks;
use seen::{BUSY, busiest, owners, threads};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "socket-not-read",
        severity: Severity::Loss,
        look: Look::Map(unread::found),
        cause: "no thread reads this socket, or the one that does waited for something else all the time",
        fix: &[
            "close a socket that only sends, or read it: a larger buffer and more threads for other sockets do not help",
        ],
    },
    Rule {
        id: "reader-blocked",
        severity: Severity::Loss,
        look: Look::Map(blocked),
        cause: "its process is stopped, or waits for something else than datagrams",
        fix: &[
            "find what it waits for (`cat /proc/PID/stack`, `strace -p PID`); continue a stopped one with `kill -CONT PID`, \
             or restart it",
        ],
    },
    Rule {
        id: "reader-waits-for-dns",
        severity: Severity::Loss,
        look: Look::Map(look_ups::found),
        cause: "a thread that asks for a name, as for a line of a log, reads nothing until the answer comes",
        fix: &[
            "turn off look-ups of client names (log addresses), or let threads ask that do not read",
            "a resolver with a cache on this machine shortens each wait",
        ],
    },
    Rule {
        id: "group-uneven",
        severity: Severity::Limit,
        look: Look::Map(uneven),
        cause: "the flow hash gives this socket most datagrams: there are few flows, or one is much larger than the others",
        fix: &["let clients use more source ports, so that the hash has more to spread"],
    },
    Rule {
        id: "receive-buffer-small",
        severity: Severity::Loss,
        look: Look::Map(small),
        cause: "a burst was longer than the receive buffer; on average the reader keeps up",
        fix: &[],
    },
    Rule {
        id: "reader-slow",
        severity: Severity::Loss,
        look: Look::Map(slow),
        cause: "",
        fix: &[
            "if it already does all that, spread the load over more machines: a larger buffer only delays the loss",
        ],
    },
    Rule {
        id: "reader-limit",
        severity: Severity::Limit,
        look: Look::Map(limit::reached),
        cause: "what reads takes no more, however many CPUs are idle",
        fix: &[
            "let the program read with more threads, each with its own socket (SO_REUSEPORT), and in batches (recvmmsg)",
        ],
    },
    Rule {
        id: "shared-socket",
        severity: Severity::Limit,
        look: Look::Map(shared),
        cause: "all its threads take the lock of one receive queue, and every datagram wakes one of them on another CPU",
        fix: &["give each thread its own socket (SO_REUSEPORT); only then spread packets over more CPUs"],
    },
    Rule {
        id: "readers-on-softirq-cpus",
        severity: Severity::Limit,
        look: Look::Map(bound::found),
        cause: "softirqs run before programs, and the readers' affinity keeps them from every CPU that has time",
        fix: &[
            "for good, change where its affinity comes from: the program's own option, `CPUAffinity=` of the unit, or `taskset`",
        ],
    },
    Rule {
        id: "softirq-starves-reader",
        severity: Severity::Limit,
        look: Look::Map(starved),
        cause: "softirqs run before programs: what they take, the reader lacks",
        fix: &[
            "give the reader a CPU without interrupts of the NIC, or let the reader drive reception (busy polling with \
             napi/defer-hard-irqs, napi/gro-flush-timeout)",
        ],
    },
    Rule {
        id: "reader-on-other-node",
        severity: Severity::Limit,
        look: Look::Map(remote),
        cause: "every datagram crosses the interconnect of the nodes, and the reader misses the cache that the device wrote",
        fix: &[
            "run the service on the device's node (cpuset, numactl --cpunodebind), or use a device of its node",
        ],
    },
];

/// Share of the interval that each of two threads runs for a socket to count as shared. Lower: helpers count.
const SHARES: f64 = 0.1;
/// A reader starves if it waits so much for a CPU that spends so much in softirqs.
const STARVED: (f64, f64) = (0.25, 0.4);
/// How much more than its buffer a socket is to get: one burst of four times the length.
const BUFFER_FACTOR: u64 = 4;

/// `0.0.0.0:53 (knotd, pid 812)`.
fn named(on: Observed<'_>, socket: &SocketMap) -> String {
    let owner = owners(on, socket).first().map(|process| format!(" ({}, pid {})", process.name, process.pid));
    format!("{}{}", socket.local, owner.unwrap_or_default())
}

fn located(on: Observed<'_>, socket: &SocketMap, found: Found) -> Found {
    let owner = owners(on, socket).first().map(|process| Location::Process(process.pid));
    found.at_all(owner).at(Location::Socket(socket.inode))
}

/// The sockets that drop for one cause, with their evidence.
fn dropping(on: Observed<'_>, why: Cause, evidence: impl Fn(&SocketMap) -> String) -> Vec<Found> {
    // Sorted by drops; more than a few would be a list, not a hint.
    let lossy = on
        .map
        .sockets
        .iter()
        .filter(|socket| socket.drops > 0 && cause(on, socket) == why)
        .take(super::SOCKETS);
    lossy
        .map(|socket| located(on, socket, Found::new(evidence(socket)).rate(on.rate(socket.drops))))
        .collect()
}

fn lost(on: Observed<'_>, socket: &SocketMap) -> String {
    format!("{} datagrams dropped {} at {}", number(socket.drops), on.when(), named(on, socket))
}

/// When its queue was full, and how much of what came was lost; empty where nobody looked.
fn when_full(on: Observed<'_>, socket: &SocketMap) -> String {
    let Some(seen) = looks(socket) else { return String::new() };
    let share = |part: u32| percent(f64::from(part) / f64::from(seen.looks));
    let lost = lost_share(on, socket)
        .map_or_else(String::new, |share| format!(", at least {} of what came", percent(share)));
    format!(
        "; its queue was half full or more at {} of {}, and dropped something before {}{lost}",
        share(seen.full),
        counted(seen.looks as usize, "look"),
        share(seen.dropping)
    )
}

fn blocked(on: Observed<'_>) -> Vec<Found> {
    if on.map.seconds.is_none() {
        return Vec::new();
    }
    let waits = |socket: &&SocketMap| {
        let threads = threads(on, socket);
        !threads.is_empty()
            && is_blocked(&threads, socket)
            && !unread::is_unread(on, socket)
            && (socket.drops > 0 || stays_full(socket))
    };
    let stuck = on.map.sockets.iter().filter(waits).take(super::SOCKETS);
    stuck
        .map(|socket| {
            let stopped = threads(on, socket).iter().any(|thread| thread.stopped);
            let how = if stopped { "its process is stopped" } else { "no thread of its process ran" };
            let what = if socket.drops > 0 {
                lost(on, socket)
            } else {
                format!("datagrams wait at {}", named(on, socket))
            };
            let found = |others: &str| {
                located(on, socket, Found::new(format!("{what} while {how}{others}")).rate(on.rate(socket.drops)))
            };
            match socket.group {
                0 | 1 => found(""),
                n => found(&format!("; it is one of {}", counted(n, "socket"))).cause(
                    "its process is stopped, or waits for something else than datagrams; the kernel still gives the socket its \
                     share of the group's flows",
                ),
            }
        })
        .collect()
}

fn small(on: Observed<'_>) -> Vec<Found> {
    let mut found = dropping(on, Cause::Burst, |socket| {
        let idle = 1.0 - busiest(on, &threads(on, socket));
        let size = socket
            .buffer
            .map_or_else(String::new, |size| format!(", whose buffer holds {} bytes", number(size.into())));
        let full = when_full(on, socket);
        format!("{}{size}, while its busiest reader was {} idle{full}", lost(on, socket), percent(idle))
    });
    let lossy = on.map.sockets.iter().filter(|socket| socket.drops > 0 && cause(on, socket) == Cause::Burst);
    for (found, socket) in found.iter_mut().zip(lossy) {
        let larger = "enlarge its receive buffer";
        *found = super::memory::enlarged(on, socket, BUFFER_FACTOR, larger, std::mem::take(found))
            .advice("for good, raise the buffer in the server's configuration (SO_RCVBUF; net.core.rmem_max allows it)");
    }
    found
}

/// Of readers that have CPU time left, but not for datagrams.
pub(crate) const SLEPT: &str = "its readers slept although datagrams waited";

fn slow(on: Observed<'_>) -> Vec<Found> {
    let found = dropping(on, Cause::Slow, |socket| {
        let threads = threads(on, socket);
        let Some(first) = threads.iter().max_by(|a, b| busy_of(on.map, a).total_cmp(&busy_of(on.map, b)))
        else {
            return lost(on, socket);
        };
        let (ran, waited) = (percent(first.ran), percent(first.waited));
        format!(
            "{}, whose busiest reader ran {ran} of the time and waited for a CPU {waited}{}",
            lost(on, socket),
            when_full(on, socket)
        )
    });
    let lossy = on.map.sockets.iter().filter(|socket| socket.drops > 0 && cause(on, socket) == Cause::Slow);
    let explained = found.into_iter().zip(lossy).map(|(found, socket)| {
        let threads = threads(on, socket);
        let waited = threads.iter().map(|thread| thread.waited).fold(0.0, f64::max);
        if busiest(on, &threads) < BUSY {
            let cause = format!("{SLEPT}: they wait for something else, such as a disk, a lock or another server");
            found.cause(cause).advice("find what they wait for (`strace -f -p PID`), and let more threads wait for it")
        } else if waited >= STARVED.0 {
            let cause = "its readers have to share their CPUs with other programs or softirqs";
            found.cause(cause).advice("pin the readers to CPUs of their own, and move other work away from those")
        } else {
            let cause = "more datagrams come than its readers can handle";
            found.cause(cause).advice(
                "read in batches (recvmmsg), and use more threads, each with its own socket (SO_REUSEPORT) and CPU",
            )
        }
    });
    explained.collect()
}

fn uneven(on: Observed<'_>) -> Vec<Found> {
    if on.map.seconds.is_none() {
        return Vec::new();
    }
    let mut seen = std::collections::BTreeSet::new();
    // Sorted by drops: of a group, the socket with the most comes first.
    let first = on.map.sockets.iter().filter(|socket| socket.group > 1 && seen.insert(socket.local));
    first
        .filter_map(|socket| {
            let (busy, mean) = uneven_group(on, socket)?;
            let lost = if socket.drops > 0 { format!("; {}", lost(on, socket)) } else { String::new() };
            let evidence = format!(
                "of the {} sockets of {}, one reader is {} busy, the others {} on average{lost}",
                socket.group,
                named(on, socket),
                percent(busy),
                percent(mean)
            );
            let by_cpu = format!("port:{}:selection=by-cpu", socket.local.port());
            let found = Found::new(evidence).share(busy).rate(on.rate(socket.drops).filter(|rate| *rate > 0.0)).changes(
                "select the socket by the receiving CPU, if interrupts or RPS spread the packets over the CPUs",
                vec![by_cpu],
            );
            Some(located(on, socket, found))
        })
        .collect()
}

fn shared(on: Observed<'_>) -> Vec<Found> {
    let alone = on.map.sockets.iter().filter(|socket| socket.group == 1 && socket.peer.is_none());
    alone
        .filter_map(|socket| {
            let owners = owners(on, socket);
            // With several sockets, its threads may each have their own.
            if owners.iter().any(|process| process.sockets > 1) {
                return None;
            }
            let threads = threads(on, socket);
            let ran: Vec<f64> =
                threads.iter().map(|thread| thread.ran).filter(|ran| *ran >= SHARES).collect();
            let (most, least) =
                (ran.iter().copied().fold(0.0, f64::max), ran.iter().copied().fold(1.0, f64::min));
            let evidence = format!(
                "{} is one socket, and {} of its process ran {} to {} of the time each",
                named(on, socket),
                counted(ran.len(), "thread"),
                percent(least),
                percent(most)
            );
            (ran.len() >= 2)
                .then(|| located(on, socket, Found::new(evidence).share(ran.iter().sum::<f64>().min(1.0))))
        })
        .collect()
}

fn starved(on: Observed<'_>) -> Vec<Found> {
    let all = on
        .map
        .processes
        .iter()
        .flat_map(|process| process.busiest.iter().map(move |thread| (process, thread)));
    let starved = all.filter_map(|(process, thread)| {
        let time = on.map.cpus.iter().find(|cpu| Some(cpu.cpu) == thread.cpu)?.time?;
        (thread.waited >= STARVED.0 && time.soft >= STARVED.1 && thread.allowed.len() == 1)
            .then_some((process, thread, time))
    });
    // The worst of each process.
    let mut seen = std::collections::BTreeSet::new();
    starved
        .filter(|(process, ..)| seen.insert(process.pid))
        .map(|(process, thread, time)| {
            let cpu = thread.cpu.unwrap_or(0);
            let evidence = format!(
                "thread {} of {} (pid {}) waited {} of the time for CPU {cpu}, which spent {} in softirqs",
                thread.tid,
                process.name,
                process.pid,
                percent(thread.waited),
                percent(time.soft)
            );
            Found::new(evidence)
                .share(thread.waited)
                .at(Location::Process(process.pid))
                .at(Location::Cpu(cpu))
        })
        .collect()
}

fn remote(on: Observed<'_>) -> Vec<Found> {
    if on.map.nodes < 2 {
        return Vec::new();
    }
    let busy = on.map.interfaces.iter().filter(|interface| interface.kind == "device");
    // The one that carries the most: others may be for administration.
    let Some(interface) = busy.max_by_key(|interface| interface.packets.unwrap_or(0)) else {
        return Vec::new();
    };
    let Some(node) = interface.node else { return Vec::new() };
    let elsewhere = on.map.processes.iter().filter_map(|process| {
        let nodes: Vec<u32> = process
            .busiest
            .iter()
            .filter(|thread| thread.ran >= SHARES)
            .filter_map(|t| on.node(t.cpu?))
            .collect();
        let away = nodes.iter().filter(|its| **its != node).count();
        (away * 2 > nodes.len()).then_some((process, away, nodes.len()))
    });
    elsewhere
        .map(|(process, away, all)| {
            let evidence = format!(
                "{away} of {} of {} (pid {}) ran away from node {node}, that of {}",
                counted(all, "busy thread"),
                process.name,
                process.pid,
                interface.name
            );
            Found::new(evidence)
                .at(Location::Interface(interface.name.clone()))
                .at(Location::Process(process.pid))
        })
        .collect()
}

#[cfg(test)]
mod tests;
