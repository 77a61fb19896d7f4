//! One worker: it polls its port, the frames that other workers hand to it, and its own frames as they are returned.
//!
//! ```text
//!               ┌ parse, verify ─ steer ──▸ staged for worker j ──▸ j's backlog, one wake-up
//! port ─ rx ──▸ │                  │here
//!               └──────────────────┴▸ groups ┬ handler ─ reply in place ──▸ tx ──▸ port
//!                                            └ socket ──▸ its producer queue, once per burst
//! backlogs of others ─────────────────────▸ groups ┬ handler ─ reply in place ──▸ return ring of the owner
//!                                                  └ socket ──▸ its producer queue
//! returned: our frames back, from workers and sockets ──▸ tx, or recycled
//! ```
//! - One epoch guard for the whole poll: the groups do not change within it.
//! - A poll takes a bounded number of frames from every source, so that none starves the others.
//! - Only the worker that owns a frame touches it. A reply is written into its request's frame, so it takes the link,
//!   VLAN and addresses of the request in reverse.
//! - Frames for sockets are in their queues before any frame of the same burst is handed to another worker, and
//!   before a backlog is reported as done: a flow that moves to another worker stays in order on its way into the
//!   socket.

mod completion;
mod delivery;
mod dispatch;
mod neighbours;
mod shutdown;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::counters::{Counters, DropReason};
use crate::epoch::{Reader, Table};
use crate::frame::{Burst, Frame, Offloads};
use crate::groups::Groups;
use crate::handler::Handler;
use crate::mesh::WorkerRings;
use crate::port::{Checksums, Completions, Mode, Port};
use crate::steering::Steering;
use crate::wire::Packet;

use completion::Run;
use delivery::Delivery;
use dispatch::{Dispatch, Link, Served};
use neighbours::Current;
use shutdown::Stage;

pub use neighbours::NeighbourCheck;
pub use shutdown::Progress;

/// The first and the longest sleep of an idle worker while the device has not accepted all frames to be sent.
/// Shorter: more system calls in vain. Longer: replies and datagrams that arrive in the meantime, wait longer.
const MIN_SLEEP: Duration = Duration::from_millis(1);
const MAX_SLEEP: Duration = Duration::from_millis(64);

/// The parts that a worker is made of.
pub struct Parts<P, H> {
    /// Its port: a queue of the device. A worker without one serves what others hand to it.
    pub port: Option<P>,
    /// The service.
    pub handler: H,
    /// Its registration as a reader of `groups`.
    pub reader: Reader,
    /// The bindings.
    pub groups: Arc<Table<Groups>>,
    /// Its rings to and from the other workers.
    pub rings: WorkerRings,
    /// How frames of its port are spread. `None`: it serves all of them itself.
    pub steering: Option<Steering>,
}

/// The datapath of one thread.
pub struct Worker<P: Port, H> {
    reader: Reader,
    groups: Arc<Table<Groups>>,
    /// `None`: each reply goes back to where its request came from.
    neighbours: Option<NeighbourCheck>,
    datapath: Datapath<P, H>,
    stage: Stage,
    sleep: Duration,
}

/// The frames that pass through a worker, and everything they pass through.
struct Datapath<P: Port, H> {
    port: Option<P>,
    /// The longest frame that the port sends, bytes.
    max_frame_len: usize,
    rings: WorkerRings,
    steering: Option<Steering>,
    dispatch: Dispatch<H>,
    counters: Counters,
    /// By worker: frames for it to serve, and its own frames to be returned to it.
    staged: Vec<Burst>,
    returns: Vec<Burst>,
    /// Frames for sockets.
    delivery: Delivery,
    rx: Burst,
    tx: Burst,
    to_recycle: Burst,
    /// The senders of the frames that the port has yet to complete, in order.
    sending: VecDeque<Run>,
    completions: Completions,
}

impl<P: Port, H: Handler> Worker<P, H> {
    /// A worker made of `parts`.
    pub fn new(parts: Parts<P, H>) -> Self {
        let Parts { port, handler, reader, groups, rings, steering } = parts;
        let checksums = port.as_ref().map_or_else(Checksums::default, |port| port.properties().checksums);
        let bursts = || (0..rings.workers()).map(|_| Burst::new()).collect();
        let mut datapath = Datapath {
            max_frame_len: 0,
            steering,
            dispatch: Dispatch::new(handler, rings.index().into(), checksums),
            counters: Counters::for_workers(rings.workers()),
            staged: bursts(),
            returns: bursts(),
            delivery: Delivery::new(rings.index()),
            rx: Burst::new(),
            tx: Burst::new(),
            to_recycle: Burst::new(),
            sending: VecDeque::with_capacity(rings.workers() * 2),
            completions: Completions::default(),
            port,
            rings,
        };
        datapath.update_max_frame_len();
        datapath.refill_free_frames();
        Self { reader, groups, neighbours: None, datapath, stage: Stage::Serving, sleep: MIN_SLEEP }
    }

    /// Lets a reply leave as a frame only if the kernel would send it back to the sender of its request.
    #[must_use]
    pub fn checking_neighbours(mut self, check: NeighbourCheck) -> Self {
        self.neighbours = Some(check);
        self
    }

    /// Its counters; they can be read from any thread.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.datapath.counters.clone()
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> Option<&P> {
        self.datapath.port.as_ref()
    }

    /// Its handler.
    #[must_use]
    pub fn handler(&mut self) -> &mut H {
        &mut self.datapath.dispatch.handler
    }

    /// System calls made to wake other workers.
    #[must_use]
    pub fn wake_ups(&self) -> u64 {
        self.datapath.rings.wake_ups()
    }

    /// Takes one burst from every source, serves it and sends what there is to send. Returns how many frames moved: 0
    /// means that there was nothing to do.
    pub fn poll(&mut self) -> usize {
        let guard = self.reader.pin();
        let neighbours = self.neighbours.as_ref().map(|check| check.load(&guard));
        self.datapath.poll(self.groups.load(&guard), neighbours)
    }

    /// Sleeps until there is something to do or `other` becomes readable, for at most `timeout`. With a port that
    /// cannot wake it, it returns at once.
    ///
    /// # Errors
    /// The kernel fails to wait: a descriptor is invalid.
    pub fn wait(&mut self, timeout: Duration, other: Option<BorrowedFd<'_>>) -> std::io::Result<()> {
        // Polling its descriptor would make the kernel send in copy mode, without reporting what it dropped.
        let holds = self
            .datapath
            .port
            .as_ref()
            .is_some_and(|port| port.properties().mode == Mode::Copy && port.is_sending());
        let timeout = if holds { timeout.min(self.sleep) } else { timeout };
        self.sleep = if holds { (self.sleep * 2).min(MAX_SLEEP) } else { MIN_SLEEP };
        let descriptor = match &self.datapath.port {
            Some(_) if holds => None,
            Some(port) => match port.descriptor() {
                Some(descriptor) => Some(descriptor),
                None => return Ok(()),
            },
            None => None,
        };
        let Some(announced) = self.datapath.rings.announce_if_idle() else { return Ok(()) };
        let mut waits = ArrayVec::<PollFd<'_>, 3>::new();
        waits.push(PollFd::from_borrowed_fd(announced.as_fd(), PollFlags::IN));
        let others = descriptor.into_iter().chain(other);
        waits.extend(others.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN)));
        let timeout = Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // A sleeping reader must not keep writers from replacing tables.
        self.reader.idle();
        match poll(&mut waits, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl<P: Port, H: Handler> Datapath<P, H> {
    fn poll(&mut self, groups: &Groups, neighbours: Option<Current<'_>>) -> usize {
        let mut moved = 0;

        if let Some(port) = &mut self.port {
            moved += port.receive(&mut self.rx);
            if port.properties().max_frame_len != self.max_frame_len {
                self.update_max_frame_len();
            }
            self.rx.iter().for_each(Frame::prefetch);
            let link =
                Link { max_frame_len: self.max_frame_len, worker: self.rings.index().into(), neighbours };
            self.dispatch.tally.received += self.rx.len() as u64;
            match &mut self.steering {
                None => {
                    for mut frame in self.rx.drain(..) {
                        let served = match self.dispatch.admit(&frame) {
                            Some(headers) => self.dispatch.serve(&mut frame, &headers, groups, link),
                            None => Served::Nothing,
                        };
                        put(served, frame, &mut self.tx, &mut self.to_recycle, &mut self.delivery);
                    }
                }
                Some(steering) => {
                    let index = self.rings.index();
                    let follows = steering.follows();
                    for mut frame in self.rx.drain(..) {
                        let Some(headers) = self.dispatch.admit(&frame) else {
                            self.to_recycle.push(frame);
                            continue;
                        };
                        let hash = steering.hash(frame.offloads(), &headers);
                        if follows {
                            // The reader records where it wants the flow, by this hash.
                            frame.set_offloads(Offloads { hash: Some(hash), ..frame.offloads() });
                        }
                        let decision = steering.decide(hash, &self.rings.to);
                        let to = decision.cpu().map_or(usize::from(index), usize::from);
                        let Some(Some(peer)) = self.rings.to.get(to) else {
                            let served = self.dispatch.serve(&mut frame, &headers, groups, link);
                            put(served, frame, &mut self.tx, &mut self.to_recycle, &mut self.delivery);
                            continue;
                        };
                        if steering.limits(hash, peer) {
                            self.dispatch.tally.drop(DropReason::FlowLimit, 1);
                            self.to_recycle.push(frame);
                            continue;
                        }
                        frame.set_owner(index);
                        // Has room: `rx` is no longer than a burst, and all of it fits.
                        let staged = &mut self.staged[to];
                        staged.push(frame);
                        steering.queued(decision, peer.tail().wrapping_add(staged.len() as u32));
                    }
                }
            }
            self.deliver(groups);
            if self.steering.is_some() {
                self.hand_over();
            }
            self.dispatch.tally.replied += self.tx.len() as u64;
            self.send(self.rings.index());
        }

        for from in 0..self.rings.from.len() {
            moved += self.serve_backlog(from, groups, neighbours);
        }
        for from in 0..self.rings.from.len() {
            moved += self.take_returned(from);
        }
        moved += self.take_from_sockets();
        if let Some(port) = &mut self.port {
            port.flush();
            self.account_completions();
        }
        self.counters.publish(&mut self.dispatch.tally);
        moved
    }

    /// Publishes the port's current frame length limit to everything that writes replies into its frames.
    #[cold]
    fn update_max_frame_len(&mut self) {
        self.max_frame_len = self.port.as_ref().map_or(0, |port| port.properties().max_frame_len);
        self.rings.set_max_frame_len(self.max_frame_len);
        if let (Some(return_queue), Some(_)) = (&self.rings.return_queue, &self.port) {
            return_queue.set_max_frame_len(self.max_frame_len);
        }
    }

    /// Hands the staged frames to their workers.
    #[inline]
    fn hand_over(&mut self) {
        for (staged, peer) in self.staged.iter_mut().zip(&mut self.rings.to) {
            let (Some(peer), false) = (peer, staged.is_empty()) else { continue };
            let count = staged.len();
            peer.hand_over(staged);
            self.dispatch.tally.steered += (count - staged.len()) as u64;
            if !staged.is_empty() {
                self.dispatch.tally.drop(DropReason::BacklogFull, staged.len());
                self.to_recycle.extend(staged.drain(..));
            }
        }
    }

    /// Serves a burst that another worker handed over.
    fn serve_backlog(&mut self, from: usize, groups: &Groups, neighbours: Option<Current<'_>>) -> usize {
        let Some(peer) = &mut self.rings.from[from] else { return 0 };
        let count = peer.take(&mut self.rx);
        if count == 0 {
            return 0;
        }
        let max_frame_len = self.rings.max_frame_len_of(from);
        let link = Link { max_frame_len, worker: from, neighbours };
        // They are in the other core's cache: fetched together, they cost as much as one or two.
        self.rx.iter().for_each(Frame::prefetch);
        for mut frame in self.rx.drain(..) {
            // Its checksums were verified by the worker that received it; its headers are parsed again because that
            // is cheaper than carrying them over.
            let served = match Packet::parse(frame.bytes()) {
                Ok(headers) => self.dispatch.serve(&mut frame, &headers, groups, link),
                Err(refusal) => {
                    self.dispatch.tally.drop(DropReason::Refused(refusal), 1);
                    Served::Nothing
                }
            };
            match served {
                Served::Socket(binding) => self.delivery.add(binding, frame),
                _ => {
                    let replied = matches!(served, Served::Reply);
                    self.dispatch.tally.replied += u64::from(replied);
                    frame.set_to_send(replied);
                    let owner = usize::from(frame.owner());
                    self.returns[owner].push(frame);
                }
            }
        }
        self.deliver(groups);
        if let Some(peer) = &mut self.rings.from[from] {
            peer.done(count);
        }
        for (returns, peer) in self.returns.iter_mut().zip(&mut self.rings.to) {
            if let (Some(peer), false) = (peer, returns.is_empty()) {
                peer.return_frames(returns);
            }
        }
        count
    }

    /// Takes back our frames from another worker, and sends those that are replies.
    fn take_returned(&mut self, from: usize) -> usize {
        let Some(peer) = &mut self.rings.from[from] else { return 0 };
        let count = peer.take_returned(&mut self.rx);
        if count > 0 {
            for frame in self.rx.drain(..) {
                if frame.to_send() { &mut self.tx } else { &mut self.to_recycle }.push(frame);
            }
            self.send(from as u16);
        }
        count
    }
}

/// Queues a frame after dispatch: to be sent, recycled, or delivered to a socket.
#[inline]
fn put(served: Served, mut frame: Frame, tx: &mut Burst, to_recycle: &mut Burst, delivery: &mut Delivery) {
    match served {
        Served::Reply => tx.push(frame),
        Served::Nothing => to_recycle.push(frame),
        Served::Socket(binding) => {
            frame.set_owner(delivery.index());
            delivery.add(binding, frame);
        }
    }
}
