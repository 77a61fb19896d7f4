//! Sockets that stay open after their instance has ended, so that no datagram of the others is lost.
//!
//! ```text
//! sockets of a port, as lookups find them:    IPv4  [3] [2] [1]    the one bound last is first
//!                                             IPv6  [1] [2] [3]    the one bound first is first
//!   The first one leads to the reuseport group, and the program chooses in the group.
//!
//! close([3]):   1. [3] leaves its group       until 2, a lookup on another CPU finds [3] first, and in no group:
//!               2. [3] leaves the list        it gets the datagram, unread
//! ```
//! This is how the kernel closes a socket (`udp_lib_unhash`, `udp4_lib_lookup2` and `udp_lib_get_port` of
//! net/ipv4/udp.c); the program is not even run. At 50,000 datagrams a second one close of a hundred loses one. So a
//! socket that may be the first is not closed with its process: a duplicate keeps it open, in no slot, until another
//! one is first:
//!
//! - IPv4: until an instance that was started later has bound its own.
//! - IPv6: as long as instances serve. One is enough, since those bound later come after it.
//!
//! So at most as many are kept as there were instances at a time. Without an admitted instance none is kept: the
//! kernel's hash would give it datagrams.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// The kept sockets of one address, each with the time since when.
#[derive(Debug, Default)]
pub(crate) struct Kept(Vec<(OwnedFd, Instant)>);

impl Kept {
    /// Whether the socket of an instance that was started at `started` may be the first one of its address.
    pub(crate) fn is_needed(&self, address: SocketAddr, started: Instant) -> bool {
        address.is_ipv4() || self.0.iter().all(|(_, since)| started <= *since)
    }

    pub(crate) fn keep(&mut self, socket: OwnedFd, now: Instant) {
        self.0.push((socket, now));
    }

    /// Takes out those that come after the socket of an instance that was started at `started`.
    pub(crate) fn passed(&mut self, address: SocketAddr, started: Instant) -> Vec<OwnedFd> {
        if !address.is_ipv4() {
            return Vec::new();
        }
        self.0.extract_if(.., |(_, since)| *since < started).map(|(socket, _)| socket).collect()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::*;

    fn socket() -> OwnedFd {
        UdpSocket::bind("127.0.0.1:0").unwrap().into()
    }

    #[test]
    fn of_ipv4_each_is_kept_until_a_later_one_is_bound() {
        let address = "0.0.0.0:53".parse().unwrap();
        let at = |seconds| Instant::now() + Duration::from_secs(seconds);
        let (start, first, second, later) = (at(0), at(1), at(2), at(3));
        let mut kept = Kept::default();
        assert!(kept.is_needed(address, start));
        kept.keep(socket(), first);
        // Of those that started at once, either may be first.
        assert!(kept.is_needed(address, start));
        kept.keep(socket(), second);
        assert_eq!(kept.passed(address, first).len(), 0);
        assert_eq!(kept.passed(address, second).len(), 1);
        assert_eq!(kept.passed(address, later).len(), 1);
        assert!(kept.is_needed(address, later));
    }

    #[test]
    fn of_ipv6_one_that_is_older_is_enough() {
        let address = "[::]:53".parse().unwrap();
        let start = Instant::now();
        let later = start + Duration::from_secs(1);
        let mut kept = Kept::default();
        assert!(kept.is_needed(address, start));
        kept.keep(socket(), start);
        assert!(kept.is_needed(address, start) && !kept.is_needed(address, later));
        assert_eq!(kept.passed(address, later).len(), 0);
        kept.clear();
        assert!(kept.is_needed(address, later));
    }
}
