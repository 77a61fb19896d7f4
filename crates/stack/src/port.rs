//! Ports: where frames come from and go to.
//!
//! ```text
//!            receive ▸ burst of frames ─┐
//!   Port                                ├ the worker that owns the port
//!            transmit ◂ burst ──────────┤
//!            recycle  ◂ burst ──────────┘ not to be sent: the frames return to the pool
//!            flush      once per poll: notifies the kernel where necessary
//! ```
//! A port belongs to one worker and one queue of the device. All calls move bursts; none blocks. A frame that came
//! from a port returns to the same one, through `transmit` or `recycle`. ("Port" in this crate is always a frame
//! port; a port of UDP is called a UDP port, or a source or destination port.)
//!
//! - [`memory`]: an in-memory link, for tests, models and the limit of one core.
//! - [`xdp`]: a queue of a device, over AF_XDP.
//! - [`capture`]: a capture file to replay, and another for the replies.

pub mod capture;
pub mod memory;
pub mod xdp;

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use crate::frame::Burst;
use crate::wire::{Headers, Packet, Refusal};

/// Whether the kernel copies each packet between its memory and ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// No kernel in between.
    Direct,
    /// The device reads and writes the frames directly.
    ZeroCopy,
    /// The kernel copies.
    Copy,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::ZeroCopy => "zero-copy",
            Self::Copy => "copy",
        })
    }
}

/// How the checksums of received packets are treated, for frames without checksum metadata.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Checksums {
    /// Unverified: each packet is verified.
    #[default]
    Unverified,
    /// Some packets come from senders on this host, which leave the UDP checksum to a device that does not exist
    /// (`CHECKSUM_PARTIAL`): the checksum is either correct, or exactly the sum of the pseudo header. The kernel
    /// recognises such packets by metadata that XDP does not see.
    Partial,
    /// Verified already.
    Verified,
}

impl Checksums {
    /// Verifies what has not been verified.
    #[inline(always)]
    pub fn check(self, headers: &Headers, frame: &[u8]) -> Result<(), Refusal> {
        match self {
            Self::Unverified => headers.verify(frame),
            Self::Partial => headers.verify_or_partial(frame),
            Self::Verified => Ok(()),
        }
    }
}

/// Properties of a port, for display and for workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Properties {
    /// Its name: `eth0 queue 3`.
    pub name: String,
    /// Who copies.
    pub mode: Mode,
    /// Longest frame that can be sent, bytes from the Ethernet header on, without the frame check sequence: a frame
    /// with two VLAN tags. Four bytes less for each tag that a frame does not have. Where it follows the MTU it may
    /// change from poll to poll.
    pub max_frame_len: usize,
    /// How the checksums of received packets are treated.
    pub checksums: Checksums,
    /// Whether received frames carry the device's RSS hash, where the device computed one.
    pub hashed: bool,
}

/// Counters of a port since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames received.
    pub received: u64,
    /// Frames handed over for sending.
    pub transmitted: u64,
    /// Frames lost before they were received: no free frame, or a full queue.
    pub missed: u64,
    /// Frames that the device or the kernel rejected: too long, or an invalid address in a ring.
    pub invalid: u64,
}

/// What became of frames that a port was given to send, in the order in which it was given them.
#[derive(Debug, Default)]
pub struct Completions {
    /// Completed frames: sent, except for those in `lost`.
    pub frames: usize,
    /// Completed frames that were not sent, by position.
    pub lost: Vec<Lost>,
    /// Frames that the port rejected at once, not included in `frames`: empty, too long, or another port's.
    pub refused: usize,
}

/// A frame that was not sent: the driver dropped it, or the port was closed before the device accepted it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// Its position among the frames of [`Completions`], from 0.
    pub place: usize,
    /// Its datagram; `None` if it was not a UDP datagram.
    pub datagram: Option<Unsent>,
}

/// A datagram that was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsent {
    /// Its source address.
    pub from: SocketAddr,
    /// Bytes of its payload.
    pub len: usize,
}

impl Completions {
    /// Preallocates room for this many losses, so that nothing is allocated when they happen.
    #[must_use]
    pub(crate) fn with_room(lost: usize) -> Self {
        Self { lost: Vec::with_capacity(lost), ..Self::default() }
    }

    /// Clears it, and keeps the memory.
    pub fn clear(&mut self) {
        (self.frames, self.refused) = (0, 0);
        self.lost.clear();
    }

    /// Records that the next `count` frames in order were sent.
    #[inline]
    pub(crate) fn sent(&mut self, count: usize) {
        self.frames += count;
    }

    /// Records that the next frame in order, with these bytes, was not sent.
    #[cold]
    pub(crate) fn lost(&mut self, bytes: Option<&[u8]>) {
        let datagram = bytes.and_then(Unsent::of);
        self.lost.push(Lost { place: self.frames, datagram });
        self.frames += 1;
    }

    /// Moves everything to `into`, which is empty; both keep their memory.
    #[inline]
    pub(crate) fn move_to(&mut self, into: &mut Self) {
        into.frames = std::mem::take(&mut self.frames);
        into.refused = std::mem::take(&mut self.refused);
        if !self.lost.is_empty() {
            into.lost.append(&mut self.lost);
        }
    }
}

impl Unsent {
    /// The datagram in a frame that was to be sent.
    #[must_use]
    pub(crate) fn of(frame: &[u8]) -> Option<Self> {
        let headers = Packet::parse(frame).ok()?;
        Some(Self { from: headers.source(), len: headers.payload(frame).len() })
    }
}

/// One queue of a device, or an equivalent.
pub trait Port {
    /// Its properties.
    fn properties(&self) -> &Properties;

    /// Appends received frames to `into`, as far as there is room. Returns how many.
    fn receive(&mut self, into: &mut Burst) -> usize;

    /// Sends from the front of `frames`. What there is no room for stays in it.
    fn transmit(&mut self, frames: &mut Burst);

    /// Recycles all frames, without sending.
    fn recycle(&mut self, frames: &mut Burst);

    /// Appends up to `wanted` free frames to `into`, as far as there is room, for packets of the caller.
    fn supply(&mut self, into: &mut Burst, wanted: usize);

    /// Notifies the kernel where necessary. Call it once after every poll that called any of the above.
    fn flush(&mut self);

    /// Moves the transmit completions since the last call to `into`, which is empty. Call it after
    /// [`flush`](Self::flush).
    fn completions(&mut self, into: &mut Completions);

    /// Whether frames are waiting for the device to send them, so that [`flush`](Self::flush) has to be called again
    /// soon.
    fn is_sending(&self) -> bool {
        false
    }

    /// Gives up the frames that are still waiting to be sent: they are lost. For closing a port whose device accepts
    /// nothing.
    fn abandon(&mut self) {}

    /// The descriptor to wait on for frames. `None`: nothing wakes a sleeper; poll again.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// The counters. May make a system call.
    fn counts(&self) -> Counts;
}
