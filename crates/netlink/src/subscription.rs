//! A subscription: change notifications as they arrive, and lists of existing objects, on one socket.
//!
//! ```text
//!  kernel --notifications--> socket --datagram--> items --> Notified                  something changed
//!         <--dump-----------                            --> Listed, Listed, ..., End  a list, part by part
//!                                                       --> Overrun                   notifications were lost
//! ```
//! Reading never blocks. One list at a time: parts of an abandoned list are skipped, and a list during which
//! something changed reports that in its [`Item::End`].

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, getsockname, recvfrom, send, sockopt};

use crate::error::Error;
use crate::message::{Message, Messages, NLMSG_DONE, NLMSG_ERROR, encode, flag};
use crate::socket::{MAX_DATAGRAM, Protocol};

/// Types of messages below this one are netlink's own (`NLMSG_MIN_TYPE`).
const FIRST_TYPE: u16 = 16;

/// The result of [`Subscription::receive`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// A datagram: see [`Subscription::items`].
    Datagram,
    /// Nothing more for now.
    Nothing,
    /// Notifications were lost: read everything again.
    Overrun,
}

/// One message of a datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item<'a> {
    /// An entry of the requested list.
    Listed(Message<'a>),
    /// The list is complete.
    End {
        /// Something changed during the list: entries may be missing.
        interrupted: bool,
    },
    /// The kernel refused the list.
    ListRefused(Error),
    /// Something changed.
    Notified(Message<'a>),
    /// The kernel refused another request of this socket.
    RequestRefused,
    /// The rest of the datagram is malformed.
    Malformed,
}

/// A socket that is subscribed to multicast groups, and can request lists.
pub struct Subscription {
    socket: OwnedFd,
    /// The socket's own address: answers carry it.
    port: u32,
    sequence: u32,
    /// The sequence number of the list in progress.
    listing: Option<u32>,
    interrupted: bool,
    buffer: Box<[u8]>,
    len: usize,
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription")
            .field("port", &self.port)
            .field("listing", &self.listing)
            .finish_non_exhaustive()
    }
}

impl Subscription {
    /// Opens a socket in the calling thread's network namespace, subscribed from the start to `groups` (group n is
    /// bit n - 1). `room`: for unread notifications, bytes; without CAP_NET_ADMIN at most the system's limit.
    ///
    /// # Errors
    /// The kernel lacks the protocol, or a limit of descriptors is reached.
    pub fn open(protocol: Protocol, groups: u32, room: usize) -> Result<Self, Error> {
        let socket = protocol.socket(SocketFlags::NONBLOCK, groups)?;
        if sockopt::set_socket_recv_buffer_size_force(&socket, room).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket, room)?;
        }
        let port = SocketAddrNetlink::try_from(getsockname(&socket)?)?.pid();
        Ok(Self::over(socket, port))
    }

    /// A subscription over the caller's socket, non-blocking and connected; `port`: the port in answers. Lets a test
    /// act as the kernel.
    #[must_use]
    pub fn over(socket: OwnedFd, port: u32) -> Self {
        let buffer = vec![0; MAX_DATAGRAM].into_boxed_slice();
        Self { socket, port, sequence: 0, listing: None, interrupted: false, buffer, len: 0 }
    }

    /// Requests a list; its parts arrive as [`Item::Listed`].
    ///
    /// # Errors
    /// The request cannot be sent.
    pub fn dump(&mut self, kind: u16, body: &[u8]) -> Result<(), Error> {
        self.request(kind, flag::DUMP, body)?;
        self.listing = Some(self.sequence);
        self.interrupted = false;
        Ok(())
    }

    /// Sends a request without waiting for its result; a refusal arrives as
    /// [`Item::RequestRefused`].
    ///
    /// # Errors
    /// The request cannot be sent.
    pub fn request(&mut self, kind: u16, flags: u16, body: &[u8]) -> Result<(), Error> {
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = encode(kind, flag::REQUEST | flags, self.sequence, 0, body)?;
        rustix::io::retry_on_intr(|| send(&self.socket, &bytes, SendFlags::empty()))?;
        Ok(())
    }

    /// Reads one datagram, if there is one. One that is longer than the buffer counts as lost.
    ///
    /// # Errors
    /// The socket is closed or broken.
    pub fn receive(&mut self) -> io::Result<Received> {
        let read = rustix::io::retry_on_intr(|| recvfrom(&self.socket, &mut *self.buffer, RecvFlags::TRUNC));
        let (len, whole, from) = match read {
            Ok(read) => read,
            Err(Errno::AGAIN) => return Ok(Received::Nothing),
            Err(Errno::NOBUFS) => return Ok(Received::Overrun),
            Err(cause) => return Err(cause.into()),
        };
        if whole == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the socket is closed"));
        }
        // Processes with CAP_NET_ADMIN can send to the groups as well. Only the kernel has port 0.
        let kernel =
            from.and_then(|from| SocketAddrNetlink::try_from(from).ok()).is_none_or(|from| from.pid() == 0);
        self.len = if kernel { len } else { 0 };
        Ok(if whole > len { Received::Overrun } else { Received::Datagram })
    }

    /// Passes on the messages of the datagram read last.
    pub fn items(&mut self, mut take: impl FnMut(Item<'_>)) {
        let mut messages = Messages::new(self.buffer.get(..self.len).unwrap_or_default());
        for message in messages.by_ref() {
            let own = message.port == self.port;
            let multi = message.flags & flag::MULTI != 0;
            let answers = own && Some(message.sequence) == self.listing;
            if own && !answers && multi {
                // The rest of an abandoned list.
                continue;
            }
            if answers {
                self.interrupted |= message.flags & flag::DUMP_INTR != 0;
            }
            match message.kind {
                NLMSG_ERROR | NLMSG_DONE if answers => {
                    self.listing = None;
                    take(match message.result() {
                        Ok(()) => Item::End { interrupted: self.interrupted },
                        Err(error) => Item::ListRefused(error),
                    });
                }
                NLMSG_ERROR | NLMSG_DONE => take(Item::RequestRefused),
                0..FIRST_TYPE => {}
                _ if answers && multi => take(Item::Listed(message)),
                _ => take(Item::Notified(message)),
            }
        }
        // Without a length the next message cannot be found.
        if !messages.rest().is_empty() {
            take(Item::Malformed);
        }
    }
}

impl AsFd for Subscription {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use proptest::prelude::*;

    use super::*;
    use crate::rtnetlink::{Update, group, list};

    const PORT: u32 = 77;

    fn pair() -> (Subscription, UnixDatagram) {
        let (kernel, socket) = UnixDatagram::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        (Subscription::over(socket.into(), PORT), kernel)
    }

    /// The items of a datagram, in short form.
    fn items(subscription: &mut Subscription, kernel: &UnixDatagram, datagram: &[u8]) -> Vec<String> {
        kernel.send(datagram).unwrap();
        assert_eq!(subscription.receive().unwrap(), Received::Datagram);
        let mut items = Vec::new();
        subscription.items(|item| {
            items.push(match item {
                Item::Listed(message) => format!("listed {}", message.kind),
                Item::Notified(message) => format!("notified {}", message.kind),
                other => format!("{other:?}"),
            });
        });
        items
    }

    #[test]
    fn a_list_and_notifications_are_kept_apart() {
        let (mut subscription, kernel) = pair();
        subscription.dump(18, &[]).unwrap();
        let message = |kind, flags, sequence, port| encode(kind, flags, sequence, port, &[0; 4]).unwrap();
        let datagram = [
            message(16, flag::MULTI, 1, PORT),
            message(17, 0, 0, 0),
            message(16, flag::MULTI, 9, PORT),
            message(1, 0, 0, 0),
            message(16, flag::MULTI | flag::DUMP_INTR, 1, PORT),
            message(NLMSG_DONE, flag::MULTI, 1, PORT),
            message(NLMSG_ERROR, 0, 9, PORT),
        ];
        let seen = items(&mut subscription, &kernel, &datagram.concat());
        let wanted = ["listed 16", "notified 17", "listed 16", "End { interrupted: true }", "RequestRefused"];
        assert_eq!(seen, wanted);
        // After its end, its entries belong to an earlier list.
        let late = message(16, flag::MULTI, 1, PORT);
        assert_eq!(items(&mut subscription, &kernel, &late), [""; 0]);
    }

    #[test]
    fn a_datagram_longer_than_the_buffer_is_an_overrun() {
        let (mut subscription, kernel) = pair();
        assert_eq!(subscription.receive().unwrap(), Received::Nothing);
        kernel.send(&vec![0; MAX_DATAGRAM + 1]).unwrap();
        assert_eq!(subscription.receive().unwrap(), Received::Overrun);
        // How a closed socket appears.
        kernel.send(&[]).unwrap();
        assert!(subscription.receive().is_err());
    }

    #[test]
    fn the_kernel_lists_its_links() {
        let mut subscription = Subscription::open(Protocol::Route, group::LINK, 1 << 20).unwrap();
        let (kind, body) = list::links();
        subscription.dump(kind, &body).unwrap();
        let (mut names, mut ended) = (Vec::new(), false);
        while !ended {
            assert_eq!(subscription.receive().unwrap(), Received::Datagram);
            subscription.items(|item| match item {
                Item::Listed(message) => match Update::parse(message.kind, message.body) {
                    Some(Update::NewLink(link)) => names.extend(link.name),
                    other => panic!("{other:?}"),
                },
                Item::End { .. } => ended = true,
                _ => {}
            });
        }
        assert!(names.contains(&"lo".to_owned()), "{names:?}");
    }

    proptest! {
        #[test]
        fn no_datagram_makes_it_panic(
            bytes in prop::collection::vec(any::<u8>(), 1..200),
            kind in 0_u16..32,
            flags: u16,
            answers: bool,
        ) {
            let (mut subscription, kernel) = pair();
            subscription.dump(18, &[]).unwrap();
            items(&mut subscription, &kernel, &bytes);
            let (sequence, port) = if answers { (1, PORT) } else { (0, 0) };
            items(&mut subscription, &kernel, &encode(kind, flags, sequence, port, &bytes).unwrap());
        }
    }
}
