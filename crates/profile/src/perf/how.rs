//! How samples are taken: what triggers them, and what they show.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::record::Layout;

/// What triggers the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    /// The processor's cycle counter; it samples interrupts too if its interrupt is non-maskable.
    Cycles,
    /// A kernel timer, if the processor's counters are not available, as on most virtual machines.
    CpuClock,
}

impl Clock {
    /// The kernel's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cycles => "cycles",
            Self::CpuClock => "cpu-clock",
        }
    }

    /// What its samples cannot show; `None` if they show everything.
    #[must_use]
    pub const fn blind(self) -> Option<&'static str> {
        match self {
            Self::Cycles => None,
            Self::CpuClock => Some(
                "no hardware counters: no cycles, instructions or cache misses; samples come from a timer that \
                 waits while interrupts are off, so hard interrupts and spinlocks held with interrupts off show \
                 where they end",
            ),
        }
    }
}

/// What the samples show; depends on the user's permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sight {
    /// Every CPU, kernel and programs.
    Machine,
    /// Threads of one process and its descendants, kernel included.
    Process,
    /// Threads of one process and its descendants, without the kernel.
    ProcessUser,
}

/// How samples are taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct How {
    pub(super) clock: Clock,
    pub(super) sight: Sight,
    pub(super) rate: u32,
}

impl How {
    /// Counters are read with the samples if there are any. Not for threads: before Linux 6.12, an inherited group
    /// cannot be read this way.
    pub(super) const fn layout(self) -> Layout {
        match (self.clock, self.sight) {
            (Clock::Cycles, Sight::Machine) => Layout::Counted,
            _ => Layout::Plain,
        }
    }
}
