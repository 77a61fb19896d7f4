//! A complete lab, before anything is created: the contents of the record on disk and of `list`.
//!
//! Link `i` of a lab is 10.H.L.0/24 and fd75:6470:6174:i::/64, where H and L are the bytes of `i`. Its first end has
//! the odd addresses (.1, .3, ...), its second the even ones. Labs are isolated from each other, so all use the same
//! numbers: a command line that worked in one lab works in the next.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::LinkSpec;

/// Prefix of the names of a lab's namespaces.
pub(crate) const PREFIX: &str = "udpath";
/// Length of the IPv4 network of a link, bits.
pub(crate) const IPV4_PREFIX: u8 = 24;
/// Length of the IPv6 network of a link, bits.
pub(crate) const IPV6_PREFIX: u8 = 64;
/// Interface index of the first link's end in a machine; 1 is the loopback.
const FIRST_IFINDEX: u32 = 2;

/// A complete lab.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Blueprint {
    /// The lab's name.
    pub name: String,
    /// The process that built it.
    pub pid: u32,
    /// In the order in which they were added.
    pub machines: Vec<MachineBlueprint>,
    /// In the order in which they were added.
    pub links: Vec<LinkBlueprint>,
}

/// A machine.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct MachineBlueprint {
    /// Its name in the lab.
    pub name: String,
    /// Its network namespace's name, as `ip netns` shows it: `udpath-PID-LAB-MACHINE`.
    pub namespace: String,
}

/// A veth pair.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct LinkBlueprint {
    /// Queues, MTU, interrupt moderation, offloads.
    pub spec: LinkSpec,
    /// Both ends, in the order given.
    pub ends: [End; 2],
}

/// One end of a link.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct End {
    /// The machine it is in.
    pub machine: String,
    /// Its name there: `eth0`, `eth1`, ...
    pub interface: String,
    /// Its index there.
    pub ifindex: u32,
    /// Its link-layer address.
    pub mac: MacAddress,
    /// At least one.
    pub ipv4: Vec<Ipv4Addr>,
    /// At least one.
    pub ipv6: Vec<Ipv6Addr>,
}

impl Blueprint {
    /// Every end in a machine with its peer, in the order of `eth0`, `eth1`, ...
    pub fn ends_of<'a>(&'a self, machine: &'a str) -> impl Iterator<Item = (&'a LinkSpec, &'a End, &'a End)> {
        self.links.iter().filter_map(move |LinkBlueprint { spec, ends: [one, other] }| {
            if one.machine == machine {
                Some((spec, one, other))
            } else if other.machine == machine {
                Some((spec, other, one))
            } else {
                None
            }
        })
    }

    /// Whether every namespace has the prefix, the PID and the lab's name. A record that does not is not used.
    pub(crate) fn is_ours(&self) -> bool {
        self.machines
            .iter()
            .all(|machine| machine.namespace == namespace(self.pid, &self.name, &machine.name))
            && !self.machines.iter().any(|machine| machine.namespace.contains('/'))
    }
}

/// Computes all names, addresses and numbers. The description has been validated.
pub(crate) fn draw(
    name: &str,
    pid: u32,
    machines: &[String],
    links: &[(String, String, LinkSpec)],
) -> Blueprint {
    let mut ends_in = std::collections::BTreeMap::<String, u32>::new();
    let mut end = |machine: &String, link: u16, side: u8, spec: &LinkSpec| {
        let number = ends_in.entry(machine.clone()).or_default();
        let end = End {
            machine: machine.clone(),
            interface: format!("eth{number}"),
            ifindex: FIRST_IFINDEX + *number,
            mac: mac(link, side),
            ipv4: (0..spec.addresses).map(|nth| ipv4(link, side, nth)).collect(),
            ipv6: (0..spec.addresses).map(|nth| ipv6(link, side, nth)).collect(),
        };
        *number += 1;
        end
    };
    let links = (0_u16..=u16::MAX)
        .zip(links)
        .map(|(link, (from, to, spec))| LinkBlueprint {
            spec: spec.clone(),
            ends: [end(from, link, 0, spec), end(to, link, 1, spec)],
        })
        .collect();
    let machines = machines
        .iter()
        .map(|machine| MachineBlueprint { name: machine.clone(), namespace: namespace(pid, name, machine) })
        .collect();
    Blueprint { name: name.to_owned(), pid, machines, links }
}

fn namespace(pid: u32, lab: &str, machine: &str) -> String {
    format!("{PREFIX}-{pid}-{lab}-{machine}")
}

fn ipv4(link: u16, side: u8, nth: u32) -> Ipv4Addr {
    let [high, low] = link.to_be_bytes();
    // At most 127 addresses per end: 2 * 126 + 1 + 1 = 254.
    Ipv4Addr::new(10, high, low, (2 * nth) as u8 + 1 + side)
}

/// fd75:6470:6174 is a unique local prefix (RFC 4193) whose 40 bits spell "udpat".
fn ipv6(link: u16, side: u8, nth: u32) -> Ipv6Addr {
    Ipv6Addr::new(0xfd75, 0x6470, 0x6174, link, 0, 0, 0, (2 * nth) as u16 + 1 + u16::from(side))
}

/// Locally administered, unicast.
fn mac(link: u16, side: u8) -> MacAddress {
    let [high, low] = link.to_be_bytes();
    MacAddress([0x02, 0x75, 0x64, high, low, side + 1])
}

/// A link-layer address; prints and serialises as `02:75:64:00:00:01`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, JsonSchema)]
#[schemars(from = "String", into = "String")]
pub struct MacAddress(pub [u8; 6]);

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl Serialize for MacAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MacAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes: Option<Vec<u8>> = text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| de::Error::custom(format!("\"{text}\" is not a link-layer address")))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{LabBuilder, MAX_ADDRESSES};

    #[test]
    fn addresses_are_the_documented_ones() {
        let spec = LinkSpec::default();
        let lab = LabBuilder::new("x").machine("a").machine("b").link("a", "b", &spec).blueprint().unwrap();
        let [a, b] = &lab.links[0].ends;
        assert_eq!((a.ipv4[0].to_string(), b.ipv4[0].to_string()), ("10.0.0.1".into(), "10.0.0.2".into()));
        assert_eq!(a.ipv6[0].to_string(), "fd75:6470:6174::1");
        assert_eq!(b.mac.to_string(), "02:75:64:00:00:02");
        assert_eq!(lab.machines[0].namespace, format!("udpath-{}-x-a", std::process::id()));
        assert!(lab.is_ours());
        let json = serde_json::to_string(&lab).unwrap();
        assert_eq!(serde_json::from_str::<Blueprint>(&json).unwrap(), lab);
    }

    #[test]
    fn nothing_is_given_out_twice() {
        let spec = LinkSpec { addresses: MAX_ADDRESSES, ..LinkSpec::default() };
        let lab = LabBuilder::new("x")
            .machines("c", 20)
            .machines("s", 20)
            .mesh("c", "s", &spec)
            .blueprint()
            .unwrap();
        let ends: Vec<&End> = lab.links.iter().flat_map(|link| &link.ends).collect();
        assert_eq!(ends.len(), 800);
        assert_eq!(ends.iter().flat_map(|end| &end.ipv4).collect::<BTreeSet<_>>().len(), 800 * 127);
        assert_eq!(ends.iter().flat_map(|end| &end.ipv6).collect::<BTreeSet<_>>().len(), 800 * 127);
        assert_eq!(ends.iter().map(|end| end.mac).collect::<BTreeSet<_>>().len(), 800);
        assert!(ends.iter().flat_map(|end| &end.ipv4).all(|ip| !matches!(ip.octets()[3], 0 | 255)));
        let in_c: Vec<(&str, u32)> =
            lab.ends_of("c-2").map(|(_, end, _)| (end.interface.as_str(), end.ifindex)).collect();
        assert_eq!(in_c[..2], [("eth0", 2), ("eth1", 3)]);
        assert_eq!(in_c.len(), 20);
        // Both ends of a link are in one /24.
        assert!(lab.links.iter().all(|link| {
            let net = |end: &End| end.ipv4[0].octets()[..3].to_vec();
            net(&link.ends[0]) == net(&link.ends[1])
        }));
    }

    #[test]
    fn a_record_with_foreign_namespaces_is_ignored() {
        let mut lab = LabBuilder::new("x").machine("a").blueprint().unwrap();
        lab.machines[0].namespace = "production".into();
        assert!(!lab.is_ours());
        lab.machines[0].name = "../a".into();
        lab.machines[0].namespace = format!("udpath-{}-x-../a", lab.pid);
        assert!(!lab.is_ours());
    }
}
