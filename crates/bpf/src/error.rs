//! Errors in loading, attaching and reading BPF programs.

use std::io;

/// What the kernel or the loader reported.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// A program could not be loaded, attached or read. Each error names the program and the interface, and suggests a fix.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such interface in the calling thread's network namespace.
    #[error("cannot attach BPF program '{program}': no interface '{interface}' in this network namespace")]
    NoInterface {
        /// The program's name.
        program: &'static str,
        /// The requested interface.
        interface: String,
    },
    /// The driver has no native XDP.
    #[error(
        "cannot attach BPF program '{program}' to '{interface}': its driver has no native XDP; \
         use an interface whose driver has it (veth, virtio_net, ixgbe, i40e, ice, mlx5, ...) or the socket engine"
    )]
    NoXdp {
        /// The program's name.
        program: &'static str,
        /// The requested interface.
        interface: String,
    },
    /// Another XDP program is attached to the interface.
    #[error(
        "cannot attach BPF program '{program}' to '{interface}': another XDP program{holder} is attached there; \
         detach it first (`ip link set dev {interface} xdp off`, or end the process that holds it)"
    )]
    Busy {
        /// The program's name.
        program: &'static str,
        /// The requested interface.
        interface: String,
        /// Which one: `, program 7 (filter) in native mode,`; empty if the kernel does not report it.
        holder: String,
    },
    /// No permission to use BPF here.
    #[error(
        "cannot load BPF program '{program}' (run as root, or with CAP_BPF and CAP_NET_ADMIN in \
         the initial user namespace)"
    )]
    NotPermitted {
        /// The program's name.
        program: &'static str,
        /// The kernel's error.
        #[source]
        cause: io::Error,
    },
    /// The kernel rejected the program.
    #[error("cannot load BPF program '{program}'")]
    Load {
        /// The program's name.
        program: &'static str,
        /// The kernel's and the verifier's error.
        source: Cause,
    },
    /// The kernel's verifier rejected the program, which other kernels accept.
    #[error(
        "cannot load BPF program '{program}': the verifier of Linux {release} refuses it; udpath is tested on 6.1, 6.12 and 6.18"
    )]
    Refused {
        /// The program's name.
        program: &'static str,
        /// The kernel's release.
        release: String,
        /// What the verifier wrote, for a developer: pages of instructions, the reason last.
        log: String,
    },
    /// The kernel rejected the attachment for another reason.
    #[error("cannot attach BPF program '{program}' to '{interface}'")]
    Attach {
        /// The program's name.
        program: &'static str,
        /// The requested interface.
        interface: String,
        /// The kernel's error.
        source: Cause,
    },
    /// The senders that are left to the kernel could not be set.
    #[error("cannot make BPF program 'take' leave these senders to the kernel")]
    Sources {
        /// The kernel's error.
        source: Cause,
    },
    /// Packets of the interface cannot be watched.
    #[error("cannot watch packets of '{interface}' (run as root, or with CAP_NET_RAW)")]
    Watch {
        /// The requested interface.
        interface: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// A program that must not see this machine's traffic has no network namespace to run in.
    #[error("cannot create a network namespace for BPF program '{program}'")]
    Namespace {
        /// The program's name.
        program: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// A map could not be mapped into memory.
    #[error("cannot map BPF map '{map}' of program '{program}'")]
    Map {
        /// The program's name.
        program: &'static str,
        /// The map's name.
        map: &'static str,
        /// The kernel's error.
        #[source]
        cause: io::Error,
    },
    /// A bound address could not be set.
    #[error("cannot make BPF program '{program}' take datagrams for {what}")]
    Bind {
        /// The program's name.
        program: &'static str,
        /// Address and port.
        what: std::net::SocketAddr,
        /// The reason.
        source: Cause,
    },
    /// A socket could not be set for its queue.
    #[error("cannot redirect queue {queue} to its AF_XDP socket")]
    Socket {
        /// The queue.
        queue: u32,
        /// The kernel's error.
        source: Cause,
    },
    /// Objects that outlive the process could not be pinned, or read where they are pinned.
    #[error("cannot use BPF objects at {}", path.display())]
    Pin {
        /// Where.
        path: std::path::PathBuf,
        /// The kernel's error, or what is wrong with them.
        source: Cause,
    },
    /// The socket of a reuseport group cannot be chosen as asked.
    #[error("cannot {what}")]
    Reuseport {
        /// What was to be done.
        what: String,
        /// The kernel's error, or what would be right.
        source: Cause,
    },
    /// A test run failed.
    #[error("cannot run BPF program '{program}' on a frame of {len} bytes")]
    Trial {
        /// The program's name.
        program: &'static str,
        /// The frame's length.
        len: usize,
        /// The kernel's error.
        source: Cause,
    },
}
