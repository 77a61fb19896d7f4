//! Why a server's sockets or threads could not be read or changed.

use std::io;

use udpath_steer::CpuSet;

/// Each names the operation, the object, the cause and the fix.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No such process, or it has ended.
    #[error("there is no process {pid}")]
    NoProcess {
        /// The PID requested.
        pid: u32,
    },
    /// Permission denied.
    #[error("cannot {what}: not permitted; it needs {needs}, which root has outside containers")]
    NotPermitted {
        /// Operation and object.
        what: String,
        /// The capability that suffices.
        needs: &'static str,
    },
    /// The kernel is too old to duplicate descriptors.
    #[error(
        "cannot {what}: this kernel cannot duplicate descriptors of other processes (pidfd_getfd, Linux 5.6)"
    )]
    OldKernel {
        /// Operation and object.
        what: String,
    },
    /// The process no longer has the socket.
    #[error(
        "process {pid} has no UDP socket with inode {inode} and cookie {cookie:#x} (any more): it was closed, or the \
         server was restarted; list its sockets again"
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
        /// The inode requested.
        inode: u32,
    },
    /// No socket is bound to the port.
    #[error("no UDP socket is bound to port {port} in this network namespace")]
    NobodyServes {
        /// The port.
        port: u16,
    },
    /// A socket is bound to the port, but its process is not visible.
    #[error("UDP port {port} is in use, but no visible process has its sockets{}", whose(*hidden))]
    Hidden {
        /// The port.
        port: u16,
        /// Number of processes whose descriptors are not visible.
        hidden: usize,
    },
    /// No thread was seen waiting for a socket.
    #[error(
        "no thread was waiting for {socket} in {looks} samples: its threads are never idle, or wait in a way that \
         udpath \
         cannot see (poll, select, io_uring); name the threads, as thread:PID/TID:affinity"
    )]
    NobodyWaits {
        /// The socket.
        socket: String,
        /// Number of samples taken.
        looks: u32,
    },
    /// A reuseport group with members outside the server.
    #[error(
        "{socket} shares its port with {strangers} sockets that neither process {pid} nor its workers have, so \
         how the group selects cannot be changed: it is unknown which member belongs to which process"
    )]
    Strangers {
        /// The socket.
        socket: String,
        /// The process.
        pid: u32,
        /// Number of sockets that belong to others.
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
    /// A CPU that does not exist or is offline.
    #[error("CPU {cpu} is not online; online CPUs: {online}")]
    NoCpu {
        /// The CPU requested.
        cpu: u32,
        /// The CPUs that are online.
        online: CpuSet,
    },
    /// An empty set of CPUs.
    #[error("a thread needs at least one CPU to run on")]
    NoCpus,
    /// The socket is not in a group.
    #[error(
        "{socket} is not in a reuseport group; configure the server to open several sockets with SO_REUSEPORT"
    )]
    NoGroup {
        /// The socket.
        socket: String,
    },
    /// The socket is connected: the kernel stores the CPU of its last datagram there.
    #[error("{socket} is connected: its incoming CPU is that of its last datagram, not a setting")]
    Connected {
        /// The socket.
        socket: String,
    },
    /// A value outside the option's range.
    #[error("invalid {what} {value}; {right}")]
    Range {
        /// The setting.
        what: &'static str,
        /// The value requested.
        value: u64,
        /// The valid values.
        right: String,
    },
    /// It read back as a different value and was restored.
    #[error("{what} reads back as {found} after {wanted} was written; it was restored to {before}")]
    NotTaken {
        /// Setting and object.
        what: String,
        /// What was written.
        wanted: String,
        /// What was read back.
        found: String,
        /// The previous value.
        before: String,
    },
    /// Any other error from the kernel.
    #[error("cannot {what}")]
    System {
        /// Operation and object.
        what: String,
        /// The kernel's error.
        #[source]
        cause: io::Error,
    },
}

impl Error {
    /// Whether the object itself no longer exists.
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

    /// Maps the kernel's error for `what`; `needs` is the capability that may be missing.
    pub fn answered(what: impl Into<String>, cause: impl Into<io::Error>, needs: &'static str) -> Self {
        let (what, cause) = (what.into(), cause.into());
        match cause.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::NotPermitted { what, needs },
            Some(libc::ENOSYS) => Self::OldKernel { what },
            _ => Self::System { what, cause },
        }
    }
}

/// Whose sockets are that no visible process has.
fn whose(hidden: usize) -> String {
    match hidden {
        0 => ": they belong to a process of another PID namespace, such as a container's, or to the kernel (WireGuard, VXLAN)"
            .to_owned(),
        hidden => format!(
            ", and the descriptors of {hidden} processes cannot be read: CAP_SYS_PTRACE is needed, which root has outside \
             containers"
        ),
    }
}
