//! Work that is confined to some CPUs: the calling thread's affinity, and that of what it starts.

use std::io;

use rustix::thread::{CpuSet as Mask, sched_getaffinity, sched_setaffinity};
use udpath_steer::CpuSet;

/// Does `work` on these CPUs: threads and programs that it starts inherit the affinity. The thread's former affinity is
/// restored afterwards.
///
/// # Errors
/// None of them exists or is allowed to this process; `work` was not done. Or the former affinity was refused.
pub fn confined<T>(cpus: &CpuSet, work: impl FnOnce() -> T) -> io::Result<T> {
    let mut mask = Mask::new();
    for cpu in cpus.iter() {
        // CPUs that the mask cannot hold are left out; an empty mask is refused by the kernel.
        if (cpu as usize) < Mask::MAX_CPU {
            mask.set(cpu as usize);
        }
    }
    let before = sched_getaffinity(None)?;
    sched_setaffinity(None, &mask)?;
    let restore = Restore(before);
    let done = work();
    drop(restore);
    Ok(done)
}

/// Restores the affinity, also if the work panics.
struct Restore(Mask);

impl Drop for Restore {
    fn drop(&mut self) {
        // It was this thread's a moment ago. A cpuset that has shrunk since keeps the thread within it either way.
        let _ = sched_setaffinity(None, &self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> Mask {
        sched_getaffinity(None).unwrap()
    }

    #[test]
    fn threads_started_meanwhile_inherit_it() {
        let before = here();
        let first = (0..Mask::MAX_CPU).find(|cpu| before.is_set(*cpu)).unwrap();
        let only: CpuSet = [first as u32].into_iter().collect();
        let (own, started) = confined(&only, || (here(), std::thread::spawn(here).join().unwrap())).unwrap();
        for mask in [own, started] {
            assert_eq!((mask.count(), mask.is_set(first)), (1, true));
        }
        assert_eq!(here(), before);
    }

    #[test]
    fn cpus_that_do_not_exist_are_refused() {
        let before = here();
        for cpu in [Mask::MAX_CPU as u32 - 1, 65_535] {
            let none: CpuSet = [cpu].into_iter().collect();
            assert!(confined(&none, || ()).is_err(), "{cpu}");
        }
        assert_eq!(here(), before);
    }
}
