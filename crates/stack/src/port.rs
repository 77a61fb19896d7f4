//! Ports: where frames come from and go to.
//!
//! ```text
//!            receive ▸ burst of frames ─┐
//!   Port                                ├ the worker that owns the port
//!            transmit ◂ burst ──────────┤
//!            recycle  ◂ burst ──────────┘ nothing to send: the memory goes back
//!            flush      once per turn: what the kernel has to be told
//! ```
//! A port belongs to one worker and one queue of the device. All calls move bursts; none blocks. A frame that came from a
//! port goes back to the same one, by `transmit` or `recycle`.
//!
//! - [`memory`]: a link within the process, for tests, models and the limit of one core.
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
    /// There is no kernel in between.
    Direct,
    /// The device reads and writes our frames itself.
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

/// What is known of the checksums of received packets, for frames that do not say so themselves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Checksums {
    /// Nothing: each is verified.
    #[default]
    Unverified,
    /// Some packets come from senders on this host, which leave UDP's checksum to a device that is not there
    /// (`CHECKSUM_PARTIAL`): it is right, or exactly the sum of the pseudo header. The kernel knows these packets by a mark
    /// that XDP does not see.
    Partial,
    /// They were verified before.
    Verified,
}

impl Checksums {
    /// Verifies what is not known.
    ///
    /// # Errors
    /// As [`Headers::verify`].
    #[inline(always)]
    pub fn check(self, headers: &Headers, frame: &[u8]) -> Result<(), Refusal> {
        match self {
            Self::Unverified => headers.verify(frame),
            Self::Partial => headers.verify_or_partial(frame),
            Self::Verified => Ok(()),
        }
    }
}

/// What a port is, for people to read and workers to go by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Properties {
    /// Its name: `eth0 queue 3`.
    pub name: String,
    /// Who copies.
    pub mode: Mode,
    /// Longest frame that can be sent, bytes from the Ethernet header on, without the check sequence: one with two VLAN
    /// tags. Without them it is four bytes less for each. Where it follows an MTU it may change from turn to turn.
    pub max_frame_len: usize,
    /// What is known of the checksums of received packets.
    pub checksums: Checksums,
    /// Whether received frames tell the device's RSS hash, those of which it has one.
    pub hashed: bool,
}

/// What a port counted, from its start on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames received.
    pub received: u64,
    /// Frames handed over for sending.
    pub transmitted: u64,
    /// Frames lost before they were received: no frame was free to take them, or the queue of them was full.
    pub missed: u64,
    /// Frames the device or the kernel found unfit: too long, a bad address in a ring.
    pub invalid: u64,
}

/// What became of frames that a port was given to send, in the order in which it was given them.
#[derive(Debug, Default)]
pub struct Completions {
    /// Frames the port is done with: sent, but for those in `lost`.
    pub frames: usize,
    /// Those of them that were not sent, by place.
    pub lost: Vec<Lost>,
    /// Frames that the port refused at once, and that are none of `frames`: empty, too long, or another port's.
    pub refused: usize,
}

/// A frame that was not sent: the driver dropped it, or the port ended before the device took it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// Its place among the frames of [`Completions`], from 0 on.
    pub place: usize,
    /// What was in it; `None`: no UDP datagram.
    pub datagram: Option<Unsent>,
}

/// A datagram that was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsent {
    /// Whom it was from.
    pub from: SocketAddr,
    /// Bytes of its payload.
    pub len: usize,
}

impl Completions {
    /// Room for as many losses at once, so that nothing is allocated when they happen.
    #[must_use]
    pub(crate) fn with_room(lost: usize) -> Self {
        Self { lost: Vec::with_capacity(lost), ..Self::default() }
    }

    /// Forgets everything, and keeps the memory.
    pub fn clear(&mut self) {
        (self.frames, self.refused) = (0, 0);
        self.lost.clear();
    }

    /// The next `count` frames in order were sent.
    #[inline]
    pub(crate) fn sent(&mut self, count: usize) {
        self.frames += count;
    }

    /// The next frame in order, with these bytes, was not.
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
    /// What a frame to be sent holds.
    #[must_use]
    pub(crate) fn of(frame: &[u8]) -> Option<Self> {
        let headers = Packet::parse(frame).ok()?;
        Some(Self { from: headers.source(), len: headers.payload(frame).len() })
    }
}

/// One queue of a device, or something like it.
pub trait Port {
    /// What it is.
    fn properties(&self) -> &Properties;

    /// Appends what has come to `into`, as far as that has room. How many.
    fn receive(&mut self, into: &mut Burst) -> usize;

    /// Sends from the front of `frames`. What there is no room for stays in it.
    fn transmit(&mut self, frames: &mut Burst);

    /// Takes frames back, all of them, without sending.
    fn recycle(&mut self, frames: &mut Burst);

    /// Appends up to `wanted` empty frames to `into`, as far as that has room, for packets of one's own.
    fn supply(&mut self, into: &mut Burst, wanted: usize);

    /// Tells the kernel what it has to be told: to be called once after every turn in which any of the above was.
    fn flush(&mut self);

    /// Moves what became of frames to be sent since the last call to `into`, which is empty. To be asked after
    /// [`flush`](Self::flush).
    fn completions(&mut self, into: &mut Completions);

    /// Whether frames to be sent wait for the device, so that [`flush`](Self::flush) has to be called again soon.
    fn is_sending(&self) -> bool {
        false
    }

    /// Gives up the frames that still wait to be sent: they are lost. For the end of a port whose device
    /// takes nothing.
    fn abandon(&mut self) {}

    /// What to wait on until frames come. `None`: nothing wakes a sleeper, ask again.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// What was counted. May make a system call.
    fn counts(&self) -> Counts;
}
