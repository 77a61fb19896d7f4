//! Links: network interfaces.
//!
//! ```text
//! ifinfomsg   0 family  2 hardware type (2)  4 index (4)  8 flags (4)  12 mask of flags to change (4)   then attributes
//! ```

use super::word;
use crate::attribute::{Attributes, Writer};
use crate::numbers::*;

/// Bytes of `struct ifinfomsg` of linux/rtnetlink.h.
const FIXED: usize = 16;
/// `XDP_ATTACHED_*` of linux/if_link.h: in which mode the only program runs.
const ATTACHED_DRIVER: u64 = 1;
const ATTACHED_GENERIC: u64 = 2;
const ATTACHED_HARDWARE: u64 = 3;
const ATTACHED_SEVERAL: u8 = 4;

/// `ARPHRD_*` of linux/if_arp.h: [`Link::hardware`].
pub mod hardware {
    /// Ethernet.
    pub const ETHERNET: u16 = 1;
    /// The loopback.
    pub const LOOPBACK: u16 = 772;
}

/// `IFF_*` of linux/if.h: [`Link::flags`].
pub mod flags {
    /// `IFF_UP`: an administrator set it up.
    pub const UP: u32 = 1;
    /// `IFF_LOOPBACK`: it is the loopback.
    pub const LOOPBACK: u32 = 1 << 3;
    /// `IFF_POINTOPOINT`: it has one peer.
    pub const POINT_TO_POINT: u32 = 1 << 4;
    /// `IFF_RUNNING`: it can carry packets.
    pub const RUNNING: u32 = 1 << 6;
    /// `IFF_NOARP`: it does not resolve neighbours.
    pub const NOARP: u32 = 1 << 7;
    /// `IFF_MULTICAST`: it supports multicast.
    pub const MULTICAST: u32 = 1 << 12;
    /// `IFF_LOWER_UP`: it has a carrier.
    pub const LOWER_UP: u32 = 1 << 16;
}

/// `IF_OPER_UP` of linux/if.h: [`Link::operational_state`] of a link that passes packets.
pub const OPERATIONAL_UP: u8 = 6;

/// A network interface. Fields missing from a message are `None` or empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    /// `AF_UNSPEC`; `AF_BRIDGE` in messages about a bridge's port.
    pub family: u8,
    /// The kind of link layer: [`hardware`].
    pub hardware: u16,
    /// The interface's index.
    pub index: u32,
    /// Its [`flags`].
    pub flags: u32,
    /// Its name.
    pub name: Option<String>,
    /// The kind of virtual device: `vlan`, `veth`; `None` for hardware.
    pub kind: Option<String>,
    /// The link-layer address.
    pub address: Option<Vec<u8>>,
    /// The permanent link-layer address.
    pub permanent_address: Option<Vec<u8>>,
    /// Largest packet, bytes.
    pub mtu: Option<u32>,
    /// Length of the transmit queue, packets.
    pub tx_queue_len: Option<u32>,
    /// Transmit queues that the driver allocated.
    pub tx_queues: Option<u32>,
    /// Receive queues that the driver allocated.
    pub rx_queues: Option<u32>,
    /// Whether it has a carrier.
    pub carrier: Option<bool>,
    /// State by RFC 2863: [`OPERATIONAL_UP`].
    pub operational_state: Option<u8>,
    /// Kind of the root queueing discipline.
    pub qdisc: Option<String>,
    /// Index of the bridge or bond above.
    pub master: Option<u32>,
    /// Index of the interface below, or of the peer.
    pub link: Option<u32>,
    /// Namespace of [`link`](Self::link), if it is a different one.
    pub link_namespace: Option<i32>,
    /// Settings of a VLAN device.
    pub vlan: Option<Vlan>,
    /// XDP programs attached.
    pub xdp: Option<Xdp>,
    /// `struct rtnl_link_stats64`: counters in the order of linux/if_link.h. Older kernels have fewer.
    pub statistics: Vec<u64>,
}

/// Settings of a VLAN device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vlan {
    /// The VLAN ID.
    pub id: Option<u16>,
    /// The tag's EtherType: 0x8100, or 0x88a8 for service tags.
    pub protocol: Option<u16>,
    /// Priority of a packet, and the priority in its tag.
    pub egress_priorities: Vec<(u32, u32)>,
}

/// XDP programs by the mode they run in, by program id.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Xdp {
    /// In the driver.
    pub driver: Option<u32>,
    /// In the kernel's generic hook.
    pub generic: Option<u32>,
    /// On the device.
    pub hardware: Option<u32>,
}

impl Link {
    /// Reads the body of a link message; `None` if it is malformed.
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Self> {
        let (fixed, rest) = body.split_at_checked(FIXED)?;
        let is = Attributes::new(rest);
        let info = is.nested(IFLA_LINKINFO);
        let kind = info.text(IFLA_INFO_KIND);
        let bytes = |attribute| is.bytes(attribute).map(<[u8]>::to_vec);
        let statistics = is.bytes(IFLA_STATS64).unwrap_or_default().as_chunks().0;
        Some(Self {
            family: fixed[0],
            hardware: u16::from_ne_bytes([fixed[2], fixed[3]]),
            index: word(fixed, 4)?,
            flags: word(fixed, 8)?,
            name: is.text(IFLA_IFNAME),
            address: bytes(IFLA_ADDRESS),
            permanent_address: bytes(IFLA_PERM_ADDRESS),
            mtu: is.u32(IFLA_MTU),
            tx_queue_len: is.u32(IFLA_TXQLEN),
            tx_queues: is.u32(IFLA_NUM_TX_QUEUES),
            rx_queues: is.u32(IFLA_NUM_RX_QUEUES),
            carrier: is.number(IFLA_CARRIER).map(|carrier| carrier != 0),
            operational_state: is.number(IFLA_OPERSTATE).and_then(|state| u8::try_from(state).ok()),
            qdisc: is.text(IFLA_QDISC),
            master: is.u32(IFLA_MASTER),
            link: is.u32(IFLA_LINK),
            link_namespace: is.u32(IFLA_LINK_NETNSID).map(u32::cast_signed),
            vlan: (kind.as_deref() == Some("vlan")).then(|| Vlan::parse(info.nested(IFLA_INFO_DATA))),
            kind,
            xdp: Xdp::parse(is.nested(IFLA_XDP)),
            statistics: statistics.iter().map(|count| u64::from_ne_bytes(*count)).collect(),
        })
    }

    /// The body of a message about this link.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        self.writer(0).finish()
    }

    /// As [`body`](Self::body), for requests that change the flags in `mask`, and for further attributes.
    pub(super) fn writer(&self, mask: u32) -> Writer {
        let mut fixed = [0; FIXED];
        fixed[0] = self.family;
        fixed[2..4].copy_from_slice(&self.hardware.to_ne_bytes());
        fixed[4..8].copy_from_slice(&self.index.to_ne_bytes());
        fixed[8..12].copy_from_slice(&self.flags.to_ne_bytes());
        fixed[12..16].copy_from_slice(&mask.to_ne_bytes());
        let mut body = Writer::after(&fixed);
        for (attribute, text) in [(IFLA_IFNAME, &self.name), (IFLA_QDISC, &self.qdisc)] {
            if let Some(text) = text {
                body.text(attribute, text);
            }
        }
        for (attribute, bytes) in
            [(IFLA_ADDRESS, &self.address), (IFLA_PERM_ADDRESS, &self.permanent_address)]
        {
            if let Some(bytes) = bytes {
                body.bytes(attribute, bytes);
            }
        }
        let numbers = [
            (IFLA_MTU, self.mtu),
            (IFLA_TXQLEN, self.tx_queue_len),
            (IFLA_NUM_TX_QUEUES, self.tx_queues),
            (IFLA_NUM_RX_QUEUES, self.rx_queues),
            (IFLA_MASTER, self.master),
            (IFLA_LINK, self.link),
            (IFLA_LINK_NETNSID, self.link_namespace.map(i32::cast_unsigned)),
        ];
        for (attribute, number) in numbers {
            if let Some(number) = number {
                body.u32(attribute, number);
            }
        }
        for (attribute, byte) in
            [(IFLA_CARRIER, self.carrier.map(u8::from)), (IFLA_OPERSTATE, self.operational_state)]
        {
            if let Some(byte) = byte {
                body.u8(attribute, byte);
            }
        }
        if let Some(kind) = &self.kind {
            body.nest(IFLA_LINKINFO, |info| {
                info.text(IFLA_INFO_KIND, kind);
                if let Some(vlan) = &self.vlan {
                    info.nest(IFLA_INFO_DATA, |data| vlan.write(data));
                }
            });
        }
        if let Some(xdp) = &self.xdp {
            body.nest(IFLA_XDP, |nest| xdp.write(nest));
        }
        if !self.statistics.is_empty() {
            let bytes: Vec<u8> = self.statistics.iter().flat_map(|count| count.to_ne_bytes()).collect();
            body.bytes(IFLA_STATS64, &bytes);
        }
        body
    }
}

impl Vlan {
    fn parse(is: Attributes<'_>) -> Self {
        let mappings = is.nested(IFLA_VLAN_EGRESS_QOS);
        let mappings = mappings.iter().filter(|(kind, _)| *kind == IFLA_VLAN_QOS_MAPPING);
        Self {
            id: is.number(IFLA_VLAN_ID).and_then(|id| u16::try_from(id).ok()),
            protocol: is
                .bytes(IFLA_VLAN_PROTOCOL)
                .and_then(|bytes| bytes.try_into().ok())
                .map(u16::from_be_bytes),
            egress_priorities: mappings
                .filter_map(|(_, mapping)| Some((word(mapping, 0)?, word(mapping, 4)?)))
                .collect(),
        }
    }

    fn write(&self, data: &mut Writer) {
        if let Some(id) = self.id {
            data.bytes(IFLA_VLAN_ID, &id.to_ne_bytes());
        }
        if let Some(protocol) = self.protocol {
            data.bytes(IFLA_VLAN_PROTOCOL, &protocol.to_be_bytes());
        }
        if !self.egress_priorities.is_empty() {
            data.nest(IFLA_VLAN_EGRESS_QOS, |list| {
                for (from, to) in &self.egress_priorities {
                    list.bytes(IFLA_VLAN_QOS_MAPPING, &[*from, *to].map(u32::to_ne_bytes).concat());
                }
            });
        }
    }
}

impl Xdp {
    /// The kernel lists programs by mode; before Linux 5.3 it names only one and its mode.
    fn parse(is: Attributes<'_>) -> Option<Self> {
        let attached = is.number(IFLA_XDP_ATTACHED)?;
        let only = is.u32(IFLA_XDP_PROG_ID);
        let by_mode = |kind, mode| is.u32(kind).or(if attached == mode { only } else { None });
        let xdp = Self {
            driver: by_mode(IFLA_XDP_DRV_PROG_ID, ATTACHED_DRIVER),
            generic: by_mode(IFLA_XDP_SKB_PROG_ID, ATTACHED_GENERIC),
            hardware: by_mode(IFLA_XDP_HW_PROG_ID, ATTACHED_HARDWARE),
        };
        (xdp != Self::default()).then_some(xdp)
    }

    fn write(&self, nest: &mut Writer) {
        nest.u8(IFLA_XDP_ATTACHED, ATTACHED_SEVERAL);
        let modes = [
            (IFLA_XDP_DRV_PROG_ID, self.driver),
            (IFLA_XDP_SKB_PROG_ID, self.generic),
            (IFLA_XDP_HW_PROG_ID, self.hardware),
        ];
        for (attribute, program) in modes {
            if let Some(program) = program {
                nest.u32(attribute, program);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::option;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_program_in_its_mode_is_read_as_older_kernels_report_it() {
        let mut body = Writer::after(&[0; FIXED]);
        body.nest(IFLA_XDP, |xdp| {
            xdp.u8(IFLA_XDP_ATTACHED, 2).u32(IFLA_XDP_PROG_ID, 99);
        });
        let link = Link::parse(&body.finish()).unwrap();
        assert_eq!(link.xdp, Some(Xdp { generic: Some(99), ..Xdp::default() }));
        assert_eq!(Link::parse(&[0; FIXED - 1]), None, "less than its fixed part");
    }

    fn text() -> impl Strategy<Value = String> {
        "[a-z][a-z0-9.]{0,14}"
    }

    fn vlan() -> impl Strategy<Value = Vlan> {
        (option::of(any::<u16>()), option::of(any::<u16>()), prop::collection::vec(any::<(u32, u32)>(), 0..3))
            .prop_map(|(id, protocol, egress_priorities)| Vlan { id, protocol, egress_priorities })
    }

    fn xdp() -> impl Strategy<Value = Option<Xdp>> {
        any::<[Option<u32>; 3]>().prop_map(|[driver, generic, hardware]| {
            let xdp = Xdp { driver, generic, hardware };
            (xdp != Xdp::default()).then_some(xdp)
        })
    }

    prop_compose! {
        fn link()(
            (family, hardware, index, flags, operational_state) in any::<(u8, u16, u32, u32, Option<u8>)>(),
            (name, qdisc, kind) in (option::of(text()), option::of(text()), option::of(text())),
            [mtu, tx_queue_len, tx_queues, rx_queues, master, link] in any::<[Option<u32>; 6]>(),
            (link_namespace, carrier) in any::<(Option<i32>, Option<bool>)>(),
            address in option::of(prop::collection::vec(any::<u8>(), 0..32)),
            permanent_address in option::of(prop::collection::vec(any::<u8>(), 0..32)),
            (vlan, xdp) in (option::of(vlan()), xdp()),
            statistics in prop::collection::vec(any::<u64>(), 0..25),
        ) -> Link {
            let kind = if vlan.is_some() { Some("vlan".to_owned()) } else { kind.filter(|kind| kind != "vlan") };
            Link {
                family, hardware, index, flags, name, kind, address, permanent_address, mtu, tx_queue_len,
                tx_queues, rx_queues, carrier, operational_state, qdisc, master, link, link_namespace, vlan, xdp,
                statistics,
            }
        }
    }

    proptest! {
        #[test]
        fn a_link_is_read_as_written(link in link()) {
            prop_assert_eq!(Link::parse(&link.body()), Some(link));
        }

        #[test]
        fn no_message_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Link::parse(&bytes);
        }
    }
}
