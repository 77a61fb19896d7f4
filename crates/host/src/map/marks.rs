//! Links of the way that a reader should look at, and why: facts of the snapshot, not yet a diagnosis.
//!
//! A rule is a function from the map to marks; `RULES` is all of them. Losses come first, then what keeps traffic from
//! spreading, then what is good to know.

mod loss;
mod others;
mod spread;

use serde::{Deserialize, Serialize};

use super::{Map, View};

/// How much a mark matters. In order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weight {
    /// Packets are lost here.
    Loss,
    /// Traffic does not spread here, or costs more than it has to.
    Limit,
    /// Good to know.
    Note,
}

/// A link of the way.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Link {
    /// An interface.
    Interface(String),
    /// A receive queue of an interface.
    Queue(String, u32),
    /// A CPU.
    Cpu(u32),
    /// UDP as a whole.
    Udp,
    /// A socket, by its inode.
    Socket(u32),
    /// A process.
    Process(u32),
    /// The machine as a whole.
    Machine,
}

/// Something to look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// How much it matters.
    pub weight: Weight,
    /// The rule that found it, by a name that stays.
    pub rule: String,
    /// The links it is about.
    pub links: Vec<Link>,
    /// What it is, a sentence.
    pub what: String,
}

/// What a rule finds: the links it is about, and what it is.
type Found = Vec<(Vec<Link>, String)>;

/// A rule: its name, how much its marks matter, and what it finds.
struct Rule {
    name: &'static str,
    weight: Weight,
    find: fn(View<'_>, &Map) -> Found,
}

const RULES: &[Rule] = &[
    Rule { name: "device-loses-packets", weight: Weight::Loss, find: loss::device },
    Rule { name: "backlog-full", weight: Weight::Loss, find: loss::backlog },
    Rule { name: "socket-drops", weight: Weight::Loss, find: loss::sockets },
    Rule { name: "udp-errors", weight: Weight::Loss, find: loss::udp },
    Rule { name: "udp-memory", weight: Weight::Loss, find: loss::memory },
    Rule { name: "conntrack-full", weight: Weight::Loss, find: loss::conntrack },
    Rule { name: "rss-table-short", weight: Weight::Limit, find: spread::table },
    Rule { name: "rss-without-ports", weight: Weight::Limit, find: spread::fields },
    Rule { name: "irqs-on-one-node", weight: Weight::Limit, find: spread::one_node },
    Rule { name: "irqs-share-cpus", weight: Weight::Limit, find: spread::shared_cpus },
    Rule { name: "hint-unused", weight: Weight::Limit, find: spread::hints },
    Rule { name: "one-queue", weight: Weight::Limit, find: spread::one_queue },
    Rule { name: "no-irq-found", weight: Weight::Limit, find: spread::no_irq },
    Rule { name: "rps-on-irq-cpu", weight: Weight::Limit, find: spread::rps_on_irq_cpu },
    Rule { name: "rps-crosses-nodes", weight: Weight::Limit, find: spread::rps_crosses_nodes },
    Rule { name: "rps-redundant", weight: Weight::Limit, find: spread::rps_redundant },
    Rule { name: "every-packet-stamped", weight: Weight::Limit, find: others::stamped },
    Rule { name: "one-qdisc", weight: Weight::Limit, find: others::one_qdisc },
    Rule { name: "tap", weight: Weight::Limit, find: others::tap },
    Rule { name: "one-socket", weight: Weight::Note, find: others::one_socket },
    Rule { name: "irq-not-moved-yet", weight: Weight::Note, find: spread::not_moved },
    Rule { name: "no-xps", weight: Weight::Note, find: spread::no_xps },
    Rule { name: "steal", weight: Weight::Note, find: others::steal },
    Rule { name: "rival", weight: Weight::Note, find: others::rivals },
    Rule { name: "set-by-file", weight: Weight::Note, find: others::files },
    Rule { name: "filtered", weight: Weight::Note, find: others::filtered },
];

/// All that the rules find, the heaviest first.
pub(super) fn find(view: View<'_>, map: &Map) -> Vec<Mark> {
    let of_rule = |rule: &Rule| {
        let (weight, name) = (rule.weight, rule.name.to_owned());
        (rule.find)(view, map)
            .into_iter()
            .map(move |(links, what)| Mark { weight, rule: name.clone(), links, what })
            .collect::<Vec<_>>()
    };
    let mut marks: Vec<Mark> = RULES.iter().flat_map(of_rule).collect();
    marks.sort_by_key(|mark| mark.weight);
    marks
}

/// `n queues`, `1 queue`.
fn counted(n: usize, what: &str) -> String {
    format!("{} {what}{}", number(n as u64), if n == 1 { "" } else { "s" })
}

/// A number with its thousands apart: `1,234,567`.
fn number(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
