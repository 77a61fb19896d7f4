//! UDP counters and memory: `/proc/net/snmp`, `snmp6`, `sockstat` and `net.ipv4.udp_mem`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text::{Malformed, optional, wanted};
use crate::{Missing, Source};

/// UDP of one network namespace. UDP-Lite is left out: it is not used by servers.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Udp {
    /// Over IPv4.
    pub v4: Option<UdpCounters>,
    /// Over IPv6.
    pub v6: Option<UdpCounters>,
    /// The memory of all UDP sockets.
    pub memory: Option<UdpMemory>,
}

/// Counters of one family, as the kernel names them (RFC 4113 and its own).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct UdpCounters {
    /// Datagrams delivered to applications.
    pub in_datagrams: u64,
    /// Datagrams for a port without a socket.
    pub no_ports: u64,
    /// Datagrams not delivered for any other reason; includes the three kinds of errors below.
    pub in_errors: u64,
    /// Datagrams sent.
    pub out_datagrams: u64,
    /// Not delivered: the socket's receive buffer was full.
    pub rcvbuf_errors: u64,
    /// Not sent: no memory, or a full device queue.
    pub sndbuf_errors: u64,
    /// Not delivered: wrong checksum. From 3.10 on.
    pub in_csum_errors: Option<u64>,
    /// Multicast that no socket on the port had joined. From 4.0 on.
    pub ignored_multi: Option<u64>,
    /// Not delivered: the memory of all UDP sockets was exhausted (`net.ipv4.udp_mem`). From 5.11 on; before, included
    /// in `rcvbuf_errors`.
    pub mem_errors: Option<u64>,
}

impl UdpCounters {
    /// The increase since an earlier snapshot of the same boot and namespace; 0 where a counter went down, as after the
    /// namespace was recreated.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let both =
            |now: Option<u64>, then: Option<u64>| now.zip(then).map(|(now, then)| now.saturating_sub(then));
        Self {
            in_datagrams: self.in_datagrams.saturating_sub(earlier.in_datagrams),
            no_ports: self.no_ports.saturating_sub(earlier.no_ports),
            in_errors: self.in_errors.saturating_sub(earlier.in_errors),
            out_datagrams: self.out_datagrams.saturating_sub(earlier.out_datagrams),
            rcvbuf_errors: self.rcvbuf_errors.saturating_sub(earlier.rcvbuf_errors),
            sndbuf_errors: self.sndbuf_errors.saturating_sub(earlier.sndbuf_errors),
            in_csum_errors: both(self.in_csum_errors, earlier.in_csum_errors),
            ignored_multi: both(self.ignored_multi, earlier.ignored_multi),
            mem_errors: both(self.mem_errors, earlier.mem_errors),
        }
    }
}

/// The memory of all UDP sockets of the machine, in pages of the kernel (4 KiB on x86 and most arm64).
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct UdpMemory {
    /// In use, in all namespaces. Imprecise by some pages per CPU.
    pub used: u64,
    /// Its limits (`net.ipv4.udp_mem`); they are machine-wide, and not visible from a namespace.
    pub limits: Option<UdpMemoryLimits>,
}

/// Limits of the memory of all UDP sockets, in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct UdpMemoryLimits {
    /// Below this, the kernel does not limit socket memory.
    pub min: u64,
    /// Above this, it does, until usage falls to `min`.
    pub pressure: u64,
    /// Above this, datagrams are dropped even if the socket's buffer has room.
    pub max: u64,
}

/// Reads the counters and the memory. Missing IPv6 is normal.
pub fn read(source: &dyn Source, missing: &mut Vec<Missing>) -> Udp {
    let v4 = wanted(source, missing, "UDP counters", "/proc/net/snmp", snmp);
    let v6 = optional(source, missing, "UDP counters of IPv6", "/proc/net/snmp6", snmp6);
    let used = wanted(source, missing, "memory of UDP sockets", "/proc/net/sockstat", memory_used);
    let path = "/proc/sys/net/ipv4/udp_mem";
    // Visible only in the initial network namespace.
    let limits = optional(source, missing, "limits of the memory of UDP sockets", path, memory_limits);
    let limits = limits.map(|[min, pressure, max]| UdpMemoryLimits { min, pressure, max });
    let memory = used.map(|used| UdpMemory { used, limits });
    Udp { v4, v6, memory }
}

/// `/proc/net/snmp`: a line of names and a line of values for each protocol.
///
/// # Errors
/// No UDP in it, or names without values.
pub fn snmp(text: &str) -> Result<UdpCounters, Malformed> {
    let mut lines =
        text.lines().enumerate().filter_map(|(index, line)| Some((index, line.strip_prefix("Udp:")?)));
    let (Some((_, names)), Some((index, values))) = (lines.next(), lines.next()) else {
        return Err(Malformed::new(0, "", "no two lines 'Udp:'"));
    };
    let (names, values): (Vec<_>, Vec<_>) =
        (names.split_ascii_whitespace().collect(), values.split_ascii_whitespace().collect());
    if names.len() != values.len() {
        return Err(Malformed::new(
            index,
            text.lines().nth(index).unwrap_or_default(),
            "not a value for each name",
        ));
    }
    let value = |name: &str| values.get(names.iter().position(|known| *known == name)?)?.parse().ok();
    counters(value).ok_or_else(|| Malformed::new(index, &values.join(" "), "a counter of UDP is missing"))
}

/// `/proc/net/snmp6`: a name and a value on each line.
///
/// # Errors
/// A counter that every kernel has is missing.
pub fn snmp6(text: &str) -> Result<UdpCounters, Malformed> {
    let value = |name: &str| {
        text.lines().find_map(|line| {
            let value = line.strip_prefix("Udp6")?.strip_prefix(name)?;
            // Another name may have this prefix.
            value.starts_with(char::is_whitespace).then(|| value.trim().parse().ok())?
        })
    };
    counters(value).ok_or_else(|| Malformed::new(0, "", "a counter of UDP over IPv6 is missing"))
}

fn counters(value: impl Fn(&str) -> Option<u64>) -> Option<UdpCounters> {
    Some(UdpCounters {
        in_datagrams: value("InDatagrams")?,
        no_ports: value("NoPorts")?,
        in_errors: value("InErrors")?,
        out_datagrams: value("OutDatagrams")?,
        rcvbuf_errors: value("RcvbufErrors")?,
        sndbuf_errors: value("SndbufErrors")?,
        in_csum_errors: value("InCsumErrors"),
        ignored_multi: value("IgnoredMulti"),
        mem_errors: value("MemErrors"),
    })
}

/// `UDP: inuse 12 mem 158` of `/proc/net/sockstat`, in pages.
fn memory_used(text: &str) -> Result<u64, Malformed> {
    let (index, line) = text
        .lines()
        .enumerate()
        .find(|(_, line)| line.starts_with("UDP:"))
        .ok_or_else(|| Malformed::new(0, "", "no line 'UDP:'"))?;
    let mut words = line.split_ascii_whitespace().skip_while(|word| *word != "mem").skip(1);
    let pages = words.next().and_then(|pages| pages.parse::<i64>().ok());
    // Per-CPU counts are added up with a delay: the sum may be below zero for a moment.
    pages.map(|pages| pages.max(0).unsigned_abs()).ok_or_else(|| Malformed::new(index, line, "no 'mem'"))
}

/// Three numbers, in pages.
fn memory_limits(text: &str) -> Result<[u64; 3], Malformed> {
    let numbers: Option<Vec<u64>> = text.split_ascii_whitespace().map(|word| word.parse().ok()).collect();
    let three = numbers.and_then(|numbers| numbers.try_into().ok());
    three.ok_or_else(|| Malformed::new(0, text, "not three numbers of pages"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This machine's, 6.18, shortened to the protocols around UDP.
    const SNMP: &str = "Tcp: RtoAlgorithm RtoMin\nTcp: 1 200
Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors
Udp: 13050470 12918 72760859 61006140 72720808 0 1 2 40050
UdpLite: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors
UdpLite: 9 9 9 9 9 9 9 9 9
";

    #[test]
    fn counters_are_identified_by_name() {
        let udp = snmp(SNMP).unwrap();
        assert_eq!(
            (udp.in_datagrams, udp.in_errors, udp.rcvbuf_errors),
            (13_050_470, 72_760_859, 72_720_808)
        );
        assert_eq!((udp.in_csum_errors, udp.mem_errors), (Some(1), Some(40_050)));
        // CentOS 6, 2.6.32: six columns.
        let old =
            "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors\nUdp: 1 2 3 4 5 6\n";
        let udp = snmp(old).unwrap();
        assert_eq!((udp.sndbuf_errors, udp.in_csum_errors, udp.mem_errors), (6, None, None));
    }

    #[test]
    fn ipv6_has_a_line_for_each() {
        let text = "Ip6InReceives                   \t9\nUdp6InDatagrams                 \t542364\nUdp6NoPorts                     \t12
Udp6InErrors                    \t552982\nUdp6OutDatagrams                \t1114499\nUdp6RcvbufErrors                \t529992
Udp6SndbufErrors                \t0\nUdp6InCsumErrors                \t0\nUdpLite6InDatagrams             \t7\n";
        let udp = snmp6(text).unwrap();
        assert_eq!(
            (udp.in_datagrams, udp.rcvbuf_errors, udp.in_csum_errors, udp.mem_errors),
            (542_364, 529_992, Some(0), None)
        );
        assert!(snmp6("Ip6InReceives 9\n").is_err());
    }

    #[test]
    fn garbled_counters_say_where() {
        let told = snmp("Udp: InDatagrams NoPorts\nUdp: 1\n").unwrap_err().to_string();
        assert_eq!(told, "line 2: not a value for each name: 'Udp: 1'");
        assert!(snmp("Udp: InDatagrams\n").is_err());
        assert!(snmp("UdpLite: a\nUdpLite: 1\n").is_err());
    }

    #[test]
    fn memory_in_pages() {
        // This machine's, 6.18.
        assert_eq!(
            memory_used("TCP: inuse 1 orphan 0 tw 0 alloc 1 mem 7\nUDP: inuse 0 mem 158\nUDPLITE: inuse 0\n"),
            Ok(158)
        );
        assert_eq!(memory_used("UDP: inuse 0 mem -3\n"), Ok(0));
        assert!(memory_used("UDPLITE: inuse 0\n").is_err());
        assert_eq!(memory_limits("575799\t767734\t1151598\n"), Ok([575_799, 767_734, 1_151_598]));
        assert!(memory_limits("1 2\n").is_err());
    }

    #[test]
    fn a_reset_counter_counts_nothing() {
        let then = UdpCounters { in_datagrams: 10, mem_errors: None, ..UdpCounters::default() };
        let now = UdpCounters { in_datagrams: 4, no_ports: 2, mem_errors: Some(1), ..UdpCounters::default() };
        assert_eq!(now.since(&then), UdpCounters { no_ports: 2, ..UdpCounters::default() });
    }
}
