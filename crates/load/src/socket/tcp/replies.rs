//! The receiving half of the loop: reads what connections have, cuts it into messages, judges each.

use std::io;

use super::super::try_later;
use super::Worker;
use crate::plan::Mode;
use crate::record::Seen;
use crate::template::Judgement;

impl Worker<'_> {
    /// Waits at most `pause` nanoseconds and serves the connections that are ready; were there any bytes?
    pub(super) fn turn(&mut self, pause: u64) -> bool {
        let ready = self.poller.wait(pause);
        let mut heard = false;
        for i in 0..ready {
            let index = self.poller.ready(i);
            if self.poller.writable(i) && self.flows[index].blocked {
                self.block(index, false);
                self.flush(index);
            }
            heard |= self.receive(index);
        }
        heard
    }

    /// Reads what connection `index` has, once; were there any bytes?
    fn receive(&mut self, index: usize) -> bool {
        if self.flows[index].closed {
            return false;
        }
        let n = match rustix::net::recv(
            &self.flows[index].socket,
            &mut *self.rx,
            rustix::net::RecvFlags::DONTWAIT,
        ) {
            Ok((0, _)) => {
                self.close(index, "closed by the peer");
                return false;
            }
            Ok((n, _)) => n,
            Err(e) => {
                let error = io::Error::from(e);
                if !try_later(&error) {
                    self.close(index, &error.to_string());
                }
                return false;
            }
        };
        if self.plan.mode != Mode::Rr {
            return true;
        }
        let now = self.clock.now();
        let freed = self.cut(index, n, now);
        if self.schedule.is_none() {
            self.top_up(index, freed, now);
        }
        true
    }

    /// Cuts the `n` bytes read into messages and judges each; how many requests they free a place for.
    fn cut(&mut self, index: usize, n: usize, now: u64) -> usize {
        let size = self.plan.size;
        let (mut at, mut freed) = (0, 0);
        while at < n {
            let flow = &mut self.flows[index];
            if flow.filled == 0 && n - at >= size {
                freed += self.judge(index, Some(at), now);
                at += size;
                continue;
            }
            let part = (size - flow.filled).min(n - at);
            flow.inbox[flow.filled..flow.filled + part].copy_from_slice(&self.rx[at..at + part]);
            flow.filled += part;
            at += part;
            if flow.filled == size {
                flow.filled = 0;
                freed += self.judge(index, None, now);
            }
        }
        freed
    }

    /// Judges the message at `at` in the read buffer, or the one in the inbox.
    fn judge(&mut self, index: usize, at: Option<usize>, now: u64) -> usize {
        self.received += 1;
        let flow = &mut self.flows[index];
        let reply = at.map_or(&flow.inbox[..], |at| &self.rx[at..at + self.plan.size]);
        let counts = &mut self.tally.counts;
        let seq = match self.template.check(flow.number, reply) {
            Judgement::Valid { seq } => seq,
            _ if now < self.clock.window() => {
                self.ignored += 1;
                return 0;
            }
            Judgement::WrongFlow => {
                counts.wrong_flow += 1;
                return 0;
            }
            Judgement::Corrupt => {
                counts.corrupt += 1;
                return 0;
            }
        };
        let in_window = flow.pending.counts(seq);
        match flow.pending.answer(seq, now) {
            Seen::First(answer) => {
                self.ok_ever += u64::from(!answer.late);
                self.tally.completed += u64::from(!answer.late && self.clock.in_window(now));
                if in_window {
                    self.tally.answered(&answer, now);
                } else {
                    self.ignored += 1;
                }
                return usize::from(!answer.given_up);
            }
            Seen::Duplicate if in_window => counts.duplicate += 1,
            Seen::Never if now >= self.clock.window() => counts.corrupt += 1,
            Seen::Duplicate | Seen::Never => self.ignored += 1,
        }
        0
    }
}
