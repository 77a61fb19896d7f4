//! Waiting for softirqs on other CPUs.

use std::io;

/// `MEMBARRIER_CMD_GLOBAL` (linux/membarrier.h).
const GLOBAL: libc::c_int = 1;

/// Waits until every running softirq has ended, and with it the redirects of XDP programs in it: the call waits for an
/// RCU grace period (kernel/sched/membarrier.c), and softirqs are RCU readers.
///
/// # Errors
/// The kernel has `nohz_full` CPUs, or lacks the call.
pub(crate) fn wait_for_softirqs() -> io::Result<()> {
    // SAFETY: no memory of ours is involved.
    let done = unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0, 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_returns() {
        if let Err(error) = wait_for_softirqs() {
            assert!(matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)), "{error}");
        }
    }
}
