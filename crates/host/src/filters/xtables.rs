//! The rules of ip_tables and ip6_tables, the kernel's older packet filter, decoded from a table's entries.
//!
//! ```text
//!  ipt_get_entries | entry: addresses, interfaces, protocol | match: name, data | ... | target: name, verdict | entry ...
//!                    ^ hook_entry[INPUT]                                                 ^ underflow[INPUT]: the policy
//! ```
//! User-defined chains begin with an entry whose target is `ERROR` and contains their name; jumps go to the entry after
//! it. Only tables listed in `/proc/net/ip_tables_names` are read: reading another would load it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::bits::{Bits, not};
use super::chain::{Action, Applies, Chain, Finding, Rule, Table};
use super::xtables_match::{half, match_of, target_of};
use super::{Datagram, sys};

/// Bytes of a match's or target's header: size, name, revision.
const PART: usize = 32;
/// Verdicts of the standard target: `-NF_DROP - 1`, `-NF_ACCEPT - 1`; `XT_RETURN`.
const DROP: i32 = -1;
const ACCEPT: i32 = -2;
const RETURN: i32 = -5;
/// Tables and hooks that a received datagram passes, in order: raw, mangle and nat at PREROUTING; mangle, filter,
/// security and nat at INPUT.
const PASSED: [(&str, usize); 7] =
    [("raw", 0), ("mangle", 0), ("nat", 0), ("mangle", 1), ("filter", 1), ("security", 1), ("nat", 1)];
/// Hooks by number (`NF_INET_*`).
const HOOKS: [&str; 5] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    V4,
    V6,
}

/// Offsets of an entry's parts (`struct ipt_entry`, `struct ip6t_entry`).
struct Layout {
    /// Bytes of an address.
    address: usize,
    /// The interface names: in, out, and their masks, 16 bytes each.
    interfaces: usize,
    protocol: usize,
    flags: usize,
    inverted: usize,
    /// Offsets of the target and of the next entry: two bytes each.
    target: usize,
    /// Size in bytes of the entry without matches.
    size: usize,
}

const V4: Layout =
    Layout { address: 4, interfaces: 16, protocol: 80, flags: 82, inverted: 83, target: 88, size: 112 };
const V6: Layout =
    Layout { address: 16, interfaces: 64, protocol: 128, flags: 131, inverted: 132, target: 140, size: 168 };

/// Bits of `inverted`, the same in both (`IPT_INV_*`).
const NOT_IN: u8 = 0x01;
const NOT_OUT: u8 = 0x02;
const NOT_SOURCE: u8 = 0x08;
const NOT_DESTINATION: u8 = 0x10;
const NOT_FRAGMENT: u8 = 0x20;
const NOT_PROTOCOL: u8 = 0x40;

impl Version {
    fn layout(self) -> &'static Layout {
        match self {
            Self::V4 => &V4,
            Self::V6 => &V6,
        }
    }

    fn filter(self) -> &'static str {
        match self {
            Self::V4 => "iptables",
            Self::V6 => "ip6tables",
        }
    }
}

/// One table as read from the kernel.
#[derive(Debug)]
pub(super) struct RawTable {
    version: Version,
    name: String,
    /// A bit per hook of the table.
    hooks: u32,
    /// By hook: the offset of its chain.
    begins: [u32; 5],
    /// By hook: the offset of its policy entry.
    policies: [u32; 5],
    entries: Vec<u8>,
}

/// The tables present in the kernel, each once; empty without ip_tables.
pub(super) fn read(version: Version) -> Result<Vec<RawTable>, String> {
    let list = match version {
        Version::V4 => "/proc/thread-self/net/ip_tables_names",
        Version::V6 => "/proc/thread-self/net/ip6_tables_names",
    };
    let names = match udpath_files::kernel::text(list) {
        Ok(names) => names,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("cannot read which tables {} has: {error}", version.filter())),
    };
    let wanted = |name: &&str| PASSED.iter().any(|(table, _)| table == name);
    let table = |name: &str| {
        let cannot = |error| format!("cannot read table {name} of {}: {error}", version.filter());
        let read = sys::entries(version == Version::V6, name).map_err(cannot)?;
        let sys::Entries { hooks, begins, policies, entries } = read;
        Ok(RawTable { version, name: name.to_owned(), hooks, begins, policies, entries })
    };
    let mut all: Vec<RawTable> = names.lines().filter(wanted).map(table).collect::<Result<_, String>>()?;
    let order = |name: &str| PASSED.iter().position(|(table, _)| *table == name);
    all.sort_by_key(|table| order(&table.name));
    Ok(all)
}

impl RawTable {
    /// The rules that would have applied to the datagram.
    pub(super) fn judged(&self, datagram: &Datagram) -> Vec<Finding> {
        if datagram.address.is_ipv4() != (self.version == Version::V4) {
            return Vec::new();
        }
        let names = self.names();
        let mut chains: BTreeMap<&str, Chain> = BTreeMap::new();
        let mut current = "";
        for (at, entry) in self.entries() {
            if let Some(name) = names.get(&at) {
                current = name;
            }
            if let Some(mut rule) = self.rule(entry, &names, datagram) {
                if self.is_policy(at) {
                    if rule.action == Action::Accept {
                        continue;
                    }
                    rule.text = rule.text.replace("-j ", "policy ");
                }
                chains.entry(current).or_default().rules.push(rule);
            }
        }
        let table = Table { filter: self.version.filter(), name: self.name.clone(), chains };
        let hooks = PASSED.iter().filter(|(name, hook)| *name == self.name && self.hooks & 1 << hook != 0);
        // The policy is the last rule of the chain.
        hooks.flat_map(|(_, hook)| table.walked(HOOKS[*hook], false)).collect()
    }

    fn is_policy(&self, at: usize) -> bool {
        (0..HOOKS.len()).any(|hook| self.hooks & 1 << hook != 0 && self.policies[hook] as usize == at)
    }

    /// Entries and their offsets, up to the first invalid one.
    fn entries(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let layout = self.version.layout();
        let mut at = 0;
        std::iter::from_fn(move || {
            let rest = self.entries.get(at..)?;
            let next = usize::from(half(rest, layout.target + 2)?);
            let entry = rest.get(..next).filter(|entry| entry.len() >= layout.size)?;
            let begins = at;
            at += next;
            Some((begins, entry))
        })
    }

    /// Chains by the offset of their first rule.
    fn names(&self) -> BTreeMap<usize, String> {
        let mut names = BTreeMap::new();
        for (hook, name) in HOOKS.iter().enumerate().filter(|(hook, _)| self.hooks & 1 << hook != 0) {
            names.insert(self.begins[hook] as usize, (*name).to_owned());
        }
        for (at, entry) in self.entries() {
            if let Some((name, data)) = self.target(entry)
                && name == "ERROR"
            {
                names.insert(at + entry.len(), text(data));
            }
        }
        names
    }

    /// An entry's target: its name and data.
    fn target<'a>(&self, entry: &'a [u8]) -> Option<(String, &'a [u8])> {
        let at = usize::from(half(entry, self.version.layout().target)?);
        part(entry.get(at..)?)
    }

    /// [`None`] for an entry that only marks the start of a chain, and for one that cannot match.
    fn rule(&self, entry: &[u8], names: &BTreeMap<usize, String>, datagram: &Datagram) -> Option<Rule> {
        let (target, data) = self.target(entry)?;
        if target == "ERROR" {
            return None;
        }
        let (mut applies, mut words) = self.head(entry, datagram);
        let layout = self.version.layout();
        let end = usize::from(half(entry, layout.target)?);
        let mut matches = entry.get(layout.size..end)?;
        while let Some((name, data)) = part(matches) {
            let (met, said) = match_of(&name, data, datagram);
            applies = applies.min(met);
            words.push(said);
            matches = &matches[PART + data.len()..];
        }
        if applies == Applies::No {
            return None;
        }
        let goes = self.flag(entry, "goto");
        let (action, said) = match target.as_str() {
            // The standard target has no name.
            "" => match word(data, 0)?.cast_signed() {
                DROP => (Action::End, "-j DROP".to_owned()),
                ACCEPT => (Action::Accept, "-j ACCEPT".to_owned()),
                RETURN => (Action::Return, "-j RETURN".to_owned()),
                to => {
                    let to = names.get(&usize::try_from(to).ok()?).cloned().unwrap_or_default();
                    let said = format!("{} {to}", if goes { "-g" } else { "-j" });
                    (if goes { Action::Goto(to) } else { Action::Jump(to) }, said)
                }
            },
            name => (target_of(name), format!("-j {name}")),
        };
        words.push(said);
        let text = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        Some(Rule { applies, action, text, handle: None })
    }

    fn flag(&self, entry: &[u8], name: &str) -> bool {
        let bit = match (self.version, name) {
            (Version::V4, "fragment") => 0x01,
            (Version::V4, "goto") => 0x02,
            (Version::V6, "protocol") => 0x01,
            (Version::V6, "goto") => 0x04,
            _ => 0,
        };
        entry.get(self.version.layout().flags).is_some_and(|flags| flags & bit != 0)
    }

    /// The entry's own conditions: addresses, interfaces, protocol.
    fn head(&self, entry: &[u8], datagram: &Datagram) -> (Applies, Vec<String>) {
        let layout = self.version.layout();
        let (n, mut applies, mut words) = (layout.address, Applies::Yes, Vec::new());
        let inverted = |bit| entry[layout.inverted] & bit != 0;
        let mut asks = |met: Applies, inverted: bool, said: String| {
            applies = applies.min(if inverted { not(met) } else { met });
            words.push(if inverted { format!("! {said}") } else { said });
        };
        // Source, destination, and their masks.
        let unknown = || Bits::unknown(n);
        let own = match datagram.ip() {
            Some(IpAddr::V4(ip)) => Bits::known(&ip.octets()),
            Some(IpAddr::V6(ip)) => Bits::known(&ip.octets()),
            None => unknown(),
        };
        for (index, option, bits, bit) in [(0, "-s", unknown(), NOT_SOURCE), (1, "-d", own, NOT_DESTINATION)]
        {
            let (address, mask) = (&entry[index * n..][..n], &entry[(index + 2) * n..][..n]);
            if mask.iter().any(|byte| *byte != 0) || inverted(bit) {
                let ones: u32 = mask.iter().map(|byte| byte.count_ones()).sum();
                let met = bits.masked(mask, &vec![0; n]).equals(address);
                asks(met, inverted(bit), format!("{option} {}/{ones}", shown(address)));
            }
        }
        let name = |index: usize| &entry[layout.interfaces + index * 16..][..16];
        let here = match datagram.index {
            Some(_) => {
                let mut bits = Bits::known(&[0; 16]);
                bits.put(0, datagram.interface.as_bytes());
                bits
            }
            None => Bits::unknown(16),
        };
        // A received datagram has no outgoing interface yet.
        for (index, option, bits, bit) in [(0, "-i", here, NOT_IN), (1, "-o", Bits::known(&[0; 16]), NOT_OUT)]
        {
            let mask = name(index + 2);
            if mask.iter().any(|byte| *byte != 0) {
                // For "eth+" the mask has three bytes.
                let wanted: Vec<u8> = name(index).iter().zip(mask).map(|(byte, mask)| byte & mask).collect();
                let met = bits.masked(mask, &[0; 16]).equals(&wanted);
                let shown = text(&wanted);
                let more = if mask.get(shown.len()) == Some(&0) { "+" } else { "" };
                asks(met, inverted(bit), format!("{option} {shown}{more}"));
            }
        }
        let protocol = half(entry, layout.protocol).unwrap_or(0);
        let asked = self.version == Version::V4 && protocol != 0 || self.flag(entry, "protocol");
        if asked {
            let udp = i32::from(protocol) == libc::IPPROTO_UDP;
            let said = if udp { "-p udp".to_owned() } else { format!("-p {protocol}") };
            asks(if udp || protocol == 0 { Applies::Yes } else { Applies::No }, inverted(NOT_PROTOCOL), said);
        }
        if self.flag(entry, "fragment") {
            asks(Applies::No, inverted(NOT_FRAGMENT), "-f".into());
        }
        (applies, words)
    }
}

/// The first match or target in the bytes: its name and data.
fn part(bytes: &[u8]) -> Option<(String, &[u8])> {
    let size = usize::from(half(bytes, 0)?);
    let name = text(bytes.get(2..31)?);
    Some((name, bytes.get(PART..size)?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Text up to the first zero.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn shown(address: &[u8]) -> String {
    let ipv4 = <[u8; 4]>::try_from(address).map(IpAddr::from);
    let any = ipv4.or_else(|_| <[u8; 16]>::try_from(address).map(IpAddr::from));
    any.map_or_else(|_| "?".to_owned(), |ip| ip.to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn datagram() -> Datagram {
        let address = "10.0.0.2:7000".parse().unwrap();
        Datagram { interface: "eth0".into(), index: Some(2), address, bridged: false }
    }

    proptest! {
        #[test]
        fn no_table_makes_it_panic(
            entries in prop::collection::vec(any::<u8>(), 0..600),
            ends in prop::collection::vec((0_usize..600, 100_u16..300), 0..4),
            begins: [u32; 5],
            policies: [u32; 5],
            v6: bool,
        ) {
            let version = if v6 { Version::V6 } else { Version::V4 };
            let mut entries = entries;
            // Some valid sizes, or little of it would be read.
            for (at, size) in ends {
                if let Some(place) = entries.get_mut(at..at + 2) {
                    place.copy_from_slice(&size.to_ne_bytes());
                }
            }
            let table = RawTable { version, name: "filter".into(), hooks: 2, begins, policies, entries };
            let _ = table.judged(&datagram());
            let mut other = datagram();
            other.address = "[fd00::2]:7000".parse().unwrap();
            let _ = table.judged(&other);
        }
    }
}
