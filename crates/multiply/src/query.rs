//! Asks one instance whether it serves.
//!
//! The selection gives datagrams from the query's source port to that instance's socket, also while its slot is not
//! admitted (`Selection::ask`), so the answer is that instance's own.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use udpath_tune::services::Probe;

/// Time between two queries. Shorter: more of the instance's time. Longer: one that hangs is noticed later.
const INTERVAL: Duration = Duration::from_millis(500);
/// How long an answer may take. A server at its limit answers after its whole queue: at 5,000 datagrams a second, a
/// queue of 212,992 bytes (some 270 small datagrams) takes 60 ms. Shorter: a busy server counts as hung.
const ANSWER: Duration = Duration::from_secs(1);
/// Queries in a row without an answer until an instance counts as hung. Fewer: a full queue, which drops queries like
/// any other datagram, counts as hung. More: it is noticed later.
pub(crate) const MISSED: u32 = 4;

/// Queries to one instance.
#[derive(Debug)]
pub(crate) struct Query {
    probe: Probe,
    request: Vec<u8>,
    socket: UdpSocket,
    sent: Option<Instant>,
    next: Instant,
    answered: bool,
    missed: u32,
}

impl Query {
    /// Queries to the server at `bound`; `None` if the protocol has none.
    pub(crate) fn open(probe: Probe, bound: SocketAddr, now: Instant) -> io::Result<Option<Self>> {
        let Some(request) = probe.request() else { return Ok(None) };
        let (any, to) = match bound.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => {
                (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::LOCALHOST.into())
            }
            IpAddr::V6(ip) if ip.is_unspecified() => {
                (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::LOCALHOST.into())
            }
            ip @ IpAddr::V4(_) => (IpAddr::V4(Ipv4Addr::UNSPECIFIED), ip),
            ip @ IpAddr::V6(_) => (IpAddr::V6(Ipv6Addr::UNSPECIFIED), ip),
        };
        let socket = UdpSocket::bind((any, 0))?;
        // From here on its address is that of the server, which is how the selection recognises it.
        socket.connect((to, bound.port()))?;
        socket.set_nonblocking(true)?;
        Ok(Some(Self { probe, request, socket, sent: None, next: now, answered: false, missed: 0 }))
    }

    /// The source port.
    pub(crate) fn port(&self) -> io::Result<u16> {
        Ok(self.socket.local_addr()?.port())
    }

    /// Reads answers, and sends the next query when it is due.
    pub(crate) fn turn(&mut self, now: Instant) {
        let mut room = [0; 1500];
        // An error is that of an earlier query, refused while no socket was open.
        while let Ok(len) = self.socket.recv(&mut room) {
            if self.probe.is_reply(&room[..len]) {
                (self.answered, self.missed, self.sent) = (true, 0, None);
            }
        }
        if self.sent.is_some_and(|sent| now >= sent + ANSWER) {
            (self.sent, self.missed) = (None, self.missed.saturating_add(1));
        }
        if self.sent.is_none() && now >= self.next {
            let _ = self.socket.send(&self.request);
            (self.sent, self.next) = (Some(now), now + INTERVAL);
        }
    }

    /// Whether one was ever answered.
    pub(crate) const fn is_answered(&self) -> bool {
        self.answered
    }

    /// Queries without an answer since the last one with.
    pub(crate) const fn missed(&self) -> u32 {
        self.missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_count_and_silence_is_counted() {
        let server = UdpSocket::bind("0.0.0.0:0").unwrap();
        server.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut now = Instant::now();
        let mut query = Query::open(Probe::Ntp, server.local_addr().unwrap(), now).unwrap().unwrap();
        for expected in 1..=2 {
            query.turn(now);
            now += ANSWER;
            query.turn(now);
            assert_eq!((query.missed(), query.is_answered()), (expected, false));
        }
        let mut room = [0; 100];
        for _ in 0..3 {
            let (len, from) = server.recv_from(&mut room).unwrap();
            assert_eq!((len, from.port()), (48, query.port().unwrap()));
            // Mode 4: a server's.
            room[0] = 0x24;
            server.send_to(&room[..len], from).unwrap();
        }
        query.turn(now);
        assert_eq!((query.missed(), query.is_answered()), (0, true));
        assert!(Query::open(Probe::Bound, server.local_addr().unwrap(), now).unwrap().is_none());
    }
}
