//! Applied changes, and which of them are still in effect.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use error_reporter::Report;
use schemars::JsonSchema;
use serde::Serialize;

use crate::conflicts::Running;
use crate::context;
use crate::journal::{Attendant, Contents, Entry, Intent, Journal, JournalError, State, attendant};
use crate::machine::Machine;
use crate::plan::Plan;
use crate::restore::AfterBoot;
use crate::settings::{Phase, Scope, Setting, Value};
use udpath_host::namespace::Place;

/// Version of the JSON form. Incremented when a field is removed or changes meaning, but not when a field is added.
pub const SCHEMA: &str = "udpath.status/1";

/// How long after its deadline an apply may still be awaiting its revert, milliseconds. Undo takes seconds where a
/// driver resets its link, and waits for another udpath. Lower: an alarm about a revert that is running. Higher: one
/// that hangs is reported later.
const LATE: u64 = 60_000;

/// How long to wait for another udpath that is changing settings before its unfinished change is reported. Shorter: an
/// undo that resets a link, which takes seconds, raises an alarm. Longer: a stuck udpath delays every look by as much.
const SETTLES: Duration = Duration::from_secs(3);
/// Pause between two looks meanwhile. Shorter: CPU time. Longer: the outcome is told later.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// All applies in effect.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Status {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// In the order of their numbers.
    pub applies: Vec<Standing>,
    /// Applies that were rolled back for lack of confirmation: the last one, if none came after it, and every one that
    /// could not be rolled back completely.
    pub reverted: Vec<Reverted>,
    /// Unreadable journal entries.
    pub unreadable: Vec<Unreadable>,
    /// Settings that a boot keeps, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub persisted: Vec<Persisted>,
}

/// A setting that a boot keeps: by the files of the last apply that has any for it, if all of those are as written.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Persisted {
    /// Its name.
    pub setting: String,
    /// Its value, as in a plan's JSON.
    pub applied: String,
}

/// An apply that was rolled back because it was not confirmed.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Reverted {
    /// Its number.
    pub id: u64,
    /// When its rollback began, milliseconds since 1970.
    pub time: u64,
    /// Why.
    pub why: String,
    /// What was not restored.
    pub left: Vec<String>,
}

/// An unreadable journal entry.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Unreadable {
    /// Its number.
    pub id: u64,
    /// Why, and what to do.
    pub why: String,
}

/// An apply in effect.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Standing {
    /// Its number.
    pub id: u64,
    /// When it began, milliseconds since 1970.
    pub time: u64,
    /// The user who ran it.
    pub user: String,
    /// Its state.
    pub state: State,
    /// When it is reverted unless confirmed, milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<u64>,
    /// If it awaits confirmation: whether a process is running to revert it, in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attended: Option<bool>,
    /// If it awaits confirmation: the process that is to revert it, unless that has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reverter: Option<Reverter>,
    /// If it is half undone: what could not be restored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
    /// Where it was made, if not here: its settings cannot be checked then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<String>,
    /// The network namespace is not found, and its settings are gone with it.
    pub lost: bool,
    /// The machine has rebooted since it was made, or last adopted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub booted: bool,
    /// Its settings.
    pub settings: Vec<Held>,
}

/// The process that is to revert an apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Reverter {
    /// Its pid; `None` if it is not visible here, as in another container.
    pub pid: Option<u32>,
    /// It does not run: it got SIGSTOP, or a debugger holds it.
    pub stopped: bool,
}

/// An applied setting.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Held {
    /// Its name.
    pub setting: String,
    /// Its previous value.
    pub before: String,
    /// The applied value.
    pub applied: String,
    /// Its current value; `None` if it cannot be read.
    pub now: Option<String>,
    /// Whether it is still in effect.
    pub state: Hold,
    /// Programs that may have changed it.
    pub suspects: Vec<String>,
    /// A note.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Whether an applied value is still in effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hold {
    /// It is.
    Holds,
    /// Changed by a later apply.
    Superseded,
    /// Changed by another program, or without its effect because of one; a note says why.
    Drifted,
    /// It was set, and the kernel does not report whether it still is.
    Untold,
    /// The object no longer exists, or the machine has rebooted.
    Gone,
}

impl Hold {
    /// Is the value gone, other than through a later apply?
    #[must_use]
    pub const fn is_lost(self) -> bool {
        matches!(self, Self::Drifted | Self::Gone)
    }
}

impl Status {
    /// Checks everything that the journal lists as in effect.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn of(machine: &dyn Machine, journal: &Journal) -> Result<Self, JournalError> {
        let Contents { mut entries, unreadable } = journal.contents()?;
        let last = entries.last().map(|entry| entry.id).max(unreadable.last().map(|bad| bad.id));
        let reverted = entries.iter().filter(|entry| {
            entry.state == State::Undone
                && entry.reverted()
                && (Some(entry.id) == last || !entry.left.is_empty())
        });
        let reverted = reverted.map(|entry| Reverted {
            id: entry.id,
            time: entry.undoing.unwrap_or_default(),
            why: entry.why.clone().unwrap_or_default(),
            left: entry.left.clone(),
        });
        let reverted = reverted.collect();
        let unreadable = unreadable
            .into_iter()
            .map(|bad| Unreadable { id: bad.id, why: Report::new(bad.why).to_string() });
        let unreadable = unreadable.collect();
        entries.retain(Entry::stands);
        // Looked up once, and only if something has drifted.
        let running = OnceCell::new();
        let applies =
            entries.iter().map(|entry| standing(machine, journal, entry, &entries, &running)).collect();
        Ok(Self { schema: SCHEMA, applies, reverted, unreadable, persisted: persisted(machine, &entries) })
    }

    /// Like [`Status::of`], but not in the middle of another udpath's apply, undo or revert: if anything is amiss, waits
    /// up to 3 s for the end of that. Not for a caller that holds the journal's lock itself.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn settled(machine: &dyn Machine, journal: &Journal) -> Result<Self, JournalError> {
        let until = Instant::now() + SETTLES;
        let mut status = Self::of(machine, journal)?;
        while status.is_amiss() && Instant::now() < until {
            let changing = journal.is_locked();
            if changing {
                sleep(POLL_INTERVAL);
            }
            // The change may have ended between the reading of the journal and that of the settings.
            let again = Self::of(machine, journal)?;
            if !changing && again == status {
                return Ok(again);
            }
            status = again;
        }
        Ok(status)
    }

    /// Whether something is not as an apply left it, or no process will revert what awaits that.
    fn is_amiss(&self) -> bool {
        let partly = |apply: &Standing| {
            matches!(apply.state, State::Unfinished | State::HalfUndone) || apply.attended == Some(false)
        };
        self.applies.iter().any(partly) || self.drifted().next().is_some()
    }

    /// Does a plan change nothing, and does a boot keep all of it already?
    #[must_use]
    pub fn persists(&self, plan: &Plan) -> bool {
        let kept = |(setting, value): &(Setting, Value)| {
            let name = setting.to_string();
            let own = self.persisted.iter().find(|own| own.setting == name);
            own.is_some_and(|own| Setting::encode(value).is_some_and(|value| value == own.applied))
        };
        plan.changes.is_empty() && plan.already.iter().all(kept)
    }

    /// Settings that another program has changed, or that are gone.
    pub fn drifted(&self) -> impl Iterator<Item = &Held> {
        let held = self.applies.iter().flat_map(|apply| &apply.settings);
        held.filter(|held| held.state.is_lost())
    }
}

/// See [`Status::persisted`].
fn persisted(machine: &dyn Machine, entries: &[Entry]) -> Vec<Persisted> {
    let is_written = |intent: &Intent| {
        let Ok((file @ Setting::File(_), _, written)) = intent.parsed() else { return true };
        !intent.restored && machine.read(&file).is_ok_and(|now| now.is(&written))
    };
    let kept = entries.iter().filter(|entry| entry.state == State::Applied);
    let kept = kept.filter(|entry| entry.intents.iter().all(is_written));
    let named = kept.flat_map(|entry| &entry.begun.persists).filter_map(|text| text.split_once('='));
    let last: BTreeMap<&str, &str> = named.collect();
    let persisted = last
        .into_iter()
        .map(|(setting, applied)| Persisted { setting: setting.to_owned(), applied: applied.to_owned() });
    persisted.collect()
}

fn standing(
    machine: &dyn Machine,
    journal: &Journal,
    entry: &Entry,
    all: &[Entry],
    running: &OnceCell<Running>,
) -> Standing {
    let after_boot = AfterBoot::of(entry);
    let booted = after_boot != AfterBoot::No;
    let place = match booted {
        true if after_boot.is_elsewhere(machine) => Some(Place::Process(1)),
        true => Some(Place::Here),
        false => context::find(&entry.begun.namespace),
    };
    let inode = entry.begun.namespace.inode;
    let elsewhere = match &place {
        Some(Place::Here) => None,
        Some(Place::Named(name)) => Some(format!("network namespace {inode} ({name})")),
        Some(Place::Process(pid)) => Some(format!("network namespace {inode} (of process {pid})")),
        None => Some(format!("network namespace {inode}, which is gone")),
    };
    let settings = match elsewhere {
        Some(_) => Vec::new(),
        None => entry
            .intents
            .iter()
            .enumerate()
            .filter_map(|(at, _)| held(machine, entry, at, all, after_boot, running))
            .collect(),
    };
    let awaiting = entry.state == State::Awaiting;
    let deadline = awaiting.then(|| entry.deadline()).flatten();
    let late = deadline.is_some_and(|deadline| context::now() > deadline.saturating_add(LATE));
    let reverter = (awaiting && !booted).then(|| attendant(journal, entry.id)).flatten();
    let reverter = reverter.map(|Attendant { pid, stopped }| Reverter { pid, stopped });
    Standing {
        id: entry.id,
        time: entry.begun.time,
        user: entry.begun.user.clone(),
        state: entry.state,
        deadline,
        attended: (awaiting && !booted).then(|| reverter.is_some_and(|process| !process.stopped && !late)),
        reverter,
        left: entry.left.clone(),
        elsewhere,
        lost: place.is_none(),
        booted,
        settings,
    }
}

/// `None` for a change that a later one of the same apply has replaced, or that cannot be parsed.
fn held(
    machine: &dyn Machine,
    entry: &Entry,
    at: usize,
    all: &[Entry],
    after_boot: AfterBoot,
    running: &OnceCell<Running>,
) -> Option<Held> {
    let intent = &entry.intents[at];
    if intent.replaced || entry.intents[at + 1..].iter().any(|later| later.setting == intent.setting) {
        return None;
    }
    let (setting, before, applied) = intent.parsed().ok()?;
    // An act, which has no value that could last.
    if setting.phase() == Phase::Restart {
        return None;
    }
    let later =
        all.iter().filter(|other| other.id > entry.id && other.begun.namespace.is(&entry.begun.namespace));
    let later = later.flat_map(|other| &other.intents).any(|other| other.setting == intent.setting);
    let identity = intent.identity.as_ref().filter(|_| after_boot == AfterBoot::No);
    let same = match (identity, machine.identity(&setting)) {
        (None, _) => true,
        (Some(then), Ok(Some(now))) => now.is(then),
        _ => false,
    };
    // The same object under another name, found the way undo finds it.
    let renamed = identity.filter(|_| !same).and_then(|then| machine.renamed(&setting, then));
    let (same, setting) = (same || renamed.is_some(), renamed.clone().unwrap_or(setting));
    let now = machine.read(&setting);
    let gone_with_boot = after_boot.ended(&setting);
    let state = match &now {
        _ if later => Hold::Superseded,
        _ if gone_with_boot => Hold::Gone,
        Ok(now) if same && !now.is_reported() => Hold::Untold,
        Ok(now) if same && now.is(&applied) => Hold::Holds,
        Ok(_) if same => Hold::Drifted,
        _ => Hold::Gone,
    };
    let broken =
        now.as_ref().ok().filter(|_| state == Hold::Holds).and_then(|now| machine.broken(&setting, now));
    let state = if broken.is_some() { Hold::Drifted } else { state };
    let suspects = match state {
        // The note names the reason.
        _ if broken.is_some() => Vec::new(),
        Hold::Drifted => running.get_or_init(|| Running::find(machine.source())).suspects(&setting),
        Hold::Gone if gone_with_boot => vec!["a boot".to_owned()],
        Hold::Gone if setting.scope() == Scope::Process => {
            vec!["a restart of the server, which resets it".to_owned()]
        }
        _ => Vec::new(),
    };
    let note = match &now {
        _ if broken.is_some() => broken,
        Ok(_) if renamed.is_some() => Some(format!("it is now {setting}")),
        Ok(now) if state == Hold::Holds => machine.pending(&setting, now),
        Err(refusal) if !refusal.is_gone() => Some(refusal.why.clone()),
        _ => None,
    };
    Some(Held {
        setting: intent.setting.clone(),
        before: format!("{before:#}"),
        applied: format!("{applied:#}"),
        now: now.ok().map(|now| format!("{now:#}")),
        state,
        suspects,
        note,
    })
}
