//! Threads of a running server, pinned from outside.

use std::io;

use udpath_host::process::{Error, ThreadId, affinity, online, possible};
use udpath_steer::CpuSet;

use super::{Changed, sys};

/// The capability needed to set another process's CPU affinity.
const NEEDS: &str = "CAP_SYS_NICE";

/// Restricts a thread to these CPUs, reads the affinity back, and returns the previous one.
///
/// To undo it, pin to the previous set. The kernel reduces a set to the CPUs that are online and allowed by the
/// thread's cpuset; if that drops an online CPU, the old set is restored and an error is returned.
///
/// # Errors
/// The thread has exited, a CPU is not online, permission is denied, or the thread's cpuset does not allow all of them.
pub fn pin(thread: ThreadId, cpus: &CpuSet) -> Result<Changed<CpuSet>, Error> {
    let online = online()?;
    let before = affinity(thread)?;
    // Offline CPUs are allowed: a thread that was never pinned has them in its set.
    if let Some(cpu) = cpus.difference(&possible(&online)).first() {
        return Err(Error::NoCpu { cpu, online });
    }
    if cpus.intersection(&online).is_empty() {
        return Err(cpus.first().map_or(Error::NoCpus, |cpu| Error::NoCpu { cpu, online }));
    }
    let what = || format!("set the CPUs of thread {} of process {} to {cpus}", thread.tid, thread.pid);
    sys::set_affinity(thread.tid, cpus).map_err(|cause| match cause.raw_os_error() {
        Some(libc::ESRCH) => Error::ThreadGone { pid: thread.pid, tid: thread.tid },
        Some(libc::EINVAL) => Error::System {
            what: what(),
            cause: io::Error::other("its cpuset (cgroup) allows none of them, or it is a kernel thread"),
        },
        _ => Error::answered(what(), cause, NEEDS),
    })?;
    let after = affinity(thread)?;
    if after.intersection(&online) != cpus.intersection(&online) {
        // The mismatch is the error to report; if this fails too, the caller has the previous set.
        let _ = sys::set_affinity(thread.tid, &before);
        let what = format!("the CPUs of thread {} (does its cpuset allow all of them?)", thread.tid);
        let (wanted, found, before) = (cpus.to_string(), after.to_string(), before.to_string());
        return Err(Error::NotTaken { what, wanted, found, before });
    }
    Ok(Changed { before: Some(before.clone()), undo: before, after: Some(after) })
}

#[cfg(test)]
mod tests {
    use udpath_host::process::Thread;

    use super::*;

    #[test]
    fn this_thread_is_pinned_and_restored() {
        let worker = std::thread::Builder::new().name("pinned".into()).spawn(|| {
            let tid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
            let seen = Thread::look(std::process::id(), tid).unwrap();
            assert_eq!(seen.name, "pinned");
            let one: CpuSet =
                [seen.affinity.intersection(&online().unwrap()).last().unwrap()].into_iter().collect();
            let changed = pin(seen.id, &one).unwrap();
            assert_eq!((changed.before.as_ref(), changed.after.as_ref()), (Some(&seen.affinity), Some(&one)));
            // In effect when the call returns: the kernel has moved the thread.
            assert_eq!(Some(rustix::thread::sched_getcpu() as u32), one.first());
            assert_eq!(affinity(seen.id).unwrap(), one);
            let put_back = pin(seen.id, &changed.undo).unwrap();
            assert_eq!(put_back.after, Some(seen.affinity));
            let other = ThreadId { started: seen.id.started + 1, ..seen.id };
            assert!(matches!(pin(other, &one), Err(Error::ThreadGone { .. })));
            seen.id
        });
        let gone = worker.unwrap().join().unwrap();
        let all = online().unwrap();
        assert!(matches!(pin(gone, &all), Err(Error::ThreadGone { .. })));
        let own = Thread::look(std::process::id(), std::process::id()).unwrap().id;
        let said = |cpus: CpuSet| pin(own, &cpus).unwrap_err().to_string();
        assert!(said([60_000].into_iter().collect()).contains("CPU 60000 is not online"));
        assert!(said(CpuSet::new()).contains("at least one CPU"));
    }
}
