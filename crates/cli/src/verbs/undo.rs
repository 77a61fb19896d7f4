//! `udpath undo`: reverts an apply, or prints the commands that would.

use serde::Serialize;
use udpath_tune::journal::{JournalError, Line, setting};
use udpath_tune::undo::{UndoError, Undone};
use udpath_tune::{Journal, Live, Machine, Setting, Value};

use super::settings::{self, Common};
use crate::exit::{Done, Failure};
use crate::terminal;

/// Version of the JSON format; incremented when a field changes its meaning or is removed.
const SCHEMA: &str = "udpath.undo/1";

/// Arguments of `udpath undo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of the apply [default: the last that is in effect]
    id: Option<u64>,
    /// Print shell commands that undo it, and change nothing
    #[arg(long, conflicts_with = "json")]
    print: bool,
    /// Also restore settings that another program, or a later apply, has changed since
    #[arg(long, conflicts_with = "print")]
    force: bool,
    /// Close the entry without restoring anything: for an entry that cannot be read, or whose network namespace is
    /// gone. With --force, also for an entry that could still be undone
    #[arg(long, conflicts_with_all = ["print", "json"], requires = "id")]
    forget: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    id: u64,
    complete: bool,
    left: Vec<Left>,
    /// Settings that ended with their process, socket or thread.
    ended: Vec<String>,
    /// Settings that were written but could not be read back.
    untold: Vec<String>,
    /// Settings that an earlier boot had reset.
    gone_with_boot: Vec<String>,
}

#[derive(Serialize)]
struct Left {
    setting: String,
    why: String,
}

/// Reverts, or prints.
pub(crate) fn run(args: &Args) -> Done {
    if let (true, Some(id)) = (args.forget, args.id) {
        return forget(&args.common.state.journal(), id, args.force);
    }
    args.common
        .namespace
        .run(|| if args.print { print(&args.common.state.journal(), args.id) } else { undo(args) })
}

fn undo(args: &Args) -> Done {
    let journal = args.common.state.journal();
    let lock = journal.lock().map_err(settings::journal)?;
    // A half-restored state would have to be undone again: signals wait for the end.
    let _signals = terminal::hold_signals()?;
    let undone = udpath_tune::undo(&Live::new(), &lock, args.id, "asked for", args.force).map_err(failure)?;
    if args.common.json {
        let left =
            undone.left.iter().map(|left| Left { setting: left.setting.clone(), why: left.why.clone() });
        let document = Document {
            schema: SCHEMA,
            id: undone.id,
            complete: undone.complete,
            left: left.collect(),
            ended: undone.ended.clone(),
            untold: undone.untold.clone(),
            gone_with_boot: undone.gone_with_boot.clone(),
        };
        terminal::print(&serde_json::to_string_pretty(&document).map_err(anyhow::Error::from)?)?;
    }
    ended(&undone)
}

fn forget(journal: &Journal, id: u64, force: bool) -> Done {
    let lock = journal.lock().map_err(settings::journal)?;
    let given_up = udpath_tune::undo::forget(&lock, id, force).map_err(failure)?;
    let what = match given_up.as_slice() {
        [] => String::new(),
        all => format!("; not restored: {}", all.join(", ")),
    };
    eprintln!("closed apply {id}{what}");
    Ok(())
}

/// Reports the result of an undo.
pub(super) fn ended(undone: &Undone) -> Done {
    let Undone { id, left, ended, untold, gone_with_boot, complete } = undone;
    let list: Vec<String> = left.iter().map(ToString::to_string).collect();
    match (left.is_empty(), complete) {
        (true, true) => {
            let but = |names: &[String], why: &str| match names {
                [] => String::new(),
                names => format!(", but for what {why}: {}", names.join(", ")),
            };
            eprintln!(
                "apply {id} is undone; every setting was read back and is as before{}{}{}",
                but(untold, "was written and the kernel does not tell"),
                but(ended, "ended with its server, of which nothing is left"),
                but(gone_with_boot, "a boot had ended before and was not looked at")
            );
            Ok(())
        }
        (false, true) => Err(Failure::Findings(format!("apply {id} is undone, except: {}", list.join("; ")))),
        (_, false) => Err(Failure::Cannot(anyhow::anyhow!(
            "apply {id} is undone in part, and can be undone again: {}",
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
            let entries = journal.entries().map_err(settings::journal)?;
            let last = entries.iter().rev().find(|entry| entry.stands());
            let nothing = || UndoError::Nothing(journal.directory().display().to_string());
            last.ok_or_else(|| failure(nothing()))?.id
        }
    };
    let damage = match journal.entry(id) {
        // An unreadable entry that was closed still has commands.
        Ok(_) | Err(JournalError::Unknown { .. }) => None,
        Err(error @ (JournalError::Damaged { .. } | JournalError::Version { .. })) => Some(error),
        Err(error) => return Err(settings::journal(error)),
    };
    let lines = journal.lines(id).map_err(settings::journal)?;
    let (mut changes, mut kept) = (Vec::new(), Vec::new());
    for line in &lines {
        match line {
            Line::Intent(intent) => changes.push((
                &intent.setting,
                &intent.old,
                format!("was set to {}", intent.new.as_deref().unwrap_or("a file")),
            )),
            Line::Kept(line) => {
                kept.push((&line.setting, &line.old, "may have been lost by a reset".to_owned()));
            }
            _ => {}
        }
    }
    changes.reverse();
    let machine = Live::new();
    let shell = |setting: &Setting, value: &Value| match machine.irq(setting) {
        Ok(irq) => Setting::Irq(irq).shell(value),
        Err(_) => setting.shell(value),
    };
    let mut text = String::new();
    for (name, old, why) in changes.into_iter().chain(kept) {
        let parsed =
            setting(name).ok().and_then(|setting| Some((setting.decode(old.as_deref()).ok()?, setting)));
        let line =
            parsed.map_or(format!("# not understood: {name}"), |(value, setting)| shell(&setting, &value));
        text.push_str(&format!("# {name}: {}\n{line}\n", why.lines().next().unwrap_or_default()));
    }
    match (text.is_empty(), damage) {
        (true, Some(damage)) => {
            Err(anyhow::anyhow!("no change can be read from apply {id}: {damage}").into())
        }
        (true, None) => Ok(()),
        (false, damage) => {
            damage.iter().for_each(|damage| eprintln!("udpath: warning: {damage}"));
            terminal::print(&text)
        }
    }
}

/// The error of an undo that did nothing.
pub(super) fn failure(error: UndoError) -> Failure {
    match error {
        UndoError::Journal(error) => settings::journal(error),
        error => Failure::Cannot(error.into()),
    }
}
