//! A knob of a running server, and a change of it.

use std::ops::Range;

use super::advisory::Advisory;

/// Why a server with its configuration on its command line is not changed.
pub(super) const NO_FILE: &str =
    "its command line has its configuration, and it reads no file of its own: change it where it is started";

/// A knob as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Knob {
    /// Its name, as in requests.
    pub name: &'static str,
    /// What it is.
    pub what: &'static str,
    /// The value in effect, as written, or the number that the server makes of it; `None`: the default.
    pub value: Option<String>,
    /// Where several sections have the knob: which one this is, such as `port 514`. They are in their order.
    pub of: Option<String>,
    /// The value is a variable, or the output of a command: what it is to the server is not known.
    pub unknown: bool,
    /// The server's default; `cpus`: one for each CPU.
    pub default: &'static str,
    /// Where it is set.
    pub origin: Origin,
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Not set.
    Default,
    /// A line of a file, from 1.
    File(String, usize),
    /// The server's arguments.
    Arguments,
    /// The part of the configuration that it belongs to is not there.
    Unused,
}

/// A change of one knob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// The knob.
    pub knob: &'static str,
    /// Its new value.
    pub value: String,
    /// What the knob is.
    pub what: &'static str,
    /// The effect that is expected.
    pub effect: &'static str,
    /// What it may cost, apart from the restart.
    pub risk: &'static str,
    /// It helps only under conditions that are not checked here: worth a trial, not taken without one.
    pub uncertain: bool,
    /// The packet filter sees none of the server's datagrams any more.
    pub bypasses_packet_filter: bool,
    /// What it exposes further than now, as far as the installed version does not mend it.
    pub advisories: Vec<&'static Advisory>,
    pub(super) edits: Vec<Edit>,
}

impl Proposal {
    /// Its name, which is also how it is requested: `server-count=2`.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{}={}", self.knob, self.value)
    }

    /// What it exposes further than now, as a sentence; `None`: nothing that is known.
    #[must_use]
    pub fn exposes(&self) -> Option<String> {
        let all: Vec<String> = self.advisories.iter().map(ToString::to_string).collect();
        (!all.is_empty()).then(|| format!("{} raises exposure to {}", self.id(), all.join("; ")))
    }
}

/// A change of a few bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Edit {
    /// Replace bytes of a file; an empty range inserts.
    Replace {
        /// Which file of the configuration.
        file: usize,
        span: Range<usize>,
        text: String,
    },
    /// Set a key in a new section: of the drop-in if there can be one, else at the end of the main file.
    New { section: String, key: String, value: String },
}
