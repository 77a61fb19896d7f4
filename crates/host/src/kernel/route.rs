//! rtnetlink: interfaces and queueing disciplines.

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};

use super::Kernel;
use crate::netlink::numbers::*;
use crate::netlink::{Attributes, Refused, Writer};
use crate::snapshot::{Counters, Link, Qdisc, Xdp};

/// Bytes of `struct ifinfomsg` and `struct tcmsg` of linux/rtnetlink.h.
const IFINFOMSG: usize = 16;
const TCMSG: usize = 20;
/// `ARPHRD_LOOPBACK` of linux/if_arp.h.
const LOOPBACK: u16 = 772;
/// `IFF_UP` of linux/if.h.
const UP: u32 = 1;
/// `struct rtnl_link_stats64` of linux/if_link.h: counters of 64 bits, by the names of their files in sysfs. Older
/// kernels have fewer; one that has no file is not here.
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
/// Parents that are no class: `TC_H_ROOT`, `TC_H_INGRESS` of linux/pkt_sched.h.
const ROOT: u32 = 0xffff_ffff;
const INGRESS: u32 = 0xffff_fff1;

impl Kernel {
    pub(super) fn links(&mut self) -> Result<Vec<Link>, Refused> {
        // Counters are in the answer, virtual functions only where they are asked for.
        let answers = self.route()?.dump(RTM_GETLINK, &[0; IFINFOMSG])?;
        Ok(answers.bodies().filter_map(link).collect())
    }

    pub(super) fn qdiscs(&mut self) -> Result<Vec<Qdisc>, Refused> {
        let answers = self.route()?.dump(RTM_GETQDISC, &[0; TCMSG])?;
        Ok(answers.bodies().filter_map(qdisc).collect())
    }

    /// Puts a qdisc of this kind, without settings, at an interface's root; none: what the kernel puts there itself.
    ///
    /// # Errors
    /// The kernel's refusal: no such interface, no such kind in this kernel.
    pub fn set_qdisc(&mut self, interface: u32, kind: Option<&str>) -> Result<(), Refused> {
        let mut fixed = [0; TCMSG];
        fixed[4..8].copy_from_slice(&interface.to_ne_bytes());
        fixed[12..16].copy_from_slice(&ROOT.to_ne_bytes());
        let mut body = Writer::after(&fixed);
        let route = self.route()?;
        let done = match kind {
            Some(kind) => {
                body.text(TCA_KIND, kind);
                route.change(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE, &body.finish())
            }
            None => match route.change(RTM_DELQDISC, 0, &body.finish()) {
                // It is the kernel's own already.
                Err(refused) if refused.errno == Some(libc::ENOENT) => Ok(()),
                done => done,
            },
        };
        done.map_err(|refused| refused.when(format!("set the root qdisc of interface {interface}")))
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// `struct ifinfomsg`: family, padding, type (2), index (4), flags (4), change (4).
fn link(body: &[u8]) -> Option<Link> {
    let (fixed, rest) = body.split_at_checked(IFINFOMSG)?;
    let is = Attributes::new(rest);
    let info = is.nested(IFLA_LINKINFO);
    let kind = info.text(IFLA_INFO_KIND);
    let vlan =
        (kind.as_deref() == Some("vlan")).then(|| info.nested(IFLA_INFO_DATA).number(IFLA_VLAN_ID)).flatten();
    Some(Link {
        index: word(fixed, 4)?,
        name: is.text(IFLA_IFNAME)?,
        kind,
        loopback: u16::from_ne_bytes([fixed[2], fixed[3]]) == LOOPBACK,
        up: word(fixed, 8)? & UP != 0,
        carrier: is.number(IFLA_CARRIER).map(|carrier| carrier != 0),
        mtu: is.u32(IFLA_MTU).unwrap_or(0),
        tx_queue_len: is.u32(IFLA_TXQLEN).unwrap_or(0),
        address: is.bytes(IFLA_ADDRESS).map(mac),
        // The loopback came with zeros.
        permanent_address: is
            .bytes(IFLA_PERM_ADDRESS)
            .filter(|bytes| bytes.iter().any(|byte| *byte != 0))
            .map(mac),
        master: is.u32(IFLA_MASTER),
        link: is.u32(IFLA_LINK),
        link_namespace: is.u32(IFLA_LINK_NETNSID).map(u32::cast_signed),
        vlan: vlan.and_then(|id| u16::try_from(id).ok()),
        xdp: xdp(is.nested(IFLA_XDP)),
        statistics: statistics(is.bytes(IFLA_STATS64).unwrap_or_default()),
    })
}

fn statistics(bytes: &[u8]) -> Counters {
    let counts = bytes.as_chunks().0.iter().map(|count| u64::from_ne_bytes(*count));
    STATISTICS.iter().map(|name| (*name).to_owned()).zip(counts).collect()
}

/// `02:00:00:00:00:01`.
pub(super) fn mac(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

/// The programs, whether the kernel lists them by mode or only names one and the mode it runs in.
fn xdp(is: Attributes<'_>) -> Option<Xdp> {
    // `XDP_ATTACHED_*` of linux/if_link.h: 1 driver, 2 generic, 3 hardware, 4 several.
    let attached = is.number(IFLA_XDP_ATTACHED)?;
    let program = is.u32(IFLA_XDP_PROG_ID);
    let by_mode = |kind, mode| is.u32(kind).or(if attached == mode { program } else { None });
    let xdp = Xdp {
        driver: by_mode(IFLA_XDP_DRV_PROG_ID, 1),
        generic: by_mode(IFLA_XDP_SKB_PROG_ID, 2),
        hardware: by_mode(IFLA_XDP_HW_PROG_ID, 3),
    };
    (xdp != Xdp::default()).then_some(xdp)
}

/// `struct tcmsg`: family and padding (4), interface (4), handle (4), parent (4), references (4).
fn qdisc(body: &[u8]) -> Option<Qdisc> {
    let (fixed, rest) = body.split_at_checked(TCMSG)?;
    let is = Attributes::new(rest);
    let statistics = is.nested(TCA_STATS2);
    // struct gnet_stats_basic: bytes (8), packets (4); struct gnet_stats_queue: five numbers of four bytes.
    let basic = statistics.bytes(TCA_STATS_BASIC).unwrap_or_default();
    let queue = statistics.bytes(TCA_STATS_QUEUE).unwrap_or_default();
    let number = |at: usize| word(queue, at).unwrap_or(0);
    Some(Qdisc {
        interface: word(fixed, 4)?,
        kind: is.text(TCA_KIND)?,
        handle: handle(word(fixed, 8)?),
        parent: handle(word(fixed, 12)?),
        bytes: basic.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes)),
        packets: statistics.number(TCA_STATS_PKT64).or(word(basic, 8).map(u64::from)).unwrap_or(0),
        queued: number(0),
        backlog: number(4),
        drops: number(8),
        requeues: number(12),
        overlimits: number(16),
    })
}

/// A handle or parent as tc writes it: hexadecimal, the lower half left out where it is 0.
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
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn handles_are_written_as_tc_writes_them() {
        let written = [0xffff_ffff, 0xffff_fff1, 0x8001_0000, 0x8001_000a, 0].map(handle);
        assert_eq!(written, ["root", "ingress", "8001:", "8001:a", "0:"]);
    }

    #[test]
    fn a_vlan_with_a_generic_xdp_program_is_read() {
        let mut fixed = [0; IFINFOMSG];
        fixed[4..8].copy_from_slice(&7_u32.to_ne_bytes());
        fixed[8..12].copy_from_slice(&UP.to_ne_bytes());
        let mut writer = Writer::after(&fixed);
        writer.text(IFLA_IFNAME, "bond0.5").u32(IFLA_LINK, 4).u32(IFLA_MTU, 1500);
        writer.nest(IFLA_LINKINFO, |info| {
            info.text(IFLA_INFO_KIND, "vlan").nest(IFLA_INFO_DATA, |data| {
                data.bytes(IFLA_VLAN_ID, &5_u16.to_ne_bytes());
            });
        });
        writer.nest(IFLA_XDP, |xdp| {
            xdp.u8(IFLA_XDP_ATTACHED, 2).u32(IFLA_XDP_PROG_ID, 99);
        });
        writer.bytes(IFLA_ADDRESS, &[2, 0, 0, 0, 0, 1]);
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
            ..Link::default()
        };
        assert_eq!(link(&writer.finish()), Some(wanted));
    }

    #[test]
    fn a_qdisc_has_its_counters_in_their_places() {
        let mut fixed = [0; TCMSG];
        fixed[4..8].copy_from_slice(&2_u32.to_ne_bytes());
        fixed[8..12].copy_from_slice(&0x8001_0000_u32.to_ne_bytes());
        fixed[12..16].copy_from_slice(&ROOT.to_ne_bytes());
        let mut writer = Writer::after(&fixed);
        writer.text(TCA_KIND, "mq").nest(TCA_STATS2, |statistics| {
            let mut basic = (6_u64 << 32).to_ne_bytes().to_vec();
            basic.extend(9_u32.to_ne_bytes());
            statistics.bytes(TCA_STATS_BASIC, &basic);
            statistics.bytes(TCA_STATS_QUEUE, &[1_u32, 2, 3, 4, 5].map(u32::to_ne_bytes).concat());
        });
        let wanted = Qdisc {
            interface: 2,
            kind: "mq".into(),
            handle: "8001:".into(),
            parent: "root".into(),
            bytes: 6 << 32,
            packets: 9,
            queued: 1,
            backlog: 2,
            drops: 3,
            requeues: 4,
            overlimits: 5,
        };
        assert_eq!(qdisc(&writer.finish()), Some(wanted));
    }

    proptest! {
        #[test]
        fn no_message_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (link(&bytes), qdisc(&bytes));
        }
    }
}
