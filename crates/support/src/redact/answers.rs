//! Redacts the kernel's answers, and the reasons for missing ones.

use std::net::IpAddr;

use super::{KNOWN_KEYS, Kind, Redactor};
use udpath_host::Absence;
use udpath_host::interfaces::{FlowRule, Masked, Rss};
use udpath_host::source::Answer;

impl Redactor {
    pub(super) fn absence(&mut self, absence: Absence) -> Absence {
        match absence {
            Absence::Changed(why) => Absence::Changed(self.sentence(&why)),
            Absence::NotUnderstood(why) => Absence::NotUnderstood(self.sentence(&why)),
            Absence::Failed(why) => Absence::Failed(self.sentence(&why)),
            told @ (Absence::NotThere
            | Absence::NotSupported
            | Absence::NotPermitted { .. }
            | Absence::NotCaptured) => told,
        }
    }

    /// A sentence written by udpath: only its quotations may be private.
    pub(crate) fn sentence(&mut self, text: &str) -> String {
        let mut kept = String::new();
        for (at, part) in text.split(['\'', '"', '`']).enumerate() {
            // An unterminated quotation extends to the end.
            kept.push_str(if at % 2 == 0 { part } else { "..." });
        }
        self.text(&kept)
    }

    /// An answer of the kernel. The match is exhaustive, so a new kind of query must be handled here.
    pub(super) fn answer(&mut self, answer: Answer) -> Answer {
        match answer {
            Answer::Links(mut links) => {
                for link in &mut links {
                    link.name = self.names_of_interfaces(&link.name);
                    link.address = link.address.as_deref().map(|address| self.text(address));
                    link.permanent_address =
                        link.permanent_address.as_deref().map(|address| self.text(address));
                }
                Answer::Links(links)
            }
            Answer::PermanentAddress(address) => Answer::PermanentAddress(self.text(&address)),
            Answer::UdpSockets(mut sockets) => {
                for socket in &mut sockets {
                    socket.local.set_ip(self.address(socket.local.ip()));
                    if let Some(peer) = &mut socket.peer {
                        peer.set_ip(self.address(peer.ip()));
                    }
                }
                Answer::UdpSockets(sockets)
            }
            Answer::NftChains(mut chains) => {
                for chain in &mut chains {
                    chain.table = self.chain(&chain.table, "table");
                    chain.name = self.chain(&chain.name, "chain");
                }
                Answer::NftChains(chains)
            }
            Answer::NetfilterHooks(mut hooks) => {
                for hook in &mut hooks {
                    hook.device = hook.device.as_deref().map(|device| self.names_of_interfaces(device));
                    if let Some(chain) = &mut hook.chain {
                        chain.table = self.chain(&chain.table, "table");
                        chain.name = self.chain(&chain.name, "chain");
                    }
                }
                Answer::NetfilterHooks(hooks)
            }
            Answer::Rss(rss) => Answer::Rss(self.rss(rss)),
            Answer::FlowRules(rules) => {
                Answer::FlowRules(rules.into_iter().map(|rule| self.flow_rule(rule)).collect())
            }
            // Numbers, and keywords of the kernel and of drivers.
            told @ (Answer::Time(_)
            | Answer::Qdiscs(_)
            | Answer::Queues(_)
            | Answer::Napis(_)
            | Answer::Neighbours(_)
            | Answer::QueueCounters(_)
            | Answer::XdpFeatures(_)
            | Answer::ReuseportGroups(_)
            | Answer::AuditStatus(_)
            | Answer::Driver(_)
            | Answer::Channels(_)
            | Answer::Rings(_)
            | Answer::Coalescing(_)
            | Answer::Features(_)
            | Answer::HashFields(_)
            | Answer::TimeStampingOffer(_)
            | Answer::TimeStamping(_)
            | Answer::DriverCounters(_)) => told,
        }
    }

    fn rss(&mut self, mut rss: Rss) -> Rss {
        for context in std::iter::once(&mut rss.main).chain(rss.contexts.values_mut()) {
            let known =
                context.key.is_empty() || KNOWN_KEYS.iter().any(|known| context.key.starts_with(known));
            if !self.keep_rss_key && !known {
                let text: Vec<String> = context.key.iter().map(|byte| format!("{byte:02x}")).collect();
                self.note(Kind::RssKey, &text.join(":"), "nothing");
                context.key.clear();
            }
        }
        rss
    }

    fn flow_rule(&mut self, mut rule: FlowRule) -> FlowRule {
        let mut other = |masked: Masked<IpAddr>| {
            let value = match (self.address(masked.value), masked.mask) {
                (IpAddr::V4(value), IpAddr::V4(mask)) => (value & mask).into(),
                (IpAddr::V6(value), IpAddr::V6(mask)) => (value & mask).into(),
                (value, _) => value,
            };
            Masked { value, ..masked }
        };
        rule.source = rule.source.map(&mut other);
        rule.destination = rule.destination.map(&mut other);
        rule
    }
}
