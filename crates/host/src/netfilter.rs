//! Netfilter between device and socket, rules and connection tracking: iptables and connection tracking from procfs,
//! nftables from the kernel's answer.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use udpath_steer::CpuSet;

use crate::text::{Malformed, cpu_list, noted, one, optional, parsed};
use crate::{Absence, Fact, Missing, Provenance, Source};

pub use crate::client::hooks::{Hook, HookChain};
pub use crate::client::netfilter::NftChain;

/// Netfilter in this network namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Netfilter {
    /// Tables of iptables that are loaded: `filter`, `raw`, ... Every packet traverses each of them.
    pub iptables: Option<Fact<Vec<String>>>,
    /// Tables of ip6tables.
    pub ip6tables: Option<Fact<Vec<String>>>,
    /// Base chains of nftables; iptables' own are among them with iptables-nft.
    pub nftables: Option<Fact<Vec<NftChain>>>,
    /// Functions that every packet of a family passes, from any registrant, ordered by family, hook and priority. From
    /// Linux 5.14 on, where it is built with NETFILTER_NETLINK_HOOK.
    #[serde(default)]
    pub hooks: Option<Fact<Vec<Hook>>>,
    /// Packet filter modules that are loaded. Built-in ones are not listed.
    pub modules: Vec<String>,
    /// Connection tracking, if the kernel has it.
    pub conntrack: Option<Conntrack>,
}

impl Netfilter {
    /// Whether received packets pass a filter on their way to sockets: functions at a hook, or, on kernels that do not
    /// list those, tables or chains.
    #[must_use]
    pub fn filters_received(&self) -> bool {
        if let Some(hooks) = &self.hooks {
            return hooks.value.iter().any(Hook::sees_received);
        }
        let tables = [&self.iptables, &self.ip6tables].into_iter().flatten();
        let chains = self.nftables.as_ref().is_some_and(|chains| !chains.value.is_empty());
        chains || tables.into_iter().any(|tables| !tables.value.is_empty())
    }
}

/// Connection tracking.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Conntrack {
    /// Connections currently tracked in this namespace. 0: no rule enables tracking, or there was no traffic.
    pub count: u64,
    /// At this count new ones are refused, and their packets dropped.
    pub max: Option<u64>,
    /// Hash buckets.
    pub buckets: Option<u64>,
    /// Counters of each possible CPU.
    pub cpus: BTreeMap<u32, ConntrackCpu>,
}

/// One CPU's counters, 32 bits wide: they wrap. A counter that the kernel lacks is 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct ConntrackCpu {
    /// Packets of a known connection (counted only by some kernels).
    pub found: u32,
    /// Packets that match no connection and may not start one.
    pub invalid: u32,
    /// Connections that lost an insertion race with one of the same addresses.
    pub insert_failed: u32,
    /// Packets dropped because no connection could be created for them.
    pub drop: u32,
    /// Connections ended early to make room.
    pub early_drop: u32,
    /// Bucket walks restarted because another CPU changed the bucket.
    pub search_restart: u32,
    /// Connections refused because their bucket's chain was too long. From 5.15 on.
    pub chain_too_long: u32,
}

impl ConntrackCpu {
    /// The increase since an earlier snapshot of the same boot, wraps included.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            found: self.found.wrapping_sub(earlier.found),
            invalid: self.invalid.wrapping_sub(earlier.invalid),
            insert_failed: self.insert_failed.wrapping_sub(earlier.insert_failed),
            drop: self.drop.wrapping_sub(earlier.drop),
            early_drop: self.early_drop.wrapping_sub(earlier.early_drop),
            search_restart: self.search_restart.wrapping_sub(earlier.search_restart),
            chain_too_long: self.chain_too_long.wrapping_sub(earlier.chain_too_long),
        }
    }
}

/// Modules that identify the kinds of filtering in use; their parts are not listed.
const MODULES: [&str; 17] = [
    "arptable_filter",
    "br_netfilter",
    "ebtables",
    "ip6_tables",
    "ip6table_filter",
    "ip6table_mangle",
    "ip6table_nat",
    "ip6table_raw",
    "ip_tables",
    "ip_vs",
    "iptable_filter",
    "iptable_mangle",
    "iptable_nat",
    "iptable_raw",
    "nf_conntrack",
    "nf_nat",
    "nf_tables",
];

const STAT: &str = "/proc/net/stat/nf_conntrack";
const COUNT: &str = "/proc/sys/net/netfilter/nf_conntrack_count";

/// Reads packet filters and connection tracking.
pub fn read(source: &dyn Source, missing: &mut Vec<Missing>) -> Netfilter {
    let mut tables = |file: &str, what: &str| {
        let path = format!("/proc/net/{file}");
        let names = optional(source, missing, what, &path, |text| Ok(lines(text)))?;
        Some(Fact::new(names, Provenance::File(path)))
    };
    let iptables = tables("ip_tables_names", "tables of iptables");
    let ip6tables = tables("ip6_tables_names", "tables of ip6tables");
    let modules =
        optional(source, missing, "modules of the kernel", "/proc/modules", |text| Ok(modules(text)));
    let conntrack = optional(source, missing, "connection tracking", COUNT, one).map(|count| Conntrack {
        count,
        max: parsed(source, "/proc/sys/net/netfilter/nf_conntrack_max", one).ok(),
        buckets: parsed(source, "/proc/sys/net/netfilter/nf_conntrack_buckets", one).ok(),
        cpus: conntrack_cpus(source, missing),
    });
    let nftables = answered(missing, "chains of nftables", "NFT_MSG_GETCHAIN", source.nft_chains());
    let what = "functions of packet filters";
    let hooks = answered(missing, what, "NFNL_MSG_HOOK_GET", source.netfilter_hooks());
    Netfilter { iptables, ip6tables, nftables, hooks, modules: modules.unwrap_or_default(), conntrack }
}

/// The answer; it is not reported if the kernel does not support it.
fn answered<T>(
    missing: &mut Vec<Missing>,
    what: &str,
    message: &str,
    answer: Result<Fact<T>, Absence>,
) -> Option<Fact<T>> {
    match answer {
        Ok(found) => Some(found),
        Err(Absence::NotSupported | Absence::NotThere | Absence::NotCaptured) => None,
        Err(why) => {
            let from = Provenance::Nftables(message.into());
            missing.push(Missing { what: what.to_owned(), from, why });
            None
        }
    }
}

fn lines(text: &str) -> Vec<String> {
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// The packet filter modules in `/proc/modules`.
pub fn modules(text: &str) -> Vec<String> {
    let names = text.lines().filter_map(|line| line.split(' ').next());
    let mut known: Vec<_> = names.filter(|name| MODULES.contains(name)).map(str::to_owned).collect();
    known.sort_unstable();
    known
}

fn conntrack_cpus(source: &dyn Source, missing: &mut Vec<Missing>) -> BTreeMap<u32, ConntrackCpu> {
    let read = || {
        let rows = parsed(source, STAT, conntrack_rows)?;
        let possible = parsed(source, "/sys/devices/system/cpu/possible", cpu_list)?;
        by_cpu(rows, &possible).map_err(Absence::NotUnderstood)
    };
    match read() {
        Err(Absence::NotThere | Absence::NotCaptured) => BTreeMap::new(),
        other => noted(missing, "connection tracking of each CPU", STAT, other).unwrap_or_default(),
    }
}

/// Rows are those of all possible CPUs, in order; they carry no CPU number.
fn by_cpu(rows: Vec<ConntrackCpu>, possible: &CpuSet) -> Result<BTreeMap<u32, ConntrackCpu>, String> {
    if rows.len() != possible.len() {
        return Err(format!("{STAT} has {} rows for the possible CPUs {possible}", rows.len()));
    }
    Ok(possible.iter().zip(rows).collect())
}

/// `/proc/net/stat/nf_conntrack`: a line of names, then a line of hexadecimal numbers for each CPU. The names differ
/// between kernels: `searched` became `clashres` in 5.10, `delete_list` was removed, `chaintoolong` was added in 5.15.
///
/// # Errors
/// A row without a number for each name.
pub fn conntrack_rows(text: &str) -> Result<Vec<ConntrackCpu>, Malformed> {
    let mut lines = text.lines().enumerate();
    let names: Vec<&str> =
        lines.next().map(|(_, line)| line.split_ascii_whitespace().collect()).unwrap_or_default();
    let row = |(index, line): (usize, &str)| {
        let wrong = || Malformed::new(index, line, "not a hexadecimal number for each name");
        let values = line.split_ascii_whitespace().map(|word| u32::from_str_radix(word, 16));
        let values: Vec<u32> = values.collect::<Result<_, _>>().map_err(|_| wrong())?;
        if values.len() != names.len() {
            return Err(wrong());
        }
        let value = |name: &str| names.iter().position(|known| *known == name).map_or(0, |at| values[at]);
        Ok(ConntrackCpu {
            found: value("found"),
            invalid: value("invalid"),
            insert_failed: value("insert_failed"),
            drop: value("drop"),
            early_drop: value("early_drop"),
            search_restart: value("search_restart"),
            chain_too_long: value("chaintoolong"),
        })
    };
    lines.map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_functions_or_else_tables_and_chains() {
        let fact = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            Some(Fact::new(names, Provenance::File("/proc/net/ip_tables_names".into())))
        };
        let hook = |hook: &str| Hook {
            family: "ip".into(),
            hook: hook.into(),
            device: None,
            priority: 0,
            function: None,
            module: None,
            chain: None,
            program: None,
        };
        let hooks = |hooks: Vec<Hook>| Some(Fact::new(hooks, Provenance::File("made up".into())));
        let none = Netfilter::default();
        assert!(!none.filters_received());
        assert!(!Netfilter { iptables: fact(&[]), ..none.clone() }.filters_received());
        let tables = Netfilter { ip6tables: fact(&["filter"]), ..none };
        assert!(tables.filters_received());
        // The functions are known, and no table has any on the way in.
        let out = Netfilter { hooks: hooks(vec![hook("output"), hook("postrouting")]), ..tables.clone() };
        assert!(!out.filters_received());
        assert!(Netfilter { hooks: hooks(vec![hook("input")]), ..tables }.filters_received());
    }

    #[test]
    fn columns_are_identified_by_name() {
        // 6.18, this machine's header.
        let new = "entries  clashres found new invalid ignore delete chainlength insert insert_failed drop early_drop \
                   icmp_error  expect_new expect_create expect_delete search_restart\n\
                   00000007  00000000 00000000 00000000 0000000a 00000000 00000000 00000000 00000000 00000003 00000004 \
                   00000005 00000000  00000000 00000000 00000000 00000006\n";
        let wanted = ConntrackCpu {
            found: 0,
            invalid: 10,
            insert_failed: 3,
            drop: 4,
            early_drop: 5,
            search_restart: 6,
            chain_too_long: 0,
        };
        assert_eq!(conntrack_rows(new), Ok(vec![wanted]));
        // 3.10, RHEL 7.
        let old = "entries  searched found new invalid ignore delete delete_list insert insert_failed drop early_drop \
                   icmp_error  expect_new expect_create expect_delete search_restart\n\
                   0000001d  00000011 0000abcd 00000000 00000001 00000000 00000000 00000000 00000000 00000000 ffffffff \
                   00000000 00000000  00000000 00000000 00000000 00000002\n";
        let rows = conntrack_rows(old).unwrap();
        assert_eq!((rows[0].found, rows[0].drop, rows[0].search_restart), (0xabcd, u32::MAX, 2));
        assert_eq!(wanted.since(&rows[0]).drop, 5);
        assert!(conntrack_rows("entries found\n00000001\n").is_err());
        assert_eq!(conntrack_rows(""), Ok(Vec::new()));
    }

    #[test]
    fn rows_are_those_of_possible_cpus() {
        let rows = vec![ConntrackCpu::default(); 2];
        assert_eq!(
            by_cpu(rows.clone(), &"0,4".parse().unwrap()).unwrap().keys().copied().collect::<Vec<_>>(),
            [0, 4]
        );
        assert!(
            by_cpu(rows, &"0-3".parse().unwrap()).unwrap_err().ends_with("2 rows for the possible CPUs 0-3")
        );
    }

    #[test]
    fn modules_that_filter() {
        let text =
            "nf_tables 258048 0 - Live 0xffffffffc09a8000\nixgbe 385024 0 - Live 0x0\nip_vs 1 0 - Live 0x0\n";
        assert_eq!(modules(text), ["ip_vs", "nf_tables"]);
    }
}
