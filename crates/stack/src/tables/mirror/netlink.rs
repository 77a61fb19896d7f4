//! The mirror's rtnetlink requests, and the messages it reads.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use udpath_netlink::rtnetlink::{Neighbour, Update, group, list, neighbour};
use udpath_netlink::{Error, Message, Protocol, Received, Subscription, flag, subscription};

/// The groups that report what is mirrored, and next hop objects, which routes refer to.
const GROUPS: u32 = group::LINK
    | group::NEIGHBOUR
    | group::IPV4_ADDRESS
    | group::IPV4_ROUTE
    | group::IPV6_ADDRESS
    | group::IPV6_ROUTE
    | group::NEXT_HOP;

/// Room for unread notifications, bytes. The kernel charges about 800 for a small one, so about 10,000 fit.
///
/// Lower: a storm of route changes overruns the socket and everything must be read again. Higher: kernel memory that is
/// hardly ever used.
const BUFFER_LEN: usize = 8 << 20;

/// Kinds of objects that the kernel lists on request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Links,
    Addresses,
    Neighbours,
    Routes,
}

/// A message that was read.
#[derive(Debug)]
pub(super) enum Item {
    /// One entry of the requested list.
    Listed(Update),
    /// The list is complete; `interrupted`: it changed while it was read, so entries may be missing.
    End { interrupted: bool },
    /// The kernel refused the list.
    Refused(io::Error),
    /// Something changed; with the flags of the message.
    Noticed(u16, Update),
    /// A next hop object changed.
    NextHops,
    /// The kernel refused another request of this socket.
    Unasked,
    /// A malformed message.
    Undecodable,
}

/// The rtnetlink socket: receives change notifications, and requests lists of existing objects.
pub(super) struct Netlink(Subscription);

impl Netlink {
    /// Opens one in the calling thread's network namespace, subscribed from the start.
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self(Subscription::open(Protocol::Route, GROUPS, BUFFER_LEN)?))
    }

    /// Over a socket whose other end is a test instead of the kernel.
    #[cfg(test)]
    pub(super) fn over(socket: std::os::fd::OwnedFd, port: u32) -> Self {
        Self(Subscription::over(socket, port))
    }

    /// Requests a list of all objects of a kind.
    pub(super) fn list(&mut self, kind: Kind) -> io::Result<()> {
        let (request, body) = match kind {
            Kind::Links => list::links(),
            Kind::Addresses => list::addresses(),
            Kind::Neighbours => list::neighbours(),
            Kind::Routes => list::routes(),
        };
        Ok(self.0.dump(request, &body)?)
    }

    /// Makes the kernel resolve or confirm a neighbour's MAC address (`NTF_USE`, `neigh_add` in
    /// net/core/neighbour.c), as if it had a packet for it. The kernel retries according to its settings, and answers
    /// with notifications.
    pub(super) fn resolve(&mut self, interface: u32, address: IpAddr) -> io::Result<()> {
        let neighbour = Neighbour { flags: neighbour::flags::USE, ..Neighbour::new(interface, address) };
        let (request, body) = Update::NewNeighbour(neighbour).encode();
        Ok(self.0.request(request, flag::CREATE | flag::REPLACE, &body)?)
    }

    /// Reads one datagram, if there is one.
    pub(super) fn receive(&mut self) -> io::Result<Received> {
        self.0.receive()
    }

    /// Passes on the messages of the last datagram read, except those the mirror does not use.
    pub(super) fn items(&mut self, mut take: impl FnMut(Item)) {
        self.0.items(|item| {
            let item = match item {
                subscription::Item::Listed(message) => update(&message, Item::Listed),
                subscription::Item::Notified(message) => {
                    update(&message, |update| Item::Noticed(message.flags, update))
                }
                subscription::Item::End { interrupted } => Some(Item::End { interrupted }),
                subscription::Item::ListRefused(error) => Some(Item::Refused(cause(error))),
                subscription::Item::RequestRefused => Some(Item::Unasked),
                subscription::Item::Malformed => Some(Item::Undecodable),
            };
            item.into_iter().for_each(&mut take);
        });
    }
}

/// The item of a message about an object; `None` if the mirror does not use it.
fn update(message: &Message<'_>, item: impl FnOnce(Update) -> Item) -> Option<Item> {
    match Update::parse(message.kind, message.body) {
        None => Some(Item::Undecodable),
        Some(Update::NextHop) => Some(Item::NextHops),
        Some(Update::Other(_)) => None,
        Some(update) => Some(item(update)),
    }
}

/// The kernel's refusal as its error number: the mirror treats `EBUSY` differently.
fn cause(error: Error) -> io::Error {
    error.into()
}

impl AsFd for Netlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
