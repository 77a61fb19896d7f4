//! The chain of a send, at each stage of the document.

use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_utils::CachePadded;
use udpath_stack::epoch::{Domain, Guard};

use super::tables::{Interfaces, Neighbours, Protected, Protection, Sockets};

/// The stages, in the document's order; each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// All sockets share one transmit ring; read locks on every table, a reference count on the address.
    OneRing,
    /// A transmit ring per thread.
    Rings,
    /// The interface list under an epoch.
    Interfaces,
    /// The address under the same epoch, without a reference count.
    Address,
    /// The link-layer table under an epoch.
    Neighbours,
    /// The pcb hash under an epoch.
    Sockets,
}

impl Stage {
    pub(super) const ALL: [Self; 6] =
        [Self::OneRing, Self::Rings, Self::Interfaces, Self::Address, Self::Neighbours, Self::Sockets];

    /// Its case in the description.
    pub(super) const fn id(self) -> &'static str {
        match self {
            Self::OneRing => "one-ring",
            Self::Rings => "rings",
            Self::Interfaces => "interfaces",
            Self::Address => "address",
            Self::Neighbours => "neighbours",
            Self::Sockets => "sockets",
        }
    }

    /// The protection of a table that comes under an epoch at `stage`.
    fn protects(self, stage: Self) -> Protection {
        if self >= stage { Protection::Epoch } else { Protection::ReadLock }
    }
}

/// The tables and rings of one machine at one stage.
pub(super) struct Chain {
    stage: Stage,
    interfaces: Protected<Interfaces>,
    neighbours: Protected<Neighbours>,
    sockets: Protected<Sockets>,
    /// Packets sent.
    rings: Vec<CachePadded<Mutex<u64>>>,
}

impl Chain {
    pub(super) fn new(stage: Stage, domain: &Domain, threads: usize) -> Self {
        let rings = if stage >= Stage::Rings { threads } else { 1 };
        Self {
            stage,
            interfaces: Protected::new(stage.protects(Stage::Interfaces), domain, || Interfaces::new(0)),
            neighbours: Protected::new(stage.protects(Stage::Neighbours), domain, || Neighbours::new(0)),
            sockets: Protected::new(stage.protects(Stage::Sockets), domain, || Sockets::new(0)),
            rings: (0..rings).map(|_| CachePadded::new(Mutex::new(0))).collect(),
        }
    }

    /// Sends one packet from a port, in thread `thread`.
    #[inline]
    pub(super) fn send(&self, guard: &Guard<'_>, thread: usize, port: u16) -> u32 {
        let socket = self.sockets.with(guard, |sockets| sockets.look_up(port));
        let neighbour = if self.stage >= Stage::Address {
            self.interfaces.with(guard, |interfaces| self.neighbour(guard, interfaces.address(port).value()))
        } else {
            let address = self.interfaces.with(guard, |interfaces| Arc::clone(interfaces.address(port)));
            self.neighbour(guard, address.value())
        };
        let ring = &self.rings[thread % self.rings.len()];
        *ring.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        socket.wrapping_add(neighbour)
    }

    #[inline]
    fn neighbour(&self, guard: &Guard<'_>, address: u32) -> u32 {
        self.neighbours.with(guard, |neighbours| neighbours.look_up(address))
    }

    /// Changes a route, a neighbour or a socket, in turn.
    pub(super) fn change(&self, version: u32) {
        match version % 3 {
            0 => self.interfaces.replace(Interfaces::new(version)),
            1 => self.neighbours.replace(Neighbours::new(version)),
            _ => self.sockets.replace(Sockets::new(version)),
        }
    }

    /// Packets sent so far.
    #[cfg(test)]
    pub(super) fn sent(&self) -> u64 {
        self.rings.iter().map(|ring| *ring.lock().unwrap_or_else(PoisonError::into_inner)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_sends_the_same_and_sees_every_change() {
        for stage in Stage::ALL {
            let domain = Domain::new(1, 8);
            let chain = Chain::new(stage, &domain, 2);
            let mut reader = domain.register("reader").unwrap();
            let send = |reader: &mut udpath_stack::epoch::Reader| chain.send(&reader.pin(), 1, 9);
            // Socket 9, address 1 of interface 1, neighbour 1.
            assert_eq!(send(&mut reader), 9 + 1, "{stage:?}");
            chain.change(2);
            assert_eq!(send(&mut reader), 9 + 2 + 1, "sockets, {stage:?}");
            chain.change(3);
            assert_eq!(send(&mut reader), 9 + 2 + 1 + 3, "the address, {stage:?}");
            chain.change(4);
            assert_eq!(send(&mut reader), 9 + 2 + 1 + 3 + 4, "neighbours, {stage:?}");
            assert_eq!(chain.sent(), 4);
        }
    }
}
