//! Between the sockets and one worker: frames on their way back, and free frames for datagrams that sockets send
//! first.
//!
//! ```text
//!   socket a ─┐  lock, once per burst                    worker
//!   socket b ─┼─▸ returned: done with, or to be sent ──▸ its port: sent, or recycled
//!   socket c ─┘◂─ free frames ◂───────────────────────── its port's pool, refilled at the end of a poll
//! ```
//! - **Returned frames** go through a ring with room for all frames of the worker's port, so it is never full and no
//!   reader ever waits. The lock is between sockets; the worker takes frames out without it. The worker is woken once
//!   per burst.
//! - **Free frames** go through a ring in the other direction: the worker refills it without a lock, sockets take
//!   from it under one. A socket that leaves it less than half full wakes the worker to refill it.
//! - **The worker ends first**: [`ReturnQueue::close`] gives back the frames in both rings. From then on, frames that
//!   sockets push stay with them, and the sockets are informed.
//! - Both sides agree on every frame: it is pushed and then comes out of the queue, or it stays with the socket.
//!   Never both.

use arrayvec::ArrayVec;
use crossbeam_utils::CachePadded;

use crate::primitive::{Arc, AtomicUsize, Mutex, Ordering, lock};
use crate::ring::{self, CapacityError, Consumer, Producer};
use crate::wake::Waker;

/// State shared by both sides.
struct Shared<T> {
    returned: CachePadded<Mutex<Returned<T>>>,
    free: CachePadded<Mutex<Consumer<T>>>,
    /// The longest frame that the worker's port sends, bytes; 0 before the worker exists.
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
    /// Capacity of the ring of free frames.
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
    /// The last refill did not fill the ring: the pool had no more frames.
    starved: bool,
}

/// Creates both sides for a worker that `waker` wakes: room for `frames` returned frames, and for `free` free ones.
/// Both are rounded up to powers of two, at least 1.
///
/// # Errors
/// More than a ring can hold.
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
    /// Returns a burst to the worker, in order, and wakes it; returns how many items went. What stays in `burst`
    /// cannot be returned any more: the worker has ended.
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

    /// Takes up to `wanted` free frames, as far as `into` has room; returns how many.
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
        // Relaxed: a plain number, first written before the first frame is delivered.
        self.shared.max_frame_len.load(Ordering::Relaxed)
    }
}

/// Whether it is time to refill.
#[inline]
fn is_low(len: usize, capacity: usize) -> bool {
    len * 2 < capacity
}

impl<T: Send> ReturnQueue<T> {
    /// Appends returned frames to `into`, as many as fit; returns how many.
    #[inline]
    pub fn receive<const N: usize>(&mut self, into: &mut ArrayVec<T, N>) -> usize {
        self.returned.pop_burst(into)
    }

    /// How many free frames are missing, once that is more than half.
    #[inline]
    pub fn shortage(&mut self) -> usize {
        let capacity = self.free.capacity();
        let room = self.free.room(capacity);
        if is_low(capacity - room, capacity) { room } else { 0 }
    }

    /// Adds free frames; what does not fit stays in `frames`. Call it whenever there is a
    /// [shortage](ReturnQueue::shortage), even with no frames at hand: a worker whose pool is empty need not stay
    /// awake for it.
    pub fn fill<const N: usize>(&mut self, frames: &mut ArrayVec<T, N>) {
        self.free.push_burst(frames);
        self.starved = self.shortage() > 0;
    }

    /// Whether the worker has nothing to do here. Check it again after announcing sleep (see [`crate::wake`]).
    #[inline]
    pub fn is_idle(&mut self) -> bool {
        self.returned.is_empty() && (self.starved || self.shortage() == 0)
    }

    /// Publishes the length of the longest frame that the worker's port sends.
    pub fn set_max_frame_len(&self, bytes: usize) {
        self.shared.max_frame_len.store(bytes, Ordering::Relaxed);
    }

    /// Closes the queue for the sockets, and passes every frame in the rings to `back`.
    pub fn close(&mut self, mut back: impl FnMut(T)) {
        // From here on nothing is pushed; what was pushed before is in the ring.
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
        assert_eq!(free.as_slice(), [4, 5], "they did not fit");
        assert!(return_queue.is_idle());
        let mut taken = ArrayVec::<u32, 8>::new();
        assert_eq!(return_handle.take_free(&mut taken, 2), 2);
        assert_eq!(return_queue.shortage(), 0, "half are left");
        assert_eq!(return_handle.take_free(&mut taken, 1), 1);
        assert!(!return_queue.is_idle());
        assert_eq!(return_queue.shortage(), 3);
        return_queue.fill(&mut ArrayVec::<u32, 8>::new());
        assert!(return_queue.is_idle(), "the pool is empty, so the worker may sleep");
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
