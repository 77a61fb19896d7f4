//! Why a port could not be had. Each says what would make it possible.

use std::io;

use super::ring::MAX_RING_LEN;
use crate::frame;

/// A port or its program could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No such interface.
    #[error("there is no interface '{interface}' in this network namespace")]
    NoInterface {
        /// The name asked for.
        interface: String,
    },
    /// sysfs belongs to another network namespace.
    #[error(
        "/sys shows another network namespace's interfaces, and '{interface}' is not the same there: mount sysfs for \
         this one, as `ip netns exec` does"
    )]
    OtherSysfs {
        /// The interface.
        interface: String,
    },
    /// Something about the interface could not be read.
    #[error("cannot read {what} of interface '{interface}': {cause}")]
    Read {
        /// The interface.
        interface: String,
        /// What was to be read: a file's name.
        what: &'static str,
        /// Why not.
        cause: io::Error,
    },
    /// No such queue.
    #[error("interface '{interface}' has no receive queue {queue}: it has {queues}, counted from 0")]
    NoQueue {
        /// The interface.
        interface: String,
        /// The queue asked for.
        queue: u32,
        /// How many there are.
        queues: u32,
    },
    /// Another socket has the queue.
    #[error(
        "queue {queue} of interface '{interface}' has an AF_XDP socket already; end the process that holds it \
         (`ss --xdp --processes` tells which)"
    )]
    QueueBusy {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
    },
    /// No right to.
    #[error("cannot {operation}: {cause}; run as root, or with {capability}")]
    NotPermitted {
        /// What was tried.
        operation: &'static str,
        /// The capability it takes.
        capability: &'static str,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// The kernel has no AF_XDP.
    #[error(
        "this kernel has no AF_XDP (CONFIG_XDP_SOCKETS); serve over kernel sockets, or use a kernel that has it"
    )]
    NoAfXdp,
    /// The driver has no native XDP.
    #[error(
        "the driver of interface '{interface}' has no native XDP; allow generic mode, which seldom pays, or serve over \
         kernel sockets"
    )]
    NoNative {
        /// The interface.
        interface: String,
    },
    /// The driver cannot use our memory.
    #[error(
        "the driver of interface '{interface}' does no zero-copy on queue {queue}: {cause}; let the kernel copy, or \
         use automatic choice"
    )]
    NoZeroCopy {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// The memory may not be locked.
    #[error(
        "cannot lock {bytes} bytes of packet memory: {cause}; raise RLIMIT_MEMLOCK (`ulimit -l`, LimitMEMLOCK= of \
         systemd), run with CAP_IPC_LOCK, or use fewer frames"
    )]
    LockedMemory {
        /// How much.
        bytes: usize,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// A ring's size that cannot be.
    #[error("a {ring} ring of {size} entries is not possible; use a power of two from 64 to {MAX_RING_LEN}")]
    RingSize {
        /// Which ring.
        ring: &'static str,
        /// The size asked for.
        size: u32,
    },
    /// Too few frames.
    #[error(
        "{frames} frames are too few for a port: its rings and a burst take {least}; smaller rings take fewer"
    )]
    FewFrames {
        /// How many were asked for.
        frames: usize,
        /// How many it takes.
        least: usize,
    },
    /// Another step failed.
    #[error("cannot {operation} for queue {queue} of interface '{interface}': {cause}")]
    Socket {
        /// What was tried.
        operation: &'static str,
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// No memory for frames.
    #[error(transparent)]
    Frame(#[from] frame::Error),
    /// The program could not be loaded or attached.
    #[error(transparent)]
    Program(#[from] udpath_bpf::Error),
}
