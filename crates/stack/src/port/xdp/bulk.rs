//! The other way to send, where AF_XDP would copy: many frames at once, as live frames.
//!
//! ```text
//! transmit ─▸ gathered, while the worker finds full bursts ─▸ flush ┬ 48 and more ─▸ live frames ─▸ ndo_xdp_xmit in bulks
//!                                                                   └ fewer ─▸ transmit ring ─▸ an skb each
//! ```
//! AF_XDP in copy mode makes an skb of every packet, and on a veth a softirq. Live frames ([`LiveFrames`]) reach the
//! driver without either, for a fixed price per call: sent by whom it is cheaper.
//!
//! - A frame waits here or in the ring, not in both; live frames are sent while the ring is empty, so none overtakes.
//! - Nothing waits for more to come: a turn that did not receive a full burst sends what there is.
//! - A driver that takes none is left alone for a while, and what was gathered goes into the ring: its link may be down, or
//!   its queue full just now.

use std::io;

use udpath_bpf::LiveFrames;

use crate::frame::{BURST, Frame, Pool};
use crate::port::Completions;

/// Frames from which on live frames are cheaper: a call costs 30 us, an skb with what follows from it 0.7 us. Lower: calls
/// cost more than they save. Higher: skbs are made where none was needed.
const MIN_FRAMES: usize = 48;
/// The longest frame that is sent so, bytes: the kernel's page less its own data. Longer ones go into the ring.
const MAX_FRAME_LEN: usize = 3_300;

/// How often many frames go into the ring, after a driver took none as live frames, before it is asked again. Fewer: a
/// driver that never takes any costs a call in vain each time. More: after a link was down, skbs are made for longer.
const BACKOFF_FLUSHES: u32 = 4096;

/// See the module.
pub(super) struct Bulk {
    live: LiveFrames,
    gathered: Vec<Frame>,
    /// How often live frames are passed over yet, and why.
    backoff: u32,
    why: Option<String>,
}

impl Bulk {
    /// For frames of at most `max_frame_len` bytes by `interface`.
    pub(super) fn open(interface: &str, max_frame_len: usize) -> Result<Self, udpath_bpf::Error> {
        let live = LiveFrames::open(interface, max_frame_len.min(MAX_FRAME_LEN))?;
        Ok(Self { live, gathered: Vec::with_capacity(LiveFrames::MOST), backoff: 0, why: None })
    }

    /// Frames that can be gathered yet.
    #[inline]
    pub(super) fn room(&self) -> usize {
        LiveFrames::MOST - self.gathered.len()
    }

    /// Is it time to send, if full bursts keep coming or not?
    #[inline]
    pub(super) fn is_due(&self, more: bool) -> bool {
        !self.gathered.is_empty() && (!more || self.gathered.len() + BURST > LiveFrames::MOST)
    }

    /// Are there enough that live frames are cheaper, and does the driver take them as far as is known?
    #[inline]
    pub(super) fn should_send(&mut self) -> bool {
        if self.gathered.len() < MIN_FRAMES {
            return false;
        }
        let rested = self.backoff == 0;
        self.backoff = self.backoff.saturating_sub(1);
        rested
    }

    /// Why live frames are passed over for now, if they are.
    pub(super) fn why_not(&self) -> Option<&str> {
        self.why.as_deref()
    }

    /// Do frames wait here?
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        !self.gathered.is_empty()
    }

    /// Those that were gathered.
    pub(super) fn gathered(&mut self) -> &mut Vec<Frame> {
        &mut self.gathered
    }

    /// Sends them as live frames: how many the driver took and dropped. What could not be sent so is gathered still. Which of
    /// a call's frames a driver dropped is not known, only how many: the last ones count as lost.
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
