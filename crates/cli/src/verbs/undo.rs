//! `udpath undo`: takes back what was applied, or prints how a person would.

use serde::Serialize;
use udpath_host::journal::{Line, setting};
use udpath_host::undo::{UndoError, Undone};
use udpath_host::{Journal, Live, Machine, Setting, Value};

use super::settings::{self, Common};
use crate::exit::{Done, Failure};
use crate::terminal;

/// Version of the JSON form; raised when a field changes its meaning or goes away.
const SCHEMA: &str = "udpath.undo/1";

/// Arguments of `udpath undo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of the apply; default: the last that stands
    id: Option<u64>,
    /// Print lines for a shell that take it back, and change nothing
    #[arg(long, conflicts_with = "json")]
    print: bool,
    /// Restore also what somebody else, or a later apply, has changed since
    #[arg(long, conflicts_with = "print")]
    force: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    id: u64,
    complete: bool,
    left: Vec<Left>,
    /// What went with its process, socket or thread.
    ended: Vec<String>,
    /// What was written and could not be read back.
    untold: Vec<String>,
}

#[derive(Serialize)]
struct Left {
    setting: String,
    why: String,
}

/// Takes back, or prints.
pub(crate) fn run(args: &Args) -> Done {
    if args.print {
        print(&args.common.state.journal(), args.id)
    } else {
        args.common.namespace.run(|| undo(args))
    }
}

fn undo(args: &Args) -> Done {
    let journal = args.common.state.journal();
    let lock = journal.lock().map_err(settings::journal)?;
    let undone = udpath_host::undo(&Live::new(), &lock, args.id, "asked for", args.force).map_err(failure)?;
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
        };
        terminal::print(&serde_json::to_string_pretty(&document).map_err(anyhow::Error::from)?)?;
    }
    ended(&undone)
}

fn ended(undone: &Undone) -> Done {
    let Undone { id, left, ended, untold, complete } = undone;
    let list: Vec<String> = left.iter().map(ToString::to_string).collect();
    match (left.is_empty(), complete) {
        (true, true) => {
            let but = |names: &[String], why: &str| match names {
                [] => String::new(),
                names => format!(", but for what {why}: {}", names.join(", ")),
            };
            eprintln!(
                "apply {id} is undone; every setting was read back and is as before{}{}",
                but(untold, "was written and the kernel does not tell"),
                but(ended, "ended with its server, of which nothing is left")
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

/// Lines for a shell, the last change first, from whatever of the entry can be read.
fn print(journal: &Journal, id: Option<u64>) -> Done {
    let id = match id {
        Some(id) => id,
        None => {
            let entries = journal.entries().map_err(settings::journal)?;
            let last = entries.iter().rev().find(|entry| entry.stands());
            let nothing = || UndoError::Nothing(journal.directory().display().to_string());
            last.ok_or_else(|| failure(nothing()))?.id
        }
    };
    if let Err(error) = journal.entry(id) {
        match error {
            error @ udpath_host::journal::JournalError::Damaged { .. } => {
                eprintln!("udpath: warning: {error}");
            }
            error => return Err(settings::journal(error)),
        }
    }
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
    if text.is_empty() { Ok(()) } else { terminal::print(&text) }
}

/// How an undo that did nothing ends.
pub(super) fn failure(error: UndoError) -> Failure {
    match error {
        UndoError::Journal(error) => settings::journal(error),
        error => Failure::Cannot(error.into()),
    }
}
