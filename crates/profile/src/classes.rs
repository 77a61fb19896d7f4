//! What kind of work a sample was: by its call chain, not by its innermost function alone.
//!
//! ```text
//! rep_movs_alternative        not named: whoever calls it decides       ┐
//! _copy_to_iter               [copy]  ◂── the first that is named        │ innermost first
//! __skb_datagram_iter                                                    │
//! udp_recvmsg                                                            ┘
//!
//! native_queued_spin_lock_slowpath   [lock]
//! _raw_spin_lock                     [lock]: still the lock's own
//! __udp_enqueue_schedule_skb         [lock socket-receive-queue]  ◂── whose lock
//! ```
//! - `rules.txt` is the knowledge, one list of functions for each class. `rules.rs` reads it and looks names up.

mod rules;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use rules::{Rules, RulesError};

use crate::symbols::Frame;

/// Declares the classes once: name in the rules and in JSON, title for people.
macro_rules! classes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $title:literal;)*) => {
        /// A kind of work.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Class {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
        }

        impl Class {
            /// All of them, in the order of a datagram's way.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// As the rules and JSON write it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// For people.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title),* }
            }
        }
    };
}

classes! {
    /// The device driver, and the mapping of memory for it.
    NicDriver = "nic-driver", "NIC driver";
    /// Polling devices, merging packets, handing them to protocols.
    NapiGro = "napi-gro", "NAPI, GRO";
    /// BPF programs wherever they hang, XDP, AF_XDP.
    XdpBpf = "xdp-bpf", "XDP, BPF";
    /// Packet sockets that look on: a tcpdump, a DHCP client.
    Taps = "taps", "taps (packet sockets)";
    /// Moving packets to another CPU: RPS, the backlog, the hash for it.
    RpsBacklog = "rps-backlog", "RPS, backlog";
    /// The IP layer on the way in.
    Ip = "ip", "IP receive";
    /// Packet filters, connection tracking, address translation.
    Netfilter = "netfilter", "netfilter, conntrack";
    /// TCP.
    Tcp = "tcp", "TCP";
    /// UDP on the way in.
    UdpReceive = "udp-receive", "UDP receive";
    /// Which socket a datagram is for.
    SocketLookup = "socket-lookup", "socket lookup";
    /// Into a socket's queue, its memory, telling the reader.
    SocketEnqueue = "socket-enqueue", "socket enqueue";
    /// Out of a socket's queue, by its reader.
    SocketRead = "socket-read", "socket read";
    /// UDP and IP on the way out.
    UdpSend = "udp-send", "UDP send";
    /// Routes and neighbours.
    Routing = "routing", "routing, neighbours";
    /// Queueing disciplines.
    Qdisc = "qdisc", "qdisc";
    /// From the stack to the driver.
    Transmit = "transmit", "device transmit";
    /// Making, copying and freeing of packet buffers.
    Skb = "skb", "skb management";
    /// Memory of the kernel and of processes.
    Memory = "memory", "memory";
    /// Copying of payload.
    Copy = "copy", "data copy";
    /// Taking, holding and waiting for locks.
    Lock = "lock", "locks";
    /// Who runs next, waking up and going to sleep; waiting for events.
    Scheduling = "scheduling", "scheduling, wake-ups";
    /// In and out of the kernel.
    Syscall = "syscall", "syscall entry";
    /// Security modules, audit, seccomp.
    Security = "security", "security, audit";
    /// Timers and clocks.
    Timers = "timers", "timers, clocks";
    /// Interrupts' own cost.
    Interrupt = "interrupt", "interrupt entry";
    /// Control groups.
    Cgroup = "cgroup", "cgroup";
    /// What the processor's flaws cost.
    Mitigations = "mitigations", "mitigations";
    /// This program's own sampling, and other tracing.
    Tracing = "tracing", "tracing";
    /// Files and disks.
    Files = "files", "files, disks";
    /// Programs.
    User = "user", "user";
    /// Nothing.
    Idle = "idle", "idle";
    /// Not known. Always told.
    Unclassified = "unclassified", "unclassified";
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

/// What a chain was found to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Verdict<'a> {
    /// The kind of work.
    pub class: Class,
    /// Of [`Class::Lock`]: whose lock it is, by the name in the rules.
    pub lock: Option<&'a str>,
}

/// The lock of a chain where nobody known holds it.
pub const UNKNOWN_LOCK: &str = "other";

impl Rules {
    /// The class of a kernel chain, the innermost frame first.
    #[must_use]
    pub fn judge<'a, 'f>(&'a self, chain: impl IntoIterator<Item = Frame<'f>> + Clone) -> Verdict<'a> {
        let mut frames = chain.into_iter().enumerate();
        let Some(class) = frames.find_map(|(at, frame)| self.class(frame, at == 0)) else {
            return Verdict { class: Class::Unclassified, lock: None };
        };
        if class != Class::Lock {
            return Verdict { class, lock: None };
        }
        // The lock's own functions may lie on each other; whose it is says the first behind them that is known.
        let owner = frames.find_map(|(_, frame)| self.lock(frame));
        Verdict { class, lock: Some(owner.unwrap_or(UNKNOWN_LOCK)) }
    }
}
