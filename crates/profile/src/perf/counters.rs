//! Hardware counters beside the samples: a group of events that the sampled one leads.
//!
//! ```text
//! cycles            leads: its overflow is the sample   ┐ one group for each CPU, on the processor together or not at
//! instructions                                          │ all: what they count is of the same time
//! cache-misses                                          │
//! LLC-load-misses                                       │   each sample carries the values of all ──▸ Reading
//! node-load-misses  loads from another node's memory    ┘
//! ```
//! A counter that does not open on every CPU is left out, with the reason. Names are those of `perf list`. What a
//! processor counts under such a name is its own affair, and the kernel's: `cache-misses` are those of the last level on
//! Intel's, of the second on AMD's, of the first on many of Arm's. The last two are there on Intel's only.

use std::fmt;
use std::io;

use perf_event_open_sys::bindings as uapi;
use serde::{Deserialize, Serialize};

/// What a processor counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Counter {
    /// Cycles in which the processor was not halted.
    #[serde(rename = "cycles")]
    Cycles,
    /// Instructions that were completed.
    #[serde(rename = "instructions")]
    Instructions,
    /// Of the cache that the kernel takes for this processor's last.
    #[serde(rename = "cache-misses")]
    CacheMisses,
    /// Loads that the last level did not have.
    #[serde(rename = "LLC-load-misses")]
    LoadMisses,
    /// Of those, what came from another node's memory.
    #[serde(rename = "node-load-misses")]
    RemoteLoads,
}

impl Counter {
    /// All, in the order of [`Counts`]; the first leads.
    pub const ALL: [Self; 5] =
        [Self::Cycles, Self::Instructions, Self::CacheMisses, Self::LoadMisses, Self::RemoteLoads];

    /// As perf calls it.
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

    /// Type and configuration, of `perf_event_attr`.
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

/// What each counter counted, in the order of [`Counter::ALL`]; zero for those that are not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts(pub [u64; Counter::ALL.len()]);

impl Counts {
    /// Of one.
    #[must_use]
    pub const fn of(self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }

    /// Counts in.
    pub fn add(&mut self, other: Self) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum = sum.saturating_add(more);
        }
    }
}

/// A counter that this machine does not have, or does not give.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    /// Which.
    pub counter: Counter,
    /// The kernel's word.
    pub why: String,
}

impl Absent {
    pub(super) fn new(counter: Counter, cause: &io::Error) -> Self {
        let why = match cause.raw_os_error() {
            Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => {
                "this processor does not count it".to_owned()
            }
            // The group as a whole is tried when an event joins it.
            Some(libc::EINVAL) => "the processor has no counter left for it".to_owned(),
            _ => cause.to_string(),
        };
        Self { counter, why }
    }
}
