//! Common parts of the verbs that change settings: the plan, the journal, notes.

use std::path::Path;

use anyhow::Context;
use udpath_tune::plan::{Change, Consent, lasting};
use udpath_tune::services::{Prepared, Request};
use udpath_tune::{Journal, Machine, Plan, Setting, SettingRequest};

use crate::args::settings::ChangeArgs;
use crate::exit::Failure;

/// Largest plan read, bytes: thousands of changes. Without a limit, a device given by mistake would fill the memory.
const LARGEST: u64 = 16 << 20;

/// The changes that are allowed.
pub(super) fn consent(args: &ChangeArgs) -> Consent {
    Consent {
        insecure: args.allow.iter().cloned().collect(),
        ignore_conflicts: args.ignore_conflicts.iter().cloned().collect(),
    }
}

/// What was asked for, resolved.
pub(super) struct Wanted {
    /// All changes, those of servers last.
    pub(super) plan: Plan,
    /// The servers whose configuration is asked about.
    pub(super) services: Vec<Prepared>,
}

/// The plan for the machine's current state.
pub(super) fn plan(args: &ChangeArgs, machine: &dyn Machine, consent: &Consent) -> Result<Wanted, Failure> {
    let mut requests = match &args.file {
        None => Vec::new(),
        Some(file) => {
            let (name, text) = read(file)?;
            SettingRequest::from_json(&text)
                .map_err(|error| Failure::usage(anyhow::Error::from(error).context(name)))?
        }
    };
    let mut about = Vec::new();
    for text in &args.set {
        match Request::parse(text)? {
            Some(request) => about.push(request),
            None => requests.push(SettingRequest::parse(text, &args.reason).map_err(Failure::usage)?),
        }
    }
    for object in &args.service {
        about.push(Request::all(object)?);
    }
    let services = Prepared::of(&about, args.restart.as_deref())?;
    let mut plan = Plan::resolve(machine, requests, consent)?;
    for prepared in &services {
        let changes = prepared.changes();
        let lost = |change: &&Change| match &change.setting {
            Setting::Socket { pid, .. } | Setting::Thread { pid, .. } => *pid == prepared.service.pid,
            _ => false,
        };
        if let Some(change) = plan.changes.iter().find(lost).filter(|_| !changes.is_empty()) {
            return Err(Failure::Usage(format!(
                "{} would be lost in the restart of {}: apply its configuration first",
                change.setting,
                prepared.service.title()
            )));
        }
        plan.changes.extend(changes);
    }
    Ok(Wanted { plan, services })
}

/// A plan's name in errors, and its text.
fn read(file: &Path) -> Result<(String, String), Failure> {
    let (name, bytes) = udpath_report::read_input(file, LARGEST)?;
    let text = String::from_utf8(bytes).with_context(|| format!("cannot read the plan {name}"))?;
    Ok((name, text))
}

/// Prints which settings do not last until the next boot, and what resets them.
pub(super) fn note_lasting<'a>(settings: impl Iterator<Item = &'a Setting>) {
    for line in lasting(settings) {
        stderrln!("note: {line}");
    }
}

/// Warns of journal entries that cannot be read; this is not an error.
pub(super) fn warn_of_unreadable(journal: &Journal) -> Result<(), Failure> {
    for bad in journal.contents()?.unreadable {
        stderrln!("udpath: warning: {:#}", anyhow::Error::from(bad.why));
    }
    Ok(())
}
