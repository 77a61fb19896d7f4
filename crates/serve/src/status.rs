//! What a server did so far, as plain numbers: per worker, per socket, in total.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::Serialize;

use crate::counts::{Counts, TcpCounts, Unbalanced};
use crate::error::Rejected;
use crate::io::Io;

mod spread;
mod xdp;

pub(crate) use spread::SpreadMonitor;
pub(crate) use xdp::Arrivals;
pub use xdp::{XdpPortStatus, XdpStatus};

/// What a server did so far.
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    /// How datagrams move.
    pub io: Io,
    /// What `auto` tried before, best first, and why it was not taken.
    pub rejected: Vec<Rejected>,
    /// Most datagrams per system call.
    pub batch: usize,
    /// Whether replies to one peer in a row go out in one piece, where the kernel can.
    pub gso: bool,
    /// Seconds since the probe passed.
    pub seconds: f64,
    /// Everything, added up.
    pub total: Counts,
    /// Datagrams that the kernel dropped at our sockets, AF_XDP's among them: arrived, never received. For AF_XDP
    /// `xdp.dropped` has the reasons.
    pub kernel_drops: u64,
    /// One entry per worker, in order.
    pub workers: Vec<WorkerStatus>,
    /// One entry per socket: by address, then by worker.
    pub sockets: Vec<SocketStatus>,
    /// The same addresses over TCP, if served.
    pub tcp: Option<TcpCounts>,
    /// What the fast path of `xdp` did; the datagrams it served are in the counters above as well.
    pub xdp: Option<XdpStatus>,
    /// What is wrong with this configuration here, in whole sentences; usually empty.
    pub warnings: Vec<String>,
}

/// One worker's share.
#[derive(Debug, Clone, Serialize)]
pub struct WorkerStatus {
    /// Its number.
    pub worker: usize,
    /// The CPU it is bound to; `None` without pinning.
    pub cpu: Option<u32>,
    /// Datagrams that the kernel dropped at the sockets that this worker alone reads: its AF_XDP rings were full, or its
    /// receive buffers.
    pub kernel_drops: u64,
    /// What it counted, over all its sockets. Of `xdp` also frames that went no further than their headers or another
    /// worker's backlog: those are in no socket's counts.
    #[serde(flatten)]
    pub counts: Counts,
}

/// One socket.
#[derive(Debug, Clone, Serialize)]
pub struct SocketStatus {
    /// Its address, with the real port.
    pub bind: SocketAddr,
    /// The worker that reads it; `None` when all do.
    pub worker: Option<usize>,
    /// Its receive buffer in bytes of the kernel's accounting: twice what was asked for, or what was allowed.
    pub receive_buffer_bytes: usize,
    /// Datagrams the kernel dropped at it (buffer full, bad checksum).
    pub kernel_drops: u64,
    /// What was counted on it.
    #[serde(flatten)]
    pub counts: Counts,
}

impl Status {
    /// Checks the identity for every worker, every socket, the total, and frames.
    pub fn balance(&self) -> Result<(), Unbalanced> {
        if let Some(xdp) = &self.xdp {
            xdp.balance()?;
        }
        self.workers.iter().try_for_each(|worker| worker.counts.balance())?;
        self.sockets.iter().try_for_each(|socket| socket.counts.balance())?;
        self.total.balance()
    }

    /// Each worker's share of what was received, 0 to 1; by its number.
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
    fn every_reason_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = DropReason::ALL
            .into_iter()
            .map(DropReason::name)
            .chain(FrameDrop::all().map(FrameDrop::name))
            .chain(xdp::KERNEL_REASONS)
            .collect();
        assert_eq!(names.len(), DropReason::ALL.len() + FrameDrop::COUNT + xdp::KERNEL_REASONS.len());
    }
}
