//! The state of an entry, parsed from its lines.

use std::path::Path;

use serde::Deserialize;

use super::{Begun, DIED, FILE, Intent, JournalError, Kept, Line, SCHEMA, UNCONFIRMED, line};
use crate::context::Namespace;
use crate::settings::Setting;

/// The state of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, schemars::JsonSchema, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The program died while applying.
    Unfinished,
    /// Applied, read back and permanent.
    Applied,
    /// Applied and read back; reverted unless confirmed.
    Awaiting,
    /// The program died, or an error occurred, during undo.
    HalfUndone,
    /// Undone.
    Undone,
    /// Closed: none of it will be undone.
    Closed,
}

/// One apply, as recorded in the journal.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its number.
    pub id: u64,
    /// Its first line.
    pub begun: Begun,
    /// Its state.
    pub state: State,
    /// Values a link reset might lose.
    pub kept: Vec<Kept>,
    /// The changes, in order.
    pub intents: Vec<Intent>,
    /// When the last change was read back, milliseconds since 1970.
    pub applied: Option<u64>,
    /// When its last undo began, milliseconds since 1970.
    pub undoing: Option<u64>,
    /// Why it was undone.
    pub why: Option<String>,
    /// What the last undo could not restore.
    pub left: Vec<String>,
    /// How many of the intents predate the last adoption.
    pub carried: usize,
    /// It had already been adopted earlier in the same boot.
    pub adopted_again: bool,
}

impl Entry {
    /// Is it in effect: has it changed the machine, and been neither undone nor closed?
    #[must_use]
    pub fn stands(&self) -> bool {
        match self.state {
            State::Undone | State::Closed => false,
            // Died before its first change.
            State::Unfinished => !self.intents.is_empty(),
            State::Applied | State::Awaiting | State::HalfUndone => true,
        }
    }

    /// Do files keep it across a boot?
    #[must_use]
    pub fn persists(&self) -> bool {
        self.intents.iter().any(|intent| intent.setting.starts_with(FILE) && !intent.restored)
    }

    /// When it is reverted unless confirmed, milliseconds since 1970.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        Some(self.applied?.saturating_add(self.begun.confirm?.saturating_mul(1000)))
    }

    /// Was it rolled back, even partly, because it was not confirmed?
    #[must_use]
    pub fn reverted(&self) -> bool {
        let revert = |why: &str| why == UNCONFIRMED || why == DIED;
        matches!(self.state, State::Undone | State::HalfUndone)
            && self.begun.confirm.is_some()
            && self.why.as_deref().is_some_and(revert)
    }

    /// The lines of a finished apply: [`parse`] turns them back into this entry, as long as none of it has been undone.
    pub(super) fn lines(&self) -> Vec<Line> {
        let moved = |kept: &Kept| {
            kept.moved.clone().map(|found| Line::Moved { setting: kept.setting.clone(), found })
        };
        let done = |(at, intent): (usize, &Intent)| intent.done.clone().map(|found| Line::Done { at, found });
        let mut lines = vec![Line::Begun(self.begun.clone())];
        lines.extend(self.kept.iter().cloned().map(Line::Kept));
        lines.extend(self.kept.iter().filter_map(moved));
        lines.extend(self.intents.iter().cloned().map(Line::Intent));
        lines.extend(self.intents.iter().enumerate().filter_map(done));
        lines.extend(self.applied.map(|time| Line::Applied { time }));
        lines
    }

    /// The entry belongs to this boot from here on: objects have new identities, irqbalance's ban list is gone, and no
    /// link reset is remembered.
    fn adopt(&mut self, boot: String, namespace: Namespace) {
        self.adopted_again = self.begun.boot == boot;
        (self.begun.boot, self.begun.namespace) = (boot, namespace);
        self.carried = self.intents.len();
        self.kept.clear();
        for intent in self.intents.iter_mut().filter(|intent| !intent.setting.starts_with(FILE)) {
            intent.restored = false;
            if !self.adopted_again {
                intent.identity = None;
                intent.replaced |= intent.setting == Setting::IrqbalanceBan.to_string();
            }
        }
    }

    /// Processes a line after the first.
    fn take(&mut self, line: Line) -> Result<(), String> {
        let none = |at: usize| format!("refers to change {at}, which the entry does not have");
        match line {
            Line::Begun(_) => return Err("begins the entry a second time".into()),
            Line::Kept(kept) => self.kept.push(kept),
            Line::Intent(mut intent) => {
                let before = self.intents[..self.carried].iter_mut();
                for carried in before.filter(|carried| carried.setting == intent.setting) {
                    carried.replaced = true;
                    // Set again in the same boot: undo restores the value from before the first time.
                    if self.adopted_again {
                        intent.old.clone_from(&carried.old);
                    }
                }
                self.intents.push(intent);
            }
            Line::Adopted { boot, namespace, .. } => self.adopt(boot, namespace),
            Line::Done { at, found } => self.intents.get_mut(at).ok_or_else(|| none(at))?.done = Some(found),
            Line::Moved { setting, found } => {
                let kept = self.kept.iter_mut().find(|kept| kept.setting == setting);
                kept.ok_or_else(|| format!("refers to {setting:?}, which was not kept"))?.moved = Some(found);
            }
            Line::Applied { time } => {
                self.applied = Some(time);
                self.state = if self.begun.confirm.is_some() { State::Awaiting } else { State::Applied };
            }
            Line::Confirmed { .. } => self.state = State::Applied,
            Line::Undoing { time, why, .. } => {
                self.undoing = Some(time);
                self.why = Some(why);
                self.state = State::HalfUndone;
            }
            Line::Restored { at } => self.intents.get_mut(at).ok_or_else(|| none(at))?.restored = true,
            Line::Failed { left, .. } => self.left = left,
            Line::Undone { left, .. } => {
                self.left = left;
                self.state = State::Undone;
            }
            Line::Closed { .. } => self.state = State::Closed,
        }
        Ok(())
    }
}

/// An entry, and the state needed to append to it.
pub(super) struct Parsed {
    pub(super) entry: Entry,
    /// Checksum of all lines.
    pub(super) chain: u64,
    /// Bytes of complete lines. Anything after the last newline is ignored.
    pub(super) length: u64,
}

/// The fields every version's first line has.
#[derive(Deserialize)]
struct Head {
    schema: String,
    #[serde(default)]
    version: String,
}

/// Reads the text of an entry.
pub(super) fn parse(path: &Path, id: u64, text: &str) -> Result<Parsed, JournalError> {
    let damaged = |line: usize, why: String| JournalError::Damaged { path: path.to_owned(), id, line, why };
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    let (mut chain, mut entry) = (line::START, None::<Entry>);
    for (number, text) in (1..).zip(whole.lines()) {
        let edited =
            || damaged(number, "does not match its checksum: it, or a line before it, was edited".into());
        let (sum, json) = text.split_once(' ').ok_or_else(edited)?;
        chain = line::chained(chain, json);
        if u64::from_str_radix(sum, 16) != Ok(chain) {
            return Err(edited());
        }
        if let (None, Some(Head { schema, version })) = (&entry, head(json))
            && schema != SCHEMA
        {
            return Err(JournalError::Version { path: path.to_owned(), id, version, schema });
        }
        let line: Line = serde_json::from_str(json)
            .map_err(|error| damaged(number, format!("cannot be parsed ({error})")))?;
        match (&mut entry, line) {
            (None, Line::Begun(begun)) if begun.id != id => {
                return Err(damaged(
                    number,
                    format!("begins entry {}, not {id}: the file was renamed", begun.id),
                ));
            }
            (None, Line::Begun(begun)) => entry = Some(new(id, begun)),
            (Some(entry), line) => entry.take(line).map_err(|why| damaged(number, why))?,
            (None, _) => return Err(damaged(number, "is not the first line of an entry".into())),
        }
    }
    let entry = entry.ok_or_else(|| damaged(1, "is missing: the file is empty or truncated".into()))?;
    Ok(Parsed { entry, chain, length: whole.len() as u64 })
}

/// Ignores any fields added by a newer version.
fn head(json: &str) -> Option<Head> {
    let line: serde_json::Value = serde_json::from_str(json).ok()?;
    serde_json::from_value(line.get("begun")?.clone()).ok()
}

fn new(id: u64, begun: Begun) -> Entry {
    Entry {
        id,
        begun,
        state: State::Unfinished,
        kept: Vec::new(),
        intents: Vec::new(),
        applied: None,
        undoing: None,
        why: None,
        left: Vec::new(),
        carried: 0,
        adopted_again: false,
    }
}
