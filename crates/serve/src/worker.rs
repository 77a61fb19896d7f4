//! One worker: receive a burst, run the service over it, send a burst, publish the counters.
//!
//! With one socket the worker blocks in the receive call itself and no other call is made. With several it waits
//! in `epoll` and takes bursts from those that are ready. Either way, stopping costs the packet path nothing: the
//! server shuts the sockets for receiving, which wakes the worker once their queues are empty.

mod fast;

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use rustix::event::epoll;

use crate::counters::{Lane, Lanes, Published};
use crate::io::{KernelPort, Port};
use crate::probe::Probing;
use crate::service::{DropReason, Moment, Origin, Outcome, Peer, Reply, Request, Service, WorkerId};
use crate::sys::{Control, Receipt, Wait};

/// What all workers of a server share, and only read.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) probing: Probing,
    pub(crate) stopping: AtomicBool,
    pub(crate) group_answers: GroupAnswers,
}

/// Which workers answer what was sent to a broadcast or multicast address. Of that each socket of the port gets a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GroupAnswers {
    /// None.
    Off,
    /// The one that got it: all read one socket.
    Any,
    /// The first: each has a socket of its own.
    First,
}

impl GroupAnswers {
    fn by(self, id: WorkerId) -> bool {
        match self {
            Self::Off => false,
            Self::Any => true,
            Self::First => id.index() == 0,
        }
    }
}

/// Bursts taken from one ready socket before the others get their turn. Fewer pay for `epoll_wait` more often,
/// which at batch 1 is once per datagram; more let a busy address delay a quiet one.
const BURSTS_PER_TURN: usize = 64;

/// First and longest pause after a receive call failed, when it fails again and again. A single error (an ICMP
/// message, a moment without memory) costs no pause. Shorter would burn a CPU on a socket that is broken for good,
/// longer would answer late once it works again.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

pub(crate) use fast::FastWorker;

/// One thread's part of the server.
pub(crate) struct Worker<S, F> {
    hands: Hands<S, F>,
    sides: Vec<LaneSide>,
}

/// One socket as the worker sees it.
pub(crate) struct LaneSide {
    pub(crate) port: KernelPort,
    pub(crate) lane: Arc<Lane>,
}

/// The service and what it is called with.
struct Hands<S, F> {
    /// `None` after a panic, until the next datagram.
    service: Option<S>,
    id: WorkerId,
    /// Whether it is this worker that answers what was sent to a broadcast or multicast address.
    answers_groups: bool,
    /// Whether probes have to be recognised. Once the probe has ended the worker never looks again.
    probing: bool,
    factory: Arc<F>,
    shared: Arc<Shared>,
}

/// What a receive attempt came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    Moved,
    Idle,
    Woken,
    Failed,
}

impl<S: Service, F: Fn(WorkerId) -> S> Worker<S, F> {
    /// A worker for these sockets. Makes its service instance, on the calling thread.
    pub(crate) fn new(id: WorkerId, factory: Arc<F>, shared: Arc<Shared>, sides: Vec<LaneSide>) -> Self {
        Self { hands: Hands::new(id, factory, shared), sides }
    }

    /// The same with the frames of `parts`; `all` are the lanes of all workers.
    pub(crate) fn with_frames<P: udpath_stack::port::Port>(
        self,
        all: Lanes,
        parts: udpath_stack::worker::Parts<P, ()>,
    ) -> FastWorker<P, S, F> {
        FastWorker::new(self.hands, self.sides, all, parts)
    }

    /// Serves until the sockets are shut and their queues are empty. `stop` becomes readable when that happens.
    pub(crate) fn run(mut self, stop: BorrowedFd<'_>) -> io::Result<()> {
        match self.sides.as_mut_slice() {
            [LaneSide { port, lane }] => {
                match port {
                    KernelPort::Single(port) => self.hands.serve_one(port, lane),
                    KernelPort::Info(port) => self.hands.serve_one(port, lane),
                    KernelPort::Many(port) => self.hands.serve_one(port, lane),
                }
                Ok(())
            }
            sides => self.hands.serve_many(sides, stop),
        }
    }
}

impl<S: Service, F: Fn(WorkerId) -> S> Hands<S, F> {
    fn new(id: WorkerId, factory: Arc<F>, shared: Arc<Shared>) -> Self {
        let service = Some(factory(id));
        let answers_groups = shared.group_answers.by(id);
        Self { service, id, answers_groups, probing: true, factory, shared }
    }

    /// Blocks in the receive call.
    fn serve_one<P: Port>(&mut self, port: &mut P, lane: &Arc<Lane>) {
        let mut pause = Pause::default();
        loop {
            while self.pass(port, lane, Wait::Block) == Pass::Moved {
                pause.reset();
            }
            // Woken, or the call failed.
            if self.shared.stopping.load(Relaxed) {
                return;
            }
            pause.take();
        }
    }

    /// Waits for any of several sockets.
    fn serve_many(&mut self, sides: &mut [LaneSide], stop: BorrowedFd<'_>) -> io::Result<()> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // Exclusive: where workers share a socket, a datagram wakes one of them, not all.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
        for (name, side) in (0..).zip(sides.iter()) {
            epoll::add(&epoll, side.lane.socket.fd(), epoll::EventData::new_u64(name), flags)?;
        }
        epoll::add(&epoll, stop, epoll::EventData::new_u64(u64::MAX), epoll::EventFlags::IN)?;
        let mut events = Vec::with_capacity(sides.len() + 1);
        let mut pause = Pause::default();
        while !self.shared.stopping.load(Relaxed) {
            events.clear();
            match epoll::wait(epoll.as_fd(), rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                let name = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
                if let Some(side) = sides.get_mut(name) {
                    self.turn(side, &mut pause);
                }
            }
        }
        // The doors are closed: what is queued is all there will be.
        for side in sides {
            while self.pass_any(side) == Pass::Moved {}
        }
        Ok(())
    }

    /// Takes bursts from a ready socket.
    fn turn(&mut self, side: &mut LaneSide, pause: &mut Pause) {
        for _ in 0..BURSTS_PER_TURN {
            match self.pass_any(side) {
                Pass::Moved => pause.reset(),
                Pass::Idle | Pass::Woken => return,
                Pass::Failed => return pause.take(),
            }
        }
    }

    /// One burst, without waiting.
    fn pass_any(&mut self, side: &mut LaneSide) -> Pass {
        match &mut side.port {
            KernelPort::Single(port) => self.pass(port, &side.lane, Wait::Now),
            KernelPort::Info(port) => self.pass(port, &side.lane, Wait::Now),
            KernelPort::Many(port) => self.pass(port, &side.lane, Wait::Now),
        }
    }

    /// Receives a burst, serves it, sends the replies, counts. Inlined for the reason given in `io/kernel.rs`.
    #[inline(always)]
    fn pass<P: Port>(&mut self, port: &mut P, lane: &Arc<Lane>, wait: Wait) -> Pass {
        match port.receive(wait) {
            Ok(Receipt::Datagrams(0)) => Pass::Idle,
            Ok(Receipt::Datagrams(count)) => {
                let (received, bytes) = self.serve_burst(port, lane, count);
                port.send(&lane.published);
                lane.published.received(received, bytes);
                Pass::Moved
            }
            Ok(Receipt::Woken) => Pass::Woken,
            Err(_) => {
                lane.published.receive_error();
                Pass::Failed
            }
        }
    }

    /// Runs the service over a burst, with a new instance after a panic. How many datagrams it was, and bytes.
    #[inline(always)]
    fn serve_burst<P: Port>(&mut self, port: &mut P, lane: &Arc<Lane>, count: usize) -> (u64, u64) {
        let probing = self.still_probing();
        let moment = Moment::default();
        let taken = Cell::new(false);
        let call = Call {
            lane,
            taken: &taken,
            moment: &moment,
            probing: probing.as_deref(),
            id: self.id,
            answers_groups: self.answers_groups,
        };
        let mut sum = Sum::default();
        let mut next = 0;
        while next < count {
            let Some(service) = &mut self.service else {
                // Not even a new instance can be made: this datagram pays, the next tries again.
                self.renew();
                if self.service.is_none() {
                    sum.add(port.datagram(next).0.payload.len());
                    lane.published.dropped(DropReason::Panicked);
                    next += 1;
                }
                continue;
            };
            let run = AssertUnwindSafe(|| {
                while next < count {
                    let i = next;
                    // Counted before the service runs, so that after a panic the next datagram is next.
                    next += 1;
                    call.serve(port, &mut sum, service, i);
                }
            });
            if catch_unwind(run).is_err() {
                self.service = None;
                // A handle that was taken before the panic counts the request itself.
                if taken.get() {
                    lane.published.deferred();
                } else {
                    lane.published.dropped(DropReason::Panicked);
                }
            }
        }
        (sum.received, sum.bytes)
    }

    /// The probe, as long as it is under way.
    #[inline]
    fn still_probing(&mut self) -> Option<Arc<Shared>> {
        if !self.probing {
            return None;
        }
        self.probing = self.shared.probing.is_on();
        self.probing.then(|| Arc::clone(&self.shared))
    }

    /// A new instance after a panic; its making may panic, too.
    #[cold]
    fn renew(&mut self) {
        let (factory, id) = (&self.factory, self.id);
        self.service = catch_unwind(AssertUnwindSafe(|| factory(id))).ok();
    }
}

/// Keeps a failing receive call from becoming a busy loop.
#[derive(Default)]
struct Pause {
    next: Option<Duration>,
}

impl Pause {
    fn reset(&mut self) {
        self.next = None;
    }

    fn take(&mut self) {
        if let Some(now) = self.next {
            std::thread::sleep(now);
        }
        self.next = Some(self.next.map_or(FIRST_PAUSE, |last| (last * 2).min(LONGEST_PAUSE)));
    }
}

/// What a burst came to.
#[derive(Default)]
struct Sum {
    received: u64,
    bytes: u64,
}

impl Sum {
    #[inline]
    fn add(&mut self, len: usize) {
        self.received += 1;
        self.bytes += len as u64;
    }
}

/// What stays the same from datagram to datagram of a burst.
struct Call<'a> {
    lane: &'a Arc<Lane>,
    taken: &'a Cell<bool>,
    moment: &'a Moment,
    probing: Option<&'a Shared>,
    id: WorkerId,
    answers_groups: bool,
}

impl Call<'_> {
    /// Serves datagram `i`.
    #[inline]
    fn serve<P: Port, S: Service>(&self, port: &mut P, sum: &mut Sum, service: &mut S, i: usize) {
        let (datagram, room) = port.datagram(i);
        if let Some(shared) = self.probing
            && shared.probing.recognises(datagram.payload)
        {
            self.answer_probe(port, &shared.probing, i);
            return;
        }
        let counts = &self.lane.published;
        sum.add(datagram.payload.len());
        if datagram.truncated {
            counts.dropped(DropReason::Truncated);
            return;
        }
        if !self.answers_groups && datagram.control.is_some_and(Control::is_to_group) {
            counts.dropped(DropReason::Broadcast);
            return;
        }
        self.taken.set(false);
        let mut reply = Reply::new(room);
        let request = Request {
            payload: datagram.payload,
            peer: Peer::Raw(datagram.peer),
            control: datagram.control,
            origin: Origin::Lane { lane: self.lane, taken: self.taken },
            moment: self.moment,
        };
        let outcome = service.serve(request, &mut reply);
        let len = reply.len();
        match outcome {
            _ if self.taken.get() => counts.deferred(),
            Outcome::Reply => port.queue(i, len),
            Outcome::Drop(reason) => counts.dropped(reason),
            Outcome::Defer => counts.dropped(DropReason::Abandoned),
        }
    }

    /// Answers a probe apart from the traffic, so that it is not counted.
    #[cold]
    fn answer_probe<P: Port>(&self, port: &mut P, probing: &Probing, i: usize) {
        port.send(&self.lane.published);
        let (_, room) = port.datagram(i);
        let len = probing.answer(self.id.index(), room);
        port.queue(i, len);
        // If the answer does not get out, the prober will miss it and say so.
        port.send(&Published::default());
    }
}
