//! Neighbour tables (ARP, IPv6 neighbour discovery): what did not fit, `/proc/net/stat/arp_cache` and `ndisc_cache`;
//! and the neighbours of this network namespace that do not answer.
//!
//! The tables are the machine's: all network namespaces share their limits (`net.ipv4.neigh.default.gc_thresh3`), and
//! the counters are in the initial one alone.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text::{Malformed, optional};
use crate::{Missing, Source};

/// The neighbour tables.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Neighbours {
    /// Of IPv4.
    pub v4: Option<NeighbourCounters>,
    /// Of IPv6.
    pub v6: Option<NeighbourCounters>,
    /// The neighbours of this namespace, by what the kernel knows of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries: Option<NeighbourEntries>,
}

/// Neighbours by their state (`NUD_*` of linux/neighbour.h).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeighbourEntries {
    /// Their link-layer address is known, or none is needed.
    pub resolved: u64,
    /// The kernel waits for their first answer, and keeps packets for them (`NUD_INCOMPLETE`); of an interval, at its
    /// beginning or end, whichever has more.
    pub incomplete: u64,
    /// They did not answer (`NUD_FAILED`).
    pub failed: u64,
}

/// Counters of one table, of all CPUs together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct NeighbourCounters {
    /// Entries now.
    pub entries: u64,
    /// Entries that could not be made because the table was full (`table_fulls`): their packets are lost.
    pub full: u64,
    /// Packets dropped while they waited for an address to be resolved (`unresolved_discards`).
    pub unresolved: u64,
}

impl NeighbourCounters {
    /// The increase since an earlier snapshot of the same boot; 0 where a counter went down. The entries are the
    /// current ones.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            entries: self.entries,
            full: self.full.saturating_sub(earlier.full),
            unresolved: self.unresolved.saturating_sub(earlier.unresolved),
        }
    }
}

/// Reads the counters. A kernel without IPv6 has only one table.
pub fn read(source: &dyn Source, missing: &mut Vec<Missing>) -> Neighbours {
    let mut table = |file: &str| {
        let path = format!("/proc/net/stat/{file}");
        optional(source, missing, "counters of neighbours", &path, counters)
    };
    let (v4, v6) = (table("arp_cache"), table("ndisc_cache"));
    Neighbours { v4, v6, entries: source.neighbours().ok().map(|entries| entries.value) }
}

/// A line of names, then a line for each CPU, in hexadecimal. The entries are the same on every line.
fn counters(text: &str) -> Result<NeighbourCounters, Malformed> {
    let mut lines = text.lines().enumerate();
    let names = lines.next().map_or("", |(_, line)| line);
    let column = |name: &str| names.split_ascii_whitespace().position(|known| known == name);
    let (entries, full) = (column("entries"), column("table_fulls"));
    let unresolved = column("unresolved_discards");
    let mut sum = NeighbourCounters::default();
    for (index, line) in lines {
        let values: Option<Vec<u64>> =
            line.split_ascii_whitespace().map(|word| u64::from_str_radix(word, 16).ok()).collect();
        let values = values.ok_or_else(|| Malformed::new(index, line, "not hexadecimal numbers"))?;
        // Linux 2.6.32 lacks the last columns.
        let value = |column: Option<usize>| column.and_then(|at| values.get(at)).copied().unwrap_or(0);
        sum.entries = value(entries);
        sum.full = sum.full.saturating_add(value(full));
        sum.unresolved = sum.unresolved.saturating_add(value(unresolved));
    }
    if entries.is_none() {
        return Err(Malformed::new(0, names, "no column 'entries'"));
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_added_up_and_entries_are_not() {
        let text = "entries  allocs   destroys hash_grows lookups  hits     res_failed rcv_probes_mcast rcv_probes_ucast \
                    periodic_gc_runs forced_gc_runs unresolved_discards table_fulls
00000010 00000003 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000002 0000000a
00000010 00000003 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000001 00000005
";
        let counted = counters(text).unwrap();
        assert_eq!((counted.entries, counted.full, counted.unresolved), (16, 15, 3));
        let then = NeighbourCounters { entries: 3, full: 10, unresolved: 9 };
        assert_eq!(counted.since(&then), NeighbourCounters { entries: 16, full: 5, unresolved: 0 });
        assert_eq!(counters("entries\n0a\n").unwrap().entries, 10);
        assert!(counters("").is_err() && counters("entries\nxyz\n").is_err());
    }
}
