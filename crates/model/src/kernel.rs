//! What kernels do, as data: how softirqs yield to threads, how a UDP socket's queue is locked, how locks queue.
//!
//! | from | what changed | source |
//! |---|---|---|
//! | 2.6.35 | RPS | commit 0a9627f2649a |
//! | 4.2 | spinlocks queue their waiters, each on a line of its own | `kernel/locking/qspinlock.c` |
//! | 4.7 | lookups of UDP sockets count no references | commit ca065d0cf80f |
//! | 4.9 | softirqs are left to ksoftirqd while it runs | commit 4cd13c21b207 |
//! | 4.10 | a UDP socket's memory is charged under its queue's lock, not the socket's | commits 850cbaddb52d, f970bd9e3a06 |
//! | 4.11 | memory is released in bulk; producers queue for each other first; the socket's fields are laid out anew | commits 6b229cf77d68, 4b272750dbe9, 9115e8cd2a0c |
//! | 4.13 | the reader takes the whole queue at once | commit 2276f58ac589 |
//! | 4.14 | a woken thread stays where it ran if that is idle, before the waking CPU is tried | commit 3fed382b46ba |
//! | 6.18 | producers of a node collect datagrams without a lock, one of them appends them | commit b650bf0977d3 |

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::agenda::{MILLISECOND, Time};

/// Packets that one poll of a device or backlog takes at most (`NAPI_POLL_WEIGHT`, `net.core.dev_weight`).
pub(crate) const NAPI_WEIGHT: u32 = 64;
/// Packets that one round of the receive softirq takes at most (`net.core.netdev_budget`).
pub(crate) const BUDGET: u32 = 300;
/// Rounds after which softirqs are left to ksoftirqd (`MAX_SOFTIRQ_RESTART`, `kernel/softirq.c`).
pub(crate) const MAX_RESTARTS: u32 = 10;
/// Time after which softirqs are left to ksoftirqd (`MAX_SOFTIRQ_TIME`, `kernel/softirq.c`).
pub(crate) const MAX_SOFTIRQ_TIME: Time = 2 * MILLISECOND;
/// Packets in a CPU's backlog (`net.core.netdev_max_backlog`).
pub(crate) const MAX_BACKLOG: usize = 1000;

/// Shortest time that a thread runs before another of equal weight, for one CPU (`sysctl_sched_min_granularity`; 6.6
/// and later: `base_slice`, 0.7 ms). It grows with the number of CPUs: see [`Kernel::slice`].
const SLICE: Time = 3 * MILLISECOND / 4;
/// Lead of a woken thread before it preempts, for one CPU (`sysctl_sched_wakeup_granularity`).
const WAKE_LEAD: Time = MILLISECOND;

/// How a datagram gets into a UDP socket's queue and out of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Receive {
    /// The socket's lock around the queue's lock; the reader takes it too, for memory accounting.
    SocketLock,
    /// The queue's lock alone; memory is released for each datagram.
    QueueLock,
    /// Memory is released in bulk, and producers wait for each other before they wait for the reader.
    Bulk,
    /// The reader takes the whole queue, and reads from its own.
    TwoQueues,
    /// Producers of a node collect datagrams without a lock.
    Rings,
}

/// A release of the kernel, with what matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, JsonSchema)]
#[schemars(with = "String")]
pub struct Kernel {
    major: u16,
    minor: u16,
}

/// Why a text is not a release.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("invalid kernel {0:?}: expected a release such as 6.12, from 2.6 on")]
pub struct KernelError(pub String);

impl Kernel {
    /// A release. Of 2.6, the third number counts as the second: 2.6.34 is `2.34`.
    #[must_use]
    pub const fn new(major: u16, minor: u16) -> Self {
        Self { major, minor }
    }

    const fn since(self, major: u16, minor: u16) -> bool {
        self.major > major || (self.major == major && self.minor >= minor)
    }

    /// How UDP sockets receive.
    #[must_use]
    pub const fn receive(self) -> Receive {
        match self {
            new if new.since(6, 18) => Receive::Rings,
            new if new.since(4, 13) => Receive::TwoQueues,
            new if new.since(4, 11) => Receive::Bulk,
            new if new.since(4, 10) => Receive::QueueLock,
            _ => Receive::SocketLock,
        }
    }

    /// The lookup of a UDP socket takes a reference, which the end of the packet's way returns.
    #[must_use]
    pub const fn counts_lookups(self) -> bool {
        !self.since(4, 7)
    }

    /// Softirqs wait for ksoftirqd once it runs. Before, every interrupt and every unlock of a `_bh` lock ran them at
    /// once, for up to 2 ms, also while ksoftirqd was runnable.
    #[must_use]
    pub const fn defers_softirqs(self) -> bool {
        self.since(4, 9)
    }

    /// A woken thread runs where it ran, if that CPU is free and near; before, on the waking CPU if that is.
    #[must_use]
    pub const fn wakes_where_it_ran(self) -> bool {
        self.since(4, 14)
    }

    /// Waiters of a spinlock each watch a line of their own. Before, all watched the lock's, and each release cost
    /// every waiter a move of it.
    #[must_use]
    pub const fn queues_waiters(self) -> bool {
        self.since(4, 2)
    }

    /// RPS.
    #[must_use]
    pub const fn has_rps(self) -> bool {
        self.since(2, 35)
    }

    /// `SO_REUSEPORT` for UDP.
    #[must_use]
    pub const fn has_reuseport(self) -> bool {
        self.since(3, 9)
    }

    /// Programs that choose the socket of a group.
    #[must_use]
    pub const fn has_selection(self) -> bool {
        self.since(4, 5)
    }

    /// Shortest run of a thread before an equal one, on so many CPUs: the scheduler scales it by 1 + log2 of at most 8
    /// CPUs (`get_update_sysctl_factor`).
    pub(crate) fn slice(cpus: usize) -> Time {
        SLICE * factor(cpus)
    }

    /// Lead of a woken thread before it preempts.
    pub(crate) fn wake_lead(cpus: usize) -> Time {
        WAKE_LEAD * factor(cpus)
    }
}

fn factor(cpus: usize) -> Time {
    1 + Time::from(cpus.clamp(1, 8).ilog2())
}

impl FromStr for Kernel {
    type Err = KernelError;

    fn from_str(text: &str) -> Result<Self, KernelError> {
        let wrong = || KernelError(text.to_owned());
        let mut numbers =
            text.split(['.', '-', '+']).map_while(|part| part.parse().ok()).collect::<Vec<u16>>().into_iter();
        let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else { return Err(wrong()) };
        match (major, minor) {
            (2, 6) => Ok(Self::new(2, numbers.next().unwrap_or(0))),
            (3.., _) => Ok(Self::new(major, minor)),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.major {
            2 => write!(f, "2.6.{}", self.minor),
            major => write!(f, "{major}.{}", self.minor),
        }
    }
}

impl Serialize for Kernel {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Kernel {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read_as_uname_prints_them() {
        let shown = |text: &str| text.parse::<Kernel>().map(|kernel| kernel.to_string());
        assert_eq!(shown("6.12.107+deb12-amd64"), Ok("6.12".into()));
        assert_eq!(shown("2.6.34"), Ok("2.6.34".into()));
        assert_eq!(shown("4.6"), Ok("4.6".into()));
        for wrong in ["", "six", "2.4.1", "6", "1.2"] {
            assert_eq!(shown(wrong), Err(KernelError(wrong.into())), "{wrong}");
        }
    }

    #[test]
    fn each_step_begins_with_its_release() {
        let receive = |text: &str| text.parse::<Kernel>().unwrap().receive();
        assert_eq!(
            ["2.6.34", "4.9", "4.10", "4.11", "4.13", "6.17", "6.18", "7.0"].map(receive),
            [
                Receive::SocketLock,
                Receive::SocketLock,
                Receive::QueueLock,
                Receive::Bulk,
                Receive::TwoQueues,
                Receive::TwoQueues,
                Receive::Rings,
                Receive::Rings,
            ]
        );
        assert!(!Kernel::new(4, 8).defers_softirqs() && Kernel::new(4, 9).defers_softirqs());
        assert!(!Kernel::new(4, 1).queues_waiters() && Kernel::new(4, 2).queues_waiters());
    }
}
