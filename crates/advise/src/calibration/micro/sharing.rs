//! A line and a lock between two CPUs.

use std::hint::spin_loop;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use super::{both, on, quickest};

/// Turns in a round. Fewer: starting the threads shows. More: a pause of the other CPU hits every round.
const TURNS: u32 = 4000;

/// On a line of its own; two, because processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart<T>(T);

/// A line that two CPUs write in turn: half a round trip.
pub(super) fn line(pair: [u32; 2]) -> io::Result<f64> {
    quickest(|| {
        let turn = Apart(AtomicU32::new(0));
        let play = |mine: u32| {
            let begin = Instant::now();
            for at in 0..TURNS {
                let expected = 2 * at + mine;
                while turn.0.load(Ordering::Acquire) != expected {
                    spin_loop();
                }
                turn.0.store(expected + 1, Ordering::Release);
            }
            Ok(begin.elapsed().as_nanos() as f64 / f64::from(2 * TURNS))
        };
        both(pair, || play(0), || play(1).map(drop))
    })
}

/// A FIFO lock whose waiters each watch a line of their own, as the kernel's queued spinlocks do: a waiter takes a
/// number, and the one before it writes into its place.
#[derive(Debug, Default)]
struct Fifo {
    next: Apart<AtomicU32>,
    places: [Apart<AtomicBool>; PLACES],
    /// What it guards: who held it last, beside the place that says so.
    last: Apart<AtomicU32>,
}

/// Places of a lock; two CPUs use two at once.
const PLACES: usize = 4;

impl Fifo {
    fn new() -> Self {
        let fifo = Self::default();
        fifo.places[0].0.store(true, Ordering::Relaxed);
        fifo
    }

    fn take(&self) -> usize {
        let place = self.next.0.fetch_add(1, Ordering::Relaxed) as usize % PLACES;
        while !self.places[place].0.load(Ordering::Acquire) {
            spin_loop();
        }
        self.places[place].0.store(false, Ordering::Relaxed);
        place
    }

    fn give(&self, place: usize) {
        self.places[(place + 1) % PLACES].0.store(true, Ordering::Release);
    }

    /// Takes and releases it so often; how often another had it in between.
    fn turns(&self, turns: u32, who: u32) -> u32 {
        let mut changes = 0;
        for _ in 0..turns {
            let place = self.take();
            changes += u32::from(self.last.0.swap(who, Ordering::Relaxed) != who);
            self.give(place);
        }
        changes
    }
}

/// Taking and releasing it alone.
pub(super) fn lock(cpu: u32) -> io::Result<f64> {
    on(cpu, || {
        let lock = Fifo::new();
        quickest(|| {
            let begin = Instant::now();
            for _ in 0..TURNS {
                lock.give(lock.take());
            }
            Ok(begin.elapsed().as_nanos() as f64 / f64::from(TURNS))
        })
    })
}

/// Share of turns that must change hands for a round to count: if another program takes a CPU away, the other one has
/// the lock for itself, and is quick.
const CHANGES: f64 = 0.9;

/// A turn of it while two CPUs want it all the time: the hand-over, with the move of the line that it guards.
pub(super) fn handover(pair: [u32; 2]) -> io::Result<f64> {
    quickest(|| {
        // Some milliseconds each; a machine that cannot give two CPUs for that long cannot be calibrated.
        for _ in 0..ATTEMPTS {
            let (lock, ready) = (Fifo::new(), AtomicU32::new(0));
            let play = |who| {
                ready.fetch_add(1, Ordering::AcqRel);
                while ready.load(Ordering::Acquire) < 2 {
                    spin_loop();
                }
                let begin = Instant::now();
                let changes = lock.turns(TURNS, who);
                Ok((begin.elapsed().as_nanos() as f64 / f64::from(2 * TURNS), changes))
            };
            let (turn, changes) = both(pair, || play(1), || play(2).map(drop))?;
            if f64::from(changes) >= CHANGES * f64::from(TURNS) {
                return Ok(turn);
            }
        }
        Err(io::Error::other(format!("CPUs {} and {} are too busy with other programs", pair[0], pair[1])))
    })
}

/// Rounds until one counts.
const ATTEMPTS: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_excludes() {
        const TURNS: u32 = 20_000;
        let (lock, count) = (Fifo::new(), AtomicU32::new(0));
        let turn = || {
            let place = lock.take();
            let before = count.load(Ordering::Relaxed);
            count.store(before + 1, Ordering::Relaxed);
            lock.give(place);
        };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..TURNS).for_each(|_| turn()));
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), 2 * TURNS);
    }
}
