//! The socket to rtnetlink: subscribed to what changes, asked for what is, and read message by message.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use netlink_packet_core::{
    NLM_F_CREATE, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_MULTIPART, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkBuffer,
    NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::link::{LinkAttribute, LinkExtentMask, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::RouteMessage;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily as SocketFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, connect, getsockname,
    recvfrom, send, socket_with, sockopt,
};

/// The groups of linux/rtnetlink.h (`RTNLGRP_*`) as the bits of a socket's address, group n being bit n - 1: link 1,
/// neighbour 3, IPv4 address 5 and route 7, IPv6 address 9 and route 11, next hop objects 32.
const GROUPS: u32 = 1 << 0 | 1 << 2 | 1 << 4 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 31;

/// Types of messages on next hop objects (`RTM_NEWNEXTHOP`, `RTM_DELNEXTHOP`).
const NEXT_HOPS: std::ops::RangeInclusive<u16> = 104..=105;
/// Types of messages this module has use for: links to neighbours, `RTM_NEWLINK` to `RTM_GETNEIGH`.
const MIRRORED: std::ops::RangeInclusive<u16> = 16..=30;
/// Bytes of a message's header.
const HEADER: usize = 16;
/// `NLMSG_ERROR` and `NLMSG_DONE` of linux/netlink.h.
const ENDS: std::ops::RangeInclusive<u16> = 2..=3;

/// Room for notices that were not read yet, bytes. The kernel counts some 800 for a small one, so this is room for about
/// 10,000 of them.
///
/// Less: a storm of route changes overruns the socket and everything must be read anew. More: kernel memory that is
/// hardly ever used.
const ROOM: usize = 8 << 20;

/// Bytes that one datagram may have. The kernel fills dumps up to 32 KiB, and more only for single messages that
/// are longer: a link with hundreds of virtual functions. What is longer still is noticed and counts as lost.
const DATAGRAM: usize = 64 << 10;

/// What the kernel lists on request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    WorkerRings,
    Addresses,
    Neighbours,
    Routes,
}

/// A message that was read.
#[derive(Debug)]
pub(super) enum Item {
    /// One entry of the list that was asked for.
    Listed(RouteNetlinkMessage),
    /// The list is complete; whether it changed while it was read, so that entries may be missing.
    End { interrupted: bool },
    /// The list was refused.
    Refused(io::Error),
    /// Something changed; with the flags of the message.
    Noticed(u16, RouteNetlinkMessage),
    /// Something changed about next hop objects.
    NextHops,
    /// The kernel refused another request of ours.
    Unasked,
    /// A message that makes no sense.
    Undecodable,
}

/// What reading the socket gave.
pub(super) enum Received {
    /// Messages; see [`Netlink::items`].
    Datagram,
    /// Nothing more for now.
    Nothing,
    /// Notices were lost: what is known is not what is.
    Overrun,
}

pub(super) struct Netlink {
    socket: OwnedFd,
    /// The socket's own address: answers bear it.
    port: u32,
    sequence: u32,
    /// The sequence number of the list under way.
    listing: Option<u32>,
    interrupted: bool,
    buffer: Box<[u8]>,
    len: usize,
}

impl Netlink {
    /// Opens one for the calling thread's network namespace, subscribed from the first moment.
    pub(super) fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // No protocol: 0, NETLINK_ROUTE.
        let socket = socket_with(SocketFamily::NETLINK, SocketType::RAW, flags, None)?;
        // More than the system's limit takes CAP_NET_ADMIN; with less, storms overrun sooner.
        if sockopt::set_socket_recv_buffer_size_force(&socket, ROOM).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket, ROOM)?;
        }
        bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        // Connected to the kernel, other processes' sockets cannot send to this one.
        connect(&socket, &SocketAddrNetlink::new(0, 0))?;
        let port = SocketAddrNetlink::try_from(getsockname(&socket)?)?.pid();
        Ok(Self::over(socket, port))
    }

    pub(super) fn over(socket: OwnedFd, port: u32) -> Self {
        let buffer = vec![0; DATAGRAM].into_boxed_slice();
        Self { socket, port, sequence: 0, listing: None, interrupted: false, buffer, len: 0 }
    }

    /// Requests for a list of all there are.
    pub(super) fn list(&mut self, kind: Kind) -> io::Result<()> {
        let message = match kind {
            Kind::WorkerRings => {
                let mut message = LinkMessage::default();
                // Statistics are most of a link's message, and of no use here.
                message.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
                RouteNetlinkMessage::GetLink(message)
            }
            Kind::Addresses => RouteNetlinkMessage::GetAddress(AddressMessage::default()),
            Kind::Neighbours => RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default()),
            Kind::Routes => RouteNetlinkMessage::GetRoute(RouteMessage::default()),
        };
        self.request(message, NLM_F_DUMP)?;
        self.listing = Some(self.sequence);
        self.interrupted = false;
        Ok(())
    }

    /// Requests the kernel to find out or confirm a neighbour's MAC address (`NTF_USE`, `neigh_add` in net/core/neighbour.c):
    /// as if it had a packet for it. It keeps trying as its settings say, and answers with notices.
    pub(super) fn resolve(&mut self, interface: u32, address: IpAddr) -> io::Result<()> {
        let mut message = NeighbourMessage::default();
        message.header.ifindex = interface;
        message.header.state = NeighbourState::None;
        message.header.flags = NeighbourFlags::Use;
        let (family, destination) = match address {
            IpAddr::V4(address) => (AddressFamily::Inet, NeighbourAddress::Inet(address)),
            IpAddr::V6(address) => (AddressFamily::Inet6, NeighbourAddress::Inet6(address)),
        };
        message.header.family = family;
        message.attributes.push(NeighbourAttribute::Destination(destination));
        self.request(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_REPLACE)
    }

    fn request(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::from(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        rustix::io::retry_on_intr(|| send(&self.socket, &bytes, SendFlags::empty()))?;
        Ok(())
    }

    /// Reads one datagram, if there is one.
    pub(super) fn receive(&mut self) -> io::Result<Received> {
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

    /// Hands out the messages of the datagram read last.
    pub(super) fn items(&mut self, mut take: impl FnMut(Item)) {
        let mut at = 0;
        while let Some(rest) = self.buffer.get(at..self.len).filter(|rest| !rest.is_empty()) {
            let Ok(message) = NetlinkBuffer::new_checked(rest) else {
                // Without a length there is no next message.
                return take(Item::Undecodable);
            };
            // Messages are aligned to four bytes.
            at += (message.length() as usize).next_multiple_of(4).max(HEADER);
            let own = message.port_number() == self.port;
            let answers = own && Some(message.sequence_number()) == self.listing;
            let (kind, flags) = (message.message_type(), message.flags());
            if own && !answers && flags & NLM_F_MULTIPART != 0 {
                // The rest of a list that was given up.
                continue;
            }
            if NEXT_HOPS.contains(&kind) {
                take(Item::NextHops);
            } else if MIRRORED.contains(&kind) || ENDS.contains(&kind) {
                let item = match NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest) {
                    Ok(message) if answers => {
                        self.interrupted |= flags & NLM_F_DUMP_INTR != 0;
                        let item = answer(message.payload, flags, self.interrupted);
                        if matches!(item, Item::End { .. } | Item::Refused(_)) {
                            self.listing = None;
                        }
                        item
                    }
                    Ok(message) => match message.payload {
                        NetlinkPayload::InnerMessage(inner) => Item::Noticed(flags, inner),
                        _ => Item::Unasked,
                    },
                    Err(_) => Item::Undecodable,
                };
                take(item);
            }
        }
    }
}

/// What an answer to the request for a list says.
fn answer(payload: NetlinkPayload<RouteNetlinkMessage>, flags: u16, interrupted: bool) -> Item {
    match payload {
        NetlinkPayload::Done(done) if done.code < 0 => {
            Item::Refused(io::Error::from_raw_os_error(done.code.saturating_neg()))
        }
        NetlinkPayload::Done(_) => Item::End { interrupted },
        NetlinkPayload::Error(error) => Item::Refused(error.to_io()),
        NetlinkPayload::InnerMessage(inner) if flags & NLM_F_MULTIPART != 0 => Item::Listed(inner),
        NetlinkPayload::InnerMessage(inner) => Item::Noticed(flags, inner),
        _ => Item::Undecodable,
    }
}

impl AsFd for Netlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
