//! Between the sockets and one worker: frames on their way home, and blank ones for datagrams that sockets send first.
//!
//! ```text
//!   socket a ─┐  lock, once per burst                    worker
//!   socket b ─┼─▸ home:  done with, or to be sent ─────▸ its port: sent, or its memory goes back
//!   socket c ─┘◂─ stock: blank ◂──────────────────────── its port's memory, filled up at the end of a turn
//! ```
//! - **Home** is a ring with room for all frames the worker's port has, so it is never full and no reader ever waits. The
//!   lock is among sockets; the worker takes frames out without it. After a burst the worker is woken, once.
//! - **Stock** is a ring the other way: the worker fills it without a lock, sockets take from it under one. A socket that
//!   takes it below half wakes the worker, who fills it up again.
//! - **The worker ends first**: [`Depot::close`] gives back what lies in both rings. From then on what sockets want to give
//!   stays with them, and they are told.
//! - Both sides see one order: an item is given, and then comes out of the depot, or it stays with the giver. Never both.

use arrayvec::ArrayVec;
use crossbeam_utils::CachePadded;

use crate::primitive::{Arc, AtomicUsize, Mutex, Ordering, lock};
use crate::ring::{self, CapacityError, Consumer, Producer};
use crate::wake::Waker;

/// What both sides share.
struct Shared<T> {
    home: CachePadded<Mutex<Home<T>>>,
    stock: CachePadded<Mutex<Consumer<T>>>,
    /// The longest frame the worker's port sends, bytes; 0 before there is a worker.
    longest: AtomicUsize,
}

struct Home<T> {
    ring: Producer<T>,
    /// The worker has ended.
    closed: bool,
}

/// The sockets' side; each socket has a clone.
pub struct Station<T> {
    shared: Arc<Shared<T>>,
    waker: Waker,
    /// What the stock holds when it is full.
    stock: usize,
}

impl<T> Clone for Station<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), waker: self.waker.clone(), stock: self.stock }
    }
}

/// The worker's side.
pub struct Depot<T> {
    shared: Arc<Shared<T>>,
    home: Consumer<T>,
    stock: Producer<T>,
    /// The stock was not filled up when last tried: nothing was there to fill it with.
    short: bool,
}

/// Makes both sides for a worker that `waker` wakes: room for `frames` on their way home, and a stock of `stock` blank
/// ones. Both are rounded up to powers of two, at least 1.
///
/// # Errors
/// More than a ring can have.
pub fn exchange<T: Send>(
    waker: Waker,
    frames: usize,
    stock: usize,
) -> Result<(Station<T>, Depot<T>), CapacityError> {
    let ring = |items: usize| {
        ring::ring(items.checked_next_power_of_two().ok_or(CapacityError { capacity: items })?)
    };
    let (home_in, home) = ring(frames)?;
    let (stock_in, stock_out) = ring(stock)?;
    let shared = Arc::new(Shared {
        home: CachePadded::new(Mutex::new(Home { ring: home_in, closed: false })),
        stock: CachePadded::new(Mutex::new(stock_out)),
        longest: AtomicUsize::new(0),
    });
    Ok((
        Station { shared: Arc::clone(&shared), waker, stock: stock_in.capacity() },
        Depot { shared, home, stock: stock_in, short: false },
    ))
}

impl<T: Send> Station<T> {
    /// Gives a burst to the worker, in order, and wakes it; says how many went. What stays in `burst` has no home any
    /// more: the worker has ended.
    #[inline]
    pub fn give<const N: usize>(&self, burst: &mut ArrayVec<T, N>) -> usize {
        let given = {
            let mut home = lock(&self.shared.home);
            if home.closed {
                return 0;
            }
            home.ring.push_burst(burst)
        };
        debug_assert!(burst.is_empty(), "the ring home holds all frames there are");
        self.waker.wake();
        given
    }

    /// Takes up to `wanted` blank ones, as far as `into` has room; says how many.
    pub fn take<const N: usize>(&self, into: &mut ArrayVec<T, N>, wanted: usize) -> usize {
        let room = into.remaining_capacity().min(wanted);
        let (taken, low) = {
            let mut stock = lock(&self.shared.stock);
            let before = into.len();
            into.extend(std::iter::from_fn(|| stock.pop()).take(room));
            (into.len() - before, is_low(stock.len(), self.stock))
        };
        if low {
            self.waker.wake();
        }
        taken
    }

    /// The longest frame the worker's port sends, bytes; 0 before there is a worker.
    #[inline]
    pub fn longest(&self) -> usize {
        // Relaxed: a number that is written once, before the first frame goes anywhere.
        self.shared.longest.load(Ordering::Relaxed)
    }
}

/// Is it time to fill the stock up?
#[inline]
fn is_low(len: usize, capacity: usize) -> bool {
    len * 2 < capacity
}

impl<T: Send> Depot<T> {
    /// Moves what came home to the end of `into`, as many as fit; says how many.
    #[inline]
    pub fn receive<const N: usize>(&mut self, into: &mut ArrayVec<T, N>) -> usize {
        self.home.pop_burst(into)
    }

    /// How many blank ones the stock lacks, once that is more than half.
    #[inline]
    pub fn lacks(&mut self) -> usize {
        let capacity = self.stock.capacity();
        let room = self.stock.room(capacity);
        if is_low(capacity - room, capacity) { room } else { 0 }
    }

    /// Adds blank ones to the stock; what does not fit stays. To be called whenever it [lacks](Depot::lacks) some, also
    /// with none at hand: a worker without memory need not stay awake for it.
    pub fn fill<const N: usize>(&mut self, blank: &mut ArrayVec<T, N>) {
        self.stock.push_burst(blank);
        self.short = self.lacks() > 0;
    }

    /// Is there nothing to do for the worker? The question to ask again after announcing sleep (see [`crate::wake`]).
    #[inline]
    pub fn is_quiet(&mut self) -> bool {
        self.home.is_empty() && (self.short || self.lacks() == 0)
    }

    /// Says how long a frame may be that the worker's port shall send.
    pub fn set_longest(&self, bytes: usize) {
        self.shared.longest.store(bytes, Ordering::Relaxed);
    }

    /// Ends it for the sockets, and passes everything that lies in the rings to `back`.
    pub fn close(&mut self, mut back: impl FnMut(T)) {
        // From here on nobody gives anything; what was given before is in the ring.
        lock(&self.shared.home).closed = true;
        while let Some(item) = self.home.pop() {
            back(item);
        }
        let mut stock = lock(&self.shared.stock);
        while let Some(item) = stock.pop() {
            back(item);
        }
    }
}

impl<T> Drop for Depot<T> {
    fn drop(&mut self) {
        lock(&self.shared.home).closed = true;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::wake;

    fn made(frames: usize, stock: usize) -> (Station<u32>, Depot<u32>) {
        let (waker, _) = wake::pair().unwrap();
        exchange(waker, frames, stock).unwrap()
    }

    #[test]
    fn what_is_given_comes_home_in_order() {
        let (station, mut depot) = made(8, 1);
        let second = station.clone();
        depot.fill(&mut ArrayVec::<u32, 1>::new());
        assert!(depot.is_quiet());
        let mut burst: ArrayVec<u32, 4> = (0..4).collect();
        assert_eq!(station.give(&mut burst), 4);
        burst.extend(4..8);
        assert_eq!(second.give(&mut burst), 4);
        assert!(!depot.is_quiet());
        let mut home = ArrayVec::<u32, 16>::new();
        assert_eq!(depot.receive(&mut home), 8);
        assert!(home.iter().copied().eq(0..8));
        assert!(depot.is_quiet());
    }

    #[test]
    fn the_stock_is_filled_up_when_it_is_half_empty() {
        let (station, mut depot) = made(8, 4);
        assert!(!depot.is_quiet(), "it is empty");
        assert_eq!(depot.lacks(), 4);
        let mut blank: ArrayVec<u32, 8> = (0..6).collect();
        depot.fill(&mut blank);
        assert_eq!(blank.as_slice(), [4, 5], "no room for them");
        assert!(depot.is_quiet());
        let mut taken = ArrayVec::<u32, 8>::new();
        assert_eq!(station.take(&mut taken, 2), 2);
        assert_eq!(depot.lacks(), 0, "half of it is left");
        assert_eq!(station.take(&mut taken, 1), 1);
        assert!(!depot.is_quiet());
        assert_eq!(depot.lacks(), 3);
        depot.fill(&mut ArrayVec::<u32, 8>::new());
        assert!(depot.is_quiet(), "there is nothing to fill it with, so the worker may sleep");
        assert_eq!(station.take(&mut taken, 9), 1);
        assert_eq!(taken.as_slice(), [0, 1, 2, 3]);
    }

    #[test]
    fn a_worker_that_ends_takes_everything_and_takes_no_more() {
        let (station, mut depot) = made(4, 2);
        let mut burst: ArrayVec<u32, 4> = (0..2).collect();
        station.give(&mut burst);
        burst.extend([7, 8]);
        depot.fill(&mut burst);
        let mut back = Vec::new();
        depot.close(|item| back.push(item));
        assert_eq!(back, [0, 1, 7, 8]);
        burst.push(3);
        assert_eq!((station.give(&mut burst), burst.as_slice()), (0, &[3][..]));
        assert_eq!(station.take(&mut burst, 1), 0);
        drop(depot);
        assert_eq!(station.give(&mut burst), 0);
    }

    #[test]
    fn sizes_that_no_ring_has_are_refused() {
        let (waker, _) = wake::pair().unwrap();
        for (frames, stock) in [(usize::MAX, 0), (ring::MOST_ITEMS + 1, 0), (1, ring::MOST_ITEMS + 1)] {
            assert!(exchange::<u32>(waker.clone(), frames, stock).is_err());
        }
    }
}
