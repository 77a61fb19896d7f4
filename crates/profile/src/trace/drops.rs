//! Packets that the kernel dropped: why, where, and for which port.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use udpath_bpf::trace::{self as bpf, DropCounts};
use udpath_files::kernel;
use udpath_host::btf;

use crate::symbols::kernel::Kernel;

/// Most entries kept; the rest is one sum. A flood to all ports would otherwise make one entry each.
const MOST_LINES: usize = 500;

/// Dropped packets.
#[derive(Debug, Clone, PartialEq, Eq, Default, JsonSchema, Serialize, Deserialize)]
pub struct Drops {
    /// By reason, place and port, most first.
    pub lines: Vec<Drop>,
    /// The sum of those not listed.
    pub others: u64,
    /// Drops not counted: no room for their place.
    pub no_room: u64,
}

/// Packets dropped for one reason at one place.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Drop {
    /// The running kernel's name without `SKB_DROP_REASON_`: NO_SOCKET, SOCKET_RCVBUFF. NOT_SPECIFIED if the kernel
    /// gives no reason; then the function is the clue.
    pub reason: String,
    /// The function that dropped them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub function: Option<String>,
    /// Their direction.
    pub way: Way,
    /// The UDP port on this machine: the destination port of received ones, the source port of sent ones. `None` for
    /// other protocols, or if there were too many ports.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub port: Option<u16>,
    /// Number of packets. A packet of many segments counts once.
    pub packets: u64,
}

/// The direction of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Incoming UDP.
    Received,
    /// Outgoing UDP.
    Sent,
    /// Not UDP, or its headers could not be read.
    Other,
}

impl Drops {
    pub(super) fn new(counts: &DropCounts, kernel: &Kernel, reasons: &Reasons) -> Self {
        let mut sums: HashMap<(String, Option<String>, Way, Option<u16>), u64> = HashMap::new();
        for drop in &counts.drops {
            // The address is the one after the call.
            let function =
                kernel.frame(drop.location.saturating_sub(1)).map(|frame| frame.function.to_owned());
            let way = match drop.way {
                bpf::Way::Received => Way::Received,
                bpf::Way::Sent => Way::Sent,
                bpf::Way::Other => Way::Other,
            };
            let port = (drop.port != 0).then_some(drop.port);
            *sums.entry((reasons.name(drop.reason), function, way, port)).or_default() += drop.packets;
        }
        let mut lines: Vec<Drop> = sums
            .into_iter()
            .map(|((reason, function, way, port), packets)| Drop { reason, function, way, port, packets })
            .collect();
        lines.sort_by(|a, b| {
            let key = |drop: &Drop| (drop.reason.clone(), drop.port, drop.way, drop.function.clone());
            b.packets.cmp(&a.packets).then_with(|| key(a).cmp(&key(b)))
        });
        let others = lines.drain(MOST_LINES.min(lines.len())..).map(|drop| drop.packets).sum();
        Self { lines, others, no_room: counts.no_room }
    }

    /// All counted packets.
    #[must_use]
    pub fn packets(&self) -> u64 {
        let lines = self.lines.iter().map(|drop| drop.packets);
        lines.chain([self.others, self.no_room]).fold(0, u64::saturating_add)
    }

    /// Packets by reason, most first.
    #[must_use]
    pub fn by_reason(&self) -> Vec<(&str, u64)> {
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for drop in &self.lines {
            let sum = sums.entry(&drop.reason).or_default();
            *sum = sum.saturating_add(drop.packets);
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|(_, packets)| std::cmp::Reverse(*packets));
        sums
    }
}

/// The running kernel's names of drop reasons: `enum skb_drop_reason` differs between versions.
#[derive(Debug, Clone, Default)]
pub(super) struct Reasons {
    core: BTreeMap<u32, String>,
    /// Subsystems with reasons of their own, by number.
    parts: BTreeMap<u32, String>,
    /// Their reasons, by full number.
    own: BTreeMap<u32, String>,
}

/// Bits of a reason's number within its subsystem: `SKB_DROP_REASON_SUBSYS_SHIFT`.
const PART_SHIFT: u32 = 16;

impl Reasons {
    /// The names for these drops. Not read if nothing was dropped: the kernel's types are megabytes.
    pub(super) fn of(counts: &DropCounts) -> Self {
        if counts.drops.is_empty() { Self::default() } else { Self::running() }
    }

    /// Reasons of the running kernel; if it has no names, numbers are shown.
    fn running() -> Self {
        let folder = Path::new(btf::FOLDER);
        let Ok(kernel) = kernel::bytes(folder.join("vmlinux")) else { return Self::default() };
        let mut reasons = btf::enumerators(&kernel).map(|all| Self::parse(&all)).unwrap_or_default();
        for module in reasons.modules() {
            let file = kernel::bytes(folder.join(module)).ok();
            if let Some(all) = file.and_then(|file| btf::module_enumerators(&file, &kernel)) {
                reasons.add(&all);
            }
        }
        reasons
    }

    fn parse(all: &BTreeMap<String, u32>) -> Self {
        let mut reasons = Self::default();
        for (name, value) in all {
            let (name, value) = (name.as_str(), *value);
            if let Some(part) = name.strip_prefix("SKB_DROP_REASON_SUBSYS_") {
                if !matches!(part, "CORE" | "NUM" | "MASK") {
                    reasons.parts.insert(value, part.to_owned());
                }
            } else if let Some(reason) = name.strip_prefix("SKB_DROP_REASON_") {
                // One past the last reason.
                if reason != "MAX" {
                    reasons.core.insert(value, reason.to_owned());
                }
            } else if matches!(name, "SKB_CONSUMED" | "SKB_NOT_DROPPED_YET") {
                reasons.core.insert(value, name.trim_start_matches("SKB_").to_owned());
            }
        }
        // Of subsystems that are not modules here.
        reasons.add(all);
        reasons
    }

    fn add(&mut self, all: &BTreeMap<String, u32>) {
        let is_of_a_part = |value: u32| self.parts.contains_key(&(value >> PART_SHIFT));
        let own = all.iter().filter(|(name, value)| name.contains("DROP_") && is_of_a_part(**value));
        let own: Vec<_> = own.map(|(name, value)| (*value, name.clone())).collect();
        self.own.extend(own);
    }

    /// Names of the modules of the subsystems: OPENVSWITCH, MAC80211_UNUSABLE.
    fn modules(&self) -> Vec<String> {
        self.parts.values().filter_map(|part| Some(part.split('_').next()?.to_lowercase())).collect()
    }

    fn name(&self, reason: u32) -> String {
        if let Some(name) = self.core.get(&reason).or_else(|| self.own.get(&reason)) {
            return name.clone();
        }
        match self.parts.get(&(reason >> PART_SHIFT)) {
            Some(part) => format!("{part} {}", reason & ((1 << PART_SHIFT) - 1)),
            None => format!("reason {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use udpath_bpf::trace::SkbDrop;

    use super::*;

    fn reasons() -> Reasons {
        let all = [
            ("SKB_CONSUMED", 1),
            ("SKB_DROP_REASON_NOT_SPECIFIED", 2),
            ("SKB_DROP_REASON_NO_SOCKET", 3),
            ("SKB_DROP_REASON_MAX", 4),
            ("SKB_DROP_REASON_SUBSYS_CORE", 0),
            ("SKB_DROP_REASON_SUBSYS_OPENVSWITCH", 2),
            ("SKB_DROP_REASON_SUBSYS_NUM", 3),
            ("SKB_DROP_REASON_SUBSYS_MASK", 0xffff_0000),
            ("OVS_DROP_LAST_ACTION", 0x2_0001),
            ("UNRELATED", 0x2_0002),
        ];
        Reasons::parse(&all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    #[test]
    fn reasons_have_the_kernels_names() {
        let reasons = reasons();
        let names = [1, 2, 3, 4, 0x2_0001, 0x2_0002, 0x3_0001].map(|reason| reasons.name(reason));
        let wanted = [
            "CONSUMED",
            "NOT_SPECIFIED",
            "NO_SOCKET",
            "reason 4",
            "OVS_DROP_LAST_ACTION",
            "OPENVSWITCH 2",
            "reason 196609",
        ];
        assert_eq!(names, wanted);
        assert_eq!(reasons.modules(), ["openvswitch"]);
    }

    #[test]
    fn lines_are_joined_and_sorted() {
        let kernel = Kernel::parse("1000 t udp_rcv\n2000 t icmp_rcv\n");
        let drop = |location, reason, port, packets| SkbDrop {
            location,
            reason,
            way: bpf::Way::Received,
            port,
            packets,
        };
        let drops = vec![
            drop(0x1010, 3, 53, 4),
            drop(0x1020, 3, 53, 5),
            drop(0x2000, 2, 0, 6),
            drop(0x2004, 3, 7, 1),
        ];
        let found = Drops::new(&DropCounts { drops, no_room: 2 }, &kernel, &reasons());
        let shown: Vec<_> = found
            .lines
            .iter()
            .map(|drop| (drop.reason.as_str(), drop.function.as_deref(), drop.port, drop.packets))
            .collect();
        // An address right after a function belongs to a call by its last instruction.
        let wanted = [
            ("NO_SOCKET", Some("udp_rcv"), Some(53), 9),
            ("NOT_SPECIFIED", Some("udp_rcv"), None, 6),
            ("NO_SOCKET", Some("icmp_rcv"), Some(7), 1),
        ];
        assert_eq!(shown, wanted);
        assert_eq!((found.packets(), found.by_reason()), (18, vec![("NO_SOCKET", 10), ("NOT_SPECIFIED", 6)]));
    }

    #[test]
    fn the_running_kernel_names_its_reasons() {
        let reasons = Reasons::running();
        assert_eq!(reasons.core.get(&2).map(String::as_str), Some("NOT_SPECIFIED"));
        assert!(reasons.core.values().any(|name| name == "SOCKET_RCVBUFF"));
    }
}
