//! A profile: plain data, and the figures derived from it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::hardware::Hardware;
use crate::classes::Class;
use crate::context::{self, Context};
use crate::facts::Facts;
use crate::perf::{Clock, Sight};
use crate::trace::Traces;

/// Where CPU time went.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Profile {
    /// Length of the sampled interval, seconds.
    pub seconds: f64,
    /// CPUs that were sampled.
    pub cpus: Vec<CpuLine>,
    /// What triggered the samples.
    pub clock: Clock,
    /// What they show.
    pub sight: Sight,
    /// Sample counts.
    pub samples: Counted,
    /// CPU time by context, nanoseconds.
    pub contexts: BTreeMap<Context, u64>,
    /// CPU time by class, nanoseconds, the largest first; idle is left out.
    pub classes: Vec<Share<Class>>,
    /// CPU time in locks, by owner, largest first.
    pub locks: Vec<Share<String>>,
    /// CPU time by process, largest first; 0 is the kernel's idle task.
    pub processes: Vec<ProcessShare>,
    /// Hardware counters over the interval; `None` without counters, or if only threads were sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<Hardware>,
    /// Datagrams in the interval, of the observed namespace.
    pub datagrams: Option<Datagrams>,
    /// The stacks, largest first.
    pub stacks: Vec<Stack>,
    /// What tracepoints counted in the same interval; added after the samples.
    #[serde(default)]
    pub traces: Traces,
    /// Context of the samples: sockets, packet sockets, the requested focus.
    #[serde(default)]
    pub facts: Facts,
    /// Caveats of these figures.
    pub notes: Vec<String>,
}

/// A part of the busy time.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Share_of_{T}")]
pub struct Share<T> {
    /// The item.
    pub of: T,
    /// CPU time, nanoseconds.
    pub ns: u64,
    /// Of all busy time, 0 to 1.
    pub share: f64,
    /// Part of `ns` spent by programs outside the focus: user and system calls. It is not charged to the datagrams.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub others: u64,
}

impl<T> Share<T> {
    /// Time charged to the datagrams, nanoseconds: see [`Profile::per_datagram`].
    #[must_use]
    pub const fn charged(&self) -> u64 {
        self.ns.saturating_sub(self.others)
    }
}

/// For serde.
const fn is_zero(ns: &u64) -> bool {
    *ns == 0
}

/// Sample counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Counted {
    /// Requested samples per second and CPU.
    pub rate: u32,
    /// Taken.
    pub taken: u64,
    /// Lost because a ring was full.
    pub lost: u64,
    /// How often the kernel took fewer samples than requested.
    pub throttled: u64,
    /// Invalid records.
    pub malformed: u64,
    /// Samples without room for their chain or place: counted, but with incomplete names.
    pub nameless: u64,
}

/// How one CPU spent the interval.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct CpuLine {
    /// The CPU.
    pub cpu: u32,
    /// Seconds after the beginning at which it went offline; not sampled from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<f64>,
    /// By the samples, nanoseconds of each context.
    pub sampled: BTreeMap<Context, u64>,
    /// By the kernel's own accounting in /proc/stat, shares of the interval; `None` if it cannot be read.
    pub accounted: Option<Accounted>,
    /// By the samples, for each second: nanoseconds of each context.
    pub time_line: Vec<BTreeMap<Context, u64>>,
}

/// CPU time as /proc/stat reports it, shares of the interval, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default, JsonSchema, Serialize, Deserialize)]
pub struct Accounted {
    /// Programs.
    pub usr: f64,
    /// The kernel for programs.
    pub sys: f64,
    /// The kernel on behalf of programs.
    pub irq: f64,
    /// Softirqs.
    pub soft: f64,
    /// Taken by the hypervisor.
    pub steal: f64,
    /// Idle, or waiting for disks.
    pub idle: f64,
}

/// A process's share.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct ProcessShare {
    /// The process.
    pub pid: u32,
    /// The name of its first thread.
    pub name: String,
    /// CPU time on its own behalf, nanoseconds: user and system calls. Interrupts are not charged to any process.
    pub ns: u64,
    /// Of all busy time, 0 to 1.
    pub share: f64,
    /// Its threads, the busiest first.
    pub threads: Vec<ThreadShare>,
}

/// A thread's share.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct ThreadShare {
    /// The thread.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// CPU time, nanoseconds.
    pub ns: u64,
    /// Was it seen receiving from a UDP socket?
    #[serde(default)]
    pub reads: bool,
    /// The CPU on which it spent at least nine tenths of its time; `None` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
}

/// UDP datagrams in the interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Datagrams {
    /// Delivered to sockets.
    pub received: u64,
    /// Sent by sockets.
    pub sent: u64,
    /// Dropped for any reason.
    pub dropped: u64,
}

impl Datagrams {
    /// Received and sent: the divisor of costs per datagram.
    #[must_use]
    pub const fn handled(&self) -> u64 {
        self.received.saturating_add(self.sent)
    }

    /// One received and one sent.
    #[must_use]
    pub fn transactions(&self) -> u64 {
        self.received.min(self.sent)
    }

    /// The share of incoming datagrams that was dropped, 0 to 1.
    #[must_use]
    pub fn loss(&self) -> f64 {
        let came = self.received.saturating_add(self.dropped);
        if came == 0 { 0.0 } else { self.dropped as f64 / came as f64 }
    }
}

/// A stack with its weight: one per context, process and list of functions.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Stack {
    /// The context.
    pub context: Context,
    /// The kind of work.
    pub class: Class,
    /// For a lock: its owner.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lock: Option<String>,
    /// The process; `None` for interrupts.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub process: Option<String>,
    /// Its pid.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pid: Option<u32>,
    /// Functions, outermost first.
    pub frames: Vec<String>,
    /// Samples.
    pub samples: u64,
    /// CPU time, nanoseconds.
    pub ns: u64,
}

impl Stack {
    /// The functions of the work itself, outermost first: of an interrupt without the interrupted code, which is
    /// unrelated and would split equal work.
    #[must_use]
    pub fn own_frames(&self) -> &[String] {
        context::own(self.context, &self.frames)
    }
}

impl Profile {
    /// Busy CPU time, nanoseconds: all but idle.
    #[must_use]
    pub fn busy(&self) -> u64 {
        self.contexts.iter().filter(|(context, _)| **context != Context::Idle).map(|(_, ns)| ns).sum()
    }

    /// CPU time available, nanoseconds: of all sampled CPUs, until they went offline.
    #[must_use]
    pub fn available(&self) -> f64 {
        self.cpus.iter().map(|line| self.sampled_seconds(line) * 1e9).sum()
    }

    /// How long a CPU was sampled, seconds.
    #[must_use]
    pub fn sampled_seconds(&self, line: &CpuLine) -> f64 {
        line.until.map_or(self.seconds, |until| until.min(self.seconds))
    }

    /// Busy CPU time that is charged to the datagrams, nanoseconds: all of it, or, with a focus, all but the time that
    /// other programs spent.
    #[must_use]
    pub fn charged(&self) -> u64 {
        self.busy().saturating_sub(self.others())
    }

    /// Busy CPU time of programs outside the focus, nanoseconds.
    #[must_use]
    pub fn others(&self) -> u64 {
        self.classes.iter().fold(0, |sum: u64, share| sum.saturating_add(share.others))
    }

    /// Nanoseconds per datagram received or sent; `None` if no datagrams were counted. [`Self::charged`],
    /// [`Share::charged`] and [`Self::charges`] define what belongs in `ns`.
    #[must_use]
    pub fn per_datagram(&self, ns: u64) -> Option<f64> {
        let handled = self.datagrams.filter(|_| self.whole())?.handled();
        (handled > 0).then(|| ns as f64 / handled as f64)
    }

    /// Nanoseconds per pair of one received and one sent datagram; `None` if none were counted.
    #[must_use]
    pub fn per_transaction(&self, ns: u64) -> Option<f64> {
        let transactions = self.datagrams.filter(|_| self.whole())?.transactions();
        (transactions > 0).then(|| ns as f64 / transactions as f64)
    }

    /// Were all online CPUs sampled? The datagrams are counted on all of them.
    #[must_use]
    pub fn whole(&self) -> bool {
        self.sight != Sight::Machine || self.cpus.len() >= self.facts.online as usize
    }

    /// A class's share of the busy time, 0 to 1.
    #[must_use]
    pub fn share(&self, class: Class) -> f64 {
        self.classes.iter().find(|share| share.of == class).map_or(0.0, |share| share.share)
    }
}
