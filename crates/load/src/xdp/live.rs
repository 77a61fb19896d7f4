//! The other way to send: live frames, for when many requests are due at once.
//!
//! AF_XDP in copy mode makes an skb for every request, and on a veth a softirq. Live frames ([`LiveFrames`]) reach the
//! driver in bulks without either, for a fixed price per call. So they are sent by whom it is cheaper: from [`LEAST`]
//! requests due at once as live frames, fewer by AF_XDP. With zero-copy AF_XDP is always cheaper.
//!
//! What holds: requests wait here or in lanes, never in both, so that every flow's leave in order. Replies come as before.

use arrayvec::ArrayVec;
use udpath_bpf::LiveFrames;
use udpath_stack::port::{Mode, Port};

use super::lane::{Lane, Staged};
use crate::plan::{Arrivals, Plan, Process};

/// Requests due at once from which on they are sent as live frames. Fewer: a call's own cost (30 µs) is more than what
/// is saved (0.7 µs each). More: AF_XDP sends what live frames would send in half the time.
pub(super) const LEAST: usize = 64;
/// Requests per second and thread from which on so many may well be due at once: a turn takes some tens of microseconds,
/// a wake-up some hundreds. Lower: programs are loaded that are never used. Higher: rates that would gain do not.
const WORTH: f64 = 100_000.0;

/// The requests that wait to be sent so. Frames and what is known of them stand in the same order.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) frames: LiveFrames,
    pub(super) staged: ArrayVec<Staged, { LiveFrames::MOST }>,
}

impl Live {
    /// For a thread that sends frames of `len` bytes by `interface`.
    pub(super) fn open(interface: &str, len: usize) -> Result<Self, udpath_bpf::Error> {
        Ok(Self { frames: LiveFrames::open(interface, len)?, staged: ArrayVec::new() })
    }
}

/// May the plan have enough due at once, and does the kernel copy what the lanes send?
pub(super) fn is_worth_it(plan: &Plan, lanes: &[Lane]) -> bool {
    let copied = lanes.iter().all(|lane| lane.port.properties().mode == Mode::Copy);
    let rate = plan.peak_rate().unwrap_or(0.0) / plan.threads as f64;
    let at_once = match plan.arrivals {
        Arrivals::Open { process: Process::Burst { len }, .. } => len as usize,
        _ => 0,
    };
    copied && (rate >= WORTH || at_once >= LEAST)
}
