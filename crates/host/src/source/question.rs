//! Queries to the kernel other than files, and their answers.
//!
//! A question is plain data; so is its answer, with its source. On a live machine the answer comes from netlink or an
//! ioctl; a captured folder holds one JSON file per question:
//!
//! ```text
//! DIR/udpath/links.json              {"value": [{"index": 1, "name": "lo", "loopback": true, "mtu": 65536}],
//!                                     "from": {"route": "RTM_GETLINK"}}
//! DIR/udpath/channels/eth0.json      {"value": {"now": {"combined": 16}, "max": {"combined": 63}},
//!                                     "from": {"ethtool": "channels-get"}}
//! DIR/udpath/rings/eth0.json         {"absent": "not-supported"}
//! ```
//! The fields of a value are those of the types below. Fields that a type marks with a default may be left out; a
//! misspelt one is an error. A question without a file was not captured.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::client::audit::AuditStatus;
use crate::client::hooks::Hook;
use crate::client::netdev::{Counters, Napi, NetdevQueue, QueueCounters, XdpFeatures};
use crate::client::netfilter::NftChain;
use crate::client::reuseport::KernelGroup;
use crate::client::route::{Link, Qdisc};
use crate::client::sockets::Socket;
use crate::neighbours::NeighbourEntries;
use crate::{Absence, Fact, Source};
use udpath_netlink::ethtool::channels::Channels;
use udpath_netlink::ethtool::coalesce::Coalescing;
use udpath_netlink::ethtool::features::Features;
use udpath_netlink::ethtool::rings::Rings;
use udpath_netlink::ethtool::rss::{HashFields, Rss};
use udpath_netlink::ethtool::time_stamping::{TimeStamping, TimeStampingOffer};
use udpath_netlink::ioctl::device::Driver;
use udpath_steer::rules::FlowRule;

/// One answer in a capture: a value and its source, or the reason there is none.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Recorded<T> {
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    value: Option<T>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<crate::Provenance>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    absent: Option<Absence>,
}

const fn none<T>() -> Option<T> {
    None
}

fn decode<T: DeserializeOwned>(text: &str, path: &str) -> Result<Fact<T>, Absence> {
    let wrong = |why: String| Absence::NotUnderstood(format!("{path}: {why}"));
    // An error repeats the misspelt text; remove anything that controls a terminal.
    let printable = |error: String| error.replace(char::is_control, " ");
    let recorded: Recorded<T> =
        serde_json::from_str(text).map_err(|error| wrong(printable(error.to_string())))?;
    match (recorded.value, recorded.from, recorded.absent) {
        (Some(value), Some(from), None) => Ok(Fact { value, from }),
        (None, None, Some(absence)) => Err(absence),
        _ => Err(wrong("needs \"value\" and \"from\", or only \"absent\"".into())),
    }
}

fn encode<T: Serialize>(answer: Result<Fact<&T>, &Absence>) -> serde_json::Result<String> {
    let recorded = match answer {
        Ok(Fact { value, from }) => Recorded { value: Some(value), from: Some(from), absent: None },
        Err(absence) => Recorded { value: None, from: None, absent: Some(absence.clone()) },
    };
    serde_json::to_string_pretty(&recorded)
}

/// One row per question: its documentation and name, its file name, its answer, and the typed method.
macro_rules! questions {
    (
        machine { $($(#[$m_doc:meta])* $Machine:ident, $m_file:literal, $m_ask:ident => $M:ty;)* }
        interface { $($(#[$i_doc:meta])* $Interface:ident, $i_file:literal, $i_ask:ident => $I:ty;)* }
    ) => {
        /// A question to the kernel. Per-interface questions carry the interface name.
        #[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Question {
            $($(#[$m_doc])* $Machine,)*
            $($(#[$i_doc])* $Interface(String),)*
        }

        /// The answer to the question of the same name.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each is documented at its question, and by its type")]
        pub enum Answer {
            $($Machine($M),)*
            $($Interface($I),)*
        }

        impl Question {
            /// Its file in a capture, relative to `DIR/udpath/`.
            #[must_use]
            pub fn file(&self) -> String {
                match self {
                    $(Self::$Machine => concat!($m_file, ".json").into(),)*
                    $(Self::$Interface(name) => format!(concat!($i_file, "/{}.json"), name),)*
                }
            }

            /// The same question for an interface with another name.
            pub fn of(&self, name: impl FnOnce(&str) -> String) -> Self {
                match self {
                    $(Self::$Machine => Self::$Machine,)*
                    $(Self::$Interface(of) => Self::$Interface(name(of)),)*
                }
            }

            /// Decodes a captured answer. `path`: the file, for errors.
            ///
            /// # Errors
            /// The captured absence, or a description of the invalid text.
            pub fn decode(&self, text: &str, path: &str) -> Result<Fact<Answer>, Absence> {
                match self {
                    $(Self::$Machine => decode(text, path).map(|Fact { value, from }| Fact::new(Answer::$Machine(value), from)),)*
                    $(Self::$Interface(_) => decode(text, path).map(|Fact { value, from }| Fact::new(Answer::$Interface(value), from)),)*
                }
            }

            /// Encodes an answer for a capture.
            ///
            /// # Errors
            /// None, unless memory is exhausted: every answer can be encoded.
            pub fn encode(answer: &Result<Fact<Answer>, Absence>) -> serde_json::Result<String> {
                match answer {
                    $(Ok(Fact { value: Answer::$Machine(value), from }) => encode(Ok(Fact::new(value, from.clone()))),)*
                    $(Ok(Fact { value: Answer::$Interface(value), from }) => encode(Ok(Fact::new(value, from.clone()))),)*
                    Err(absence) => encode::<()>(Err(absence)),
                }
            }
        }

        /// The questions by name.
        impl dyn Source + '_ {
            $($(#[$m_doc])*
            /// # Errors
            /// The reason there is no answer.
            pub fn $m_ask(&self) -> Result<Fact<$M>, Absence> {
                match self.ask(&Question::$Machine)? {
                    Fact { value: Answer::$Machine(value), from } => Ok(Fact { value, from }),
                    other => Err(Absence::Failed(format!("the answer is to another question: {other:?}"))),
                }
            })*
            $($(#[$i_doc])*
            /// # Errors
            /// The reason there is no answer.
            pub fn $i_ask(&self, interface: &str) -> Result<Fact<$I>, Absence> {
                match self.ask(&Question::$Interface(interface.to_owned()))? {
                    Fact { value: Answer::$Interface(value), from } => Ok(Fact { value, from }),
                    other => Err(Absence::Failed(format!("the answer is to another question: {other:?}"))),
                }
            })*
        }
    };
}

questions! {
    machine {
        /// The time: milliseconds since 1970.
        Time, "time", time => u64;
        /// All interfaces.
        Links, "links", links => Vec<Link>;
        /// All queueing disciplines.
        Qdiscs, "qdiscs", qdiscs => Vec<Qdisc>;
        /// All queues, with their NAPI instances.
        Queues, "queues", queues => Vec<NetdevQueue>;
        /// All NAPI instances, with their interrupts and settings.
        Napis, "napis", napis => Vec<Napi>;
        /// The counters of all queues, for drivers that report them through netdev netlink.
        QueueCounters, "queue-counters", queue_counters => Vec<QueueCounters>;
        /// The XDP features of the devices.
        XdpFeatures, "xdp-features", xdp_features => Vec<XdpFeatures>;
        /// The neighbours, by their state.
        Neighbours, "neighbours", neighbours => NeighbourEntries;
    /// All bound UDP sockets, of both families, without their owners.
    UdpSockets, "udp-sockets", udp_sockets => Vec<Socket>;
    /// The reuseport groups of UDP sockets: what selects in each, and their sockets' indices. Needs root.
    ReuseportGroups, "reuseport-groups", reuseport_groups => Vec<KernelGroup>;
    /// All base chains of nftables.
    NftChains, "nft-chains", nft_chains => Vec<NftChain>;
    /// All functions that packet filters have registered at netfilter hooks.
    NetfilterHooks, "netfilter-hooks", netfilter_hooks => Vec<Hook>;
    /// Whether system calls are audited.
    AuditStatus, "audit-status", audit_status => AuditStatus;
    }
    interface {
        /// Driver, its version and bus.
        Driver, "driver", driver => Driver;
        /// Permanent link-layer address, for kernels whose `RTM_GETLINK` does not report it (before 5.6).
        PermanentAddress, "permanent-address", permanent_address => String;
        /// Channels.
        Channels, "channels", channels => Channels;
        /// Descriptor rings.
        Rings, "rings", rings => Rings;
        /// Interrupt coalescing.
        Coalescing, "coalescing", coalescing => Coalescing;
        /// Offloads.
        Features, "features", features => Features;
        /// Receive side scaling: table, key, function, contexts.
        Rss, "rss", rss => Rss;
        /// Hash fields of UDP.
        HashFields, "hash-fields", hash_fields => HashFields;
        /// Flow rules (ntuple).
        FlowRules, "flow-rules", flow_rules => Vec<FlowRule>;
        /// Timestamping capabilities of the device.
        TimeStampingOffer, "time-stamping-offer", time_stamping_offer => TimeStampingOffer;
        /// Which packets the device is configured to stamp.
        TimeStamping, "time-stamping", time_stamping => TimeStamping;
        /// The driver's own counters, in the driver's order.
        DriverCounters, "driver-counters", driver_counters => Counters;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Provenance;

    #[test]
    fn an_answer_survives_its_file() {
        let question = Question::DriverCounters("eth0".into());
        assert_eq!(question.file(), "driver-counters/eth0.json");
        let counters = Counters::from([("rx_packets".into(), u64::MAX)]);
        let from = Provenance::EthtoolIoctl("ETHTOOL_GSTATS".into());
        let answers = [Ok(Fact::new(Answer::DriverCounters(counters), from)), Err(Absence::NotSupported)];
        for answer in answers {
            assert_eq!(question.decode(&Question::encode(&answer).unwrap(), "f"), answer);
        }
    }

    #[test]
    fn a_wrong_file_says_where_and_what() {
        let told = |question: Question, text| match question.decode(text, "udpath/x.json") {
            Err(Absence::NotUnderstood(why)) => why,
            other => panic!("{other:?}"),
        };
        let misspelt = told(
            Question::Links,
            r#"{"value": [{"index": 1, "name": "lo", "mtuu": 5}], "from": "sock-diag"}"#,
        );
        assert!(misspelt.contains("udpath/x.json") && misspelt.contains("mtuu"), "{misspelt}");
        let without = told(Question::Channels("eth0".into()), r#"{"value": {"now": {}, "max": {}}}"#);
        assert_eq!(without, r#"udpath/x.json: needs "value" and "from", or only "absent""#);
        assert!(told(Question::Time, "{").contains("EOF"));
        assert!(told(Question::Time, r#"{"\u001b[31m": 1}"#).contains("unknown field ` [31m`"));
    }
}
