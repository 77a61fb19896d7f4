//! The receiving half of the loop: takes replies, judges them, fills up the closed loop, drains at the end.

use std::sync::atomic::Ordering;

use udpath_stack::port::{Checksums, Port};
use udpath_stack::wire::Packet;

use super::super::hand_over::Verdict;
use super::Worker;
use crate::template::Judgement;
use crate::threads::LONGEST;

/// Bursts taken from one port, and from other threads, in one turn.
const READS: usize = 4;
/// Once everything is answered, duplicates are waited for this long, nanoseconds.
const QUIET: u64 = 20_000_000;
/// Other threads may send until a little later than this one, and this one's ports get their replies: how much longer
/// than its own deadline it waits for them, nanoseconds.
const OTHERS: u64 = 100_000_000;

impl Worker<'_> {
    /// Takes what has come, here and from other threads; how many datagrams.
    pub(super) fn receive(&mut self) -> usize {
        let mut taken = 0;
        for lane in 0..self.lanes.len() {
            for _ in 0..READS {
                let count = self.lanes[lane].port.receive(&mut self.rx);
                if count == 0 {
                    break;
                }
                let now = self.clock.now();
                let checksums = self.lanes[lane].port.properties().checksums;
                for place in 0..count {
                    self.take(place, checksums, now);
                }
                self.lanes[lane].port.recycle(&mut self.rx);
                taken += count;
            }
        }
        self.links.publish();
        for _ in 0..READS {
            let count = self.links.take(&mut self.verdicts);
            if count == 0 {
                break;
            }
            for place in 0..count {
                let Verdict { index, judgement, at } = self.verdicts[place];
                self.count(index as usize, judgement, at);
            }
            self.verdicts.clear();
            taken += count;
        }
        taken
    }

    /// Judges the datagram at `place` of the burst, which came at `now`.
    #[inline]
    fn take(&mut self, place: usize, checksums: Checksums, now: u64) {
        let frame = &self.rx[place];
        let bytes = frame.bytes();
        // The program takes nothing else than unfragmented UDP; should it ever, it is nobody's.
        let Ok(headers) = Packet::parse(bytes) else {
            self.strangers += 1;
            return;
        };
        if !frame.offloads().checksums && checksums.check(&headers, bytes).is_err() {
            self.damaged += 1;
            return;
        }
        let Some((flow, entry)) = self.table.find(&headers) else {
            self.strangers += 1;
            return;
        };
        let judgement = self.template.check(flow, headers.payload(bytes));
        if entry.thread as usize == self.thread {
            self.count(entry.index as usize, judgement, now);
        } else {
            self.links.hand_over(entry.thread, Verdict { index: entry.index, judgement, at: now });
        }
    }

    /// Counts a reply to one of this thread's flows and, in a closed loop, writes the next request.
    #[inline]
    fn count(&mut self, index: usize, judgement: Judgement, at: u64) {
        self.received += 1;
        let flow = &mut self.flows[index];
        let answered = self.tally.judge(&mut flow.pending, judgement, at, &self.clock);
        if answered && self.schedule.is_none() {
            self.credits.earn(index, 1);
            if !self.credits.waits(index) {
                self.spend(index, at);
            }
        }
    }

    /// Takes replies until all requests of all threads are answered, or until none can be anything but lost.
    pub(super) fn drain(&mut self) {
        let timeout = self.plan.timeout.as_nanos() as u64;
        let deadline = self.last_sent.saturating_add(timeout.saturating_mul(2));
        let mut heard = self.clock.now();
        let mut done = false;
        loop {
            let now = self.clock.now();
            let open: u64 = self.flows.iter().map(|f| f.pending.open()).sum();
            let quiet = open == 0 && now.saturating_sub(heard) >= QUIET;
            if !done && (quiet || now >= deadline) {
                done = true;
                self.sums.waiting.fetch_sub(1, Ordering::AcqRel);
            }
            let all_done = done && self.sums.waiting.load(Ordering::Acquire) == 0;
            if all_done || now >= deadline.saturating_add(OTHERS) || self.shared.cut.load(Ordering::Relaxed) {
                return;
            }
            let until = if now < deadline { deadline - now } else { QUIET };
            self.wait(LONGEST.min(until));
            if self.receive() > 0 {
                heard = self.clock.now();
            }
            self.flush();
        }
    }
}
