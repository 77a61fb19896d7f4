//! When counters were read: one after the other, each at some moment of a look.
//!
//! ```text
//!   earlier look                      later look
//!   ├──●────┤                         ├────●──┤          ●: when one counter was read
//!   ├─────────── interval ────────────┤
//! ```
//! A rate divides by the time between the beginnings. That of a counter's own two readings is longer or shorter by a
//! look at most.

use std::time::{Duration, Instant};

/// When a look began, and how long it took.
#[derive(Debug, Clone, Copy)]
pub struct Acquisition {
    begun: Instant,
    took: Duration,
}

impl Acquisition {
    /// Carries out a look.
    pub fn of<T>(look: impl FnOnce() -> T) -> (T, Self) {
        let begun = Instant::now();
        let result = look();
        (result, Self { begun, took: begun.elapsed() })
    }

    /// How long it took.
    #[must_use]
    pub const fn took(&self) -> Duration {
        self.took
    }

    /// The most by which a rate between this look and a later one may be off, as a part of it: 0.01 for 1 %.
    #[must_use]
    pub fn rate_error(&self, later: &Self) -> f64 {
        let interval = later.begun.saturating_duration_since(self.begun);
        self.took.max(later.took).as_secs_f64() / interval.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_look_decides() {
        let begun = Instant::now();
        let look = |after, took| Acquisition {
            begun: begun + Duration::from_millis(after),
            took: Duration::from_millis(took),
        };
        for (first, second) in [(20, 5), (5, 20)] {
            let error = look(0, first).rate_error(&look(1000, second));
            assert!((error - 0.02).abs() < 1e-9, "{error}");
        }
        assert!(look(0, 1).rate_error(&look(0, 1)) > 1.0, "no interval says nothing");
    }
}
