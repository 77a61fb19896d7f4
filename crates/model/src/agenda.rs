//! The agenda of a simulation: what happens next, and what time it is.
//!
//! Events at the same time happen in the order in which they were entered, so that a run depends on its seed alone.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Simulated time since the beginning, or a length of it, picoseconds. 64 bits last 213 days. Nanoseconds would round
/// the shortest costs, a few nanoseconds, by tens of per cent.
pub type Time = u64;

/// Picoseconds in a nanosecond.
pub const NANOSECOND: Time = 1_000;
/// Picoseconds in a microsecond.
pub const MICROSECOND: Time = 1_000 * NANOSECOND;
/// Picoseconds in a millisecond.
pub const MILLISECOND: Time = 1_000 * MICROSECOND;
/// Picoseconds in a second.
pub const SECOND: Time = 1_000 * MILLISECOND;

/// Events in order of time.
#[derive(Debug)]
pub struct Agenda<E> {
    entries: BinaryHeap<Entry<E>>,
    now: Time,
    entered: u64,
    happened: u64,
}

#[derive(Debug)]
struct Entry<E> {
    at: Time,
    order: u64,
    event: E,
}

impl<E> Default for Agenda<E> {
    fn default() -> Self {
        Self { entries: BinaryHeap::new(), now: 0, entered: 0, happened: 0 }
    }
}

impl<E> Agenda<E> {
    /// The time of the last event.
    #[must_use]
    pub const fn now(&self) -> Time {
        self.now
    }

    /// Events that have happened.
    #[must_use]
    pub const fn happened(&self) -> u64 {
        self.happened
    }

    /// Enters an event that happens after `delay`.
    pub fn after(&mut self, delay: Time, event: E) {
        self.entered += 1;
        self.entries.push(Entry { at: self.now.saturating_add(delay), order: self.entered, event });
    }

    /// The next event up to `end`, which becomes the current time if there is none.
    pub fn next(&mut self, end: Time) -> Option<E> {
        if self.entries.peek().is_none_or(|entry| entry.at > end) {
            self.now = self.now.max(end);
            return None;
        }
        let entry = self.entries.pop()?;
        self.now = entry.at;
        self.happened += 1;
        Some(entry.event)
    }
}

impl<E> Entry<E> {
    const fn key(&self) -> (Time, u64) {
        (self.at, self.order)
    }
}

// A heap returns its greatest entry: the earliest.
impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<E> Eq for Entry<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_happen_in_order_of_time_then_of_entry() {
        let mut agenda = Agenda::default();
        for (delay, event) in [(5, 'c'), (1, 'a'), (5, 'd'), (3, 'b')] {
            agenda.after(delay, event);
        }
        let mut order = Vec::new();
        while let Some(event) = agenda.next(4) {
            order.push((agenda.now(), event));
        }
        assert_eq!((order, agenda.now()), (vec![(1, 'a'), (3, 'b')], 4));
        agenda.after(1, 'e');
        let rest: String = std::iter::from_fn(|| agenda.next(100)).collect();
        assert_eq!((rest.as_str(), agenda.now(), agenda.happened()), ("cde", 100, 5));
    }
}
