//! The answering side: counts without locks, so that the sum over all workers can be told at any time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crossbeam_utils::CachePadded;
use udpath_serve::{DropReason, Outcome, Reply, Request, Service, StreamService, WorkerId};

use super::{QUESTION, Report};

/// What all workers of a sink took; shared between their [`Sink`]s.
///
/// Each worker has a place on its own cache lines that only it writes: counting is a plain store.
#[derive(Debug)]
pub struct Totals {
    places: Vec<CachePadded<Place>>,
}

#[derive(Debug, Default)]
struct Place {
    datagrams: AtomicU64,
    bytes: AtomicU64,
}

impl Totals {
    /// For this many workers.
    #[must_use]
    pub fn new(workers: usize) -> Arc<Self> {
        Arc::new(Self { places: (0..workers).map(|_| CachePadded::default()).collect() })
    }

    /// The sums over all workers so far.
    #[must_use]
    pub fn report(&self) -> Report {
        self.places.iter().fold(Report::default(), |sum, place| Report {
            datagrams: sum.datagrams + place.datagrams.load(Relaxed),
            bytes: sum.bytes + place.bytes.load(Relaxed),
        })
    }
}

/// Takes every datagram and answers none but [`QUESTION`]; over TCP, takes every byte.
///
/// ```
/// use udpath_protocols::sink::{QUESTION, Report, Sink, Totals};
/// use udpath_serve::{DropReason, Outcome, WorkerId, serve_once};
///
/// let totals = Totals::new(1);
/// let mut sink = Sink::new(&totals, WorkerId::new(0));
/// let (peer, local) = ("192.0.2.1:1000".parse()?, "192.0.2.2:9".parse()?);
/// assert_eq!(serve_once(&mut sink, b"hello", peer, local).0, Outcome::Drop(DropReason::Consumed));
/// let (_, report) = serve_once(&mut sink, &QUESTION, peer, local);
/// assert_eq!(Report::decode(&report), Some(Report { datagrams: 1, bytes: 5 }));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Debug)]
pub struct Sink {
    totals: Arc<Totals>,
    worker: usize,
}

impl Sink {
    /// The sink of one worker.
    ///
    /// # Panics
    /// When `totals` was made for fewer workers.
    #[must_use]
    pub fn new(totals: &Arc<Totals>, worker: WorkerId) -> Self {
        assert!(worker.index() < totals.places.len(), "totals were made for fewer workers");
        Self { totals: Arc::clone(totals), worker: worker.index() }
    }
}

impl Service for Sink {
    fn serve(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Outcome {
        let payload = request.payload();
        if *payload == QUESTION {
            return reply.write(&self.totals.report().encode());
        }
        let place = &self.totals.places[self.worker];
        // One writer: load and store need not be one step.
        place.datagrams.store(place.datagrams.load(Relaxed) + 1, Relaxed);
        place.bytes.store(place.bytes.load(Relaxed) + payload.len() as u64, Relaxed);
        Outcome::Drop(DropReason::Consumed)
    }
}

impl StreamService for Sink {
    /// The runtime counts the bytes of connections; reports are about datagrams alone.
    fn serve(&mut self, _input: &[u8], _reply: &mut Reply<'_>) -> Outcome {
        Outcome::Drop(DropReason::Consumed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use udpath_serve::serve_once;

    #[test]
    fn every_worker_reports_the_sum_of_all() {
        let totals = Totals::new(2);
        let mut sinks = [0, 1].map(|worker| Sink::new(&totals, WorkerId::new(worker)));
        let (peer, local) = ("192.0.2.1:1".parse().unwrap(), "192.0.2.2:9".parse().unwrap());
        for (index, size) in [(0, 0), (1, 16), (1, 65_507)] {
            let (outcome, _) = serve_once(&mut sinks[index], &vec![b'?'; size], peer, local);
            assert_eq!(outcome, Outcome::Drop(DropReason::Consumed));
        }
        for sink in &mut sinks {
            let (outcome, wire) = serve_once(sink, &QUESTION, peer, local);
            assert_eq!(outcome, Outcome::Reply);
            assert_eq!(Report::decode(&wire), Some(Report { datagrams: 3, bytes: 65_523 }));
        }
        assert_eq!(totals.report().datagrams, 3, "questions are not counted");
    }
}
