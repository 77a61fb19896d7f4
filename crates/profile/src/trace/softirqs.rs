//! Softirq runs, packets per NAPI poll, and IPIs between CPUs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use udpath_bpf::trace::{self as bpf, SoftirqCounts, VECTORS, VectorRuns, late_bucket_end};

use super::times::Times;
use crate::symbols::kernel::Kernel;

/// Softirqs and related events.
#[derive(Debug, Clone, PartialEq, Eq, Default, JsonSchema, Serialize, Deserialize)]
pub struct Softirqs {
    /// By vector and CPU; those that did not run are left out.
    pub vectors: Vec<Softirq>,
    /// By interface, most packets first.
    pub polls: Vec<Polls>,
    /// IPIs, by purpose and by sender, most first; `None` if the kernel does not report them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ipis: Option<Vec<Ipis>>,
    /// Wake-ups of threads, by the CPU that woke them.
    pub wakeups: Vec<u64>,
}

/// A softirq on one CPU.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Softirq {
    /// Its name in /proc/softirqs.
    pub vector: String,
    /// The CPU.
    pub cpu: u32,
    /// How often it ran.
    pub runs: u64,
    /// Total duration, nanoseconds, including interrupts during it.
    pub ns: u64,
    /// From raise to start.
    pub late: Times,
}

/// NAPI polls of one interface.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Polls {
    /// The interface; `backlog` for packets from RPS, loopback and veths without NAPI.
    pub interface: String,
    /// The inode number of its network namespace.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub netns: Option<u32>,
    /// Polls.
    pub polls: u64,
    /// Total packets.
    pub packets: u64,
    /// Polls that used up their budget: more packets were waiting.
    pub full: u64,
    /// By packets per poll; empty sizes are left out.
    pub sizes: Vec<Size>,
}

/// Polls of similar size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Size {
    /// From this number of packets to less than twice as many; the last one has all larger ones.
    pub from: u64,
    /// Polls.
    pub polls: u64,
}

/// Interrupts that one CPU sent to others.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Ipis {
    /// The function to run there; `reschedule` if the CPU was only to check for work.
    pub purpose: String,
    /// The sender.
    pub cpu: u32,
    /// Sent to one CPU.
    pub single: u64,
    /// Sent to several CPUs at once; each call counts once.
    pub masks: u64,
}

impl Softirqs {
    pub(super) fn new(counts: &SoftirqCounts, kernel: &Kernel) -> Self {
        let mut polls: Vec<Polls> = counts.polls.iter().map(Polls::new).collect();
        polls.sort_by(|a, b| {
            let key = |polls: &Polls| (polls.interface.clone(), polls.netns);
            b.packets.cmp(&a.packets).then_with(|| key(a).cmp(&key(b)))
        });
        let ipis = counts.ipis.as_ref().map(|ipis| {
            let mut ipis: Vec<Ipis> = ipis.iter().map(|ipis| Ipis::new(ipis, kernel)).collect();
            let calls = |ipis: &Ipis| ipis.single + ipis.masks;
            ipis.sort_by(|a, b| {
                calls(b).cmp(&calls(a)).then_with(|| (&a.purpose, a.cpu).cmp(&(&b.purpose, b.cpu)))
            });
            ipis
        });
        let vectors = counts.vectors.iter().map(Softirq::new).collect();
        Self { vectors, polls, ipis, wakeups: counts.wakeups.clone() }
    }

    /// The entries of one vector, on all CPUs.
    #[must_use]
    pub fn of(&self, vector: &str) -> Vec<&Softirq> {
        self.vectors.iter().filter(|softirq| softirq.vector == vector).collect()
    }

    /// Wake-ups per datagram; `None` for zero datagrams.
    #[must_use]
    pub fn wakeups_per(&self, datagrams: u64) -> Option<f64> {
        let all = self.wakeups.iter().copied().fold(0, u64::saturating_add);
        (datagrams > 0).then(|| all as f64 / datagrams as f64)
    }
}

impl Softirq {
    fn new(runs: &VectorRuns) -> Self {
        Self {
            vector: VECTORS.get(runs.vector).copied().unwrap_or("?").to_owned(),
            cpu: runs.cpu,
            runs: runs.runs,
            ns: runs.ns,
            late: Times::new(runs.raised, runs.late_ns, runs.latest_ns, &runs.late, late_bucket_end),
        }
    }
}

impl Polls {
    fn new(polls: &bpf::Polls) -> Self {
        let sizes = polls.sizes.iter().enumerate().filter(|(_, polls)| **polls > 0);
        let size = |(at, polls): (usize, &u64)| Size {
            from: if at == 0 { 0 } else { 1 << (at - 1) },
            polls: *polls,
        };
        Self {
            interface: polls.interface.clone().unwrap_or_else(|| "backlog".to_owned()),
            netns: polls.interface.as_ref().map(|_| polls.netns),
            polls: polls.polls,
            packets: polls.packets,
            full: polls.full,
            sizes: sizes.map(size).collect(),
        }
    }

    /// Mean packets per poll; `None` without polls.
    #[must_use]
    pub fn packets_per_poll(&self) -> Option<f64> {
        (self.polls > 0).then(|| self.packets as f64 / self.polls as f64)
    }
}

impl Ipis {
    fn new(ipis: &bpf::Ipis, kernel: &Kernel) -> Self {
        let function = || kernel.frame(ipis.callback).map_or("?", |frame| frame.function);
        let purpose = if ipis.callback == 0 { "reschedule" } else { function() };
        Self { purpose: purpose.to_owned(), cpu: ipis.cpu, single: ipis.single, masks: ipis.masks }
    }
}

#[cfg(test)]
mod tests {
    use udpath_bpf::trace::{LATE_BUCKETS, POLL_BUCKETS};

    use super::*;

    #[test]
    fn counts_are_named_and_sorted() {
        let mut late = [0; LATE_BUCKETS];
        late[2] = 4;
        let vector = VectorRuns {
            vector: 3,
            cpu: 1,
            runs: 5,
            ns: 900,
            raised: 4,
            late_ns: 1600,
            latest_ns: 500,
            late,
        };
        let mut sizes = [0; POLL_BUCKETS];
        (sizes[0], sizes[1], sizes[7]) = (1, 2, 3);
        let polls = |interface: Option<&str>, packets| bpf::Polls {
            interface: interface.map(str::to_owned),
            netns: 7,
            polls: 6,
            packets,
            full: 3,
            sizes,
        };
        let ipis = |callback, single| bpf::Ipis { callback, cpu: 0, single, masks: 0 };
        let counts = SoftirqCounts {
            vectors: vec![vector],
            polls: vec![polls(None, 10), polls(Some("eth0"), 194)],
            ipis: Some(vec![ipis(0, 3), ipis(0x1000, 9), ipis(7, 1)]),
            wakeups: vec![20, 30],
        };
        let found = Softirqs::new(&counts, &Kernel::parse("1000 t rps_trigger_softirq\n"));
        let net_rx = found.of("NET_RX");
        assert_eq!((net_rx.len(), net_rx[0].late.count, net_rx[0].late.lengths[0].below_ns), (1, 4, 512));
        let interfaces: Vec<_> =
            found.polls.iter().map(|polls| (polls.interface.as_str(), polls.netns)).collect();
        assert_eq!(interfaces, [("eth0", Some(7)), ("backlog", None)]);
        let sizes: Vec<_> = found.polls[0].sizes.iter().map(|size| (size.from, size.polls)).collect();
        assert_eq!(sizes, [(0, 1), (1, 2), (64, 3)]);
        let purposes: Vec<_> = found.ipis.iter().flatten().map(|ipis| ipis.purpose.as_str()).collect();
        assert_eq!(purposes, ["rps_trigger_softirq", "reschedule", "?"]);
        assert_eq!((found.wakeups_per(100), found.wakeups_per(0)), (Some(0.5), None));
    }
}
