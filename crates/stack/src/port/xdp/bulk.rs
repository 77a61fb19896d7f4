//! Bulk transmission for devices where AF_XDP would copy: many frames at once, as live frames.
//!
//! ```text
//! transmit ─▸ gathered, while the worker finds full bursts ─▸ flush ┬ 48 and more ─▸ live frames ─▸ ndo_xdp_xmit in bulk
//!                                                                   └ fewer ─▸ transmit ring ─▸ an skb each
//! ```
//! AF_XDP in copy mode allocates an skb for every packet and, on a veth, raises a softirq. Live frames
//! ([`LiveFrames`]) reach the driver without either, at a fixed cost per call, so the cheaper of the two is used.
//!
//! - A frame waits here or in the ring, not in both; live frames are sent only while the ring is empty, so frames are
//!   not reordered.
//! - Nothing waits for more frames to arrive: a poll that did not receive a full burst sends the frames gathered so
//!   far.
//! - A driver that accepts none is not tried again for a while, and the gathered frames go into the ring: its link
//!   may be down, or its queue full at the moment.

use std::io;

use udpath_bpf::LiveFrames;

use crate::frame::{BURST, Frame, Pool};
use crate::port::Completions;

/// The number of frames from which on live frames are cheaper: a call costs 30 us, an skb and what follows from it
/// 0.7 us. Lower: calls cost more than they save. Higher: more skbs than necessary.
const MIN_FRAMES: usize = 48;
/// Longest live frame, bytes: the kernel's page less its own data. Longer ones go into the ring.
const MAX_FRAME_LEN: usize = 3_300;

/// How many large flushes go into the ring, after a driver accepted no live frames, before it is tried again. Fewer:
/// a driver that never accepts any costs a failed call each time. More: after a link was down, skbs are used for
/// longer.
const BACKOFF_FLUSHES: u32 = 4096;

/// See the module header.
pub(super) struct Bulk {
    live: LiveFrames,
    gathered: Vec<Frame>,
    /// Flushes left before live frames are tried again, and why they are not used.
    backoff: u32,
    why: Option<String>,
}

impl Bulk {
    /// For frames of at most `max_frame_len` bytes, sent on `interface`.
    pub(super) fn open(interface: &str, max_frame_len: usize) -> Result<Self, udpath_bpf::Error> {
        let live = LiveFrames::open(interface, max_frame_len.min(MAX_FRAME_LEN))?;
        Ok(Self { live, gathered: Vec::with_capacity(LiveFrames::MOST), backoff: 0, why: None })
    }

    /// How many more frames can be gathered.
    #[inline]
    pub(super) fn room(&self) -> usize {
        LiveFrames::MOST - self.gathered.len()
    }

    /// Whether it is time to send. `more`: full bursts are still arriving.
    #[inline]
    pub(super) fn is_due(&self, more: bool) -> bool {
        !self.gathered.is_empty() && (!more || self.gathered.len() + BURST > LiveFrames::MOST)
    }

    /// Whether there are enough frames for live frames to be cheaper, and the driver is not in back-off.
    #[inline]
    pub(super) fn should_send(&mut self) -> bool {
        if self.gathered.len() < MIN_FRAMES {
            return false;
        }
        let rested = self.backoff == 0;
        self.backoff = self.backoff.saturating_sub(1);
        rested
    }

    /// Why live frames are not used at the moment, if so.
    pub(super) fn why_not(&self) -> Option<&str> {
        self.why.as_deref()
    }

    /// Whether frames are waiting here.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        !self.gathered.is_empty()
    }

    /// The gathered frames.
    pub(super) fn gathered(&mut self) -> &mut Vec<Frame> {
        &mut self.gathered
    }

    /// Sends them as live frames; returns how many the driver accepted and dropped. What could not be sent stays
    /// gathered. Only the number of a call's dropped frames is known, not which: the last ones count as lost.
    pub(super) fn send(&mut self, pool: &mut Pool, completions: &mut Completions) -> (usize, usize) {
        let fits = |frame: &&Frame| frame.bytes().len() <= MAX_FRAME_LEN;
        for frame in self.gathered.iter().take_while(fits) {
            let Some(room) = self.live.frame(frame.bytes().len()) else { break };
            room.copy_from_slice(frame.bytes());
        }
        let (mut taken, mut gone) = (0, 0);
        self.why = None;
        while self.live.waiting() > 0 {
            let offered = self.live.send();
            taken += offered.taken;
            gone += offered.frames;
            let Some(cause) = offered.failed else { continue };
            if cause.kind() != io::ErrorKind::Interrupted {
                (self.backoff, self.why) = (BACKOFF_FLUSHES, Some(cause.to_string()));
                break;
            }
            if offered.frames == 0 {
                break;
            }
        }
        self.live.clear();
        completions.sent(taken);
        for (place, frame) in self.gathered.drain(..gone).enumerate() {
            if place >= taken {
                completions.lost(Some(frame.bytes()));
            }
            let foreign = pool.put(frame);
            debug_assert!(foreign.is_none(), "the frame is another port's");
        }
        (taken, gone - taken)
    }
}
