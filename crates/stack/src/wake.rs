//! Putting a worker to sleep without losing a wake-up, and waking it at most once per burst.
//!
//! A worker that finds all its rings empty may sleep. The danger is the moment between its last check and its sleep:
//! an item that arrives then must wake it. Each side therefore writes first and then reads the other's word, with a
//! full fence in between, so that at least one of them sees the other:
//!
//! ```text
//!   consumer (Sleeper)                          producer (Waker)
//!   ──────────────────                          ────────────────
//!   word = ASLEEP          announce()           publish a burst in the ring
//!   fence                                       fence                          wake()
//!   check all rings                             word == ASLEEP?
//!     not empty: word = AWAKE, continue           no:  nothing to do, no system call
//!     empty:     sleep on the eventfd             yes: set it to AWAKE; that producer signals the eventfd, once
//! ```
//! Without the fences both could read the old value: the producer's store may still be in its store buffer when it
//! reads the word. `tests/loom` has the model; it fails if either fence is removed.
//!
//! - The announcement is cleared by compare-and-swap, so of all producers that see it, one makes the system call.
//! - While the consumer is awake a producer pays one fence and one load per **burst** (a few ns), no system call.
//! - The sleeper waits on a file descriptor, so it can be part of one `poll`, `epoll` or io_uring wait with an AF_XDP
//!   socket: announce, check the rings, wait on all descriptors, drop the announcement.
//! - A wake-up may be spurious (a signal sent just as its announcement was withdrawn). It costs one iteration of the
//!   loop. Each signal is consumed exactly once, so a late one cannot keep a level-triggered poll from sleeping.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use crossbeam_utils::CachePadded;

use crate::primitive::{Arc, AtomicU32, Event, Ordering, Waited, fence};

/// The consumer is running and will check its rings.
const AWAKE: u32 = 0;
/// The consumer announced that it is about to sleep; the producer that clears this must signal.
const ASLEEP: u32 = 1;

#[derive(Debug)]
struct Shared {
    /// On its own cache line: every producer reads it after every burst, and it changes only around sleep.
    word: CachePadded<AtomicU32>,
    event: Event,
}

/// Creates the two sides. Fails if the process cannot open another file descriptor.
pub fn pair() -> io::Result<(Waker, Sleeper)> {
    let shared = Arc::new(Shared { word: CachePadded::new(AtomicU32::new(AWAKE)), event: Event::new()? });
    Ok((Waker { shared: Arc::clone(&shared) }, Sleeper { shared, owed: 0 }))
}

/// A producer's side; each producer has a clone.
#[derive(Debug, Clone)]
pub struct Waker {
    shared: Arc<Shared>,
}

impl Waker {
    /// Wakes the consumer if it sleeps or is about to. Call it once after publishing a burst.
    ///
    /// Returns whether it made a system call.
    #[inline]
    pub fn wake(&self) -> bool {
        // Orders the publication of the burst before the load of the word; pairs with the fence in `announce`.
        fence(Ordering::SeqCst);
        // A plain load first: a swap would take the cache line away from the other producers each time.
        if self.shared.word.load(Ordering::Relaxed) != ASLEEP {
            return false;
        }
        self.signal()
    }

    #[cold]
    fn signal(&self) -> bool {
        // The producer that clears the announcement signals. A failed exchange writes nothing; each write of the word
        // follows from the one before (acquire and release), so there is one order of all of them.
        let taken = self.shared.word.compare_exchange(ASLEEP, AWAKE, Ordering::AcqRel, Ordering::Relaxed);
        let elected = taken.is_ok();
        if elected {
            self.shared.event.signal();
        }
        elected
    }
}

/// The consumer's side.
#[derive(Debug)]
pub struct Sleeper {
    shared: Arc<Shared>,
    /// Announcements that a producer has cleared, or is just clearing, whose signal has not been consumed yet.
    owed: u64,
}

/// How a sleep ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// There was work; the consumer did not sleep.
    Ready,
    /// A producer signalled, possibly too late for an earlier sleep. Check the rings.
    Signalled,
    /// The timeout expired.
    TimedOut,
    /// This thread handled a Unix signal. Check whether to stop.
    Interrupted,
}

impl Sleeper {
    /// Sleeps until a producer wakes it, for at most `timeout`; without one, indefinitely.
    ///
    /// `ready` checks **all** rings that producers with this sleeper's wakers write to. It is called once, after the
    /// announcement; if it returns true there is no sleep.
    pub fn sleep(&mut self, timeout: Option<Duration>, ready: impl FnOnce() -> bool) -> io::Result<Woken> {
        let announced = self.announce();
        if ready() {
            return Ok(Woken::Ready);
        }
        announced.wait(timeout)
    }

    /// Announces to all producers that the consumer is about to sleep, until the guard is dropped.
    ///
    /// Then check all rings, and wait on the guard's descriptor, together with others if needed, only if all are
    /// empty.
    pub fn announce(&mut self) -> Announced<'_> {
        self.shared.word.store(ASLEEP, Ordering::Release);
        // Orders the announcement before the checks of the rings; pairs with the fence in `Waker::wake`.
        fence(Ordering::SeqCst);
        Announced { sleeper: self }
    }

    /// Another producer's side.
    pub fn waker(&self) -> Waker {
        Waker { shared: Arc::clone(&self.shared) }
    }
}

/// An announcement in effect. Dropping it withdraws it, and consumes the signal if there is one.
#[derive(Debug)]
#[must_use = "dropping this withdraws the announcement"]
pub struct Announced<'s> {
    sleeper: &'s mut Sleeper,
}

impl Announced<'_> {
    /// Sleeps on this descriptor only, for at most `timeout`.
    pub fn wait(self, timeout: Option<Duration>) -> io::Result<Woken> {
        Ok(match self.sleeper.shared.event.wait(timeout)? {
            Waited::Signalled => Woken::Signalled,
            Waited::TimedOut => Woken::TimedOut,
            Waited::Interrupted => Woken::Interrupted,
        })
    }
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        let shared = &self.sleeper.shared;
        if shared.word.swap(AWAKE, Ordering::AcqRel) == AWAKE {
            self.sleeper.owed += 1;
        }
        // In the common case that work was found, no signal is owed: no system call then. The elected producer may
        // not have signalled yet; its signal stays owed, and is consumed after the next announcement.
        if self.sleeper.owed > 0 {
            self.sleeper.owed = self.sleeper.owed.saturating_sub(shared.event.take());
        }
    }
}

/// Readable when woken. Wait on it only while an announcement is in effect.
impl AsFd for Sleeper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }
}

/// Readable when woken.
impl AsFd for Announced<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sleeper.shared.event.as_fd()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;
    use crate::ring::ring;

    fn readable(sleeper: &impl AsFd) -> bool {
        let mut fds = [PollFd::new(sleeper, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready == 1)
    }

    #[test]
    fn a_consumer_that_is_awake_costs_no_system_call() -> io::Result<()> {
        let (waker, sleeper) = pair()?;
        assert!(!waker.wake());
        assert!(!readable(&sleeper));
        Ok(())
    }

    #[test]
    fn one_signal_per_announcement_however_many_producers() -> io::Result<()> {
        let (waker, mut sleeper) = pair()?;
        let second = sleeper.waker();
        let announced = sleeper.announce();
        assert!(waker.wake());
        assert!(!second.wake());
        assert!(!waker.clone().wake());
        assert!(readable(&announced), "a second poll sees it too");
        assert_eq!(announced.wait(None)?, Woken::Signalled);
        assert!(!readable(&sleeper), "and it was consumed");
        assert!(!waker.wake());
        Ok(())
    }

    #[test]
    fn work_found_after_the_announcement_ends_it() -> io::Result<()> {
        let (waker, mut sleeper) = pair()?;
        assert_eq!(sleeper.sleep(None, || true)?, Woken::Ready);
        assert!(!waker.wake());
        assert_eq!(sleeper.sleep(Some(Duration::from_millis(1)), || false)?, Woken::TimedOut);
        assert!(!waker.wake());
        assert!(!readable(&sleeper));
        Ok(())
    }

    #[test]
    fn a_signal_that_came_too_late_is_taken_once() -> io::Result<()> {
        let (waker, mut sleeper) = pair()?;
        // The producer wins the word but has not signalled yet when the announcement is withdrawn.
        let announced = sleeper.announce();
        assert_eq!(waker.shared.word.swap(AWAKE, Ordering::Relaxed), ASLEEP);
        drop(announced);
        assert_eq!(sleeper.owed, 1);
        waker.shared.event.signal();
        assert_eq!(sleeper.sleep(None, || false)?, Woken::Signalled, "one spurious wake-up");
        assert_eq!(sleeper.owed, 0);
        assert_eq!(sleeper.sleep(Some(Duration::from_millis(1)), || false)?, Woken::TimedOut);
        Ok(())
    }

    #[test]
    fn a_consumer_that_always_sleeps_gets_every_item() -> Result<(), Box<dyn std::error::Error>> {
        const ITEMS: u32 = 20_000;
        let (waker, mut sleeper) = pair()?;
        let (mut producer, mut consumer) = ring(8)?;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for item in 0..ITEMS {
                    while producer.push(item).is_err() {
                        std::thread::yield_now();
                    }
                    waker.wake();
                }
            });
            let mut expected = 0;
            while expected < ITEMS {
                // Far longer than the whole test takes: only a lost wake-up can exhaust it.
                let woken = sleeper.sleep(Some(Duration::from_secs(60)), || !consumer.is_empty())?;
                assert_ne!(woken, Woken::TimedOut, "a wake-up was lost at item {expected}");
                while let Some(item) = consumer.pop() {
                    assert_eq!(item, expected);
                    expected += 1;
                }
            }
            Ok(())
        })
    }
}
