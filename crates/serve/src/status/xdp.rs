//! The status of the fast path of `xdp`: per queue and in total.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use udpath_stack::counters::Snapshot;
use udpath_stack::port::Port;
use udpath_stack::port::xdp::{ReceiveCounts, XdpPort};

use crate::counts::Unbalanced;

/// What happened to frames taken from the devices' queues:
/// `taken = answered + declined + dropped (by reason) + in_flight`, and at rest nothing is in flight.
#[derive(Debug, Clone, JsonSchema, Serialize)]
pub struct XdpStatus {
    /// One entry per queue.
    pub ports: Vec<XdpPortStatus>,
    /// Frames the program took: redirected to the AF_XDP socket of their queue.
    pub taken: u64,
    /// Frames that workers received.
    pub received: u64,
    /// Replies sent.
    pub answered: u64,
    /// Datagrams the service did not answer, or answered over a kernel socket.
    pub declined: u64,
    /// Frames served by a worker other than that of their queue.
    pub steered: u64,
    /// Frames dropped, by reason. Those the kernel dropped before a worker received them are also in
    /// [`Status::kernel_drops`](super::Status::kernel_drops): `receive_ring_full`, `fill_ring_empty`,
    /// `invalid_descriptor` and `redirect_failed`. All others are in the workers' counts.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Frames not counted above yet: in a ring, with a worker, or replies waiting for the device.
    pub in_flight: u64,
    /// Everything that arrived at the interfaces, by the decision of the program.
    pub program: BTreeMap<&'static str, u64>,
}

/// The status of one queue.
#[derive(Debug, Clone, JsonSchema, Serialize)]
pub struct XdpPortStatus {
    /// Interface and queue.
    pub name: String,
    /// `zero-copy`, or `copy` if the kernel copies frames.
    pub mode: String,
    /// The result of the start-up probe: `answered` if its worker answered a frame injected into the queue, or `taken`
    /// if the attached program would redirect frames to the queue's socket. The kernel can inject frames into queue 0
    /// only, and not with zero-copy.
    pub probe: &'static str,
    /// Whether bursts of replies are sent as live frames, in bulk: `yes`, or why not.
    pub live_frames: String,
    /// The source of the hash that frames are steered by: `from the device` where it provides one, or `computed` and
    /// why; `None` without steering.
    pub rx_hash: Option<String>,
    /// Frames the kernel put into the queue's receive ring.
    pub delivered: u64,
    /// Frames the kernel dropped instead, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
}

/// Why the kernel dropped a frame that the program had taken.
#[cfg(test)]
pub(super) const KERNEL_REASONS: [&str; 4] =
    [RECEIVE_RING_FULL, FILL_RING_EMPTY, INVALID_DESCRIPTOR, REDIRECT_FAILED];
const RECEIVE_RING_FULL: &str = "receive_ring_full";
const FILL_RING_EMPTY: &str = "fill_ring_empty";
const INVALID_DESCRIPTOR: &str = "invalid_descriptor";
const REDIRECT_FAILED: &str = "redirect_failed";

/// Frames as the program and the kernel counted them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Arrivals {
    /// Frames the program took.
    pub(crate) taken: u64,
    /// By port.
    pub(crate) received: Vec<ReceiveCounts>,
    /// Frames it took that no socket accepted.
    pub(crate) redirect_failed: u64,
}

impl Arrivals {
    /// Frames the kernel dropped.
    pub(crate) fn dropped(&self) -> u64 {
        self.received.iter().map(ReceiveCounts::dropped).sum::<u64>() + self.redirect_failed
    }
}

impl XdpPortStatus {
    pub(crate) fn of(port: &XdpPort, answered: bool, rx_hash: Option<String>) -> Self {
        let properties = port.properties();
        Self {
            name: properties.name.clone(),
            mode: properties.mode.to_string(),
            probe: if answered { "answered" } else { "taken" },
            live_frames: port.live_frames().err().unwrap_or("yes").to_owned(),
            rx_hash,
            delivered: 0,
            dropped: BTreeMap::new(),
        }
    }

    fn received(&mut self, received: &ReceiveCounts) {
        self.delivered = received.delivered;
        add(&mut self.dropped, received);
    }
}

/// Adds up by reason.
fn add(dropped: &mut BTreeMap<&'static str, u64>, received: &ReceiveCounts) {
    let ReceiveCounts { ring_full, no_frame, invalid, .. } = *received;
    let reasons =
        [(RECEIVE_RING_FULL, ring_full), (FILL_RING_EMPTY, no_frame), (INVALID_DESCRIPTOR, invalid)];
    for (reason, count) in reasons.into_iter().filter(|(_, count)| *count > 0) {
        *dropped.entry(reason).or_default() += count;
    }
}

impl XdpStatus {
    /// `frames`: the counters of all workers. `arrivals` may have been read later.
    pub(crate) fn new(
        mut ports: Vec<XdpPortStatus>,
        frames: &Snapshot,
        arrivals: &Arrivals,
        program: impl IntoIterator<Item = (&'static str, u64)>,
    ) -> Self {
        let mut dropped: BTreeMap<_, _> =
            frames.drops().map(|(reason, count)| (reason.name(), count)).collect();
        let mut invalid = 0;
        for (port, received) in ports.iter_mut().zip(&arrivals.received) {
            port.received(received);
            add(&mut dropped, received);
            invalid += received.transmit_invalid;
        }
        for (reason, count) in [(REDIRECT_FAILED, arrivals.redirect_failed), ("transmit_invalid", invalid)] {
            if count > 0 {
                dropped.insert(reason, count);
            }
        }
        let answered = frames.answered.saturating_sub(invalid);
        let done = answered + frames.declined + dropped.values().sum::<u64>();
        Self {
            ports,
            taken: arrivals.taken,
            received: frames.received,
            answered,
            declined: frames.declined,
            steered: frames.steered,
            dropped,
            in_flight: arrivals.taken.saturating_sub(done),
            program: program.into_iter().filter(|(_, count)| *count > 0).collect(),
        }
    }

    /// Checks the identity.
    pub(super) fn balance(&self) -> Result<(), Unbalanced> {
        let dropped = self.dropped.values().sum();
        if self.taken == self.answered + self.declined + dropped + self.in_flight {
            return Ok(());
        }
        let Self { taken: received, answered, declined: deferred, in_flight, .. } = *self;
        Err(Unbalanced { received, answered, dropped, deferred, in_flight })
    }
}
