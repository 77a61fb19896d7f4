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
//! - **The worker ends first**: [`ReturnQueue::close`] gives back what lies in both rings. From then on what sockets want to give
//!   stays with them, and they are told.
//! - Both sides see one order: an item is given, and then comes out of the return_queue, or it stays with the giver. Never both.

use arrayvec::ArrayVec;
use crossbeam_utils::CachePadded;

use crate::primitive::{Arc, AtomicUsize, Mutex, Ordering, lock};
use crate::ring::{self, CapacityError, Consumer, Producer};
use crate::wake::Waker;

/// What both sides share.
struct Shared<T> {
    returned: CachePadded<Mutex<Returned<T>>>,
    free: CachePadded<Mutex<Consumer<T>>>,
    /// The longest frame the worker's port sends, bytes; 0 before there is a worker.
    max_frame_len: AtomicUsize,
}

struct Returned<T> {
    ring: Producer<T>,
    /// The worker has ended.
    closed: bool,
}

/// The sockets' side; each socket has a clone.
pub struct ReturnHandle<T> {
    shared: Arc<Shared<T>>,
    waker: Waker,
    /// What the stock holds when it is full.
    free: usize,
}

impl<T> Clone for ReturnHandle<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), waker: self.waker.clone(), free: self.free }
    }
}

/// The worker's side.
pub struct ReturnQueue<T> {
    shared: Arc<Shared<T>>,
    returned: Consumer<T>,
    free: Producer<T>,
    /// The stock was not filled up when last tried: nothing was there to fill it with.
    starved: bool,
}

/// Makes both sides for a worker that `waker` wakes: room for `frames` on their way home, and a stock of `stock` blank
/// ones. Both are rounded up to powers of two, at least 1.
///
/// # Errors
/// More than a ring can have.
pub fn pair<T: Send>(
    waker: Waker,
    frames: usize,
    free: usize,
) -> Result<(ReturnHandle<T>, ReturnQueue<T>), CapacityError> {
    let ring = |items: usize| {
        ring::ring(items.checked_next_power_of_two().ok_or(CapacityError { capacity: items })?)
    };
    let (returned_in, returned) = ring(frames)?;
    let (free_in, free_out) = ring(free)?;
    let shared = Arc::new(Shared {
        returned: CachePadded::new(Mutex::new(Returned { ring: returned_in, closed: false })),
        free: CachePadded::new(Mutex::new(free_out)),
        max_frame_len: AtomicUsize::new(0),
    });
    Ok((
        ReturnHandle { shared: Arc::clone(&shared), waker, free: free_in.capacity() },
        ReturnQueue { shared, returned, free: free_in, starved: false },
    ))
}

impl<T: Send> ReturnHandle<T> {
    /// Gives a burst to the worker, in order, and wakes it; says how many went. What stays in `burst` has no home any
    /// more: the worker has ended.
    #[inline]
    pub fn push<const N: usize>(&self, burst: &mut ArrayVec<T, N>) -> usize {
        let given = {
            let mut returned = lock(&self.shared.returned);
            if returned.closed {
                return 0;
            }
            returned.ring.push_burst(burst)
        };
        debug_assert!(burst.is_empty(), "the return ring has room for every frame");
        self.waker.wake();
        given
    }

    /// Takes up to `wanted` blank ones, as far as `into` has room; says how many.
    pub fn take_free<const N: usize>(&self, into: &mut ArrayVec<T, N>, wanted: usize) -> usize {
        let room = into.remaining_capacity().min(wanted);
        let (taken, low) = {
            let mut free = lock(&self.shared.free);
            let before = into.len();
            into.extend(std::iter::from_fn(|| free.pop()).take(room));
            (into.len() - before, is_low(free.len(), self.free))
        };
        if low {
            self.waker.wake();
        }
        taken
    }

    /// The longest frame the worker's port sends, bytes; 0 before there is a worker.
    #[inline]
    pub fn max_frame_len(&self) -> usize {
        // Relaxed: a number that is written once, before the first frame goes anywhere.
        self.shared.max_frame_len.load(Ordering::Relaxed)
    }
}

/// Is it time to fill the stock up?
#[inline]
fn is_low(len: usize, capacity: usize) -> bool {
    len * 2 < capacity
}

impl<T: Send> ReturnQueue<T> {
    /// Moves what came home to the end of `into`, as many as fit; says how many.
    #[inline]
    pub fn receive<const N: usize>(&mut self, into: &mut ArrayVec<T, N>) -> usize {
        self.returned.pop_burst(into)
    }

    /// How many blank ones the stock lacks, once that is more than half.
    #[inline]
    pub fn shortage(&mut self) -> usize {
        let capacity = self.free.capacity();
        let room = self.free.room(capacity);
        if is_low(capacity - room, capacity) { room } else { 0 }
    }

    /// Adds blank ones to the stock; what does not fit stays. To be called whenever it [lacks](ReturnQueue::shortage) some, also
    /// with none at hand: a worker without memory need not stay awake for it.
    pub fn fill<const N: usize>(&mut self, frames: &mut ArrayVec<T, N>) {
        self.free.push_burst(frames);
        self.starved = self.shortage() > 0;
    }

    /// Is there nothing to do for the worker? The question to ask again after announcing sleep (see [`crate::wake`]).
    #[inline]
    pub fn is_idle(&mut self) -> bool {
        self.returned.is_empty() && (self.starved || self.shortage() == 0)
    }

    /// Says how long a frame may be that the worker's port shall send.
    pub fn set_max_frame_len(&self, bytes: usize) {
        self.shared.max_frame_len.store(bytes, Ordering::Relaxed);
    }

    /// Ends it for the sockets, and passes everything that lies in the rings to `back`.
    pub fn close(&mut self, mut back: impl FnMut(T)) {
        // From here on nobody gives anything; what was given before is in the ring.
        lock(&self.shared.returned).closed = true;
        while let Some(item) = self.returned.pop() {
            back(item);
        }
        let mut free = lock(&self.shared.free);
        while let Some(item) = free.pop() {
            back(item);
        }
    }
}

impl<T> Drop for ReturnQueue<T> {
    fn drop(&mut self) {
        lock(&self.shared.returned).closed = true;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::wake;

    fn pair_of(frames: usize, free: usize) -> (ReturnHandle<u32>, ReturnQueue<u32>) {
        let (waker, _) = wake::pair().unwrap();
        pair(waker, frames, free).unwrap()
    }

    #[test]
    fn frames_are_returned_in_order() {
        let (return_handle, mut return_queue) = pair_of(8, 1);
        let second = return_handle.clone();
        return_queue.fill(&mut ArrayVec::<u32, 1>::new());
        assert!(return_queue.is_idle());
        let mut burst: ArrayVec<u32, 4> = (0..4).collect();
        assert_eq!(return_handle.push(&mut burst), 4);
        burst.extend(4..8);
        assert_eq!(second.push(&mut burst), 4);
        assert!(!return_queue.is_idle());
        let mut returned = ArrayVec::<u32, 16>::new();
        assert_eq!(return_queue.receive(&mut returned), 8);
        assert!(returned.iter().copied().eq(0..8));
        assert!(return_queue.is_idle());
    }

    #[test]
    fn free_frames_are_refilled_when_half_are_gone() {
        let (return_handle, mut return_queue) = pair_of(8, 4);
        assert!(!return_queue.is_idle(), "it is empty");
        assert_eq!(return_queue.shortage(), 4);
        let mut free: ArrayVec<u32, 8> = (0..6).collect();
        return_queue.fill(&mut free);
        assert_eq!(free.as_slice(), [4, 5], "no room for them");
        assert!(return_queue.is_idle());
        let mut taken = ArrayVec::<u32, 8>::new();
        assert_eq!(return_handle.take_free(&mut taken, 2), 2);
        assert_eq!(return_queue.shortage(), 0, "half of it is left");
        assert_eq!(return_handle.take_free(&mut taken, 1), 1);
        assert!(!return_queue.is_idle());
        assert_eq!(return_queue.shortage(), 3);
        return_queue.fill(&mut ArrayVec::<u32, 8>::new());
        assert!(return_queue.is_idle(), "there is nothing to fill it with, so the worker may sleep");
        assert_eq!(return_handle.take_free(&mut taken, 9), 1);
        assert_eq!(taken.as_slice(), [0, 1, 2, 3]);
    }

    #[test]
    fn a_closed_queue_gives_everything_back_and_takes_no_more() {
        let (return_handle, mut return_queue) = pair_of(4, 2);
        let mut burst: ArrayVec<u32, 4> = (0..2).collect();
        return_handle.push(&mut burst);
        burst.extend([7, 8]);
        return_queue.fill(&mut burst);
        let mut back = Vec::new();
        return_queue.close(|item| back.push(item));
        assert_eq!(back, [0, 1, 7, 8]);
        burst.push(3);
        assert_eq!((return_handle.push(&mut burst), burst.as_slice()), (0, &[3][..]));
        assert_eq!(return_handle.take_free(&mut burst, 1), 0);
        drop(return_queue);
        assert_eq!(return_handle.push(&mut burst), 0);
    }

    #[test]
    fn impossible_ring_sizes_are_refused() {
        let (waker, _) = wake::pair().unwrap();
        for (frames, free) in [(usize::MAX, 0), (ring::MAX_ITEMS + 1, 0), (1, ring::MAX_ITEMS + 1)] {
            assert!(pair::<u32>(waker.clone(), frames, free).is_err());
        }
    }
}
