//! Threads that measure something in memory: where they run, and what CPU time they used.

use std::io;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Why threads could not measure.
#[derive(Debug, thiserror::Error)]
pub enum ThreadError {
    /// The machine has too few CPUs.
    #[error("this measurement needs {needed} CPUs, and this process may use {have}")]
    TooFewCpus {
        /// CPUs needed.
        needed: usize,
        /// CPUs it may use.
        have: usize,
    },
    /// A thread was kept from its CPU.
    #[error("cannot pin a thread to CPU {cpu}")]
    Pin {
        /// The CPU.
        cpu: usize,
        /// The kernel's error.
        #[source]
        cause: io::Error,
    },
    /// A thread panicked.
    #[error("a thread of the measurement panicked")]
    Panicked,
}

/// CPUs that this process may use.
#[must_use]
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Pins the calling thread to one CPU.
///
/// # Errors
/// The CPU does not exist, or this process may not use it.
pub fn pin(cpu: usize) -> Result<(), ThreadError> {
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only).map_err(|errno| ThreadError::Pin { cpu, cause: errno.into() })
}

/// CPU time of the calling thread so far; other threads' time on its CPU is not included.
#[must_use]
pub fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// The quantile `at`, 0..=1, of some values: one of them. Not a number of none.
#[must_use]
pub fn quantile(mut values: Vec<f64>, at: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let index = (values.len() as f64 * at) as usize;
    values.get(index).or(values.last()).copied().unwrap_or(f64::NAN)
}
