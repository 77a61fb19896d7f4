//! One worker: receive a burst, run the service over it, send a burst, publish the counters.
//!
//! With one socket the worker blocks in the receive call itself and no other call is made. With several it waits
//! in `epoll` and takes bursts from those that are ready. Either way, stopping costs the packet path nothing: the
//! server shuts the sockets for receiving, which wakes the worker once their queues are empty.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use rustix::event::epoll;

use crate::counters::{Lane, Local, SendReport};
use crate::io::{KernelPort, Port};
use crate::probe::Probing;
use crate::service::{Asked, DropReason, Moment, Origin, Outcome, Peer, Reply, Request, Service, WorkerId};
use crate::sys::{Receipt, Wait};

/// What all workers of a server share, and only read.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) probing: Probing,
    pub(crate) stopping: AtomicBool,
}

/// Bursts taken from one ready socket before the others get their turn. Fewer pay for `epoll_wait` more often,
/// which at batch 1 is once per datagram; more let a busy address delay a quiet one.
const BURSTS_PER_TURN: usize = 64;

/// First and longest pause after a receive call failed, when it fails again and again. A single error (an ICMP
/// message, a moment without memory) costs no pause. Shorter would burn a CPU on a socket that is broken for good,
/// longer would answer late once it works again.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// One thread's part of the server.
pub(crate) struct Worker<S, F> {
    hands: Hands<S, F>,
    lanes: Vec<LaneSide>,
}

/// One socket as the worker sees it.
pub(crate) struct LaneSide {
    pub(crate) port: KernelPort,
    pub(crate) lane: Arc<Lane>,
    local: Local,
}

/// The service and what it is called with.
struct Hands<S, F> {
    id: WorkerId,
    factory: Arc<F>,
    /// `None` after a panic, until the next datagram.
    service: Option<S>,
    shared: Arc<Shared>,
    moment: Moment,
}

/// What a receive attempt came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    Moved,
    Idle,
    Woken,
    Failed,
}

impl LaneSide {
    pub(crate) fn new(port: KernelPort, lane: Arc<Lane>) -> Self {
        Self { port, lane, local: Local::default() }
    }

    /// One burst through this socket.
    fn pass<S: Service, F: Fn(WorkerId) -> S>(&mut self, hands: &mut Hands<S, F>, wait: Wait) -> Pass {
        match &mut self.port {
            KernelPort::Single(port) => pass(port, &self.lane, &mut self.local, hands, wait),
            KernelPort::Info(port) => pass(port, &self.lane, &mut self.local, hands, wait),
            KernelPort::Many(port) => pass(port, &self.lane, &mut self.local, hands, wait),
        }
    }
}

impl<S: Service, F: Fn(WorkerId) -> S> Worker<S, F> {
    /// A worker for these sockets. Makes its service instance, on the calling thread.
    pub(crate) fn new(id: WorkerId, factory: Arc<F>, shared: Arc<Shared>, lanes: Vec<LaneSide>) -> Self {
        let service = Some(factory(id));
        Self { hands: Hands { id, factory, service, shared, moment: Moment::default() }, lanes }
    }

    /// Serves until the sockets are shut and their queues are empty. `stop` becomes readable when that happens.
    pub(crate) fn run(mut self, stop: BorrowedFd<'_>) -> io::Result<()> {
        match self.lanes.as_mut_slice() {
            [only] => {
                serve_one(only, &mut self.hands);
                Ok(())
            }
            lanes => serve_many(lanes, &mut self.hands, stop),
        }
    }
}

/// Blocks in the receive call.
fn serve_one<S: Service, F: Fn(WorkerId) -> S>(lane: &mut LaneSide, hands: &mut Hands<S, F>) {
    let mut pause = Pause::default();
    loop {
        match lane.pass(hands, Wait::Block) {
            Pass::Moved => pause.reset(),
            Pass::Woken if hands.shared.stopping.load(Relaxed) => return,
            Pass::Failed if hands.shared.stopping.load(Relaxed) => return,
            Pass::Woken | Pass::Idle | Pass::Failed => pause.take(),
        }
    }
}

/// Waits for any of several sockets.
fn serve_many<S: Service, F: Fn(WorkerId) -> S>(
    lanes: &mut [LaneSide],
    hands: &mut Hands<S, F>,
    stop: BorrowedFd<'_>,
) -> io::Result<()> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    // Exclusive: where workers share a socket, a datagram wakes one of them, not all.
    let flags = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
    for (index, lane) in lanes.iter().enumerate() {
        epoll::add(&epoll, lane.lane.socket.fd(), epoll::EventData::new_u64(index as u64), flags)?;
    }
    epoll::add(&epoll, stop, epoll::EventData::new_u64(u64::MAX), epoll::EventFlags::IN)?;
    let mut events = Vec::with_capacity(lanes.len() + 1);
    let mut pause = Pause::default();
    while !hands.shared.stopping.load(Relaxed) {
        events.clear();
        match epoll::wait(epoll.as_fd(), rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            let index = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
            let Some(lane) = lanes.get_mut(index) else { continue };
            for _ in 0..BURSTS_PER_TURN {
                match lane.pass(hands, Wait::Now) {
                    Pass::Moved => pause.reset(),
                    Pass::Idle | Pass::Woken => break,
                    Pass::Failed => {
                        pause.take();
                        break;
                    }
                }
            }
        }
    }
    // The doors are closed: what is queued is all there will be.
    for lane in lanes {
        while lane.pass(hands, Wait::Now) == Pass::Moved {}
    }
    Ok(())
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

/// Receives a burst, serves it, sends the replies, publishes.
fn pass<P: Port, S: Service, F: Fn(WorkerId) -> S>(
    port: &mut P,
    lane: &Arc<Lane>,
    local: &mut Local,
    hands: &mut Hands<S, F>,
    wait: Wait,
) -> Pass {
    let count = match port.receive(wait) {
        Ok(Receipt::Datagrams(0)) => return Pass::Idle,
        Ok(Receipt::Datagrams(count)) => count,
        Ok(Receipt::Woken) => return Pass::Woken,
        Err(_counted) => {
            local.receive_error();
            local.publish(&lane.published);
            return Pass::Failed;
        }
    };
    hands.moment.reset();
    let before = local.received;
    serve_burst(port, lane, local, hands, count);
    // A burst of probes alone is no traffic.
    local.bursts += u64::from(local.received != before);
    port.send(&mut local.sends);
    local.publish(&lane.published);
    Pass::Moved
}

/// Runs the service over a burst, with a new instance after a panic.
fn serve_burst<P: Port, S: Service, F: Fn(WorkerId) -> S>(
    port: &mut P,
    lane: &Arc<Lane>,
    local: &mut Local,
    hands: &mut Hands<S, F>,
    count: usize,
) {
    let probing = hands.shared.probing.is_on().then_some(&hands.shared.probing);
    let taken = Cell::new(false);
    let mut next = 0;
    while next < count {
        if hands.service.is_none() {
            let (factory, id) = (&hands.factory, hands.id);
            hands.service = catch_unwind(AssertUnwindSafe(|| factory(id))).ok();
        }
        let Some(service) = &mut hands.service else {
            // Not even a new instance can be made: this datagram pays, the next tries again.
            let (datagram, _) = port.datagram(next);
            local.received += 1;
            local.received_bytes += datagram.payload.len() as u64;
            local.dropped(DropReason::Panicked);
            next += 1;
            continue;
        };
        let run = AssertUnwindSafe(|| {
            while next < count {
                let i = next;
                // Counted before the service runs, so that after a panic the next datagram is next.
                next += 1;
                taken.set(false);
                let call = Call { lane, taken: &taken, moment: &hands.moment, probing, id: hands.id };
                call.serve(port, local, service, i);
            }
        });
        if catch_unwind(run).is_err() {
            hands.service = None;
            // A handle that was taken before the panic counts the request itself.
            if taken.get() { local.deferred() } else { local.dropped(DropReason::Panicked) }
        }
    }
}

/// What stays the same from datagram to datagram of a burst.
struct Call<'a> {
    lane: &'a Arc<Lane>,
    taken: &'a Cell<bool>,
    moment: &'a Moment,
    probing: Option<&'a Probing>,
    id: WorkerId,
}

impl Call<'_> {
    /// Serves datagram `i`.
    #[inline]
    fn serve<P: Port, S: Service>(&self, port: &mut P, local: &mut Local, service: &mut S, i: usize) {
        let (datagram, room) = port.datagram(i);
        if let Some(probing) = self.probing
            && probing.recognises(datagram.payload)
        {
            self.answer_probe(port, local, probing, i);
            return;
        }
        local.received += 1;
        local.received_bytes += datagram.payload.len() as u64;
        if datagram.truncated {
            local.dropped(DropReason::Truncated);
            return;
        }
        let mut reply = Reply::new(room);
        let request = Request {
            payload: datagram.payload,
            peer: Peer::Raw(datagram.peer),
            asked: Asked { control: datagram.control, bind: self.lane.socket.bind },
            moment: self.moment,
            origin: Some(Origin { lane: self.lane, taken: self.taken }),
        };
        let outcome = service.serve(request, &mut reply);
        let len = reply.len();
        match outcome {
            _ if self.taken.get() => local.deferred(),
            Outcome::Reply => port.queue(i, len),
            Outcome::Drop(reason) => local.dropped(reason),
            Outcome::Defer => local.dropped(DropReason::Abandoned),
        }
    }

    /// Answers a probe apart from the traffic, so that it is not counted.
    #[cold]
    fn answer_probe<P: Port>(&self, port: &mut P, local: &mut Local, probing: &Probing, i: usize) {
        port.send(&mut local.sends);
        let (_, room) = port.datagram(i);
        let len = probing.answer(self.id.index(), room);
        port.queue(i, len);
        // If the answer does not get out, the prober will miss it and say so.
        port.send(&mut SendReport::default());
    }
}
