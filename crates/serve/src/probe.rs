//! The start-up probe: real datagrams through the chosen Io, before the server reports that it is ready. For kernel
//! sockets they are sent here, from a socket; `io/xdp/probe.rs` has the frames of `xdp`.
//!
//! A socket that was opened and bound may still receive nothing: firewalls, a reuseport group that steers elsewhere and
//! kernels that ignore an option are found only by sending. Probe datagrams carry a random token. They are recognised
//! only until the probe ends, never reach the service and are not counted as traffic.
//!
//! ```text
//! request: magic 16 | token 16        answer: magic 16 | token 16 | worker u32 le
//! ```

mod error;

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

pub use error::ProbeError;

const MAGIC: &[u8; 16] = b"udpath.probe/1 ?";
const TOKEN_LEN: usize = 16;
const REQUEST_LEN: usize = MAGIC.len() + TOKEN_LEN;
/// Length of an answer, in bytes.
pub(crate) const ANSWER_LEN: usize = REQUEST_LEN + size_of::<u32>();

/// How long to wait for one answer. A busy host needs milliseconds; a shorter timeout would fail there, a longer one
/// delays the report of a real failure.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);
/// Requests sent before giving up: the loopback loses datagrams only when a queue is full.
const MAX_ATTEMPTS: usize = 4;
/// How often to check whether a frame was answered: a fraction of the time it takes to inject one.
const POLL_INTERVAL: Duration = Duration::from_micros(200);
/// How long repeated requests may stay in a queue before the probe ends anyway.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The state of the probe that workers read.
#[derive(Debug)]
pub(crate) struct ProbeState {
    on: AtomicBool,
    token: [u8; TOKEN_LEN],
    /// Probe datagrams received by workers.
    seen: AtomicU64,
}

impl ProbeState {
    /// A running probe with a new token.
    pub(crate) fn new() -> io::Result<Self> {
        let mut token = [0; TOKEN_LEN];
        // Up to 256 bytes come whole (getrandom(2)).
        rustix::rand::getrandom(&mut token, rustix::rand::GetRandomFlags::empty())?;
        Ok(Self { on: AtomicBool::new(true), token, seen: AtomicU64::new(0) })
    }

    /// Whether probe datagrams must be recognised. Read once per burst.
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    /// Whether `payload` is a request of this probe.
    pub(crate) fn matches(&self, payload: &[u8]) -> bool {
        payload.len() == REQUEST_LEN && payload.starts_with(MAGIC) && payload[MAGIC.len()..] == self.token
    }

    /// Writes the answer of worker `worker`; returns its length.
    pub(crate) fn answer(&self, worker: usize, buffer: &mut [u8]) -> usize {
        self.seen.fetch_add(1, Relaxed);
        buffer[..MAGIC.len()].copy_from_slice(MAGIC);
        buffer[MAGIC.len()..REQUEST_LEN].copy_from_slice(&self.token);
        let worker = u32::try_from(worker).unwrap_or(u32::MAX);
        buffer[REQUEST_LEN..ANSWER_LEN].copy_from_slice(&worker.to_le_bytes());
        ANSWER_LEN
    }
}

/// Sends the requests.
#[derive(Debug)]
pub(crate) struct Prober<'a> {
    probe: &'a ProbeState,
    sent: AtomicU64,
}

impl<'a> Prober<'a> {
    pub(crate) fn new(probe: &'a ProbeState) -> Self {
        Self { probe, sent: AtomicU64::new(0) }
    }

    /// Sends a request as a new flow, from the calling thread's CPU. Returns the worker that answered.
    pub(crate) fn ask(&self, target: SocketAddr) -> Result<usize, ProbeError> {
        match self.try_ask(target) {
            Ok(Some(worker)) => Ok(worker),
            Ok(None) => {
                let (attempts, timeout) = (MAX_ATTEMPTS, ANSWER_TIMEOUT);
                Err(ProbeError::NoAnswer { target, attempts, timeout })
            }
            Err(source) => Err(ProbeError::Send { target, source }),
        }
    }

    fn try_ask(&self, target: SocketAddr) -> io::Result<Option<usize>> {
        let any: SocketAddr = match target {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any)?;
        // Connected: answers from other addresses are not received.
        socket.connect(target)?;
        let request = self.request();
        for _ in 0..MAX_ATTEMPTS {
            socket.send(&request)?;
            self.sent.fetch_add(1, Relaxed);
            let deadline = Instant::now() + ANSWER_TIMEOUT;
            while let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()) {
                socket.set_read_timeout(Some(left))?;
                let mut answer = [0; ANSWER_LEN];
                match socket.recv(&mut answer) {
                    Ok(ANSWER_LEN) if answer.starts_with(&request) => {
                        let worker = u32::from_le_bytes(answer[REQUEST_LEN..].try_into().unwrap_or_default());
                        return Ok(Some(worker as usize));
                    }
                    // The answer of a service, for example of another server on this port.
                    Ok(_) => {}
                    Err(error) if is_timeout(&error) => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(None)
    }

    /// The payload of a request.
    pub(crate) fn request(&self) -> [u8; REQUEST_LEN] {
        let mut request = [0; REQUEST_LEN];
        request[..MAGIC.len()].copy_from_slice(MAGIC);
        request[MAGIC.len()..].copy_from_slice(&self.probe.token);
        request
    }

    /// Waits until `answered` returns true for a request that was not sent by [`Prober::ask`]. False after
    /// [`Prober::WAIT_TIMEOUT`].
    pub(crate) fn wait(&self, answered: impl Fn() -> bool) -> bool {
        self.sent.fetch_add(1, Relaxed);
        let deadline = Instant::now() + Self::WAIT_TIMEOUT;
        while !answered() {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        true
    }

    /// How long [`Prober::wait`] waits: as long as [`Prober::ask`] with all its attempts.
    pub(crate) const WAIT_TIMEOUT: Duration =
        Duration::from_millis(ANSWER_TIMEOUT.as_millis() as u64 * MAX_ATTEMPTS as u64);

    /// Ends the probe once all requests have been taken from their queues: a repeated request must not be counted as
    /// traffic. Workers stop at the [gate](crate::gate) from then on.
    pub(crate) fn finish(&self) {
        let deadline = Instant::now() + DRAIN_TIMEOUT;
        while self.probe.seen.load(Relaxed) < self.sent.load(Relaxed) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.probe.on.store(false, Relaxed);
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// The address to send to so that a datagram arrives at `bind`: for a wildcard, the loopback address.
pub(crate) fn target_of(bind: SocketAddr) -> SocketAddr {
    if !bind.ip().is_unspecified() {
        return bind;
    }
    match bind {
        SocketAddr::V4(v4) => (Ipv4Addr::LOCALHOST, v4.port()).into(),
        SocketAddr::V6(v6) => (Ipv6Addr::LOCALHOST, v6.port()).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_token_is_recognised() {
        let (one, other) = (ProbeState::new().unwrap(), ProbeState::new().unwrap());
        let mut answer = [0; 64];
        assert_eq!(one.answer(7, &mut answer), ANSWER_LEN);
        assert!(one.matches(&answer[..REQUEST_LEN]));
        assert!(!one.matches(&answer[..ANSWER_LEN]));
        assert!(!other.matches(&answer[..REQUEST_LEN]));
    }

    #[test]
    fn wildcards_are_reached_over_loopback() {
        for (bind, target) in
            [("0.0.0.0:7", "127.0.0.1:7"), ("[::]:7", "[::1]:7"), ("192.0.2.1:7", "192.0.2.1:7")]
        {
            assert_eq!(target_of(bind.parse().unwrap()), target.parse().unwrap());
        }
    }
}
