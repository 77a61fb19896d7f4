//! Counters as plain numbers, and the identity they satisfy.

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use udpath_stack::counters::{DropReason as FrameDrop, Snapshot};

use crate::outcome::{DropReason, SendError};

/// Datagram counters: `received = answered + dropped + deferred + in_flight`, and at rest nothing is in flight.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Counts {
    /// Datagrams received.
    pub received: u64,
    /// Their payload bytes.
    pub received_bytes: u64,
    /// Replies the kernel accepted; with `xdp`, replies that left the port. In the counts of a socket, replies are
    /// counted when the port receives them.
    pub answered: u64,
    /// Their payload bytes, including replies in flight.
    pub answered_bytes: u64,
    /// Requests without an answer, by reason.
    pub dropped: Dropped,
    /// Requests whose handles are still held by the service.
    pub deferred: u64,
    /// With `xdp`: replies on their way to the port, or waiting there for the device.
    pub in_flight: u64,
    /// The causes of `dropped.send_failed`.
    pub send_errors: SendErrors,
    /// Receive calls that returned at least one datagram. `received / bursts` is the mean burst.
    pub bursts: u64,
    /// Receive calls that failed.
    pub receive_errors: u64,
}

/// Counters by [`DropReason`] and, for frames, by [`FrameDrop`].
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(
    from = "std::collections::BTreeMap<String, u64>",
    into = "std::collections::BTreeMap<String, u64>"
)]
pub struct Dropped {
    pub(crate) requests: [u64; DropReason::ALL.len()],
    frames: [u64; FrameDrop::COUNT],
}

impl Default for Dropped {
    fn default() -> Self {
        Self { requests: Default::default(), frames: [0; FrameDrop::COUNT] }
    }
}

impl Dropped {
    /// Requests dropped for this reason.
    #[must_use]
    pub fn by(&self, reason: DropReason) -> u64 {
        self.requests[reason as usize]
    }

    /// Frames of `xdp` dropped for this reason before they reached the service.
    #[must_use]
    pub fn frames(&self, reason: FrameDrop) -> u64 {
        self.frames[reason.index()]
    }

    /// Their sum.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.requests.iter().chain(&self.frames).sum()
    }

    /// The reasons that occurred, by name, with their counts.
    pub fn occurred(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let requests = DropReason::ALL.into_iter().map(DropReason::name).zip(self.requests);
        requests.chain(self.of_frames()).filter(|(_, count)| *count > 0)
    }

    fn of_frames(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        FrameDrop::all().map(FrameDrop::name).zip(self.frames)
    }

    fn add(&mut self, other: &Self) {
        self.requests.iter_mut().zip(other.requests).for_each(|(sum, more)| *sum += more);
        self.frames.iter_mut().zip(other.frames).for_each(|(sum, more)| *sum += more);
    }
}

impl Serialize for Dropped {
    /// All reasons for requests, and the frame reasons that occurred.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let requests = DropReason::ALL.into_iter().map(DropReason::name).zip(self.requests);
        serializer.collect_map(requests.chain(self.of_frames().filter(|(_, count)| *count > 0)))
    }
}

/// Counters by [`SendError`].
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema)]
#[schemars(
    from = "std::collections::BTreeMap<String, u64>",
    into = "std::collections::BTreeMap<String, u64>"
)]
pub struct SendErrors(pub(crate) [u64; SendError::ALL.len()]);

impl SendErrors {
    /// Replies rejected for this cause.
    #[must_use]
    pub fn by(&self, cause: SendError) -> u64 {
        self.0[cause as usize]
    }
}

impl Serialize for SendErrors {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(SendError::ALL.into_iter().map(SendError::name).zip(self.0))
    }
}

/// Counters of TCP.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct TcpCounts {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections still open.
    pub open: u64,
    /// Connections closed at once because a worker had its maximum. 0: a new connection takes the place of another one,
    /// which is counted in `evicted`.
    pub refused: u64,
    /// Connections closed to give their places to new ones, because a worker had its maximum or the process its maximum
    /// of descriptors.
    pub evicted: u64,
    /// Connections closed because they asked nothing for too long.
    pub idle: u64,
    /// Connections closed because a message did not arrive in time, or its reply was read too slowly.
    pub slow: u64,
    /// Attempts to accept a connection that failed for lack of descriptors or memory; it stays queued.
    pub accept_errors: u64,
    /// Connections that ended with an error.
    pub failed: u64,
    /// Bytes read.
    pub received_bytes: u64,
    /// Bytes written.
    pub answered_bytes: u64,
}

/// The identity does not hold: a defect, or counters read from a server that is not at rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "counters do not add up: received {received}, but answered {answered} + dropped {dropped} + deferred {deferred} + \
     in flight {in_flight}"
)]
pub struct Unbalanced {
    pub(crate) received: u64,
    pub(crate) answered: u64,
    pub(crate) dropped: u64,
    pub(crate) deferred: u64,
    pub(crate) in_flight: u64,
}

impl Counts {
    /// Checks `received = answered + dropped + deferred + in_flight`. Exact only at rest: after
    /// [`crate::Server::stop`], or once traffic has ended.
    pub fn balance(&self) -> Result<(), Unbalanced> {
        let dropped = self.dropped.total();
        if self.received == self.answered + dropped + self.deferred + self.in_flight {
            return Ok(());
        }
        let Self { received, answered, deferred, in_flight, .. } = *self;
        Err(Unbalanced { received, answered, dropped, deferred, in_flight })
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.received += other.received;
        self.received_bytes += other.received_bytes;
        self.answered += other.answered;
        self.answered_bytes += other.answered_bytes;
        self.deferred += other.deferred;
        self.in_flight += other.in_flight;
        self.bursts += other.bursts;
        self.receive_errors += other.receive_errors;
        self.dropped.add(&other.dropped);
        self.send_errors.0.iter_mut().zip(other.send_errors.0).for_each(|(sum, more)| *sum += more);
    }
}

impl Counts {
    /// Adds a worker's frame counters: frames that did not reach its service, and replies that have not left yet.
    /// `settled`: its replies that the ports have finished. `invalid`: frames of its port that the kernel rejected as
    /// invalid.
    pub(crate) fn add_frames(&mut self, frames: &Snapshot, settled: u64, invalid: u64) {
        let in_flight = frames.replied.saturating_sub(settled).min(self.answered);
        self.answered -= in_flight;
        self.in_flight += in_flight;
        for (reason, count) in frames.drops() {
            // These are replies, which the service's counts include.
            if !matches!(reason, FrameDrop::TransmitFull | FrameDrop::ReplyTooLong | FrameDrop::Neighbour) {
                self.received += count;
                self.dropped.frames[reason.index()] += count;
            }
        }
        let invalid = invalid.min(self.answered);
        self.answered -= invalid;
        self.send_errors.0[SendError::Other as usize] += invalid;
        self.dropped.requests[DropReason::SendFailed as usize] += invalid;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_is_checked() {
        let mut counts = Counts { received: 10, answered: 6, deferred: 1, ..Counts::default() };
        assert!(counts.balance().is_err());
        counts.dropped.requests[DropReason::Refused as usize] = 3;
        assert_eq!(counts.balance(), Ok(()));
        let mut twice = counts.clone();
        twice.add(&counts);
        assert_eq!((twice.received, twice.dropped.total(), twice.balance()), (20, 6, Ok(())));
    }
}
