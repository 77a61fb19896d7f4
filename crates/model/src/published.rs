//! The published experiments as descriptions: machine and settings, never their measured figures.
//!
//! | ids | published as |
//! |---|---|
//! | `ladder.*` | T. Makita, "Boost UDP Transaction Performance", LinuxCon Japan 2016 |
//! | `rps.*` | T. Herbert, "rps: Receive Packet Steering", Linux commit 0a9627f2649a, 2010 |
//! | `receive.*` | P. Abeni, "The need for speed and the kernel datapath", Red Hat Developer, 2017 |
//! | `overheads.*` | Q. Cai et al., "Understanding Host Network Stack Overheads", SIGCOMM 2021 |

use udpath_steer::CpuSet;

use crate::bulk::{self, Bulk};
use crate::costs::Costs;
use crate::description::{Description, Io, Times, Transport};
use crate::kernel::Kernel;
use crate::outcome::{Effort, Outcome, predict};

/// Most receive queues of `receive.*`: a core each, and one for the reader.
pub const MOST_QUEUES: usize = 11;

/// A published experiment, or a step of one.
#[derive(Debug, Clone, PartialEq)]
pub enum Published {
    /// On the path of a datagram.
    Path(Box<Description>),
    /// Streams of data.
    Bulk(Bulk),
}

/// The experiment of an id. `receive.*` has `.N` for N receive queues behind the names of [`ids`], 1 to
/// [`MOST_QUEUES`]; and `overheads.one-to-one.N` any number of flows, 1 to 24.
#[must_use]
pub fn experiment(id: &str) -> Option<Published> {
    let path = |description| Some(Published::Path(Box::new(description)));
    match id.split_once('.')? {
        ("ladder", step) => path(ladder(step)?),
        ("rps", step) => path(rps(step)?),
        ("receive", step) => {
            let (step, queues) = match step.rsplit_once('.') {
                Some((step, queues)) => (step, queues.parse().ok()?),
                None => (step, MOST_QUEUES),
            };
            path(receive(step, queues)?)
        }
        ("overheads", step) => {
            let flows = step.strip_prefix("one-to-one.")?.parse().ok()?;
            (1..=24).contains(&flows).then_some(Published::Bulk(Bulk { flows, ..Bulk::SIGCOMM }))
        }
        _ => None,
    }
}

/// The ids of all experiments; those of `receive` at its most receive queues and at one.
#[must_use]
pub fn ids() -> Vec<String> {
    let mut ids: Vec<String> = ["rss", "spread", "reuseport"].map(|step| format!("ladder.{step}")).into();
    for step in
        ["e1000e.off", "e1000e.on", "forcedeth.off", "forcedeth.on", "bnx2x.4q", "bnx2x.8q", "bnx2x.4q-rps"]
    {
        ids.push(format!("rps.{step}"));
    }
    for step in ["socket-lock", "queue-lock", "bulk", "two-queues"] {
        ids.extend([format!("receive.{step}.1"), format!("receive.{step}")]);
    }
    ids.extend([1, 8, 16, 24].map(|flows| format!("overheads.one-to-one.{flows}")));
    ids
}

/// The modelled figure of an experiment: transactions per second; datagrams per second of `receive.*`; Gbit/s for each
/// fully used core of `overheads.*`. `None` for an unknown id, or costs out of range.
#[must_use]
pub fn published(id: &str, costs: &Costs) -> Option<f64> {
    match experiment(id)? {
        Published::Path(_) => outcome(id, costs).map(|outcome| outcome.tps),
        Published::Bulk(bulk) => costs.check().is_ok().then(|| bulk::per_core(&bulk, &costs.terms)),
    }
}

/// The same with its band: what the simulation gives, or the costs' own error.
#[must_use]
pub fn published_band(id: &str, costs: &Costs) -> Option<(f64, f64, f64)> {
    match experiment(id)? {
        Published::Path(_) => outcome(id, costs).map(|outcome| (outcome.tps, outcome.low, outcome.high)),
        Published::Bulk(_) => {
            let value = published(id, costs)?;
            Some((value, value * (1.0 - costs.error), value * (1.0 + costs.error)))
        }
    }
}

/// The whole outcome of an experiment on the path of a datagram.
#[must_use]
pub fn outcome(id: &str, costs: &Costs) -> Option<Outcome> {
    let Published::Path(description) = experiment(id)? else { return None };
    // Softirqs and threads alternate in milliseconds: some tens of turns.
    let effort = Effort { seed: 1, runs: 1, warm_up_ms: 30, window_ms: 100 };
    predict(&description, costs, &effort).ok()
}

fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap_or_default()
}

/// Two Xeon E5-2650 v3 (10 cores each), 82599 with 16 queues of RSS, kernel 4.6.3 with RHEL's configuration (HZ=1000).
/// CPUs are numbered by node here: node 1 is 10 to 19, the hints' queues 0 to 9 are on node 0.
fn ladder(step: &str) -> Option<Description> {
    let base = Description {
        cores: 20,
        nodes: 2,
        speed: HASWELL,
        kernel: Kernel::new(4, 6),
        hz: 1000,
        link_gbps: 10.0,
        queues: 16,
        transmit_queues: 20,
        ring: 512,
        // ixgbe's own moderation for bulk traffic: 12,000 to 20,000 interrupts per second.
        moderation_us: 60.0,
        // irqbalance used the CPUs of one node.
        irqs: cpus("0-9"),
        xps: true,
        io: Io::Shared,
        workers: 20,
        pin: false,
        // One client sends as many as the wire carries.
        flows: 4096,
        clients: 1,
        inflight: 0,
        rate: 1e9,
        arrivals: Times::Constant,
        payload: 100,
        ..Description::default()
    };
    // Queue n to CPU n, and four queues of node 1 to the four CPUs that have none, as well.
    let queues = (0..16).map(|queue| match queue {
        11..=14 => cpus(&format!("{queue},{}", queue + 5)),
        _ => CpuSet::new(),
    });
    let spread = Description { irqs: CpuSet::new(), rps: queues.collect(), ..base.clone() };
    match step {
        "rss" => Some(base),
        "spread" => Some(spread),
        "reuseport" => Some(Description { io: Io::Reuseport, ..spread }),
        _ => None,
    }
}

/// 500 netperf TCP_RR of one byte, to machines of 2010.
fn rps(step: &str) -> Option<Description> {
    let base = Description {
        kernel: Kernel::new(2, 35),
        hz: 1000,
        xps: false,
        ring: 256,
        transport: Transport::Tcp,
        io: Io::Shared,
        pin: false,
        flows: 500,
        clients: 1,
        inflight: 500,
        wire_us: 60.0,
        payload: 1,
        ..Description::default()
    };
    // Two Xeons of four cores.
    let intel = Description { cores: 8, nodes: 2, speed: NEHALEM, ..base.clone() };
    // Four Opterons of four cores.
    let amd = Description { cores: 16, nodes: 4, speed: BARCELONA, ..base };
    let all = |description: Description| Description {
        rps: vec![CpuSet::first_n(description.cpus() as u32)],
        ..description
    };
    // e1000e: at most 20,000 interrupts per second by default. forcedeth has no moderation of received packets worth
    // the name. bnx2x: 25 us.
    let e1000e = Description { moderation_us: 50.0, link_gbps: 1.0, ..intel };
    let forcedeth = Description { moderation_us: 10.0, link_gbps: 1.0, ..amd.clone() };
    let bnx2x = |queues| Description { queues, moderation_us: 25.0, link_gbps: 10.0, ..amd.clone() };
    match step {
        "e1000e.off" => Some(e1000e),
        "e1000e.on" => Some(all(e1000e)),
        "forcedeth.off" => Some(forcedeth),
        "forcedeth.on" => Some(all(forcedeth)),
        "bnx2x.4q" => Some(bnx2x(4)),
        "bnx2x.8q" => Some(bnx2x(8)),
        "bnx2x.4q-rps" => Some(all(bnx2x(4))),
        _ => None,
    }
}

/// A flood of 6.7 million datagrams per second into one socket with one reader; a Xeon E5-2690 v3 (12 cores), ixgbe.
fn receive(step: &str, queues: usize) -> Option<Description> {
    if !(1..=MOST_QUEUES).contains(&queues) {
        return None;
    }
    let kernel = match step {
        "socket-lock" => Kernel::new(4, 9),
        "queue-lock" => Kernel::new(4, 10),
        "bulk" => Kernel::new(4, 11),
        "two-queues" => Kernel::new(4, 13),
        _ => return None,
    };
    Some(Description {
        cores: 12,
        threads_per_core: 2,
        speed: HASWELL * 3.1 / 2.6,
        kernel,
        link_gbps: 10.0,
        queues,
        moderation_us: 60.0,
        irqs: cpus("0-10"),
        io: Io::Shared,
        worker_cpus: cpus("11"),
        replies: false,
        flows: 4096,
        clients: 1,
        inflight: 0,
        rate: 6.7e6,
        arrivals: Times::Constant,
        payload: 18,
        ..Description::default()
    })
}

/// Kernels before 2018 have no mitigations: a datagram's way of some forty indirect calls takes that much less time.
/// Public measurements of retpolines, the largest of them, on packets per second are 20 to 40 % (netdev, 2018).
const UNMITIGATED: f64 = 1.35;
/// Speed of a core of a Xeon E5 v3 at 2.6 GHz, of that of a Sapphire Rapids at 3 GHz: 0.87 of the clock, and
/// instructions per cycle of Golden Cove against Haswell, 1.6 by public comparisons at equal clocks.
const HASWELL: f64 = 0.54 * UNMITIGATED;
/// The same of a Xeon 5500 at 2.5 GHz: a quarter fewer instructions per cycle than Haswell.
const NEHALEM: f64 = 0.4 * UNMITIGATED;
/// The same of an Opteron 8300 at 2.3 GHz.
const BARCELONA: f64 = 0.3 * UNMITIGATED;
