//! Frames for sockets: into their queues in bursts, and back from their readers.
//!
//! ```text
//! dispatched ─▸ staged ─▸ one socket's at a time ─▸ its producer queue, one lock
//!                                   └ refused ─▸ dropped for the socket's reason; the frame is recycled or returned
//! return queue: our frames back from readers ─▸ tx, or recycled
//!               free frames for them ◂─ the port's pool
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

/// The frames of a burst that are for sockets.
pub(super) struct Delivery {
    /// The worker's number.
    index: u16,
    staged: ArrayVec<(BindingId, Frame), BURST>,
    /// The frames of one socket.
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

    /// Stages a frame, whose owner is set already. There is room for a burst from one source.
    #[inline]
    pub(super) fn add(&mut self, binding: BindingId, mut frame: Frame) {
        // The reader sets this flag for a reply; over an in-memory link it may still be set from before.
        frame.set_to_send(false);
        self.staged.push((binding, frame));
    }
}

impl<P: Port, H: Handler> Datapath<P, H> {
    /// Delivers the staged frames to their sockets.
    #[inline]
    pub(super) fn deliver(&mut self, groups: &Groups) {
        while !self.delivery.staged.is_empty() {
            self.deliver_to_one(groups);
        }
    }

    /// Delivers all frames that are for the socket of the first.
    fn deliver_to_one(&mut self, groups: &Groups) {
        let Delivery { index, staged, burst } = &mut self.delivery;
        let Some(binding) = bundle(staged, burst, |(binding, _)| *binding, |(_, frame)| frame) else {
            return;
        };
        let tally = &mut self.dispatch.tally;
        // The groups are those of the lookup: they do not change within a poll.
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

    /// Takes back our frames from sockets, and sends those that are to be sent.
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

    /// Refills the free frames that sockets take from.
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

/// Frames in the rings of sockets are recycled; those that sockets and readers hold stay theirs, and are lost to the
/// port.
impl<P: Port, H> Drop for Datapath<P, H> {
    fn drop(&mut self) {
        let (Some(return_queue), Some(port)) = (&mut self.rings.return_queue, &mut self.port) else { return };
        // Not empty if the handler panicked within a poll.
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
