//! One worker: its port's frames, those that others hand to it, and its own coming home.
//!
//! ```text
//!               ┌ parse, verify ─ steer ──▸ staged for worker j ──▸ j's backlog, one wake-up
//! port ─ rx ──▸ │                  │here
//!               └──────────────────┴▸ groups ┬ handler ─ turn round ──▸ tx ──▸ port
//!                                            └ a socket has the binding ──▸ its producer queue, once per burst
//! backlogs of others ─────────────────────▸ groups ┬ handler ─ turn round ──▸ home, to its owner
//!                                                  └ a socket has the binding ──▸ its producer queue
//! home: our frames back, from workers and sockets ──▸ tx, or recycled
//! ```
//! - One epoch guard for the whole turn: the groups do not change within it.
//! - A turn takes a bounded number of frames from every source, so that none starves the others.
//! - A frame is touched by the worker that has it and by nobody else; a reply is written into its request's frame, so the
//!   way back over link, VLAN and address is the way it came.
//! - Frames for sockets are in their queues before any frame of the same burst is handed to another worker, and before a
//!   backlog is reported as done: a flow that moves to another worker stays in order on its way into the socket.

mod delivery;
mod departure;
mod desk;
mod end;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::counters::{Counters, Drop};
use crate::epoch::{Reader, Table};
use crate::frame::{Burst, Frame, Offloads};
use crate::groups::Groups;
use crate::handler::Handler;
use crate::mesh::Links;
use crate::port::{Checksums, Departed, Mode, Port};
use crate::steering::Steering;
use crate::wire::Packet;

use delivery::Delivery;
use departure::Run;
use desk::{Desk, Served};
use end::Stage;

pub use end::Progress;

/// First and longest nap of a worker that would sleep while the device does not take all that is to be sent. Shorter: more
/// calls in vain; longer: replies, and datagrams that come meanwhile, wait longer.
const NAP: Duration = Duration::from_millis(1);
const LONGEST_NAP: Duration = Duration::from_millis(64);

/// What a worker is made of.
pub struct Parts<P, H> {
    /// Its queue of the device. A worker without one serves what others hand to it.
    pub port: Option<P>,
    /// Who serves.
    pub handler: H,
    /// Its place among the readers of `groups`.
    pub reader: Reader,
    /// Who serves what.
    pub groups: Arc<Table<Groups>>,
    /// The rings to the other workers.
    pub links: Links,
    /// How frames of its port are spread. `None`: it serves all of them itself.
    pub steering: Option<Steering>,
}

/// One thread's part of the datapath.
pub struct Worker<P: Port, H> {
    reader: Reader,
    groups: Arc<Table<Groups>>,
    traffic: Traffic<P, H>,
    stage: Stage,
    nap: Duration,
}

/// The frames that go through a worker, and what they go through.
struct Traffic<P: Port, H> {
    port: Option<P>,
    /// The longest frame it sends, bytes.
    longest: usize,
    links: Links,
    steering: Option<Steering>,
    desk: Desk<H>,
    counters: Counters,
    /// Frames for each other worker to serve, by its number; and those of others on their way home.
    staged: Vec<Burst>,
    home: Vec<Burst>,
    /// Frames for sockets.
    delivery: Delivery,
    rx: Burst,
    tx: Burst,
    spare: Burst,
    /// Whose frames the port has to send, in order.
    sending: VecDeque<Run>,
    departed: Departed,
}

impl<P: Port, H: Handler> Worker<P, H> {
    /// Puts the parts together.
    pub fn new(parts: Parts<P, H>) -> Self {
        let Parts { port, handler, reader, groups, links, steering } = parts;
        let checksums = port.as_ref().map_or_else(Checksums::default, |port| port.properties().checksums);
        let bursts = || (0..links.workers()).map(|_| Burst::new()).collect();
        let mut traffic = Traffic {
            longest: 0,
            steering,
            desk: Desk::new(handler, links.index().into(), checksums),
            counters: Counters::among(links.workers()),
            staged: bursts(),
            home: bursts(),
            delivery: Delivery::new(links.index()),
            rx: Burst::new(),
            tx: Burst::new(),
            spare: Burst::new(),
            sending: VecDeque::with_capacity(links.workers() * 2),
            departed: Departed::default(),
            port,
            links,
        };
        traffic.follow_longest();
        traffic.stock();
        Self { reader, groups, traffic, stage: Stage::Serving, nap: NAP }
    }

    /// Its counters, to be read from anywhere.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.traffic.counters.clone()
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> Option<&P> {
        self.traffic.port.as_ref()
    }

    /// Its handler.
    #[must_use]
    pub fn handler(&mut self) -> &mut H {
        &mut self.traffic.desk.handler
    }

    /// System calls made to wake other workers.
    #[must_use]
    pub fn wake_ups(&self) -> u64 {
        self.traffic.links.wake_ups()
    }

    /// Takes one burst from every source, serves it and sends what is to be sent. How many frames moved: 0 means that there
    /// was nothing to do.
    pub fn turn(&mut self) -> usize {
        let guard = self.reader.pin();
        self.traffic.turn(self.groups.load(&guard))
    }

    /// Sleeps until there is something to do or `other` becomes readable, for at most `timeout`. With a port that cannot
    /// wake there is no sleep.
    ///
    /// # Errors
    /// The kernel refuses to wait: a descriptor is broken.
    pub fn wait(&mut self, timeout: Duration, other: Option<BorrowedFd<'_>>) -> std::io::Result<()> {
        // Waiting on its descriptor would make the kernel send in copy mode, and lose what it says of it.
        let holds = self
            .traffic
            .port
            .as_ref()
            .is_some_and(|port| port.properties().mode == Mode::Copy && port.is_sending());
        let timeout = if holds { timeout.min(self.nap) } else { timeout };
        self.nap = if holds { (self.nap * 2).min(LONGEST_NAP) } else { NAP };
        let descriptor = match &self.traffic.port {
            Some(_) if holds => None,
            Some(port) => match port.descriptor() {
                Some(descriptor) => Some(descriptor),
                None => return Ok(()),
            },
            None => None,
        };
        let Some(announced) = self.traffic.links.announce_if_quiet() else { return Ok(()) };
        let mut waits = ArrayVec::<PollFd<'_>, 3>::new();
        waits.push(PollFd::from_borrowed_fd(announced.as_fd(), PollFlags::IN));
        let others = descriptor.into_iter().chain(other);
        waits.extend(others.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN)));
        let timeout = Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // A reader that sleeps must not hold up whoever replaces a table.
        self.reader.idle();
        match poll(&mut waits, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl<P: Port, H: Handler> Traffic<P, H> {
    fn turn(&mut self, groups: &Groups) -> usize {
        let mut moved = 0;

        if let Some(port) = &mut self.port {
            moved += port.receive(&mut self.rx);
            if port.properties().longest != self.longest {
                self.follow_longest();
            }
            self.rx.iter().for_each(Frame::prefetch);
            let longest = self.longest;
            self.desk.tally.received += self.rx.len() as u64;
            match &mut self.steering {
                None => {
                    for mut frame in self.rx.drain(..) {
                        let served = match self.desk.admit(&frame) {
                            Some(headers) => self.desk.serve(&mut frame, &headers, groups, longest),
                            None => Served::Nothing,
                        };
                        put(served, frame, &mut self.tx, &mut self.spare, &mut self.delivery);
                    }
                }
                Some(steering) => {
                    let index = self.links.index();
                    let follows = steering.follows();
                    for mut frame in self.rx.drain(..) {
                        let Some(headers) = self.desk.admit(&frame) else {
                            self.spare.push(frame);
                            continue;
                        };
                        let hash = steering.hash(frame.offloads(), &headers);
                        if follows {
                            // Its reader says where it wants the flow, by this hash.
                            frame.set_offloads(Offloads { hash: Some(hash), ..frame.offloads() });
                        }
                        let decision = steering.decide(hash, &self.links.to);
                        let to = decision.cpu().map_or(usize::from(index), usize::from);
                        let Some(Some(link)) = self.links.to.get(to) else {
                            let served = self.desk.serve(&mut frame, &headers, groups, longest);
                            put(served, frame, &mut self.tx, &mut self.spare, &mut self.delivery);
                            continue;
                        };
                        if steering.limits(hash, link) {
                            self.desk.tally.drop(Drop::FlowLimit, 1);
                            self.spare.push(frame);
                            continue;
                        }
                        frame.set_owner(index);
                        // A burst has as much room as this one that is emptied into it.
                        let staged = &mut self.staged[to];
                        staged.push(frame);
                        steering.queued(decision, link.tail().wrapping_add(staged.len() as u32));
                    }
                }
            }
            self.deliver(groups);
            if self.steering.is_some() {
                self.hand_over();
            }
            self.desk.tally.replied += self.tx.len() as u64;
            self.send(self.links.index());
        }

        for from in 0..self.links.from.len() {
            moved += self.serve_backlog(from, groups);
        }
        for from in 0..self.links.from.len() {
            moved += self.take_home(from);
        }
        moved += self.take_from_sockets();
        if let Some(port) = &mut self.port {
            port.flush();
            self.settle();
        }
        self.counters.publish(&mut self.desk.tally);
        moved
    }

    /// Has everyone who writes replies into this port's frames go by what the port sends now.
    #[cold]
    fn follow_longest(&mut self) {
        self.longest = self.port.as_ref().map_or(0, |port| port.properties().longest);
        self.links.set_longest(self.longest);
        if let (Some(depot), Some(_)) = (&self.links.depot, &self.port) {
            depot.set_longest(self.longest);
        }
    }

    /// Hands what is staged to the workers it is for.
    #[inline]
    fn hand_over(&mut self) {
        for (staged, link) in self.staged.iter_mut().zip(&mut self.links.to) {
            let (Some(link), false) = (link, staged.is_empty()) else { continue };
            let count = staged.len();
            link.hand_over(staged);
            self.desk.tally.steered += (count - staged.len()) as u64;
            if !staged.is_empty() {
                self.desk.tally.drop(Drop::BacklogFull, staged.len());
                self.spare.extend(staged.drain(..));
            }
        }
    }

    /// Serves a burst of what another worker handed over.
    fn serve_backlog(&mut self, from: usize, groups: &Groups) -> usize {
        let Some(link) = &mut self.links.from[from] else { return 0 };
        let count = link.take(&mut self.rx);
        if count == 0 {
            return 0;
        }
        let longest = self.links.longest_of(from);
        // They lie in the other core's cache: fetched together, they come at the price of one or two.
        self.rx.iter().for_each(Frame::prefetch);
        for mut frame in self.rx.drain(..) {
            // Its checksums were verified where it came from; its headers are read again, for that is cheaper than to
            // carry them over.
            let served = match Packet::parse(frame.bytes()) {
                Ok(headers) => self.desk.serve(&mut frame, &headers, groups, longest),
                Err(refusal) => {
                    self.desk.tally.drop(Drop::Refused(refusal), 1);
                    Served::Nothing
                }
            };
            match served {
                Served::Socket(binding) => self.delivery.add(binding, frame),
                _ => {
                    let replied = matches!(served, Served::Reply);
                    self.desk.tally.replied += u64::from(replied);
                    frame.set_to_send(replied);
                    let owner = usize::from(frame.owner());
                    self.home[owner].push(frame);
                }
            }
        }
        self.deliver(groups);
        if let Some(link) = &mut self.links.from[from] {
            link.done(count);
        }
        for (home, link) in self.home.iter_mut().zip(&mut self.links.to) {
            if let (Some(link), false) = (link, home.is_empty()) {
                link.send_home(home);
            }
        }
        count
    }

    /// Takes our frames back that another worker is done with, and sends those that are replies.
    fn take_home(&mut self, from: usize) -> usize {
        let Some(link) = &mut self.links.from[from] else { return 0 };
        let count = link.returned(&mut self.rx);
        if count > 0 {
            for frame in self.rx.drain(..) {
                if frame.to_send() { &mut self.tx } else { &mut self.spare }.push(frame);
            }
            self.send(from as u16);
        }
        count
    }
}

/// A frame's way on, after it was looked at: to be sent, back to the port's memory, or into a socket.
#[inline]
fn put(served: Served, mut frame: Frame, tx: &mut Burst, spare: &mut Burst, delivery: &mut Delivery) {
    match served {
        Served::Reply => tx.push(frame),
        Served::Nothing => spare.push(frame),
        Served::Socket(binding) => {
            frame.set_owner(delivery.index());
            delivery.add(binding, frame);
        }
    }
}
