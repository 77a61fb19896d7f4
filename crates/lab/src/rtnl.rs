//! The rtnetlink requests of a lab. One socket per machine, opened inside its network namespace; it belongs to that
//! namespace whichever thread uses it.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use udpath_netlink::rtnetlink::{Address, Neighbour, VethEnd, address, link, neighbour, route, xdp};
use udpath_netlink::{Error, Rtnetlink};

use crate::{End, LinkSpec, MacAddress};

/// An rtnetlink socket of one machine.
pub(crate) struct Rtnl {
    socket: Rtnetlink,
}

impl Rtnl {
    /// Opens a socket for the calling thread's network namespace.
    pub(crate) fn open() -> Result<Self, Error> {
        Ok(Self { socket: Rtnetlink::open()? })
    }

    /// Creates a veth pair: `end` in this socket's namespace, `peer` in that of `peer_net`.
    pub(crate) fn add_link(
        &mut self,
        end: &End,
        peer: &End,
        peer_net: BorrowedFd<'_>,
        spec: &LinkSpec,
    ) -> Result<(), Error> {
        let [end, peer] = [end, peer].map(|end| VethEnd {
            index: end.ifindex,
            name: &end.interface,
            address: end.mac.0,
            mtu: spec.mtu,
            queues: spec.queues,
        });
        self.socket.add_veth(&end, &peer, peer_net)
    }

    /// Deletes a link and its peer. It may already be gone.
    pub(crate) fn delete_link(&mut self, ifindex: u32) -> Result<(), Error> {
        match self.socket.delete_link(ifindex) {
            Err(error) if error.errno == Some(libc::ENODEV) => Ok(()),
            done => done,
        }
    }

    /// Prepares a link that is still down for its addresses, so that they do not cause it to send.
    ///
    /// An IPv6 address joins a multicast group for neighbour discovery when a kernel worker activates it, and the group
    /// is reported on the link for some seconds, unless the link has no ARP at that moment (`addrconf_join_solict`).
    /// Labs do not need discovery.
    pub(crate) fn set_silent(&mut self, ifindex: u32) -> Result<(), Error> {
        let mask = link::flags::NOARP | link::flags::MULTICAST;
        self.socket.set_link_flags(ifindex, link::flags::NOARP, mask)
    }

    /// Sets a link up, with ARP, in two steps: enabling ARP on a link while it is up, or as it comes up, restarts all
    /// its addresses (`addrconf_dad_run`).
    pub(crate) fn set_up(&mut self, ifindex: u32) -> Result<(), Error> {
        self.socket.set_link_flags(ifindex, 0, link::flags::NOARP)?;
        self.socket.set_link_flags(ifindex, link::flags::UP, link::flags::UP)
    }

    /// Attaches an XDP program in the driver, for as long as the link exists. Fails if one is attached.
    pub(crate) fn set_xdp(&mut self, ifindex: u32, program: BorrowedFd<'_>) -> Result<(), Error> {
        self.socket.attach_xdp(ifindex, program, xdp::UPDATE_IF_NOEXIST | xdp::DRV_MODE)
    }

    /// Adds an address without duplicate address detection.
    pub(crate) fn add_address(&mut self, ifindex: u32, ip: IpAddr, prefix: u8) -> Result<(), Error> {
        let flags = address::flags::NODAD;
        self.socket.add_address(&Address { flags, ..Address::new(ifindex, ip, prefix) })
    }

    /// Sets the link-layer address of an IP address permanently.
    pub(crate) fn add_neighbour(&mut self, ifindex: u32, ip: IpAddr, mac: MacAddress) -> Result<(), Error> {
        let (state, address) = (neighbour::state::PERMANENT, Some(mac.0.to_vec()));
        self.socket.set_neighbour(&Neighbour { state, address, ..Neighbour::new(ifindex, ip) })
    }

    /// Whether a link is up, has a carrier, and the kernel lets frames out.
    pub(crate) fn is_up(&mut self, ifindex: u32) -> Result<bool, Error> {
        const CARRIER: u32 = link::flags::UP | link::flags::LOWER_UP;
        let link = self.socket.link(ifindex)?;
        // The operational state is set only after the carrier has been noticed; the queueing discipline is "noop",
        // which drops every frame, until the interface is activated.
        let up = link.operational_state == Some(link::OPERATIONAL_UP);
        Ok(link.flags & CARRIER == CARRIER && up && link.qdisc.as_deref() != Some("noop"))
    }

    /// Whether the kernel already accepts packets to this local address. An IPv6 address is listed at once, but a
    /// kernel worker creates its route a moment later.
    pub(crate) fn is_local(&mut self, ip: IpAddr) -> Result<bool, Error> {
        match self.socket.route_to(ip) {
            Ok(route) => Ok(route.kind == route::kind::LOCAL),
            Err(error) if error.errno == Some(libc::ENETUNREACH) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
