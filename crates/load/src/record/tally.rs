//! One thread's counts and histograms. Allocates only when created; merged when the threads are done.

use hdrhistogram::Histogram;

use crate::clock::Clock;
use crate::record::{Answer, Pending, Seen};
use crate::result::{Counts, Latency};
use crate::template::Judgement;

/// Largest time of a histogram, nanoseconds: an hour. Longer times are recorded as this.
const MAX_TIME: u64 = 3_600_000_000_000;
/// Two significant digits: buckets are 1/128 to 1/256 of their value wide, under 1 %. Three digits would make a
/// histogram 200 KiB instead of 40 KiB: more than a core's first cache, for digits that no percentile needs.
const DIGITS: u8 = 2;

/// Counts of one thread.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) counts: Counts,
    /// Valid replies in time that arrived in the window.
    pub(crate) completed: u64,
    /// Valid replies in time, including the warm-up's.
    pub(crate) ok_ever: u64,
    /// Replies received that belong to the warm-up.
    pub(crate) ignored: u64,
    intended: Histogram<u64>,
    sent: Histogram<u64>,
    lateness: Histogram<u64>,
}

/// An empty histogram, of the same bounds as all others.
pub(crate) fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MAX_TIME, DIGITS).unwrap_or_else(|e| panic!("the constants above: {e:?}"))
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            counts: Counts::default(),
            completed: 0,
            ok_ever: 0,
            ignored: 0,
            intended: empty(),
            sent: empty(),
            lateness: empty(),
        }
    }

    /// Counts a reply that arrived at `now` on the flow of `pending` with this `judgement`. True if it
    /// answers a request still in flight: in a closed loop the next one may be sent.
    pub(crate) fn judge(
        &mut self,
        pending: &mut Pending,
        judgement: Judgement,
        now: u64,
        clock: &Clock,
    ) -> bool {
        let (bits, refused) = match judgement {
            Judgement::Valid { seq } => (seq, false),
            Judgement::Refused { seq } => (seq, true),
            _ if now < clock.window() => {
                self.ignored += 1;
                return false;
            }
            Judgement::WrongFlow => {
                self.counts.wrong_flow += 1;
                return false;
            }
            Judgement::Corrupt => {
                self.counts.corrupt += 1;
                return false;
            }
        };
        let seq = pending.complete(bits);
        let in_window = pending.counts(seq);
        match pending.answer(seq, now) {
            Seen::First(answer) if refused => {
                if in_window {
                    self.counts.refused += 1;
                } else {
                    self.ignored += 1;
                }
                return !answer.given_up;
            }
            Seen::First(answer) => {
                self.ok_ever += u64::from(!answer.late);
                self.completed += u64::from(!answer.late && clock.in_window(now));
                if in_window {
                    self.answered(&answer, now);
                } else {
                    self.ignored += 1;
                }
                return !answer.given_up;
            }
            Seen::Duplicate if in_window => self.counts.duplicate += 1,
            // The reply to a request that was never sent.
            Seen::Never if now >= clock.window() => self.counts.corrupt += 1,
            Seen::Duplicate | Seen::Never => self.ignored += 1,
        }
        false
    }

    /// Counts the first valid reply, received `now`, to a request of the window.
    pub(crate) fn answered(&mut self, answer: &Answer, now: u64) {
        if answer.late {
            self.counts.late += 1;
        } else {
            self.counts.ok += 1;
        }
        self.counts.reordered += u64::from(answer.reordered);
        self.intended.saturating_record(now.saturating_sub(answer.intended));
        self.sent.saturating_record(now.saturating_sub(answer.sent));
    }

    /// Counts a request of the window: planned for `intended`, handed to the kernel at `sent`.
    pub(crate) fn sent(&mut self, intended: u64, sent: u64) {
        self.counts.sent += 1;
        self.lateness.saturating_record(sent.saturating_sub(intended));
    }

    /// Counts `n` requests of a one-way mode without intended times.
    pub(crate) fn sent_unplanned(&mut self, n: u64) {
        self.counts.sent += n;
    }

    /// Adds another thread's.
    pub(crate) fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.completed += other.completed;
        self.ok_ever += other.ok_ever;
        self.ignored += other.ignored;
        for (mine, others) in [
            (&mut self.intended, &other.intended),
            (&mut self.sent, &other.sent),
            (&mut self.lateness, &other.lateness),
        ] {
            // Cannot fail: all histograms have the same bounds.
            mine.add(others).unwrap_or_else(|e| panic!("histograms of equal bounds: {e:?}"));
        }
    }

    /// From intended to answered, so far.
    pub(crate) fn intended(&self) -> &Histogram<u64> {
        &self.intended
    }

    pub(crate) fn intended_latency(&self) -> Option<Latency> {
        latency(&self.intended)
    }

    pub(crate) fn sent_latency(&self) -> Option<Latency> {
        latency(&self.sent)
    }

    pub(crate) fn lateness(&self) -> Option<Latency> {
        latency(&self.lateness)
    }
}

/// The distribution in a histogram; none if it is empty.
pub(crate) fn latency(h: &Histogram<u64>) -> Option<Latency> {
    let buckets: Vec<(u64, u64)> =
        h.iter_recorded().map(|v| (v.value_iterated_to(), v.count_since_last_iteration())).collect();
    Latency::from_buckets(buckets, h.min(), h.max(), h.mean())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_under_one_percent_wide() {
        let mut t = Tally::new();
        let mut value = 1_000u64;
        while value < 10_000_000_000 {
            t.sent(0, value);
            let l = t.lateness().unwrap();
            let bucket = l.histogram.last().unwrap().0;
            assert!(bucket >= value && (bucket - value) as f64 <= 0.01 * value as f64, "{value} in {bucket}");
            value = value * 13 / 10 + 1;
        }
    }

    #[test]
    fn impossible_times_saturate() {
        let mut t = Tally::new();
        t.sent(0, u64::MAX);
        assert!(t.lateness().unwrap().max >= MAX_TIME);
        t.sent(5, 0);
        assert_eq!(t.lateness().unwrap().min, 0);
    }
}
