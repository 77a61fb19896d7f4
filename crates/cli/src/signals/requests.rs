//! Which signals are one request to end, and how many requests there were.
//!
//! One request often arrives as several signals: `timeout` signals its program and then the program's group; a shell
//! passes on what its terminal has sent to the whole group; systemd sends SIGTERM, and SIGHUP if it is told to.

use std::sync::atomic::{AtomicU64, Ordering};

/// Signals within this time of a request's first one belong to it, milliseconds. Shorter: on a busy machine, the second
/// signal of `timeout` counts as another request. Longer: whoever wants to end a program that hangs has to wait between
/// signals.
const WINDOW: u64 = 1000;

/// What a signal means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The first request.
    Stop,
    /// It belongs to the last request.
    Same,
    /// The second request.
    Again,
    /// The third request.
    End,
}

/// Requests so far. Signals may arrive in several threads at the same time.
#[derive(Debug)]
pub(super) struct Requests {
    /// The time of the last request's first signal, milliseconds, and in the two lowest bits the number of requests.
    last: AtomicU64,
}

impl Requests {
    pub(super) const fn new() -> Self {
        Self { last: AtomicU64::new(0) }
    }

    /// A signal has arrived at `now`, milliseconds of a clock that does not go back. Lock-free: for signal handlers.
    pub(super) fn arrived(&self, now: u64) -> Meaning {
        let mut last = self.last.load(Ordering::Relaxed);
        loop {
            let (since, count) = (last >> 2, last & 3);
            // Another thread's signal may be of a later moment than this one.
            if count > 0 && now.saturating_sub(since) < WINDOW {
                return Meaning::Same;
            }
            let (next, meaning) = match count {
                0 => (1, Meaning::Stop),
                1 => (2, Meaning::Again),
                _ => (3, Meaning::End),
            };
            let counted = now << 2 | next;
            match self.last.compare_exchange_weak(last, counted, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return meaning,
                Err(other) => last = other,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::Meaning::{Again, End, Same, Stop};
    use super::*;

    /// The meanings of signals at these times.
    fn meanings(times: &[u64]) -> Vec<Meaning> {
        let requests = Requests::new();
        times.iter().map(|now| requests.arrived(*now)).collect()
    }

    #[test]
    fn signals_within_a_second_are_one_request() {
        assert_eq!(meanings(&[5, 5, 6, 1004]), [Stop, Same, Same, Same]);
        assert_eq!(meanings(&[0, 0]), [Stop, Same], "right after the boot");
        let late = 1 << 40;
        assert_eq!(meanings(&[late, late + 999, late + 1000]), [Stop, Same, Again]);
    }

    #[test]
    fn the_second_request_warns_and_the_third_ends() {
        assert_eq!(meanings(&[0, 1000, 2000, 2001]), [Stop, Again, End, Same]);
        assert_eq!(meanings(&[0, 5000, 5999, 6000, 9000]), [Stop, Again, Same, End, End]);
    }

    /// The window begins with a request's first signal: somebody who sends one after the other gets through.
    #[test]
    fn a_stream_of_signals_ends_it_in_two_seconds() {
        let times: Vec<u64> = (0..=20).map(|nth| 7 + nth * 100).collect();
        let got = meanings(&times);
        let at = |wanted| got.iter().position(|got| *got == wanted);
        assert_eq!((at(Stop), at(Again), at(End)), (Some(0), Some(10), Some(20)));
    }

    #[test]
    fn a_signal_that_another_thread_has_seen_later_is_the_same_request() {
        assert_eq!(meanings(&[1000, 900, 2000, 1999]), [Stop, Same, Again, Same]);
    }

    #[test]
    fn of_signals_in_several_threads_exactly_one_is_the_request() {
        for _ in 0..200 {
            let (requests, counted) = (Requests::new(), AtomicU32::new(0));
            std::thread::scope(|scope| {
                for now in [10, 10, 11, 12] {
                    let (requests, counted) = (&requests, &counted);
                    scope.spawn(move || {
                        if requests.arrived(now) != Same {
                            counted.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
            });
            assert_eq!(counted.into_inner(), 1);
        }
    }
}
