//! A finding: one thing that is wrong or worth knowing, with its evidence, its cause and its fixes.
//!
//! The only form in which udpath judges anything. [`crate::rules`] makes findings of a map and of a profile; everything
//! else prints them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use udpath_host::shell::quoted;

/// How much a finding matters. In order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Packets are lost here.
    Loss,
    /// Traffic does not spread here, or costs more than it has to.
    Limit,
    /// Good to know.
    Note,
}

impl Severity {
    /// As JSON, metrics and tables write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Limit => "limit",
            Self::Note => "note",
        }
    }
}

/// What a finding is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Location {
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
    /// A process, by its number.
    Process(u32),
    /// The machine as a whole.
    Machine,
}

/// What removes the cause, or makes it cost less.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Remedy {
    /// Settings that `udpath plan` accepts.
    Changes {
        /// What they do: an imperative without a full stop.
        what: String,
        /// `SETTING=VALUE` each, such as `eth0:rps/rx-0=1-3`, in the order in which they are to be applied.
        settings: Vec<String>,
        /// Where they are, if not in the network namespace that the command is typed in.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        netns: Option<Netns>,
    },
    /// A command that changes more than settings: a server's own configuration, its instances, how it is started.
    Command {
        /// What it does: an imperative without a full stop.
        what: String,
        /// The command, to be copied to a shell.
        command: String,
        /// The rate to expect of the path then, transactions per second; none where nothing tells it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expected: Option<f64>,
    },
    /// What to do by other means: an imperative without a full stop.
    Advice(String),
}

/// A network namespace, as `udpath apply` takes it.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Netns {
    /// Its name, as listed by `ip netns`.
    pub name: String,
    /// A process in it, whose namespace gets this name first; none: it has it already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

impl Netns {
    /// A verb of udpath there.
    #[must_use]
    pub fn command(&self, verb: &str) -> String {
        let name = quoted(&self.name);
        let attach = self.pid.map_or_else(String::new, |pid| format!("ip netns attach {name} {pid} && "));
        format!("{attach}udpath {verb} --netns {name}")
    }
}

impl Remedy {
    /// What to do, in words.
    #[must_use]
    pub fn what(&self) -> &str {
        match self {
            Self::Changes { what, .. } | Self::Command { what, .. } | Self::Advice(what) => what,
        }
    }

    /// The settings to change; none of advice.
    #[must_use]
    pub fn settings(&self) -> &[String] {
        match self {
            Self::Changes { settings, .. } => settings,
            Self::Command { .. } | Self::Advice(_) => &[],
        }
    }

    /// A verb of udpath where its settings are.
    #[must_use]
    pub fn verb(&self, verb: &str) -> String {
        match self {
            Self::Changes { netns: Some(netns), .. } => netns.command(verb),
            _ => format!("udpath {verb}"),
        }
    }

    /// The command that carries it out: of settings, `udpath apply`; none of advice.
    #[must_use]
    pub fn command(&self) -> Option<String> {
        match self {
            Self::Changes { settings, .. } => {
                let settings: Vec<String> =
                    settings.iter().map(|setting| format!("--set {}", quoted(setting))).collect();
                (!settings.is_empty()).then(|| format!("{} {}", self.verb("apply"), settings.join(" ")))
            }
            Self::Command { command, .. } => Some(command.clone()),
            Self::Advice(_) => None,
        }
    }
}

/// `text` with `value` for each `word` that is one.
fn replaced(text: &str, word: &str, value: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(word) {
        let (before, after) = (&rest[..at], &rest[at + word.len()..]);
        let part = |c: char| c.is_alphanumeric() || c == '_';
        let is_word = !before.ends_with(part) && !after.starts_with(part);
        out += before;
        out += if is_word { value } else { word };
        rest = after;
    }
    out + rest
}

/// Something that is wrong, or worth knowing.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Finding {
    /// What was found, by a name that does not change: `rss-table-short`. The same thing found in a map and in a
    /// profile has one id.
    pub id: String,
    /// How much it matters.
    pub severity: Severity,
    /// What it is about, the most specific last.
    #[serde(rename = "where")]
    pub locations: Vec<Location>,
    /// How large it is, 0 to 1: of the CPU time used, or of what the evidence names. None where it has no size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// How often it happens, per second. None where that is not known, as of counts since boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// What was seen, with figures: a sentence without its full stop.
    pub evidence: String,
    /// Why that is so, or why it matters: a sentence without its full stop.
    pub cause: String,
    /// What to do about it: alternatives, the best first.
    pub remedies: Vec<Remedy>,
}

impl Finding {
    /// Puts the interface and the process that it is about in the place of `IFACE` and `PID` in its advice, so that its
    /// commands can be copied; `interface`: of one that is about none.
    pub(crate) fn fill(&mut self, interface: Option<&str>) {
        let only = |value: fn(&Location) -> Option<String>| {
            let mut all: Vec<String> = self.locations.iter().filter_map(value).collect();
            all.dedup();
            // Of two, one would be a guess.
            (all.len() == 1).then(|| all.remove(0))
        };
        let named = only(|location| match location {
            Location::Interface(name) | Location::Queue(name, _) => Some(quoted(name)),
            _ => None,
        });
        let pid = only(|location| match location {
            Location::Process(pid) => Some(pid.to_string()),
            _ => None,
        });
        let known = [("IFACE", named.or_else(|| interface.map(quoted))), ("PID", pid)];
        for remedy in &mut self.remedies {
            if let Remedy::Advice(what) = remedy {
                for (word, value) in &known {
                    if let Some(value) = value {
                        *what = replaced(what, word, value);
                    }
                }
            }
        }
    }

    /// Says that its settings are there.
    pub fn place(&mut self, there: &Netns) {
        for remedy in &mut self.remedies {
            if let Remedy::Changes { netns, .. } = remedy {
                *netns = Some(there.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_the_interface_and_the_process() {
        let advice = |locations: Vec<Location>, interface| {
            let text = "`ethtool -K IFACE rx off`, IFACE:feature/x=off; `kill -CONT PID`, PIDS and MYIFACE";
            let mut finding = Finding {
                id: "x".into(),
                severity: Severity::Limit,
                locations,
                share: None,
                rate: None,
                evidence: String::new(),
                cause: String::new(),
                remedies: vec![Remedy::Advice(text.into())],
            };
            finding.fill(interface);
            finding.remedies[0].what().to_owned()
        };
        let of = vec![Location::Queue("eth0.7".into(), 1), Location::Process(812)];
        assert_eq!(
            advice(of, Some("eth1")),
            "`ethtool -K eth0.7 rx off`, eth0.7:feature/x=off; `kill -CONT 812`, PIDS and MYIFACE"
        );
        let two = vec![Location::Process(812), Location::Process(813)];
        assert!(advice(two, None).contains("CONT PID"), "either of them");
        assert!(advice(vec![Location::Udp], Some("eth1")).starts_with("`ethtool -K eth1 rx off`"));
        assert!(
            advice(vec![Location::Udp], None).contains("IFACE rx off")
                && advice(vec![], None).contains("CONT PID")
        );
    }

    #[test]
    fn commands_are_to_be_copied_to_a_shell() {
        let changed = |settings: &[&str], netns| Remedy::Changes {
            what: "do".into(),
            settings: settings.iter().map(|setting| (*setting).to_owned()).collect(),
            netns,
        };
        let changes = |settings: &[&str]| changed(settings, None);
        assert_eq!(
            changes(&["eth0:rps/rx-*=none", "irq:7:affinity=3"]).command().as_deref(),
            Some("udpath apply --set 'eth0:rps/rx-*=none' --set irq:7:affinity=3")
        );
        assert_eq!(changes(&[]).command(), None);
        let there = |name: &str, pid| {
            changed(&["eth0:qdisc=mq"], Some(Netns { name: name.into(), pid })).command().unwrap()
        };
        assert_eq!(there("a b", None), "udpath apply --netns 'a b' --set eth0:qdisc=mq");
        assert_eq!(
            there("pid-812", Some(812)),
            "ip netns attach pid-812 812 && udpath apply --netns pid-812 --set eth0:qdisc=mq"
        );
        assert_eq!(Remedy::Advice("do".into()).command(), None);
    }
}
