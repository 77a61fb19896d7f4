//! The changes to make, in order, each with its previous value: first shown, then applied.
//!
//! ```text
//! flags, file --> SettingRequest --> resolve: names, values, CPUs, current values, order, conflicts, security --> Plan
//!                                                                                 diff │ shell │ JSON
//!                                                                                      apply
//! ```
//! A [`Plan`] is both printed and applied: [`crate::apply()`] takes nothing else. Its JSON is accepted as a request; if
//! the machine has changed since the plan was made, that is detected.

mod ceiling;
mod expand;
mod limits;
mod port;
mod render;
mod request;
mod resolve;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use render::lasting;
pub use request::SettingRequest;
pub use resolve::Consent;
pub(crate) use resolve::is_incomplete;

use crate::changed::{digest, shown};
use crate::machine::Refusal;
use crate::settings::{Cost, Scope, Setting, Value, WrongName, WrongValue};

/// Version of the JSON form. Incremented when a field is removed or changes meaning, but not when a field is added.
pub const SCHEMA: &str = "udpath.plan/2";

/// Changes in the order in which they are applied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The changes.
    pub changes: Vec<Change>,
    /// Requested settings that already have the requested value.
    pub already: Vec<(Setting, Value)>,
}

/// One setting, before and after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The setting.
    pub setting: Setting,
    /// Its value when the plan was made; `None` if it will exist only after an earlier change.
    pub from: Option<Value>,
    /// What it is set to.
    pub to: Value,
    /// The queue's IRQ when the plan was made.
    pub irq: Option<u32>,
    /// Why.
    pub reason: String,
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlanError {
    /// A request without a value.
    #[error("{0:?} has no value; write SETTING=VALUE, such as eth0:rps/rx-0=0-3")]
    NoValue(String),
    /// An invalid name.
    #[error(transparent)]
    Name(#[from] WrongName),
    /// An invalid value.
    #[error(transparent)]
    Value(#[from] WrongValue),
    /// Two values for the same setting.
    #[error("{setting} cannot be both {one} and {other}")]
    Twice {
        /// The setting.
        setting: String,
        /// The first requested value.
        one: String,
        /// The second.
        other: String,
    },
    /// CPUs or queues that do not exist.
    #[error("{setting}={value}: {why}")]
    Beyond {
        /// The setting.
        setting: String,
        /// The requested value.
        value: String,
        /// What does not exist, and what does.
        why: String,
    },
    /// A `*` that matches nothing.
    #[error("{name:?} matches no queue: {why}")]
    Nothing {
        /// The request.
        name: String,
        /// What was looked for, and where.
        why: String,
    },
    /// An invalid request about a port.
    #[error("{name:?} is not a setting of a port: {why}")]
    Port {
        /// The request.
        name: String,
        /// Valid names.
        why: String,
    },
    /// No server on the port, or it cannot be identified.
    #[error("{name:?} matches nothing: {why}")]
    Unserved {
        /// The request.
        name: String,
        /// What was looked for.
        why: String,
    },
    /// The plan was made for another machine, or this one has changed.
    #[error("{setting} is now {found}, but was {expected} when the plan was made; make the plan again")]
    Stale {
        /// The setting.
        setting: String,
        /// Its current value.
        found: String,
        /// Its value in the plan.
        expected: String,
    },
    /// It is not known to be harmless, and was not allowed.
    #[error(
        "{setting}={value} may lower security: {why}; allow it with --allow {setting}, or all such changes with --allow insecure"
    )]
    Insecure {
        /// The setting.
        setting: String,
        /// The requested value.
        value: String,
        /// How it may lower security.
        why: &'static str,
    },
    /// It destroys what undo cannot restore, and was not allowed.
    #[error("{setting}={value} {why}; allow it with --allow {setting}")]
    Destroys {
        /// The setting.
        setting: String,
        /// The requested value.
        value: String,
        /// What is lost.
        why: String,
    },
    /// Another program would change it back.
    #[error("{setting}: {why}")]
    Conflict {
        /// The setting.
        setting: String,
        /// Which one, and what to do.
        why: String,
    },
    /// Invalid JSON, or not a plan.
    #[error("not a plan: {0}")]
    Json(String),
    /// The machine does not report it, or does not have it.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl PlanError {
    /// Is the request wrong, rather than the machine unable?
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
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
pub struct Document {
    schema: String,
    changes: Vec<Entry>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    already: Vec<Entry>,
}

/// The JSON form of a change: only the setting, its values and the reason are read back; the rest is for the reader.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
struct Entry {
    setting: String,
    #[serde(default)]
    from: Option<String>,
    to: Option<String>,
    #[serde(default)]
    reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    about: Option<About>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<FileEdit>,
}

/// What changes in a file. It has no `from` and `to`: the file may have secrets.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
struct FileEdit {
    /// The lines that change, as a unified diff without context; of each, only the key and value that change.
    diff: String,
    /// SHA-256 of its text; none if it does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    old_sha256: Option<String>,
    /// SHA-256 of its new text; none if it is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    new_sha256: Option<String>,
}

/// Details of a setting, for the reader of a plan.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
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
    /// The equivalent shell command.
    #[must_use]
    pub fn shell(&self) -> String {
        match self.irq {
            Some(irq) => Setting::Irq(irq).shell(&self.to),
            None => self.setting.shell_from(self.from.as_ref(), &self.to),
        }
    }

    /// The lines of a file that it changes; empty for other changes.
    fn lines(&self) -> String {
        let text = |value: &Value| match value {
            Value::File(text) => Some(text.clone().unwrap_or_default()),
            _ => None,
        };
        let old = self.from.as_ref().map_or(Some(String::new()), text);
        old.zip(text(&self.to)).map_or_else(String::new, |(old, new)| shown(&old, &new))
    }

    /// What it changes in a file; `None` for other changes.
    fn file(&self) -> Option<FileEdit> {
        let Value::File(to) = &self.to else { return None };
        let old = match &self.from {
            Some(Value::File(Some(old))) => Some(digest(old)),
            _ => None,
        };
        Some(FileEdit { diff: self.lines(), old_sha256: old, new_sha256: to.as_deref().map(digest) })
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
        let file = self.file();
        let value = |value: &Value| Setting::encode(value).filter(|_| file.is_none());
        Entry {
            setting: self.setting.to_string(),
            from: self.from.as_ref().and_then(value),
            to: value(&self.to),
            reason: self.reason.clone(),
            about: Some(about),
            file,
        }
    }
}

impl Plan {
    /// Is there nothing to do?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// What it is about: what it changes, and what already is as requested.
    pub fn settings(&self) -> impl Iterator<Item = &Setting> {
        let already = self.already.iter().map(|(setting, _)| setting);
        self.changes.iter().map(|change| &change.setting).chain(already)
    }

    /// What its files keep across boots, as `SETTING=VALUE`: all its settings, if it has any files.
    pub(crate) fn persists(&self) -> Vec<String> {
        let is_file = |setting: &Setting| matches!(setting, Setting::File(_));
        if !self.changes.iter().any(|change| is_file(&change.setting)) {
            return Vec::new();
        }
        let changed = self.changes.iter().map(|change| (&change.setting, &change.to));
        let all = changed.chain(self.already.iter().map(|(setting, value)| (setting, value)));
        let named = all.filter(|(setting, _)| !is_file(setting));
        named.filter_map(|(setting, value)| Some(format!("{setting}={}", Setting::encode(value)?))).collect()
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
            file: None,
        });
        Document {
            schema: SCHEMA.to_owned(),
            changes: self.changes.iter().map(Change::entry).collect(),
            already: already.collect(),
        }
    }
}
