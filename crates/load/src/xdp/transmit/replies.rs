//! Receives replies: parses, verifies and judges them, here or for another thread.

use udpath_stack::port::{Checksums, Port};
use udpath_stack::wire::{Headers, Packet};

use super::super::mailbox::JudgedReply;
use super::Frames;
use crate::elsewhere::Elsewhere;
use crate::transmit::Ledger;

/// Bursts taken from one port, and from other threads, in one turn.
const READS: usize = 4;

impl Frames<'_> {
    /// Processes datagrams received on this thread's ports; returns how many.
    pub(super) fn receive_ports(&mut self, ledger: &mut Ledger<'_>) -> usize {
        let mut taken = 0;
        for lane in 0..self.lanes.len() {
            for _ in 0..READS {
                let count = self.lanes[lane].port.receive(&mut self.replies);
                if count == 0 {
                    break;
                }
                let now = ledger.clock.now();
                let checksums = self.lanes[lane].port.properties().checksums;
                for place in 0..count {
                    self.judge(ledger, place, checksums, now);
                }
                self.lanes[lane].port.recycle(&mut self.replies);
                ledger.refill(self);
                taken += count;
            }
        }
        self.mailboxes.publish();
        taken
    }

    /// Takes replies judged by other threads; returns how many.
    pub(super) fn receive_judged(&mut self, ledger: &mut Ledger<'_>) -> usize {
        let mut taken = 0;
        for _ in 0..READS {
            let count = self.mailboxes.take(&mut self.judged);
            if count == 0 {
                break;
            }
            for JudgedReply { index, judgement, at } in self.judged.drain(..) {
                ledger.count(index as usize, judgement, at);
            }
            ledger.refill(self);
            taken += count;
        }
        taken
    }

    /// Judges the datagram at `place` of the burst, received at `now`.
    #[inline]
    fn judge(&mut self, ledger: &mut Ledger<'_>, place: usize, checksums: Checksums, now: u64) {
        let frame = &self.replies[place];
        let bytes = frame.bytes();
        // The program takes unfragmented UDP only; anything else belongs to no flow.
        let Ok(headers) = Packet::parse(bytes) else {
            self.strangers += 1;
            return;
        };
        if !frame.offloads().checksums && checksums.check(&headers, bytes).is_err() {
            self.damaged += 1;
            return;
        }
        let Some((flow, entry)) = self.table.find(&headers) else {
            self.stranger(&headers);
            return;
        };
        let judgement = ledger.check(flow, headers.payload(bytes));
        if entry.thread as usize == self.thread {
            ledger.count(entry.index as usize, judgement, now);
        } else {
            self.mailboxes.hand_over(entry.thread, JudgedReply { index: entry.index, judgement, at: now });
        }
    }

    /// Counts a datagram that no flow's target sent; of those to a flow, the first sender is kept.
    #[cold]
    fn stranger(&mut self, headers: &Headers) {
        self.strangers += 1;
        if let Some((_, entry)) = self.table.receiver(headers.destination()) {
            let first = Elsewhere { asked: entry.remote, from: headers.source(), count: None };
            // The first of all threads' stays.
            let _ = self.sums.stranger.set(first);
        }
    }
}
