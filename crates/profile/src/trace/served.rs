//! What the sockets of one port received and sent: the kernel's own counters are of a network namespace, where the
//! clients of a server on the same machine count twice, and a message of several datagrams once.
//!
//! Each datagram that is counted costs its server 0.1 us, so a few looks are taken, spread over the interval, since
//! messages of several datagrams vary in length; beside each, what the kernel counts in the same time:
//!
//! ```text
//! begin ─┬────────┬─ ·········· ─┬────────┬─ ·········· ─┬────────┬─ ·········· ─ end
//!        └─ look ─┘  (detached)  └─ look ─┘              └─ look ─┘
//!        tracer attached ─▸ its part of ENOUGH of the port's, or LONG ─▸ detached
//!              │ own / all of the namespace, of all looks
//!              └──────────────────────────────── share ──▸ of what the namespace had from begin to end: its calls, in datagrams
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use error_reporter::Report;
use udpath_bpf::trace::{PortServed, Tracer as _};
use udpath_host::source::Folder;
use udpath_host::udp::{self, UdpCounters};

/// Datagrams of the port in a sample. Fewer: the share of one that sends in turns with others is wrong. More: CPU time
/// of a busy server, a millisecond for these.
const ENOUGH: u64 = 10_000;
/// After this time fewer are enough, since other ports may be busy. Shorter: a server that answers now and then has no
/// share. Longer: those others' datagrams cost 0.1 us each meanwhile.
const LONG: (Duration, u64) = (Duration::from_secs(1), 200);
/// Looks of a sample. Fewer: the length of messages at one moment stands for all. More: the kernel's code is changed
/// oftener, four tracepoints at each.
const LOOKS: u32 = 5;
/// Pause between two readings of the counts. Shorter: CPU time. Longer: more than enough is counted.
const PAUSE: Duration = Duration::from_millis(20);

/// Counts what the sockets of a port receive and send, until dropped.
#[derive(Debug)]
pub struct ServedMeter {
    counts: PortServed,
    addresses: bool,
}

/// What they received and sent so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Served {
    /// Datagrams received.
    pub received: u64,
    /// Datagrams sent.
    pub sent: u64,
    /// Of the first of them: this machine's address, packets to it, packets from it. Addresses of groups are left out:
    /// nobody answers from those.
    pub addresses: Vec<(IpAddr, u64, u64)>,
}

/// A sample: what the port's sockets received and sent, and in the same time all of the namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sample {
    /// The port's.
    pub own: Served,
    /// Calls by which all sockets of the namespace received one or more, as the kernel counts.
    pub received: u64,
    /// Calls by which they sent.
    pub sent: u64,
}

/// A sample that is being taken, in a thread of its own.
#[derive(Debug)]
pub struct Sampling {
    over: Sender<()>,
    thread: JoinHandle<Option<Sample>>,
}

impl Sampling {
    /// The sample, which ends now if it had not. [`None`]: the counts cannot be read.
    #[must_use]
    pub fn end(self) -> Option<Sample> {
        // Without its sender it ends.
        drop(self.over);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl ServedMeter {
    /// Begins a sample of an interval that is to be this long, of the caller's network namespace.
    #[must_use]
    pub fn sample(mut self, interval: Duration) -> Sampling {
        let (over, ended) = mpsc::channel();
        let thread = thread::spawn(move || {
            // It has counted since it was started.
            let (begin, first, mut sample) = (Instant::now(), self.read()?, Sample::default());
            let mut is_over = self.look(&ended, &first, &mut sample)?;
            for n in 1..LOOKS {
                self.counts.detach();
                let wait = (begin + interval * n / LOOKS).saturating_duration_since(Instant::now());
                // One look may have taken the time of others.
                if is_over || wait.is_zero() {
                    continue;
                }
                is_over = !waits(&ended, wait)
                    || self.counts.resume().is_err()
                    || self.look(&ended, &first, &mut sample)?;
            }
            Some(sample)
        });
        Sampling { over, thread }
    }

    /// Adds what is counted until there is enough for one look; returns whether the interval is over. `first`: the
    /// counts before all looks.
    fn look(&self, ended: &Receiver<()>, first: &Served, sample: &mut Sample) -> Option<bool> {
        let (begin, before, earlier) = (Instant::now(), counters(), sample.own.most());
        loop {
            let is_over = !waits(ended, PAUSE);
            // Of all looks, as the mean length of messages is.
            let (own, all) = (self.read()?.since(first), counters());
            let seen = own.most().saturating_sub(earlier);
            if is_over || seen >= ENOUGH / u64::from(LOOKS) || (begin.elapsed() >= LONG.0 && seen >= LONG.1) {
                sample.own = own;
                sample.received += all.0.saturating_sub(before.0);
                sample.sent += all.1.saturating_sub(before.1);
                return Some(is_over);
            }
        }
    }

    /// Starts to count at this port of the caller's network namespace; `addresses`: also by address. It costs each
    /// datagram of the machine 0.1 us, and each packet 0.25 us until a thousand requests have come, or for longer where
    /// packets carry several datagrams.
    ///
    /// # Errors
    /// Why it is not possible, as a sentence: permission denied, or a kernel without the tracepoints (before 6.3) or
    /// without BTF.
    pub fn start(port: u16, addresses: bool) -> Result<Self, String> {
        let netns = std::fs::metadata("/proc/thread-self/ns/net")
            .map_err(|error| format!("the network namespace is unknown: {error}"))?;
        let counts = PortServed::attach(port, netns.ino() as u32);
        let counts = counts.map_err(|error| Report::new(error).to_string())?;
        Ok(Self { counts, addresses })
    }

    /// The counts so far; `None`: they cannot be read.
    #[must_use]
    pub fn read(&self) -> Option<Served> {
        let counts = self.counts.read().ok()?;
        let addresses = counts.addresses.iter().filter(|of| self.addresses && is_of_one_host(of.address));
        Some(Served {
            received: counts.received,
            sent: counts.sent,
            addresses: addresses.map(|of| (of.address, of.asked, of.answered)).collect(),
        })
    }
}

impl Served {
    /// What came after an earlier count.
    fn since(self, first: &Self) -> Self {
        Self {
            received: self.received.saturating_sub(first.received),
            sent: self.sent.saturating_sub(first.sent),
            addresses: self.addresses,
        }
    }

    /// Datagrams of the direction that has more.
    fn most(&self) -> u64 {
        self.received.max(self.sent)
    }
}

/// Waits; returns false if the interval ends meanwhile.
fn waits(ended: &Receiver<()>, time: Duration) -> bool {
    matches!(ended.recv_timeout(time), Err(RecvTimeoutError::Timeout))
}

/// Calls by which all sockets of this thread's network namespace have received and sent.
fn counters() -> (u64, u64) {
    let udp = udp::read(&Folder::live(), &mut Vec::new());
    let both = || [udp.v4, udp.v6].into_iter().flatten();
    let sum = |of: fn(&UdpCounters) -> u64| both().map(|counted| of(&counted)).sum();
    (sum(|counted| counted.in_datagrams), sum(|counted| counted.out_datagrams))
}

/// Whether an address is neither multicast nor broadcast, which a socket may only be connected to if it says so.
fn is_of_one_host(address: IpAddr) -> bool {
    let any: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let connects = || UdpSocket::bind((any, 0)).and_then(|socket| socket.connect((address, 9))).is_ok();
    // A link-local address is connected to with its scope only.
    !address.is_multicast() && (address.is_ipv6() || connects())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_groups_are_left_out() {
        for (address, one) in [
            ("127.0.0.1", true),
            ("fe80::1", true),
            ("224.0.0.251", false),
            ("255.255.255.255", false),
            ("ff02::fb", false),
        ] {
            assert_eq!(is_of_one_host(address.parse().unwrap()), one, "{address}");
        }
    }

    /// A server and its client in one namespace: the client's reply is not counted. Other tests have other ports.
    #[test]
    fn only_the_sockets_of_the_port_count() {
        udpath_lab::needs_root!();
        let server = UdpSocket::bind("0.0.0.0:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        let Ok(meter) = ServedMeter::start(port, true) else { return };
        let mut buffer = [0; 16];
        for _ in 0..20 {
            client.send_to(b"x", ("127.0.0.2", port)).unwrap();
            // Looking is not receiving.
            server.peek_from(&mut buffer).unwrap();
            let (_, peer) = server.recv_from(&mut buffer).unwrap();
            server.send_to(b"y", peer).unwrap();
            client.recv_from(&mut buffer).unwrap();
        }
        let seen = meter.read().unwrap();
        assert_eq!((seen.received, seen.sent), (20, 20));
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(seen.addresses, [(address("127.0.0.1"), 0, 20), (address("127.0.0.2"), 20, 0)]);
    }
}
