//! Live frames: a second way to send, for many requests due at once.
//!
//! AF_XDP in copy mode allocates an skb for every request, and on a veth raises a softirq. Live frames ([`LiveFrames`])
//! reach the driver in bulk without either, at a fixed cost per call. The cheaper way is used: live frames from
//! [`LIVE_THRESHOLD`] requests due at once, else AF_XDP. In zero-copy mode AF_XDP is always cheaper.
//!
//! Requests wait either here or in lanes, never in both, so each flow's requests leave in order. Replies arrive as
//! before.

use arrayvec::ArrayVec;
use udpath_bpf::LiveFrames;
use udpath_stack::port::{Mode, Port};

use super::lane::{Lane, Staged};
use crate::plan::{Arrivals, Plan, Process};

/// Requests due at once from which on they are sent as live frames. Lower: a call costs more (30 µs) than it saves
/// (0.7 µs each). Higher: AF_XDP sends what live frames would send in half the time.
pub(super) const LIVE_THRESHOLD: usize = 64;
/// Requests per second and thread from which on that many may be due at once: a turn takes tens of microseconds, a
/// wake-up hundreds. Lower: programs are loaded that are never used. Higher: rates that would benefit do not.
const MIN_RATE: f64 = 100_000.0;

/// The requests that wait to be sent as live frames. `frames` and `staged` are in the same order.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) frames: LiveFrames,
    pub(super) staged: ArrayVec<Staged, { LiveFrames::MOST }>,
}

impl Live {
    /// For a thread that sends frames of `len` bytes through `interface`.
    pub(super) fn open(interface: &str, len: usize) -> Result<Self, udpath_bpf::Error> {
        Ok(Self { frames: LiveFrames::open(interface, len)?, staged: ArrayVec::new() })
    }
}

/// Whether the plan can have enough requests due at once, and the kernel copies the frames that the lanes send.
pub(super) fn can_pay_off(plan: &Plan, lanes: &[Lane]) -> bool {
    let copied = lanes.iter().all(|lane| lane.port.properties().mode == Mode::Copy);
    let rate = plan.peak_rate().unwrap_or(0.0) / plan.parts() as f64;
    let at_once = match plan.arrivals {
        Arrivals::Open { process: Process::Burst { len }, .. } => len as usize,
        _ => 0,
    };
    copied && (rate >= MIN_RATE || at_once >= LIVE_THRESHOLD)
}
