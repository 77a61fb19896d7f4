//! A bounded single-producer, single-consumer ring between two threads; neither side ever waits for the other.
//!
//! It carries frames between workers: to the backlog of the worker that serves the flow, and back to the worker that
//! owns their memory.
//!
//! ```text
//!            head (consumer's)            tail (producer's)
//!              │                            │
//!   ┌───┬───┬──▼┬───┬───┬───┬───┬───┬───┬───▼───┬───┐
//!   │   │   │ a │ b │ c │ d │ e │ f │ g │   │   │   │      slot of index i = i mod capacity
//!   └───┴───┴───┴───┴───┴───┴───┴───┴───┴───┴───┴───┘
//!              └── written, not yet read ─┘
//! ```
//! - `head` and `tail` only grow (and wrap around `usize`); each is written by one side only and has a cache line of
//!   its own. `tail - head` items are in the ring, never more than its capacity.
//! - Each side caches the last value it saw of the other's index and reloads it only when the cached value is not
//!   enough for the request. **An index is published once per burst**, so a burst costs one transfer of each index's
//!   cache line, whatever its length.
//! - Publishing `tail` (release) hands the slots before it to the consumer; publishing `head` hands the slots before
//!   it back. In between, a slot belongs to exactly one side; that is the whole safety argument (`sys`).
//! - A full ring accepts no more: what does not fit **stays with the caller**, who counts it as dropped, for a reason
//!   that only the caller knows. Items left in the ring when both ends are gone are dropped with it.
//!
//! ```
//! use arrayvec::ArrayVec;
//! use udpath_stack::ring;
//!
//! let (mut producer, mut consumer) = ring::ring(4)?;
//! let mut burst: ArrayVec<u32, 32> = (0..6).collect();
//! assert_eq!(producer.push_burst(&mut burst), 4);
//! assert_eq!(burst.as_slice(), [4, 5], "did not fit, still ours: count them as dropped");
//!
//! let mut arrived: ArrayVec<u32, 32> = ArrayVec::new();
//! assert_eq!(consumer.pop_burst(&mut arrived), 4);
//! assert_eq!(arrived.as_slice(), [0, 1, 2, 3]);
//! # Ok::<(), ring::CapacityError>(())
//! ```

mod sys;

use arrayvec::ArrayVec;

pub use sys::{Consumer, Producer};

/// The largest capacity of a ring, items.
///
/// Higher: a typo in a configuration reserves gigabytes. Lower: a backlog of one second at 10 Mpps no longer fits,
/// which is more than any server should queue.
pub const MAX_ITEMS: usize = 1 << 24;

/// Invalid ring capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cannot create a ring of {capacity} items: expected a power of two from 1 to {MAX_ITEMS}")]
pub struct CapacityError {
    /// The requested capacity, items.
    pub capacity: usize,
}

/// Creates a ring of `capacity` items, a power of two up to [`MAX_ITEMS`]. All memory is allocated here.
pub fn ring<T: Send>(capacity: usize) -> Result<(Producer<T>, Consumer<T>), CapacityError> {
    if !capacity.is_power_of_two() || capacity > MAX_ITEMS {
        return Err(CapacityError { capacity });
    }
    Ok(sys::ends(capacity))
}

impl<T: Send> Producer<T> {
    /// Moves items of `burst` into the ring, in order, as far as there is room; returns how many.
    ///
    /// The rest stays in `burst`, in order, for the caller to count and dispose of.
    #[inline]
    pub fn push_burst<const N: usize>(&mut self, burst: &mut ArrayVec<T, N>) -> usize {
        let room = self.room(burst.len());
        self.push_from(&mut burst.drain(..room))
    }

    /// Pushes one item, or returns it if the ring is full. Prefer bursts.
    #[inline]
    pub fn push(&mut self, item: T) -> Result<(), T> {
        if self.room(1) == 0 {
            return Err(item);
        }
        self.push_from(&mut std::iter::once(item));
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_capacity_is_a_power_of_two_within_bounds() {
        for capacity in [0, 3, 6, 100, MAX_ITEMS * 2] {
            assert_eq!(ring::<u8>(capacity).err(), Some(CapacityError { capacity }));
        }
        let message = ring::<u8>(3).err().map(|error| error.to_string());
        assert!(message.is_some_and(|message| message.contains("of 3 items")));
        assert_eq!(ring::<u8>(1).map(|(producer, _)| producer.capacity()), Ok(1));
    }

    #[test]
    fn what_does_not_fit_stays_with_the_caller_in_order() -> Result<(), CapacityError> {
        let (mut producer, mut consumer) = ring(4)?;
        let mut burst: ArrayVec<_, 8> = (0..7).collect();
        assert_eq!(producer.push_burst(&mut burst), 4);
        assert_eq!(burst.as_slice(), [4, 5, 6]);
        assert_eq!(producer.push_burst(&mut burst), 0);
        assert_eq!(producer.push(9), Err(9));

        let mut two: ArrayVec<_, 2> = ArrayVec::new();
        assert_eq!(consumer.pop_burst(&mut two), 2);
        assert_eq!(consumer.pop_burst(&mut two), 0, "the destination is full as well");
        assert_eq!(two.as_slice(), [0, 1]);

        let mut rest = 4..100;
        assert_eq!(producer.push_from(&mut rest), 2);
        assert_eq!(rest, 6..100, "an iterator is asked only for what fits");
        assert_eq!(std::iter::from_fn(|| consumer.pop()).collect::<Vec<_>>(), [2, 3, 4, 5]);
        assert!(consumer.is_empty());
        Ok(())
    }

    #[test]
    fn what_is_left_is_dropped_with_the_ring() -> Result<(), CapacityError> {
        let item = Arc::new(());
        let (mut producer, mut consumer) = ring(8)?;
        for _ in 0..6 {
            assert!(producer.push(Arc::clone(&item)).is_ok());
        }
        drop(consumer.pop());
        drop(producer);
        assert_eq!(Arc::strong_count(&item), 6);
        drop(consumer);
        assert_eq!(Arc::strong_count(&item), 1);
        Ok(())
    }

    #[test]
    fn an_iterator_that_panics_leaves_the_ring_usable() -> Result<(), CapacityError> {
        let (mut producer, mut consumer) = ring(4)?;
        let pushed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            producer.push_from(&mut (0..3).map(|n| if n == 2 { panic!("third item") } else { n }))
        }));
        assert!(pushed.is_err());
        assert_eq!(consumer.pop(), None, "nothing of a broken burst is published");
        assert_eq!(producer.push_from(&mut [7, 8].into_iter()), 2);
        assert_eq!([consumer.pop(), consumer.pop(), consumer.pop()], [Some(7), Some(8), None]);
        Ok(())
    }

    proptest! {
        #[test]
        fn behaves_as_a_bounded_queue(steps in prop::collection::vec((any::<bool>(), 0_usize..12), 1..200)) {
            let Ok((mut producer, mut consumer)) = ring(8) else { return Err(TestCaseError::fail("capacity")) };
            let mut model = VecDeque::new();
            let mut next = 0_u32;
            for (push, count) in steps {
                if push {
                    let mut burst: ArrayVec<_, 16> = (next..).take(count).collect();
                    next += u32::try_from(count).unwrap_or_default();
                    let fits = count.min(8 - model.len());
                    model.extend(burst[..fits].iter().copied());
                    prop_assert_eq!(producer.push_burst(&mut burst), fits);
                    prop_assert_eq!(burst.len(), count - fits);
                } else {
                    let mut burst: ArrayVec<_, 5> = ArrayVec::new();
                    prop_assert_eq!(consumer.pop_burst(&mut burst), model.len().min(5));
                    for item in burst {
                        prop_assert_eq!(Some(item), model.pop_front());
                    }
                }
                prop_assert_eq!(consumer.len(), model.len());
            }
        }
    }

    #[test]
    fn two_threads_lose_and_invent_nothing() -> Result<(), CapacityError> {
        let (mut producer, mut consumer) = ring::<Box<u64>>(64)?;
        let end = Instant::now() + Duration::from_millis(300);
        let (sent, received) = std::thread::scope(|scope| {
            let writer = scope.spawn(move || {
                let mut next = 0;
                let mut burst: ArrayVec<_, 32> = ArrayVec::new();
                while Instant::now() < end {
                    while !burst.is_full() {
                        burst.push(Box::new(next));
                        next += 1;
                    }
                    producer.push_burst(&mut burst);
                    if burst.is_full() {
                        std::thread::yield_now();
                    }
                }
                next - burst.len() as u64
            });
            let mut expected = 0;
            let mut receive = || {
                let mut burst: ArrayVec<_, 16> = ArrayVec::new();
                let came = consumer.pop_burst(&mut burst);
                for item in burst {
                    assert_eq!(*item, expected);
                    expected += 1;
                }
                came
            };
            while receive() > 0 || !writer.is_finished() {}
            // That it has finished orders nothing: only after the join is its last burst sure to be seen.
            let sent = writer.join();
            while receive() > 0 {}
            (sent, expected)
        });
        assert_eq!(sent.ok(), Some(received));
        Ok(())
    }
}
