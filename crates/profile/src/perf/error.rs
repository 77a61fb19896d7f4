//! Why nothing can be sampled.

use std::io;

use thiserror::Error;
use udpath_steer::CpuSet;

/// Why nothing can be sampled.
#[derive(Debug, Error)]
pub enum OpenError {
    /// This user lacks permission.
    #[error(
        "cannot sample {what}: perf_event_paranoid is {paranoid}; run as root, or with CAP_PERFMON, or set \
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
    #[error(
        "cannot sample {what}: it belongs to another user; run as that user, as root, or with CAP_PERFMON"
    )]
    NotOurs {
        /// A thread.
        what: String,
    },
    /// No memory for the samples.
    #[error(
        "cannot map {kib} KiB for the samples of CPU {cpu} (raise kernel.perf_event_mlock_kb or `ulimit -l`, or stop \
         this user's other profilers)"
    )]
    NoRing {
        /// The CPU.
        cpu: u32,
        /// The size of the last attempt.
        kib: usize,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// The kernel does not have this event, or has no memory for it.
    #[error("cannot sample {what}")]
    Refused {
        /// A CPU, or a thread.
        what: String,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// No CPU to sample.
    #[error("none of the CPUs {0} is online")]
    NoCpu(CpuSet),
    /// No thread to sample.
    #[error("no thread to sample: the process has ended")]
    NoThread,
}
