//! A netlink socket: one request at a time, and all of its answers.
//!
//! ```text
//!  request --> kernel --> answer, answer, ... --> acknowledgement (0 or an error)   a plain request
//!                    \--> answer, answer, ... --> done           (0 or an error)   a dump
//! ```
//! The socket belongs to the network namespace its thread was in when it was opened, whichever thread uses it later. A
//! dump that the kernel marks as interrupted is inconsistent, and is repeated.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, connect, recv, send, socket_with,
    sockopt,
};

use crate::error::Error;
use crate::message::{Message, Messages, NLMSG_DONE, NLMSG_ERROR, encode, flag};
use crate::sys;

/// How long the kernel may take to answer. It answers within the send call, unless another process holds the lock of
/// all interfaces (rtnl) while hardware resets. Lower: machines with slow hardware fail needlessly. Higher: a hang is
/// reported late.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Size of the largest datagram accepted, bytes. The kernel fills dumps up to 32 KiB and sends a single answer whole;
/// the longest of those is an RSS table, 4 bytes for each of up to a few thousand entries. Lower: such a table is
/// truncated, and rejected here. Higher: wasted memory.
pub(crate) const MAX_DATAGRAM: usize = 64 << 10;
/// How often an interrupted dump is repeated before it is an error. Interfaces come and go in bursts: with fewer
/// attempts a dump during a burst fails; more only wait longer for its end.
const MAX_DUMPS: u32 = 5;

/// The netlink protocols used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// rtnetlink: interfaces, addresses, neighbours, routes, queueing disciplines.
    Route,
    /// Sockets.
    SockDiag,
    /// nfnetlink: nftables, hooks.
    Netfilter,
    /// The audit subsystem.
    Audit,
    /// Generic netlink: ethtool, netdev.
    Generic,
}

impl Protocol {
    fn raw(self) -> Option<rustix::net::Protocol> {
        match self {
            // NETLINK_ROUTE is 0.
            Self::Route => None,
            Self::SockDiag => Some(netlink::SOCK_DIAG),
            Self::Netfilter => Some(netlink::NETFILTER),
            Self::Audit => Some(netlink::AUDIT),
            Self::Generic => Some(netlink::GENERIC),
        }
    }

    /// A socket of this protocol in the calling thread's network namespace, subscribed to `groups` (group n is bit n -
    /// 1) and connected to the kernel, so that other processes cannot send to it.
    pub(crate) fn socket(self, flags: SocketFlags, groups: u32) -> Result<OwnedFd, Error> {
        connected(self.raw(), flags, groups)
    }
}

fn connected(
    protocol: Option<rustix::net::Protocol>,
    flags: SocketFlags,
    groups: u32,
) -> Result<OwnedFd, Error> {
    let flags = SocketFlags::CLOEXEC | flags;
    let opened = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol);
    let socket = opened.map_err(|errno| match errno {
        // The number by which requests say that the kernel lacks what they ask for.
        Errno::PROTONOSUPPORT => Errno::OPNOTSUPP,
        errno => errno,
    })?;
    bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    connect(&socket, &SocketAddrNetlink::new(0, 0))?;
    Ok(socket)
}

/// The answers to one request.
#[derive(Debug, Default)]
pub struct Answers {
    bytes: Vec<u8>,
}

impl Answers {
    /// The answers.
    #[must_use]
    pub fn messages(&self) -> Messages<'_> {
        Messages::new(&self.bytes)
    }

    fn add(&mut self, message: &Message<'_>) {
        self.bytes.extend_from_slice(message.whole);
    }

    /// The answers' bodies, without netlink's header.
    pub fn bodies(&self) -> impl Iterator<Item = &[u8]> {
        self.messages().map(|message| message.body)
    }
}

/// Whether a datagram ended the exchange.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    More,
    End,
}

/// A socket of one netlink protocol.
pub struct Socket {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Socket(sequence {})", self.sequence)
    }
}

impl Socket {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the kernel lacks the protocol; or a limit of descriptors is reached.
    pub fn open(protocol: Protocol) -> Result<Self, Error> {
        let socket = protocol.socket(SocketFlags::empty(), 0)?;
        // Kernels before 4.12 and 4.20 lack these: their errors say less, and they check less.
        for option in [libc::NETLINK_EXT_ACK, libc::NETLINK_CAP_ACK, libc::NETLINK_GET_STRICT_CHK] {
            let _ = sys::enable(&socket, option);
        }
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(TIMEOUT))?;
        Ok(Self::over(socket))
    }

    /// A connected socket whose other end answers as the kernel does, datagram by datagram: a recording, or a proxy
    /// that makes one.
    #[must_use]
    pub fn over(socket: OwnedFd) -> Self {
        Self { socket, sequence: 0, buffer: vec![0; MAX_DATAGRAM] }
    }

    /// A plain request; returns its answers.
    ///
    /// # Errors
    /// The kernel's refusal, or no answer in time.
    pub fn request(&mut self, kind: u16, body: &[u8]) -> Result<Answers, Error> {
        let mut answers = Answers::default();
        self.exchange(kind, flag::ACK, body, &mut |message| answers.add(message))?;
        Ok(answers)
    }

    /// A plain request that another kernel thread answers after the acknowledgement, like in audit.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub fn request_answered_later(&mut self, kind: u16, body: &[u8]) -> Result<Answers, Error> {
        let mut answers = self.request(kind, body)?;
        while answers.bytes.is_empty() {
            self.receive(&mut |message| answers.add(message), &mut false)?;
        }
        Ok(answers)
    }

    /// A request that creates, replaces or deletes something; `flags`: [`flag::CREATE`] and the like.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub fn change(&mut self, kind: u16, flags: u16, body: &[u8]) -> Result<(), Error> {
        self.exchange(kind, flag::ACK | flags, body, &mut |_| ()).map(|_| ())
    }

    /// A dump: all objects of a kind. Repeated while the kernel reports changes during the dump.
    ///
    /// # Errors
    /// As [`request`](Self::request), or every dump was interrupted.
    pub fn dump(&mut self, kind: u16, body: &[u8]) -> Result<Answers, Error> {
        self.dump_into(kind, body, |answers: &mut Answers, message| answers.add(message))
    }

    /// A dump of a long list: each answer's body is read as it arrives, and left out if `read` does not understand it.
    ///
    /// # Errors
    /// As [`dump`](Self::dump).
    pub fn dump_each<T>(
        &mut self,
        kind: u16,
        body: &[u8],
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Vec<T>, Error> {
        self.dump_into(kind, body, |all: &mut Vec<T>, message| all.extend(read(message.body)))
    }

    fn dump_into<A: Default>(
        &mut self,
        kind: u16,
        body: &[u8],
        add: impl Fn(&mut A, &Message<'_>),
    ) -> Result<A, Error> {
        for _ in 0..MAX_DUMPS {
            let mut all = A::default();
            let interrupted = self.exchange(kind, flag::DUMP, body, &mut |message| add(&mut all, message))?;
            if !interrupted {
                return Ok(all);
            }
        }
        Err(Error::other(format_args!("interfaces changed during each of {MAX_DUMPS} attempts to list them")))
    }

    /// Passes each answer to `add`; returns whether the kernel interrupted a dump.
    fn exchange(
        &mut self,
        kind: u16,
        flags: u16,
        body: &[u8],
        add: &mut dyn FnMut(&Message<'_>),
    ) -> Result<bool, Error> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = encode(kind, flag::REQUEST | flags, self.sequence, 0, body)?;
        rustix::io::retry_on_intr(|| send(&self.socket, &request, SendFlags::empty()))?;
        let mut interrupted = false;
        while self.receive(add, &mut interrupted)? == Step::More {}
        Ok(interrupted)
    }

    /// Receives one datagram of the answers to the last request.
    fn receive(&mut self, add: &mut dyn FnMut(&Message<'_>), interrupted: &mut bool) -> Result<Step, Error> {
        let (socket, buffer) = (self.socket.as_fd(), &mut self.buffer);
        let (_, length) = rustix::io::retry_on_intr(|| recv(socket, &mut buffer[..], RecvFlags::TRUNC))
            .map_err(|errno| match errno {
                Errno::AGAIN => Error::other(format_args!("no answer within {} s", TIMEOUT.as_secs())),
                errno => errno.into(),
            })?;
        if length == 0 {
            return Err(Error::other("the other end of the socket is closed"));
        }
        let Some(datagram) = self.buffer.get(..length) else {
            return Err(Error::other(format_args!("an answer of {length} bytes, over {MAX_DATAGRAM}")));
        };
        take(datagram, self.sequence, add, interrupted)
    }
}

impl From<Socket> for OwnedFd {
    fn from(socket: Socket) -> Self {
        socket.socket
    }
}

/// Takes the answers to request number `sequence` out of a datagram.
fn take(
    datagram: &[u8],
    sequence: u32,
    add: &mut dyn FnMut(&Message<'_>),
    interrupted: &mut bool,
) -> Result<Step, Error> {
    // Late answers to an earlier request that timed out are skipped.
    let ours = |message: &Message<'_>| message.sequence == sequence;
    for message in Messages::new(datagram).filter(ours) {
        *interrupted |= message.flags & flag::DUMP_INTR != 0;
        match message.kind {
            NLMSG_ERROR | NLMSG_DONE => return message.result().map(|()| Step::End),
            _ => add(&message),
        }
    }
    Ok(Step::More)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::numbers::{CTRL_ATTR_FAMILY_NAME, CTRL_CMD_GETFAMILY, IFLA_IFNAME, RTM_GETLINK};
    use crate::{Attributes, Writer};

    fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
        encode(kind, flags, sequence, 0, body).unwrap()
    }

    #[test]
    fn answers_to_another_request_are_skipped_and_an_interruption_is_seen() {
        let mut datagram = message(16, 0, 6, b"old!");
        datagram.extend(message(16, flag::DUMP_INTR, 7, b"ours"));
        let (mut answers, mut interrupted) = (Answers::default(), false);
        assert_eq!(take(&datagram, 7, &mut |message| answers.add(message), &mut interrupted), Ok(Step::More));
        assert_eq!(answers.bodies().collect::<Vec<_>>(), [b"ours"]);
        assert!(interrupted);
    }

    #[test]
    fn the_kernel_answers_dumps_and_explains_refusals() {
        let mut route = Socket::open(Protocol::Route).unwrap();
        let answers = route.dump(RTM_GETLINK, &[0; 16]).unwrap();
        let names: Vec<_> =
            answers.bodies().filter_map(|body| Attributes::new(&body[16..]).text(IFLA_IFNAME)).collect();
        assert!(names.contains(&"lo".into()), "{names:?}");
        let read = |body: &[u8]| Attributes::new(body.get(16..)?).text(IFLA_IFNAME);
        assert_eq!(route.dump_each(RTM_GETLINK, &[0; 16], read).unwrap(), names);
        // Strict checking: a header that requests something unsupported in a dump.
        let error = route.dump(RTM_GETLINK, &[1; 16]).unwrap_err();
        assert_eq!(error.errno, Some(libc::EINVAL));
        assert!(error.detail.is_some(), "{error:?}");
        let mut generic = Socket::open(Protocol::Generic).unwrap();
        let mut body = Writer::after(&[u8::try_from(CTRL_CMD_GETFAMILY).unwrap(), 1, 0, 0]);
        body.text(CTRL_ATTR_FAMILY_NAME, "no-such-family");
        assert_eq!(generic.request(16, &body.finish()).unwrap_err().errno, Some(libc::ENOENT));
    }

    #[test]
    fn a_protocol_that_the_kernel_lacks_is_not_supported() {
        // The last of the 32 protocols that there may be: none of the kernel's uses it.
        let unused = rustix::net::Protocol::from_raw(31.try_into().unwrap());
        let refused = connected(Some(unused), SocketFlags::empty(), 0).unwrap_err();
        assert_eq!(refused.errno, Some(libc::EOPNOTSUPP));
    }

    proptest! {
        #[test]
        fn no_datagram_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..120), kind in 0_u16..5, flags: u16) {
            let _ = take(&bytes, 7, &mut |_| (), &mut false);
            let _ = take(&message(kind, flags, 7, &bytes), 7, &mut |_| (), &mut false);
        }
    }
}
