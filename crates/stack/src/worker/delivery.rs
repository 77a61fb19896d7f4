//! Frames for sockets: into their queues in bursts, and back again from their readers.
//!
//! ```text
//! looked at ─▸ staged ─▸ one socket's at a time ─▸ its producer queue, one lock
//!                                   └ refused ─▸ dropped by the socket's reason; the memory goes home
//! depot: our frames back from readers ─▸ tx, or recycled
//!        blank frames for them ◂─ the port's memory
//! ```

use arrayvec::ArrayVec;

use super::Traffic;
use super::departure::Sender;
use crate::counters::Drop;
use crate::frame::{BURST, Burst, Frame};
use crate::groups::{BindingId, Groups};
use crate::handler::Handler;
use crate::port::Port;
use crate::socket::bundle;

/// What of a burst is for sockets.
pub(super) struct Delivery {
    /// The worker's number.
    index: u16,
    staged: ArrayVec<(BindingId, Frame), BURST>,
    /// Those of one socket.
    burst: Burst,
}

impl Delivery {
    pub(super) fn new(index: u16) -> Self {
        Self { index, staged: ArrayVec::new(), burst: Burst::new() }
    }

    /// The worker's number.
    #[inline]
    pub(super) fn index(&self) -> u16 {
        self.index
    }

    /// Stages a frame, whose owner is written down already. A burst of one source has as much room as there is here.
    #[inline]
    pub(super) fn add(&mut self, binding: BindingId, mut frame: Frame) {
        // Its reader says whether it shall be sent; on a link within the process it may still say so from before.
        frame.set_to_send(false);
        self.staged.push((binding, frame));
    }
}

impl<P: Port, H: Handler> Traffic<P, H> {
    /// Puts what is staged into its sockets.
    #[inline]
    pub(super) fn deliver(&mut self, groups: &Groups) {
        while !self.delivery.staged.is_empty() {
            self.deliver_to_one(groups);
        }
    }

    /// Puts all that is for the socket of the first into it.
    fn deliver_to_one(&mut self, groups: &Groups) {
        let Delivery { index, staged, burst } = &mut self.delivery;
        let Some(binding) = bundle(staged, burst, |(binding, _)| *binding, |(_, frame)| frame) else {
            return;
        };
        let tally = &mut self.desk.tally;
        // The groups are those it was found in: nobody changes them within a turn.
        if let Some(inlet) = groups.socket(binding) {
            let offered = burst.len();
            let refused = inlet.offer_burst(burst);
            tally.delivered += (offered - burst.len()) as u64;
            for (reason, count) in [
                (Drop::SocketFull, refused.socket_full),
                (Drop::PoolFull, refused.pool_full),
                (Drop::SocketClosed, refused.closed),
            ] {
                if count > 0 {
                    tally.drop(reason, count as usize);
                }
            }
        }
        for frame in burst.drain(..) {
            let owner = frame.owner();
            if owner == *index {
                self.spare.push(frame);
            } else {
                self.home[usize::from(owner)].push(frame);
            }
        }
    }

    /// Takes our frames back that sockets are done with, and sends those that they want sent.
    #[inline]
    pub(super) fn take_from_sockets(&mut self) -> usize {
        let Some(depot) = &mut self.links.depot else { return 0 };
        let count = depot.receive(&mut self.rx);
        for frame in self.rx.drain(..) {
            if frame.to_send() { &mut self.tx } else { &mut self.spare }.push(frame);
        }
        if count > 0 {
            self.transmit(Sender::Socket);
        }
        self.stock();
        count
    }

    /// Fills up the stock of blank frames that sockets take from.
    pub(super) fn stock(&mut self) {
        let (Some(depot), Some(port)) = (&mut self.links.depot, &mut self.port) else { return };
        let lacks = depot.lacks();
        if lacks == 0 {
            return;
        }
        let burst = &mut self.delivery.burst;
        port.supply(burst, lacks);
        for frame in burst.iter_mut() {
            frame.set_owner(self.delivery.index);
        }
        depot.fill(burst);
        port.recycle(burst);
    }
}

/// What lies in the rings of sockets comes home; what sockets and readers have stays theirs, and is lost to the port.
impl<P: Port, H> std::ops::Drop for Traffic<P, H> {
    fn drop(&mut self) {
        let (Some(depot), Some(port)) = (&mut self.links.depot, &mut self.port) else { return };
        // Not empty if the handler panicked within a turn.
        port.recycle(&mut self.spare);
        depot.close(|frame| {
            self.spare.push(frame);
            if self.spare.is_full() {
                port.recycle(&mut self.spare);
            }
        });
        port.recycle(&mut self.spare);
    }
}
