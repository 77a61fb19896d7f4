//! The sysctls that are known to be harmless, with the values that each accepts: they make traffic slower or faster, and
//! let nobody reach more than before. All others need consent.

use crate::bytes::{bytes, count};

/// The values of a sysctl.
#[derive(Debug, Clone, Copy)]
pub(super) enum Accepts {
    /// Bytes, which may be written with K, M or G; an `int` of the kernel.
    Bytes,
    /// A whole number of this range.
    Number(u64, u64),
    /// 0 or 1.
    Switch,
    /// Three numbers, ascending.
    Three,
    /// The first and the last port.
    Ports,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A mask of CPUs, which its row parses.
    Cpus,
}

use Accepts::{Bytes, Cpus, Number, OneOf, Ports, Switch, Three};

/// The largest `int`.
const INT: u64 = i32::MAX as u64;

/// Paths below /proc/sys, `*` for one part: an interface. Ranges are those that every supported kernel accepts.
const KNOWN: &[(&str, Accepts)] = &[
    ("kernel/numa_balancing", Number(0, 3)),
    ("kernel/timer_migration", Switch),
    ("net/core/busy_poll", Number(0, INT)),
    ("net/core/busy_read", Number(0, INT)),
    (
        "net/core/default_qdisc",
        OneOf(&["pfifo_fast", "fq", "fq_codel", "fq_pie", "pfifo", "bfifo", "codel", "pie", "cake", "sfq"]),
    ),
    ("net/core/dev_weight", Number(1, INT)),
    ("net/core/dev_weight_rx_bias", Number(1, INT)),
    ("net/core/dev_weight_tx_bias", Number(1, INT)),
    ("net/core/flow_limit_cpu_bitmap", Cpus),
    ("net/core/flow_limit_table_len", Number(1, INT)),
    ("net/core/gro_normal_batch", Number(1, INT)),
    ("net/core/netdev_budget", Number(1, INT)),
    ("net/core/netdev_budget_usecs", Number(0, INT)),
    ("net/core/netdev_max_backlog", Number(0, INT)),
    ("net/core/netdev_tstamp_prequeue", Switch),
    ("net/core/optmem_max", Bytes),
    ("net/core/rmem_default", Bytes),
    ("net/core/rmem_max", Bytes),
    ("net/core/rps_default_mask", Cpus),
    // `rps_sock_flow_sysctl` of net/core/sysctl_net_core.c refuses more.
    ("net/core/rps_sock_flow_entries", Number(0, 1 << 29)),
    ("net/core/skb_defer_max", Number(0, INT)),
    ("net/core/wmem_default", Bytes),
    ("net/core/wmem_max", Bytes),
    ("net/ipv4/ip_default_ttl", Number(1, 255)),
    ("net/ipv4/ip_early_demux", Switch),
    ("net/ipv4/ip_local_port_range", Ports),
    ("net/ipv4/ipfrag_high_thresh", Bytes),
    ("net/ipv4/neigh/*/gc_thresh1", Number(0, INT)),
    ("net/ipv4/neigh/*/gc_thresh2", Number(0, INT)),
    ("net/ipv4/neigh/*/gc_thresh3", Number(0, INT)),
    ("net/ipv4/neigh/*/unres_qlen", Number(0, INT)),
    ("net/ipv4/neigh/*/unres_qlen_bytes", Bytes),
    ("net/ipv4/udp_early_demux", Switch),
    ("net/ipv4/udp_mem", Three),
    ("net/ipv4/udp_rmem_min", Bytes),
    ("net/ipv4/udp_wmem_min", Bytes),
    ("net/ipv6/ip6frag_high_thresh", Bytes),
    ("net/ipv6/neigh/*/gc_thresh1", Number(0, INT)),
    ("net/ipv6/neigh/*/gc_thresh2", Number(0, INT)),
    ("net/ipv6/neigh/*/gc_thresh3", Number(0, INT)),
    ("net/ipv6/neigh/*/unres_qlen", Number(0, INT)),
    ("net/ipv6/neigh/*/unres_qlen_bytes", Bytes),
    ("net/netfilter/nf_conntrack_buckets", Number(1, INT)),
    ("net/netfilter/nf_conntrack_max", Number(1, INT)),
];

/// What a known sysctl accepts; [`None`] for all others.
pub(super) fn known(path: &str) -> Option<Accepts> {
    let same = |pattern: &str| {
        let (mut parts, mut wanted) = (path.split('/'), pattern.split('/'));
        loop {
            match (parts.next(), wanted.next()) {
                (None, None) => return true,
                (Some(part), Some(want)) if part == want || want == "*" => {}
                _ => return false,
            }
        }
    };
    KNOWN.iter().find(|(pattern, _)| same(pattern)).map(|(_, accepts)| *accepts)
}

impl Accepts {
    /// The text as it is written.
    ///
    /// # Errors
    /// It is not accepted; what is.
    pub(super) fn fitting(self, text: &str) -> Result<String, String> {
        let numbers: Option<Vec<u64>> = text.split(' ').map(count).collect();
        let number = || numbers.as_deref().and_then(|all| if let [one] = all { Some(*one) } else { None });
        let fits = match self {
            Bytes => bytes(text).filter(|bytes| *bytes <= INT).map(|bytes| bytes.to_string()),
            Number(least, most) => {
                number().filter(|one| (least..=most).contains(one)).map(|one| one.to_string())
            }
            Switch => number().filter(|one| *one <= 1).map(|one| one.to_string()),
            Three => numbers
                .as_deref()
                .filter(|all| all.len() == 3 && all.is_sorted() && all[2] <= INT)
                .map(|_| text.to_owned()),
            Ports => numbers
                .as_deref()
                .filter(|all| matches!(all, [first, last] if 1 <= *first && first <= last && *last <= 65_535))
                .map(|_| text.to_owned()),
            OneOf(words) => words.contains(&text).then(|| text.to_owned()),
            Cpus => Some(text.to_owned()),
        };
        fits.ok_or_else(|| match self {
            Bytes => format!("bytes up to {INT}, with K, M or G, as in 8M"),
            Number(least, most) => format!("a whole number, {least} to {most}"),
            Switch => "0 or 1".to_owned(),
            Three => "three whole numbers, ascending, as in 1000 2000 3000".to_owned(),
            Ports => "two ports, the first and the last, as in 32768 60999".to_owned(),
            OneOf(words) => format!("one of {}", words.join(", ")),
            Cpus => "a list of CPUs".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_one_part() {
        assert!(known("net/ipv4/neigh/eth0.100/gc_thresh3").is_some());
        for other in
            ["net/ipv4/neigh/gc_thresh3", "net/ipv4/neigh/a/b/gc_thresh3", "net/core", "net/core/rmem_max/x"]
        {
            assert!(known(other).is_none(), "{other}");
        }
    }
}
