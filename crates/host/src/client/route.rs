//! rtnetlink: interfaces and queueing disciplines.

use udpath_netlink::rtnetlink::link::{flags, hardware};
use udpath_netlink::rtnetlink::qdisc::{INGRESS, ROOT};
use udpath_netlink::{Error, rtnetlink};

use super::Client;
use crate::snapshot::{Link, Qdisc, Xdp};

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

impl Client {
    pub(super) fn links(&mut self) -> Result<Vec<Link>, Error> {
        Ok(self.route()?.links()?.into_iter().filter_map(link).collect())
    }

    pub(super) fn qdiscs(&mut self) -> Result<Vec<Qdisc>, Error> {
        Ok(self.route()?.qdiscs()?.into_iter().map(qdisc).collect())
    }
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
