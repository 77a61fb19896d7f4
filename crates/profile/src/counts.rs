//! Hardware counters by kind of work: what each counted between two samples of a CPU belongs to where the second was.
//!
//! ```text
//! CPU 3   ──────┬────────────────┬─────────────┬──────▸ time
//!            sample           sample        sample
//!          values: 900        1,700         2,100
//!          udp_rcv            udp_rcv       copy      ──▸ udp_rcv + 800, copy + 400
//! ```
//! That is an approximation. Sums over all work are exact, but work that alternates within the few milliseconds between
//! two samples gets each other's counts: their figures are drawn towards each other, in proportion to how short their
//! turns are. What differs in truth differs by more; what is equal here may differ.
//!
//! A group that had to share the processor's counters ran only for a part of the time: its counts are taken for the
//! whole, in the same proportion.

use std::collections::HashMap;

use crate::context::Context;
use crate::perf::{Absent, Counter, Counts, Reading};
use crate::samples::{ChainId, Place};

/// What an event counts between two samples at most; about what a CPU of 10 GHz does in eight hours. More is a counter
/// that began anew, or a damaged record. A lower bound: CPUs that idle for long lose a sample's counts; a higher one: a
/// counter that began anew is taken for one that wrapped.
const LEAP: u64 = 1 << 48;
/// The same for the times of a group, nanoseconds: nine years.
const LONG: u64 = 1 << 58;

/// What one CPU said last.
#[derive(Debug, Default)]
struct Last {
    values: HashMap<Counter, u64>,
    enabled: u64,
    running: u64,
    /// Samples were lost since: whose work it was is unknown.
    gap: bool,
}

/// Counts of all samples so far.
#[derive(Debug, Default)]
pub struct Counted {
    /// By which readings call them.
    counters: HashMap<u64, Counter>,
    absent: Vec<Absent>,
    /// By CPU.
    last: HashMap<u32, Last>,
    places: HashMap<(Context, ChainId), Counts>,
    /// While samples were lost.
    unplaced: Counts,
    /// How long groups were to run, and did, nanoseconds.
    enabled: u64,
    running: u64,
}

impl Counted {
    /// Of these counters, all of which began at zero.
    #[must_use]
    pub fn new(counters: impl IntoIterator<Item = (u64, Counter)>, absent: &[Absent]) -> Self {
        Self { counters: counters.into_iter().collect(), absent: absent.to_vec(), ..Self::default() }
    }

    /// Counts what a CPU did since its last sample.
    pub fn add(&mut self, place: &Place, reading: Reading<'_>) {
        let last = self.last.entry(place.cpu).or_default();
        let gap = std::mem::take(&mut last.gap);
        let Some(step) = last.step(&self.counters, reading) else { return };
        self.enabled = self.enabled.saturating_add(step.enabled);
        self.running = self.running.saturating_add(step.running);
        let of = if gap {
            &mut self.unplaced
        } else {
            self.places.entry((place.context, place.kernel)).or_default()
        };
        of.add(step.counts);
    }

    /// Samples of a CPU were lost: what it counts until the next one is nobody's.
    pub fn lost(&mut self, cpu: u32) {
        self.last.entry(cpu).or_default().gap = true;
    }

    /// The counters that were there.
    #[must_use]
    pub fn counters(&self) -> Vec<Counter> {
        Counter::ALL
            .into_iter()
            .filter(|counter| self.counters.values().any(|known| known == counter))
            .collect()
    }

    /// Those that were not, where others were.
    #[must_use]
    pub fn absent(&self) -> &[Absent] {
        &self.absent
    }

    /// Every kind of work with what was counted, in no order.
    pub fn places(&self) -> impl Iterator<Item = (Context, ChainId, Counts)> + '_ {
        self.places.iter().map(|((context, chain), counts)| (*context, *chain, *counts))
    }

    /// What was counted while samples were lost.
    #[must_use]
    pub const fn unplaced(&self) -> Counts {
        self.unplaced
    }

    /// The part of the time that the counters ran, 0 to 1: below 1 they had to share the processor's.
    #[must_use]
    pub fn running(&self) -> f64 {
        if self.enabled == 0 { 1.0 } else { (self.running as f64 / self.enabled as f64).min(1.0) }
    }
}

/// From one reading to the next.
struct Step {
    counts: Counts,
    enabled: u64,
    running: u64,
}

impl Last {
    /// What came since the last reading, for the whole time; nothing where that cannot be told.
    fn step(&mut self, counters: &HashMap<u64, Counter>, reading: Reading<'_>) -> Option<Step> {
        let since = |now: u64, then: &mut u64, most: u64| {
            let passed = now.wrapping_sub(*then);
            *then = now;
            // A value before the last one: it wrapped if it is a little behind, by 2^64, and began anew otherwise.
            (passed <= most).then_some(passed)
        };
        let enabled = since(reading.enabled, &mut self.enabled, LONG);
        let running = since(reading.running, &mut self.running, LONG);
        let mut counts = Some(Counts::default());
        for (id, value) in reading.values() {
            let Some(counter) = counters.get(&id) else { continue };
            let passed = since(value, self.values.entry(*counter).or_default(), LEAP);
            // All are read, also after one that makes no sense: the next step begins here.
            counts = counts.zip(passed).map(|(mut counts, passed)| {
                counts.0[*counter as usize] = passed;
                counts
            });
        }
        let (enabled, running, mut counts) = (enabled?, running?, counts?);
        if running == 0 {
            return None;
        }
        if running < enabled {
            let scaled = |count: &u64| u128::from(*count) * u128::from(enabled) / u128::from(running);
            counts.0 = counts.0.each_ref().map(|count| u64::try_from(scaled(count)).unwrap_or(u64::MAX));
        }
        Some(Step { counts, enabled, running: running.min(enabled) })
    }
}

#[cfg(test)]
pub(crate) mod tests;
