//! Why a port could not be opened. Each error says what would make it possible.

use std::io;

use super::ring::MAX_RING_LEN;
use crate::frame;

/// A port or its program could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No such interface.
    #[error("no interface '{interface}' in this network namespace")]
    NoInterface {
        /// The requested name.
        interface: String,
    },
    /// sysfs belongs to another network namespace.
    #[error(
        "/sys shows another network namespace, and its interface '{interface}' is a different one: mount sysfs for \
         this one, as `ip netns exec` does"
    )]
    OtherSysfs {
        /// The interface.
        interface: String,
    },
    /// Something about the interface could not be read.
    #[error("cannot read {what} of interface '{interface}'")]
    Read {
        /// The interface.
        interface: String,
        /// The file that was read.
        what: &'static str,
        /// The kernel's error.
        #[source]
        cause: io::Error,
    },
    /// No such queue.
    #[error("interface '{interface}' has no receive queue {queue}: it has {queues}, counted from 0")]
    NoQueue {
        /// The interface.
        interface: String,
        /// The requested queue.
        queue: u32,
        /// Number of queues.
        queues: u32,
    },
    /// Another socket has the queue.
    #[error(
        "queue {queue} of interface '{interface}' already has an AF_XDP socket; stop the process that holds it \
         (see `ss --xdp --processes`)"
    )]
    QueueBusy {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
    },
    /// No permission.
    #[error("cannot {operation} (run as root, or with {capability})")]
    NotPermitted {
        /// The operation.
        operation: &'static str,
        /// The missing capability.
        capability: &'static str,
        /// The kernel's error.
        #[source]
        cause: io::Error,
    },
    /// The kernel has no AF_XDP.
    #[error("this kernel has no AF_XDP (CONFIG_XDP_SOCKETS); use kernel sockets, or a kernel with AF_XDP")]
    NoAfXdp,
    /// The driver has no native XDP.
    #[error(
        "the driver of interface '{interface}' has no native XDP; allow generic mode, which is rarely faster, or use \
         kernel sockets"
    )]
    NoNative {
        /// The interface.
        interface: String,
    },
    /// The driver does not support zero-copy.
    #[error(
        "the driver of interface '{interface}' does not support zero-copy on queue {queue} (use copy mode or \
         automatic selection)"
    )]
    NoZeroCopy {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// The kernel's error.
        #[source]
        cause: io::Error,
    },
    /// The memory could not be locked.
    #[error(
        "cannot lock {bytes} bytes of packet memory (raise `ulimit -l` or systemd's LimitMEMLOCK=, run with \
         CAP_IPC_LOCK, or use fewer frames)"
    )]
    LockedMemory {
        /// Bytes.
        bytes: usize,
        /// The kernel's error.
        #[source]
        cause: io::Error,
    },
    /// Invalid ring size.
    #[error("invalid {ring} ring size {size}: expected a power of two from 64 to {MAX_RING_LEN}")]
    RingSize {
        /// Which ring.
        ring: &'static str,
        /// The requested size.
        size: u32,
    },
    /// Too few frames.
    #[error(
        "{frames} frames are too few for a port: its rings and a burst need {least}; use more frames or smaller rings"
    )]
    FewFrames {
        /// The requested number.
        frames: usize,
        /// The required number.
        least: usize,
    },
    /// Another step failed.
    #[error("cannot {operation} for queue {queue} of interface '{interface}'")]
    Socket {
        /// The operation.
        operation: &'static str,
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// The kernel's error.
        #[source]
        cause: io::Error,
    },
    /// Out of memory for frames.
    #[error(transparent)]
    Frame(#[from] frame::Error),
    /// The program could not be loaded or attached.
    #[error(transparent)]
    Program(#[from] udpath_bpf::Error),
}
