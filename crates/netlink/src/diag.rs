//! sock_diag: UDP sockets, one message each.
//!
//! ```text
//! inet_diag_msg   0 family  1 state  4 source port  6 peer's port  8 source  24 peer  40 interface  44 cookie
//!                52 expires  56 receive queue  60 send queue  64 user  68 inode          then attributes
//! ```
//! Numbers are in the machine's order, ports and addresses in that of the network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::attribute::Attributes;
use crate::error::Error;
use crate::numbers::{INET_DIAG_SKMEMINFO, INET_DIAG_SKV6ONLY};
use crate::socket::{Protocol, Socket};

/// `SOCK_DIAG_BY_FAMILY` of linux/sock_diag.h.
const BY_FAMILY: u16 = 20;
/// Bytes of `struct inet_diag_req_v2` and of `struct inet_diag_msg` of linux/inet_diag.h.
const REQUEST: usize = 56;
const MESSAGE: usize = 72;
/// Every state of a socket, connected or not.
const ALL_STATES: u32 = u32::MAX;
/// `TCP_ESTABLISHED`, which for UDP means connected.
const CONNECTED: u8 = 1;

/// A UDP socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UdpSocket {
    /// Where it receives.
    pub local: SocketAddr,
    /// The peer it is connected to.
    pub peer: Option<SocketAddr>,
    /// The interface it is bound to.
    pub interface: Option<u32>,
    /// The inode of its descriptors.
    pub inode: u32,
    /// Its cookie, which no other socket gets until the next boot.
    pub cookie: Option<u64>,
    /// Its owner's user id.
    pub uid: u32,
    /// Whether an IPv6 socket does not receive IPv4.
    pub v6only: Option<bool>,
    /// Memory of datagrams not read yet, bytes.
    pub receive_queue: u32,
    /// Memory of datagrams not sent yet, bytes.
    pub send_queue: u32,
    /// Its memory; `None` before Linux 3.6.
    pub memory: Option<Memory>,
    /// Datagrams dropped.
    pub drops: u32,
}

/// A socket's memory, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// `SO_RCVBUF`.
    pub receive_buffer: u32,
    /// `SO_SNDBUF`.
    pub send_buffer: u32,
    /// Reserved for the socket.
    pub reserved: u32,
    /// Its options and filters.
    pub options: u32,
    /// Datagrams in its backlog.
    pub backlog: u32,
}

/// A socket to sock_diag of one network namespace.
#[derive(Debug)]
pub struct SockDiag(Socket);

impl SockDiag {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// As [`Socket::open`].
    pub fn open() -> Result<Self, Error> {
        Ok(Self(Socket::open(Protocol::SockDiag)?))
    }

    /// All UDP sockets, IPv4 first, each passed through `make`: a machine may have tens of thousands, and needs them in
    /// one form only.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the kernel has no sock_diag for UDP; otherwise as [`Socket::dump`].
    pub fn udp_sockets<T>(&mut self, make: impl Fn(UdpSocket) -> T) -> Result<Vec<T>, Error> {
        let mut list = |family: i32| {
            let mut request = [0; REQUEST];
            request[0] = family as u8;
            request[1] = libc::IPPROTO_UDP as u8;
            request[2] = 1 << (INET_DIAG_SKMEMINFO - 1);
            request[4..8].copy_from_slice(&ALL_STATES.to_ne_bytes());
            self.0.dump_each(BY_FAMILY, &request, |body| udp_socket(body).map(&make)).map_err(unsupported)
        };
        let mut sockets = list(libc::AF_INET)?;
        sockets.extend(list(libc::AF_INET6)?);
        Ok(sockets)
    }
}

/// A kernel that has sock_diag without UDP answers `ENOENT`, and one without IPv6 lists nothing.
fn unsupported(error: Error) -> Error {
    match error.errno {
        Some(libc::ENOENT | libc::EINVAL | libc::EPROTONOSUPPORT | libc::ECONNREFUSED) => {
            Error { errno: Some(libc::EOPNOTSUPP), ..error }
        }
        _ => error,
    }
}

/// One message.
fn udp_socket(body: &[u8]) -> Option<UdpSocket> {
    let (fixed, rest) = body.split_at_checked(MESSAGE)?;
    let word = |at: usize| Some(u32::from_ne_bytes(*fixed.get(at..)?.first_chunk()?));
    let port = |at: usize| Some(u16::from_be_bytes(*fixed.get(at..)?.first_chunk()?));
    let address = |at: usize| {
        let bytes = fixed.get(at..)?;
        match i32::from(fixed[0]) {
            libc::AF_INET => Some(IpAddr::V4(Ipv4Addr::from(*bytes.first_chunk::<4>()?))),
            libc::AF_INET6 => Some(IpAddr::V6(Ipv6Addr::from(*bytes.first_chunk::<16>()?))),
            _ => None,
        }
    };
    let is = Attributes::new(rest);
    // `enum` of linux/sock_diag.h, each a word: 1 receive buffer, 3 send buffer, 4 reserved, 6 options, 7 backlog, 8
    // drops.
    let memory = is.bytes(INET_DIAG_SKMEMINFO).unwrap_or_default();
    let entry = |at: usize| Some(u32::from_ne_bytes(*memory.get(4 * at..)?.first_chunk()?));
    let buffers = || {
        Some(Memory {
            receive_buffer: entry(1)?,
            send_buffer: entry(3)?,
            reserved: entry(4)?,
            options: entry(6)?,
            backlog: entry(7)?,
        })
    };
    let cookie = u64::from(word(44)?) | u64::from(word(48)?) << 32;
    Some(UdpSocket {
        local: SocketAddr::new(address(8)?, port(4)?),
        peer: if fixed[1] == CONNECTED { Some(SocketAddr::new(address(24)?, port(6)?)) } else { None },
        interface: word(40).filter(|index| *index != 0),
        inode: word(68)?,
        cookie: (cookie != u64::MAX).then_some(cookie),
        uid: word(64)?,
        v6only: is.number(INET_DIAG_SKV6ONLY).map(|only| only != 0),
        receive_queue: word(56)?,
        send_queue: word(60)?,
        memory: buffers(),
        drops: entry(8).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::linux::fs::MetadataExt;

    use proptest::prelude::*;
    use rustix::net::sockopt;

    use super::*;

    fn found(local: SocketAddr) -> UdpSocket {
        let sockets = SockDiag::open().unwrap().udp_sockets(|socket| socket).unwrap();
        sockets.into_iter().find(|socket| socket.local == local).unwrap()
    }

    #[test]
    fn a_socket_is_listed_with_its_own_options() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        sockopt::set_socket_recv_buffer_size(&socket, 50_000).unwrap();
        let peer = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let listed = found(socket.local_addr().unwrap());
        assert_eq!((listed.peer, listed.interface, listed.drops), (None, None, 0));
        let memory = listed.memory.unwrap();
        assert_eq!(memory.receive_buffer as usize, sockopt::socket_recv_buffer_size(&socket).unwrap());
        assert_eq!(memory.send_buffer as usize, sockopt::socket_send_buffer_size(&socket).unwrap());
        assert_eq!(listed.cookie, Some(sockopt::socket_cookie(socket.as_fd()).unwrap()));
        let file = std::fs::File::from(OwnedFd::from(socket.try_clone().unwrap()));
        assert_eq!(u64::from(listed.inode), file.metadata().unwrap().st_ino());
        // Queued datagrams, and those that did not fit.
        let to = socket.local_addr().unwrap();
        (0..500).for_each(|_| drop(peer.send_to(&[0; 1000], to)));
        let full = found(to);
        assert!(full.receive_queue > 0 && full.drops > 0, "{full:?}");
        assert_eq!(full.cookie, listed.cookie);
        // And a peer.
        socket.connect(peer.local_addr().unwrap()).unwrap();
        assert_eq!(found(to).peer, Some(peer.local_addr().unwrap()));
    }

    #[test]
    fn an_ipv6_socket_says_whether_it_leaves_ipv4_to_others() {
        let any = std::net::UdpSocket::bind("[::]:0").unwrap();
        let listed = found(any.local_addr().unwrap());
        assert_eq!(listed.v6only, Some(sockopt::ipv6_v6only(&any).unwrap()));
        let one = std::net::UdpSocket::bind("[::1]:0").unwrap();
        assert_eq!(found(one.local_addr().unwrap()).local.ip(), IpAddr::V6(Ipv6Addr::LOCALHOST));
    }

    proptest! {
        #[test]
        fn no_message_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..160), family in prop::sample::select(vec![2_u8, 10, 0])) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = family;
            }
            let socket = udp_socket(&bytes);
            prop_assert_eq!(socket.is_some(), bytes.len() >= MESSAGE && family != 0);
        }
    }
}
