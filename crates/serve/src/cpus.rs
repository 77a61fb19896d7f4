//! CPUs and the clocks: the CPUs this process may use, pinning, the current CPU and time.

use std::io;
use std::time::Duration;

use rustix::thread::{CpuSet as Mask, sched_getaffinity, sched_getcpu, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use udpath_steer::CpuSet;

/// The CPUs the calling thread may run on: those of its cpuset and affinity mask.
pub fn allowed_cpus() -> io::Result<CpuSet> {
    let mask = sched_getaffinity(None)?;
    Ok((0_u32..).zip(0..Mask::MAX_CPU).filter(|(_, cpu)| mask.is_set(*cpu)).map(|(cpu, _)| cpu).collect())
}

/// Pins the calling thread to one CPU.
pub(crate) fn pin_to(cpu: u32) -> io::Result<()> {
    let index = cpu as usize;
    if index >= Mask::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = Mask::new();
    set.set(index);
    Ok(sched_setaffinity(None, &set)?)
}

/// The CPU the calling thread runs on.
pub(crate) fn current_cpu() -> u32 {
    // More CPUs than 32 bits can count do not exist.
    u32::try_from(sched_getcpu()).unwrap_or(u32::MAX)
}

/// Time since boot on `CLOCK_MONOTONIC`.
pub(crate) fn monotonic_now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    // The monotonic clock starts at 0, and its nanoseconds are below 1e9.
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// The time of day on `CLOCK_REALTIME`, since the Unix epoch; 0 for a clock set before it.
pub(crate) fn realtime_now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Realtime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_is_where_it_was_pinned() {
        for cpu in allowed_cpus().unwrap().iter() {
            std::thread::spawn(move || {
                pin_to(cpu).unwrap();
                assert_eq!(current_cpu(), cpu);
                assert_eq!(allowed_cpus().unwrap().iter().collect::<Vec<_>>(), [cpu]);
            })
            .join()
            .unwrap();
        }
        assert!(pin_to(Mask::MAX_CPU as u32).is_err());
    }
}
