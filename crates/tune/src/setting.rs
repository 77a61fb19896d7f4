//! One thing of the machine that can be changed, and what it can be changed to.
//!
//! ```text
//! eth0:rps/rx-0=0-3
//! └──────┬────┘ └┬┘
//!     Setting   Value      names are the kernel's and ethtool's; CPUs are lists, never masks
//! ```
//!
//! | setting | value | what it is |
//! |---|---|---|
//! | `eth0:channels/combined` | `8` | queue pairs (`rx`, `tx`, `other` alike), `ethtool -L` |
//! | `eth0:ring/rx` | `1024` | descriptors of each ring (`tx` alike), `ethtool -G` |
//! | `eth0:coalesce/rx-usecs` | `20` | interrupt moderation, names of `ethtool -C` |
//! | `eth0:feature/rx-gro` | `off` | offloads, the kernel's names (`ethtool -k`) |
//! | `eth0:rss/table` | `equal:8`, `weight:2,1`, `0,1,0,1` | indirection table, `ethtool -X` |
//! | `eth0:rss/key`, `eth0:rss/function` | `6d:5a:...`, `toeplitz` | the hash |
//! | `eth0:hash/udp4` | `sdfn` | what is hashed of UDP (`udp6` alike) |
//! | `eth0:irq/rx-0`, `irq:57:affinity` | `3` | CPUs that may take the IRQ, by queue or by number |
//! | `eth0:rps/rx-0` | `0-3` | receive packet steering of a queue |
//! | `eth0:rfs/rx-0` | `2048` | its flow table, entries |
//! | `eth0:xps/tx-0`, `eth0:xps-rxqs/tx-0` | `0` | CPUs, or receive queues, that send on a queue |
//! | `eth0:napi/threaded` | `on` | NAPI in threads |
//! | `eth0:napi/defer-hard-irqs` | `2` | empty polls before the IRQ is enabled again |
//! | `eth0:napi/gro-flush-timeout` | `20000` | nanoseconds |
//! | `eth0:qdisc` | `mq`, `default` | the root qdisc |
//! | `sysctl:net.core.rmem_max` | `4194304` | a file of /proc/sys |
//! | `thread:812/815:affinity` | `3` | CPUs of a thread, by pid and tid |
//! | `socket:812/4026:receive-buffer` | `8388608` | of a running server's UDP socket, by pid and inode: bytes as `ss -m` shows them |
//! | `socket:812/4026:busy-poll` | `50` | microseconds (`prefer-busy-poll`: `on`; `busy-poll-budget`: packets) |
//! | `socket:812/4026:incoming-cpu` | `3`, `any` | the CPU whose datagrams it takes of its group's |
//! | `group:812/4026:selection` | `by-cpu`, `by-flow` | how a datagram finds its socket in the reuseport group, by any member |
//! | `irqbalance:ban` | `57,58` | IRQs that the running irqbalance leaves alone |
//!
//! Requests may also name what serves a port now, [`crate::plan::SettingRequest`]: `port:53:receive-buffer`.
//!
//! - `value.rs`: values as text and back. `about.rs`: cost, scope, order, security, conflicts. `file.rs`: the file and the
//!   text in it, for those that are one. `shell.rs`: the same as a line for a shell. `socket.rs`: values of sockets.

mod about;
mod file;
mod name;
mod shell;
mod socket;
mod value;

pub use about::{Cost, Phase, Scope};
pub use file::{Form, Place};
pub use name::WrongName;
pub use value::{Table, Value, WrongValue};

use udpath_host::process::SocketSetting;

/// One thing that can be changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Setting {
    /// Of a network interface, by its name.
    Interface(String, Item),
    /// CPUs that may take an IRQ, by its number.
    Irq(u32),
    /// A file of /proc/sys, its path below that: `net/core/rmem_max`.
    Sysctl(String),
    /// CPUs of a thread.
    Thread {
        /// Its process.
        pid: u32,
        /// The thread itself.
        tid: u32,
    },
    /// Of a running server's UDP socket, or of its reuseport group.
    Socket {
        /// A process that has it.
        pid: u32,
        /// Its inode, which the process's descriptors name.
        inode: u32,
        /// What of it.
        setting: SocketSetting,
    },
    /// IRQs that the running irqbalance leaves alone, told to it over its own socket.
    IrqbalanceBan,
    /// A whole file that keeps a change over a boot. Made by [`crate::persist`] alone, never asked for by name.
    File(String),
}

/// What of an interface.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Item {
    /// How many channels of a kind of [`CHANNELS`].
    Channels(&'static str),
    /// Descriptors of a ring of [`RINGS`].
    Ring(&'static str),
    /// A number of [`COALESCE`] or a switch of [`COALESCE_SWITCHES`].
    Coalesce(&'static str),
    /// An offload, by the kernel's name.
    Feature(String),
    /// The indirection table.
    RssTable,
    /// The hash key.
    RssKey,
    /// The hash function, `toeplitz`, `xor` or `crc32`.
    RssFunction,
    /// What is hashed of UDP over IPv4 or IPv6: one of [`FLOWS`].
    Hash(&'static str),
    /// CPUs that may take the IRQ of a receive queue.
    QueueIrq(u32),
    /// RPS of a receive queue.
    Rps(u32),
    /// RFS entries of a receive queue.
    Rfs(u32),
    /// XPS by CPU of a transmit queue.
    Xps(u32),
    /// XPS by receive queue of a transmit queue.
    XpsRxqs(u32),
    /// NAPI in threads.
    Threaded,
    /// Empty polls before the hard IRQ is enabled again.
    DeferHardIrqs,
    /// How long a poll may be put off, nanoseconds.
    GroFlushTimeout,
    /// The root qdisc.
    Qdisc,
}

/// Kinds of channels, as `ethtool -L` names them.
pub const CHANNELS: [&str; 4] = ["combined", "rx", "tx", "other"];
/// Rings, as `ethtool -G` names them.
pub const RINGS: [&str; 2] = ["rx", "tx"];
/// Numbers of interrupt moderation, as `ethtool -C` names them; usecs are microseconds, frames are frames.
pub const COALESCE: [&str; 23] = [
    "rx-usecs",
    "rx-frames",
    "rx-usecs-irq",
    "rx-frames-irq",
    "tx-usecs",
    "tx-frames",
    "tx-usecs-irq",
    "tx-frames-irq",
    "stats-block-usecs",
    "pkt-rate-low",
    "rx-usecs-low",
    "rx-frames-low",
    "tx-usecs-low",
    "tx-frames-low",
    "pkt-rate-high",
    "rx-usecs-high",
    "rx-frames-high",
    "tx-usecs-high",
    "tx-frames-high",
    "sample-interval",
    "tx-aggr-max-bytes",
    "tx-aggr-max-frames",
    "tx-aggr-time-usecs",
];
/// Switches of interrupt moderation, as `ethtool -C` names them.
pub const COALESCE_SWITCHES: [&str; 4] = ["adaptive-rx", "adaptive-tx", "cqe-mode-rx", "cqe-mode-tx"];
/// Flow types whose hash fields can be set here.
pub const FLOWS: [&str; 2] = ["udp4", "udp6"];

impl Setting {
    /// The interface it belongs to.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        match self {
            Self::Interface(interface, _) => Some(interface),
            _ => None,
        }
    }

    /// The same of an interface that has got another name.
    #[must_use]
    pub fn renamed(&self, interface: &str) -> Self {
        match self {
            Self::Interface(_, item) => Self::Interface(interface.to_owned(), item.clone()),
            other => other.clone(),
        }
    }
}
