//! The classes: the kinds of work.
//!
//! To add one, add a line here, its functions to `rules.txt`, and a row to `docs/reading-a-profile.md`.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Groups of related classes: there are more classes than distinguishable colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// Device, NAPI, XDP, transmit.
    Device,
    /// IP, UDP, sockets.
    Protocols,
    /// Locks.
    Locks,
    /// Memory and copying.
    Memory,
    /// Packet filters, packet sockets, security.
    Filters,
    /// Scheduling, interrupts, timers.
    Scheduling,
    /// Ways into the kernel and out of it.
    Syscalls,
    /// Programs.
    Programs,
    /// Everything else.
    Other,
}

/// Declares each class once: name in the rules and in JSON, title for display, family in charts.
macro_rules! classes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $title:literal, $family:ident;)*) => {
        /// A kind of work.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema, Serialize, Deserialize)]
        pub enum Class {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
        }

        impl Class {
            /// All classes, in the order of a datagram's path.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name in the rules and in JSON.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// The title for display.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title),* }
            }

            /// Its family.
            #[must_use]
            pub const fn family(self) -> Family {
                match self { $(Self::$variant => Family::$family),* }
            }
        }
    };
}

classes! {
    /// The device driver and its DMA mappings.
    NicDriver = "nic-driver", "NIC driver", Device;
    /// Polling devices, merging packets, passing them to protocols.
    NapiGro = "napi-gro", "NAPI, GRO", Device;
    /// BPF programs at any attach point, XDP, AF_XDP.
    XdpBpf = "xdp-bpf", "XDP, BPF", Device;
    /// Packet sockets: a tcpdump, a DHCP client.
    PacketSockets = "packet-sockets", "packet sockets", Filters;
    /// Moving packets to another CPU: RPS, the backlog, the hash for it.
    RpsBacklog = "rps-backlog", "RPS, backlog", Device;
    /// The IP layer on the way in.
    Ip = "ip", "IP receive", Protocols;
    /// Packet filters, connection tracking, address translation.
    Netfilter = "netfilter", "netfilter, conntrack", Filters;
    /// TCP.
    Tcp = "tcp", "TCP", Protocols;
    /// UDP on the way in.
    UdpReceive = "udp-receive", "UDP receive", Protocols;
    /// Finding the socket of a datagram.
    SocketLookup = "socket-lookup", "socket lookup", Protocols;
    /// Adding to a socket's queue, its memory accounting, waking the reader.
    SocketEnqueue = "socket-enqueue", "socket enqueue", Protocols;
    /// Reading from a socket's queue.
    SocketRead = "socket-read", "socket read", Protocols;
    /// UDP and IP on the way out.
    UdpSend = "udp-send", "UDP send", Protocols;
    /// Routes and neighbours.
    Routing = "routing", "routing, neighbours", Protocols;
    /// IPsec, WireGuard, kernel TLS, and the ciphers and digests they call.
    Encryption = "encryption", "encryption", Protocols;
    /// Queueing disciplines.
    Qdisc = "qdisc", "qdisc", Device;
    /// From the stack to the driver.
    Transmit = "transmit", "device transmit", Device;
    /// Allocating, copying and freeing packet buffers.
    Skb = "skb", "skb management", Memory;
    /// Memory of the kernel and of processes.
    Memory = "memory", "memory", Memory;
    /// Copying of payload.
    Copy = "copy", "data copy", Memory;
    /// Taking, holding and waiting for locks.
    Lock = "lock", "locks", Locks;
    /// The scheduler: wake-ups, sleeping, waiting for events.
    Scheduling = "scheduling", "scheduling, wake-ups", Scheduling;
    /// Entering and leaving the kernel.
    Syscall = "syscall", "syscall entry", Syscalls;
    /// Security modules, audit, seccomp.
    Security = "security", "security, audit", Filters;
    /// Timers and clocks.
    Timers = "timers", "timers, clocks", Scheduling;
    /// The cost of interrupts themselves.
    Interrupt = "interrupt", "interrupt entry", Scheduling;
    /// Control groups.
    Cgroup = "cgroup", "cgroup", Filters;
    /// Mitigations of processor vulnerabilities.
    Mitigations = "mitigations", "mitigations", Syscalls;
    /// udpath's own sampling, and other tracing.
    Tracing = "tracing", "tracing", Other;
    /// Files and disks.
    Files = "files", "files, disks", Other;
    /// Programs.
    User = "user", "user", Programs;
    /// Idle.
    Idle = "idle", "idle", Other;
    /// Unknown. Always reported.
    Unclassified = "unclassified", "unclassified", Other;
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.title())
    }
}

impl FromStr for Class {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Self::ALL.iter().copied().find(|class| class.name() == name).ok_or(())
    }
}
