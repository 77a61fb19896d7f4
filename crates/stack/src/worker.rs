//! One worker: its port's frames, those that others hand to it, and its own coming home.
//!
//! ```text
//!               ┌ parse, verify ─ steer ──▸ staged for worker j ──▸ j's backlog, one wake-up
//! port ─ rx ──▸ │                  │here
//!               └──────────────────┴▸ groups ─ handler ─ turn round ──▸ tx ──▸ port
//! backlogs of others ─────────────────────▸ groups ─ handler ─ turn round ──▸ home, to its owner
//! home: our frames back ──▸ tx, or recycled
//! ```
//! - One epoch guard for the whole turn: the groups do not change within it.
//! - A turn takes a bounded number of frames from every source, so that none starves the others.
//! - A frame is touched by the worker that has it and by nobody else; a reply is written into its request's frame, so the
//!   way back over link, VLAN and address is the way it came.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::counters::{Counters, Drop, Tally};
use crate::epoch::{Reader, Table};
use crate::frame::{Burst, Frame};
use crate::groups::{Found, Groups};
use crate::handler::{Datagram, Handler, Outcome};
use crate::mesh::Links;
use crate::port::Port;
use crate::steering::Steering;
use crate::wire::{Headers, Packet, UdpChecksum, reply};

/// Room for a reply: more than any datagram.
const ROOM: usize = 1 << 16;

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
pub struct Worker<P, H> {
    reader: Reader,
    groups: Arc<Table<Groups>>,
    traffic: Traffic<P, H>,
}

/// The frames that go through a worker, and what they go through.
struct Traffic<P, H> {
    port: Option<P>,
    links: Links,
    steering: Option<Steering>,
    desk: Desk<H>,
    counters: Counters,
    /// Frames for each other worker to serve, by its number; and those of others on their way home.
    staged: Vec<Burst>,
    home: Vec<Burst>,
    rx: Burst,
    tx: Burst,
    spare: Burst,
}

/// Where a frame is served.
struct Desk<H> {
    handler: H,
    room: Box<[u8]>,
    /// Of the port: its longest frame, and whether checksums of all it receives are known to be right.
    longest: usize,
    verified: bool,
    tally: Tally,
}

/// What became of a frame that was served.
enum Served {
    Reply,
    Nothing,
}

impl<P: Port, H: Handler> Worker<P, H> {
    /// Puts the parts together.
    pub fn new(parts: Parts<P, H>) -> Self {
        let Parts { port, handler, reader, groups, links, steering } = parts;
        let verified = port.as_ref().is_some_and(|port| port.properties().verified);
        let longest = port.as_ref().map_or(usize::MAX, |port| port.properties().longest);
        let bursts = || (0..links.workers()).map(|_| Burst::new()).collect();
        let traffic = Traffic {
            steering,
            desk: Desk { handler, room: vec![0; ROOM].into(), longest, verified, tally: Tally::default() },
            counters: Counters::default(),
            staged: bursts(),
            home: bursts(),
            rx: Burst::new(),
            tx: Burst::new(),
            spare: Burst::new(),
            port,
            links,
        };
        Self { reader, groups, traffic }
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
        let descriptor = match &self.traffic.port {
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
            self.rx.iter().for_each(Frame::prefetch);
            self.desk.tally.received += self.rx.len() as u64;
            match &mut self.steering {
                None => {
                    for mut frame in self.rx.drain(..) {
                        let served = match self.desk.admit(&frame) {
                            Some(headers) => self.desk.serve(&mut frame, &headers, groups),
                            None => Served::Nothing,
                        };
                        put(served, frame, &mut self.tx, &mut self.spare);
                    }
                }
                Some(steering) => {
                    let index = self.links.index();
                    for mut frame in self.rx.drain(..) {
                        let Some(headers) = self.desk.admit(&frame) else {
                            self.spare.push(frame);
                            continue;
                        };
                        let hash = steering.hash(frame.offloads(), &headers);
                        let decision = steering.decide(hash, &self.links.to);
                        let to = decision.cpu().map_or(usize::from(index), usize::from);
                        let Some(Some(link)) = self.links.to.get(to) else {
                            let served = self.desk.serve(&mut frame, &headers, groups);
                            put(served, frame, &mut self.tx, &mut self.spare);
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
                    self.hand_over();
                }
            }
            self.send();
        }

        for from in 0..self.links.from.len() {
            moved += self.serve_backlog(from, groups);
        }
        for from in 0..self.links.from.len() {
            moved += self.take_home(from);
        }
        if let Some(port) = &mut self.port {
            port.flush();
        }
        self.counters.publish(&mut self.desk.tally);
        moved
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
        // They lie in the other core's cache: fetched together, they come at the price of one or two.
        self.rx.iter().for_each(Frame::prefetch);
        for mut frame in self.rx.drain(..) {
            // Its checksums were verified where it came from; its headers are read again, for that is cheaper than to
            // carry them over.
            let served = match Packet::parse(frame.bytes()) {
                Ok(headers) => self.desk.serve(&mut frame, &headers, groups),
                Err(refusal) => {
                    self.desk.tally.drop(Drop::Refused(refusal), 1);
                    Served::Nothing
                }
            };
            frame.set_to_send(matches!(served, Served::Reply));
            let owner = usize::from(frame.owner());
            self.home[owner].push(frame);
        }
        link.done(count);
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
                let served = if frame.to_send() { Served::Reply } else { Served::Nothing };
                put(served, frame, &mut self.tx, &mut self.spare);
            }
            self.send();
        }
        count
    }

    /// Gives the port what is to be sent and what is free.
    #[inline]
    fn send(&mut self) {
        let Some(port) = &mut self.port else { return };
        if !self.tx.is_empty() {
            let count = self.tx.len();
            port.transmit(&mut self.tx);
            if !self.tx.is_empty() {
                // Completions may have made room meanwhile.
                port.flush();
                port.transmit(&mut self.tx);
            }
            self.desk.tally.answered += (count - self.tx.len()) as u64;
            if !self.tx.is_empty() {
                self.desk.tally.drop(Drop::TransmitFull, self.tx.len());
                port.recycle(&mut self.tx);
            }
        }
        if !self.spare.is_empty() {
            port.recycle(&mut self.spare);
        }
    }
}

/// A served frame's way on: to be sent, or back to the port's memory.
#[inline]
fn put(served: Served, frame: Frame, tx: &mut Burst, spare: &mut Burst) {
    match served {
        Served::Reply => tx.push(frame),
        Served::Nothing => spare.push(frame),
    }
}

impl<H: Handler> Desk<H> {
    /// Reads and verifies a frame that came from the port.
    #[inline]
    fn admit(&mut self, frame: &Frame) -> Option<Headers> {
        let bytes = frame.bytes();
        let checked = Packet::parse(bytes).and_then(|headers| {
            if !self.verified && !frame.offloads().checksums {
                headers.verify(bytes)?;
            }
            Ok(headers)
        });
        match checked {
            Ok(headers) => Some(headers),
            Err(refusal) => {
                self.tally.drop(Drop::Refused(refusal), 1);
                None
            }
        }
    }

    /// Finds who serves the frame and lets them.
    #[inline]
    fn serve(&mut self, frame: &mut Frame, headers: &Headers, groups: &Groups) -> Served {
        let binding = match groups.find(headers) {
            Found::Binding(binding) => binding,
            Found::Unbound => return self.dropped(Drop::Unbound),
            Found::NotLocal => return self.dropped(Drop::NotLocal),
        };
        let datagram = Datagram { payload: headers.payload(frame.bytes()), headers, binding };
        let Outcome::Reply(len) = self.handler.handle(datagram, &mut self.room) else {
            self.tally.declined += 1;
            return Served::Nothing;
        };
        let reply = &self.room[..len.min(ROOM)];
        let end = headers.payload_offset() + reply.len();
        if end > self.longest || !frame.set_len(end) {
            return self.too_long(frame, headers, binding, len);
        }
        let bytes = frame.bytes_mut();
        bytes[headers.payload_offset()..].copy_from_slice(reply);
        match reply::turn(bytes, headers, reply.len(), UdpChecksum::Computed) {
            Ok(_) => Served::Reply,
            Err(_) => self.dropped(Drop::ReplyTooLong),
        }
    }

    #[cold]
    fn too_long(&mut self, frame: &Frame, headers: &Headers, binding: u16, len: usize) -> Served {
        let datagram = Datagram { payload: headers.payload(frame.bytes()), headers, binding };
        if self.handler.too_long(datagram, &self.room[..len.min(ROOM)]) {
            self.tally.declined += 1;
            Served::Nothing
        } else {
            self.dropped(Drop::ReplyTooLong)
        }
    }

    #[cold]
    fn dropped(&mut self, reason: Drop) -> Served {
        self.tally.drop(reason, 1);
        Served::Nothing
    }
}
