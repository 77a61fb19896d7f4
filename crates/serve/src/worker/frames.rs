//! A worker of the Io `xdp`: one thread that serves its queue's frames to completion, and the kernel sockets that
//! receive what the fast path declines.
//!
//! ```text
//! AF_XDP queue ─▸ stack::Worker::turn ─▸ ServiceHandler ─▸ Dispatch ─▸ reply in the request's frame
//! kernel sockets ──────────────────────▸ ServiceRunner ──▸ Dispatch ─▸ sendmmsg
//!      read every KERNEL_POLL_TURNS turns, and whenever no frames arrive; a sleep waits for both
//! ```
//! One service instance serves both.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll;
use udpath_stack::counters::DropReason as FrameDrop;
use udpath_stack::handler::{self, Datagram, Handler};
use udpath_stack::port::{Port, Unsent};
use udpath_stack::worker::{NeighbourCheck, Parts, Progress, Worker as Datapath};

use super::runner::{BurstResult, ServiceRunner, SocketSource};
use crate::counters::WorkerCounters;
use crate::dispatch::{Exchange, Incoming, ReceivedCount};
use crate::endpoint::{Endpoint, Endpoints};
use crate::outcome::SendError;
use crate::request::Peer;
use crate::service::{Service, WorkerId};
use crate::sys::{Control, MAX_PAYLOAD_V4, MAX_PAYLOAD_V6, RawAddr, send_to};

/// Turns of a busy worker between two reads of its kernel sockets. With more, what the fast path declines waits longer:
/// about 2 ms at 64 frames of 0.5 us each. With fewer, system calls that return nothing are more frequent.
const KERNEL_POLL_TURNS: u32 = 64;

/// Maximum sleep. A longer one would miss nothing; a shorter one wakes an idle host without need.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// How often a worker that has nothing left to do checks whether the others have ended. A shorter interval takes CPU
/// time from them; a longer one delays stopping.
const END_POLL_INTERVAL: Duration = Duration::from_micros(200);

/// See the module.
pub(crate) struct FrameWorker<P: Port, S, F> {
    datapath: Datapath<P, ServiceHandler<S, F>>,
    sources: Vec<SocketSource>,
}

/// Runs the service over the frames of the datapath.
pub(super) struct ServiceHandler<S, F> {
    runner: ServiceRunner<S, F>,
    /// By binding: the endpoints of this worker.
    endpoints: Vec<Arc<Endpoint>>,
    /// By worker, then by binding: the endpoints of all workers, some of whose replies leave by this worker's port.
    all: Endpoints,
    counts: Vec<TurnCounts>,
}

/// Datagrams and replies of one address in a turn, not added to the counters yet.
#[derive(Debug, Default, Clone, Copy)]
struct TurnCounts {
    received: ReceivedCount,
    answered: usize,
    answered_bytes: u64,
}

/// One frame, and its reply in the same frame.
struct FrameExchange<'a> {
    datagram: Datagram<'a>,
    buffer: &'a mut [u8],
    answer: Option<Answer>,
}

/// What to send in the frame, with its length.
enum Answer {
    Reply(usize),
    /// To a probe, which is not traffic.
    Probe(usize),
}

impl Exchange for FrameExchange<'_> {
    #[inline(always)]
    fn datagram(&mut self, _only: usize) -> (Incoming<'_>, &mut [u8]) {
        let Datagram { payload, headers, .. } = self.datagram;
        let incoming = Incoming { payload, peer: Peer::Frame(headers), control: None, truncated: false };
        (incoming, self.buffer)
    }

    #[inline(always)]
    fn reply(&mut self, _only: usize, len: usize) {
        self.answer = Some(Answer::Reply(len));
    }

    #[cold]
    fn answer_probe(
        &mut self,
        _only: usize,
        _counters: &WorkerCounters,
        write: impl FnOnce(&mut [u8]) -> usize,
    ) {
        self.answer = Some(Answer::Probe(write(self.buffer)));
    }
}

impl<P: Port, S: Service, F: Fn(WorkerId) -> S> FrameWorker<P, S, F> {
    /// A worker for these sockets and the frames of `parts`, which have no handler yet. `neighbours`: where replies may
    /// go, if that is checked.
    pub(super) fn new(
        runner: ServiceRunner<S, F>,
        sources: Vec<SocketSource>,
        all: Endpoints,
        parts: Parts<P, ()>,
        neighbours: Option<NeighbourCheck>,
    ) -> Self {
        let endpoints: Vec<_> = sources.iter().map(|source| Arc::clone(&source.endpoint)).collect();
        let counts = vec![TurnCounts::default(); endpoints.len()];
        let handler = ServiceHandler { runner, endpoints, all, counts };
        let Parts { port, reader, groups, rings, steering, handler: () } = parts;
        let datapath = Datapath::new(Parts { port, reader, groups, rings, steering, handler });
        let datapath = match neighbours {
            Some(check) => datapath.checking_neighbours(check),
            None => datapath,
        };
        Self { datapath, sources }
    }

    /// The counters of its frames.
    pub(crate) fn counters(&self) -> udpath_stack::counters::Counters {
        self.datapath.counters()
    }

    /// Serves until the server stops and nothing is left. `stop` becomes readable when it stops.
    pub(crate) fn run(mut self, stop: BorrowedFd<'_>) -> io::Result<()> {
        // One descriptor for everything that is not a frame.
        let others = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for source in &self.sources {
            epoll::add(
                &others,
                source.endpoint.socket.fd(),
                epoll::EventData::new_u64(0),
                epoll::EventFlags::IN,
            )?;
        }
        epoll::add(&others, stop, epoll::EventData::new_u64(1), epoll::EventFlags::IN)?;
        let mut until_kernel = 0;
        loop {
            let mut moved = self.turn() > 0;
            if !moved || until_kernel == 0 {
                moved |= self.kernel();
                until_kernel = KERNEL_POLL_TURNS;
            }
            until_kernel -= 1;
            if moved {
                continue;
            }
            if self.datapath.handler().runner.is_stopping() {
                self.finish();
                return Ok(());
            }
            self.datapath.wait(MAX_SLEEP, Some(others.as_fd()))?;
        }
    }

    /// Serves what is left once the interfaces and sockets have stopped receiving. Ends together with the other
    /// workers.
    fn finish(&mut self) {
        loop {
            self.datapath.handler().begin();
            let progress = self.datapath.finish();
            self.datapath.handler().publish();
            let moved = self.kernel();
            match progress {
                Progress::Done if !moved => return,
                Progress::Waits if !moved => std::thread::sleep(END_POLL_INTERVAL),
                _ => {}
            }
        }
    }

    /// Serves a burst of frames. Returns how many moved.
    #[inline]
    pub(super) fn turn(&mut self) -> usize {
        self.datapath.handler().begin();
        let moved = self.datapath.poll();
        if moved > 0 {
            self.datapath.handler().publish();
        }
        moved
    }

    /// Serves a burst of each kernel socket. Returns whether there was one.
    fn kernel(&mut self) -> bool {
        let runner = &mut self.datapath.handler().runner;
        self.sources
            .iter_mut()
            .fold(false, |moved, source| moved | (runner.serve_burst(source) == BurstResult::Served))
    }
}

impl<S: Service, F: Fn(WorkerId) -> S> ServiceHandler<S, F> {
    fn begin(&mut self) {
        self.runner.dispatch.begin_burst();
    }

    fn publish(&mut self) {
        for (counts, endpoint) in self.counts.iter_mut().zip(&self.endpoints) {
            if counts.received.datagrams > 0 {
                let TurnCounts { received, answered, answered_bytes } = std::mem::take(counts);
                endpoint.counters.received(received.datagrams, received.bytes);
                endpoint.counters.sent(answered, answered_bytes);
            }
        }
    }
}

impl<S: Service, F: Fn(WorkerId) -> S> Handler for ServiceHandler<S, F> {
    fn handle(&mut self, datagram: Datagram<'_>, buffer: &mut [u8]) -> handler::Outcome {
        let place = usize::from(datagram.binding);
        let Some(endpoint) = self.endpoints.get(place) else { return handler::Outcome::Declined };
        let longest = if datagram.headers.is_ipv4() { MAX_PAYLOAD_V4 } else { MAX_PAYLOAD_V6 };
        let mut frame = FrameExchange { datagram, buffer: &mut buffer[..longest], answer: None };
        let counts = &mut self.counts[place];
        self.runner.dispatch.serve(&mut frame, endpoint, 1, &mut counts.received);
        match frame.answer {
            Some(Answer::Reply(len)) => {
                counts.answered += 1;
                counts.answered_bytes += len as u64;
                handler::Outcome::Reply(len)
            }
            Some(Answer::Probe(len)) => handler::Outcome::Unchecked(len),
            None => handler::Outcome::Declined,
        }
    }

    /// The reply was counted as answered when the service returned.
    #[cold]
    fn unsent(&mut self, worker: usize, reply: Option<Unsent>, reason: FrameDrop) {
        let Some(endpoints) = self.all.get(worker) else { return };
        let from = |reply: &Unsent| endpoints.iter().position(|endpoint| endpoint.answers_from(reply.from));
        let Some(endpoint) = endpoints.get(reply.as_ref().and_then(from).unwrap_or(0)) else { return };
        let cause = match reason {
            FrameDrop::ReplyTooLong => SendError::TooLong,
            FrameDrop::Neighbour => SendError::Neighbour,
            _ => SendError::NoBuffers,
        };
        endpoint.shared_counters.unsent(cause, reply.map_or(0, |reply| reply.len));
    }

    /// Sends the reply from the kernel socket, which fragments it and resolves the next hop.
    fn send_otherwise(&mut self, datagram: Datagram<'_>, reply: &[u8]) -> bool {
        let place = usize::from(datagram.binding);
        let Some(endpoint) = self.endpoints.get(place) else { return false };
        let peer = RawAddr::encode(datagram.headers.source());
        let wildcard = endpoint.socket.bind.ip().is_unspecified();
        let mut source = wildcard.then(|| Control::of_source(datagram.headers.destination().ip()));
        if let Err(not_sent) = send_to(&*endpoint.socket, reply, &peer, source.as_mut()) {
            let counts = &mut self.counts[place];
            counts.answered -= 1;
            counts.answered_bytes -= reply.len() as u64;
            endpoint.counters.failed(not_sent.cause, 1);
        }
        true
    }
}
