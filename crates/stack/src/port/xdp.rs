//! AF_XDP: a device's queue whose packets the kernel puts into frames of ours, past its own stack.
//!
//! ```text
//!                 ┌────────────────────── Pool ◂────────────────────────┐
//!                 ▾ lend                                                │ reclaim
//!   Port     fill ring        receive ring ▸ Frame ...  Frame ▸ transmit ring        completion ring
//!                 │                 ▴                                │                      ▴
//!   kernel        └▸ chunk ▸ packet ┘                                └▸ packet ▸ sent ▸ chunk ┘
//! ```
//! - [`XdpDevice`] holds the program that takes datagrams from an interface ([`udpath_bpf::Take`]) and opens a port for
//!   each of its queues. A queue without a port, and everything that the program does not take, goes to the kernel.
//! - [`XdpPort`] is one queue: a socket, its four rings, and a pool of frames that nobody else has. It belongs to one
//!   thread. Per turn it publishes each ring's index once, and makes one call where the kernel has to be told; in copy
//!   mode one per 32 packets on kernels before 6.17, which send no more at a time.
//!
//! Everything goes when its owner does, however that ends: the program is attached by a descriptor, and closing a
//! socket takes it out of the program's map, so that its queue's packets go to the kernel again.
//!
//! A worker that sleeps on the descriptor sees packets that came. Packets that could not all be sent in
//! [`flush`](Port::flush) go on with the next one. In copy mode polling the descriptor sends as well (`xsk_poll`), and says
//! nothing of packets that the driver drops then: a worker that counts does not poll while [some wait](Port::is_sending).
//!
//! Where it is wanted ([`Config::rx_hash`]) and the driver tells it, frames come with the NIC's RSS hash, so that workers
//! need not compute it ([`XdpDevice::rx_hash`]): the program writes it in front of each, in the frame's own memory.
//!
//! What a port does not do: verify checksums (nothing tells it what the device found; workers do, see
//! [`Config::checksums`]), or see VLAN tags that
//! the device took off (`ethtool -K IF rxvlan off`).

mod bulk;
mod config;
mod device;
mod error;
mod interface;
mod monitor;
mod ring;
mod socket;
mod sys;
mod transmit;
mod trial;

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

pub use config::{Attach, BusyPoll, Config, Copying};
pub use device::{Change, XdpDevice};
pub use error::Error;
pub use monitor::{Monitor, Received};
pub use trial::Trial;

use crate::frame::{BURST, Burst, Frame, Offloads, Pool, Region};
use crate::port::{Counts, Departed, Mode, Port, Properties};
use crate::wire::ethernet;
use bulk::Bulk;
use interface::{Facts, Interface};
use socket::{Socket, Umem};
pub use udpath_bpf::{Network, Sources};

use udpath_bpf::{LiveFrames, read_note};

/// Frames the fill ring may lack before it is filled up, entries. Lower: an index is published for fewer frames; higher:
/// that many of a small ring are missing when packets come in a rush.
const REFILL: u32 = 32;

/// One queue of an interface. See the module's head.
pub struct XdpPort {
    properties: Properties,
    /// [`Properties::longest`] as the device last saw it: it changes with the MTU.
    longest: Arc<AtomicUsize>,
    queue: u32,
    /// Before the pool: what the kernel has of it is let go with the socket.
    socket: Socket,
    pool: Pool,
    /// Frames the fill ring lacks.
    owed: u32,
    /// From how many on it is filled up.
    refill: u32,
    /// Frames that are with the kernel to be sent.
    sending: u32,
    /// Whether some of them may still be in the transmit ring.
    unsent: bool,
    /// Index of the first entry of the transmit ring that has not departed.
    departing: u32,
    departed: Departed,
    busy_poll: bool,
    /// Sends many frames at once; why not, if it does not.
    bulk: Result<Bulk, String>,
    /// Whether the last look at the queue found a full burst.
    more: bool,
    counts: Counts,
    statistics: Statistics,
    monitor: Monitor,
}

/// What [`Counts`] sums up, by reason, from the port's start on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Lost before they were received: the receive ring was full. The worker is too slow, or away too long.
    pub receive_ring_full: u64,
    /// Lost before they were received: no frame in the fill ring, or (copy mode) too long for one.
    pub no_frame: u64,
    /// How often the kernel found the fill ring empty; with zero-copy the device counts what it lost then.
    pub fill_ring_empty: u64,
    /// Entries of the fill ring that the kernel found unfit.
    pub fill_invalid: u64,
    /// Entries of the transmit ring that the kernel found unfit.
    pub transmit_invalid: u64,
    /// Packets sent as live frames, many at once.
    pub live: u64,
    /// Calls made for that.
    pub live_calls: u64,
    /// Packets that the port itself refused: empty, too long, or another port's frames.
    pub refused: u64,
    /// Calls made to have packets sent.
    pub kicks: u64,
    /// Calls that found the link down or the device gone. The packets stay in the ring.
    pub link_down: u64,
    /// Packets that the device's queue dropped (copy mode): its receiver or the wire is slower.
    pub dropped_sending: u64,
    /// Calls that failed for another reason.
    pub failed: u64,
}

impl fmt::Debug for XdpPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XdpPort")
            .field("properties", &self.properties)
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

impl XdpPort {
    /// Opens a port on `queue` of `interface`, in the calling thread's network namespace, without any program: it sends,
    /// and receives once a program hands it packets. [`XdpDevice`] opens ports that do both.
    ///
    /// # Errors
    /// No such interface or queue, a queue that has a socket already, no permission, a configuration that cannot be.
    pub fn open(interface: &str, queue: u32, config: &Config) -> Result<Self, Error> {
        config.check()?;
        let interface = Interface::find(interface)?;
        let facts = interface.facts()?;
        let longest = Arc::new(AtomicUsize::new(config.longest_sent(facts.mtu)));
        Self::with_own_memory(&interface, &facts, queue, config, longest, false)
    }

    fn with_own_memory(
        interface: &Interface,
        facts: &Facts,
        queue: u32,
        config: &Config,
        longest: Arc<AtomicUsize>,
        generic: bool,
    ) -> Result<Self, Error> {
        let mut region = Region::new(config.frame_size, config.frames)?;
        let pool = region.pool(config.frames)?;
        Self::with(interface, facts, queue, config, longest, generic, (Umem::Own(&region), pool))
    }

    /// The pool is of the region that the [`Umem`] names.
    fn with(
        interface: &Interface,
        facts: &Facts,
        queue: u32,
        config: &Config,
        longest: Arc<AtomicUsize>,
        generic: bool,
        (umem, pool): (Umem<'_>, Pool),
    ) -> Result<Self, Error> {
        if queue >= facts.queues {
            let (interface, queues) = (interface.name().to_owned(), facts.queues);
            return Err(Error::NoQueue { interface, queue, queues });
        }
        let socket = Socket::open(interface, queue, config, umem, generic)?;
        let properties = Properties {
            name: format!("{} queue {queue}", interface.name()),
            mode: socket.mode,
            longest: longest.load(Relaxed),
            checksums: config.checksums,
            hashed: false,
        };
        let bulk = match properties.mode {
            _ if !config.live_frames => Err("not asked for".into()),
            Mode::Copy if !generic => {
                // The MTU may grow: room for all that a frame has.
                Bulk::open(interface.name(), config.longest()).map_err(|error| error.to_string())
            }
            Mode::Copy => Err("the program is attached in generic mode".into()),
            Mode::Direct | Mode::ZeroCopy => Err("nothing is copied".into()),
        };
        let monitor = Monitor::new(&socket.descriptor);
        let most = config.transmit as usize + if bulk.is_ok() { LiveFrames::MOST } else { 0 };
        let mut port = Self {
            properties,
            longest,
            queue,
            departing: socket.transmit.index(),
            departed: Departed::with_room(most),
            socket,
            pool,
            owed: config.fill,
            refill: REFILL.min(config.fill / 4),
            sending: 0,
            unsent: false,
            busy_poll: config.busy_poll.is_some(),
            bulk,
            more: false,
            counts: Counts::default(),
            statistics: Statistics::default(),
            monitor,
        };
        port.fill_up();
        Ok(port)
    }

    /// Its queue's number.
    #[must_use]
    pub fn queue(&self) -> u32 {
        self.queue
    }

    /// Whether many packets at once are sent as live frames ([`Config::live_frames`]).
    ///
    /// # Errors
    /// Why they are not, in words.
    pub fn live_frames(&self) -> Result<(), &str> {
        match &self.bulk {
            Ok(bulk) => bulk.why_not().map_or(Ok(()), Err),
            Err(why) => Err(why),
        }
    }

    /// Frames that are neither free nor with the kernel: those that workers have.
    #[must_use]
    pub fn abroad(&self) -> usize {
        self.pool.abroad()
    }

    /// Packets handed over for sending whose frames have not come back yet.
    #[must_use]
    pub fn sending(&self) -> usize {
        self.sending as usize
    }

    /// Reads what came to the port, and what was dropped before it could, from any thread.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        self.monitor.clone()
    }

    /// What was counted, by reason. Makes a system call.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let mut statistics = self.statistics;
        if let Some(kernel) = self.socket.descriptor.statistics() {
            statistics.receive_ring_full = kernel.rx_ring_full.unwrap_or(0);
            statistics.no_frame = kernel.rx_dropped;
            statistics.fill_ring_empty = kernel.rx_fill_ring_empty_descs.unwrap_or(0);
            statistics.fill_invalid += kernel.rx_invalid_descs;
            statistics.transmit_invalid = kernel.tx_invalid_descs;
        }
        statistics
    }

    /// Offers frames for packets to come, once enough are missing to be worth it.
    #[inline]
    fn fill_up(&mut self) {
        if self.owed < self.refill {
            return;
        }
        let fill = &mut self.socket.fill;
        let wanted = self.owed.min(fill.room(self.owed));
        let mut given = 0;
        while given < wanted
            && let Some(address) = self.pool.lend()
        {
            fill.push(address);
            given += 1;
        }
        if given == 0 {
            return;
        }
        self.owed -= given;
        fill.publish();
        if fill.needs_wakeup() && !self.busy_poll {
            sys::kick_receive(self.socket.as_fd());
        }
    }
}

impl Drop for XdpPort {
    /// What was gathered goes back with the rest of the memory.
    fn drop(&mut self) {
        // While the socket is there: from then on this is what is known.
        let _ = self.monitor.received();
        if let Ok(bulk) = &mut self.bulk {
            for frame in bulk.gathered().drain(..) {
                self.pool.put(frame);
            }
        }
    }
}

/// Notes the hash that the program wrote in front of each of these.
#[inline]
fn read_hashes(frames: &mut [Frame]) {
    // Another core wrote them, unless it was this one's own softirq: fetched together, one wait is all of them.
    frames.iter().for_each(Frame::prefetch_before);
    for frame in frames {
        let hash = frame.before().and_then(read_note);
        frame.set_offloads(Offloads { hash, ..frame.offloads() });
    }
}

impl Port for XdpPort {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    #[inline]
    fn receive(&mut self, into: &mut Burst) -> usize {
        self.properties.longest = self.longest.load(Relaxed);
        let before = into.len();
        let (taken, unfit) = sys::receive(&mut self.socket.receive, &mut self.pool, into);
        if self.properties.hashed {
            read_hashes(&mut into[before..]);
        }
        self.owed += taken;
        if unfit > 0 {
            self.statistics.fill_invalid += u64::from(unfit);
            self.monitor.add_invalid(unfit);
        }
        let count = taken - unfit;
        self.more = count as usize >= BURST;
        self.counts.received += u64::from(count);
        count as usize
    }

    #[inline]
    fn transmit(&mut self, frames: &mut Burst) {
        let lengths = ethernet::LEN..=self.properties.longest;
        let mut at = 0;
        while let Some(frame) = frames.get(at) {
            if lengths.contains(&frame.bytes().len()) && self.pool.owns(frame) {
                at += 1;
            } else {
                let frame = frames.remove(at);
                self.refuse(frame);
            }
        }
        if let Ok(bulk) = &mut self.bulk {
            let room = bulk.room().min(frames.len());
            bulk.gathered().extend(frames.drain(..room));
            return;
        }
        let room = self.socket.transmit.room(frames.len() as u32) as usize;
        let count = frames.len().min(room);
        self.push(frames.drain(..count));
    }

    #[inline]
    fn recycle(&mut self, frames: &mut Burst) {
        for frame in frames.drain(..) {
            let foreign = self.pool.put(frame);
            debug_assert!(foreign.is_none(), "the frame is another port's");
        }
    }

    fn supply(&mut self, into: &mut Burst, wanted: usize) {
        if self.pool.free() < wanted.min(BURST) {
            self.collect();
        }
        let room = into.remaining_capacity().min(wanted);
        into.extend(std::iter::from_fn(|| self.pool.take()).take(room));
    }

    #[inline]
    fn flush(&mut self) {
        self.send_gathered();
        let called = self.send();
        self.collect();
        self.fill_up();
        // With busy polling the device is looked at only when asked, and sending asks already.
        if self.busy_poll && !called {
            sys::kick_receive(self.socket.as_fd());
        }
    }

    #[inline]
    fn departed(&mut self, into: &mut Departed) {
        self.departed.move_to(into);
    }

    #[inline]
    fn is_sending(&self) -> bool {
        self.departing != self.socket.transmit.index() || self.bulk.as_ref().is_ok_and(Bulk::is_waiting)
    }

    #[cold]
    fn abandon(&mut self) {
        self.note_sent();
        while self.departing != self.socket.transmit.index() {
            self.give_up_next();
        }
        if let Ok(bulk) = &mut self.bulk {
            for frame in bulk.gathered().drain(..) {
                self.departed.lost(Some(frame.bytes()));
                self.pool.put(frame);
            }
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn counts(&self) -> Counts {
        let by_reason = self.statistics();
        Counts {
            missed: by_reason.receive_ring_full + by_reason.no_frame,
            invalid: by_reason.fill_invalid + by_reason.transmit_invalid + by_reason.refused,
            ..self.counts
        }
    }
}
