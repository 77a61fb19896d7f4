//! Sending: into the transmit ring or as live frames, and recording completions.
//!
//! ```text
//! transmit ─▸ gathered ─ live frames ─▸ accepted, or dropped by the driver       bulk.rs
//!                 └▸ transmit ring ─ sendto ─▸ accepted by the kernel, or dropped by the driver: EBUSY, which ends the call
//! ```
//! Frames leave in the order in which they were given; each is recorded in that order, as sent or as lost.

use std::io;
use std::os::fd::AsFd;

use rustix::net::xdp::{XdpDesc, XdpDescOptions};

use super::port::XdpPort;
use super::sys;
use crate::frame::Frame;
use crate::port::Mode;

/// Packets that the kernel sends per call in copy mode by default (`TX_BATCH_SIZE`, net/xdp/xsk.c).
const KERNEL_BATCH: u32 = 32;

impl XdpPort {
    /// Pushes packets into the transmit ring. Call it for at most the available room.
    #[inline]
    pub(super) fn push(&mut self, frames: impl Iterator<Item = Frame>) {
        let mut pushed = 0;
        for frame in frames {
            let (addr, len) = self.pool.lend_packet(frame);
            self.socket.transmit.push(XdpDesc { addr, len, options: XdpDescOptions::empty() });
            pushed += 1;
        }
        self.socket.transmit.publish();
        self.sending += pushed;
        self.unsent |= pushed > 0;
        self.counts.transmitted += u64::from(pushed);
    }

    /// Sends the gathered frames, if it is time to.
    #[inline]
    pub(super) fn send_gathered(&mut self) {
        if !self.bulk.as_ref().is_ok_and(|bulk| bulk.is_due(self.more)) {
            return;
        }
        if let Ok(bulk) = &mut self.bulk
            && !self.unsent
            && bulk.should_send()
        {
            let (taken, dropped) = bulk.send(&mut self.pool, &mut self.completions);
            self.statistics.live += taken as u64;
            self.statistics.live_calls += 1;
            self.statistics.dropped_sending += dropped as u64;
            self.counts.transmitted += (taken + dropped) as u64;
        }
        let Ok(bulk) = &mut self.bulk else { return };
        let mut gathered = std::mem::take(bulk.gathered());
        let room = self.socket.transmit.room(gathered.len() as u32) as usize;
        let count = gathered.len().min(room);
        self.push(gathered.drain(..count));
        if let Ok(bulk) = &mut self.bulk {
            *bulk.gathered() = gathered;
        }
    }

    /// Reclaims the frames of packets that were sent.
    #[inline]
    pub(super) fn collect(&mut self) -> bool {
        if self.sending == 0 {
            return false;
        }
        let (back, unfit) = sys::reclaim(&mut self.socket.completion, &mut self.pool);
        self.sending = self.sending.saturating_sub(back);
        if self.properties.mode != Mode::Copy {
            self.next_completion = self.next_completion.wrapping_add(back);
            self.completions.sent(back as usize);
        }
        self.statistics.transmit_invalid += u64::from(unfit);
        back > 0
    }

    /// Makes the kernel send the packets in the transmit ring. Returns whether a system call was made.
    #[inline]
    pub(super) fn send(&mut self) -> bool {
        if !self.unsent {
            return false;
        }
        let mut waiting = self.note_sent();
        self.unsent = waiting > 0;
        if waiting == 0 || !self.socket.transmit.needs_wakeup() {
            return false;
        }
        // In copy mode each call sends a batch; call as often as needed for all of them, and no more in any case. A
        // dropped packet ends its call. Those behind it must not be left to poll(2), which sends them too, but does not
        // say what it dropped (`xsk_poll` in net/xdp/xsk.c).
        let mut calls = waiting.div_ceil(KERNEL_BATCH) + 1;
        while calls > 0 {
            calls -= 1;
            self.statistics.kicks += 1;
            match sys::kick_transmit(self.socket.as_fd()) {
                Ok(()) => {}
                Err(cause) if !self.goes_on(&cause) => {
                    self.note_sent();
                    return true;
                }
                Err(cause) => calls += u32::from(cause.raw_os_error() == Some(libc::EBUSY)),
            }
            let left = self.note_sent();
            self.unsent = left > 0;
            if left == 0 || self.properties.mode == Mode::ZeroCopy {
                return true;
            }
            // No progress: the completion ring is full, or the device's queue, which accepts more once it has sent
            // some.
            if left == waiting && !self.collect() {
                return true;
            }
            waiting = left;
        }
        true
    }

    /// Records the entries that the kernel took from the transmit ring; returns how many are left. In copy mode,
    /// entries taken were sent, except for those [reported](Self::note_lost) as dropped; with zero-copy, entries
    /// that return through the completion ring were sent.
    #[inline]
    pub(super) fn note_sent(&mut self) -> u32 {
        let waiting = self.socket.transmit.waiting();
        if self.properties.mode == Mode::Copy {
            let taken = self.socket.transmit.index().wrapping_sub(waiting).wrapping_sub(self.next_completion);
            // After those already recorded: the kernel shows the entry of a dropped packet as consumed together
            // with the next one.
            if taken as i32 > 0 {
                self.next_completion = self.next_completion.wrapping_add(taken);
                self.completions.sent(taken as usize);
            }
        }
        waiting
    }

    /// Records that the driver dropped the last packet that the kernel took from the transmit ring (`NET_XMIT_DROP`
    /// in `__xsk_generic_xmit`, net/xdp/xsk.c, which ends the call).
    #[cold]
    fn note_lost(&mut self) {
        let waiting = self.socket.transmit.waiting();
        let end = self.socket.transmit.index();
        let taken = end.wrapping_sub(waiting).wrapping_sub(self.next_completion);
        if taken as i32 > 1 {
            self.completions.sent(taken as usize - 1);
            self.next_completion = self.next_completion.wrapping_add(taken - 1);
        }
        if self.next_completion != end {
            self.give_up_next();
        }
    }

    /// Records the next entry of the transmit ring as lost.
    #[cold]
    pub(super) fn give_up_next(&mut self) {
        let entry = self.socket.transmit.pushed(self.next_completion);
        self.completions.lost(sys::pushed(&self.pool, entry));
        self.next_completion = self.next_completion.wrapping_add(1);
    }

    /// Whether calling again may send more, after this error.
    #[cold]
    fn goes_on(&mut self, cause: &io::Error) -> bool {
        match cause.raw_os_error() {
            // More is waiting than one call sends, or no memory or room at the moment.
            Some(libc::EAGAIN | libc::ENOBUFS) => true,
            Some(libc::EBUSY) => {
                if self.properties.mode == Mode::Copy {
                    self.statistics.dropped_sending += 1;
                    self.note_lost();
                }
                true
            }
            Some(libc::ENETDOWN | libc::ENXIO) => {
                self.statistics.link_down += 1;
                false
            }
            _ => {
                self.statistics.failed += 1;
                false
            }
        }
    }

    /// Returns a frame that cannot be sent to the pool, if it belongs to it.
    #[cold]
    pub(super) fn refuse(&mut self, frame: Frame) {
        self.statistics.refused += 1;
        self.completions.refused += 1;
        let foreign = self.pool.put(frame);
        debug_assert!(foreign.is_none(), "the frame is another port's");
    }
}
