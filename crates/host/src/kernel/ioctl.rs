//! What only the ethtool ioctl tells: the driver's name and counters, flow rules; and RSS of kernels whose netlink does
//! not have it. Structures of linux/ethtool.h, read by their offsets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Kernel, ethtool, route, sys};
use crate::netlink::Refused;
use crate::netlink::numbers::ETH_SS_STATS;
use crate::snapshot::{Counters, Driver, Fields, FlowAction, FlowRule, HashFields, Masked, Rss, RssContext};

/// The set of names of the driver's counters.
const COUNTER_NAMES: u32 = ETH_SS_STATS as u32;
/// Bytes of a string in a set, `ETH_GSTRING_LEN`.
const STRING: usize = 32;
/// Longest link-layer address, bytes (`MAX_ADDR_LEN`).
const ADDRESS: u32 = 32;

/// Flow types.
pub(super) const UDP4: u32 = 2;
pub(super) const UDP6: u32 = 6;
/// Flags in a flow type: it counts in another RSS context; it has further fields.
const FLOW_RSS: u32 = 0x2000_0000;
const FLOW_MAC_EXT: u32 = 0x4000_0000;
const FLOW_EXT: u32 = 0x8000_0000;
const FLOW_FLAGS: u32 = 0xe000_0000;

/// Offsets in `struct ethtool_rxnfc`.
const NFC_DATA: usize = 8;
const NFC_SPEC: usize = 16;
const NFC_COUNT: usize = 184;
const NFC_PLACES: usize = 188;
/// Offsets in `struct ethtool_rx_flow_spec`.
const SPEC_VALUE: usize = 4;
const SPEC_MASK: usize = 76;
/// Bytes of the union of the flow types' fields; `struct ethtool_flow_ext` follows each.
const UNION: usize = 52;
/// In `struct ethtool_flow_ext`, link-layer address; VLAN and the user's own data.
const EXT_ADDRESS: std::ops::Range<usize> = 2..8;
const EXT_OTHERS: std::ops::Range<usize> = 8..20;
const SPEC_COOKIE: usize = 152;
/// Offsets in the fields of flow types: `struct ethtool_usrip4_spec`, `ethtool_usrip6_spec`, `ethhdr`.
const IP4_VERSION: usize = 13;
const IP4_PROTOCOL: usize = 14;
const IP6_PROTOCOL: usize = 37;
const ETHER_TYPE: usize = 12;
const SPEC_LOCATION: usize = 160;

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |chunk| u32::from_ne_bytes(*chunk))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |chunk| u64::from_ne_bytes(*chunk))
}

/// A text that fills its place or ends with a zero.
fn text(bytes: &[u8], at: usize, length: usize) -> String {
    let bytes = bytes.get(at..at + length).unwrap_or_default();
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

impl Kernel {
    /// A request; `request` is what follows the command's number.
    pub(super) fn ioctl(
        &self,
        interface: &str,
        command: sys::Command,
        request: &[u8],
    ) -> Result<Vec<u8>, Refused> {
        sys::ethtool(self.control()?, interface, command, request).map_err(|error| {
            match error.raw_os_error() {
                // Drivers answer EINVAL for commands of these that they do not have; of what is set, it is the value.
                Some(libc::EINVAL) if !command.sets() => Refused::errno(libc::EOPNOTSUPP),
                Some(libc::ENOTTY) => Refused::errno(libc::EOPNOTSUPP),
                _ => error.into(),
            }
        })
    }

    pub(super) fn driver(&self, interface: &str) -> Result<Driver, Refused> {
        let info = self.ioctl(interface, sys::DRIVER, &[])?;
        Ok(Driver {
            name: text(&info, 4, 32),
            version: text(&info, 36, 32),
            firmware: text(&info, 68, 32),
            bus: text(&info, 100, 32),
        })
    }

    pub(super) fn permanent_address(&self, interface: &str) -> Result<String, Refused> {
        let found = self.ioctl(interface, sys::PERMANENT_ADDRESS, &words(&[ADDRESS]))?;
        let length = word(&found, 4).min(ADDRESS) as usize;
        Ok(route::mac(&found[8..8 + length]))
    }

    pub(super) fn driver_counters(&self, interface: &str) -> Result<Counters, Refused> {
        // Reserved, then a mask of the sets asked for.
        let mut request = words(&[0]);
        request.extend((1_u64 << COUNTER_NAMES).to_ne_bytes());
        let counts = self.ioctl(interface, sys::STRING_COUNTS, &request)?;
        // The mask comes back without the sets that the driver does not have.
        let count = word(&counts, 16);
        if long(&counts, 8) == 0 || count == 0 {
            return Err(Refused::errno(libc::EOPNOTSUPP));
        }
        let names = self.ioctl(interface, sys::STRINGS, &words(&[COUNTER_NAMES, count]))?;
        let values = self.ioctl(interface, sys::COUNTERS, &words(&[count]))?;
        // Queues may have come or gone between the two calls; then names and values do not belong together.
        if word(&names, 8) != word(&values, 4) {
            return Err(Refused::other("the driver's counters changed while they were read"));
        }
        Ok(counters(&names, &values))
    }

    pub(super) fn rss_by_ioctl(&mut self, interface: &str) -> Result<Rss, Refused> {
        // Context 0, and no room: only the sizes are told.
        let sizes = self.ioctl(interface, sys::RSS, &words(&[0, 0, 0]))?;
        let (entries, key) = (word(&sizes, 8), word(&sizes, 12));
        let found = self.ioctl(interface, sys::RSS, &words(&[0, entries, key]))?;
        let functions = self.hash_functions().unwrap_or_default();
        Ok(Rss { main: rss(&found, &functions), ..Rss::default() })
    }

    pub(super) fn hash_fields_by_ioctl(&self, interface: &str) -> Result<HashFields, Refused> {
        let fields = |flow: u32| -> Result<Fields, Refused> {
            let found = self.ioctl(interface, sys::HASH_FIELDS, &words(&[flow]))?;
            Ok(Fields(word(&found, NFC_DATA)))
        };
        Ok(HashFields { udp4: Some(fields(UDP4)?), udp6: fields(UDP6).ok() })
    }

    pub(super) fn flow_rules(&self, interface: &str) -> Result<Vec<FlowRule>, Refused> {
        let count = word(&self.ioctl(interface, sys::RULE_COUNT, &[])?, NFC_COUNT);
        let mut request = vec![0; NFC_COUNT - 4];
        request.extend(count.to_ne_bytes());
        let places = if count == 0 { Vec::new() } else { self.ioctl(interface, sys::RULES, &request)? };
        let found = word(&places, NFC_COUNT).min(count) as usize;
        let mut rules = Vec::with_capacity(found);
        for at in 0..found {
            let mut request = vec![0; NFC_SPEC + SPEC_LOCATION - 4];
            request.extend(word(&places, NFC_PLACES + 4 * at).to_ne_bytes());
            match self.ioctl(interface, sys::RULE, &request) {
                Ok(rule) => rules.push(flow_rule(&rule)),
                // Gone since the list was read.
                Err(refused) if refused.errno == Some(libc::ENOENT) => {}
                Err(refused) => return Err(refused),
            }
        }
        Ok(rules)
    }
}

/// `struct ethtool_gstrings` and `struct ethtool_stats` side by side.
///
/// vmxnet3 repeats the names of a queue's counters for each queue, indented below a line `Rx Queue#` whose value is the
/// queue: they become `Rx Queue 3: ucast pkts rx`. A name that comes again otherwise gets a number.
fn counters(names: &[u8], values: &[u8]) -> Counters {
    let mut counters = Counters::new();
    let mut queue = String::new();
    for at in 0..word(names, 8) as usize {
        let (name, value) = (text(names, 12 + STRING * at, STRING), long(values, 8 + 8 * at));
        let trimmed = name.trim();
        if let Some(heading) = trimmed.strip_suffix("Queue#") {
            queue = format!("{heading}Queue {value}: ");
        } else if !trimmed.is_empty() {
            let indented = name.starts_with(' ');
            let name = if indented { format!("{queue}{trimmed}") } else { trimmed.to_owned() };
            let again = (2..).map(|time| format!("{name} ({time})"));
            let free = std::iter::once(name.clone()).chain(again).find(|name| !counters.contains_key(name));
            counters.extend(free.map(|name| (name, value)));
        }
    }
    counters
}

/// `struct ethtool_rxfh`: table, then key, behind 24 bytes.
fn rss(found: &[u8], functions: &[String]) -> RssContext {
    let (entries, key) = (word(found, 8) as usize, word(found, 12) as usize);
    let begin = 24 + 4 * entries;
    RssContext {
        table: (0..entries).map(|entry| word(found, 24 + 4 * entry)).collect(),
        key: found.get(begin..begin + key).unwrap_or_default().to_vec(),
        function: ethtool::function(found.get(16).copied().unwrap_or(0).into(), functions),
        ..RssContext::default()
    }
}

/// `struct ethtool_rxnfc` with a rule in it.
fn flow_rule(found: &[u8]) -> FlowRule {
    let spec = found.get(NFC_SPEC..).unwrap_or_default();
    let flow = word(spec, 0);
    let (value, mask) = (&spec[SPEC_VALUE.min(spec.len())..], &spec[SPEC_MASK.min(spec.len())..]);
    let (name, length) = flow_name(flow & !FLOW_FLAGS);
    let [source, destination] = [0, length].map(|at| address(value, mask, at, length));
    // Of `ip4` and `ip6` the first four bytes above IP, which are the ports of all that has ports.
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
    // The lower half of the cookie is the queue, the next byte a virtual function.
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

/// Does a mask count more than what a [`FlowRule`] tells? `length`: of an address.
fn further(flow: u32, name: &str, mask: &[u8], length: usize, ports: bool) -> bool {
    let told = |at: usize| {
        let port = ports && (2 * length..2 * length + 4).contains(&at);
        let of_kind = match name {
            // The version is what the kind of rule says already.
            "ip4" => at == IP4_PROTOCOL || at == IP4_VERSION,
            "ip6" => at == IP6_PROTOCOL,
            "ether" => (ETHER_TYPE..ETHER_TYPE + 2).contains(&at),
            _ => false,
        };
        at < 2 * length || port || of_kind
    };
    let fields = mask.iter().take(UNION).enumerate();
    let counts = |range: std::ops::Range<usize>| {
        let bytes = mask.get(UNION + range.start..UNION + range.end).unwrap_or_default();
        bytes.iter().any(|byte| *byte != 0)
    };
    fields.into_iter().any(|(at, byte)| *byte != 0 && !told(at))
        || flow & FLOW_MAC_EXT != 0 && counts(EXT_ADDRESS)
        || flow & FLOW_EXT != 0 && counts(EXT_OTHERS)
}

/// A flow type's name, and how long its addresses are.
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
    use proptest::prelude::*;

    use super::*;

    /// `ethtool -N eth0 flow-type udp4 src-ip 192.0.2.0 m 0.0.0.255 dst-port 53 action 7 loc 3`, as the kernel keeps it.
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
        // Whatever the kernel left out, there is no panic.
        assert_eq!(flow_rule(&[]).flow, "other");
    }

    #[test]
    fn what_a_rule_asks_beyond_addresses_and_ports_is_told() {
        let with = |kind: u32, at: usize, bytes: &[u8]| {
            let mut rule = rule();
            rule[NFC_SPEC..NFC_SPEC + 4].copy_from_slice(&kind.to_ne_bytes());
            rule[NFC_SPEC + SPEC_VALUE + at..][..bytes.len()].copy_from_slice(bytes);
            rule[NFC_SPEC + SPEC_MASK + at..][..bytes.len()].fill(0xff);
            flow_rule(&rule)
        };
        // Type of service.
        assert!(with(UDP4, 12, &[8]).further);
        // A VLAN counts with its flag alone; so does a link-layer address.
        let vlan = UNION + 10;
        assert!(with(UDP4 | FLOW_EXT, vlan, &[0, 7]).further && !with(UDP4, vlan, &[0, 7]).further);
        assert!(with(UDP4 | FLOW_MAC_EXT, UNION + 2, &[2]).further && !with(UDP4, UNION + 2, &[2]).further);
        let ip4 = with(0x0d, IP4_PROTOCOL, &[17]);
        assert_eq!((ip4.protocol, ip4.further), (Some(Masked { value: 17, mask: 0xff }), false));
        assert_eq!(ip4.destination_port.map(|port| port.value), Some(53));
        assert_eq!(with(0x0e, IP6_PROTOCOL, &[17]).protocol.map(|wanted| wanted.value), Some(17));
        // `ethtool -N eth0 flow-type ether proto 0x88f7`: of the addresses before it nothing counts.
        let mut ptp = vec![0; 192];
        ptp[NFC_SPEC] = 0x12;
        ptp[NFC_SPEC + SPEC_VALUE + ETHER_TYPE..][..2].copy_from_slice(&[0x88, 0xf7]);
        ptp[NFC_SPEC + SPEC_MASK + ETHER_TYPE..][..2].fill(0xff);
        let ptp = flow_rule(&ptp);
        assert_eq!((ptp.ether_type.map(|kind| kind.value), ptp.further), (Some(0x88f7), false));
        assert!(with(0x12, 0, &[2, 0, 0, 0, 0, 1]).further);
    }

    fn counted(rows: &[(&str, u64)]) -> Counters {
        let count = u32::try_from(rows.len()).unwrap();
        let (mut names, mut values) = (words(&[0x1b, COUNTER_NAMES, count]), words(&[0x1d, count]));
        for (name, value) in rows {
            let mut string = name.as_bytes().to_vec();
            string.resize(STRING, 0);
            names.extend(string);
            values.extend(value.to_ne_bytes());
        }
        counters(&names, &values)
    }

    #[test]
    fn counters_take_their_names_in_order() {
        let wanted = Counters::from([("rx_packets".into(), 5), ("tx_packets".into(), 1 << 40)]);
        assert_eq!(counted(&[("rx_packets", 5), ("     tx_packets", 1 << 40), ("", 0)]), wanted);
        let twice = Counters::from([("drops".into(), 1), ("drops (2)".into(), 2), ("drops (3)".into(), 3)]);
        assert_eq!(counted(&[("drops", 1), ("drops", 2), ("drops", 3)]), twice);
    }

    /// Two queues, as drivers/net/vmxnet3/vmxnet3_ethtool.c lists them.
    #[test]
    fn counters_below_a_queue_are_that_queues() {
        let rows = [
            ("Rx Queue#", 0),
            ("  ucast pkts rx", 7),
            ("Rx Queue#", 1),
            ("  ucast pkts rx", 9),
            ("tx timeout count", 2),
        ];
        let wanted =
            [("Rx Queue 0: ucast pkts rx", 7), ("Rx Queue 1: ucast pkts rx", 9), ("tx timeout count", 2)];
        assert_eq!(counted(&rows), wanted.map(|(name, value)| (name.to_owned(), value)).into());
    }

    #[test]
    fn a_table_is_followed_by_its_key() {
        let mut found = words(&[0x46, 0, 4, 2]);
        found.extend([1, 0, 0, 0]);
        found.extend(words(&[0]));
        found.extend(words(&[3, 2, 1, 0]));
        found.extend([0x6d, 0x5a]);
        let context = rss(&found, &["toeplitz".to_owned()]);
        assert_eq!((context.table, context.key), (vec![3, 2, 1, 0], vec![0x6d, 0x5a]));
        assert_eq!(context.function.as_deref(), Some("toeplitz"));
    }

    #[test]
    fn the_loopback_has_none_of_this() {
        let kernel = Kernel::open();
        let refused = [
            kernel.driver("lo").unwrap_err(),
            kernel.flow_rules("lo").unwrap_err(),
            kernel.driver_counters("lo").unwrap_err(),
            kernel.hash_fields_by_ioctl("lo").unwrap_err(),
        ];
        for refused in refused {
            assert_eq!(refused.errno, Some(libc::EOPNOTSUPP), "{refused:?}");
        }
    }
    proptest! {
        /// The kernel's structures are trusted to be whole, and to say nothing that makes sense.
        #[test]
        fn no_structure_makes_it_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = flow_rule(&bytes);
            // Counts of the size that the kernel could give.
            for at in [8, 9, 10, 11, 12, 13, 14, 15] {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = if at % 4 == 0 { *byte } else { 0 };
                }
            }
            let _ = (rss(&bytes, &[]), counters(&bytes, &bytes));
        }
    }
}
