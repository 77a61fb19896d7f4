//! CPU time since boot, by kind of work: `/proc/stat`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use udpath_steer::CpuSet;

use crate::text::Malformed;

/// CPU time since boot, in ticks of the kernel's accounting (`USER_HZ`, 100 per second everywhere).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct CpuTicks {
    /// User mode, guests included.
    pub user: u64,
    /// User mode at low priority.
    pub nice: u64,
    /// System calls and kernel threads.
    pub system: u64,
    /// Idle.
    pub idle: u64,
    /// Idle while a task that last ran here waits for disk I/O.
    pub iowait: u64,
    /// Hard interrupts.
    pub irq: u64,
    /// Softirqs.
    pub softirq: u64,
    /// Steal: runnable while the hypervisor ran other guests.
    pub steal: u64,
}

impl CpuTicks {
    /// Ticks per second, independent of the kernel's own tick rate (`USER_HZ`).
    pub const PER_SECOND: u64 = 100;

    /// Sum of all categories.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.user + self.nice + self.system + self.idle + self.iowait + self.irq + self.softirq + self.steal
    }

    /// The increase since an earlier snapshot of the same boot. Idle and iowait may go backwards by a tick or two (they
    /// are estimates); this counts as zero.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            nice: self.nice.saturating_sub(earlier.nice),
            system: self.system.saturating_sub(earlier.system),
            idle: self.idle.saturating_sub(earlier.idle),
            iowait: self.iowait.saturating_sub(earlier.iowait),
            irq: self.irq.saturating_sub(earlier.irq),
            softirq: self.softirq.saturating_sub(earlier.softirq),
            steal: self.steal.saturating_sub(earlier.steal),
        }
    }
}

/// `/proc/stat`: the CPU time of each CPU. Kernels before 2.6.11 had fewer columns; missing ones are 0.
pub fn ticks(text: &str) -> Result<BTreeMap<u32, CpuTicks>, Malformed> {
    let mut cpus = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        // "cpu" without a number, followed by spaces, is the sum of all.
        let Some((number, counts)) = line.strip_prefix("cpu").and_then(|rest| rest.split_once(' ')) else {
            continue;
        };
        if number.is_empty() {
            continue;
        }
        let wrong = || Malformed::new(index, line, "not the times of a CPU");
        let number: u32 = number.parse().map_err(|_| wrong())?;
        if number > CpuSet::MAX_CPU {
            return Err(wrong());
        }
        let mut counts = counts.split_ascii_whitespace().map(|word| word.parse::<u64>().map_err(|_| wrong()));
        let mut next = || counts.next().unwrap_or(Ok(0));
        let ticks = CpuTicks {
            user: next()?,
            nice: next()?,
            system: next()?,
            idle: next()?,
            iowait: next()?,
            irq: next()?,
            softirq: next()?,
            steal: next()?,
        };
        cpus.insert(number, ticks);
    }
    Ok(cpus)
}
