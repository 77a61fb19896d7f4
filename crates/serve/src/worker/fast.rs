//! A worker of the Io `xdp`: one thread that serves its queue's frames to completion, and on the side the kernel sockets
//! that get what the fast path declines.
//!
//! ```text
//! AF_XDP queue ─▸ stack::Worker::turn ─▸ Desk (Handler) ─▸ the service ─▸ reply in the request's frame
//! kernel sockets ─────────────────────────────────────────▸ the service ─▸ sendmmsg
//!      looked into every KERNEL_EVERY turns, and whenever there is nothing else; a sleep waits for both
//! ```
//! One service instance serves both, as the thread does one thing at a time.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rustix::event::epoll;
use udpath_stack::counters::Drop;
use udpath_stack::handler::{self, Datagram, Handler};
use udpath_stack::port::{Port, Unsent};
use udpath_stack::worker::{Parts, Progress, Worker as Stack};

use super::{Hands, LaneSide, Pass};
use crate::counters::{Lane, Lanes, SendError};
use crate::service::{DropReason, Moment, Origin, Outcome, Peer, Reply, Request, Service, WorkerId};
use crate::sys::{Control, MAX_PAYLOAD_V4, MAX_PAYLOAD_V6, RawAddr, send_to};

/// Turns of a busy worker between two looks into its kernel sockets. More: what the fast path declines waits longer, at
/// 64 frames of half a microsecond each some 2 ms. Fewer: a system call for nothing is made more often.
const KERNEL_EVERY: u32 = 64;

/// Longest sleep. Nothing is missed by a longer one; a shorter one wakes an idle machine for nothing.
const SLEEP: Duration = Duration::from_secs(1);

/// Between two looks of a worker that has nothing to do but wait for the others' end. Shorter: it takes CPU time from those who
/// have something to do; longer: stopping takes that much longer.
const END_LOOK: Duration = Duration::from_micros(200);

/// One thread's part of a server whose Io is `xdp`.
pub(crate) struct FastWorker<P: Port, S, F> {
    stack: Stack<P, Desk<S, F>>,
    sides: Vec<LaneSide>,
}

/// Where frames meet the service.
pub(super) struct Desk<S, F> {
    hands: Hands<S, F>,
    /// By binding.
    lanes: Vec<Arc<Lane>>,
    /// By worker, then by binding.
    all: Lanes,
    sums: Vec<Sum>,
    moment: Moment,
    taken: Cell<bool>,
}

/// A turn's counts of one lane.
#[derive(Debug, Default, Clone, Copy)]
struct Sum {
    received: u64,
    bytes: u64,
    answered: usize,
    answered_bytes: u64,
}

impl<P: Port, S: Service, F: Fn(WorkerId) -> S> FastWorker<P, S, F> {
    /// A worker for these sockets and the frames of `parts`, whose handler is not made yet.
    pub(super) fn new(hands: Hands<S, F>, sides: Vec<LaneSide>, all: Lanes, parts: Parts<P, ()>) -> Self {
        let lanes: Vec<_> = sides.iter().map(|side| Arc::clone(&side.lane)).collect();
        let sums = vec![Sum::default(); lanes.len()];
        let desk = Desk { hands, lanes, all, sums, moment: Moment::default(), taken: Cell::new(false) };
        let Parts { port, reader, groups, links, steering, handler: () } = parts;
        Self { stack: Stack::new(Parts { port, reader, groups, links, steering, handler: desk }), sides }
    }

    /// The counters of its frames.
    pub(crate) fn counters(&self) -> udpath_stack::counters::Counters {
        self.stack.counters()
    }

    /// Serves until told to stop and nothing is left. `stop` becomes readable when that happens.
    pub(crate) fn run(mut self, stop: BorrowedFd<'_>) -> io::Result<()> {
        // One descriptor for all that is not a frame.
        let others = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for side in &self.sides {
            epoll::add(&others, side.lane.socket.fd(), epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        epoll::add(&others, stop, epoll::EventData::new_u64(1), epoll::EventFlags::IN)?;
        let mut until_kernel = 0;
        loop {
            let mut moved = self.turn() > 0;
            if !moved || until_kernel == 0 {
                moved |= self.kernel();
                until_kernel = KERNEL_EVERY;
            }
            until_kernel -= 1;
            if moved {
                continue;
            }
            if self.stack.handler().hands.shared.stopping.load(Relaxed) {
                self.finish();
                return Ok(());
            }
            self.stack.wait(SLEEP, Some(others.as_fd()))?;
        }
    }

    /// Serves what is left: nothing is taken from the interfaces any more, and the sockets are shut. Ends with the others.
    fn finish(&mut self) {
        loop {
            self.stack.handler().begin();
            let progress = self.stack.finish();
            self.stack.handler().publish();
            let moved = self.kernel();
            match progress {
                Progress::Done if !moved => return,
                Progress::Waits if !moved => std::thread::sleep(END_LOOK),
                _ => {}
            }
        }
    }

    /// Serves what came as frames.
    #[inline]
    fn turn(&mut self) -> usize {
        self.stack.handler().begin();
        let moved = self.stack.turn();
        if moved > 0 {
            self.stack.handler().publish();
        }
        moved
    }

    /// Serves a burst of each kernel socket. Was there anything?
    fn kernel(&mut self) -> bool {
        let hands = &mut self.stack.handler().hands;
        self.sides.iter_mut().fold(false, |moved, side| moved | (hands.pass_any(side) == Pass::Moved))
    }
}

impl<S: Service, F: Fn(WorkerId) -> S> Desk<S, F> {
    fn begin(&mut self) {
        self.moment = Moment::default();
    }

    fn publish(&mut self) {
        for (sum, lane) in self.sums.iter_mut().zip(&self.lanes) {
            if sum.received > 0 {
                let sum = std::mem::take(sum);
                lane.published.received(sum.received, sum.bytes);
                lane.published.sent(sum.answered, sum.answered_bytes);
            }
        }
    }
}

impl<S: Service, F: Fn(WorkerId) -> S> Handler for Desk<S, F> {
    fn handle(&mut self, datagram: Datagram<'_>, room: &mut [u8]) -> handler::Outcome {
        let place = usize::from(datagram.binding);
        let Some(lane) = self.lanes.get(place) else { return handler::Outcome::Declined };
        if let Some(shared) = self.hands.still_probing()
            && shared.probing.recognises(datagram.payload)
        {
            return handler::Outcome::Reply(shared.probing.answer(self.hands.id.index(), room));
        }
        let sum = &mut self.sums[place];
        sum.received += 1;
        sum.bytes += datagram.payload.len() as u64;
        if self.hands.service.is_none() {
            self.hands.renew();
        }
        let Some(service) = &mut self.hands.service else {
            lane.published.dropped(DropReason::Panicked);
            return handler::Outcome::Declined;
        };
        let longest = if datagram.headers.is_ipv4() { MAX_PAYLOAD_V4 } else { MAX_PAYLOAD_V6 };
        self.taken.set(false);
        let mut reply = Reply::new(&mut room[..longest]);
        let request = Request {
            payload: datagram.payload,
            peer: Peer::Frame(datagram.headers),
            control: None,
            origin: Origin::Lane { lane, taken: &self.taken },
            moment: &self.moment,
        };
        let Ok(outcome) = catch_unwind(AssertUnwindSafe(|| service.serve(request, &mut reply))) else {
            self.hands.service = None;
            if self.taken.get() {
                lane.published.deferred();
            } else {
                lane.published.dropped(DropReason::Panicked);
            }
            return handler::Outcome::Declined;
        };
        match outcome {
            _ if self.taken.get() => lane.published.deferred(),
            Outcome::Reply => {
                sum.answered += 1;
                sum.answered_bytes += reply.len() as u64;
                return handler::Outcome::Reply(reply.len());
            }
            Outcome::Drop(reason) => lane.published.dropped(reason),
            Outcome::Defer => lane.published.dropped(DropReason::Abandoned),
        }
        handler::Outcome::Declined
    }

    /// Counted as answered when the service gave it.
    #[cold]
    fn unsent(&mut self, worker: usize, reply: Option<Unsent>, reason: Drop) {
        let Some(lanes) = self.all.get(worker) else { return };
        let from = |reply: &Unsent| lanes.iter().position(|lane| lane.answers_from(reply.from));
        let Some(lane) = lanes.get(reply.as_ref().and_then(from).unwrap_or(0)) else { return };
        let cause = if reason == Drop::ReplyTooLong { SendError::TooLong } else { SendError::NoBuffers };
        lane.late.unsent(cause, reply.map_or(0, |reply| reply.len));
    }

    /// From the kernel's socket, which sends it in fragments.
    fn too_long(&mut self, datagram: Datagram<'_>, reply: &[u8]) -> bool {
        let place = usize::from(datagram.binding);
        let Some(lane) = self.lanes.get(place) else { return false };
        let peer = RawAddr::encode(datagram.headers.source());
        let wildcard = lane.socket.bind.ip().is_unspecified();
        let mut source = wildcard.then(|| Control::of_source(datagram.headers.destination().ip()));
        if let Err(error) = send_to(lane.socket.fd(), reply, &peer, source.as_mut()) {
            let sum = &mut self.sums[place];
            sum.answered -= 1;
            sum.answered_bytes -= reply.len() as u64;
            lane.published.failed(&error, 1);
        }
        true
    }
}
