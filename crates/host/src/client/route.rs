//! rtnetlink: interfaces and queueing disciplines, by index (`ifindex`) as in the kernel.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use udpath_netlink::rtnetlink::link::{flags, hardware};
use udpath_netlink::rtnetlink::neighbour::state;
use udpath_netlink::rtnetlink::qdisc::{INGRESS, ROOT};
use udpath_netlink::{Error, Rtnetlink, rtnetlink};

use super::netdev::Counters;
use crate::neighbours::NeighbourEntries;

/// An interface as `RTM_GETLINK` shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// `veth`, `bond`, `vlan`, `bridge`, ...; `None` for hardware and the loopback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Whether it is the loopback interface.
    #[serde(default)]
    pub loopback: bool,
    /// Whether it is administratively up.
    #[serde(default)]
    pub up: bool,
    /// Whether it has a carrier. `None`: not reported (it is down).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carrier: Option<bool>,
    /// MTU in bytes.
    #[serde(default)]
    pub mtu: u32,
    /// Transmit queue length in packets (`txqueuelen`).
    #[serde(default)]
    pub tx_queue_len: u32,
    /// Link-layer address: `02:00:00:00:00:01`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The hardware's permanent address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permanent_address: Option<String>,
    /// The interface it is enslaved to: for a bond member the bond, for a bridge port the bridge, for a virtual
    /// function the synthetic device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<u32>,
    /// The interface below (for a VLAN), or the peer (for a veth).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<u32>,
    /// This namespace's ID for the namespace of `link`; `None`: the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_namespace: Option<i32>,
    /// VLAN id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// XDP programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xdp: Option<Xdp>,
    /// The kernel's counters, by their sysfs file names. Empty: not reported here.
    #[serde(default, skip_serializing_if = "Counters::is_empty")]
    pub statistics: Counters,
}

/// XDP programs of an interface, by attach mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Xdp {
    /// Program in the driver, before a socket buffer exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<u32>,
    /// Program on socket buffers (generic mode, slow).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generic: Option<u32>,
    /// Program in the hardware.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<u32>,
}

/// A queueing discipline as `RTM_GETQDISC` shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Qdisc {
    /// The interface's index.
    pub interface: u32,
    /// `mq`, `fq_codel`, `noqueue`, ...
    pub kind: String,
    /// Its handle as tc writes it: `8001:`, `0:`.
    pub handle: String,
    /// Its parent: `root`, `ingress`, `8001:1`.
    pub parent: String,
    /// Bytes sent.
    #[serde(default)]
    pub bytes: u64,
    /// Packets sent.
    #[serde(default)]
    pub packets: u64,
    /// Packets waiting.
    #[serde(default)]
    pub queued: u32,
    /// Bytes waiting.
    #[serde(default)]
    pub backlog: u32,
    /// Packets dropped. 32 bits wide: wraps.
    #[serde(default)]
    pub drops: u32,
    /// Times its limit was reached. 32 bits wide: wraps.
    #[serde(default)]
    pub overlimits: u32,
    /// Packets requeued because the device did not accept them. 32 bits wide: wraps.
    #[serde(default)]
    pub requeues: u32,
}

/// Counts the neighbours, of both families. The kernel lists those that need no resolution (`NUD_NOARP`) as well:
/// multicast addresses, and all on a tunnel.
pub(super) fn neighbours(route: &mut Rtnetlink) -> Result<NeighbourEntries, Error> {
    let mut counted = NeighbourEntries::default();
    for entry in route.neighbours()?.iter().filter(|entry| entry.destination.is_some()) {
        match entry.state {
            of if of & state::INCOMPLETE != 0 => counted.incomplete += 1,
            of if of & state::FAILED != 0 => counted.failed += 1,
            _ => counted.resolved += 1,
        }
    }
    Ok(counted)
}

/// `struct rtnl_link_stats64` of linux/if_link.h: 64-bit counters, by their sysfs file names. Older kernels have fewer;
/// counters without a file are omitted.
const STATISTICS: [&str; 24] = [
    "rx_packets",
    "tx_packets",
    "rx_bytes",
    "tx_bytes",
    "rx_errors",
    "tx_errors",
    "rx_dropped",
    "tx_dropped",
    "multicast",
    "collisions",
    "rx_length_errors",
    "rx_over_errors",
    "rx_crc_errors",
    "rx_frame_errors",
    "rx_fifo_errors",
    "rx_missed_errors",
    "tx_aborted_errors",
    "tx_carrier_errors",
    "tx_fifo_errors",
    "tx_heartbeat_errors",
    "tx_window_errors",
    "rx_compressed",
    "tx_compressed",
    "rx_nohandler",
];

/// Reads all interfaces.
pub(super) fn links(route: &mut Rtnetlink) -> Result<Vec<Link>, Error> {
    Ok(route.links()?.into_iter().filter_map(link).collect())
}

/// Reads all queueing disciplines.
pub(super) fn qdiscs(route: &mut Rtnetlink) -> Result<Vec<Qdisc>, Error> {
    Ok(route.qdiscs()?.into_iter().map(qdisc).collect())
}

fn link(is: rtnetlink::Link) -> Option<Link> {
    let mac = |bytes: Vec<u8>| mac(&bytes);
    Some(Link {
        index: is.index,
        name: is.name?,
        kind: is.kind,
        loopback: is.hardware == hardware::LOOPBACK,
        up: is.flags & flags::UP != 0,
        carrier: is.carrier,
        mtu: is.mtu.unwrap_or(0),
        tx_queue_len: is.tx_queue_len.unwrap_or(0),
        address: is.address.map(mac),
        // The loopback reports zeros.
        permanent_address: is.permanent_address.filter(|bytes| bytes.iter().any(|byte| *byte != 0)).map(mac),
        master: is.master,
        link: is.link,
        link_namespace: is.link_namespace,
        vlan: is.vlan.and_then(|vlan| vlan.id),
        xdp: is.xdp.map(|xdp| Xdp { driver: xdp.driver, generic: xdp.generic, hardware: xdp.hardware }),
        statistics: STATISTICS.iter().map(|name| (*name).to_owned()).zip(is.statistics).collect(),
    })
}

/// `02:00:00:00:00:01`.
pub(super) fn mac(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

fn qdisc(is: rtnetlink::Qdisc) -> Qdisc {
    Qdisc {
        interface: is.interface,
        handle: handle(is.handle),
        parent: handle(is.parent),
        kind: is.kind,
        bytes: is.bytes,
        packets: is.packets,
        queued: is.queued,
        backlog: is.backlog,
        drops: is.drops,
        requeues: is.requeues,
        overlimits: is.overlimits,
    }
}

/// A handle or parent in tc's format: hexadecimal, without the minor number if it is 0.
fn handle(number: u32) -> String {
    match (number, number >> 16, number & 0xffff) {
        (ROOT, ..) => "root".into(),
        (INGRESS, ..) => "ingress".into(),
        (_, major, 0) => format!("{major:x}:"),
        (_, major, minor) => format!("{major:x}:{minor:x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_written_as_tc_writes_them() {
        let written = [0xffff_ffff, 0xffff_fff1, 0x8001_0000, 0x8001_000a, 0].map(handle);
        assert_eq!(written, ["root", "ingress", "8001:", "8001:a", "0:"]);
    }

    #[test]
    fn a_vlan_with_a_generic_xdp_program_is_read() {
        let message = rtnetlink::Link {
            index: 7,
            flags: flags::UP,
            name: Some("bond0.5".into()),
            kind: Some("vlan".into()),
            address: Some(vec![2, 0, 0, 0, 0, 1]),
            permanent_address: Some(vec![0; 6]),
            mtu: Some(1500),
            link: Some(4),
            vlan: Some(rtnetlink::link::Vlan { id: Some(5), ..Default::default() }),
            xdp: Some(rtnetlink::link::Xdp { generic: Some(99), ..Default::default() }),
            statistics: vec![9, 1 << 40],
            ..rtnetlink::Link::default()
        };
        let wanted = Link {
            index: 7,
            name: "bond0.5".into(),
            kind: Some("vlan".into()),
            up: true,
            mtu: 1500,
            address: Some("02:00:00:00:00:01".into()),
            link: Some(4),
            vlan: Some(5),
            xdp: Some(Xdp { generic: Some(99), ..Xdp::default() }),
            statistics: [("rx_packets".to_owned(), 9), ("tx_packets".to_owned(), 1 << 40)].into(),
            ..Link::default()
        };
        assert_eq!(link(message.clone()), Some(wanted));
        assert_eq!(link(rtnetlink::Link { name: None, ..message }), None);
    }
}
