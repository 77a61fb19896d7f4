//! Socket memory: how many bytes may wait in one socket, and in all sockets together.
//!
//! ```text
//!   Pool (shared by all sockets; one atomic)          used <= limit
//!     │ ▲   in quanta
//!     ▼ │
//!   Account (one socket's; under its lock)            charged <= limit
//!     forward   reserved from the pool, not used yet
//!     charged   items in the queues
//!     ▲
//!     │ in bulk, when a quarter of the limit has accumulated or nothing is left to read: one store by the reader,
//!     │ settled by the next holder of the lock
//!   Gathered (the reader's own; no lock, no atomic)   freed, not yet released
//! ```
//! The kernel arrived at the same design in steps: until 4.9 every datagram read took the socket lock to release its
//! bytes, and that lock was 70 % of a flooded receiver's time; since 4.11 the reader accumulates them
//! (`udp_rmem_release` in `net/ipv4/udp.c`, `forward_deficit`). The price is the same as there: bytes that the reader
//! has accumulated still count as charged, so up to a quarter of the limit may be refused although nothing waits.
//!
//! Unlike in the kernel, neither limit is ever exceeded: an item is charged before it is enqueued, or is refused.

use crossbeam_utils::CachePadded;

use crate::primitive::{Arc, AtomicUsize, Ordering};

/// The minimum charge, bytes. It bounds the number of items, and with it the size of the ring they are in.
///
/// Lower: a ring with more slots than the limit ever fills, whose cache lines are all cycled through (at 64, a
/// quarter of the throughput was lost). Higher: small items are charged for more than they use. The kernel's minimum
/// is 768 (an sk_buff and its smallest data), an AF_XDP frame has 2048.
pub const MIN_CHARGE: usize = 512;

/// How much an account reserves from and returns to the pool at once, bytes.
///
/// Lower: the pool's cache line moves between CPUs for every few datagrams (the kernel takes a page, five small
/// ones). Higher: each socket that had traffic may hold that much of the pool unused.
pub const QUANTUM: usize = 16 << 10;

/// The share of an account's limit that the reader accumulates before it releases: one quarter, as in the kernel.
///
/// A smaller share: the reader takes the producers' lock more often. A larger one: producers are refused while the
/// reader holds unreleased bytes.
pub const RELEASE_SHARE: usize = 4;

/// An item that uses memory while it waits.
pub trait Charged {
    /// The bytes it is charged for: those that are unavailable while it waits, not those of its payload. Less than
    /// [`MIN_CHARGE`] counts as that.
    fn charge(&self) -> usize;
}

/// Why an item was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Denied {
    /// This socket's limit.
    SocketFull,
    /// The limit of all sockets together.
    PoolFull,
}

/// The memory shared by sockets (the kernel's `net.ipv4.udp_mem`). A clone is the same pool.
#[derive(Debug, Clone)]
pub struct Pool {
    shared: Arc<PoolShared>,
}

#[derive(Debug)]
struct PoolShared {
    limit: usize,
    /// On its own cache line: all workers write it.
    used: CachePadded<AtomicUsize>,
}

impl Pool {
    /// A pool of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { shared: Arc::new(PoolShared { limit, used: CachePadded::new(AtomicUsize::new(0)) }) }
    }

    /// Its size, bytes.
    pub fn limit(&self) -> usize {
        self.shared.limit
    }

    /// Bytes reserved now, whether charged or held in advance by a socket.
    pub fn used(&self) -> usize {
        self.shared.used.load(Ordering::Relaxed)
    }

    fn reserve(&self, bytes: usize) -> bool {
        let limit = self.shared.limit;
        // Relaxed throughout: it is a sum that publishes nothing else.
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

/// How an account uses its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dealing {
    /// Every charge and release goes to the pool immediately, exact to the byte.
    Exact,
    /// In quanta, of which one is retained.
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

    /// Releases `bytes` that were charged before.
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

    /// Returns everything to the pool, including what items are charged that have not been released yet: from here on
    /// nothing may be charged or released.
    pub(super) fn close(&mut self) {
        self.pool.release(std::mem::take(&mut self.forward) + std::mem::take(&mut self.charged));
    }

    /// Reserves at least `needed` bytes from the pool: more, if available, to avoid another trip soon.
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

/// What the reader has taken and not yet released; private to it, so adding is free.
#[derive(Debug)]
pub(super) struct Gathered {
    bytes: usize,
    /// From this many bytes on, releasing is worth it.
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

    /// Whether there is enough to release even while there is more to read.
    #[inline]
    pub(super) fn is_enough(&self) -> bool {
        self.bytes >= self.enough
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Takes everything, to be released now.
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
