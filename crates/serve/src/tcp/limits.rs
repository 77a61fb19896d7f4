//! How long and how many: the limits of TCP connections ([`TcpLimits`]), so that slow ones do not keep others out (RFC
//! 7766, 6.2; RFC 9210, 4.3).
//!
//! ```text
//!  nothing asked      idle_timeout since the last reply                        ─▸ closed (idle)
//!  half a message     message_timeout since its first byte                     ─▸ closed (slow)
//!  replies not read   fewer than drain_rate × drain_period bytes in a period   ─▸ closed (slow)
//!  all places taken   a new connection takes the place of the one whose last progress is longest ago, among those of a network
//!                     that has more than its share, if there is one            ─▸ closed (evicted)
//! ```
//! A byte now and then is no progress: only whole messages, and replies read in time, are.

use std::net::IpAddr;
use std::time::Duration;

/// Limits of a worker's TCP connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpLimits {
    /// Connections of a worker. Each may keep replies of up to 128 KiB that its peer does not read and 32 KiB of
    /// requests, so the default of 1,024 limits a worker's memory to 160 MiB under attack. Fewer: idle clients lose
    /// their connections sooner when many come; more: memory. It is lowered where the process may not have as many
    /// descriptors.
    pub connections: usize,
    /// Connections that a network, IPv4 /24 or IPv6 /48, keeps when all places are taken: a new one of a network that
    /// has as many takes the place of another one of that network. Fewer: a large site of clients loses idle
    /// connections while others are slow; more: fewer networks can take all places. The default of 128 is an eighth of
    /// the default above.
    ///
    /// A network is what one party gets easily: hosters lend /24, and give every customer a /48 (256 times a /56).
    pub per_network: usize,
    /// From the first byte of a message to its last; 5 s. Shorter: a client that loses two segments in a row is cut
    /// off; longer: half messages keep their places for longer.
    pub message_timeout: Duration,
    /// From a reply, or the start, to the next message; 30 s, or what the service says if that is shorter. Shorter:
    /// clients that ask again must connect again; longer: more places are taken by idle clients.
    pub idle_timeout: Duration,
    /// Bytes per second of its replies that a peer must read while some are unsent; 1,024. Lower: slow readers keep
    /// their places for longer; higher: clients behind a slow line are cut off.
    pub drain_rate: usize,
    /// The period over which that rate is measured; 10 s. Shorter: a short outage cuts clients off; longer: a peer that
    /// reads nothing keeps its place for longer.
    pub drain_period: Duration,
}

impl Default for TcpLimits {
    fn default() -> Self {
        Self {
            connections: 1024,
            per_network: 128,
            message_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(30),
            drain_rate: 1024,
            drain_period: Duration::from_secs(10),
        }
    }
}

impl TcpLimits {
    /// How often connections are looked at that have waited for too long: a quarter of the shortest limit, but not more
    /// often than costs nothing, and not so rarely that a place stays taken for much longer than documented.
    pub(super) fn sweep_interval(&self) -> Duration {
        let shortest = self.message_timeout.min(self.idle_timeout).min(self.drain_period);
        (shortest / 4).clamp(Duration::from_millis(10), Duration::from_secs(1))
    }

    /// Bytes that a peer must read in a period.
    pub(super) fn drained_in_time(&self, bytes: usize) -> bool {
        bytes as f64 >= self.drain_rate as f64 * self.drain_period.as_secs_f64()
    }
}

/// The network of a peer, as [`TcpLimits::per_network`] counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Network(u64);

impl Network {
    pub(super) fn of(peer: IpAddr) -> Self {
        Self(match peer {
            IpAddr::V4(v4) => u64::from(v4.to_bits() >> 8),
            IpAddr::V6(v6) => 1 << 63 | (v6.to_bits() >> 80) as u64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_have_the_documented_length() {
        let same = |a: &str, b: &str| Network::of(a.parse().unwrap()) == Network::of(b.parse().unwrap());
        assert!(same("192.0.2.1", "192.0.2.255") && !same("192.0.2.1", "192.0.3.1"));
        assert!(same("2001:db8::1", "2001:db8:0:ffff::1") && !same("2001:db8::1", "2001:db8:1::1"));
        assert!(!same("0.0.0.0", "::"));
    }
}
