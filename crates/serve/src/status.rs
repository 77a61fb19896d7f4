//! What a server did so far, as plain numbers: per worker, per socket, in total.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Serialize, Serializer};
use udpath_stack::counters::{Drop, Snapshot};
use udpath_stack::port::Port;
use udpath_stack::port::xdp::XdpPort;

use crate::counters::SendError;
use crate::io::Io;
use crate::service::DropReason;

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
    /// Datagrams that the kernel dropped at our sockets: arrived, never received.
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

/// What became of frames that were taken off the devices' queues.
#[derive(Debug, Clone, Serialize)]
pub struct XdpStatus {
    /// One per queue.
    pub ports: Vec<XdpPortStatus>,
    /// Frames that came from the queues. At rest `received = answered + declined + dropped`.
    pub received: u64,
    /// Replies that the device took.
    pub answered: u64,
    /// Datagrams the service did not answer, or not from here.
    pub declined: u64,
    /// Frames that another worker served than the one whose queue they came on.
    pub steered: u64,
    /// Frames that went no further, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// What the program made of everything that came to the interfaces.
    pub program: BTreeMap<&'static str, u64>,
    /// Replies that were counted as answered and that the device did not take.
    #[serde(skip)]
    pub(crate) refused: u64,
}

/// One queue.
#[derive(Debug, Clone, Serialize)]
pub struct XdpPortStatus {
    /// Interface and queue.
    pub name: String,
    /// Who copies: `zero-copy` is nobody, `copy` is the kernel.
    pub mode: String,
    /// What the start-up probe showed: `answered`, a frame put into the queue was answered by its worker; or `taken`, the
    /// attached program would hand what comes there to the queue's socket. The kernel puts frames into queue 0 alone, and
    /// into none that is zero-copy.
    pub probe: &'static str,
    /// Whether many replies at once are sent as live frames, in bulks: `yes`, or why not.
    pub live_frames: String,
    /// Where the hash comes from that frames are steered by: `from the device` for those of which it has one, or
    /// `computed` and why; `None` without steering.
    pub rx_hash: Option<String>,
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
        }
    }
}

impl XdpStatus {
    pub(crate) fn new(
        ports: Vec<XdpPortStatus>,
        frames: &Snapshot,
        program: impl IntoIterator<Item = (&'static str, u64)>,
    ) -> Self {
        Self {
            ports,
            received: frames.received,
            answered: frames.answered,
            declined: frames.declined,
            steered: frames.steered,
            dropped: frames.drops().map(|(reason, count)| (reason.name(), count)).collect(),
            program: program.into_iter().filter(|(_, count)| *count > 0).collect(),
            refused: frames.dropped(Drop::TransmitFull) + frames.dropped(Drop::ReplyTooLong),
        }
    }
}

/// One worker's share.
#[derive(Debug, Clone, Serialize)]
pub struct WorkerStatus {
    /// Its number.
    pub worker: usize,
    /// The CPU it is bound to; `None` without pinning.
    pub cpu: Option<u32>,
    /// What it counted, over all its sockets.
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

/// Datagram counters. At rest `received = answered + dropped + deferred`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Datagrams received.
    pub received: u64,
    /// Their payload bytes.
    pub received_bytes: u64,
    /// Replies the kernel took.
    pub answered: u64,
    /// Their payload bytes.
    pub answered_bytes: u64,
    /// Requests without an answer, by reason.
    pub dropped: Dropped,
    /// Requests whose handles are still out.
    pub deferred: u64,
    /// The causes of `dropped.send_failed`.
    pub send_errors: SendErrors,
    /// Receive calls that brought at least one datagram. `received / bursts` is the mean burst.
    pub bursts: u64,
    /// Receive calls that failed.
    pub receive_errors: u64,
}

/// Counters by [`DropReason`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dropped(pub(crate) [u64; DropReason::ALL.len()]);

impl Dropped {
    /// How many for this reason.
    #[must_use]
    pub fn by(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Reasons that occurred, with their counts.
    pub fn occurred(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.into_iter().zip(self.0).filter(|(_, count)| *count > 0)
    }
}

impl Serialize for Dropped {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(DropReason::ALL.into_iter().map(DropReason::name).zip(self.0))
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
    "counters do not add up: received {received}, but answered {answered} + dropped {dropped} + deferred {deferred}"
)]
pub struct Unbalanced {
    received: u64,
    answered: u64,
    dropped: u64,
    deferred: u64,
}

impl Counts {
    /// Checks `received = answered + dropped + deferred`. Exact only at rest: after
    /// [`crate::Server::stop`], or once traffic has ceased.
    pub fn balance(&self) -> Result<(), Unbalanced> {
        let dropped = self.dropped.total();
        if self.received == self.answered + dropped + self.deferred {
            return Ok(());
        }
        let (received, answered, deferred) = (self.received, self.answered, self.deferred);
        Err(Unbalanced { received, answered, dropped, deferred })
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.received += other.received;
        self.received_bytes += other.received_bytes;
        self.answered += other.answered;
        self.answered_bytes += other.answered_bytes;
        self.deferred += other.deferred;
        self.bursts += other.bursts;
        self.receive_errors += other.receive_errors;
        self.dropped.0.iter_mut().zip(other.dropped.0).for_each(|(sum, more)| *sum += more);
        self.send_errors.0.iter_mut().zip(other.send_errors.0).for_each(|(sum, more)| *sum += more);
    }
}

impl Status {
    /// Checks the identity for every worker, every socket and the total.
    pub fn balance(&self) -> Result<(), Unbalanced> {
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
        counts.dropped.0[DropReason::Refused as usize] = 3;
        assert_eq!(counts.balance(), Ok(()));
        let mut twice = counts.clone();
        twice.add(&counts);
        assert_eq!((twice.received, twice.dropped.total(), twice.balance()), (20, 6, Ok(())));
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
