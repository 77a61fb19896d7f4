//! What becomes of frames between the worker that has them sent and the device.
//!
//! ```text
//! replies of worker i, frames of sockets ─▸ transmit ─▸ port: gathered, or in a ring ─▸ flush ─▸ completed: sent, or lost
//!            └ runs: how many of whom, in order ─────────────────────────────────────────────────▸ whose they were
//! ```
//! A port sends in order. So whose a frame was that it is done with is told by what was handed over, burst by burst, and
//! nothing is written down for each frame.

use super::Datapath;
use crate::counters::DropReason;
use crate::handler::Handler;
use crate::port::{Lost, Port, Unsent};

/// Whose a frame to be sent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    /// A reply of the handler of this worker.
    Handler(u16),
    /// A socket's.
    Socket,
}

/// Frames in a row from one sender.
#[derive(Debug)]
pub(super) struct Run {
    sender: Sender,
    frames: usize,
}

impl<P: Port, H: Handler> Datapath<P, H> {
    /// Has the port send the replies of a worker's handler and takes back what is free.
    #[inline]
    pub(super) fn send(&mut self, worker: u16) {
        self.transmit(Sender::Handler(worker));
    }

    /// Gives the port what is to be sent, and what is free.
    #[inline]
    pub(super) fn transmit(&mut self, sender: Sender) {
        let Some(port) = &mut self.port else { return };
        if !self.tx.is_empty() {
            let count = self.tx.len();
            port.transmit(&mut self.tx);
            if !self.tx.is_empty() {
                // Completions may have made room meanwhile.
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

    /// The port has no room for what is left.
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

    /// Counts what the port is done with. Once per turn, after its flush.
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
        debug_assert!(at == frames, "a port sends what it was given");
        lost.clear();
        self.completions.lost = lost;
    }

    /// Frames that the port refused when it was given them: of the latest run that has any.
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

    /// Frames of `sender` left, and others did not.
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
