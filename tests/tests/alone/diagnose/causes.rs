//! The causes: a server, a load, what is done to them, and the finding that must come first.

mod scenes;

pub(super) use scenes::group;
use scenes::{
    account, ask_from_dead_addresses, drop_some, fill_the_table, give_fragments_up_soon, limit_cpu,
    limit_rate, merge, nothing, queue_together, steer_to_one, stop_one, tap, track, validate_sources,
};

use super::Scene;

/// A server on the port.
#[derive(PartialEq)]
pub(super) enum Served {
    /// `udpath serve` with these arguments.
    Udpath(&'static [&'static str]),
    /// The same at the IPv6 addresses.
    OverIpv6(&'static [&'static str]),
    /// `server.py`: microseconds for each datagram, receive buffer in bytes (0: the default), processes.
    Python { busy_us: u32, buffer: u32, workers: u32 },
    /// The same with one process and a buffer of 8 MB, that other programs hardly hold up.
    Single,
    /// The same with two processes, each of which writes a line to a file for each datagram.
    Logging,
    /// The same with two processes bound to a CPU each, whose sockets a program selects by CPU; after the first has
    /// been restarted, or before.
    ByCpu { restarted: bool },
}

/// What the client's machine sends.
#[derive(PartialEq)]
pub(super) enum Load {
    /// `udpath load echo` with these arguments.
    Udpath(&'static [&'static str]),
    /// The same to the server's IPv6 address.
    OverIpv6(&'static [&'static str]),
    /// `sender.py` with these.
    Python(&'static [&'static str]),
}

/// A cause.
pub(super) struct Cause {
    pub(super) name: &'static str,
    pub(super) id: &'static str,
    pub(super) served: Served,
    pub(super) load: Load,
    /// What is done before the load starts, and while it runs.
    pub(super) before: fn(&mut Scene),
    pub(super) during: fn(&mut Scene),
    /// The twin.
    pub(super) healthy: (Served, Load),
    /// Do its programs run before all others on the machine? Not with a control group's limit, which real-time programs
    /// do not have, nor where they would take all CPUs.
    pub(super) first: bool,
    /// How long it is watched.
    pub(super) watched: &'static str,
}

/// Enough where a cause takes several per cent of the CPU time, which most do.
const BRIEFLY: &str = "2s";

/// Its buffers hold what comes while the hypervisor runs something else.
pub(super) const REUSEPORT: Served =
    Served::Udpath(&["echo", "--io", "reuseport", "--workers", "2", "--rcvbuf", "8000000"]);
/// Its buffer holds what comes while real-time programs are throttled, 50 ms of each second (`sched_rt_runtime_us`).
const SINK: Served = Served::Udpath(&["sink", "--io", "reuseport", "--workers", "1", "--rcvbuf", "8000000"]);
/// Replies over IPv6 have no identifiers, whose choice takes more time than GRO on some processors.
const REUSEPORT_IPV6: Served =
    Served::OverIpv6(&["echo", "--io", "reuseport", "--workers", "2", "--rcvbuf", "8000000"]);
const SHARED: Served = Served::Udpath(&["echo", "--io", "shared", "--workers", "2"]);
const LIGHT: Load = Load::Udpath(&["--rate", "5k", "--flows", "32"]);
/// A closed loop in the driver: the server takes nearly all of the CPUs, and its queues have room for all requests.
pub(super) const FULL: Load = Load::Udpath(&["--engine", "kernel", "--flows", "64", "--inflight", "2"]);
const FULL_IPV6: Load = Load::OverIpv6(&["--engine", "kernel", "--flows", "64", "--inflight", "2"]);

/// No two datagrams of one flow.
const MANY_FLOWS: Load = Load::Python(&["ADDRESS", "7000", "20", "1000", "10", "1", "many"]);

pub(super) const CAUSES: &[Cause] = &[
    Cause {
        name: "one shared socket with many reading threads",
        id: "shared-socket",
        served: SHARED,
        load: FULL,
        before: nothing,
        during: nothing,
        healthy: (REUSEPORT, LIGHT),
        first: false,
        watched: BRIEFLY,
    },
    Cause {
        name: "one reader that loses nothing, at its limit",
        id: "reader-limit",
        served: Served::Single,
        load: FULL,
        before: nothing,
        during: nothing,
        healthy: (Served::Single, LIGHT),
        first: false,
        watched: BRIEFLY,
    },
    Cause {
        name: "all flows on one socket of a group",
        id: "group-uneven",
        served: Served::Python { busy_us: 50, buffer: 0, workers: 2 },
        load: Load::Udpath(&["--flows", "1", "--inflight", "64"]),
        before: nothing,
        during: nothing,
        healthy: (
            Served::Python { busy_us: 50, buffer: 0, workers: 2 },
            Load::Udpath(&["--rate", "2k", "--flows", "32"]),
        ),
        first: true,
        watched: BRIEFLY,
    },
    Cause {
        name: "a restarted worker of a group selected by CPU",
        id: "group-order",
        served: Served::ByCpu { restarted: true },
        load: FULL,
        before: nothing,
        during: nothing,
        healthy: (Served::ByCpu { restarted: false }, Load::Udpath(&["--rate", "2k", "--flows", "32"])),
        first: false,
        watched: BRIEFLY,
    },
    Cause {
        name: "a receive buffer too small for bursts",
        id: "receive-buffer-small",
        served: Served::Python { busy_us: 50, buffer: 20_000, workers: 1 },
        load: Load::Python(&["ADDRESS", "7000", "100", "400", "200", "1"]),
        before: nothing,
        during: nothing,
        healthy: (
            Served::Python { busy_us: 50, buffer: 2_000_000, workers: 1 },
            Load::Python(&["ADDRESS", "7000", "100", "400", "200", "1"]),
        ),
        first: true,
        watched: BRIEFLY,
    },
    Cause {
        name: "a reader slower than the load",
        id: "reader-slow",
        served: Served::Python { busy_us: 100, buffer: 0, workers: 1 },
        load: Load::Udpath(&["--rate", "20k", "--flows", "32"]),
        before: nothing,
        during: nothing,
        healthy: (REUSEPORT, Load::Udpath(&["--rate", "20k", "--flows", "32"])),
        first: true,
        watched: BRIEFLY,
    },
    Cause {
        name: "requests from hosts that do not answer ARP",
        id: "neighbours-unresolved",
        served: Served::Python { busy_us: 0, buffer: 0, workers: 1 },
        load: Load::Udpath(&["--rate", "500", "--flows", "8"]),
        before: ask_from_dead_addresses,
        during: nothing,
        healthy: (
            Served::Python { busy_us: 0, buffer: 0, workers: 1 },
            Load::Udpath(&["--rate", "900", "--flows", "108"]),
        ),
        first: true,
        watched: BRIEFLY,
    },
    Cause {
        name: "one worker of four blocked",
        id: "reader-blocked",
        served: Served::Python { busy_us: 0, buffer: 0, workers: 4 },
        load: LIGHT,
        before: nothing,
        during: stop_one,
        healthy: (Served::Python { busy_us: 0, buffer: 0, workers: 4 }, LIGHT),
        first: true,
        watched: BRIEFLY,
    },
    Cause {
        name: "a CPU-limited control group",
        id: "cpu-limit",
        served: Served::Python { busy_us: 50, buffer: 0, workers: 1 },
        load: Load::Udpath(&["--rate", "5k", "--flows", "32"]),
        before: limit_cpu,
        during: nothing,
        healthy: (
            Served::Python { busy_us: 50, buffer: 0, workers: 1 },
            Load::Udpath(&["--rate", "5k", "--flows", "32"]),
        ),
        first: false,
        watched: BRIEFLY,
    },
    Cause {
        name: "checksum errors",
        id: "checksum-errors",
        served: REUSEPORT,
        load: Load::Python(&["ADDRESS", "7000", "100", "20", "10", "1", "checksum"]),
        before: nothing,
        during: nothing,
        healthy: (REUSEPORT, Load::Python(&["ADDRESS", "7000", "100", "20", "10", "1"])),
        first: true,
        watched: BRIEFLY,
    },
    Cause {
        name: "fragmentation",
        id: "fragments",
        served: REUSEPORT,
        load: Load::Python(&["ADDRESS", "7000", "3000", "5", "10", "8"]),
        before: nothing,
        during: nothing,
        healthy: (REUSEPORT, Load::Python(&["ADDRESS", "7000", "1000", "5", "10", "8"])),
        first: true,
        watched: BRIEFLY,
    },
    Cause {
        name: "no listener",
        id: "no-listener",
        served: REUSEPORT,
        load: Load::Python(&["ADDRESS", "7001", "100", "20", "10", "8"]),
        before: nothing,
        during: nothing,
        healthy: (REUSEPORT, Load::Python(&["ADDRESS", "7000", "100", "20", "10", "8"])),
        first: true,
        watched: BRIEFLY,
    },
    Cause {
        name: "a full transmit queue",
        id: "transmit-queue-full",
        served: REUSEPORT,
        load: LIGHT,
        before: limit_rate,
        during: nothing,
        healthy: (REUSEPORT, LIGHT),
        first: true,
        watched: BRIEFLY,
    },
    Cause {
        name: "a packet tap left running",
        id: "packet-sockets",
        served: REUSEPORT,
        load: FULL,
        before: tap,
        during: nothing,
        healthy: (REUSEPORT, LIGHT),
        first: false,
        watched: BRIEFLY,
    },
    Cause {
        name: "connection tracking in the path",
        id: "netfilter",
        served: REUSEPORT,
        load: FULL,
        before: track,
        during: nothing,
        healthy: (REUSEPORT, LIGHT),
        first: false,
        watched: BRIEFLY,
    },
    Cause {
        name: "a packet filter that drops some",
        id: "dropped-before-socket",
        served: REUSEPORT,
        load: LIGHT,
        before: drop_some,
        during: nothing,
        healthy: (REUSEPORT, LIGHT),
        first: true,
        watched: BRIEFLY,
    },
    Cause {
        name: "first fragments without the others",
        id: "fragments-lost",
        served: REUSEPORT,
        load: Load::Python(&["ADDRESS", "7000", "3000", "5", "10", "1", "first"]),
        before: give_fragments_up_soon,
        during: nothing,
        healthy: (REUSEPORT, Load::Python(&["ADDRESS", "7000", "1000", "5", "10", "1"])),
        first: true,
        watched: BRIEFLY,
    },
    Cause {
        name: "more flows than connections are tracked",
        id: "conntrack-full",
        served: SINK,
        load: MANY_FLOWS,
        before: track,
        during: fill_the_table,
        healthy: (SINK, MANY_FLOWS),
        first: true,
        watched: BRIEFLY,
    },
    Cause {
        name: "one queueing discipline for all senders",
        id: "one-qdisc",
        served: REUSEPORT,
        load: FULL,
        before: queue_together,
        during: nothing,
        healthy: (REUSEPORT, LIGHT),
        first: false,
        watched: BRIEFLY,
    },
    Cause {
        name: "filters of a control group",
        id: "cgroup-filters",
        served: REUSEPORT,
        load: FULL,
        before: account,
        during: nothing,
        healthy: (REUSEPORT, LIGHT),
        first: false,
        watched: BRIEFLY,
    },
    Cause {
        name: "sources validated for each packet",
        id: "source-validation",
        served: REUSEPORT,
        load: FULL,
        before: validate_sources,
        during: nothing,
        healthy: (REUSEPORT, LIGHT),
        first: false,
        watched: BRIEFLY,
    },
    Cause {
        name: "RPS to the wrong CPU",
        id: "rps-one-cpu",
        served: REUSEPORT,
        load: FULL,
        before: steer_to_one,
        during: nothing,
        healthy: (REUSEPORT, LIGHT),
        first: false,
        watched: BRIEFLY,
    },
    Cause {
        name: "GRO in vain",
        id: "gro",
        served: REUSEPORT_IPV6,
        load: FULL_IPV6,
        before: merge,
        during: nothing,
        healthy: (REUSEPORT, LIGHT),
        first: false,
        // One to two per cent of the CPU time, of which two seconds of samples show as little as a half.
        watched: "10s",
    },
    Cause {
        name: "a log of every query",
        id: "logging",
        served: Served::Logging,
        load: FULL,
        before: nothing,
        during: nothing,
        healthy: (Served::Python { busy_us: 0, buffer: 0, workers: 1 }, LIGHT),
        first: false,
        watched: BRIEFLY,
    },
    Cause {
        name: "a generator that is itself the limit",
        id: "generator-limit",
        served: SINK,
        load: Load::Python(&["ADDRESS", "7000", "100", "200", "0", "1"]),
        before: nothing,
        during: nothing,
        healthy: (SINK, Load::Python(&["ADDRESS", "7000", "100", "20", "10", "8"])),
        first: true,
        watched: BRIEFLY,
    },
];

/// A load that takes all of the CPUs, on servers without these causes: something is saturated, but none of them.
pub(super) const SATURATED: &[(Served, Load, &[&str])] = &[
    (
        REUSEPORT,
        FULL,
        &[
            "shared-socket",
            "packet-sockets",
            "netfilter",
            "rps-one-cpu",
            "group-uneven",
            "dropped-before-socket",
            "cgroup-filters",
            "source-validation",
            "one-qdisc",
            "time-stamps",
        ],
    ),
    (Served::ByCpu { restarted: false }, FULL, &["group-order"]),
    // One reader waits for nobody: its locks are not what limits it, and fewer threads would not help.
    (Served::Single, FULL, &["lock", "receive-queue-lock", "shared-socket", "group-uneven"]),
    (Served::Python { busy_us: 0, buffer: 0, workers: 2 }, FULL, &["logging", "shared-socket"]),
    (REUSEPORT_IPV6, FULL_IPV6, &["gro", "fragments"]),
];
