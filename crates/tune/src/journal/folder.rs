//! Which folder is a journal: looked at before anything in it is read or changed.
//!
//! ```text
//! no folder, or an empty one                    may become a journal
//! only a journal's names                        is one
//! other names too, and a lock with a pid        is one: somebody keeps a note in it
//! anything else, a link, of another user,       an error, and nothing is changed
//! or writable by other users
//! ```
//! A folder that is created has mode 0700, files 0600. What exists keeps its mode, except where an earlier version has
//! left a journal's files open to others.

use std::ffi::{OsStr, OsString};

use udpath_files::{NotPrivate, Private};

use super::{CLOSED, EXTENSION, Journal, JournalError};

/// The lock's name.
pub(super) const LOCK: &str = "lock";
/// Entries have smaller numbers: an apply per second reaches it after 30,000 years. A file with this number or a larger
/// one was not made by an apply, and counting on from it would end at 2^64.
pub(super) const MAX_ID: u64 = 1_000_000_000_000;
/// Names of a folder that are looked at: entries stay for ever, one per apply. Lower: a long history blocks `status`.
/// Higher: a folder full of other files is read for longer before it is rejected.
const MAX_NAMES: usize = 1 << 20;
/// Longest lock, bytes: a pid and a newline.
const MAX_LOCK: u64 = 32;

/// A name that a journal has in its folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    Lock,
    /// An entry before its first line is synced.
    New,
    Entry(u64),
    Closed(u64),
}

/// The file name of an entry.
pub(super) fn entry_name(id: u64) -> String {
    format!("{id:06}.{EXTENSION}")
}

/// The file name of a closed unreadable entry.
pub(super) fn closed_name(id: u64) -> String {
    format!("{id:06}.{CLOSED}")
}

/// The file name of an entry that is being created.
pub(super) fn new_name(id: u64) -> String {
    format!(".{id:06}.new")
}

impl Name {
    /// What a name stands for; [`None`] if no journal has it. Numbers are as they are written, so that each entry has
    /// one.
    pub(super) fn of(name: &OsStr) -> Option<Self> {
        let name = name.to_str()?;
        if name == LOCK {
            return Some(Self::Lock);
        }
        let (number, extension) = name.trim_start_matches('.').split_once('.')?;
        let id: u64 = number.parse().ok()?;
        let found = match extension {
            EXTENSION => (Self::Entry(id), entry_name(id)),
            CLOSED => (Self::Closed(id), closed_name(id)),
            "new" => (Self::New, new_name(id)),
            _ => return None,
        };
        (found.1 == name).then_some(found.0)
    }
}

impl Journal {
    /// The folder, if there is one. Changes nothing.
    ///
    /// # Errors
    /// It is not a journal.
    pub(super) fn folder(&self) -> Result<Option<Private>, JournalError> {
        let found = Private::find(&self.directory).map_err(|why| self.not_private(why))?;
        if let Some(folder) = &found {
            self.recognised(folder)?;
        }
        Ok(found)
    }

    /// The folder, created if there is none; what an earlier version has left open to other users is closed.
    ///
    /// # Errors
    /// It is not a journal, and nothing was changed; or it cannot be created.
    pub(super) fn own_folder(&self) -> Result<Private, JournalError> {
        let folder = Private::create(&self.directory).map_err(|why| self.not_private(why))?;
        let names = self.recognised(&folder)?;
        let is_own = |name: &&OsString| Name::of(name).is_some();
        let open: Vec<&OsString> = names.iter().filter(is_own).filter(|name| folder.is_open(name)).collect();
        if !open.is_empty() && names.iter().all(|name| is_own(&name)) {
            let closed = folder.close_folder();
            closed.map_err(|cause| JournalError::system("close to other users", &self.directory, cause))?;
        }
        for name in open {
            // Of an entry that is not this user's: reading it says so.
            let _ = folder.close(name);
        }
        Ok(folder)
    }

    /// The folder's names, if it is a journal.
    fn recognised(&self, folder: &Private) -> Result<Vec<OsString>, JournalError> {
        let not = |why: String| JournalError::NotOne { path: self.directory.clone(), why };
        let names = folder.names(MAX_NAMES).map_err(|cause| match cause.raw_os_error() {
            Some(_) => JournalError::system("read", &self.directory, cause),
            None => not(format!("it {cause}")),
        })?;
        let lock = names.iter().any(|name| name == LOCK).then(|| folder.bytes(LOCK, MAX_LOCK));
        let signed = match lock {
            None => false,
            Some(Ok(text)) if text.trim_ascii_end().iter().all(u8::is_ascii_digit) => !text.is_empty(),
            Some(Ok(_)) => return Err(not("its file lock is not a journal's".to_owned())),
            Some(Err(cause)) if cause.raw_os_error().is_some() => {
                return Err(JournalError::system("read", &self.directory.join(LOCK), cause));
            }
            Some(Err(cause)) => return Err(not(format!("its file lock cannot be used: it {cause}"))),
        };
        match names.iter().find(|name| Name::of(name).is_none()) {
            Some(foreign) if !signed => Err(not(format!("it contains {}", foreign.display()))),
            _ => Ok(names),
        }
    }

    /// Whether the folder has a journal's files and no others, whoever may change it.
    fn looks_like_one(&self) -> bool {
        Private::names_of_any(&self.directory, MAX_NAMES)
            .is_ok_and(|names| !names.is_empty() && names.iter().all(|name| Name::of(name).is_some()))
    }

    fn not_private(&self, why: NotPrivate) -> JournalError {
        let path = self.directory.clone();
        match why {
            NotPrivate::System(cause) => JournalError::system("open the journal", &path, cause),
            NotPrivate::Link => JournalError::NotOne { path, why: "it is a symbolic link".to_owned() },
            // Who follows advice about a folder of others, such as /tmp, takes it from them.
            NotPrivate::Changeable(changeable) if !self.looks_like_one() => {
                JournalError::NotOne { path, why: changeable.to_string() }
            }
            NotPrivate::Changeable(changeable) => {
                let user = rustix::process::geteuid().as_raw();
                let own = std::path::absolute(&path).is_ok_and(|own| own == changeable.part);
                let mode = if own { "700" } else { "go-w" };
                JournalError::Shared { path, part: changeable.part, why: changeable.why, user, mode }
            }
        }
    }

    /// The numbers of some names, ascending.
    pub(super) fn numbers(
        &self,
        folder: &Private,
        wanted: impl Fn(Name) -> bool,
    ) -> Result<Vec<u64>, JournalError> {
        let names = folder.names(MAX_NAMES);
        let names = names.map_err(|cause| JournalError::system("read", &self.directory, cause))?;
        let found = names.iter().filter_map(|name| Name::of(name)).filter(|name| wanted(*name));
        let mut ids: Vec<u64> = found
            .filter_map(|name| match name {
                Name::Entry(id) | Name::Closed(id) => Some(id),
                Name::Lock | Name::New => None,
            })
            .collect();
        ids.sort_unstable();
        Ok(ids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_a_journal_gives() {
        let of = |name: &str| Name::of(OsStr::new(name));
        for id in [1, 999_999, 1_000_000, u64::MAX] {
            assert_eq!(of(&entry_name(id)), Some(Name::Entry(id)));
            assert_eq!(of(&closed_name(id)), Some(Name::Closed(id)));
            assert_eq!(of(&new_name(id)), Some(Name::New));
        }
        assert_eq!(of("lock"), Some(Name::Lock));
        for other in [
            "1.journal",
            "+00001.journal",
            "0000001.journal",
            ".000001.journal",
            "..000001.new",
            "18446744073709551616.journal",
            "000001.journal~",
            "passwd",
            "",
            ".",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
