//! The status of a server: counters per worker, per socket and in total.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::Serialize;

use crate::counts::{Counts, TcpCounts, Unbalanced};
use crate::error::Rejected;
use crate::io::Io;

mod spread;
mod xdp;

pub(crate) use spread::SpreadMonitor;
pub(crate) use xdp::Arrivals;
pub use xdp::{XdpPortStatus, XdpStatus};

/// The status of a server.
#[derive(Debug, Clone, JsonSchema, Serialize)]
pub struct Status {
    /// How datagrams move.
    pub io: Io,
    /// What `auto` rejected, in the order tried, and why.
    pub rejected: Vec<Rejected>,
    /// Maximum datagrams per system call.
    pub batch: usize,
    /// Whether consecutive replies to one peer are sent as one segmented message, where the kernel supports it.
    pub gso: bool,
    /// Seconds since the probe passed.
    pub seconds: f64,
    /// CPU time of the whole process in that time, user and system, seconds. The kernel charges it also with the
    /// softirqs that interrupt the process, and not with those of `ksoftirqd`.
    pub cpu_seconds: f64,
    /// The sum over all workers.
    pub total: Counts,
    /// Datagrams that arrived and that the kernel dropped at the sockets, including AF_XDP sockets. `xdp.dropped` has
    /// the reasons for AF_XDP.
    pub kernel_drops: u64,
    /// One entry per worker, in order.
    pub workers: Vec<WorkerStatus>,
    /// One entry per socket: by address, then by worker.
    pub sockets: Vec<SocketStatus>,
    /// The same addresses over TCP, if served.
    pub tcp: Option<TcpCounts>,
    /// The fast path of `xdp`; datagrams it served are included in the counters above.
    pub xdp: Option<XdpStatus>,
    /// Problems with this configuration on this host, in whole sentences; usually empty.
    pub warnings: Vec<String>,
}

/// The status of one worker.
#[derive(Debug, Clone, JsonSchema, Serialize)]
pub struct WorkerStatus {
    /// Its number.
    pub worker: usize,
    /// The CPU it is pinned to; `None` without pinning.
    pub cpu: Option<u32>,
    /// Datagrams the kernel dropped at the sockets that only this worker reads, because its AF_XDP rings or its receive
    /// buffers were full.
    pub kernel_drops: u64,
    /// Its counters over all its sockets. With `xdp` also frames dropped because of their headers or in another
    /// worker's backlog, which no socket counts.
    #[serde(flatten)]
    pub counts: Counts,
}

/// The status of one socket.
#[derive(Debug, Clone, JsonSchema, Serialize)]
pub struct SocketStatus {
    /// Its address, with the port obtained.
    pub bind: SocketAddr,
    /// The worker that reads it; `None` when all do.
    pub worker: Option<usize>,
    /// Its receive buffer in bytes, as the kernel accounts it: twice the size requested, or what was allowed.
    pub receive_buffer_bytes: usize,
    /// Datagrams the kernel dropped at this socket (buffer full, bad checksum).
    pub kernel_drops: u64,
    /// Its counters.
    #[serde(flatten)]
    pub counts: Counts,
}

impl Status {
    /// Checks the identity for each worker, each socket, the total and the frames.
    pub fn balance(&self) -> Result<(), Unbalanced> {
        if let Some(xdp) = &self.xdp {
            xdp.balance()?;
        }
        self.workers.iter().try_for_each(|worker| worker.counts.balance())?;
        self.sockets.iter().try_for_each(|socket| socket.counts.balance())?;
        self.total.balance()
    }

    /// The share of received datagrams of each worker, 0 to 1, by worker number.
    #[must_use]
    pub fn shares(&self) -> BTreeMap<usize, f64> {
        let total = self.total.received.max(1) as f64;
        self.workers.iter().map(|w| (w.worker, w.counts.received as f64 / total)).collect()
    }
}

#[cfg(test)]
mod tests {
    use udpath_stack::counters::DropReason as FrameDrop;

    use super::*;
    use crate::outcome::DropReason;

    #[test]
    fn every_reason_has_its_own_name() {
        let names: std::collections::BTreeSet<_> = DropReason::ALL
            .into_iter()
            .map(DropReason::name)
            .chain(FrameDrop::all().map(FrameDrop::name))
            .chain(xdp::KERNEL_REASONS)
            .collect();
        assert_eq!(names.len(), DropReason::ALL.len() + FrameDrop::COUNT + xdp::KERNEL_REASONS.len());
    }
}
