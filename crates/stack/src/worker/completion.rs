//! Transmit completions: which sender's frames the device has sent or dropped.
//!
//! ```text
//! replies of worker i, frames of sockets ─▸ transmit ─▸ port: gathered, or in a ring ─▸ flush ─▸ completed: sent, or lost
//!            └ runs: the sender of how many frames, in order ────────────────────────────────────▸ the completed frames' senders
//! ```
//! A port sends in order. So the sender of a completed frame follows from the order in which bursts were handed to
//! the port, and nothing is recorded per frame.

use super::Datapath;
use crate::counters::DropReason;
use crate::handler::Handler;
use crate::port::{Lost, Port, Unsent};

/// The sender of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    /// The handler of this worker: the frame is a reply.
    Handler(u16),
    /// A socket.
    Socket,
}

/// Consecutive frames of one sender.
#[derive(Debug)]
pub(super) struct Run {
    sender: Sender,
    frames: usize,
}

impl<P: Port, H: Handler> Datapath<P, H> {
    /// Has the port send replies of a worker's handler, and recycle free frames.
    #[inline]
    pub(super) fn send(&mut self, worker: u16) {
        self.transmit(Sender::Handler(worker));
    }

    /// Hands the port the frames to be sent, and those to be recycled.
    #[inline]
    pub(super) fn transmit(&mut self, sender: Sender) {
        let Some(port) = &mut self.port else { return };
        if !self.tx.is_empty() {
            let count = self.tx.len();
            port.transmit(&mut self.tx);
            if !self.tx.is_empty() {
                // Completions may have made room.
                port.flush();
                port.transmit(&mut self.tx);
            }
            let taken = count - self.tx.len();
            match self.sending.back_mut() {
                Some(run) if run.sender == sender => run.frames += taken,
                _ if taken > 0 => self.sending.push_back(Run { sender, frames: taken }),
                _ => {}
            }
            if !self.tx.is_empty() {
                self.refused(sender);
            }
        }
        if !self.to_recycle.is_empty()
            && let Some(port) = &mut self.port
        {
            port.recycle(&mut self.to_recycle);
        }
    }

    /// The port has no room for the rest.
    #[cold]
    fn refused(&mut self, sender: Sender) {
        for frame in &self.tx {
            let reply = Unsent::of(frame.bytes());
            if let Sender::Handler(worker) = sender {
                self.dispatch.handler.unsent(worker.into(), reply, DropReason::TransmitFull);
            }
        }
        let lost = self.tx.len();
        self.count(sender, 0, lost);
        if let Some(port) = &mut self.port {
            port.recycle(&mut self.tx);
        }
    }

    /// Counts what the port has completed. Once per poll, after its flush.
    #[inline]
    pub(super) fn account_completions(&mut self) {
        let Some(port) = &mut self.port else { return };
        port.completions(&mut self.completions);
        if self.completions.frames > 0 {
            self.account_runs();
        }
        if self.completions.refused > 0 {
            self.account_refused();
        }
    }

    fn account_runs(&mut self) {
        let (mut at, mut lost) = (0, std::mem::take(&mut self.completions.lost));
        let mut next = lost.iter().peekable();
        let frames = std::mem::take(&mut self.completions.frames);
        while at < frames
            && let Some(run) = self.sending.front_mut()
        {
            let (sender, count) = (run.sender, run.frames.min(frames - at));
            run.frames -= count;
            if run.frames == 0 {
                self.sending.pop_front();
            }
            at += count;
            let mut gone = 0;
            while let Some(Lost { datagram, .. }) = next.next_if(|lost| lost.place < at) {
                gone += 1;
                if let Sender::Handler(worker) = sender {
                    self.dispatch.handler.unsent(worker.into(), *datagram, DropReason::TransmitFull);
                }
            }
            self.count(sender, count - gone, gone);
        }
        debug_assert!(at == frames, "a port completes only what it was given");
        lost.clear();
        self.completions.lost = lost;
    }

    /// Frames that the port rejected on transmit: of the latest run that has any.
    #[cold]
    fn account_refused(&mut self) {
        for _ in 0..std::mem::take(&mut self.completions.refused) {
            let Some(run) = self.sending.back_mut() else { return };
            let sender = run.sender;
            run.frames -= 1;
            if run.frames == 0 {
                self.sending.pop_back();
            }
            if let Sender::Handler(worker) = sender {
                self.dispatch.handler.unsent(worker.into(), None, DropReason::TransmitFull);
            }
            self.count(sender, 0, 1);
        }
    }

    /// Counts frames of `sender` that were sent, and frames that were lost.
    #[inline]
    fn count(&mut self, sender: Sender, left: usize, lost: usize) {
        let tally = &mut self.dispatch.tally;
        match sender {
            Sender::Handler(worker) => {
                tally.answered += left as u64;
                if lost > 0 {
                    tally.drop(DropReason::TransmitFull, lost);
                }
                self.counters.completed(worker, left as u64, lost as u64);
            }
            Sender::Socket => {
                tally.sent += left as u64;
                tally.unsent += lost as u64;
            }
        }
    }
}
