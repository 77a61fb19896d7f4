//! CPU time of the machine, by CPU and by kind, from `/proc/stat` (proc(5)).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How one CPU spent an interval. Shares of the interval, each 0..=1; together 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct CpuUse {
    /// CPU number.
    pub cpu: u32,
    /// User time, nice included.
    pub usr: f64,
    /// System time.
    pub sys: f64,
    /// Softirq time.
    pub soft: f64,
    /// Hard interrupt time.
    pub irq: f64,
    /// Time that the hypervisor gave to other guests.
    pub steal: f64,
    /// Idle and waiting for I/O.
    pub idle: f64,
    /// Length of the interval as counted by the kernel, seconds.
    pub seconds: f64,
}

impl CpuUse {
    /// Busy CPU time of the interval, seconds.
    #[must_use]
    pub fn busy_seconds(&self) -> f64 {
        (1.0 - self.idle).max(0.0) * self.seconds
    }
}

/// The counters of `/proc/stat` at one moment.
#[derive(Debug, Clone, Default)]
pub struct CpuTimes {
    cpus: Vec<(u32, [u64; 8])>,
}

impl CpuTimes {
    /// Reads the counters now.
    ///
    /// # Errors
    /// `/proc/stat` cannot be read.
    pub fn now() -> std::io::Result<Self> {
        Ok(Self::parse(&udpath_files::kernel::text("/proc/stat")?))
    }

    /// Parses the text of `/proc/stat`; lines that are not `cpuN` are skipped.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let cpus = text
            .lines()
            .filter_map(|line| {
                // "cpu" alone, with blanks after it, is the sum of all.
                let (cpu, times) = line.strip_prefix("cpu")?.split_once(' ')?;
                let cpu = cpu.parse().ok()?;
                let mut words = times.split_ascii_whitespace();
                let mut ticks = [0; 8];
                for tick in &mut ticks {
                    *tick = words.next().and_then(|w| w.parse().ok()).unwrap_or(0);
                }
                Some((cpu, ticks))
            })
            .collect();
        Self { cpus }
    }

    /// How each CPU spent the time since `earlier`. A CPU missing from either moment is left out.
    #[must_use]
    pub fn since(&self, earlier: &Self, ticks_per_second: f64) -> Vec<CpuUse> {
        self.cpus
            .iter()
            .filter_map(|(cpu, now)| {
                let (_, then) = earlier.cpus.iter().find(|(c, _)| c == cpu)?;
                let d: Vec<f64> = now.iter().zip(then).map(|(n, t)| n.saturating_sub(*t) as f64).collect();
                let total: f64 = d.iter().sum();
                let share = |ticks: f64| if total > 0.0 { ticks / total } else { 0.0 };
                Some(CpuUse {
                    cpu: *cpu,
                    usr: share(d[0] + d[1]),
                    sys: share(d[2]),
                    idle: if total > 0.0 { share(d[3] + d[4]) } else { 1.0 },
                    irq: share(d[5]),
                    soft: share(d[6]),
                    steal: share(d[7]),
                    seconds: total / ticks_per_second,
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THEN: &str = "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 100 0 50 800 50 0 0 0 0 0\nintr 1 2 3\n";
    const NOW: &str = "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 110 10 70 840 50 0 20 0 0 0\nintr 1 2 3\n";

    #[test]
    fn shares_add_up_to_one() {
        let used = CpuTimes::parse(NOW).since(&CpuTimes::parse(THEN), 100.0);
        assert_eq!(used.len(), 1);
        let u = used[0];
        assert_eq!((u.usr, u.sys, u.soft, u.idle), (0.2, 0.2, 0.2, 0.4));
        assert!((u.seconds - 1.0).abs() < 1e-9);
        assert!((u.busy_seconds() - 0.6).abs() < 1e-9);
    }
}
