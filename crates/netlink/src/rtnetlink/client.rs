//! Requests to rtnetlink of one network namespace.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::{Address, Link, Neighbour, Qdisc, Route, list, qdisc};
use crate::error::Error;
use crate::message::flag;
use crate::numbers::*;
use crate::socket::{Protocol, Socket};

/// `XDP_FLAGS_*` of linux/if_link.h, for [`Rtnetlink::attach_xdp`] and [`Rtnetlink::detach_xdp`].
pub mod xdp {
    /// `XDP_FLAGS_UPDATE_IF_NOEXIST`: refused if a program is attached.
    pub const UPDATE_IF_NOEXIST: u32 = 1 << 0;
    /// `XDP_FLAGS_SKB_MODE`: in the kernel's generic hook.
    pub const SKB_MODE: u32 = 1 << 1;
    /// `XDP_FLAGS_DRV_MODE`: in the driver.
    pub const DRV_MODE: u32 = 1 << 2;
}

/// One end of a veth pair to create.
#[derive(Debug, Clone, Copy)]
pub struct VethEnd<'a> {
    /// The interface's index in its namespace.
    pub index: u32,
    /// Its name.
    pub name: &'a str,
    /// Its MAC address.
    pub address: [u8; 6],
    /// Largest packet, bytes.
    pub mtu: u32,
    /// Receive queues, and transmit queues.
    pub queues: u32,
}

impl VethEnd<'_> {
    fn link(&self) -> Link {
        Link {
            index: self.index,
            name: Some(self.name.to_owned()),
            address: Some(self.address.to_vec()),
            mtu: Some(self.mtu),
            tx_queues: Some(self.queues),
            rx_queues: Some(self.queues),
            ..Link::default()
        }
    }
}

/// A socket to rtnetlink. It belongs to the network namespace its thread was in when it was opened, whichever thread
/// uses it later.
#[derive(Debug)]
pub struct Rtnetlink {
    socket: Socket,
}

impl Rtnetlink {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// As [`Socket::open`].
    pub fn open() -> Result<Self, Error> {
        Ok(Self::over(Socket::open(Protocol::Route)?))
    }

    /// Over an open socket of the protocol.
    #[must_use]
    pub const fn over(socket: Socket) -> Self {
        Self { socket }
    }

    /// All links, with statistics and without virtual functions.
    ///
    /// # Errors
    /// As [`Socket::dump`].
    pub fn links(&mut self) -> Result<Vec<Link>, Error> {
        let answers = self.socket.dump(RTM_GETLINK, &Link::default().body())?;
        Ok(answers.bodies().filter_map(Link::parse).collect())
    }

    /// The link with this index.
    ///
    /// # Errors
    /// `ENODEV` if there is none.
    pub fn link(&mut self, index: u32) -> Result<Link, Error> {
        let ask = Link { index, ..Link::default() };
        let answers = self.socket.request(RTM_GETLINK, &ask.body())?;
        answers.bodies().find_map(Link::parse).ok_or_else(|| Error::errno(libc::ENODEV))
    }

    /// Creates a veth pair: `end` in the socket's namespace, `peer` in `peer_net`.
    ///
    /// # Errors
    /// The kernel's refusal, such as `EEXIST` for a name or index that is taken.
    pub fn add_veth(
        &mut self,
        end: &VethEnd<'_>,
        peer: &VethEnd<'_>,
        peer_net: BorrowedFd<'_>,
    ) -> Result<(), Error> {
        let mut other = peer.link().writer(0);
        other.u32(IFLA_NET_NS_FD, peer_net.as_raw_fd().cast_unsigned());
        let mut body = end.link().writer(0);
        body.nest(IFLA_LINKINFO, |info| {
            info.text(IFLA_INFO_KIND, "veth").nest(IFLA_INFO_DATA, |data| {
                data.bytes(VETH_INFO_PEER, other.written());
            });
        });
        self.socket.change(RTM_NEWLINK, flag::CREATE | flag::EXCL, &body.finish())
    }

    /// Deletes a link; a veth's peer goes with it.
    ///
    /// # Errors
    /// `ENODEV` if there is none.
    pub fn delete_link(&mut self, index: u32) -> Result<(), Error> {
        let link = Link { index, ..Link::default() };
        self.socket.change(RTM_DELLINK, 0, &link.body())
    }

    /// Sets those flags of a link (see [`super::link::flags`]) that are in `mask`.
    ///
    /// # Errors
    /// The refusal of the kernel or driver.
    pub fn set_link_flags(&mut self, index: u32, flags: u32, mask: u32) -> Result<(), Error> {
        let link = Link { index, flags, ..Link::default() };
        self.socket.change(RTM_SETLINK, 0, &link.writer(mask).finish())
    }

    /// Attaches an XDP program to a link for as long as the link exists. `flags`: see [`xdp`].
    ///
    /// # Errors
    /// `EBUSY` if another program is attached, or the refusal of the driver.
    pub fn attach_xdp(&mut self, index: u32, program: BorrowedFd<'_>, flags: u32) -> Result<(), Error> {
        let mut body = Link { index, ..Link::default() }.writer(0);
        body.nest(IFLA_XDP, |xdp| {
            xdp.u32(IFLA_XDP_FD, program.as_raw_fd().cast_unsigned()).u32(IFLA_XDP_FLAGS, flags);
        });
        self.socket.change(RTM_SETLINK, 0, &body.finish())
    }

    /// Detaches the XDP program that was attached to a link in the mode of `flags` (see [`xdp`]), unless it belongs to
    /// a BPF link.
    ///
    /// # Errors
    /// `EBUSY` if a BPF link holds it, or the refusal of the driver.
    pub fn detach_xdp(&mut self, index: u32, flags: u32) -> Result<(), Error> {
        let mut body = Link { index, ..Link::default() }.writer(0);
        body.nest(IFLA_XDP, |xdp| {
            xdp.u32(IFLA_XDP_FD, u32::MAX).u32(IFLA_XDP_FLAGS, flags);
        });
        self.socket.change(RTM_SETLINK, 0, &body.finish())
    }

    /// Adds an address to its interface.
    ///
    /// # Errors
    /// `EEXIST` if the interface has it.
    pub fn add_address(&mut self, address: &Address) -> Result<(), Error> {
        self.socket.change(RTM_NEWADDR, flag::CREATE | flag::EXCL, &address.body())
    }

    /// Adds a neighbour, or replaces its entry.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn set_neighbour(&mut self, neighbour: &Neighbour) -> Result<(), Error> {
        self.socket.change(RTM_NEWNEIGH, flag::CREATE | flag::REPLACE, &neighbour.body())
    }

    /// All entries of neighbours.
    ///
    /// # Errors
    /// As [`Socket::dump`].
    pub fn neighbours(&mut self) -> Result<Vec<Neighbour>, Error> {
        let (kind, body) = list::neighbours();
        self.socket.dump_each(kind, &body, Neighbour::parse)
    }

    /// The entry of a neighbour; `None` if there is none.
    ///
    /// # Errors
    /// `EOPNOTSUPP` from kernels before 5.0, or `ENODEV`: no such interface.
    pub fn neighbour(&mut self, interface: u32, address: IpAddr) -> Result<Option<Neighbour>, Error> {
        match self.socket.request(RTM_GETNEIGH, &Neighbour::new(interface, address).body()) {
            Ok(answers) => Ok(answers.bodies().find_map(Neighbour::parse)),
            Err(error) if error.errno == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The route that a packet to this address takes.
    ///
    /// # Errors
    /// `ENETUNREACH` if there is none.
    pub fn route_to(&mut self, destination: IpAddr) -> Result<Route, Error> {
        let prefix_len = if destination.is_ipv4() { 32 } else { 128 };
        let ask = Route { table: 0, kind: 0, ..Route::new(destination, prefix_len) };
        let answers = self.socket.request(RTM_GETROUTE, &ask.body())?;
        let found = answers.bodies().find_map(Route::parse);
        found.ok_or_else(|| Error::other("the kernel returned no route"))
    }

    /// Number of policy routing rules of a family (`AF_INET`, `AF_INET6`).
    ///
    /// # Errors
    /// As [`Socket::dump`].
    pub fn count_rules(&mut self, family: u8) -> Result<usize, Error> {
        let (kind, body) = list::rules(family);
        Ok(self.socket.dump(kind, &body)?.bodies().count())
    }

    /// All queueing disciplines.
    ///
    /// # Errors
    /// As [`Socket::dump`].
    pub fn qdiscs(&mut self) -> Result<Vec<Qdisc>, Error> {
        let answers = self.socket.dump(RTM_GETQDISC, &[0; qdisc::FIXED])?;
        Ok(answers.bodies().filter_map(Qdisc::parse).collect())
    }

    /// Replaces the qdisc at an interface's root with one of this kind, without parameters; `None`: with the kernel's
    /// default.
    ///
    /// # Errors
    /// The kernel's refusal: no such interface, or it has no such kind.
    pub fn set_root_qdisc(&mut self, interface: u32, kind: Option<&str>) -> Result<(), Error> {
        let mut body = qdisc::at_root(interface);
        match kind {
            Some(kind) => {
                body.text(TCA_KIND, kind);
                self.socket.change(RTM_NEWQDISC, flag::CREATE | flag::REPLACE, &body.finish())
            }
            None => match self.socket.change(RTM_DELQDISC, 0, &body.finish()) {
                // It is already the default.
                Err(error) if error.errno == Some(libc::ENOENT) => Ok(()),
                done => done,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{link, route};
    use super::*;

    #[test]
    fn the_loopback_is_described() {
        let mut rtnetlink = Rtnetlink::open().unwrap();
        let loopback = rtnetlink.link(1).unwrap();
        assert_eq!((loopback.name.as_deref(), loopback.hardware), (Some("lo"), link::hardware::LOOPBACK));
        assert!(loopback.statistics.len() >= 23, "{loopback:?}");
        let listed = rtnetlink.links().unwrap();
        assert!(listed.iter().any(|link| (link.index, &link.name) == (1, &loopback.name)), "{listed:?}");
        assert_eq!(rtnetlink.link(u32::MAX >> 1).unwrap_err().errno, Some(libc::ENODEV));
    }

    #[test]
    fn an_address_that_was_never_used_has_no_entry() {
        let mut rtnetlink = Rtnetlink::open().unwrap();
        assert_eq!(rtnetlink.neighbour(1, [192, 0, 2, 77].into()), Ok(None));
        let error = rtnetlink.neighbour(u32::MAX >> 1, [192, 0, 2, 77].into()).unwrap_err();
        assert_eq!(error.errno, Some(libc::ENODEV), "{error}");
    }

    #[test]
    fn every_namespace_begins_with_rules_and_local_routes() {
        let mut rtnetlink = Rtnetlink::open().unwrap();
        // For the tables local, main and default.
        assert!(rtnetlink.count_rules(libc::AF_INET as u8).unwrap() >= 3);
        let own = rtnetlink.route_to([127, 0, 0, 1].into()).unwrap();
        assert_eq!(own.kind, route::kind::LOCAL);
    }
}
