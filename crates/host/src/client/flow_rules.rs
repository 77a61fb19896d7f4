//! Flow rules: `struct ethtool_rxnfc` of linux/ethtool.h, read by offset.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::os::fd::BorrowedFd;

use udpath_netlink::ioctl::device::{call, long, word};
use udpath_netlink::{Error, ioctl};
use udpath_steer::rules::{FlowAction, FlowRule, Masked};

/// Flags in a flow type: the rule selects another RSS context; it has extended fields.
const FLOW_RSS: u32 = 0x2000_0000;
const FLOW_MAC_EXT: u32 = 0x4000_0000;
const FLOW_EXT: u32 = 0x8000_0000;
const FLOW_FLAGS: u32 = 0xe000_0000;

/// Offsets in `struct ethtool_rxnfc`.
const NFC_SPEC: usize = 16;
const NFC_COUNT: usize = 184;
const NFC_PLACES: usize = 188;
/// Offsets in `struct ethtool_rx_flow_spec`.
const SPEC_VALUE: usize = 4;
const SPEC_MASK: usize = 76;
const SPEC_COOKIE: usize = 152;
const SPEC_LOCATION: usize = 160;
/// Size in bytes of the union of the flow types' fields; `struct ethtool_flow_ext` follows each.
const UNION: usize = 52;
/// In `struct ethtool_flow_ext`: link-layer address; VLAN and user data.
const EXT_ADDRESS: Range<usize> = 2..8;
const EXT_OTHERS: Range<usize> = 8..20;
/// Offsets in the fields of flow types: `struct ethtool_usrip4_spec`, `ethtool_usrip6_spec`, `ethhdr`.
const IP4_VERSION: usize = 13;
const IP4_PROTOCOL: usize = 14;
const IP6_PROTOCOL: usize = 37;
const ETHER_TYPE: usize = 12;

/// Reads the flow rules of an interface.
pub(super) fn flow_rules(control: BorrowedFd<'_>, interface: &str) -> Result<Vec<FlowRule>, Error> {
    let count = word(&call(control, interface, ioctl::RULE_COUNT, &[])?, NFC_COUNT);
    let mut request = vec![0; NFC_COUNT - 4];
    request.extend(count.to_ne_bytes());
    let places = if count == 0 { Vec::new() } else { call(control, interface, ioctl::RULES, &request)? };
    let found = word(&places, NFC_COUNT).min(count) as usize;
    let mut rules = Vec::with_capacity(found);
    for at in 0..found {
        let mut request = vec![0; NFC_SPEC + SPEC_LOCATION - 4];
        request.extend(word(&places, NFC_PLACES + 4 * at).to_ne_bytes());
        match call(control, interface, ioctl::RULE, &request) {
            Ok(rule) => rules.push(flow_rule(&rule)),
            // Removed since the list was read.
            Err(refused) if refused.errno == Some(libc::ENOENT) => {}
            Err(refused) => return Err(refused),
        }
    }
    Ok(rules)
}

/// Decodes a `struct ethtool_rxnfc` that contains a rule.
fn flow_rule(found: &[u8]) -> FlowRule {
    let spec = found.get(NFC_SPEC..).unwrap_or_default();
    let flow = word(spec, 0);
    let (value, mask) = (&spec[SPEC_VALUE.min(spec.len())..], &spec[SPEC_MASK.min(spec.len())..]);
    let (name, length) = flow_name(flow & !FLOW_FLAGS);
    let [source, destination] = [0, length].map(|at| address(value, mask, at, length));
    // For `ip4` and `ip6`: the first four bytes after the IP header, which hold the ports of any protocol with ports.
    let ports = ["udp", "tcp", "sctp", "ip"].iter().any(|kind| name.starts_with(kind));
    let [source_port, destination_port] =
        [2 * length, 2 * length + 2].map(|at| if ports { port(value, mask, at) } else { None });
    let ether_type = if name == "ether" { port(value, mask, ETHER_TYPE) } else { None };
    let protocol = match name {
        "ip4" => byte(value, mask, IP4_PROTOCOL),
        "ip6" => byte(value, mask, IP6_PROTOCOL),
        _ => None,
    };
    let cookie = long(spec, SPEC_COOKIE);
    // The lower half of the cookie is the queue, the next byte the virtual function.
    let (low, vf) = ((cookie & 0xffff_ffff) as u32, (cookie >> 32 & 0xff) as u8);
    let action = match cookie {
        u64::MAX => FlowAction::Drop,
        0xffff_ffff_ffff_fffe => FlowAction::Wake,
        _ if flow & FLOW_RSS != 0 => FlowAction::Context { context: word(found, NFC_COUNT), queue: low },
        _ => FlowAction::Queue { queue: low, vf },
    };
    FlowRule {
        location: word(spec, SPEC_LOCATION),
        flow: name.to_owned(),
        source,
        destination,
        source_port,
        destination_port,
        protocol,
        ether_type,
        further: further(flow, name, mask, length, ports),
        action,
    }
}

/// Whether a mask covers more than a [`FlowRule`] shows. `length`: of an address.
fn further(flow: u32, name: &str, mask: &[u8], length: usize, ports: bool) -> bool {
    let told = |at: usize| {
        let port = ports && (2 * length..2 * length + 4).contains(&at);
        let of_kind = match name {
            // The version follows from the flow type.
            "ip4" => at == IP4_PROTOCOL || at == IP4_VERSION,
            "ip6" => at == IP6_PROTOCOL,
            "ether" => (ETHER_TYPE..ETHER_TYPE + 2).contains(&at),
            _ => false,
        };
        at < 2 * length || port || of_kind
    };
    let fields = mask.iter().take(UNION).enumerate();
    let counts = |range: Range<usize>| {
        let bytes = mask.get(UNION + range.start..UNION + range.end).unwrap_or_default();
        bytes.iter().any(|byte| *byte != 0)
    };
    fields.into_iter().any(|(at, byte)| *byte != 0 && !told(at))
        || flow & FLOW_MAC_EXT != 0 && counts(EXT_ADDRESS)
        || flow & FLOW_EXT != 0 && counts(EXT_OTHERS)
}

/// A flow type's name, and the length of its addresses.
const fn flow_name(flow: u32) -> (&'static str, usize) {
    match flow {
        0x01 => ("tcp4", 4),
        0x02 => ("udp4", 4),
        0x03 => ("sctp4", 4),
        0x05 => ("tcp6", 16),
        0x06 => ("udp6", 16),
        0x07 => ("sctp6", 16),
        0x09 => ("ah4", 4),
        0x0a => ("esp4", 4),
        0x0b => ("ah6", 16),
        0x0c => ("esp6", 16),
        0x0d => ("ip4", 4),
        0x0e => ("ip6", 16),
        0x12 => ("ether", 0),
        _ => ("other", 0),
    }
}

fn address(value: &[u8], mask: &[u8], at: usize, length: usize) -> Option<Masked<IpAddr>> {
    let ip = |bytes: &[u8]| -> Option<IpAddr> {
        let bytes = bytes.get(at..at + length)?;
        match length {
            4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into()),
            16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()),
            _ => None,
        }
    };
    let (value, mask) = (ip(value)?, ip(mask)?);
    (!mask.is_unspecified()).then_some(Masked { value, mask })
}

fn byte(value: &[u8], mask: &[u8], at: usize) -> Option<Masked<u8>> {
    let (value, mask) = (*value.get(at)?, *mask.get(at)?);
    (mask != 0).then_some(Masked { value, mask })
}

fn port(value: &[u8], mask: &[u8], at: usize) -> Option<Masked<u16>> {
    let port = |bytes: &[u8]| Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
    let (value, mask) = (port(value)?, port(mask)?);
    (mask != 0).then_some(Masked { value, mask })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use proptest::prelude::*;

    use udpath_netlink::ioctl::device::UDP4;

    use super::*;

    /// `ethtool -N eth0 flow-type udp4 src-ip 192.0.2.0 m 0.0.0.255 dst-port 53 action 7 loc 3`, in the kernel's form.
    fn rule() -> Vec<u8> {
        let mut bytes = vec![0; 192];
        bytes[NFC_SPEC..NFC_SPEC + 4].copy_from_slice(&UDP4.to_ne_bytes());
        bytes[NFC_SPEC + SPEC_VALUE..][..4].copy_from_slice(&[192, 0, 2, 0]);
        bytes[NFC_SPEC + SPEC_MASK..][..4].copy_from_slice(&[255, 255, 255, 0]);
        bytes[NFC_SPEC + SPEC_VALUE + 10..][..2].copy_from_slice(&53_u16.to_be_bytes());
        bytes[NFC_SPEC + SPEC_MASK + 10..][..2].copy_from_slice(&u16::MAX.to_be_bytes());
        bytes[NFC_SPEC + SPEC_COOKIE..][..8].copy_from_slice(&7_u64.to_ne_bytes());
        bytes[NFC_SPEC + SPEC_LOCATION..][..4].copy_from_slice(&3_u32.to_ne_bytes());
        bytes
    }

    #[test]
    fn a_rule_is_read_by_its_masks() {
        let wanted = FlowRule {
            location: 3,
            flow: "udp4".into(),
            source: Some(Masked {
                value: Ipv4Addr::new(192, 0, 2, 0).into(),
                mask: Ipv4Addr::new(255, 255, 255, 0).into(),
            }),
            destination: None,
            source_port: None,
            destination_port: Some(Masked { value: 53, mask: u16::MAX }),
            protocol: None,
            ether_type: None,
            further: false,
            action: FlowAction::Queue { queue: 7, vf: 0 },
        };
        assert_eq!(flow_rule(&rule()), wanted);
    }

    #[test]
    fn a_rule_may_drop_or_name_a_context() {
        let mut drop = rule();
        drop[NFC_SPEC + SPEC_COOKIE..][..8].fill(0xff);
        assert_eq!(flow_rule(&drop).action, FlowAction::Drop);
        let mut context = rule();
        context[NFC_SPEC..NFC_SPEC + 4].copy_from_slice(&(UDP4 | FLOW_RSS).to_ne_bytes());
        context[NFC_COUNT..NFC_COUNT + 4].copy_from_slice(&9_u32.to_ne_bytes());
        assert_eq!(flow_rule(&context).action, FlowAction::Context { context: 9, queue: 7 });
        // Truncated structures do not panic.
        assert_eq!(flow_rule(&[]).flow, "other");
    }

    #[test]
    fn conditions_beyond_addresses_and_ports_are_flagged() {
        let with = |kind: u32, at: usize, bytes: &[u8]| {
            let mut rule = rule();
            rule[NFC_SPEC..NFC_SPEC + 4].copy_from_slice(&kind.to_ne_bytes());
            rule[NFC_SPEC + SPEC_VALUE + at..][..bytes.len()].copy_from_slice(bytes);
            rule[NFC_SPEC + SPEC_MASK + at..][..bytes.len()].fill(0xff);
            flow_rule(&rule)
        };
        // Type of service.
        assert!(with(UDP4, 12, &[8]).further);
        // A VLAN only counts if its flag is set; the same holds for a link-layer address.
        let vlan = UNION + 10;
        assert!(with(UDP4 | FLOW_EXT, vlan, &[0, 7]).further && !with(UDP4, vlan, &[0, 7]).further);
        assert!(with(UDP4 | FLOW_MAC_EXT, UNION + 2, &[2]).further && !with(UDP4, UNION + 2, &[2]).further);
        let ip4 = with(0x0d, IP4_PROTOCOL, &[17]);
        assert_eq!((ip4.protocol, ip4.further), (Some(Masked { value: 17, mask: 0xff }), false));
        assert_eq!(ip4.destination_port.map(|port| port.value), Some(53));
        assert_eq!(with(0x0e, IP6_PROTOCOL, &[17]).protocol.map(|wanted| wanted.value), Some(17));
        // `ethtool -N eth0 flow-type ether proto 0x88f7`: the address fields before it do not count.
        let mut ptp = vec![0; 192];
        ptp[NFC_SPEC] = 0x12;
        ptp[NFC_SPEC + SPEC_VALUE + ETHER_TYPE..][..2].copy_from_slice(&[0x88, 0xf7]);
        ptp[NFC_SPEC + SPEC_MASK + ETHER_TYPE..][..2].fill(0xff);
        let ptp = flow_rule(&ptp);
        assert_eq!((ptp.ether_type.map(|kind| kind.value), ptp.further), (Some(0x88f7), false));
        assert!(with(0x12, 0, &[2, 0, 0, 0, 0, 1]).further);
    }

    #[test]
    fn the_loopback_has_none() {
        let refused =
            flow_rules(std::net::UdpSocket::bind("127.0.0.1:0").unwrap().as_fd(), "lo").unwrap_err();
        assert_eq!(refused.errno, Some(libc::EOPNOTSUPP), "{refused:?}");
    }

    proptest! {
        /// Structures from the kernel may be truncated or invalid.
        #[test]
        fn no_structure_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = flow_rule(&bytes);
        }
    }
}
