//! The memory limit of a server's control group: what waits in its sockets counts, too. And receive buffers that such a
//! limit allows.
//!
//! ```text
//! used, without files' caches ─┬─ nearly the limit, and sockets drop or processes are killed ─▸ memory-limit
//!                              └─ limit - used ─▸ how much a receive buffer may grow
//! ```

use udpath_host::limits::MemoryLimit;
use udpath_host::map::{ProcessMap, SocketMap};

use crate::finding::{Location, Severity};
use crate::rule::{Found, Look, Observed, Rule, number, percent};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "memory-limit",
    severity: Severity::Loss,
    look: Look::Map(limited),
    cause: "datagrams that wait count against the memory limit of the control group: at the limit they are dropped although their \
            socket's buffer has room, or the group's processes are killed",
    fix: &[
        "raise the limit (systemd: MemoryMax=; docker: --memory; Kubernetes: limits.memory), or let the server use less memory",
        "do not enlarge receive buffers before that: a full one takes memory that the program needs",
    ],
}];

/// Part of the limit in use, without what can be taken back, from which on a burst reaches it. Lower: a server that is
/// given just the memory it needs is at its limit. Higher: a limit that is reached and left again within milliseconds
/// is missed.
const NEARLY: f64 = 0.9;
/// A larger buffer is worth a change from this on. Lower: a remedy that changes nothing. Higher: a buffer that could be
/// half as large again is left as it is.
const WORTH: f64 = 1.25;

/// Bytes that cannot be taken back.
fn held(limit: &MemoryLimit) -> u64 {
    limit.used.saturating_sub(limit.reclaimable)
}

fn is_near(limit: &MemoryLimit) -> bool {
    held(limit) as f64 >= NEARLY * limit.max as f64
}

fn limited(on: Observed<'_>) -> Vec<Found> {
    if on.map.seconds.is_none() {
        return Vec::new();
    }
    let short_of_memory = [on.map.udp.v4, on.map.udp.v6]
        .into_iter()
        .flatten()
        .any(|udp| udp.mem_errors.is_some_and(|errors| errors > 0));
    let drops = |process: &ProcessMap| -> u64 {
        let own = on.map.sockets.iter().filter(|socket| socket.pids.contains(&process.pid));
        own.map(|socket| socket.drops).sum()
    };
    let mut groups = std::collections::BTreeSet::new();
    let limits =
        on.map.processes.iter().flat_map(|process| process.memory.iter().map(move |limit| (process, limit)));
    limits
        .filter(|(process, limit)| {
            let lost = drops(process) > 0 || (short_of_memory && limit.sockets > 0);
            limit.killed > 0 || (is_near(limit) && lost)
        })
        .filter(|(_, limit)| groups.insert(limit.group.clone()))
        .map(|(process, limit)| {
            let reached = match (limit.reached, limit.killed) {
                (0, 0) => String::new(),
                (reached, 0) => format!("; it was reached {} times {}", number(reached), on.when()),
                (reached, killed) => format!(
                    "; it was reached {} times and {} processes were killed {}",
                    number(reached),
                    number(killed),
                    on.when()
                ),
            };
            let evidence = format!(
                "control group {} of {} (pid {}) uses {} of at most {} of memory that cannot be taken back, {} of it in sockets{reached}",
                limit.group,
                process.name,
                process.pid,
                size(held(limit)),
                size(limit.max),
                size(limit.sockets)
            );
            let share = held(limit) as f64 / limit.max.max(1) as f64;
            let lost = drops(process);
            Found::new(evidence)
                .share(share.min(1.0))
                .rate(on.rate(lost).filter(|_| lost > 0))
                .at(Location::Process(process.pid))
        })
        .collect()
}

/// Adds to a finding the change to a receive buffer that is larger by a factor, as far as the memory limits of its
/// processes allow.
pub(super) fn enlarged(on: Observed<'_>, socket: &SocketMap, factor: u64, what: &str, found: Found) -> Found {
    let Some((pid, buffer)) = socket.pids.first().zip(socket.buffer) else { return found };
    let (wanted, buffer) = (u64::from(buffer) * factor, u64::from(buffer));
    let owners = on.map.processes.iter().filter(|process| socket.pids.contains(&process.pid));
    // Each socket of the process may be full at the same time.
    let left = |process: &ProcessMap, limit: &MemoryLimit| {
        limit.max.saturating_sub(held(limit)) / process.sockets.max(1) as u64
    };
    let tightest = owners
        .flat_map(|process| process.memory.iter().map(move |limit| (left(process, limit), limit)))
        .min_by_key(|(left, _)| *left);
    let setting = |bytes: u64| vec![format!("socket:{pid}/{}:receive-buffer={bytes}", socket.inode)];
    match tightest {
        Some((left, limit)) if buffer.saturating_add(left) < wanted => {
            let bytes = buffer.saturating_add(left);
            let why = format!("the memory limit of {}, {}", limit.group, size(limit.max));
            if bytes as f64 >= WORTH * buffer as f64 {
                found.changes(format!("{what}, as far as {why}, allows"), setting(bytes))
            } else {
                let full = percent(held(limit) as f64 / limit.max.max(1) as f64);
                found.advice(format!(
                    "raise {why}, of which {full} are in use, before a larger receive buffer"
                ))
            }
        }
        _ => found.changes(what, setting(wanted)),
    }
}

/// `256 MiB`, `12 KiB`.
fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let unit = UNITS.iter().find(|(unit, _)| bytes >= *unit);
    unit.map_or_else(
        || format!("{bytes} bytes"),
        |(unit, name)| {
            let amount = bytes as f64 / *unit as f64;
            if amount < 9.95 { format!("{amount:.1} {name}") } else { format!("{amount:.0} {name}") }
        },
    )
}

#[cfg(test)]
mod tests {
    use udpath_host::udp::UdpCounters;

    use super::*;
    use crate::finding::Remedy;
    use crate::rules::testing::{Host, only, settings, thread};

    const MIB: u64 = 1 << 20;

    /// A server that may use 256 MiB, of which this much is used and as much of that a cache, and whose socket drops.
    fn host(used: u64, reclaimable: u64) -> Host {
        let mut host = Host::with_queues(1);
        host.map.seconds = Some(10.0);
        host.serve(1, 0);
        (host.map.sockets[0].drops, host.map.sockets[0].queued, host.map.sockets[0].queued_before) =
            (5000, 0, Some(0));
        host.map.processes[0].busiest = vec![thread(812, 0.2)];
        host.map.processes[0].memory = vec![MemoryLimit {
            group: "/system.slice/knot.service".into(),
            max: 256 * MIB,
            used: used * MIB,
            reclaimable: reclaimable * MIB,
            sockets: 60 * MIB,
            reached: 812,
            killed: 0,
        }];
        host
    }

    #[test]
    fn a_limit_that_is_nearly_reached_while_datagrams_are_dropped() {
        let finding = only(&host(250, 4), "memory-limit");
        assert_eq!(
            finding.evidence,
            "control group /system.slice/knot.service of knotd (pid 812) uses 246 MiB of at most 256 MiB of memory that cannot be \
             taken back, 60 MiB of it in sockets; it was reached 812 times in 10.0 s"
        );
        assert_eq!((finding.rate, settings(&finding)), (Some(500.0), Vec::new()));
        // Two processes of one group are one finding.
        let mut two = host(250, 4);
        let second = two.map.processes[0].clone();
        two.map.processes.push(second);
        only(&two, "memory-limit");
    }

    #[test]
    fn twins_that_are_not_limited_by_memory() {
        assert_eq!(host(255, 200).found("memory-limit"), [], "the cache of files");
        assert_eq!(host(120, 0).found("memory-limit"), [], "room is left");
        let mut quiet = host(250, 4);
        quiet.map.sockets[0].drops = 0;
        assert_eq!(quiet.found("memory-limit"), [], "nothing is lost");
        let mut once = host(250, 4);
        once.map.seconds = None;
        assert_eq!(once.found("memory-limit"), [], "counts since boot");
    }

    #[test]
    fn losses_that_no_socket_counts_and_processes_that_were_killed() {
        let mut host = host(250, 4);
        host.map.sockets[0].drops = 0;
        host.map.udp.v4 = Some(UdpCounters { mem_errors: Some(7), ..UdpCounters::default() });
        assert_eq!(only(&host, "memory-limit").rate, None);
        host.map.udp.v4 = None;
        host.map.processes[0].memory[0].killed = 2;
        let evidence = only(&host, "memory-limit").evidence;
        assert!(evidence.ends_with("reached 812 times and 2 processes were killed in 10.0 s"), "{evidence}");
    }

    #[test]
    fn a_larger_buffer_is_as_large_as_the_limit_allows() {
        let changed = |used, buffer: u32, sockets| {
            let mut host = host(used, 0);
            host.map.sockets[0].buffer = Some(buffer);
            host.map.processes[0].sockets = sockets;
            only(&host, "receive-buffer-small")
        };
        let mib = |n: u64| format!("socket:812/9:receive-buffer={}", n * MIB);
        assert_eq!(settings(&changed(56, 16 << 20, 1)), [mib(64)], "room for all of it");
        let capped = changed(56, 128 << 20, 1);
        assert_eq!(settings(&capped), [mib(328)]);
        assert_eq!(
            capped.remedies[0].what(),
            "enlarge its receive buffer, as far as the memory limit of /system.slice/knot.service, 256 MiB, allows"
        );
        assert_eq!(settings(&changed(56, 128 << 20, 2)), [mib(228)], "of two sockets, each half");
        let full = changed(250, 128 << 20, 1);
        assert_eq!(settings(&full), [""; 0]);
        assert!(
            matches!(&full.remedies[0], Remedy::Advice(what) if what.starts_with("raise the memory limit")),
            "{full:?}"
        );
    }
}
