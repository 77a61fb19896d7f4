//! What is to be changed, in order, each change with the value before it: shown, then made.
//!
//! ```text
//! flags, file --> SettingRequest --> resolve: names, values, CPUs, what is now, order, conflicts, security --> Plan
//!                                                                              diff │ shell │ JSON
//!                                                                                   apply
//! ```
//! A [`Plan`] is the one thing that is printed and made: [`crate::apply()`] takes nothing else. Its JSON can be given back
//! as a request; a machine that has changed since is told from the one the plan was made for.

mod limits;
mod port;
mod render;
mod request;
mod resolve;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use render::lasting;
pub use request::SettingRequest;
pub use resolve::Consent;

use crate::machine::Refusal;
use crate::settings::{Cost, Scope, Setting, Value, WrongName, WrongValue};

/// Version of the JSON form. Raised when a field changes its meaning or goes; new fields may come without.
pub const SCHEMA: &str = "udpath.plan/2";

/// Changes in the order in which they are made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// What is changed.
    pub changes: Vec<Change>,
    /// What was asked for and is so already.
    pub already: Vec<(Setting, Value)>,
}

/// One setting, before and after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// What is changed.
    pub setting: Setting,
    /// Its value when the plan was made; none when it will only be there once an earlier change is made.
    pub from: Option<Value>,
    /// What it is set to.
    pub to: Value,
    /// The IRQ that a queue's is, when the plan was made.
    pub irq: Option<u32>,
    /// Why.
    pub reason: String,
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlanError {
    /// A request without a value.
    #[error("{0:?} sets nothing; write SETTING=VALUE, such as eth0:rps/rx-0=0-3")]
    NoValue(String),
    /// A name that is none.
    #[error(transparent)]
    Name(#[from] WrongName),
    /// A value that is none.
    #[error(transparent)]
    Value(#[from] WrongValue),
    /// Two values for one setting.
    #[error("{setting} cannot be {one} and {other} at once")]
    Twice {
        /// The setting.
        setting: String,
        /// What was asked for first.
        one: String,
        /// What was asked for as well.
        other: String,
    },
    /// CPUs or queues that are not there.
    #[error("{setting}={value}: {why}")]
    Beyond {
        /// The setting.
        setting: String,
        /// What was asked for.
        value: String,
        /// What is not there, and what is.
        why: String,
    },
    /// `*` that stands for nothing.
    #[error("{name:?} stands for no queue: {why}")]
    Nothing {
        /// The request.
        name: String,
        /// What was looked for, and where.
        why: String,
    },
    /// A request about a port that is none.
    #[error("{name:?} names nothing of a port: {why}")]
    Port {
        /// The request.
        name: String,
        /// What would.
        why: String,
    },
    /// Nobody serves the port, or who it is cannot be told.
    #[error("{name:?} stands for nothing: {why}")]
    Unserved {
        /// The request.
        name: String,
        /// What was looked for.
        why: String,
    },
    /// The plan was made for another machine, or this one has changed.
    #[error("{setting} is {found} now, and the plan was made when it was {expected}; make the plan again")]
    Stale {
        /// The setting.
        setting: String,
        /// What it is.
        found: String,
        /// What the plan says it was.
        expected: String,
    },
    /// It lowers security, and nobody has allowed it.
    #[error("{setting}={value} lowers security: {why}; allow it by --allow {setting}")]
    Insecure {
        /// The setting.
        setting: String,
        /// What was asked for.
        value: String,
        /// What it costs.
        why: &'static str,
    },
    /// It destroys what undo cannot bring back, and nobody has allowed it.
    #[error("{setting}={value} {why}; allow it by --allow {setting}")]
    Destroys {
        /// The setting.
        setting: String,
        /// What was asked for.
        value: String,
        /// What is lost.
        why: String,
    },
    /// Somebody else would change it back.
    #[error("{setting}: {why}")]
    Conflict {
        /// The setting.
        setting: String,
        /// Who, and what to do.
        why: String,
    },
    /// The JSON is none, or another's.
    #[error("this is no plan: {0}")]
    Json(String),
    /// The machine does not say, or does not have it.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl PlanError {
    /// Is it what was asked for that is wrong, rather than the machine that cannot?
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::NoValue(_)
                | Self::Name(_)
                | Self::Value(_)
                | Self::Twice { .. }
                | Self::Beyond { .. }
                | Self::Nothing { .. }
                | Self::Port { .. }
                | Self::Insecure { .. }
                | Self::Destroys { .. }
                | Self::Json(_)
        )
    }
}

/// The JSON form of a plan.
#[derive(Debug, Serialize, Deserialize)]
pub struct Document {
    schema: String,
    changes: Vec<Entry>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    already: Vec<Entry>,
}

/// The JSON form of a change: what is read is the setting, its values and the reason; the rest is for the reader.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    setting: String,
    #[serde(default)]
    from: Option<String>,
    to: Option<String>,
    #[serde(default)]
    reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    about: Option<About>,
}

/// What is known of a setting, for the reader of a plan.
#[derive(Debug, Serialize, Deserialize)]
struct About {
    cost: Cost,
    scope: Scope,
    conflicts: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lowers_security: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lasts: Option<String>,
    shell: String,
}

impl Change {
    /// The line that makes it in a shell.
    #[must_use]
    pub fn shell(&self) -> String {
        self.irq.map_or_else(|| self.setting.shell(&self.to), |irq| Setting::Irq(irq).shell(&self.to))
    }

    fn entry(&self) -> Entry {
        let about = About {
            cost: self.setting.cost(),
            scope: self.setting.scope(),
            conflicts: self.setting.conflicts().iter().map(ToString::to_string).collect(),
            lowers_security: self.setting.lowers_security(self.from.as_ref(), &self.to).map(str::to_owned),
            lasts: self.setting.lasts().map(str::to_owned),
            shell: self.shell(),
        };
        Entry {
            setting: self.setting.to_string(),
            from: self.from.as_ref().and_then(Setting::encode),
            to: Setting::encode(&self.to),
            reason: self.reason.clone(),
            about: Some(about),
        }
    }
}

impl Plan {
    /// Nothing to do?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The JSON form.
    #[must_use]
    pub fn document(&self) -> Document {
        let already = self.already.iter().map(|(setting, value)| Entry {
            setting: setting.to_string(),
            from: Setting::encode(value),
            to: Setting::encode(value),
            reason: String::new(),
            about: None,
        });
        Document {
            schema: SCHEMA.to_owned(),
            changes: self.changes.iter().map(Change::entry).collect(),
            already: already.collect(),
        }
    }
}
