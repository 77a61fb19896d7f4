//! Why nothing can be sampled.

use std::io;

use thiserror::Error;
use udpath_steer::CpuSet;

/// Why nothing can be sampled.
#[derive(Debug, Error)]
pub enum OpenError {
    /// This user lacks permission.
    #[error(
        "may not sample {what}: perf_event_paranoid is {paranoid}; run as root, or with CAP_PERFMON, or set \
         kernel.perf_event_paranoid to {enough} or less"
    )]
    NotPermitted {
        /// CPUs, or a thread.
        what: String,
        /// The value of /proc/sys/kernel/perf_event_paranoid.
        paranoid: String,
        /// The highest value that suffices.
        enough: i32,
    },
    /// The thread belongs to another user.
    #[error("may not sample {what}: it is not this user's; run as its user, as root, or with CAP_PERFMON")]
    NotOurs {
        /// A thread.
        what: String,
    },
    /// No memory for the samples.
    #[error(
        "cannot map {kib} KiB for the samples of CPU {cpu}: {cause}; raise kernel.perf_event_mlock_kb or `ulimit -l`, or \
         end other profilers of this user"
    )]
    NoRing {
        /// The CPU.
        cpu: u32,
        /// The size of the last attempt.
        kib: usize,
        /// Why.
        cause: io::Error,
    },
    /// The kernel does not have this event, or has no memory for it.
    #[error("cannot sample {what}: {cause}")]
    Refused {
        /// A CPU, or a thread.
        what: String,
        /// Why.
        cause: io::Error,
    },
    /// No CPU to sample.
    #[error("none of the CPUs {0} runs")]
    NoCpu(CpuSet),
    /// No thread to sample.
    #[error("there is no thread to be sampled: the process has ended")]
    NoThread,
}
