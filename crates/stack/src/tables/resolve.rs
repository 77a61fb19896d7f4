//! Requests neighbour resolution from the kernel and waits for it off the packet path.

use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::{NoPath, Path, Tables, View};
use crate::epoch::Reader;
use crate::primitive::{Arc, Event, Mutex, lock};

/// Maximum number of neighbours pending at once.
///
/// Fewer: an application that starts with many peers at once is delayed. More: a burst to addresses that do not exist
/// fills the kernel's neighbour table (1,024 entries by default), and real neighbours are evicted.
const MAX_PENDING: usize = 256;

/// How long [`Resolver::path`] waits before it retries the same neighbour: as long as the kernel waits for an answer
/// (`retrans_time_ms`, 1 s).
///
/// Shorter: redundant requests, the kernel is still resolving. Longer: a lost request delays the first datagram.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// How often [`Resolver::path`] checks.
///
/// Shorter: takes CPU time from the threads it waits for. Longer: adds latency to the first datagram to a new peer;
/// answers on a local network take about 100 us.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Requests for the mirror's thread.
#[derive(Debug)]
pub(super) struct Requests {
    waiting: Mutex<Waiting>,
    /// Wakes the mirror's thread.
    pub(super) event: Event,
}

#[derive(Debug, Default)]
struct Waiting {
    neighbours: Vec<(u32, IpAddr)>,
    stop: bool,
}

impl Requests {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self { waiting: Mutex::new(Waiting::default()), event: Event::new()? })
    }

    /// Takes the pending requests; `None` if it is time to stop.
    pub(super) fn take(&self) -> Option<Vec<(u32, IpAddr)>> {
        self.event.take();
        let mut waiting = lock(&self.waiting);
        (!waiting.stop).then(|| std::mem::take(&mut waiting.neighbours))
    }

    pub(super) fn is_stopped(&self) -> bool {
        lock(&self.waiting).stop
    }

    /// Stops the thread; later requests are rejected.
    pub(super) fn stop(&self) {
        lock(&self.waiting).stop = true;
        self.event.signal();
    }
}

/// Requests neighbour resolution from the kernel. A clone uses the same mirror. Needs `CAP_NET_ADMIN`, as
/// AF_XDP does.
#[derive(Clone)]
pub struct Resolver {
    requests: Arc<Requests>,
    tables: Arc<Tables>,
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.requests.fmt(f)
    }
}

impl Resolver {
    pub(super) fn new(requests: Arc<Requests>, tables: Arc<Tables>) -> Self {
        Self { requests, tables }
    }

    /// Requests the MAC address of `address` on the link of `interface`, or the confirmation of a stale one. The
    /// answer, if any, appears in the neighbour table: after about 100 us on a quiet network; after three
    /// seconds without an answer the neighbour is [failed](super::Neighbour::Failed).
    ///
    /// Takes a lock, and makes a system call if nothing was pending: call it once per neighbour and second, not per
    /// packet. `false`: too many are pending, or the mirror has ended; retry later.
    pub fn ask(&self, interface: u32, address: IpAddr) -> bool {
        let mut waiting = lock(&self.requests.waiting);
        if waiting.stop {
            return false;
        }
        if waiting.neighbours.contains(&(interface, address)) {
            return true;
        }
        if waiting.neighbours.len() == MAX_PENDING {
            return false;
        }
        waiting.neighbours.push((interface, address));
        if waiting.neighbours.len() == 1 {
            self.requests.event.signal();
        }
        true
    }

    /// Looks for a path until there is one, resolving the missing neighbour, for at most `timeout`. `lookup` is
    /// [`View::path`] or [`View::path_on_link`]. Blocks: not for workers that serve a queue.
    ///
    /// # Errors
    /// The last error. Only unresolved neighbours are waited for; any other error is returned at once.
    pub fn path(
        &self,
        reader: &mut Reader,
        timeout: Duration,
        lookup: impl Fn(View<'_>) -> Result<Path, NoPath>,
    ) -> Result<Path, NoPath> {
        let end = Instant::now() + timeout;
        let mut ask_at = Instant::now();
        loop {
            let found = {
                let guard = reader.pin();
                lookup(self.tables.load(&guard))
            };
            reader.idle();
            let now = Instant::now();
            match found {
                Ok(path) => {
                    if path.stale {
                        self.ask(path.interface, path.next_hop_address);
                    }
                    return Ok(path);
                }
                Err(why) if !why.may_pass() || now >= end => return Err(why),
                Err(why) => {
                    if let (Some((interface, next_hop)), true) = (why.to_ask(), now >= ask_at) {
                        // Too many are pending: retry with the next check.
                        if self.ask(interface, next_hop) {
                            ask_at = now + RETRY_INTERVAL;
                        }
                    }
                }
            }
            std::thread::sleep(POLL_INTERVAL.min(end - now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoch::Domain;

    #[test]
    fn pending_requests_are_bounded_and_unique() {
        let domain = Domain::new(1, 4);
        let requests = Arc::new(Requests::new().unwrap());
        let resolver = Resolver::new(Arc::clone(&requests), Arc::new(Tables::new(&domain)));
        let address = |number: usize| IpAddr::V4((0x0a00_0000 + number as u32).into());
        for number in 0..MAX_PENDING {
            assert!(resolver.ask(2, address(number)));
        }
        assert!(resolver.ask(2, address(0)), "pending already");
        assert!(!resolver.ask(2, address(MAX_PENDING)));
        assert_eq!(requests.take().map(|taken| taken.len()), Some(MAX_PENDING));
        assert!(resolver.ask(2, address(MAX_PENDING)));
        requests.stop();
        assert!(!resolver.ask(2, address(0)));
        assert_eq!(requests.take(), None);
    }
}
