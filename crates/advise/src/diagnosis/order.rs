//! The order of findings, and which explain which.
//!
//! What falsifies a measurement comes first. Then loss, where it is lost first on the way in. Then how sockets are
//! split, before how packets are spread: spreading them over a socket that all threads share makes it slower. Then RSS
//! before RPS, and last what each packet costs.

use std::cmp::Ordering;

use super::Diagnosed;
use crate::finding::{Finding, Severity};

/// The ids of all findings in that order. A test compares them with the rules.
pub(crate) const RANKS: &[&str] = &[
    // What falsifies a measurement.
    "generator-limit",
    "pause-frames",
    "cpu-limit",
    "steal",
    // Loss, from the wire to the reader and back.
    "device-loses-packets",
    "backlog-full",
    "flow-limit",
    "conntrack-full",
    "conntrack-drops",
    "dropped-before-socket",
    "fragments-lost",
    "checksum-errors",
    "no-listener",
    "answer-from-other-address",
    "udp-memory",
    "memory-limit",
    "neighbours-unresolved",
    "port-shared",
    "reader-waits-for-dns",
    "socket-not-read",
    "reader-blocked",
    "group-uneven",
    "receive-buffer-small",
    "reader-slow",
    "socket-drops",
    "udp-errors",
    "drops",
    "neighbour-table-full",
    "transmit-queue-full",
    "tun-reader-slow",
    // How sockets are split.
    "shared-socket",
    "receive-queue-lock",
    "one-socket",
    "last-socket-takes-all",
    "group-order",
    "cpu-without-socket",
    // How packets are spread: RSS, then interrupts, then RPS.
    "rss-table-short",
    "rss-without-ports",
    "one-hot-queue",
    "one-queue",
    "one-cpu",
    "irqs-on-one-node",
    "irqs-share-cpus",
    "hint-unused",
    "no-irq-found",
    "irq-not-moved-yet",
    "isolated-cpus",
    "reader-on-other-node",
    "rps-one-cpu",
    "rps-on-irq-cpu",
    "rps-crosses-nodes",
    "rps-redundant",
    "readers-on-softirq-cpus",
    "softirq-starves-reader",
    "transmit-queue-stops",
    "one-qdisc",
    "no-xps",
    "transmit-by-cpu",
    // What each packet costs.
    "logging",
    "fragments",
    "userland-proxy",
    "packet-sockets",
    "generic-xdp",
    "every-packet-stamped",
    "netfilter",
    "gro",
    "no-moderation",
    "too-many-queues",
    "budget-exhausted",
    "defer-without-timer",
    "lock",
    "wake-ups",
    "single-datagram-calls",
    "bulk-received-singly",
    "bulk-sent-singly",
    "software-checksums",
    "source-validation",
    "ip-identification",
    "socket-lookup",
    "early-demux",
    "cgroup-filters",
    "time-stamps",
    "slow-clock",
    "bridge-filter",
    "iommu",
    "page-recycling",
    "mitigations",
    "security",
    "tracing",
    "others",
    "filtered",
    // More readers instead of cheaper datagrams.
    "reader-limit",
    // The machine.
    "smt-off",
    "governor",
    "deep-idle",
    "slow-coalescing",
    "large-receive-offload",
    "counters-disagree",
    "conflict",
    "set-by-file",
    "user",
];

/// The place of an id; unknown ones come last.
fn rank(id: &str) -> usize {
    RANKS.iter().position(|known| *known == id).unwrap_or(RANKS.len())
}

/// Does a finding say that the figures are not about the server?
pub(super) fn falsifies(id: &str) -> bool {
    rank(id) < rank("device-loses-packets")
}

/// What a finding explains: with the first gone, the others go as well.
const EXPLAINS: &[(&str, &[&str])] = &[
    (
        "cpu-limit",
        &["reader-slow", "group-uneven", "receive-buffer-small", "socket-drops", "udp-errors", "drops"],
    ),
    ("udp-memory", &["udp-errors", "socket-drops", "receive-buffer-small", "drops"]),
    ("memory-limit", &["udp-errors", "socket-drops", "receive-buffer-small", "drops"]),
    (
        "neighbours-unresolved",
        &[
            "socket-not-read",
            "reader-blocked",
            "group-uneven",
            "reader-slow",
            "receive-buffer-small",
            "socket-drops",
            "udp-errors",
            "drops",
        ],
    ),
    (
        "port-shared",
        &[
            "socket-not-read",
            "reader-blocked",
            "last-socket-takes-all",
            "socket-drops",
            "udp-errors",
            "drops",
        ],
    ),
    (
        "reader-waits-for-dns",
        &["socket-not-read", "reader-blocked", "reader-slow", "socket-drops", "udp-errors", "drops"],
    ),
    (
        "socket-not-read",
        &["reader-blocked", "group-uneven", "reader-slow", "socket-drops", "udp-errors", "drops"],
    ),
    ("reader-blocked", &["group-uneven", "socket-drops", "udp-errors", "drops"]),
    ("group-uneven", &["reader-slow", "socket-drops", "udp-errors", "drops"]),
    ("receive-buffer-small", &["socket-drops", "udp-errors", "drops"]),
    (
        "shared-socket",
        &[
            "reader-slow",
            "receive-buffer-small",
            "socket-drops",
            "udp-errors",
            "drops",
            "receive-queue-lock",
            "one-socket",
        ],
    ),
    ("receive-queue-lock", &["one-socket"]),
    (
        "readers-on-softirq-cpus",
        &[
            "softirq-starves-reader",
            "reader-limit",
            "reader-slow",
            "socket-drops",
            "udp-errors",
            "drops",
            "one-cpu",
        ],
    ),
    ("softirq-starves-reader", &["reader-slow", "socket-drops", "udp-errors", "drops"]),
    ("others", &["reader-slow", "receive-buffer-small", "socket-drops", "udp-errors", "drops"]),
    // With it, what is lost is next to nothing.
    ("reader-limit", &["reader-slow", "socket-drops", "udp-errors", "drops", "one-cpu"]),
    ("reader-slow", &["socket-drops", "udp-errors", "drops"]),
    ("socket-drops", &["udp-errors", "drops"]),
    ("udp-errors", &["drops"]),
    ("checksum-errors", &["drops"]),
    ("no-listener", &["drops"]),
    ("fragments-lost", &["fragments"]),
    ("conntrack-full", &["conntrack-drops", "dropped-before-socket"]),
    ("conntrack-drops", &["dropped-before-socket"]),
    ("dropped-before-socket", &["filtered"]),
    ("netfilter", &["filtered"]),
    ("rps-one-cpu", &["backlog-full"]),
];

/// Share of what arrives below which a loss comes after what limits. Lower: a handful of packets lost on a full link
/// comes before its cause; higher: the loss that a user asks about is not the first thing named.
const STRAY: f64 = 0.001;

/// Share of the CPU time below which a cost comes after what limits more. Lower: a hundredth of the CPU time is mended
/// before a thread that alone uses one of many CPUs. Higher: what each datagram costs is found only after that.
const SMALL: f64 = 0.05;

/// The findings by weight, each symptom with what explains it. `arriving`: packets per second, if known.
pub(super) fn ordered(mut findings: Vec<Diagnosed>, arriving: Option<f64>) -> Vec<Diagnosed> {
    let present: Vec<String> = findings
        .iter()
        .filter(|found| found.finding.severity < Severity::Note)
        .map(|found| found.finding.id.clone())
        .collect();
    for found in &mut findings {
        // The cause that comes first in the table is the deepest.
        let cause = EXPLAINS.iter().find(|(cause, symptoms)| {
            present.iter().any(|id| id == cause) && symptoms.contains(&found.finding.id.as_str())
        });
        found.explained_by = cause.map(|(cause, _)| (*cause).to_owned());
    }
    findings.sort_by(|a, b| compare(a, b, arriving.unwrap_or(0.0) * STRAY));
    findings
}

/// Losses at a rate below `stray` come after what limits.
fn compare(a: &Diagnosed, b: &Diagnosed, stray: f64) -> Ordering {
    let key = |found: &Diagnosed| {
        let Finding { id, severity, rate, share, .. } = &found.finding;
        let stray = *severity == Severity::Loss && rate.is_some_and(|rate| rate < stray);
        // What each packet costs.
        let cost = (rank("logging")..rank("reader-limit")).contains(&rank(id));
        let small = cost && share.is_some_and(|share| share < SMALL);
        (*severity == Severity::Note, found.explained_by.is_some(), stray && !falsifies(id), small, rank(id))
    };
    let size = |found: &Diagnosed| found.finding.rate.or(found.finding.share).unwrap_or(0.0);
    key(a).cmp(&key(b)).then_with(|| size(b).total_cmp(&size(a)))
}
