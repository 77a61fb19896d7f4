//! Counters of the IP layer that bear on datagrams, `/proc/net/snmp` and `snmp6`: fragments and what was discarded.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text::{Malformed, optional};
use crate::{Missing, Source};

/// The IP layer of one network namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Ip {
    /// IPv4.
    pub v4: Option<IpCounters>,
    /// IPv6.
    pub v6: Option<IpCounters>,
}

/// Counters of one family, by the kernel's names (RFC 4293).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct IpCounters {
    /// Packets received, fragments included (`InReceives`).
    pub received: u64,
    /// Fragments received (`ReasmReqds`).
    pub fragments_received: u64,
    /// Packets put together from fragments (`ReasmOKs`).
    pub reassembled: u64,
    /// Packets lost because a fragment was missing or memory ran out (`ReasmFails`).
    pub not_reassembled: u64,
    /// Fragments sent (`FragCreates`).
    pub fragments_sent: u64,
    /// Packets too large for the MTU that could not be fragmented (`FragFails`).
    pub not_fragmented: u64,
    /// Packets discarded on the way in without another reason (`InDiscards`): memory.
    pub in_discards: u64,
    /// Packets discarded on the way out without another reason (`OutDiscards`): a full transmit queue, memory.
    pub out_discards: u64,
    /// Packets that could not be sent for lack of a route (`OutNoRoutes`).
    pub no_routes: u64,
}

impl IpCounters {
    /// The increase since an earlier snapshot of the same boot and namespace; 0 where a counter went down.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            received: self.received.saturating_sub(earlier.received),
            fragments_received: self.fragments_received.saturating_sub(earlier.fragments_received),
            reassembled: self.reassembled.saturating_sub(earlier.reassembled),
            not_reassembled: self.not_reassembled.saturating_sub(earlier.not_reassembled),
            fragments_sent: self.fragments_sent.saturating_sub(earlier.fragments_sent),
            not_fragmented: self.not_fragmented.saturating_sub(earlier.not_fragmented),
            in_discards: self.in_discards.saturating_sub(earlier.in_discards),
            out_discards: self.out_discards.saturating_sub(earlier.out_discards),
            no_routes: self.no_routes.saturating_sub(earlier.no_routes),
        }
    }
}

/// Reads the counters. Missing IPv6 is normal, and so is a capture whose files have UDP alone.
pub fn read(source: &dyn Source, missing: &mut Vec<Missing>) -> Ip {
    let v4 = optional(source, missing, "counters of IP", "/proc/net/snmp", snmp).flatten();
    let v6 = optional(source, missing, "counters of IPv6", "/proc/net/snmp6", snmp6).flatten();
    Ip { v4, v6 }
}

/// `/proc/net/snmp`: a line of names and a line of values. `None` without them.
fn snmp(text: &str) -> Result<Option<IpCounters>, Malformed> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Ip:"));
    let Some(names) = lines.next() else { return Ok(None) };
    let values = lines.next().unwrap_or_default();
    let named = || names.split_ascii_whitespace().zip(values.split_ascii_whitespace());
    counters(|name| named().find(|(known, _)| *known == name)?.1.parse().ok())
        .map(Some)
        .ok_or_else(|| Malformed::new(0, values, "a counter of IP is missing"))
}

/// `/proc/net/snmp6`: a name and a value on each line. `None` without those of IPv6.
fn snmp6(text: &str) -> Result<Option<IpCounters>, Malformed> {
    if !text.lines().any(|line| line.starts_with("Ip6")) {
        return Ok(None);
    }
    let value = |name: &str| {
        text.lines().find_map(|line| {
            let value = line.strip_prefix("Ip6")?.strip_prefix(name)?;
            // Another name may have this prefix.
            value.starts_with(char::is_whitespace).then(|| value.trim().parse().ok())?
        })
    };
    counters(value).map(Some).ok_or_else(|| Malformed::new(0, "", "a counter of IPv6 is missing"))
}

fn counters(value: impl Fn(&str) -> Option<u64>) -> Option<IpCounters> {
    Some(IpCounters {
        received: value("InReceives")?,
        fragments_received: value("ReasmReqds")?,
        reassembled: value("ReasmOKs")?,
        not_reassembled: value("ReasmFails")?,
        fragments_sent: value("FragCreates")?,
        not_fragmented: value("FragFails")?,
        in_discards: value("InDiscards")?,
        out_discards: value("OutDiscards")?,
        no_routes: value("OutNoRoutes")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SNMP: &str = "Ip: Forwarding DefaultTTL InReceives InHdrErrors InAddrErrors ForwDatagrams InUnknownProtos \
                        InDiscards InDelivers OutRequests OutDiscards OutNoRoutes ReasmTimeout ReasmReqds ReasmOKs \
                        ReasmFails FragOKs FragFails FragCreates OutTransmits
Ip: 2 64 1000 0 0 0 0 1 990 800 2 3 0 40 20 4 5 6 10 800
Udp: InDatagrams
Udp: 1
";

    #[test]
    fn counters_are_identified_by_name() {
        let ip = snmp(SNMP).unwrap().unwrap();
        assert_eq!((ip.received, ip.fragments_received, ip.reassembled), (1000, 40, 20));
        assert_eq!((ip.not_reassembled, ip.fragments_sent, ip.not_fragmented), (4, 10, 6));
        assert_eq!((ip.in_discards, ip.out_discards, ip.no_routes), (1, 2, 3));
        assert_eq!(snmp("Udp: InDatagrams\n"), Ok(None));
        assert!(snmp("Ip: InReceives\n").is_err() && snmp("Ip: InReceives\nIp: 1\n").is_err());
    }

    #[test]
    fn ipv6_has_a_line_for_each() {
        let names = ["InReceives", "InDiscards", "OutDiscards", "OutNoRoutes", "ReasmReqds", "ReasmOKs"];
        let names = names.into_iter().chain(["ReasmFails", "FragFails", "FragCreates"]);
        let text: String = names.enumerate().map(|(at, name)| format!("Ip6{name}    \t{at}\n")).collect();
        assert_eq!(snmp6(&text).unwrap().unwrap().fragments_sent, 8);
        assert_eq!(snmp6("Udp6InDatagrams 9\n"), Ok(None));
        assert!(snmp6("Ip6InReceives 9\n").is_err());
    }

    #[test]
    fn a_reset_counter_counts_nothing() {
        let then = IpCounters { received: 10, ..IpCounters::default() };
        let now = IpCounters { received: 4, no_routes: 2, ..IpCounters::default() };
        assert_eq!(now.since(&then), IpCounters { no_routes: 2, ..IpCounters::default() });
    }
}
