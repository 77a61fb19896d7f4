//! One queue of an interface, as a port: its socket, its four rings and its frames.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use error_reporter::Report;
use udpath_bpf::{LiveFrames, read_note};

use super::bulk::Bulk;
use super::config::Config;
use super::error::Error;
use super::interface::{Facts, Interface};
use super::monitor::Monitor;
use super::socket::{Socket, Umem};
use super::statistics::Statistics;
use super::sys;
use crate::frame::{BURST, Burst, Frame, Offloads, Pool, Region};
use crate::port::{Completions, Counts, Mode, Port, Properties};
use crate::wire::ethernet;

/// How many frames the fill ring may be short of before it is refilled. Lower: an index is published for fewer
/// frames. Higher: that many entries of a small ring are missing when a burst arrives.
const REFILL: u32 = 32;

/// One queue of an interface. See the header of [`xdp`](super).
pub struct XdpPort {
    pub(super) properties: Properties,
    /// [`Properties::max_frame_len`] as the device last set it: it follows the MTU.
    pub(super) max_frame_len: Arc<AtomicUsize>,
    pub(super) queue: u32,
    /// Declared before the pool: dropping it makes the kernel release its chunks of the pool.
    pub(super) socket: Socket,
    pub(super) pool: Pool,
    /// Frames that the fill ring is short of.
    pub(super) owed: u32,
    /// The shortage from which on it is refilled.
    pub(super) refill: u32,
    /// Frames that the kernel has for sending.
    pub(super) sending: u32,
    /// Whether some of them may still be in the transmit ring.
    pub(super) unsent: bool,
    /// Index of the first entry of the transmit ring that has not completed.
    pub(super) next_completion: u32,
    pub(super) completions: Completions,
    pub(super) busy_poll: bool,
    /// Sends many frames at once; or why it is not used.
    pub(super) bulk: Result<Bulk, String>,
    /// Whether the last receive returned a full burst.
    pub(super) more: bool,
    pub(super) counts: Counts,
    pub(super) statistics: Statistics,
    pub(super) monitor: Monitor,
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
    /// Opens a port on `queue` of `interface`, in the calling thread's network namespace, without a program: it can
    /// send, and receives once a program redirects packets to it. [`XdpDevice`](super::XdpDevice) opens ports that do
    /// both.
    ///
    /// # Errors
    /// No such interface or queue, a queue that has a socket already, no permission, an invalid configuration.
    pub fn open(interface: &str, queue: u32, config: &Config) -> Result<Self, Error> {
        config.check()?;
        let interface = Interface::find(interface)?;
        let facts = interface.facts()?;
        let max_frame_len = Arc::new(AtomicUsize::new(config.max_transmit_len(facts.mtu)));
        Self::with_own_memory(&interface, &facts, queue, config, max_frame_len, false)
    }

    pub(super) fn with_own_memory(
        interface: &Interface,
        facts: &Facts,
        queue: u32,
        config: &Config,
        max_frame_len: Arc<AtomicUsize>,
        generic: bool,
    ) -> Result<Self, Error> {
        let mut region = Region::new(config.frame_size, config.frames)?;
        let pool = region.pool(config.frames)?;
        Self::with(interface, facts, queue, config, max_frame_len, generic, (Umem::Own(&region), pool))
    }

    /// The pool is from the region that the [`Umem`] names.
    pub(super) fn with(
        interface: &Interface,
        facts: &Facts,
        queue: u32,
        config: &Config,
        max_frame_len: Arc<AtomicUsize>,
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
            max_frame_len: max_frame_len.load(Relaxed),
            checksums: config.checksums,
            hashed: false,
        };
        let bulk = match properties.mode {
            _ if !config.live_frames => Err("not requested".into()),
            Mode::Copy if !generic => {
                // The MTU may grow: room for the largest frame.
                Bulk::open(interface.name(), config.max_frame_len())
                    .map_err(|error| Report::new(error).to_string())
            }
            Mode::Copy => Err("the program is attached in generic mode".into()),
            Mode::Direct | Mode::ZeroCopy => Err("nothing is copied".into()),
        };
        let monitor = Monitor::new(&socket.descriptor);
        let most = config.transmit as usize + if bulk.is_ok() { LiveFrames::MOST } else { 0 };
        let mut port = Self {
            properties,
            max_frame_len,
            queue,
            next_completion: socket.transmit.index(),
            completions: Completions::with_room(most),
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

    /// Whether large bursts are sent as live frames ([`Config::live_frames`]).
    ///
    /// # Errors
    /// The reason why they are not.
    pub fn live_frames(&self) -> Result<(), &str> {
        match &self.bulk {
            Ok(bulk) => bulk.why_not().map_or(Ok(()), Err),
            Err(why) => Err(why),
        }
    }

    /// Frames that are neither free nor with the kernel: those that workers hold.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.pool.outstanding()
    }

    /// Packets handed over for sending whose frames have not come back yet.
    #[must_use]
    pub fn sending(&self) -> usize {
        self.sending as usize
    }

    /// A monitor that reads, from any thread, the counts of frames the port received and of those dropped before it.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        self.monitor.clone()
    }

    /// The counters, by reason. Makes a system call.
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

    /// Refills the fill ring, once enough entries are missing.
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
    /// Gathered frames are released with the rest of the memory.
    fn drop(&mut self) {
        // While the socket exists: the monitor keeps this last value.
        let _ = self.monitor.received();
        if let Ok(bulk) = &mut self.bulk {
            for frame in bulk.gathered().drain(..) {
                self.pool.put(frame);
            }
        }
    }
}

/// Reads the hash that the program wrote in front of each of these frames.
#[inline]
fn read_hashes(frames: &mut [Frame]) {
    // Written by another core, unless by a softirq on this one: prefetched together, they cost one wait.
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
        self.properties.max_frame_len = self.max_frame_len.load(Relaxed);
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
        let lengths = ethernet::LEN..=self.properties.max_frame_len;
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
        // With busy polling the device is polled only on request, and sending does that too.
        if self.busy_poll && !called {
            sys::kick_receive(self.socket.as_fd());
        }
    }

    #[inline]
    fn completions(&mut self, into: &mut Completions) {
        self.completions.move_to(into);
    }

    #[inline]
    fn is_sending(&self) -> bool {
        self.next_completion != self.socket.transmit.index() || self.bulk.as_ref().is_ok_and(Bulk::is_waiting)
    }

    #[cold]
    fn abandon(&mut self) {
        self.note_sent();
        while self.next_completion != self.socket.transmit.index() {
            self.give_up_next();
        }
        if let Ok(bulk) = &mut self.bulk {
            for frame in bulk.gathered().drain(..) {
                self.completions.lost(Some(frame.bytes()));
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
