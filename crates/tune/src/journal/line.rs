//! The lines of an entry, and the checksum that ties them together.

use serde::{Deserialize, Serialize};

use super::{WrongLine, setting};
use crate::machine::Identity;
use crate::settings::{Setting, Value};

/// Where the checksums begin: the offset basis of FNV-1a, 64 bits.
pub(super) const START: u64 = 0xcbf2_9ce4_8422_2325;

/// The checksum of a line and all before it (FNV-1a). Finds slips of an editor, not malice: whoever may write the
/// journal may write the settings too.
pub(super) fn chained(before: u64, json: &str) -> u64 {
    json.bytes().fold(before, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Why an apply with `--confirm` was taken back: nobody confirmed it.
pub const UNCONFIRMED: &str = "not confirmed in time";
/// Why an apply with `--confirm` was taken back: the program that applied was killed.
pub const DIED: &str = "the apply died";

/// A line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Line {
    /// The first.
    Begun(Begun),
    /// A value that a reset of the link may lose.
    Kept(Kept),
    /// A change that is made next.
    Intent(Intent),
    /// It is made, and this was read back.
    Done {
        /// Which intent, from 0.
        at: usize,
        /// The value.
        found: Option<String>,
    },
    /// A kept value that the driver has chosen anew, rightly.
    Moved {
        /// The setting.
        setting: String,
        /// What it chose.
        found: Option<String>,
    },
    /// Every change is verified.
    Applied {
        /// When, milliseconds since 1970.
        time: u64,
    },
    /// After a boot, files have made it true again, and what follows is set anew. Objects are known by name until then.
    Adopted {
        /// When, milliseconds since 1970.
        time: u64,
        /// Which boot of the machine.
        boot: String,
        /// Which network namespace.
        namespace: Namespace,
    },
    /// It stays.
    Confirmed {
        /// When, milliseconds since 1970.
        time: u64,
        /// By whom.
        user: String,
    },
    /// It is taken back from here on.
    Undoing {
        /// When, milliseconds since 1970.
        time: u64,
        /// By whom.
        user: String,
        /// Why.
        why: String,
    },
    /// A change is taken back.
    Restored {
        /// Which intent, from 0.
        at: usize,
    },
    /// The undo has ended, and another may take back the rest.
    Failed {
        /// When, milliseconds since 1970.
        time: u64,
        /// What could not be, in words.
        left: Vec<String>,
    },
    /// All that could be is taken back.
    Undone {
        /// When, milliseconds since 1970.
        time: u64,
        /// What could not be, in words.
        left: Vec<String>,
    },
    /// It is given up: nothing of it will be taken back.
    Closed {
        /// When, milliseconds since 1970.
        time: u64,
        /// By whom.
        user: String,
    },
}

/// Who, when, where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// [`super::SCHEMA`].
    pub schema: String,
    /// The entry's number.
    pub id: u64,
    /// When, milliseconds since 1970.
    pub time: u64,
    /// The user, and who that is behind sudo.
    pub user: String,
    /// Version of the program.
    pub version: String,
    /// Which boot of the machine.
    pub boot: String,
    /// Which network namespace.
    pub namespace: Namespace,
    /// How long a confirmation is awaited, seconds; none: it stays without.
    pub confirm: Option<u64>,
}

/// A network namespace, by its file and its cookie: a later one may get the inode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// Device of the file.
    pub device: u64,
    /// Inode of the file.
    pub inode: u64,
    /// `SO_NETNS_COOKIE`: no other namespace of this boot has it. None before Linux 5.14, and in entries of earlier
    /// versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cookie: Option<u64>,
}

impl Namespace {
    /// Is it the same namespace, as far as both say?
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        let cookies = self.cookie.zip(other.cookie).is_none_or(|(this, that)| this == that);
        (self.device, self.inode) == (other.device, other.inode) && cookies
    }
}

/// A value as it was before something that may lose it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The setting.
    pub setting: String,
    /// The object it is a setting of.
    pub identity: Option<Identity>,
    /// The value.
    pub old: Option<String>,
    /// What the driver chose instead; none while it has not.
    #[serde(skip)]
    pub moved: Option<Option<String>>,
}

/// A change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// The setting.
    pub setting: String,
    /// The object it is a setting of.
    pub identity: Option<Identity>,
    /// The value before.
    pub old: Option<String>,
    /// The value wanted.
    pub new: Option<String>,
    /// Why.
    pub reason: String,
    /// What it has destroyed and undo cannot bring back, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
    /// What was read back after the change; none while it has not been.
    #[serde(skip)]
    pub done: Option<Option<String>>,
    /// It has been taken back.
    #[serde(skip)]
    pub restored: bool,
    /// It was made before the entry was adopted, and a later one of the same setting stands for it.
    #[serde(skip)]
    pub replaced: bool,
}

impl Kept {
    /// Setting and value.
    ///
    /// # Errors
    /// The words are none of this program's.
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
    /// The words are none of this program's.
    pub fn parsed(&self) -> Result<(Setting, Value, Value), WrongLine> {
        let setting = setting(&self.setting)?;
        let (old, new) = (setting.decode(self.old.as_deref())?, setting.decode(self.new.as_deref())?);
        Ok((setting, old, new))
    }
}
