//! The lines of an entry, and the checksum that chains them.

use serde::{Deserialize, Serialize};

use super::{WrongLine, setting};
use crate::context::Namespace;
use crate::machine::Identity;
use crate::settings::{Setting, Value};

/// Initial checksum: the offset basis of FNV-1a, 64 bits.
pub(super) const START: u64 = 0xcbf2_9ce4_8422_2325;

/// The checksum of a line and all before it (FNV-1a). Detects accidental edits, not tampering: a user who can write the
/// journal can write the settings too.
pub(super) fn chained(before: u64, json: &str) -> u64 {
    json.bytes().fold(before, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Why an apply with `--confirm` was rolled back: it was not confirmed.
pub const UNCONFIRMED: &str = "not confirmed in time";
/// Why an apply with `--confirm` was rolled back: the applying process was killed.
pub const DIED: &str = "the apply died";

/// A line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Line {
    /// The first line.
    Begun(Begun),
    /// A value that a reset of the link may lose.
    Kept(Kept),
    /// A change about to be made.
    Intent(Intent),
    /// The change was made, and this was read back.
    Done {
        /// Which intent, from 0.
        at: usize,
        /// The value.
        found: Option<String>,
    },
    /// A kept value that the driver, or irqbalance, legitimately chose anew.
    Moved {
        /// The setting.
        setting: String,
        /// The value it chose.
        found: Option<String>,
    },
    /// Every change was read back.
    Applied {
        /// When, milliseconds since 1970.
        time: u64,
    },
    /// After a boot, files have restored part of it; what follows is set again. Until then objects are known by name.
    Adopted {
        /// When, milliseconds since 1970.
        time: u64,
        /// The boot ID.
        boot: String,
        /// The network namespace.
        namespace: Namespace,
    },
    /// The apply is permanent.
    Confirmed {
        /// When, milliseconds since 1970.
        time: u64,
        /// By whom.
        user: String,
    },
    /// An undo begins.
    Undoing {
        /// When, milliseconds since 1970.
        time: u64,
        /// By whom.
        user: String,
        /// Why.
        why: String,
    },
    /// A change was undone.
    Restored {
        /// Which intent, from 0.
        at: usize,
    },
    /// The undo ended with failures; another one may restore the rest.
    Failed {
        /// When, milliseconds since 1970.
        time: u64,
        /// What was not restored.
        left: Vec<String>,
    },
    /// Everything that can be undone is undone.
    Undone {
        /// When, milliseconds since 1970.
        time: u64,
        /// What was not restored.
        left: Vec<String>,
    },
    /// Closed: none of it will be undone.
    Closed {
        /// When, milliseconds since 1970.
        time: u64,
        /// By whom.
        user: String,
    },
}

/// User, time and place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// [`super::SCHEMA`].
    pub schema: String,
    /// The entry's number.
    pub id: u64,
    /// When, milliseconds since 1970.
    pub time: u64,
    /// The user, and the invoking user behind sudo.
    pub user: String,
    /// Version of the program.
    pub version: String,
    /// The boot ID.
    pub boot: String,
    /// The network namespace.
    pub namespace: Namespace,
    /// Confirmation timeout, seconds; `None`: no confirmation needed.
    pub confirm: Option<u64>,
    /// The changes last as long as the program that made them ([`crate::temporary`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub temporary: bool,
    /// With files that keep it across boots: each setting that they keep, with those that had their values already, as
    /// `SETTING=VALUE`. Empty: there are none, or an earlier version has written the entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub persists: Vec<String>,
}

/// A value before an operation that may lose it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The setting.
    pub setting: String,
    /// The object it belongs to.
    pub identity: Option<Identity>,
    /// The value.
    pub old: Option<String>,
    /// The value the driver chose instead, if any.
    #[serde(skip)]
    pub moved: Option<Option<String>>,
}

/// A change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// The setting.
    pub setting: String,
    /// The object it belongs to.
    pub identity: Option<Identity>,
    /// The value before.
    pub old: Option<String>,
    /// The new value.
    pub new: Option<String>,
    /// Why.
    pub reason: String,
    /// What it destroyed and undo cannot bring back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
    /// The value read back after the change, if any.
    #[serde(skip)]
    pub done: Option<Option<String>>,
    /// It has been undone.
    #[serde(skip)]
    pub restored: bool,
    /// It predates the adoption, and a later intent for the same setting replaces it.
    #[serde(skip)]
    pub replaced: bool,
}

impl Kept {
    /// Setting and value.
    ///
    /// # Errors
    /// This program does not understand the names.
    pub fn parsed(&self) -> Result<(Setting, Value), WrongLine> {
        let setting = setting(&self.setting)?;
        let old = setting.decode(self.old.as_deref())?;
        Ok((setting, old))
    }
}

impl Intent {
    /// Setting, old and new value.
    ///
    /// # Errors
    /// This program does not understand the names.
    pub fn parsed(&self) -> Result<(Setting, Value, Value), WrongLine> {
        let setting = setting(&self.setting)?;
        let (old, new) = (setting.decode(self.old.as_deref())?, setting.decode(self.new.as_deref())?);
        Ok((setting, old, new))
    }
}
