//! What a server did so far, as plain numbers: per worker, per socket, in total.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Serialize, Serializer};
use udpath_stack::counters::{Drop, Snapshot};

use crate::counters::SendError;
use crate::io::Io;
use crate::outcome::DropReason;

mod xdp;

pub(crate) use xdp::Arrivals;
pub use xdp::{XdpPortStatus, XdpStatus};

/// What a server did so far.
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    /// How datagrams move.
    pub io: Io,
    /// What `auto` tried before, best first, and why it was not taken.
    pub rejected: Vec<Rejected>,
    /// Most datagrams per system call.
    pub batch: usize,
    /// Whether replies to one peer in a row go out in one piece, where the kernel can.
    pub gso: bool,
    /// Seconds since the probe passed.
    pub seconds: f64,
    /// Everything, added up.
    pub total: Counts,
    /// Datagrams that the kernel dropped at our sockets, AF_XDP's among them: arrived, never received. For AF_XDP
    /// `xdp.dropped` has the reasons.
    pub kernel_drops: u64,
    /// One entry per worker, in order.
    pub workers: Vec<WorkerStatus>,
    /// One entry per socket: by address, then by worker.
    pub sockets: Vec<SocketStatus>,
    /// The same addresses over TCP, if served.
    pub tcp: Option<TcpCounts>,
    /// What the fast path of `xdp` did; the datagrams it served are in the counters above as well.
    pub xdp: Option<XdpStatus>,
    /// What is wrong with this configuration here, in whole sentences; usually empty.
    pub warnings: Vec<String>,
}

/// An Io that `auto` did not take.
#[derive(Debug, Clone, Serialize)]
pub struct Rejected {
    /// The Io.
    pub io: Io,
    /// Why not.
    pub reason: String,
}

/// One worker's share.
#[derive(Debug, Clone, Serialize)]
pub struct WorkerStatus {
    /// Its number.
    pub worker: usize,
    /// The CPU it is bound to; `None` without pinning.
    pub cpu: Option<u32>,
    /// Datagrams that the kernel dropped at the sockets that this worker alone reads: its AF_XDP rings were full, or its
    /// receive buffers.
    pub kernel_drops: u64,
    /// What it counted, over all its sockets. Of `xdp` also frames that went no further than their headers or another
    /// worker's backlog: those are in no socket's counts.
    #[serde(flatten)]
    pub counts: Counts,
}

/// One socket.
#[derive(Debug, Clone, Serialize)]
pub struct SocketStatus {
    /// Its address, with the real port.
    pub bind: SocketAddr,
    /// The worker that reads it; `None` when all do.
    pub worker: Option<usize>,
    /// Its receive buffer in bytes of the kernel's accounting: twice what was asked for, or what was allowed.
    pub receive_buffer_bytes: usize,
    /// Datagrams the kernel dropped at it (buffer full, bad checksum).
    pub kernel_drops: u64,
    /// What was counted on it.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Datagram counters: `received = answered + dropped + deferred + in_flight`, and at rest nothing is in flight.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Datagrams received.
    pub received: u64,
    /// Their payload bytes.
    pub received_bytes: u64,
    /// Replies the kernel took; of `xdp`, that left the port. A socket's are counted when the port gets them.
    pub answered: u64,
    /// Their payload bytes, those in flight counted.
    pub answered_bytes: u64,
    /// Requests without an answer, by reason.
    pub dropped: Dropped,
    /// Requests whose handles are still out.
    pub deferred: u64,
    /// Replies on their way to the port of `xdp` that sends them, or waiting there for the device.
    pub in_flight: u64,
    /// The causes of `dropped.send_failed`.
    pub send_errors: SendErrors,
    /// Receive calls that brought at least one datagram. `received / bursts` is the mean burst.
    pub bursts: u64,
    /// Receive calls that failed.
    pub receive_errors: u64,
}

/// Counters by [`DropReason`], and by the names of frames' own reasons ([`Drop`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dropped {
    pub(crate) requests: [u64; DropReason::ALL.len()],
    frames: [u64; Drop::COUNT],
}

impl Default for Dropped {
    fn default() -> Self {
        Self { requests: Default::default(), frames: [0; Drop::COUNT] }
    }
}

impl Dropped {
    /// How many for this reason.
    #[must_use]
    pub fn by(&self, reason: DropReason) -> u64 {
        self.requests[reason as usize]
    }

    /// How many frames of `xdp` for this reason, before they came to the service.
    #[must_use]
    pub fn frames(&self, reason: Drop) -> u64 {
        self.frames[reason.index()]
    }

    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.requests.iter().chain(&self.frames).sum()
    }

    /// Reasons that occurred, by name, with their counts.
    pub fn occurred(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let requests = DropReason::ALL.into_iter().map(DropReason::name).zip(self.requests);
        requests.chain(self.of_frames()).filter(|(_, count)| *count > 0)
    }

    fn of_frames(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Drop::all().map(Drop::name).zip(self.frames)
    }

    fn add(&mut self, other: &Self) {
        self.requests.iter_mut().zip(other.requests).for_each(|(sum, more)| *sum += more);
        self.frames.iter_mut().zip(other.frames).for_each(|(sum, more)| *sum += more);
    }
}

impl Serialize for Dropped {
    /// All reasons of requests, and of frames those that occurred.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let requests = DropReason::ALL.into_iter().map(DropReason::name).zip(self.requests);
        serializer.collect_map(requests.chain(self.of_frames().filter(|(_, count)| *count > 0)))
    }
}

/// Counters by [`SendError`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SendErrors(pub(crate) [u64; SendError::ALL.len()]);

impl SendErrors {
    /// How many for this cause.
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

/// Counters of the TCP side.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TcpCounts {
    /// Connections taken.
    pub accepted: u64,
    /// Of these, still open.
    pub open: u64,
    /// Connections closed at once because a worker had its most.
    pub refused: u64,
    /// Connections that ended by an error.
    pub failed: u64,
    /// Bytes read.
    pub received_bytes: u64,
    /// Bytes written.
    pub answered_bytes: u64,
}

/// The identity does not hold: a defect, or a look at a server that is not at rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "counters do not add up: received {received}, but answered {answered} + dropped {dropped} + deferred {deferred} + \
     in flight {in_flight}"
)]
pub struct Unbalanced {
    received: u64,
    answered: u64,
    dropped: u64,
    deferred: u64,
    in_flight: u64,
}

impl Counts {
    /// Checks `received = answered + dropped + deferred + in_flight`. Exact only at rest: after
    /// [`crate::Server::stop`], or once traffic has ceased.
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
    /// Adds what a worker counted of frames: those that did not come to its service, and of its replies those that have not
    /// left yet. `settled`: its replies that all ports together are done with. `invalid`: frames its port was given that the
    /// kernel found unfit to be sent.
    pub(crate) fn add_frames(&mut self, frames: &Snapshot, settled: u64, invalid: u64) {
        let in_flight = frames.replied.saturating_sub(settled).min(self.answered);
        self.answered -= in_flight;
        self.in_flight += in_flight;
        for (reason, count) in frames.drops() {
            // Of replies, which the service's counts have.
            if !matches!(reason, Drop::TransmitFull | Drop::ReplyTooLong) {
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

impl Status {
    /// Checks the identity for every worker, every socket, the total, and frames.
    pub fn balance(&self) -> Result<(), Unbalanced> {
        if let Some(xdp) = &self.xdp {
            xdp.balance()?;
        }
        self.workers.iter().try_for_each(|worker| worker.counts.balance())?;
        self.sockets.iter().try_for_each(|socket| socket.counts.balance())?;
        self.total.balance()
    }

    /// Each worker's share of what was received, 0 to 1; by its number.
    #[must_use]
    pub fn shares(&self) -> BTreeMap<usize, f64> {
        let total = self.total.received.max(1) as f64;
        self.workers.iter().map(|w| (w.worker, w.counts.received as f64 / total)).collect()
    }
}

/// Notices that the work is not spread, in windows long enough to mean something.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    before: Vec<u64>,
    warning: Option<String>,
}

/// Datagrams in a window before it is judged. Fewer could be one client's burst; with more, a service with little
/// traffic would never be judged.
const WINDOW: u64 = 2_000;

/// Share of one worker from which the traffic counts as arriving on one CPU. The rest is what stray CPUs
/// (a local health check, a moved interrupt) bring. Lower would warn of a skew that spreads the work well enough.
const NEARLY_ALL: f64 = 0.95;

impl Watch {
    /// Looks at the received counts and CPUs by worker; says what is wrong, until a later window is better.
    pub(crate) fn observe(&mut self, received: &[u64], cpus: &[u32]) -> Option<&str> {
        if self.before.len() != received.len() {
            self.before = vec![0; received.len()];
        }
        let window: Vec<u64> = received.iter().zip(&self.before).map(|(now, then)| now - then).collect();
        let total: u64 = window.iter().sum();
        if received.len() > 1 && total >= WINDOW {
            self.before = received.to_vec();
            let busiest = (0..window.len()).max_by_key(|i| window[*i]).unwrap_or(0);
            let share = window[busiest] as f64 / total as f64;
            self.warning = (share >= NEARLY_ALL).then(|| {
                format!(
                    "percpu has nothing to spread: {:.0} % of {total} datagrams arrived on CPU {}; spread the \
                     receive queues over the CPUs (RSS, RPS, the senders' XPS) or serve with --io reuseport",
                    share * 100.0,
                    cpus.get(busiest).copied().unwrap_or(0),
                )
            });
        }
        self.warning.as_deref()
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

    #[test]
    fn every_reason_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = DropReason::ALL
            .into_iter()
            .map(DropReason::name)
            .chain(Drop::all().map(Drop::name))
            .chain(xdp::KERNEL_REASONS)
            .collect();
        assert_eq!(names.len(), DropReason::ALL.len() + Drop::COUNT + xdp::KERNEL_REASONS.len());
    }

    #[test]
    fn all_traffic_on_one_cpu_is_noticed_and_forgotten_again() {
        let mut watch = Watch::default();
        let cpus = [4, 5];
        assert_eq!(watch.observe(&[1_000, 0], &cpus), None, "too little to judge");
        assert!(watch.observe(&[3, 3_000], &cpus).unwrap().contains("CPU 5"));
        assert!(watch.observe(&[4, 3_001], &cpus).is_some(), "still the last judgement");
        assert_eq!(watch.observe(&[1_500, 4_500], &cpus), None);
    }

    #[test]
    fn one_worker_cannot_be_uneven() {
        assert_eq!(Watch::default().observe(&[1_000_000], &[0]), None);
    }
}
