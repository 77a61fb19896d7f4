//! Whether a reply may go back to the MAC address its request came from.
//!
//! A reply is written into its request's frame with the addresses reversed, so a neighbour that forges the source IP
//! address of a request gets the reply. The kernel would send it to the MAC address that ARP or neighbour discovery
//! found for the next hop to that source. With this check, a reply leaves as a frame only if both are the same:
//!
//! ```text
//! source address ── route ──▸ interface, gateway or the source itself ── neighbour ──▸ MAC address
//!                             = the frame's interface?                                 = the frame's source?
//! ```
//! All other replies are left to the handler ([`Handler::send_otherwise`](crate::handler::Handler::send_otherwise)),
//! which sends them through the kernel: it resolves the next hop, and the mirrored tables have it some 20 ms later.

use std::net::IpAddr;
use std::sync::Arc;

use crate::epoch::Guard;
use crate::tables::{Neighbour, Route, Tables, View};
use crate::wire::{Headers, Mac, ethernet};

/// What the check needs: the kernel's tables, and the interface of each worker's port.
#[derive(Debug, Clone)]
pub struct NeighbourCheck {
    tables: Arc<Tables>,
    interfaces: Arc<[u32]>,
}

impl NeighbourCheck {
    /// `interfaces`: by worker, the index of the interface that its port belongs to. `tables`: of the domain that the
    /// workers' readers are registered with.
    #[must_use]
    pub fn new(tables: Arc<Tables>, interfaces: Arc<[u32]>) -> Self {
        Self { tables, interfaces }
    }

    #[inline]
    pub(super) fn load<'g>(&'g self, guard: &'g Guard<'_>) -> Current<'g> {
        Current { view: self.tables.load(guard), interfaces: &self.interfaces }
    }
}

/// The tables of one poll.
#[derive(Clone, Copy)]
pub(super) struct Current<'g> {
    view: View<'g>,
    interfaces: &'g [u32],
}

impl Current<'_> {
    /// Whether the kernel would send a reply to this frame, which the port of `worker` received, back to its sender.
    #[inline]
    pub(super) fn returns(&self, worker: usize, headers: &Headers, frame: &[u8]) -> bool {
        let Some(&port) = self.interfaces.get(worker) else { return false };
        let Some(interface) = self.receiving(port, headers, frame) else { return false };
        let source = headers.addresses().source();
        let next_hop = if is_link_local(source) {
            source
        } else {
            match self.view.routes.get(source) {
                Some(Route::Hop(hop)) if hop.interface == interface => hop.gateway.unwrap_or(source),
                _ => return false,
            }
        };
        let known = self.view.neighbours.get(interface, next_hop).and_then(Neighbour::mac);
        known.is_some() && known == sender(frame)
    }

    /// The interface on which the kernel would receive the frame: the port's, or the VLAN device over it.
    #[inline]
    fn receiving(&self, port: u32, headers: &Headers, frame: &[u8]) -> Option<u32> {
        if headers.tags() == 0 { Some(port) } else { self.vlan(port, headers, frame) }
    }

    #[cold]
    fn vlan(&self, port: u32, headers: &Headers, frame: &[u8]) -> Option<u32> {
        let id = u16::from_be_bytes(*frame.get(ethernet::LEN..)?.first_chunk()?) & 0xfff;
        match (headers.tags(), id) {
            (1, 0) => Some(port),
            (1, _) => {
                let of = |vlan: crate::tables::Vlan| vlan.lower == port && vlan.id == id && !vlan.service;
                let device = self.view.interfaces.all().iter().find(|device| device.vlan.is_some_and(of));
                device.map(|device| device.index)
            }
            _ => None,
        }
    }
}

/// The source MAC address.
#[inline]
fn sender(frame: &[u8]) -> Option<Mac> {
    frame.get(6..)?.first_chunk().map(|bytes| Mac(*bytes))
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}
