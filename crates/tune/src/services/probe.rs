//! Whether a server serves: a real request over UDP, as a client would send it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use udpath_host::process::is_bound;
use udpath_host::source::Folder;

use super::profile::Probe;

/// How long one request waits for its reply. Longer than any local answer takes, and short enough that a server that is
/// still starting is asked again soon.
const REPLY: Duration = Duration::from_millis(300);
/// Pause between two attempts.
const AGAIN: Duration = Duration::from_millis(100);
/// How long a server must go on answering: some end only after they have opened their sockets. Shorter misses those;
/// longer delays every restart.
const STAYS: Duration = Duration::from_millis(300);
/// The transaction ID of the requests.
const ID: [u8; 2] = [0x75, 0x64];

impl Probe {
    /// Waits until the server answers, and still does a moment later.
    ///
    /// # Errors
    /// What was tried, if it does not within `limit`.
    pub(super) fn wait(self, address: SocketAddr, limit: Duration) -> Result<(), String> {
        let until = Instant::now() + limit;
        loop {
            if self.once(address) {
                std::thread::sleep(STAYS);
                if self.once(address) {
                    return Ok(());
                }
            }
            if Instant::now() >= until {
                return Err(format!("{} within {} s", self.nothing(address), limit.as_secs()));
            }
            std::thread::sleep(AGAIN);
        }
    }

    /// Whether it serves right now.
    fn once(self, address: SocketAddr) -> bool {
        match self.request() {
            Some(request) => answered(address, &request, |reply| self.is_reply(reply)),
            None => is_bound(&Folder::live(), address),
        }
    }

    /// A request that a server of this protocol answers; `None` if none is answered without a shared secret.
    #[must_use]
    pub fn request(self) -> Option<Vec<u8>> {
        match self {
            Self::Dns => Some(dns()),
            Self::Ntp => Some(ntp()),
            Self::Stun => Some(stun()),
            Self::Bound => None,
        }
    }

    /// Whether a datagram is an answer to such a request.
    #[must_use]
    pub fn is_reply(self, datagram: &[u8]) -> bool {
        match self {
            Self::Dns => datagram.len() >= 12 && datagram[2] & 0x80 != 0,
            Self::Ntp => datagram.len() >= 48 && datagram[0] & 7 == 4,
            // A binding response: success, or an error that says why not.
            Self::Stun => datagram.len() >= 20 && datagram[0] == 1 && datagram[4..8] == COOKIE,
            Self::Bound => false,
        }
    }

    fn nothing(self, address: SocketAddr) -> String {
        match self {
            Self::Dns => format!("no answer to a DNS query for the root's NS at {address}"),
            Self::Ntp => format!("no answer to an NTP request at {address}"),
            Self::Stun => format!("no answer to a STUN binding request at {address}"),
            Self::Bound => format!("no UDP socket gets datagrams to {address}"),
        }
    }
}

/// Sends a request and checks the reply.
fn answered(address: SocketAddr, request: &[u8], is_reply: impl Fn(&[u8]) -> bool) -> bool {
    let any =
        if address.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    let asked = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.set_read_timeout(Some(REPLY))?;
        socket.connect(address)?;
        socket.send(request)?;
        let mut reply = [0; 1500];
        let len = socket.recv(&mut reply)?;
        Ok(is_reply(&reply[..len]))
    });
    // Refused while no socket is open.
    asked.unwrap_or(false)
}

/// `. NS`, recursion not desired (RFC 1035, section 4): refused by a server without the root zone, which is an answer.
fn dns() -> Vec<u8> {
    [&ID[..], &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0], &[0, 0, 2, 0, 1]].concat()
}

/// Version 4, mode 3 (RFC 5905, section 7.3); the transmit timestamp must not be 0.
fn ntp() -> Vec<u8> {
    let mut request = vec![0; 48];
    request[0] = 0x23;
    request[40..42].copy_from_slice(&ID);
    request
}

/// The magic cookie of STUN.
const COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];

/// A binding request without attributes (RFC 8489, section 5).
fn stun() -> Vec<u8> {
    [&[0, 1, 0, 0][..], &COOKIE, &ID, &[0; 10]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_reply_of_the_protocol_counts() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        server.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let serve = std::thread::spawn(move || {
            // Echoes requests; then answers one.
            for turn in 0..4 {
                let mut room = [0; 100];
                let (len, from) = server.recv_from(&mut room).unwrap();
                if turn == 3 {
                    room[2] |= 0x80;
                }
                server.send_to(&room[..len], from).unwrap();
            }
            server
        });
        for probe in [Probe::Dns, Probe::Ntp, Probe::Stun] {
            assert!(!probe.once(address), "{probe:?}");
        }
        assert!(Probe::Dns.once(address));
        let server = serve.join().unwrap();
        assert!(Probe::Bound.once(address));
        drop(server);
        // A child that another test starts has the socket until it runs its program.
        let unbound = || {
            std::thread::sleep(Duration::from_millis(10));
            !Probe::Bound.once(address)
        };
        assert!((0..500).any(|_| unbound()));
        let said = Probe::Dns.wait(address, Duration::ZERO).unwrap_err();
        assert!(said.contains(&address.to_string()), "{said}");
    }
}
