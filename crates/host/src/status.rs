//! What was applied, and what of it still holds.

use std::cell::OnceCell;

use serde::Serialize;

use crate::journal::{Entry, Journal, JournalError, State};
use crate::machine::Machine;
use crate::rivals::Running;
use crate::setting::{Phase, Scope};
use crate::whereabouts;

/// Version of the JSON form. Raised when a field changes its meaning or goes; new fields may come without.
pub const SCHEMA: &str = "udpath.status/1";

/// All applies that stand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// In the order of their numbers.
    pub applies: Vec<Standing>,
}

/// An apply that stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// Its number.
    pub id: u64,
    /// When it was begun, milliseconds since 1970.
    pub time: u64,
    /// Who began it.
    pub user: String,
    /// How far it has come.
    pub state: State,
    /// When it is reverted unless it is confirmed, milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<u64>,
    /// Where it was made, if that is not here: nothing can be said of its settings then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<String>,
    /// Its settings.
    pub settings: Vec<Held>,
}

/// A setting that was applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Held {
    /// Its name.
    pub setting: String,
    /// What it was before.
    pub before: String,
    /// What was applied.
    pub applied: String,
    /// What it is; none when it cannot be read.
    pub now: Option<String>,
    /// Whether it holds.
    pub state: Hold,
    /// Who may have changed it.
    pub suspects: Vec<String>,
    /// What else is to be said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Whether a value that was applied is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hold {
    /// It is.
    Holds,
    /// A later apply has changed it.
    Superseded,
    /// Somebody else has changed it.
    Drifted,
    /// It was set, and the kernel does not tell whether it still is.
    Untold,
    /// The object is not there any more, or a boot has come between.
    Gone,
}

impl Status {
    /// Looks at everything that the journal says stands.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn of(machine: &dyn Machine, journal: &Journal) -> Result<Self, JournalError> {
        let entries: Vec<Entry> = journal.entries()?.into_iter().filter(Entry::stands).collect();
        // Looked for when something has drifted, and once.
        let running = OnceCell::new();
        let applies = entries.iter().map(|entry| standing(machine, entry, &entries, &running)).collect();
        Ok(Self { schema: SCHEMA, applies })
    }

    /// Settings that somebody else has changed or that are gone.
    pub fn drifted(&self) -> impl Iterator<Item = &Held> {
        let held = self.applies.iter().flat_map(|apply| &apply.settings);
        held.filter(|held| matches!(held.state, Hold::Drifted | Hold::Gone))
    }
}

fn standing(machine: &dyn Machine, entry: &Entry, all: &[Entry], running: &OnceCell<Running>) -> Standing {
    let booted = entry.begun.boot != whereabouts::boot();
    let here = whereabouts::namespace().is_ok_and(|here| here == entry.begun.namespace);
    let elsewhere = (!booted && !here).then(|| {
        let name =
            whereabouts::name(&entry.begun.namespace).map_or(String::new(), |name| format!(" ({name})"));
        format!("network namespace {}{name}", entry.begun.namespace.inode)
    });
    let settings = match elsewhere {
        Some(_) => Vec::new(),
        None => entry
            .intents
            .iter()
            .enumerate()
            .filter_map(|(at, _)| held(machine, entry, at, all, booted, running))
            .collect(),
    };
    let deadline = (entry.state == State::Awaiting).then(|| entry.deadline()).flatten();
    Standing {
        id: entry.id,
        time: entry.begun.time,
        user: entry.begun.user.clone(),
        state: entry.state,
        deadline,
        elsewhere,
        settings,
    }
}

/// Nothing for a change that a later one of the same apply has replaced, or whose words are not understood.
fn held(
    machine: &dyn Machine,
    entry: &Entry,
    at: usize,
    all: &[Entry],
    booted: bool,
    running: &OnceCell<Running>,
) -> Option<Held> {
    let intent = &entry.intents[at];
    if entry.intents[at + 1..].iter().any(|later| later.setting == intent.setting) {
        return None;
    }
    let (setting, before, applied) = intent.parsed().ok()?;
    let later =
        all.iter().filter(|other| other.id > entry.id && other.begun.namespace == entry.begun.namespace);
    let later = later.flat_map(|other| &other.intents).any(|other| other.setting == intent.setting);
    let same = match (&intent.identity, machine.identity(&setting)) {
        (None, _) => true,
        (Some(then), Ok(Some(now))) => now.is(then),
        _ => false,
    };
    // The same object under another name, as undo would find it.
    let renamed = intent.identity.as_ref().filter(|_| !same).and_then(|then| machine.renamed(&setting, then));
    let (same, setting) = (same || renamed.is_some(), renamed.clone().unwrap_or(setting));
    let now = machine.read(&setting);
    let gone_with_boot = booted && setting.phase() != Phase::Files;
    let state = match &now {
        _ if later => Hold::Superseded,
        _ if gone_with_boot => Hold::Gone,
        Ok(now) if same && !now.is_told() => Hold::Untold,
        Ok(now) if same && now.is(&applied) => Hold::Holds,
        Ok(_) if same => Hold::Drifted,
        _ => Hold::Gone,
    };
    let suspects = match state {
        Hold::Drifted => running.get_or_init(|| Running::find(machine.source())).suspects(&setting),
        Hold::Gone if gone_with_boot => vec!["a boot".to_owned()],
        Hold::Gone if setting.scope() == Scope::Process => {
            vec!["a restart of the server, which forgets it".to_owned()]
        }
        _ => Vec::new(),
    };
    let note = match &now {
        Ok(_) if renamed.is_some() => Some(format!("it is {setting} now")),
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
