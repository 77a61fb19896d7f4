//! The sysctls that are known to be harmless, with the values that each accepts: they make traffic slower or faster,
//! and let nobody reach more than before. All others need consent, and so does a value of these that cuts traffic off.

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

/// Those of them that are harmless only one way: what a smaller value takes away, for everybody on the machine.
const NOT_DOWN: &[(&str, &str)] = &[
    ("net/ipv4/ip_default_ttl", "packets that may pass fewer routers do not reach distant hosts"),
    (
        "net/ipv4/ip_local_port_range",
        "with fewer source ports, replies are easier to forge: a resolver's cache can be poisoned",
    ),
    ("net/ipv4/ipfrag_high_thresh", "fragments that do not fit are dropped"),
    ("net/ipv4/neigh/*/gc_thresh3", "neighbours that do not fit cannot be reached"),
    ("net/ipv4/udp_mem", "datagrams of all programs that do not fit are dropped"),
    ("net/ipv6/ip6frag_high_thresh", "fragments that do not fit are dropped"),
    ("net/ipv6/neigh/*/gc_thresh3", "neighbours that do not fit cannot be reached"),
    ("net/netfilter/nf_conntrack_max", "packets of connections that do not fit are dropped"),
];

/// What a known sysctl accepts; [`None`] for all others.
pub(super) fn known(path: &str) -> Option<Accepts> {
    KNOWN.iter().find(|(pattern, _)| is_of(path, pattern)).map(|(_, accepts)| *accepts)
}

/// What a change of a known sysctl takes away. `from`: [`None`] if nobody knows what there is.
pub(super) fn takes_away(path: &str, from: Option<&str>, to: &str) -> Option<&'static str> {
    let (_, what) = NOT_DOWN.iter().find(|(pattern, _)| is_of(path, pattern))?;
    let numbers = |text: &str| text.split([' ', '\t']).map(count).collect::<Option<Vec<u64>>>();
    let kept = match (from.and_then(numbers), numbers(to)) {
        (Some(from), Some(to)) => match (known(path), from.as_slice(), to.as_slice()) {
            (Some(Ports), [first, last], [new_first, new_last]) => new_first <= first && new_last >= last,
            (_, from, to) => from.len() == to.len() && from.iter().zip(to).all(|(from, to)| to >= from),
        },
        _ => false,
    };
    (!kept).then_some(*what)
}

/// Whether a path is of a pattern, in which `*` is one part.
fn is_of(path: &str, pattern: &str) -> bool {
    let (mut parts, mut wanted) = (path.split('/'), pattern.split('/'));
    loop {
        match (parts.next(), wanted.next()) {
            (None, None) => return true,
            (Some(part), Some(want)) if part == want || want == "*" => {}
            _ => return false,
        }
    }
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

    #[test]
    fn less_is_not_harmless_where_traffic_is_cut_off() {
        for (path, from, less, more) in [
            ("net/ipv4/ip_default_ttl", "64", "63", "255"),
            ("net/ipv4/ip_local_port_range", "32768 60999", "32769 60999", "32768 61000"),
            ("net/ipv4/ip_local_port_range", "32768\t60999", "10000 60998", "1024 65535"),
            ("net/ipv4/udp_mem", "1 2 3", "1 2 2", "1 2 4"),
            ("net/ipv4/udp_mem", "1\t2\t3", "0 5 6", "2 2 3"),
            ("net/ipv6/neigh/default/gc_thresh3", "1024", "1023", "1024"),
            ("net/netfilter/nf_conntrack_max", "262144", "1", "262145"),
            ("net/ipv6/ip6frag_high_thresh", "4194304", "4194303", "5242880"),
        ] {
            assert!(takes_away(path, Some(from), less).is_some(), "{path} {less}");
            assert_eq!(takes_away(path, Some(from), more), None, "{path} {more}");
            assert_eq!(takes_away(path, Some(from), from), None, "{path} {from}");
            assert!(takes_away(path, None, more).is_some(), "{path}: nobody knows from what");
        }
        assert_eq!(takes_away("net/core/rmem_max", Some("2"), "1"), None);
        for (pattern, _) in NOT_DOWN {
            assert!(known(&pattern.replace('*', "eth0")).is_some(), "{pattern}");
        }
    }
}
