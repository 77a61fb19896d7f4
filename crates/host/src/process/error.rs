//! Why a server's sockets or threads could not be read or changed.

use std::io;

use udpath_steer::CpuSet;

/// Each names the operation, the object, the cause, and what would help.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No such process, or it has ended.
    #[error("there is no process {pid}")]
    NoProcess {
        /// The number asked for.
        pid: u32,
    },
    /// The kernel does not allow it.
    #[error("cannot {what}: not permitted; {needs} is needed, which root has outside of containers")]
    NotPermitted {
        /// Operation and object.
        what: String,
        /// The capability that would be enough.
        needs: &'static str,
    },
    /// The kernel is too old to hand out descriptors.
    #[error(
        "cannot {what}: this kernel does not hand out descriptors of other processes (pidfd_getfd, Linux 5.6)"
    )]
    OldKernel {
        /// Operation and object.
        what: String,
    },
    /// The socket is not the process's any more.
    #[error(
        "process {pid} has no UDP socket with inode {inode} and cookie {cookie:#x} (any more): it was closed, or the \
         server was restarted and has new ones; look for them again"
    )]
    SocketGone {
        /// The process.
        pid: u32,
        /// The socket's inode.
        inode: u32,
        /// Its cookie.
        cookie: u64,
    },
    /// No such socket.
    #[error("process {pid} has no UDP socket with inode {inode} (any more)")]
    NoSocket {
        /// The process.
        pid: u32,
        /// The inode asked for.
        inode: u32,
    },
    /// Nobody listens.
    #[error("no UDP socket is bound to port {port} in this network namespace")]
    NobodyServes {
        /// The port.
        port: u16,
    },
    /// Somebody listens, and does not show.
    #[error(
        "UDP port {port} is served, and no process that is seen here has its sockets; {hidden} processes keep their \
         descriptors to themselves: CAP_SYS_PTRACE is needed, which root has outside of containers"
    )]
    Hidden {
        /// The port.
        port: u16,
        /// How many processes do not show what they have.
        hidden: usize,
    },
    /// No thread was seen that waits for a socket.
    #[error(
        "no thread was seen waiting for {socket} in {looks} looks: it is never idle, or waits in a way that is not \
         known here (poll, select, io_uring); name the threads themselves, as thread:PID/TID:affinity"
    )]
    NobodyWaits {
        /// The socket.
        socket: String,
        /// How often was looked.
        looks: u32,
    },
    /// A group of which others have members.
    #[error(
        "{socket} shares its port with {strangers} sockets that neither process {pid} nor its workers have; which \
         member is whose cannot be told, so a choice by CPU is not made"
    )]
    Strangers {
        /// The socket.
        socket: String,
        /// The process.
        pid: u32,
        /// How many sockets are others'.
        strangers: usize,
    },
    /// The thread has ended.
    #[error("thread {tid} of process {pid} has ended; its server has started others since, or was restarted")]
    ThreadGone {
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
    },
    /// A CPU that is not there.
    #[error("CPU {cpu} is not online; online are {online}")]
    NoCpu {
        /// The CPU asked for.
        cpu: u32,
        /// Those that are.
        online: CpuSet,
    },
    /// No CPU at all.
    #[error("a thread needs at least one CPU to run on")]
    NoCpus,
    /// The socket is alone.
    #[error(
        "{socket} is in no reuseport group, so there is nothing to choose from; only the server itself can open more \
         sockets (SO_REUSEPORT), by its own configuration"
    )]
    NoGroup {
        /// The socket.
        socket: String,
    },
    /// The socket is connected: the kernel writes the CPU of its last datagram there.
    #[error("{socket} is connected; its incoming CPU is a record of its last datagram and no setting")]
    Connected {
        /// The socket.
        socket: String,
    },
    /// A value that the option cannot have.
    #[error("{value} is not possible as {what}; {right}")]
    Range {
        /// The setting.
        what: &'static str,
        /// The value asked for.
        value: u64,
        /// What would be possible.
        right: String,
    },
    /// It reads back as something else, and has been put back.
    #[error("{what} reads back as {found} after {wanted} was written; it has been put back to {before}")]
    NotTaken {
        /// Setting and object.
        what: String,
        /// What was written.
        wanted: String,
        /// What was found.
        found: String,
        /// What it was.
        before: String,
    },
    /// Anything else the kernel answered.
    #[error("cannot {what}: {cause}")]
    System {
        /// Operation and object.
        what: String,
        /// The kernel's answer.
        cause: io::Error,
    },
}

impl Error {
    /// Is the object itself not there?
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(
            self,
            Self::NoProcess { .. }
                | Self::NoSocket { .. }
                | Self::SocketGone { .. }
                | Self::ThreadGone { .. }
        )
    }

    /// The kernel's answer to `what`; `needs` is the capability whose lack it may be.
    pub fn answered(what: impl Into<String>, cause: impl Into<io::Error>, needs: &'static str) -> Self {
        let (what, cause) = (what.into(), cause.into());
        match cause.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::NotPermitted { what, needs },
            Some(libc::ENOSYS) => Self::OldKernel { what },
            _ => Self::System { what, cause },
        }
    }
}
