//! Hardware counters beside the samples: a group whose leader is the sampled event.
//!
//! ```text
//! cycles            leads: its overflow is the sample   ┐ one group for each CPU, on the processor together or not at
//! instructions                                          │ all: what they count is of the same time
//! cache-misses                                          │
//! LLC-load-misses                                       │   each sample carries the values of all ──▸ Reading
//! node-load-misses  loads from another node's memory    ┘
//! ```
//! A counter that does not open on every CPU is left out, with the reason. Names are those of `perf list`. Their
//! meaning depends on the processor and the kernel: `cache-misses` are those of the last level on Intel, of the second
//! on AMD, of the first on many Arm processors. Only Intel has the last two.

use std::fmt;
use std::io;

use perf_event_open_sys::bindings as uapi;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a processor counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema, Serialize, Deserialize)]
pub enum Counter {
    /// Cycles in which the processor was not halted.
    #[serde(rename = "cycles")]
    Cycles,
    /// Instructions retired.
    #[serde(rename = "instructions")]
    Instructions,
    /// Misses in the cache that the kernel treats as this processor's last level.
    #[serde(rename = "cache-misses")]
    CacheMisses,
    /// Loads that missed the last level.
    #[serde(rename = "LLC-load-misses")]
    LoadMisses,
    /// Of those, loads served from another node's memory.
    #[serde(rename = "node-load-misses")]
    RemoteLoads,
}

impl Counter {
    /// All counters, in the order of [`Counts`]; the first is the group's leader.
    pub const ALL: [Self; 5] =
        [Self::Cycles, Self::Instructions, Self::CacheMisses, Self::LoadMisses, Self::RemoteLoads];

    /// perf's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cycles => "cycles",
            Self::Instructions => "instructions",
            Self::CacheMisses => "cache-misses",
            Self::LoadMisses => "LLC-load-misses",
            Self::RemoteLoads => "node-load-misses",
        }
    }

    /// Type and config, of `perf_event_attr`.
    pub(super) const fn event(self) -> (u32, u64) {
        /// A cache, loads (0), misses: one byte each.
        const fn load_misses(cache: u32) -> (u32, u64) {
            let (loads, misses) = (uapi::PERF_COUNT_HW_CACHE_OP_READ, uapi::PERF_COUNT_HW_CACHE_RESULT_MISS);
            (uapi::PERF_TYPE_HW_CACHE, (cache | loads << 8 | misses << 16) as u64)
        }
        match self {
            Self::Cycles => (uapi::PERF_TYPE_HARDWARE, uapi::PERF_COUNT_HW_CPU_CYCLES as u64),
            Self::Instructions => (uapi::PERF_TYPE_HARDWARE, uapi::PERF_COUNT_HW_INSTRUCTIONS as u64),
            Self::CacheMisses => (uapi::PERF_TYPE_HARDWARE, uapi::PERF_COUNT_HW_CACHE_MISSES as u64),
            Self::LoadMisses => load_misses(uapi::PERF_COUNT_HW_CACHE_LL),
            Self::RemoteLoads => load_misses(uapi::PERF_COUNT_HW_CACHE_NODE),
        }
    }
}

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The count of each counter, in the order of [`Counter::ALL`]; zero for absent counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts(pub [u64; Counter::ALL.len()]);

impl Counts {
    /// The count of one counter.
    #[must_use]
    pub const fn of(self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }

    /// Adds other counts.
    pub fn add(&mut self, other: Self) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum = sum.saturating_add(more);
        }
    }
}

/// A counter that this machine does not have or does not permit.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Absent {
    /// The counter.
    pub counter: Counter,
    /// The reason, from the kernel.
    pub why: String,
}

impl Absent {
    pub(super) fn new(counter: Counter, cause: &io::Error) -> Self {
        let why = match cause.raw_os_error() {
            Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => {
                "this processor does not count it".to_owned()
            }
            // The kernel checks the whole group when an event joins it.
            Some(libc::EINVAL) => "the processor has no counter left for it".to_owned(),
            _ => cause.to_string(),
        };
        Self { counter, why }
    }
}
