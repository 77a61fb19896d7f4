//! Latency of the last second, while the threads run.
//!
//! ```text
//!   calling thread: number of the interval += 1 ─▸ thread, once per turn: a new number? copies its histogram into its place
//!                   20 ms later: sum of the places, less the sum before ─▸ Progress
//! ```
//! A thread copies 40 KiB once per second, and neither waits nor allocates for it: if its place is being read, it
//! leaves out the copy.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use hdrhistogram::Histogram;

use crate::record::{empty, latency};
use crate::result::Latency;

/// Time between two reports.
const INTERVAL: Duration = Duration::from_secs(1);
/// Time that threads have for their copy: twice their longest pause. Shorter: requests are reported a second late.
const COPY_TIME: Duration = Duration::from_millis(20);

/// The copies of all threads' histograms.
pub(crate) struct Copies {
    wanted: AtomicU64,
    places: Vec<CachePadded<Mutex<Histogram<u64>>>>,
}

impl Copies {
    pub(crate) fn new(threads: usize) -> Self {
        let places = (0..threads).map(|_| CachePadded::new(Mutex::new(empty()))).collect();
        Self { wanted: AtomicU64::new(0), places }
    }

    /// Copies the thread's histogram if one is wanted since `last`. Called once per turn.
    pub(crate) fn offer(&self, thread: usize, last: &mut u64, histogram: &Histogram<u64>) {
        let wanted = self.wanted.load(Ordering::Relaxed);
        if wanted == *last {
            return;
        }
        *last = wanted;
        if let Ok(mut place) = self.places[thread].try_lock() {
            place.reset();
            // Cannot fail: all histograms have the same bounds.
            let _ = place.add(histogram);
        }
    }

    fn sum(&self) -> Histogram<u64> {
        let mut sum = empty();
        for place in &self.places {
            let place = place.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let _ = sum.add(&*place);
        }
        sum
    }
}

/// The calling thread's side.
pub(super) struct Intervals {
    begun: Instant,
    asked: bool,
    before: Histogram<u64>,
}

impl Intervals {
    pub(super) fn new() -> Self {
        Self { begun: Instant::now(), asked: false, before: empty() }
    }

    /// The latency since the last report, if it is time for one. Called every few milliseconds.
    pub(super) fn report(&mut self, copies: &Copies) -> Option<Latency> {
        let since = self.begun.elapsed();
        if !self.asked && since >= INTERVAL {
            copies.wanted.fetch_add(1, Ordering::Relaxed);
            self.asked = true;
        }
        if !self.asked || since < INTERVAL + COPY_TIME {
            return None;
        }
        (self.begun, self.asked) = (self.begun + INTERVAL, false);
        let now = copies.sum();
        let mut new = now.clone();
        // Counts only grow.
        let _ = new.subtract(&self.before);
        self.before = now;
        latency(&new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_report_has_what_came_since_the_last_one() {
        let copies = Copies::new(2);
        let mut intervals = Intervals::new();
        let (mut histograms, mut last) = ([empty(), empty()], [0, 0]);
        let mut report = |recorded: &[(usize, u64)]| {
            for (thread, value) in recorded {
                histograms[*thread].record(*value).unwrap();
            }
            intervals.begun = Instant::now().checked_sub(INTERVAL).unwrap();
            assert_eq!(intervals.report(&copies), None, "the threads have time for their copies");
            for thread in [0, 1] {
                copies.offer(thread, &mut last[thread], &histograms[thread]);
            }
            intervals.begun = Instant::now().checked_sub(INTERVAL + COPY_TIME).unwrap();
            intervals.report(&copies).map(|latency| (latency.count, latency.min, latency.max))
        };
        assert_eq!(report(&[(0, 10), (1, 20)]), Some((2, 10, 20)));
        assert_eq!(report(&[]), None);
        assert_eq!(report(&[(1, 30)]), Some((1, 30, 30)));
    }

    #[test]
    fn a_thread_copies_once_per_interval() {
        let copies = Copies::new(1);
        let (mut histogram, mut last) = (empty(), 0);
        histogram.record(5).unwrap();
        copies.offer(0, &mut last, &histogram);
        assert_eq!(copies.sum().len(), 0, "nothing was wanted");
        copies.wanted.store(1, Ordering::Relaxed);
        copies.offer(0, &mut last, &histogram);
        histogram.record(6).unwrap();
        copies.offer(0, &mut last, &histogram);
        assert_eq!(copies.sum().len(), 1);
    }
}
