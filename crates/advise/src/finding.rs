//! A finding: one thing that is wrong or worth knowing, with its evidence, its cause and its fixes.
//!
//! The only form in which udpath judges anything. [`crate::rules`] makes findings of a map and of a profile; everything
//! else prints them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Remedy {
    /// Settings that `udpath plan` accepts.
    Changes {
        /// What they do: an imperative without a full stop.
        what: String,
        /// `SETTING=VALUE` each, such as `eth0:rps/rx-0=1-3`, in the order in which they are to be applied.
        settings: Vec<String>,
    },
    /// What to do by other means: an imperative without a full stop.
    Advice(String),
}

impl Remedy {
    /// What to do, in words.
    #[must_use]
    pub fn what(&self) -> &str {
        match self {
            Self::Changes { what, .. } | Self::Advice(what) => what,
        }
    }

    /// The settings to change; none of advice.
    #[must_use]
    pub fn settings(&self) -> &[String] {
        match self {
            Self::Changes { settings, .. } => settings,
            Self::Advice(_) => &[],
        }
    }
}

/// Something that is wrong, or worth knowing.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Finding {
    /// What was found, by a name that does not change: `rss-table-short`. The same thing found in a map and in a profile
    /// has one id.
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
