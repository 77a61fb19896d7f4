//! rtnetlink, blocking: the few requests a lab makes. One socket per machine, opened inside its network namespace; the
//! socket keeps speaking for that namespace from whatever thread it is used.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, NlaBuffer, NlasIterator,
};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, LinkXdp, State,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::{End, Error, LinkSpec, MacAddress};

/// How long the kernel may take for an answer. It answers within the send call; only a hung kernel lets this run out.
/// Too low: a machine under heavy load fails for nothing. Too high: a hang is told late.
const ANSWER: Duration = Duration::from_secs(10);
/// `NLMSGERR_ATTR_MSG` of linux/netlink.h: the kernel's sentence beside the error number.
const EXTENDED_ACK_MESSAGE: u16 = 1;
/// Length of a netlink header, bytes: what a capped error repeats of the request.
const HEADER: usize = 16;

/// A request's failure, before it is known what it was for.
pub(crate) struct Refused {
    source: io::Error,
    detail: Option<String>,
}

impl Refused {
    /// `what`: operation and object.
    pub(crate) fn when(self, what: impl Into<String>) -> Error {
        Error::Netlink { what: what.into(), cause: self.source, detail: self.detail }
    }
}

impl From<io::Error> for Refused {
    fn from(source: io::Error) -> Self {
        Self { source, detail: None }
    }
}

/// A socket to rtnetlink of one network namespace.
pub(crate) struct Rtnl {
    socket: Socket,
    sequence: u32,
}

impl Rtnl {
    /// Opens one for the calling thread's network namespace.
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.set_ext_ack(true)?;
        socket.set_cap_ack(true)?;
        rustix::net::sockopt::set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Recv, Some(ANSWER))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Makes a veth pair: `end` in this socket's namespace, `peer` in that of `peer_net`.
    pub(crate) fn add_link(
        &mut self,
        end: &End,
        peer: &End,
        peer_net: BorrowedFd<'_>,
        spec: &LinkSpec,
    ) -> Result<(), Refused> {
        let side = |end: &End| {
            let mut message = LinkMessage::default();
            message.header.index = end.ifindex;
            message.attributes = vec![
                LinkAttribute::IfName(end.interface.clone()),
                LinkAttribute::Address(end.mac.0.to_vec()),
                LinkAttribute::Mtu(spec.mtu),
                LinkAttribute::NumTxQueues(spec.queues),
                LinkAttribute::NumRxQueues(spec.queues),
            ];
            message
        };
        let mut other = side(peer);
        other.attributes.push(LinkAttribute::NetNsFd(peer_net.as_raw_fd()));
        let mut message = side(end);
        message.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(other))),
        ]));
        self.ask(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Removes a link; its peer goes with it. One that is gone already is no error.
    pub(crate) fn delete_link(&mut self, ifindex: u32) -> Result<(), Refused> {
        let mut message = LinkMessage::default();
        message.header.index = ifindex;
        match self.ask(RouteNetlinkMessage::DelLink(message), 0) {
            Err(refused) if refused.source.raw_os_error() == Some(libc::ENODEV) => Ok(()),
            other => other,
        }
    }

    /// Prepares a link that is still down for its addresses, so that they do not make it talk.
    ///
    /// An IPv6 address joins a multicast group for neighbour discovery when the kernel's worker takes it up, and the
    /// group is reported on the link for some seconds; unless the link has no ARP at that moment
    /// (`addrconf_join_solict`). Nobody here needs to be discovered.
    pub(crate) fn set_silent(&mut self, ifindex: u32) -> Result<(), Refused> {
        self.set_flags(ifindex, LinkFlags::Noarp, LinkFlags::Noarp | LinkFlags::Multicast)
    }

    /// Sets a link up, with ARP. In two steps: a link that gets its ARP back while it is up, or as it comes up, starts
    /// all its addresses anew (`addrconf_dad_run`).
    pub(crate) fn set_up(&mut self, ifindex: u32) -> Result<(), Refused> {
        self.set_flags(ifindex, LinkFlags::empty(), LinkFlags::Noarp)?;
        self.set_flags(ifindex, LinkFlags::Up, LinkFlags::Up)
    }

    /// Attaches an XDP program in the driver, for as long as the link exists. Refused if one is attached.
    pub(crate) fn set_xdp(&mut self, ifindex: u32, program: BorrowedFd<'_>) -> Result<(), Refused> {
        const UPDATE_IF_NOEXIST: u32 = 1 << 0;
        const DRV_MODE: u32 = 1 << 2;
        let mut message = LinkMessage::default();
        message.header.index = ifindex;
        message.attributes.push(LinkAttribute::Xdp(vec![
            LinkXdp::Fd(program.as_raw_fd()),
            LinkXdp::Flags(UPDATE_IF_NOEXIST | DRV_MODE),
        ]));
        self.ask(RouteNetlinkMessage::SetLink(message), 0)
    }

    fn set_flags(&mut self, ifindex: u32, flags: LinkFlags, of: LinkFlags) -> Result<(), Refused> {
        let mut message = LinkMessage::default();
        message.header.index = ifindex;
        message.header.flags = flags;
        message.header.change_mask = of;
        self.ask(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Adds an address without asking the link whether somebody has it.
    pub(crate) fn add_address(&mut self, ifindex: u32, ip: IpAddr, prefix: u8) -> Result<(), Refused> {
        let mut message = AddressMessage::default();
        message.header.family = family(ip);
        message.header.prefix_len = prefix;
        message.header.scope = AddressScope::Universe;
        message.header.index = ifindex;
        message.attributes = vec![
            AddressAttribute::Local(ip),
            AddressAttribute::Address(ip),
            AddressAttribute::Flags(AddressFlags::Nodad),
        ];
        self.ask(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Writes down for good which link-layer address an IP address has.
    pub(crate) fn add_neighbour(&mut self, ifindex: u32, ip: IpAddr, mac: MacAddress) -> Result<(), Refused> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(ip);
        message.header.ifindex = ifindex;
        message.header.state = NeighbourState::Permanent;
        let address = match ip {
            IpAddr::V4(ip) => NeighbourAddress::Inet(ip),
            IpAddr::V6(ip) => NeighbourAddress::Inet6(ip),
        };
        message.attributes = vec![
            NeighbourAttribute::Destination(address),
            NeighbourAttribute::LinkLayerAddress(mac.0.to_vec()),
        ];
        self.ask(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Is a link up, with carrier, and past the moment from which on the kernel lets frames out?
    pub(crate) fn is_up(&mut self, ifindex: u32) -> Result<bool, Refused> {
        let mut message = LinkMessage::default();
        message.header.index = ifindex;
        let answers = self.exchange(RouteNetlinkMessage::GetLink(message), 0)?;
        let link = answers.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(link) => Some(link),
            _ => None,
        });
        let link = link.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
        let carrier = link.header.flags.contains(LinkFlags::Up | LinkFlags::LowerUp);
        // The state turns up only after the carrier has been noticed; the queueing discipline is "noop", which drops
        // every frame, until the interface is activated.
        let up = link.attributes.contains(&LinkAttribute::OperState(State::Up));
        let drops = link
            .attributes
            .iter()
            .any(|attribute| matches!(attribute, LinkAttribute::Qdisc(name) if name == "noop"));
        Ok(carrier && up && !drops)
    }

    /// Does the kernel take packets to this address of its own by now? An IPv6 address is listed at once, but its route
    /// is made a moment later by a worker of the kernel's.
    pub(crate) fn is_local(&mut self, ip: IpAddr) -> Result<bool, Refused> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(ip);
        message.header.destination_prefix_length = if ip.is_ipv4() { 32 } else { 128 };
        message.attributes = vec![RouteAttribute::Destination(match ip {
            IpAddr::V4(ip) => RouteAddress::Inet(ip),
            IpAddr::V6(ip) => RouteAddress::Inet6(ip),
        })];
        let answers = match self.exchange(RouteNetlinkMessage::GetRoute(message), 0) {
            Err(refused) if refused.source.raw_os_error() == Some(libc::ENETUNREACH) => return Ok(false),
            answers => answers?,
        };
        Ok(answers.iter().any(
            |answer| matches!(answer, RouteNetlinkMessage::NewRoute(route) if route.header.kind == RouteType::Local),
        ))
    }

    fn ask(&mut self, message: RouteNetlinkMessage, flags: u16) -> Result<(), Refused> {
        self.exchange(message, flags).map(|_answers| ())
    }

    /// Sends a request and takes answers up to its acknowledgement.
    fn exchange(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<Vec<RouteNetlinkMessage>, Refused> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::from(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let mut answers = Vec::new();
        loop {
            let (datagram, _kernel) = self.socket.recv_from_full()?;
            if let Some(end) = self.take(&datagram, &mut answers)? {
                return end.map(|()| answers);
            }
        }
    }

    /// Reads one datagram of answers; gives the request's end when it is among them.
    fn take(
        &self,
        datagram: &[u8],
        answers: &mut Vec<RouteNetlinkMessage>,
    ) -> Result<Option<Result<(), Refused>>, Refused> {
        let mut rest = datagram;
        while !rest.is_empty() {
            let answer =
                NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(io::Error::other)?;
            let length = answer.header.length as usize;
            // An answer to a request whose wait ran out: not ours any more.
            let ours = answer.header.sequence_number == self.sequence;
            match answer.payload {
                NetlinkPayload::Error(error) if ours => {
                    return Ok(Some(match error.code {
                        None => Ok(()),
                        Some(_) => Err(Refused { source: error.to_io(), detail: sentence(&error.header) }),
                    }));
                }
                NetlinkPayload::InnerMessage(inner) if ours => answers.push(inner),
                _ => {}
            }
            // Messages are aligned to four bytes.
            rest = rest.get(length.next_multiple_of(4).max(HEADER)..).unwrap_or_default();
        }
        Ok(None)
    }
}

/// The kernel's sentence in what follows the repeated header of a refused request.
fn sentence(error: &[u8]) -> Option<String> {
    NlasIterator::new(error.get(HEADER..)?)
        .map_while(Result::ok)
        .find(|attribute: &NlaBuffer<&[u8]>| attribute.kind() == EXTENDED_ACK_MESSAGE)
        .map(|attribute| String::from_utf8_lossy(attribute.value()).trim_end_matches('\0').to_owned())
}

fn family(ip: IpAddr) -> AddressFamily {
    if ip.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}
