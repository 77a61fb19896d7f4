//! Socket memory: how many bytes may wait in one socket and in all sockets together.
//!
//! ```text
//!   Pool (shared by all sockets; one atomic)          used <= limit
//!     │ ▲   in quanta
//!     ▼ │
//!   Account (one socket's; under its lock)            charged <= limit
//!     forward   got from the pool, not used yet
//!     charged   items in the queues
//!     ▲
//!     │ in bulk, when a quarter of the limit has gathered or nothing is left to read: one store by the reader,
//!     │ settled by whoever next holds the lock
//!   Gathered (the reader's own; no lock, no atomic)   given free, not yet released
//! ```
//! The kernel learned the same in steps: until 4.9 every datagram read took the socket lock to give its bytes back, and
//! that lock was 70 % of a flooded receiver's time; since 4.11 the reader gathers them (`udp_rmem_release` in
//! `net/ipv4/udp.c`, `forward_deficit`). The price is the same as there: bytes that the reader holds gathered still count
//! as charged, so up to a quarter of the limit may be refused although nothing waits.
//!
//! Unlike the kernel, neither limit is ever exceeded: an item is charged before it is taken in, or is refused.

use crossbeam_utils::CachePadded;

use crate::primitive::{Arc, AtomicUsize, Ordering};

/// What a charge is at least, bytes: what bounds the number of items, and with it the size of the ring they lie in.
///
/// Lower: a ring with more slots than the limit ever fills, whose cache lines are all walked through in turn (at 64, a
/// quarter of the rate was lost). Higher: small items are charged for more than they take. The kernel's least is 768
/// (an sk_buff and its smallest data), a frame of AF_XDP has 2048.
pub const MIN_CHARGE: usize = 512;

/// What an account takes from and returns to the pool at once, bytes.
///
/// Lower: the pool's cache line moves between CPUs for every few datagrams (the kernel takes a page, five small ones).
/// Higher: each socket that had traffic may keep that much of the pool unused.
pub const QUANTUM: usize = 16 << 10;

/// The share of an account's limit that the reader gathers before it releases: one quarter, as in the kernel.
///
/// A smaller share: the reader takes the producers' lock more often. A larger one: producers are refused while
/// bytes lie with the reader.
pub const RELEASE_SHARE: usize = 4;

/// Something that takes memory while it waits.
pub trait Charged {
    /// How many bytes it is charged for: those it keeps others from using, not those of its payload. Less than
    /// [`MIN_CHARGE`] counts as that.
    fn charge(&self) -> usize;
}

/// Why an item was not taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Denied {
    /// This socket's limit.
    SocketFull,
    /// All sockets' limit.
    PoolFull,
}

/// The memory that sockets share (the kernel's `net.ipv4.udp_mem`). A clone is the same pool.
#[derive(Debug, Clone)]
pub struct Pool {
    shared: Arc<PoolShared>,
}

#[derive(Debug)]
struct PoolShared {
    limit: usize,
    /// Alone on its cache line: all workers write it.
    used: CachePadded<AtomicUsize>,
}

impl Pool {
    /// A pool of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { shared: Arc::new(PoolShared { limit, used: CachePadded::new(AtomicUsize::new(0)) }) }
    }

    /// The most bytes it gives out.
    pub fn limit(&self) -> usize {
        self.shared.limit
    }

    /// The bytes given out now, whether charged or kept forward by a socket.
    pub fn used(&self) -> usize {
        self.shared.used.load(Ordering::Relaxed)
    }

    fn reserve(&self, bytes: usize) -> bool {
        let limit = self.shared.limit;
        // Relaxed throughout: it is a sum, nothing is published by it.
        (self.shared.used)
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|used| *used <= limit)
            })
            .is_ok()
    }

    fn release(&self, bytes: usize) {
        if bytes > 0 {
            self.shared.used.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

/// How an account deals with its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dealing {
    /// Every charge and release goes to the pool at once, to the byte.
    Exact,
    /// In quanta, of which one is kept.
    Quanta,
}

/// One socket's memory; lives under the socket's lock.
#[derive(Debug)]
pub(super) struct Account {
    limit: usize,
    charged: usize,
    forward: usize,
    dealing: Dealing,
    pool: Pool,
}

impl Account {
    pub(super) fn new(limit: usize, dealing: Dealing, pool: Pool) -> Self {
        Self { limit, charged: 0, forward: 0, dealing, pool }
    }

    /// Bytes of the items that are queued, or that the reader took and has not released.
    #[inline]
    pub(super) fn charged(&self) -> usize {
        self.charged
    }

    #[inline]
    pub(super) fn charge(&mut self, bytes: usize) -> Result<(), Denied> {
        if bytes > self.limit - self.charged {
            return Err(Denied::SocketFull);
        }
        if bytes > self.forward {
            self.forward += self.fetch(bytes - self.forward).ok_or(Denied::PoolFull)?;
        }
        self.forward -= bytes;
        self.charged += bytes;
        Ok(())
    }

    /// `bytes` were charged before and are free now.
    #[inline]
    pub(super) fn release(&mut self, bytes: usize) {
        self.charged -= bytes;
        self.forward += bytes;
        let surplus = match self.dealing {
            Dealing::Exact => self.forward,
            Dealing::Quanta => self.forward.saturating_sub(QUANTUM),
        };
        self.forward -= surplus;
        self.pool.release(surplus);
    }

    /// Gives everything back to the pool, also what items are charged that are still to be given free: nothing is charged
    /// from here on, and nothing may be released.
    pub(super) fn close(&mut self) {
        self.pool.release(std::mem::take(&mut self.forward) + std::mem::take(&mut self.charged));
    }

    /// Gets at least `needed` bytes from the pool: more, if there are more, so as not to come back soon.
    #[cold]
    fn fetch(&self, needed: usize) -> Option<usize> {
        let wanted = match self.dealing {
            Dealing::Exact => needed,
            Dealing::Quanta => needed.next_multiple_of(QUANTUM),
        };
        [wanted, needed].into_iter().find(|bytes| self.pool.reserve(*bytes))
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.close();
    }
}

/// What the reader has taken and not yet released; its own, so adding to it costs nothing.
#[derive(Debug)]
pub(super) struct Gathered {
    bytes: usize,
    /// From here on it is worth taking the lock.
    enough: usize,
}

impl Gathered {
    pub(super) fn new(limit: usize) -> Self {
        Self { bytes: 0, enough: limit / RELEASE_SHARE }
    }

    #[inline]
    pub(super) fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Is there so much that it shall be released even while there is more to read?
    #[inline]
    pub(super) fn is_enough(&self) -> bool {
        self.bytes >= self.enough
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// What is to be released now, all of it.
    #[inline]
    pub(super) fn take(&mut self) -> usize {
        std::mem::take(&mut self.bytes)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quanta_are_taken_kept_and_returned() {
        let pool = Pool::new(4 * QUANTUM);
        let mut account = Account::new(3 * QUANTUM, Dealing::Quanta, pool.clone());
        assert_eq!(account.charge(100), Ok(()));
        assert_eq!((account.charged(), pool.used()), (100, QUANTUM));
        assert_eq!(account.charge(QUANTUM), Ok(()));
        assert_eq!(pool.used(), 2 * QUANTUM);
        account.release(QUANTUM + 100);
        assert_eq!((account.charged(), pool.used()), (0, QUANTUM), "one is kept for the next datagram");
        drop(account);
        assert_eq!(pool.used(), 0);
    }

    #[test]
    fn exact_dealing_keeps_nothing() {
        let pool = Pool::new(1000);
        let mut account = Account::new(500, Dealing::Exact, pool.clone());
        assert_eq!(account.charge(300), Ok(()));
        assert_eq!(pool.used(), 300);
        account.release(300);
        assert_eq!(pool.used(), 0);
    }

    #[test]
    fn the_limit_that_denies_is_named() {
        let pool = Pool::new(1000);
        let mut first = Account::new(800, Dealing::Quanta, pool.clone());
        let mut second = Account::new(800, Dealing::Quanta, pool.clone());
        assert_eq!(first.charge(800), Ok(()), "less than a quantum is left, and enough");
        assert_eq!(first.charge(1), Err(Denied::SocketFull));
        assert_eq!(second.charge(201), Err(Denied::PoolFull));
        assert_eq!(second.charge(200), Ok(()));
        assert_eq!((pool.used(), pool.limit()), (1000, 1000));
        assert_eq!(first.charge(usize::MAX), Err(Denied::SocketFull));
    }

    proptest! {
        #[test]
        fn sums_hold_and_limits_are_never_exceeded(
            limit in 1_usize..200_000, pool_limit in 1_usize..200_000, exact: bool,
            steps in prop::collection::vec((any::<bool>(), 1_usize..40_000), 1..100),
        ) {
            let pool = Pool::new(pool_limit);
            let dealing = if exact { Dealing::Exact } else { Dealing::Quanta };
            let mut account = Account::new(limit, dealing, pool.clone());
            let mut charged = Vec::new();
            for (add, bytes) in steps {
                if add {
                    let sum: usize = charged.iter().sum();
                    match account.charge(bytes) {
                        Ok(()) => charged.push(bytes),
                        Err(Denied::SocketFull) => prop_assert!(sum + bytes > limit),
                        Err(Denied::PoolFull) => prop_assert!(sum + bytes > pool_limit),
                    }
                } else if let Some(bytes) = charged.pop() {
                    account.release(bytes);
                }
                prop_assert_eq!(account.charged(), charged.iter().sum::<usize>());
                prop_assert!(account.charged() <= limit);
                prop_assert_eq!(pool.used(), account.charged() + account.forward);
                prop_assert!(pool.used() <= pool_limit);
            }
            drop(account);
            prop_assert_eq!(pool.used(), 0);
        }
    }
}
