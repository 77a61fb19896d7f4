//! Flow rules of a network card (ethtool's ntuple): flows that bypass the hash.
//!
//! ```text
//! location 3      udp4, from 192.0.2.0/24, to port 53   ─▸ queue 7
//! location 1023   udp4, to port 53                      ─▸ RSS context 1: another table, another key
//!                                                          no match: RSS
//! ```
//! The matching rule with the lowest location wins (`struct ethtool_rx_flow_spec` of `include/uapi/linux/ethtool.h`;
//! drivers whose hardware cannot do that reject two rules that match the same packet).
//!
//! Not modelled, and so never guessed: rule fields other than addresses, ports and protocol (VLAN, link-layer
//! addresses, TOS, payload), and rules that are not listed: those that a driver creates for itself, for accelerated
//! RFS, or for tc.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::flow::Flow;

/// A rule that sends some flows to a specific queue: `ethtool -n`.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowRule {
    /// Its location in the device's table; the lowest of those that match wins.
    pub location: u32,
    /// The packet type: `udp4`, `udp6`, `tcp4`, `ip4`, `ether`, ...; `other` is a type that is not known here.
    pub flow: String,
    /// Source address, if tested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Masked<IpAddr>>,
    /// Destination address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<Masked<IpAddr>>,
    /// Source port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<Masked<u16>>,
    /// Destination port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<Masked<u16>>,
    /// For `ip4` and `ip6`: the IP protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Masked<u8>>,
    /// For `ether`: the EtherType.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ether_type: Option<Masked<u16>>,
    /// Whether it tests further fields: VLAN, link-layer addresses, TOS, payload.
    #[serde(default, skip_serializing_if = "is_false")]
    pub further: bool,
    /// What the rule does with matching packets.
    pub action: FlowAction,
}

/// A value and the mask of its significant bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Masked_of_{T}")]
pub struct Masked<T> {
    /// The value.
    pub value: T,
    /// The significant bits.
    pub mask: T,
}

/// The action of a flow rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum FlowAction {
    /// Drops.
    Drop,
    /// Wakes the machine.
    Wake,
    /// To a queue; of a virtual function if `vf` is not 0 (its number plus one).
    Queue {
        /// The receive queue.
        queue: u32,
        /// Virtual function plus one.
        vf: u8,
    },
    /// To a queue selected by another RSS context, offset by `queue`.
    Context {
        /// The context.
        context: u32,
        /// Offset added to the context's queue.
        queue: u32,
    },
}

/// serde gives a reference.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "the form serde asks for")]
const fn is_false(further: &bool) -> bool {
    !*further
}

/// Whether a rule matches a flow's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleMatch {
    /// It does not match.
    No,
    /// It tests something that is not part of a flow.
    Maybe,
    /// It matches all of them.
    Yes,
}

/// The protocol above Ethernet of either family (`ETH_P_IP`, `ETH_P_IPV6` of linux/if_ether.h).
const ETHER_TYPES: [u16; 2] = [0x0800, 0x86dd];

impl FlowRule {
    /// Whether it matches packets of this flow.
    #[must_use]
    pub fn fits(&self, flow: &Flow) -> RuleMatch {
        let [ipv4, ipv6] = ETHER_TYPES;
        let ether_type = if flow.is_ipv4() { ipv4 } else { ipv6 };
        let kind = match self.flow.as_str() {
            "ether" => Some(self.ether_type.is_none_or(|wanted| wanted.has(ether_type))),
            "other" => None,
            name => Some(takes(name, flow)),
        };
        let fits = kind != Some(false)
            && self.source.is_none_or(|wanted| wanted.has(flow.source().ip()))
            && self.destination.is_none_or(|wanted| wanted.has(flow.destination().ip()))
            && self.source_port.is_none_or(|wanted| wanted.has(flow.source_port))
            && self.destination_port.is_none_or(|wanted| wanted.has(flow.destination_port))
            && self.protocol.is_none_or(|wanted| wanted.has(flow.protocol));
        match (fits, kind.is_none() || self.further) {
            (false, _) => RuleMatch::No,
            (true, true) => RuleMatch::Maybe,
            (true, false) => RuleMatch::Yes,
        }
    }
}

/// Whether a type such as `udp4` matches: the family, and the protocol if it specifies one.
fn takes(kind: &str, flow: &Flow) -> bool {
    let (protocol, ipv4) = match (kind.strip_suffix('4'), kind.strip_suffix('6')) {
        (Some(protocol), _) => (protocol, true),
        (_, Some(protocol)) => (protocol, false),
        _ => return false,
    };
    // Numbers of IANA.
    let number = match protocol {
        "ip" => None,
        "tcp" => Some(6),
        "udp" => Some(Flow::UDP),
        "esp" => Some(50),
        "ah" => Some(51),
        "sctp" => Some(132),
        _ => return false,
    };
    ipv4 == flow.is_ipv4() && number.is_none_or(|number| number == flow.protocol)
}

impl Masked<u8> {
    fn has(self, found: u8) -> bool {
        (self.value ^ found) & self.mask == 0
    }
}

impl Masked<u16> {
    fn has(self, found: u16) -> bool {
        (self.value ^ found) & self.mask == 0
    }
}

impl Masked<IpAddr> {
    fn has(self, found: IpAddr) -> bool {
        match (self.value, self.mask, found) {
            (IpAddr::V4(value), IpAddr::V4(mask), IpAddr::V4(found)) => {
                (value.to_bits() ^ found.to_bits()) & mask.to_bits() == 0
            }
            (IpAddr::V6(value), IpAddr::V6(mask), IpAddr::V6(found)) => {
                (value.to_bits() ^ found.to_bits()) & mask.to_bits() == 0
            }
            _ => false,
        }
    }
}

/// The rules of a card, in order of precedence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlowRules {
    list: Vec<FlowRule>,
}

impl FlowRules {
    /// Sorts the rules.
    #[must_use]
    pub fn new(mut list: Vec<FlowRule>) -> Self {
        list.sort_by_key(|rule| rule.location);
        Self { list }
    }

    /// The first rule that matches packets of this flow, or may.
    #[must_use]
    pub fn of(&self, flow: &Flow) -> Option<(&FlowRule, RuleMatch)> {
        let fits = self.list.iter().map(|rule| (rule, rule.fits(flow)));
        fits.into_iter().find(|(_, fit)| *fit != RuleMatch::No)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(source: &str, destination: &str) -> Flow {
        Flow::udp(source.parse().unwrap(), destination.parse().unwrap()).unwrap()
    }

    fn rule(json: &str) -> FlowRule {
        serde_json::from_str(&format!(r#"{{"location": 3, "action": "drop", {json}}}"#)).unwrap()
    }

    #[test]
    fn only_the_masks_bits_count() {
        let of = |json: &str| rule(json).fits(&flow("192.0.2.7:4000", "192.0.2.1:53"));
        let net = r#""flow": "udp4", "source": {"value": "192.0.2.0", "mask": "255.255.255.0"}"#;
        assert_eq!(of(net), RuleMatch::Yes);
        assert_eq!(of(&net.replace("192.0.2.0", "192.0.3.0")), RuleMatch::No);
        // Host bits of the value are outside the mask.
        assert_eq!(of(&net.replace("192.0.2.0", "192.0.2.99")), RuleMatch::Yes);
        let port = r#""flow": "udp4", "destination_port": {"value": 53, "mask": 65535}"#;
        assert_eq!((of(port), of(&port.replace(": 53", ": 54"))), (RuleMatch::Yes, RuleMatch::No));
        let odd = r#""flow": "udp4", "source_port": {"value": 1, "mask": 1}"#;
        assert_eq!(of(odd), RuleMatch::No);
    }

    #[test]
    fn kinds_are_of_a_family_and_perhaps_of_a_protocol() {
        let (v4, v6) = (flow("192.0.2.7:1", "192.0.2.1:53"), flow("[2001:db8::7]:1", "[2001:db8::1]:53"));
        let kind = |name: &str, flow| rule(&format!(r#""flow": "{name}""#)).fits(flow);
        for name in ["udp4", "ip4", "ether"] {
            assert_eq!(kind(name, &v4), RuleMatch::Yes, "{name}");
        }
        for name in ["udp6", "ip6", "tcp4", "sctp4", "esp4", "ah4", "4"] {
            assert_eq!(kind(name, &v4), RuleMatch::No, "{name}");
        }
        assert_eq!(
            (kind("udp6", &v6), kind("ip6", &v6), kind("udp4", &v6)),
            (RuleMatch::Yes, RuleMatch::Yes, RuleMatch::No)
        );
        assert_eq!(kind("other", &v4), RuleMatch::Maybe);
        let protocol = |number| {
            let json = format!(r#""flow": "ip4", "protocol": {{"value": {number}, "mask": 255}}"#);
            rule(&json).fits(&v4)
        };
        assert_eq!((protocol(17), protocol(6)), (RuleMatch::Yes, RuleMatch::No));
        let ether = |number: u16, flow| {
            let json = format!(r#""flow": "ether", "ether_type": {{"value": {number}, "mask": 65535}}"#);
            rule(&json).fits(flow)
        };
        // That of PTP, as a time daemon has a driver set it.
        assert_eq!(
            (ether(0x88f7, &v4), ether(0x800, &v4), ether(0x86dd, &v6)),
            (RuleMatch::No, RuleMatch::Yes, RuleMatch::Yes)
        );
        assert_eq!(ether(0x800, &v6), RuleMatch::No);
    }

    #[test]
    fn the_lowest_location_counts_and_one_that_may_fit_stops_the_search() {
        let at = |location: u32, json: &str| FlowRule { location, ..rule(json) };
        let any = r#""flow": "udp4""#;
        let rules = FlowRules::new(vec![
            at(9, any),
            at(4, r#""flow": "udp4", "further": true"#),
            at(2, r#""flow": "tcp4""#),
        ]);
        let flow = flow("192.0.2.7:1", "192.0.2.1:53");
        assert_eq!(rules.of(&flow).map(|(rule, fit)| (rule.location, fit)), Some((4, RuleMatch::Maybe)));
        let rules = FlowRules::new(vec![at(9, any), at(5, any)]);
        assert_eq!(rules.of(&flow).map(|(rule, fit)| (rule.location, fit)), Some((5, RuleMatch::Yes)));
        assert_eq!(FlowRules::default().of(&flow), None);
    }
}
