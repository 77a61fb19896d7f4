//! Hardware counters by kind of work. The counts between two samples of a CPU are attributed to the second sample's
//! place.
//!
//! ```text
//! CPU 3   ──────┬────────────────┬─────────────┬──────▸ time
//!            sample           sample        sample
//!          values: 900        1,700         2,100
//!          udp_rcv            udp_rcv       copy      ──▸ udp_rcv + 800, copy + 400
//! ```
//! This is an approximation. Sums over all work are exact, but work that alternates within the few milliseconds between
//! two samples gets part of each other's counts: the shorter the turns, the closer their figures. A real difference is
//! larger than the one shown here; figures that are equal here may differ in reality.
//!
//! A group that had to share the processor's counters ran only part of the time: its counts are scaled up in
//! proportion.

use std::collections::HashMap;

use crate::context::Context;
use crate::perf::{Absent, Counter, Counts, Reading};
use crate::samples::{ChainId, Place};

/// Most events between two samples; about what a CPU at 10 GHz counts in eight hours. A larger step means that a
/// counter restarted or that a record is damaged. Lower: CPUs that idle for a long time lose a sample's counts; higher:
/// a counter that restarted is mistaken for one that wrapped.
const LEAP: u64 = 1 << 48;
/// The same limit for the times of a group, nanoseconds: nine years.
const LONG: u64 = 1 << 58;

/// The last reading of one CPU.
#[derive(Debug, Default)]
struct Last {
    values: HashMap<Counter, u64>,
    enabled: u64,
    running: u64,
    /// Samples were lost since: the work behind the counts is unknown.
    gap: bool,
}

/// Counts of all samples so far.
#[derive(Debug, Default)]
pub struct Counted {
    /// Counters by their id in readings.
    counters: HashMap<u64, Counter>,
    absent: Vec<Absent>,
    /// By CPU.
    last: HashMap<u32, Last>,
    places: HashMap<(Context, ChainId), Counts>,
    /// Counted while samples were lost.
    unplaced: Counts,
    /// How long groups were enabled, and how long they ran, nanoseconds.
    enabled: u64,
    running: u64,
}

impl Counted {
    /// For these counters, all of which start at zero.
    #[must_use]
    pub fn new(counters: impl IntoIterator<Item = (u64, Counter)>, absent: &[Absent]) -> Self {
        Self { counters: counters.into_iter().collect(), absent: absent.to_vec(), ..Self::default() }
    }

    /// Adds a CPU's counts since its last sample.
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

    /// Samples of a CPU were lost: its counts up to the next sample are charged to no work.
    pub fn lost(&mut self, cpu: u32) {
        self.last.entry(cpu).or_default().gap = true;
    }

    /// The counters that were available.
    #[must_use]
    pub fn counters(&self) -> Vec<Counter> {
        Counter::ALL
            .into_iter()
            .filter(|counter| self.counters.values().any(|known| known == counter))
            .collect()
    }

    /// The counters that were not available, if others were.
    #[must_use]
    pub fn absent(&self) -> &[Absent] {
        &self.absent
    }

    /// Every kind of work with its counts, in no particular order.
    pub fn places(&self) -> impl Iterator<Item = (Context, ChainId, Counts)> + '_ {
        self.places.iter().map(|((context, chain), counts)| (*context, *chain, *counts))
    }

    /// The counts while samples were lost.
    #[must_use]
    pub const fn unplaced(&self) -> Counts {
        self.unplaced
    }

    /// The part of the time that the counters ran, 0 to 1; below 1, they had to share the processor's counters.
    #[must_use]
    pub fn running(&self) -> f64 {
        if self.enabled == 0 { 1.0 } else { (self.running as f64 / self.enabled as f64).min(1.0) }
    }
}

/// The difference between two readings.
struct Step {
    counts: Counts,
    enabled: u64,
    running: u64,
}

impl Last {
    /// The counts since the last reading, scaled to the whole time; `None` if they are unknown.
    fn step(&mut self, counters: &HashMap<u64, Counter>, reading: Reading<'_>) -> Option<Step> {
        let since = |now: u64, then: &mut u64, most: u64| {
            let passed = now.wrapping_sub(*then);
            *then = now;
            // The value is lower than the last one. If it is a little past 2^64, the counter wrapped; otherwise it
            // restarted.
            (passed <= most).then_some(passed)
        };
        let enabled = since(reading.enabled, &mut self.enabled, LONG);
        let running = since(reading.running, &mut self.running, LONG);
        let mut counts = Some(Counts::default());
        for (id, value) in reading.values() {
            let Some(counter) = counters.get(&id) else { continue };
            let passed = since(value, self.values.entry(*counter).or_default(), LEAP);
            // Read all of them, also after an invalid one: the next step starts here.
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
