//! `udpath undo`: reverts an apply, or prints the commands that would.

use schemars::JsonSchema;
use serde::Serialize;
use udpath_report::{to_pretty_json, undone_sentence};
use udpath_tune::journal::{JournalError, Line, Lock, setting};
use udpath_tune::settings::comment;
use udpath_tune::undo::{UndoError, Undone};
use udpath_tune::{Journal, Live, Machine, Setting, Value};

use super::{machine, settings};
use crate::args::undo::Args;
use crate::exit::{Done, Failure};
use crate::signals;
use crate::terminal;

/// Version of the JSON format; incremented when a field changes its meaning or is removed.
pub(crate) const SCHEMA: &str = "udpath.undo/1";

/// The JSON format of an undo.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Document<'a> {
    schema: &'static str,
    id: u64,
    complete: bool,
    left: Vec<Left<'a>>,
    /// Settings that ended with their process, socket or thread.
    ended: &'a [String],
    /// Settings that were written but could not be read back.
    untold: &'a [String],
    /// Settings that an earlier boot had reset.
    gone_with_boot: &'a [String],
}

#[derive(JsonSchema, Serialize)]
struct Left<'a> {
    setting: &'a str,
    why: &'a str,
}

/// Reverts, or prints.
pub(crate) fn run(args: &Args) -> Done {
    let journal = Journal::at(&args.common.journal.state);
    if let (true, Some(id)) = (args.forget, args.id) {
        return forget(&journal, id, args.force);
    }
    machine::inside(&args.common.netns.place(), || {
        if args.print { print(&journal, args.id) } else { undo(args, &journal) }
    })
}

/// The journal's lock; an error if there is no journal.
fn locked(journal: &Journal, id: Option<u64>) -> Result<Lock, Failure> {
    if let Some(lock) = journal.lock_existing()? {
        return Ok(lock);
    }
    if let Some(id) = id {
        // It has no such entry.
        journal.entry(id)?;
    }
    Err(UndoError::Nothing(journal.directory().display().to_string()).into())
}

fn undo(args: &Args, journal: &Journal) -> Done {
    let lock = locked(journal, args.id)?;
    // A half-restored state would have to be undone again: signals wait for the end.
    signals::watch(signals::Left::Settings(&args.common.journal.state))?;
    let undone = udpath_tune::undo(&Live::new(), &lock, args.id, "asked for", args.force)?;
    if args.json {
        let Undone { id, complete, left, ended, untold, gone_with_boot } = &undone;
        let left = left.iter().map(|left| Left { setting: &left.setting, why: &left.why }).collect();
        terminal::print(&to_pretty_json(&Document {
            schema: SCHEMA,
            id: *id,
            complete: *complete,
            left,
            ended,
            untold,
            gone_with_boot,
        }))?;
    }
    ended(&undone)
}

fn forget(journal: &Journal, id: u64, force: bool) -> Done {
    let lock = locked(journal, Some(id))?;
    let given_up = udpath_tune::undo::forget(&lock, id, force)?;
    let what = match given_up.as_slice() {
        [] => String::new(),
        all => format!("; not restored: {}", all.join(", ")),
    };
    stderrln!("closed apply {id}{what}");
    Ok(())
}

/// Reports the result of an undo.
pub(super) fn ended(undone: &Undone) -> Done {
    let Undone { id, left, complete, .. } = undone;
    let list: Vec<String> = left.iter().map(ToString::to_string).collect();
    match (left.is_empty(), complete) {
        (true, true) => {
            stderrln!("{}", undone_sentence(undone));
            Ok(())
        }
        (false, true) => Err(Failure::Findings(format!("undid apply {id}, except: {}", list.join("; ")))),
        (_, false) => Err(Failure::Cannot(anyhow::anyhow!(
            "undid part of apply {id}; run `udpath undo {id}` again for the rest: {}",
            list.join("; ")
        ))),
    }
}

/// Shell commands, the last change first, from the readable part of the entry.
fn print(journal: &Journal, id: Option<u64>) -> Done {
    let id = match id {
        Some(id) => id,
        None => {
            settings::warn_of_unreadable(journal)?;
            let entries = journal.entries()?;
            let last = entries.iter().rev().find(|entry| entry.stands());
            let nothing = || UndoError::Nothing(journal.directory().display().to_string());
            last.ok_or_else(nothing)?.id
        }
    };
    let damage = match journal.entry(id) {
        // An unreadable entry that was closed still has commands.
        Ok(_) | Err(JournalError::Unknown { .. }) => None,
        Err(error @ (JournalError::Damaged { .. } | JournalError::Version { .. })) => Some(error),
        Err(error) => return Err(error.into()),
    };
    let lines = journal.lines(id)?;
    let (mut changes, mut kept) = (Vec::new(), Vec::new());
    for line in &lines {
        match line {
            Line::Intent(intent) => changes.push((
                &intent.setting,
                (&intent.old, Some(&intent.new)),
                was_set(&intent.setting, intent.new.as_deref()),
            )),
            Line::Kept(line) => {
                kept.push((&line.setting, (&line.old, None), "may have been lost by a reset".to_owned()));
            }
            _ => {}
        }
    }
    changes.reverse();
    // As undo does: a restart reads the files that are back.
    changes
        .sort_by_key(|(name, ..)| setting(name).is_ok_and(|setting| matches!(setting, Setting::Restart(_))));
    let machine = Live::new();
    let shell = |setting: &Setting, from: Option<&Value>, to: &Value| match machine.irq(setting) {
        Ok(irq) => Setting::Irq(irq).shell(to),
        Err(_) => setting.shell_from(from, to),
    };
    let mut text = String::new();
    for (name, (old, new), why) in changes.into_iter().chain(kept) {
        let parsed = setting(name).ok().and_then(|setting| {
            let new = new.and_then(|new| setting.decode(new.as_deref()).ok());
            Some((setting.decode(old.as_deref()).ok()?, new, setting))
        });
        let line = match parsed {
            None => comment(&format!("unknown setting: {name}")),
            Some((old, new, setting)) => shell(&setting, new.as_ref(), &old),
        };
        let why = comment(&format!("{name}: {}", why.lines().next().unwrap_or_default()));
        text.push_str(&format!("{why}\n{line}\n"));
    }
    match (text.is_empty(), damage) {
        (true, Some(damage)) => {
            Err(anyhow::anyhow!("cannot read any change from apply {id}: {damage}").into())
        }
        (true, None) => Ok(()),
        (false, damage) => {
            damage.iter().for_each(|damage| stderrln!("udpath: warning: {damage}"));
            terminal::print_exact(&text)
        }
    }
}

/// What a setting was set to; of a file only that, since it may have secrets.
fn was_set(name: &str, to: Option<&str>) -> String {
    let is_file = setting(name).is_ok_and(|setting| matches!(setting, Setting::File(_) | Setting::Config(_)));
    match to.filter(|_| !is_file) {
        Some(to) => format!("was set to {to}"),
        None => "was set to a file".to_owned(),
    }
}
