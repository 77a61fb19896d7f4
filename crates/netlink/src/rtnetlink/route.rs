//! Routes.
//!
//! ```text
//! rtmsg      0 family  1 destination length  2 source length  3 tos  4 table  5 protocol  6 scope  7 type  8 flags (4)
//! rtnexthop  0 length (2)  2 flags  3 weight  4 interface (4)      each hop of several, then its attributes
//! ```

use std::net::IpAddr;

use super::{family, ip, octets, word};
use crate::attribute::{Attributes, Writer};
use crate::numbers::*;

/// Bytes of `struct rtmsg` and of `struct rtnexthop` of linux/rtnetlink.h.
const FIXED: usize = 12;
const NEXT_HOP: usize = 8;
/// `RTNH_F_DEAD`: the hop's interface is down.
const DEAD: u32 = 1;

/// `RTN_*` of linux/rtnetlink.h: [`Route::kind`].
pub mod kind {
    /// `RTN_UNICAST`: to a gateway or a host on the link.
    pub const UNICAST: u8 = 1;
    /// `RTN_LOCAL`: to this host.
    pub const LOCAL: u8 = 2;
    /// `RTN_BROADCAST`: to all hosts of a network.
    pub const BROADCAST: u8 = 3;
    /// `RTN_ANYCAST`: to this host as one of several.
    pub const ANYCAST: u8 = 4;
    /// `RTN_BLACKHOLE`: dropped silently.
    pub const BLACKHOLE: u8 = 6;
    /// `RTN_UNREACHABLE`: refused as unreachable.
    pub const UNREACHABLE: u8 = 7;
    /// `RTN_PROHIBIT`: refused as prohibited.
    pub const PROHIBIT: u8 = 8;
    /// `RTN_THROW`: the lookup continues in the next table.
    pub const THROW: u8 = 9;
}

/// `RT_TABLE_*` of linux/rtnetlink.h: [`Route::table`].
pub mod table {
    /// `RT_TABLE_MAIN`: ordinary routes.
    pub const MAIN: u32 = 254;
    /// `RT_TABLE_LOCAL`: this host's own addresses.
    pub const LOCAL: u32 = 255;
}

/// `RTM_F_CLONED`, in [`Route::flags`]: the kernel created it for a single peer.
pub const CLONED: u32 = 0x200;

/// A route. Fields missing from a message are `None` or empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Route {
    /// `AF_INET` or `AF_INET6`.
    pub family: u8,
    /// The destination's address; `None` for a default route.
    pub destination: Option<IpAddr>,
    /// Length of the destination's prefix, bits.
    pub prefix_len: u8,
    /// Length of the source's prefix, bits: other than 0, the route is only for some senders.
    pub source_len: u8,
    /// Type of service: other than 0, the route is only for this class.
    pub tos: u8,
    /// The [`table`] it is in.
    pub table: u32,
    /// Its [`kind`].
    pub kind: u8,
    /// `RTM_F_*` and `RTNH_F_*` of linux/rtnetlink.h.
    pub flags: u32,
    /// Lower is better.
    pub metric: Option<u32>,
    /// Address that packets are sent from, unless the sender chose one.
    pub preferred_source: Option<IpAddr>,
    /// Largest packet, bytes.
    pub mtu: Option<u32>,
    /// The next hops, in order; empty if the message names no interface.
    pub hops: Vec<Hop>,
}

/// One hop of a route.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hop {
    /// The interface's index.
    pub interface: u32,
    /// The gateway; `None` for hosts on the link.
    pub gateway: Option<IpAddr>,
    /// The interface is down.
    pub dead: bool,
    /// Packets are encapsulated (`RTA_ENCAP`), or the gateway has no IP address.
    pub beyond_ip: bool,
}

impl Route {
    /// A route of the main table, for requests and comparisons.
    #[must_use]
    pub fn new(destination: IpAddr, prefix_len: u8) -> Self {
        Self {
            family: family(destination),
            destination: Some(destination),
            prefix_len,
            table: table::MAIN,
            kind: kind::UNICAST,
            ..Self::default()
        }
    }

    /// Reads the body of a route message; `None` if it is malformed.
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Self> {
        let (fixed, rest) = body.split_at_checked(FIXED)?;
        let is = Attributes::new(rest);
        let own = fixed[0];
        let inet = matches!(i32::from(own), libc::AF_INET | libc::AF_INET6);
        let address = |kind| match is.bytes(kind).filter(|_| inet) {
            Some(bytes) => ip(own, bytes).map(Some),
            None => Some(None),
        };
        let flags = word(fixed, 8)?;
        let hops = match is.bytes(RTA_MULTIPATH) {
            Some(list) => hops(own, list),
            None => is.u32(RTA_OIF).map(|index| Hop::parse(own, is, index, flags)).into_iter().collect(),
        };
        Some(Self {
            family: own,
            destination: address(RTA_DST)?,
            prefix_len: fixed[1],
            source_len: fixed[2],
            tos: fixed[3],
            table: is.u32(RTA_TABLE).unwrap_or_else(|| fixed[4].into()),
            kind: fixed[7],
            flags,
            metric: is.u32(RTA_PRIORITY),
            preferred_source: address(RTA_PREFSRC)?,
            mtu: is.nested(RTA_METRICS).u32(RTAX_MTU).filter(|mtu| *mtu > 0),
            hops,
        })
    }

    /// The body of a message about this route.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        let mut fixed = [0; FIXED];
        let table = u8::try_from(self.table).unwrap_or(0);
        fixed[..8].copy_from_slice(&[
            self.family,
            self.prefix_len,
            self.source_len,
            self.tos,
            table,
            0,
            0,
            self.kind,
        ]);
        fixed[8..].copy_from_slice(&self.flags.to_ne_bytes());
        let mut body = Writer::after(&fixed);
        for (kind, address) in [(RTA_DST, self.destination), (RTA_PREFSRC, self.preferred_source)] {
            if let Some(address) = address {
                body.bytes(kind, &octets(address));
            }
        }
        if u32::from(table) != self.table {
            body.u32(RTA_TABLE, self.table);
        }
        if let Some(metric) = self.metric {
            body.u32(RTA_PRIORITY, metric);
        }
        if let Some(mtu) = self.mtu {
            body.nest(RTA_METRICS, |metrics| {
                metrics.u32(RTAX_MTU, mtu);
            });
        }
        match self.hops.as_slice() {
            [] => {}
            [hop] if hop.dead == (self.flags & DEAD != 0) => {
                body.u32(RTA_OIF, hop.interface);
                hop.write(self.family, &mut body);
            }
            several => {
                let list: Vec<u8> = several.iter().flat_map(|hop| hop.next_hop(self.family)).collect();
                body.bytes(RTA_MULTIPATH, &list);
            }
        }
        body.finish()
    }
}

impl Hop {
    fn parse(own: u8, is: Attributes<'_>, interface: u32, flags: u32) -> Self {
        let mut gateway = is.bytes(RTA_GATEWAY).and_then(|bytes| ip(own, bytes));
        let mut beyond_ip = is.has(RTA_ENCAP) || is.has(RTA_ENCAP_TYPE);
        // The gateway of another family: family (2), address.
        if let Some((family, address)) = is.bytes(RTA_VIA).and_then(<[u8]>::split_first_chunk) {
            let family = u8::try_from(u16::from_ne_bytes(*family)).unwrap_or(0);
            match ip(family, address) {
                Some(address) => gateway = Some(address),
                None => beyond_ip = true,
            }
        }
        Self { interface, gateway, dead: flags & DEAD != 0, beyond_ip }
    }

    fn write(&self, own: u8, body: &mut Writer) {
        match self.gateway {
            Some(gateway) if family(gateway) == own => {
                body.bytes(RTA_GATEWAY, &octets(gateway));
            }
            Some(gateway) => {
                let via = [&u16::from(family(gateway)).to_ne_bytes()[..], &octets(gateway)].concat();
                body.bytes(RTA_VIA, &via);
            }
            None => {}
        }
        if self.beyond_ip {
            // LWTUNNEL_ENCAP_MPLS.
            body.bytes(RTA_ENCAP_TYPE, &1_u16.to_ne_bytes());
        }
    }

    /// `struct rtnexthop` and its attributes.
    fn next_hop(&self, own: u8) -> Vec<u8> {
        let mut attributes = Writer::default();
        self.write(own, &mut attributes);
        let attributes = attributes.finish();
        let length = u16::try_from(NEXT_HOP + attributes.len()).unwrap_or(0);
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend([u8::from(self.dead), 0]);
        bytes.extend(self.interface.to_ne_bytes());
        bytes.extend(attributes);
        bytes
    }
}

/// The hops of `RTA_MULTIPATH`, up to the first that is malformed.
fn hops(own: u8, list: &[u8]) -> Vec<Hop> {
    let mut rest = list;
    let next = || {
        let length = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
        let (fixed, attributes) = rest.get(..length)?.split_at_checked(NEXT_HOP)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Hop::parse(own, Attributes::new(attributes), word(fixed, 4)?, fixed[2].into()))
    };
    std::iter::from_fn(next).collect()
}

#[cfg(test)]
mod tests {
    use proptest::option;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_gateway_of_another_family_is_one() {
        // `ip route add 10.0.0.0/8 via inet6 fe80::1 dev 3`
        let gateway = Some("fe80::1".parse().unwrap());
        let hop = Hop { interface: 3, gateway, ..Hop::default() };
        let route = Route { hops: vec![hop], ..Route::new([10, 0, 0, 0].into(), 8) };
        let mut body = Writer::after(&route.body());
        assert_eq!(Route::parse(body.written()), Some(route.clone()));
        // MPLS: the gateway is a label.
        body = Writer::after(&Route { hops: vec![], ..route }.body());
        body.u32(RTA_OIF, 3).bytes(RTA_VIA, &[28, 0, 1, 2, 3, 4]);
        let read = Route::parse(&body.finish()).unwrap();
        assert_eq!(read.hops, [Hop { interface: 3, beyond_ip: true, ..Hop::default() }]);
    }

    fn address(v6: bool) -> impl Strategy<Value = IpAddr> {
        any::<[u8; 16]>().prop_map(move |octets| {
            if v6 { octets.into() } else { IpAddr::from([octets[0], octets[1], octets[2], octets[3]]) }
        })
    }

    fn hop() -> impl Strategy<Value = Hop> {
        let gateway = option::of(any::<bool>().prop_flat_map(address));
        (any::<u32>(), gateway, any::<bool>(), any::<bool>())
            .prop_map(|(interface, gateway, dead, beyond_ip)| Hop { interface, gateway, dead, beyond_ip })
    }

    prop_compose! {
        fn route()(v6 in any::<bool>())(
            destination in option::of(address(v6)),
            preferred_source in option::of(address(v6)),
            family in Just(if v6 { 10_u8 } else { 2 }),
            (prefix_len, source_len, tos, kind) in any::<(u8, u8, u8, u8)>(),
            (table, flags, metric) in any::<(u32, u32, Option<u32>)>(),
            mtu in option::of(1_u32..),
            hops in prop::collection::vec(hop(), 0..4),
        ) -> Route {
            Route {
                family, destination, prefix_len, source_len, tos, table, kind, flags, metric, preferred_source,
                mtu, hops,
            }
        }
    }

    proptest! {
        #[test]
        fn a_route_is_read_as_written(route in route()) {
            prop_assert_eq!(Route::parse(&route.body()), Some(route));
        }

        #[test]
        fn no_message_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (Route::parse(&bytes), hops(2, &bytes));
        }
    }
}
