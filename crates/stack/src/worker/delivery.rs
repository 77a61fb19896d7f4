//! Frames for sockets: into their queues in bursts, and back again from their readers.
//!
//! ```text
//! looked at ─▸ staged ─▸ one socket's at a time ─▸ its producer queue, one lock
//!                                   └ refused ─▸ dropped by the socket's reason; the memory goes home
//! return_queue: our frames back from readers ─▸ tx, or recycled
//!        blank frames for them ◂─ the port's memory
//! ```

use arrayvec::ArrayVec;

use super::Datapath;
use super::completion::Sender;
use crate::counters::DropReason;
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

impl<P: Port, H: Handler> Datapath<P, H> {
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
        let tally = &mut self.dispatch.tally;
        // The groups are those it was found in: nobody changes them within a turn.
        if let Some(handle) = groups.socket(binding) {
            let offered = burst.len();
            let refused = handle.offer_burst(burst);
            tally.delivered += (offered - burst.len()) as u64;
            for (reason, count) in [
                (DropReason::SocketFull, refused.socket_full),
                (DropReason::PoolFull, refused.pool_full),
                (DropReason::SocketClosed, refused.closed),
            ] {
                if count > 0 {
                    tally.drop(reason, count as usize);
                }
            }
        }
        for frame in burst.drain(..) {
            let owner = frame.owner();
            if owner == *index {
                self.to_recycle.push(frame);
            } else {
                self.returns[usize::from(owner)].push(frame);
            }
        }
    }

    /// Takes our frames back that sockets are done with, and sends those that they want sent.
    #[inline]
    pub(super) fn take_from_sockets(&mut self) -> usize {
        let Some(return_queue) = &mut self.rings.return_queue else { return 0 };
        let count = return_queue.receive(&mut self.rx);
        for frame in self.rx.drain(..) {
            if frame.to_send() { &mut self.tx } else { &mut self.to_recycle }.push(frame);
        }
        if count > 0 {
            self.transmit(Sender::Socket);
        }
        self.refill_free_frames();
        count
    }

    /// Fills up the stock of blank frames that sockets take from.
    pub(super) fn refill_free_frames(&mut self) {
        let (Some(return_queue), Some(port)) = (&mut self.rings.return_queue, &mut self.port) else { return };
        let lacks = return_queue.shortage();
        if lacks == 0 {
            return;
        }
        let burst = &mut self.delivery.burst;
        port.supply(burst, lacks);
        for frame in burst.iter_mut() {
            frame.set_owner(self.delivery.index);
        }
        return_queue.fill(burst);
        port.recycle(burst);
    }
}

/// What lies in the rings of sockets comes home; what sockets and readers have stays theirs, and is lost to the port.
impl<P: Port, H> Drop for Datapath<P, H> {
    fn drop(&mut self) {
        let (Some(return_queue), Some(port)) = (&mut self.rings.return_queue, &mut self.port) else { return };
        // Not empty if the handler panicked within a turn.
        port.recycle(&mut self.to_recycle);
        return_queue.close(|frame| {
            self.to_recycle.push(frame);
            if self.to_recycle.is_full() {
                port.recycle(&mut self.to_recycle);
            }
        });
        port.recycle(&mut self.to_recycle);
    }
}
