//! Which worker serves a frame: receive packet steering between workers.
//!
//! ```text
//! hash: the NIC's, or Toeplitz of addresses and ports
//!   RFS   does a reader elsewhere want this flow? It moves there once nothing of it waits where it was
//!   RPS   otherwise: the map's worker for the hash
//! limit   a backlog half full: flows with more than half of what came last are dropped first
//! ```
//! The decisions are those of [`udpath_steer`], which are the kernel's; worker `n` stands for CPU `n`.

use std::sync::Arc;

use udpath_steer::flow_limit::FlowLimit;
use udpath_steer::rfs::{FlowTable, SockFlowTable};
use udpath_steer::rps::{self, Backlogs, RpsMap, SteerDecision};
use udpath_steer::toeplitz::{Key, Toeplitz};

use crate::frame::Offloads;
use crate::mesh::Outgoing;
use crate::wire::{Addresses, Headers};

/// What one worker steers the frames of its port by.
pub struct Steering {
    toeplitz: Box<Toeplitz>,
    map: Option<RpsMap>,
    flows: Option<(FlowTable, Arc<SockFlowTable>)>,
    limit: Option<FlowLimit>,
}

impl Steering {
    /// Over the workers of `map`; `key` is used where the NIC gives no hash.
    #[must_use]
    pub fn new(key: Key, map: Option<RpsMap>) -> Self {
        Self { toeplitz: Box::new(Toeplitz::new(key)), map, flows: None, limit: None }
    }

    /// Lets flows follow their readers, who say where they are in `wanted`; `entries` for this worker's port. Readers are
    /// sockets that [follow](crate::socket::UdpSocket::set_flow_recorder): a flow without a socket is spread by the map.
    #[must_use]
    pub fn following(mut self, wanted: Arc<SockFlowTable>, entries: u32) -> Self {
        self.flows = Some((FlowTable::new(entries), wanted));
        self
    }

    /// Protects small flows from large ones, which share backlogs with them.
    #[must_use]
    pub fn limiting(mut self, limit: FlowLimit) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Do flows follow their readers, who have to know the hash?
    #[inline]
    pub(crate) fn follows(&self) -> bool {
        self.flows.is_some()
    }

    /// The hash of a frame: the NIC's if it gave one.
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

    /// The worker for a frame with this hash; `None` is the one that has it.
    #[inline]
    pub(crate) fn decide(&mut self, hash: u32, to: &[Option<Outgoing>]) -> SteerDecision {
        let flows = self.flows.as_mut().map(|(table, wanted)| (table, &**wanted));
        rps::steer(hash, flows, self.map.as_ref(), &Rings(to))
    }

    /// Is it to be dropped, for its flow fills that backlog?
    #[inline]
    pub(crate) fn limits(&mut self, hash: u32, to: &Outgoing) -> bool {
        self.limit.as_mut().is_some_and(|limit| limit.drops(hash, to.waiting(), to.bound()))
    }

    /// Notes where a flow that follows its reader was queued.
    #[inline]
    pub(crate) fn queued(&mut self, decision: SteerDecision, tail: u32) {
        if let (SteerDecision::Rfs { slot, .. }, Some((table, _))) = (decision, &mut self.flows) {
            table.queued(slot, tail);
        }
    }
}

/// The rings as the rules see them.
struct Rings<'a>(&'a [Option<Outgoing>]);

impl Backlogs for Rings<'_> {
    #[inline]
    fn head(&self, worker: u16) -> u32 {
        match self.0.get(usize::from(worker)) {
            Some(Some(to)) => to.head(),
            // Ourselves: what we have, we serve before we look at the next frame.
            _ => 0,
        }
    }

    #[inline]
    fn is_online(&self, worker: u16) -> bool {
        usize::from(worker) < self.0.len()
    }
}
