//! The server: counts without locks; the sum over all workers can be read at any time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crossbeam_utils::CachePadded;
use rustix::time::{ClockId, clock_gettime};
use udpath_serve::{
    Config, DropReason, Error, MAX_WORKERS, Outcome, Reply, Request, Server, Service, StreamService, WorkerId,
};

use super::{QUESTION, Report};

/// What all workers of a sink have received; shared between their [`Sink`]s.
///
/// Each worker has counters on its own cache lines, and each counter has a single writer: counting is a plain store.
#[derive(Debug)]
pub struct Totals {
    places: Vec<CachePadded<Place>>,
}

#[derive(Debug, Default)]
struct Place {
    datagrams: AtomicU64,
    bytes: AtomicU64,
    /// Of the worker's connections, which are served by a thread of their own.
    stream_bytes: AtomicU64,
}

/// Adds to a counter with a single writer: load and store need not be atomic together.
fn add(counter: &AtomicU64, more: usize) {
    counter.store(counter.load(Relaxed) + more as u64, Relaxed);
}

impl Totals {
    /// Counters for `workers` workers.
    #[must_use]
    pub fn new(workers: usize) -> Arc<Self> {
        Arc::new(Self { places: (0..workers).map(|_| CachePadded::default()).collect() })
    }

    /// The sums over all workers so far, and the process's CPU time.
    #[must_use]
    pub fn report(&self) -> Report {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let cpu_ns = cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64;
        self.places.iter().fold(Report { cpu_ns, ..Report::default() }, |sum, place| Report {
            datagrams: sum.datagrams + place.datagrams.load(Relaxed),
            bytes: sum.bytes + place.bytes.load(Relaxed),
            stream_bytes: sum.stream_bytes + place.stream_bytes.load(Relaxed),
            ..sum
        })
    }
}

/// Consumes every datagram and answers only [`QUESTION`]; over TCP, consumes every byte.
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
/// let report = Report::decode(&report).ok_or("not a report")?;
/// assert_eq!((report.datagrams, report.bytes), (1, 5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
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
        add(&place.datagrams, 1);
        add(&place.bytes, payload.len());
        Outcome::Drop(DropReason::Consumed)
    }
}

impl StreamService for Sink {
    fn serve(&mut self, input: &[u8], _reply: &mut Reply<'_>) -> Outcome {
        add(&self.totals.places[self.worker].stream_bytes, input.len());
        Outcome::Drop(DropReason::Consumed)
    }
}

/// Starts a sink; with `tcp`, also over TCP on the same addresses.
///
/// # Errors
/// Those of [`Server::start`].
pub fn start(config: &Config, tcp: bool) -> Result<Server, Error> {
    // Without a number there is one worker per CPU, and a server uses at most `MAX_WORKERS` of them.
    let totals = Totals::new(config.workers.unwrap_or(MAX_WORKERS).min(MAX_WORKERS));
    let datagrams = {
        let totals = Arc::clone(&totals);
        move |worker| Sink::new(&totals, worker)
    };
    if !tcp {
        return Server::start(config, datagrams);
    }
    Server::start_with_tcp(config, datagrams, move |worker| Sink::new(&totals, worker))
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
            let outcome = StreamService::serve(sink, &[7; 1000], &mut Reply::new(&mut []));
            assert_eq!(outcome, Outcome::Drop(DropReason::Consumed));
        }
        for sink in &mut sinks {
            let (outcome, wire) = serve_once(sink, &QUESTION, peer, local);
            assert_eq!(outcome, Outcome::Reply);
            let report = Report::decode(&wire).unwrap();
            assert_eq!((report.datagrams, report.bytes, report.stream_bytes), (3, 65_523, 2000));
            assert!(report.cpu_ns > 0);
        }
        assert_eq!(totals.report().datagrams, 3, "questions are not counted");
    }
}
