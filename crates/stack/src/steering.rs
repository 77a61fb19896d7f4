//! Which worker serves a frame: receive packet steering between workers.
//!
//! ```text
//! hash: the NIC's, or Toeplitz over addresses and ports
//!   RFS   does a reader on another worker want this flow? It moves there once none of its frames waits where it was
//!   RPS   otherwise: the map's worker for the hash
//! limit   when a backlog is half full, flows with more than half of the recent frames are dropped first
//! ```
//! The decisions are those of [`udpath_steer`], which follow the kernel; worker `n` corresponds to CPU `n`.

use std::sync::Arc;

use udpath_steer::flow_limit::FlowLimit;
use udpath_steer::rfs::{FlowTable, SockFlowTable};
use udpath_steer::rps::{self, Backlogs, RpsMap, SteerDecision};
use udpath_steer::toeplitz::{Key, Toeplitz};

use crate::frame::Offloads;
use crate::mesh::Outgoing;
use crate::wire::{Addresses, Headers};

/// How one worker steers the frames of its port.
pub struct Steering {
    toeplitz: Box<Toeplitz>,
    map: Option<RpsMap>,
    flows: Option<(FlowTable, Arc<SockFlowTable>)>,
    limit: Option<FlowLimit>,
}

impl Steering {
    /// Steers over the workers of `map`; `key` is used where the NIC supplies no hash.
    #[must_use]
    pub fn new(key: Key, map: Option<RpsMap>) -> Self {
        Self { toeplitz: Box::new(Toeplitz::new(key)), map, flows: None, limit: None }
    }

    /// Lets flows follow their readers, which record their location in `wanted`; `entries` is the size of this
    /// worker's flow table. Readers are sockets with a [flow recorder](crate::socket::UdpSocket::set_flow_recorder);
    /// a flow without a socket is spread by the map.
    #[must_use]
    pub fn following(mut self, wanted: Arc<SockFlowTable>, entries: u32) -> Self {
        self.flows = Some((FlowTable::new(entries), wanted));
        self
    }

    /// Protects small flows from large ones that share a backlog with them.
    #[must_use]
    pub fn limiting(mut self, limit: FlowLimit) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Whether flows follow their readers, which then need the hash.
    #[inline]
    pub(crate) fn follows(&self) -> bool {
        self.flows.is_some()
    }

    /// The hash of a frame: the NIC's if it supplied one.
    #[inline]
    pub(crate) fn hash(&self, offloads: Offloads, headers: &Headers) -> u32 {
        if let Some(hash) = offloads.hash {
            return hash;
        }
        let ports = Some((headers.source_port(), headers.destination_port()));
        match headers.addresses() {
            Addresses::V4 { source, destination } => {
                self.toeplitz.ipv4(source.octets(), destination.octets(), ports)
            }
            Addresses::V6 { source, destination } => {
                self.toeplitz.ipv6(source.octets(), destination.octets(), ports)
            }
        }
    }

    /// The worker for a frame with this hash; `None` for the one that received it.
    #[inline]
    pub(crate) fn decide(&mut self, hash: u32, to: &[Option<Outgoing>]) -> SteerDecision {
        let flows = self.flows.as_mut().map(|(table, wanted)| (table, &**wanted));
        rps::steer(hash, flows, self.map.as_ref(), &Rings(to))
    }

    /// Whether the frame is to be dropped because its flow fills that backlog.
    #[inline]
    pub(crate) fn limits(&mut self, hash: u32, to: &Outgoing) -> bool {
        self.limit.as_mut().is_some_and(|limit| limit.drops(hash, to.waiting(), to.bound()))
    }

    /// Records where a flow that follows its reader was queued.
    #[inline]
    pub(crate) fn queued(&mut self, decision: SteerDecision, tail: u32) {
        if let (SteerDecision::Rfs { slot, .. }, Some((table, _))) = (decision, &mut self.flows) {
            table.queued(slot, tail);
        }
    }
}

/// The rings, as backlogs of CPUs.
struct Rings<'a>(&'a [Option<Outgoing>]);

impl Backlogs for Rings<'_> {
    #[inline]
    fn head(&self, worker: u16) -> u32 {
        match self.0.get(usize::from(worker)) {
            Some(Some(to)) => to.head(),
            // This worker: it serves each frame before it steers the next.
            _ => 0,
        }
    }

    #[inline]
    fn is_online(&self, worker: u16) -> bool {
        usize::from(worker) < self.0.len()
    }
}
