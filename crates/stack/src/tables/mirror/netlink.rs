//! What the mirror asks of rtnetlink, and how it reads the messages.

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

/// Room for notifications not read yet, bytes. The kernel charges some 800 for a small one, so about 10,000 fit.
///
/// Lower: a storm of route changes overruns the socket and everything must be read again. Higher: kernel memory that is
/// hardly ever used.
const BUFFER_LEN: usize = 8 << 20;

/// What the kernel lists on request.
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
    /// One entry of the list asked for.
    Listed(Update),
    /// The list is complete; `interrupted`: it changed while it was read, so entries may be missing.
    End { interrupted: bool },
    /// The kernel refused the list.
    Refused(io::Error),
    /// Something changed; with the flags of the message.
    Noticed(u16, Update),
    /// Something changed about next hop objects.
    NextHops,
    /// The kernel refused another request of ours.
    Unasked,
    /// A malformed message.
    Undecodable,
}

/// The socket to rtnetlink: subscribed to what changes, and asked for what exists.
pub(super) struct Netlink(Subscription);

impl Netlink {
    /// Opens one for the calling thread's network namespace, subscribed from the first moment.
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self(Subscription::open(Protocol::Route, GROUPS, BUFFER_LEN)?))
    }

    /// Over a socket whose other end is a test instead of the kernel.
    #[cfg(test)]
    pub(super) fn over(socket: std::os::fd::OwnedFd, port: u32) -> Self {
        Self(Subscription::over(socket, port))
    }

    /// Asks for a list of all there are.
    pub(super) fn list(&mut self, kind: Kind) -> io::Result<()> {
        let (request, body) = match kind {
            Kind::Links => list::links(),
            Kind::Addresses => list::addresses(),
            Kind::Neighbours => list::neighbours(),
            Kind::Routes => list::routes(),
        };
        Ok(self.0.dump(request, &body)?)
    }

    /// Asks the kernel to find out or confirm a neighbour's MAC address (`NTF_USE`, `neigh_add` in net/core/neighbour.c),
    /// as if it had a packet for it. It keeps trying as its settings say, and answers with notifications.
    pub(super) fn resolve(&mut self, interface: u32, address: IpAddr) -> io::Result<()> {
        let neighbour = Neighbour { flags: neighbour::flags::USE, ..Neighbour::new(interface, address) };
        let (request, body) = Update::NewNeighbour(neighbour).encode();
        Ok(self.0.request(request, flag::CREATE | flag::REPLACE, &body)?)
    }

    /// Reads one datagram, if there is one.
    pub(super) fn receive(&mut self) -> io::Result<Received> {
        self.0.receive()
    }

    /// Passes on the messages of the datagram read last, as far as the mirror uses them.
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

/// The item of a message about something; `None` if the mirror has no use for it.
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
