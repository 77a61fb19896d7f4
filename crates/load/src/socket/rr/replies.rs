//! The receiving half of the loop: takes replies, judges them, fills up the closed loop, drains at the end.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use super::super::try_later;
use super::Worker;
use crate::threads::LONGEST;

/// Calls of `recvmmsg` per flow and turn.
const READS: usize = 4;
/// Once everything is answered, duplicates are waited for this long, nanoseconds.
const QUIET: u64 = 20_000_000;

impl Worker<'_> {
    /// Waits at most `pause` nanoseconds, then takes what has come; how many datagrams.
    pub(super) fn receive_ready(&mut self, pause: u64) -> usize {
        let ready = self.poller.wait(pause);
        let mut taken = 0;
        for i in 0..ready {
            taken += self.receive(self.poller.ready(i));
        }
        taken
    }

    /// Takes the replies of one flow, judges them and, in a closed loop, sends the next requests.
    fn receive(&mut self, index: usize) -> usize {
        let mut taken = 0;
        for _ in 0..READS {
            let n = match self.rx.receive(self.flows[index].socket.as_fd()) {
                Ok(n) => n,
                Err(e) if try_later(&e) => break,
                Err(e) => {
                    // Told once per event, and so cleared; what it means for sending, sending will be told.
                    self.failures.refused += u64::from(e.kind() == io::ErrorKind::ConnectionRefused);
                    continue;
                }
            };
            let now = self.clock.now();
            self.received += n as u64;
            for i in 0..n {
                self.judge(index, i, now);
            }
            taken += n;
            if self.credits.of(index) > 0 && !self.credits.waits(index) {
                self.spend(index, now);
            }
            if n < self.rx.count() {
                break;
            }
        }
        taken
    }

    fn judge(&mut self, index: usize, i: usize, now: u64) {
        let flow = &mut self.flows[index];
        let judgement = self.template.check(flow.number, self.rx.received(i));
        let answered = self.tally.judge(&mut flow.pending, judgement, now, &self.clock);
        if answered && self.schedule.is_none() {
            self.credits.earn(index, 1);
        }
    }

    /// Takes replies until all requests are answered, or until none can be anything but lost.
    pub(super) fn drain(&mut self) {
        let timeout = self.plan.timeout.as_nanos() as u64;
        let deadline = self.last_sent.saturating_add(timeout.saturating_mul(2));
        let mut heard = self.clock.now();
        loop {
            let now = self.clock.now();
            let open: u64 = self.flows.iter().map(|f| f.pending.open()).sum();
            let quiet = open == 0 && now.saturating_sub(heard) >= QUIET;
            if quiet || now >= deadline || self.shared.cut.load(Ordering::Relaxed) {
                return;
            }
            if self.receive_ready(LONGEST.min(deadline - now)) > 0 {
                heard = self.clock.now();
            }
        }
    }
}
