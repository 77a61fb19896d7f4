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
use std::os::fd::BorrowedFd;

use crate::frame::Burst;

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

/// What a port is, for people to read and workers to go by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Properties {
    /// Its name: `eth0 queue 3`.
    pub name: String,
    /// Who copies.
    pub mode: Mode,
    /// Longest frame that can be sent, bytes from the Ethernet header on, without the check sequence.
    pub longest: usize,
    /// Whether checksums of received packets were verified before, so that no frame need say so itself.
    pub verified: bool,
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

    /// What to wait on until frames come. `None`: nothing wakes a sleeper, ask again.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// What was counted. May make a system call.
    fn counts(&self) -> Counts;
}
