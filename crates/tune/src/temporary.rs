//! Temporary changes: settings that a measurement turns on and off, and that are as found once it ends.
//!
//! ```text
//!  Temporary::begin ─▸ set(a) ─▸ set(b) ─▸ set(a) ─▸ ...  ─▸ end      one entry of the journal, removed at the end
//!                       │ the first time that a setting differs: its value as found is journaled and synced, then written
//!                       └ after that it is written alone: what undo needs is on disk
//! ```
//! Killed at any instruction, the entry stays in the journal as an unfinished apply: `udpath undo` restores what was
//! found, and so does [`recover`], at the next start of a program that makes temporary changes.
//!
//! A change that resets the link may lose others (`reset.rs`): their values are journaled before the first reset, and
//! written again after each.
//!
//! What undo could not restore is never changed temporarily: a value that the kernel does not report, a reuseport
//! program of the server's own.

mod reset;

use std::collections::BTreeMap;

use error_reporter::Report;

use crate::context::{self, now};
use crate::journal::{Begun, Intent, JournalError, Lock, SCHEMA, State, Writing};
use crate::machine::{Machine, Refusal};
use crate::plan::Plan;
use crate::settings::{Phase, Setting, Value};
use crate::undo::{self, UndoError, Undone};

/// Reason of the intents of a temporary change, for the journal.
const REASON: &str = "temporary, for a measurement";

/// Why a temporary change was not made.
#[derive(Debug, thiserror::Error)]
pub enum TemporaryError {
    /// The journal cannot be used; the setting was not changed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The kernel refused, or stored another value.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// Settings under temporary change. Dropping it restores them like [`Temporary::end`], without a report.
#[derive(Debug)]
pub struct Temporary<'a> {
    machine: &'a dyn Machine,
    lock: &'a Lock,
    id: u64,
    writing: Writing,
    /// Every setting that was ever changed, with the value found, in the order of the first changes.
    found: Vec<(Setting, Value)>,
    /// The values now, where they differ from those found.
    now: BTreeMap<Setting, Value>,
    /// Values found of settings that link resets may lose, other than those above.
    kept: BTreeMap<Setting, Value>,
    ended: bool,
}

impl<'a> Temporary<'a> {
    /// Begins an entry of the journal; nothing is changed yet. `lock` is held as long as this exists, so that nobody
    /// applies anything in between.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn begin(machine: &'a dyn Machine, lock: &'a Lock) -> Result<Self, JournalError> {
        let failed =
            |cause| JournalError::system("read the network namespace for", lock.journal().directory(), cause);
        let namespace = context::namespace().map_err(failed)?;
        let (id, writing) = lock.begin(|id| Begun {
            schema: SCHEMA.to_owned(),
            id,
            time: now(),
            user: context::user(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            boot: context::boot(),
            namespace,
            confirm: None,
            temporary: true,
            persists: Vec::new(),
        })?;
        Ok(Self {
            machine,
            lock,
            id,
            writing,
            found: Vec::new(),
            now: BTreeMap::new(),
            kept: BTreeMap::new(),
            ended: false,
        })
    }

    /// Whether a plan can be carried out temporarily.
    ///
    /// # Errors
    /// Which of its changes cannot, and why.
    pub fn check(machine: &dyn Machine, plan: &Plan) -> Result<(), Refusal> {
        for change in &plan.changes {
            let refused = |why: String| Refusal::because("set", &change.setting, why);
            if let Some(lost) = machine.lost(&change.setting) {
                return Err(refused(format!("it {}", lost.words)));
            }
            if change.from.as_ref().is_some_and(|from| !from.is_reported())
                && change.setting.assumed().is_none()
            {
                return Err(refused(
                    "the kernel does not report its value, so it could not be restored".into(),
                ));
            }
        }
        Ok(())
    }

    /// Makes exactly these values effective: every other setting that was ever changed is as found. Values are written
    /// in the order given, after those that go back. A server is restarted last, and whenever a file of a configuration
    /// changed.
    ///
    /// # Errors
    /// What could not be set; some of the values may be set then. [`Self::end`] restores all of them.
    pub fn set(&mut self, wanted: &[(Setting, Value)]) -> Result<(), TemporaryError> {
        let stays = |setting: &Setting| wanted.iter().any(|(other, _)| other == setting);
        let back: Vec<_> = self.found.iter().rev().filter(|(setting, _)| !stays(setting)).cloned().collect();
        let all = || back.iter().chain(wanted);
        let restarts = |(setting, _): &&(Setting, Value)| setting.phase() == Phase::Restart;
        let mut configured = false;
        for (setting, value) in all().filter(|change| !restarts(change)) {
            let written = self.write(setting, value)?;
            configured |= written && matches!(setting, Setting::Config(_));
        }
        for (setting, value) in all().filter(restarts) {
            let known = self.found.iter().any(|(other, _)| other == setting);
            if configured && known {
                self.machine.write(setting, value)?;
                self.now.insert(setting.clone(), value.clone());
            } else {
                self.write(setting, value)?;
            }
        }
        Ok(())
    }

    /// Writes one value, where it differs from the one in effect, and reads it back; returns whether it was written.
    fn write(&mut self, setting: &Setting, value: &Value) -> Result<bool, TemporaryError> {
        let known = self.found.iter().find(|(other, _)| other == setting).map(|(_, found)| found.clone());
        let found = match known {
            Some(found) => found,
            None => {
                let read = self.machine.read(setting)?;
                if read.is(value) {
                    return Ok(false);
                }
                self.announce(setting, read, value)?
            }
        };
        if self.now.get(setting).unwrap_or(&found).is(value) {
            return Ok(false);
        }
        let reset = self.before_reset(setting)?;
        self.machine.write(setting, value)?;
        let stored = self.machine.read(setting)?;
        if stored.is_reported() && !stored.is(value) {
            let why = format!("it was set to {value:#} and is {stored:#}: {}", setting.row().extra.differs);
            return Err(Refusal::because("set", setting, why).into());
        }
        if let Some(reset) = reset {
            self.after_reset(setting, found.is(value), &reset)?;
        }
        if found.is(value) {
            self.now.remove(setting);
        } else {
            self.now.insert(setting.clone(), value.clone());
        }
        Ok(true)
    }

    /// Journals the value found of a setting that is about to change for the first time.
    fn announce(&mut self, setting: &Setting, read: Value, value: &Value) -> Result<Value, TemporaryError> {
        let found = if read.is_reported() { read } else { setting.assumed().unwrap_or(read) };
        let intent = Intent {
            setting: setting.to_string(),
            identity: self.machine.identity(setting)?,
            old: Setting::encode(&found),
            new: Setting::encode(value),
            reason: REASON.to_owned(),
            lost: None,
            done: None,
            restored: false,
            replaced: false,
        };
        self.writing.append(&crate::journal::Line::Intent(intent))?;
        self.writing.sync()?;
        self.found.push((setting.clone(), found.clone()));
        Ok(found)
    }

    /// Forgets the settings of processes that have ended since: there is nothing to restore. For a server that was
    /// restarted.
    pub fn forget_ended(&mut self) {
        let machine = self.machine;
        let ended = |setting: &Setting| machine.read(setting).is_err_and(|refusal| refusal.is_gone());
        self.found.retain(|(setting, _)| !ended(setting));
        self.now.retain(|setting, _| !ended(setting));
    }

    /// Restores everything, and removes the entry. What could not be restored is in the result, and its entry stays in
    /// the journal, for another `udpath undo`.
    ///
    /// # Errors
    /// Nothing was restored: the entry cannot be read.
    pub fn end(mut self) -> Result<Undone, UndoError> {
        self.finish()
    }

    fn finish(&mut self) -> Result<Undone, UndoError> {
        self.ended = true;
        let undone = undo::undo(self.machine, self.lock, Some(self.id), "the measurement ended", true)?;
        if undone.complete && undone.left.is_empty() {
            self.lock.remove(self.id);
        }
        Ok(undone)
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.ended {
            // The entry stays unfinished then, and the next start or `udpath undo` tries again.
            let _ = self.finish();
        }
    }
}

/// Undoes temporary changes whose program was killed. The lock is held, so none of them is in use.
///
/// # Errors
/// A sentence for the first entry that could not be undone, such as one of another network namespace.
pub fn recover(machine: &dyn Machine, lock: &Lock) -> Result<Vec<Undone>, String> {
    let entries = lock.journal().entries().map_err(|error| Report::new(error).to_string())?;
    let left = |state| matches!(state, State::Unfinished | State::HalfUndone);
    let mut all = Vec::new();
    for entry in entries.iter().rev().filter(|entry| entry.begun.temporary && left(entry.state)) {
        if entry.intents.is_empty() {
            lock.remove(entry.id);
            continue;
        }
        let undone = undo::undo(machine, lock, Some(entry.id), "its measurement was killed", true);
        all.push(undone.map_err(|error| Report::new(error).to_string())?);
    }
    Ok(all)
}
