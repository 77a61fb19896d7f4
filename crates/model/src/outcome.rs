//! What a description would carry: the rate with a band, how busy each link of the path is, and which one is saturated.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::agenda::{MILLISECOND, Time};
use crate::costs::{Costs, CostsError};
use crate::description::{Description, DescriptionError};
use crate::extrapolation::{Extrapolation, extrapolated};
use crate::path::{Measured, Path};

/// How much is simulated for a prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// Of the first run; each further run has the next.
    pub seed: u64,
    /// Runs, with a seed each; their spread is part of the band.
    pub runs: u32,
    /// Simulated time before figures count, milliseconds. Shorter: queues are not yet as full as they get.
    pub warm_up_ms: u32,
    /// Simulated time that counts, milliseconds. Shorter: few turns between ksoftirqd and threads, which last
    /// milliseconds.
    pub window_ms: u32,
}

impl Default for Effort {
    fn default() -> Self {
        Self { seed: 1, runs: 3, warm_up_ms: 10, window_ms: 40 }
    }
}

/// A link of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkName {
    /// The wire.
    Wire,
    /// CPUs that process packets in softirqs.
    Softirq,
    /// Locks of sockets and their queues.
    SocketLock,
    /// CPUs of the workers.
    Workers,
    /// Locks of transmit queues.
    TransmitLock,
    /// All CPUs.
    Cpus,
}

impl LinkName {
    /// In words.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Wire => "wire",
            Self::Softirq => "softirq, busiest CPU",
            Self::SocketLock => "socket lock",
            Self::Workers => "workers",
            Self::TransmitLock => "transmit queue's lock",
            Self::Cpus => "all CPUs",
        }
    }
}

/// How busy a link is.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct LinkShare {
    /// The link.
    pub link: LinkName,
    /// 0 to 1.
    pub busy: f64,
}

/// Where CPU time goes, CPUs' worth.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct CpuTime {
    /// Softirqs, with ksoftirqd.
    pub softirq: f64,
    /// Threads.
    pub threads: f64,
    /// Of both, spinning for locks.
    pub spinning: f64,
    /// CPUs.
    pub cpus: usize,
}

impl CpuTime {
    /// Busy share of all CPUs, 0 to 1.
    #[must_use]
    pub fn busy(&self) -> f64 {
        (self.softirq + self.threads) / self.cpus.max(1) as f64
    }
}

/// Where transactions were lost, shares of those offered.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Lost {
    /// In the rings of the card.
    pub ring: f64,
    /// In backlogs.
    pub backlog: f64,
    /// In sockets.
    pub socket: f64,
}

/// What a description would carry.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Outcome {
    /// Transactions per second: replies, or of a sink datagrams received.
    pub tps: f64,
    /// The rate is likely not below this.
    pub low: f64,
    /// Nor above this.
    pub high: f64,
    /// Requests per second that arrived.
    pub offered: f64,
    /// What was lost.
    pub lost: Lost,
    /// Mean time in the path, microseconds.
    pub latency_us: f64,
    /// Where CPU time goes.
    pub cpu: CpuTime,
    /// Each link.
    pub links: Vec<LinkShare>,
    /// The first that is saturated, if one is.
    pub saturated: Option<LinkName>,
    /// What goes beyond the calibration.
    pub extrapolated: Vec<Extrapolation>,
    /// Events simulated.
    pub events: u64,
}

/// Why there is no prediction.
#[derive(Debug, Error, PartialEq)]
pub enum PredictError {
    /// The description.
    #[error(transparent)]
    Description(#[from] DescriptionError),
    /// The costs.
    #[error("costs: {0}")]
    Costs(#[from] CostsError),
}

/// Busy share from which on a link is saturated. Lower: links that still have room are called limits. Higher: a lock
/// that is always wanted, but free for a moment between two holders, is not.
const SATURATED: f64 = 0.95;
/// Bytes beside a UDP payload on an Ethernet wire: IPv4, UDP, Ethernet, FCS, preamble and gap.
const WIRE_OVERHEAD: usize = 20 + 8 + 14 + 4 + 20;
/// Shortest frame on the wire, with preamble and gap, bytes.
const SHORTEST: usize = 64 + 20;

/// What a description would carry, with these costs.
///
/// # Errors
/// A description that contradicts itself, or costs out of range.
pub fn predict(description: &Description, costs: &Costs, effort: &Effort) -> Result<Outcome, PredictError> {
    description.check()?;
    costs.check()?;
    let limited = limited_by_wire(description);
    let runs: Vec<Measured> = (0..effort.runs.max(1))
        .map(|run| {
            let seed = effort.seed.wrapping_add(run.into());
            let length = |ms: u32| Time::from(ms) * MILLISECOND;
            Path::new(&limited, costs, seed).run(length(effort.warm_up_ms), length(effort.window_ms.max(1)))
        })
        .collect();
    Ok(Outcome::of(description, costs, &runs))
}

/// A link carries no more than its bits allow, in each direction: an open loop offers no more.
fn limited_by_wire(description: &Description) -> Description {
    let most = wire_rate(description);
    Description { rate: description.rate.min(most), ..description.clone() }
}

/// Datagrams per second that the link carries in each direction.
fn wire_rate(description: &Description) -> f64 {
    let bits = (description.payload + WIRE_OVERHEAD).max(SHORTEST) as f64 * 8.0;
    if description.link_gbps > 0.0 { description.link_gbps * 1e9 / bits } else { f64::INFINITY }
}

impl Outcome {
    fn of(description: &Description, costs: &Costs, runs: &[Measured]) -> Self {
        let count = runs.len() as f64;
        let mean = |value: &dyn Fn(&Measured) -> f64| runs.iter().map(value).sum::<f64>() / count;
        let rate = |run: &Measured| run.counts.completed as f64 / run.seconds;
        let wire = wire_rate(description);
        let tps = mean(&rate).min(wire);
        let extrapolated = extrapolated(description, &costs.range);
        // The spread of the runs, and the error of the costs; what is extrapolated is known half as well.
        let spread = runs.iter().map(|run| (rate(run) / tps.max(1.0) - 1.0).abs()).fold(0.0, f64::max);
        let error = costs.error * if extrapolated.is_empty() { 1.0 } else { 2.0 };
        let band = (spread * spread + error * error).sqrt();
        let lost = |of: &dyn Fn(&Measured) -> u64| {
            mean(&|run| of(run) as f64 / (run.counts.offered as f64).max(1.0))
        };
        let seconds = |run: &Measured, of: &dyn Fn(&crate::state::Spent) -> Time| {
            run.cpus.iter().map(of).sum::<Time>() as f64 / 1e12 / run.seconds
        };
        let cpu = CpuTime {
            softirq: mean(&|run| seconds(run, &|cpu| cpu.softirq)),
            threads: mean(&|run| seconds(run, &|cpu| cpu.thread)),
            spinning: mean(&|run| seconds(run, &|cpu| cpu.spinning)),
            cpus: description.cpus(),
        };
        let busiest = |run: &Measured| {
            run.cpus.iter().map(|cpu| cpu.softirq as f64 / 1e12 / run.seconds).fold(0.0, f64::max)
        };
        // Workers are saturated where every CPU that they may use is busy.
        let worker_cpus = description.worker_cpus_used();
        let workers = |run: &Measured| {
            let busy = worker_cpus.iter().map(|cpu| {
                let spent = &run.cpus[*cpu];
                (spent.softirq + spent.thread) as f64 / 1e12 / run.seconds
            });
            busy.sum::<f64>() / worker_cpus.len().max(1) as f64
        };
        let links = vec![
            LinkShare { link: LinkName::Wire, busy: if wire.is_finite() { tps / wire } else { 0.0 } },
            LinkShare { link: LinkName::Softirq, busy: mean(&busiest) },
            LinkShare { link: LinkName::SocketLock, busy: mean(&|run| run.socket_lock) },
            LinkShare { link: LinkName::Workers, busy: mean(&workers) },
            LinkShare { link: LinkName::TransmitLock, busy: mean(&|run| run.transmit_lock) },
            LinkShare { link: LinkName::Cpus, busy: cpu.busy() },
        ];
        let completed = mean(&|run| run.counts.completed as f64).max(1.0);
        Self {
            tps,
            low: tps * (1.0 - band).max(0.0),
            high: tps * (1.0 + band),
            offered: mean(&|run| run.counts.offered as f64 / run.seconds),
            lost: Lost {
                ring: lost(&|run| run.counts.ring),
                backlog: lost(&|run| run.counts.backlog),
                socket: lost(&|run| run.counts.socket),
            },
            latency_us: mean(&|run| run.counts.time as f64) / completed / 1e6,
            cpu,
            saturated: saturated(&links),
            links,
            extrapolated,
            events: runs.iter().map(|run| run.events).sum(),
        }
    }
}

/// The first saturated link; all CPUs only if no part of them is by itself.
fn saturated(links: &[LinkShare]) -> Option<LinkName> {
    links.iter().find(|share| share.busy >= SATURATED).map(|share| share.link)
}

impl Description {
    /// CPUs that workers may use.
    fn worker_cpus_used(&self) -> Vec<usize> {
        let all = || 0..self.cpus();
        if self.pin && self.transport == crate::description::Transport::Udp {
            let mut cpus: Vec<usize> = (0..self.workers).map(|worker| self.worker_cpu(worker)).collect();
            cpus.sort_unstable();
            cpus.dedup();
            cpus
        } else if self.worker_cpus.is_empty() {
            all().collect()
        } else {
            all().filter(|cpu| self.worker_cpus.contains(*cpu as u32)).collect()
        }
    }
}
