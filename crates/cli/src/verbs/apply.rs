//! `udpath apply`: applies a plan completely, or restores the previous state.

use std::collections::BTreeSet;

use anyhow::Context;
use schemars::JsonSchema;
use serde::Serialize;
use udpath_report::{applied_sentence, applied_text, to_pretty_json};
use udpath_tune::apply::{self, Applied};
use udpath_tune::journal::{JournalError, Lock};
use udpath_tune::persist::{self, Boot};
use udpath_tune::plan::Consent;
use udpath_tune::services::{self, Outcome, Prepared, Shown};
use udpath_tune::status::Status;
use udpath_tune::{Journal, Live, Plan, Setting, SettingRequest};

use super::revert::{self, Reverter};
use super::settings::Wanted;
use super::{machine, settings};
use crate::args::apply::Args;
use crate::exit::{Done, Failure};
use crate::signals::{self, Left};
use crate::terminal;

/// Version of the JSON format; incremented when a field changes its meaning or is removed.
pub(crate) const SCHEMA: &str = "udpath.apply/1";

/// The JSON format of an apply.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Document<'a> {
    schema: &'static str,
    /// `None` if there was nothing to do.
    id: Option<u64>,
    changes: Vec<Change>,
    /// How changed knobs show at the restarted server, those that do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    seen: Vec<Seen<'a>>,
    /// Changed knobs that do not show there: verified in the files only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unverified: Vec<Unverified<'a>>,
    /// Seconds until it is reverted unless confirmed.
    confirm: Option<u64>,
    /// What will revert it.
    #[serde(skip_serializing_if = "Option::is_none")]
    reverter: Option<&'a Reverter>,
}

#[derive(JsonSchema, Serialize)]
struct Change {
    setting: String,
    from: String,
    to: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

#[derive(JsonSchema, Serialize)]
struct Seen<'a> {
    change: &'a str,
    seen: &'a str,
    /// Whether that is what the change should make of it.
    in_effect: bool,
}

#[derive(JsonSchema, Serialize)]
struct Unverified<'a> {
    change: &'a str,
    /// Why, after the name of the change.
    why: &'a str,
}

/// Plans, applies, shows.
pub(crate) fn run(args: &Args) -> Done {
    machine::inside(&args.common.netns.place(), || make(args))
}

fn make(args: &Args) -> Done {
    let machine = Live::new();
    let journal = Journal::at(&args.common.journal.state);
    // Locked before the machine is read, so that the plan is still valid when it is applied.
    let lock = journal.lock()?;
    settings::warn_of_unreadable(&journal)?;
    let consent = consent(args, &journal);
    let Wanted { mut plan, services: wanted } = settings::plan(&args.changes, &machine, &consent)?;
    services::permitted(&plan, &consent)?;
    wanted.iter().try_for_each(|prepared| prepared.permitted(&consent))?;
    let folder =
        std::path::absolute(&args.common.journal.state).context("cannot make the journal's path absolute")?;
    if let Some(id) = args.adopt {
        match journal.entry(id) {
            Err(JournalError::Unknown { .. }) => {
                stderrln!("udpath: warning: apply {id} is no longer in the journal; this is a new apply");
            }
            _ => {
                // Half of a persistent apply is not what a boot should have.
                signals::watch(Left::Settings(&folder))?;
                return adopt(args, &machine, &lock, id, &plan);
            }
        }
    }
    if args.persist && Status::of(&machine, &journal)?.persists(&plan) {
        return show(args, &plan, None, &[], None);
    }
    for prepared in &wanted {
        prepared.check()?;
    }
    let mut notes = Vec::new();
    if args.persist {
        let id = journal.next_id()?;
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let boot = Boot { program: &program, journal: &folder, consent: &consent };
        let kept = persist::files(&machine, &plan, id, &boot).map_err(anyhow::Error::from)?;
        plan.changes.extend(kept.changes);
        notes = kept.notes;
    }
    if plan.is_empty() {
        return show(args, &plan, None, &[], None);
    }
    let mut reverter = None;
    let armed = |id: u64| {
        if args.confirm.is_some() {
            let started = revert::start(&folder, id);
            reverter = Some(
                started
                    .map_err(|error| format!("cannot start the process that would revert it: {error:#}"))?,
            );
        }
        Ok(())
    };
    // Until here a signal ends the program, and nothing has been changed; from here on, it reverts everything.
    let signals = signals::watch(Left::Settings(&folder))?;
    let interrupted = || signals.came().map(|signal| format!("interrupted by {signal}"));
    let before: Vec<_> = wanted.iter().map(Prepared::shape).collect();
    let applied = apply::apply_until(&machine, &lock, &plan, args.confirm, armed, &interrupted);
    let applied = applied?;
    drop(lock);
    for note in notes {
        stderrln!("note: {note}");
    }
    let shown = wanted.iter().zip(&before).flat_map(|(prepared, before)| prepared.shown(before.as_ref()));
    let shown: Vec<Shown> = shown.collect();
    show(args, &plan, Some(&applied), &shown, reverter.as_ref())?;
    let lost = shown.iter().filter_map(|one| match &one.outcome {
        Outcome::NotInEffect(seen) => Some(format!("{} ({seen})", one.change)),
        _ => None,
    });
    let lost: Vec<String> = lost.collect();
    if lost.is_empty() {
        return Ok(());
    }
    Err(Failure::Findings(format!(
        "the restarted server does not show {}: does it read these files, or does another setting prevent it? `udpath undo` takes the change back",
        lost.join(", ")
    )))
}

/// What is allowed. A boot's apply changes only what its entry in the journal says: that was allowed when it was made,
/// by a version that may have known other settings as harmless.
fn consent(args: &Args, journal: &Journal) -> Consent {
    let mut consent = settings::consent(&args.changes);
    if let Some(entry) = args.adopt.and_then(|id| journal.entry(id).ok()) {
        let kept = entry.begun.persists.iter().filter_map(|text| SettingRequest::parse(text, "").ok());
        let kept = kept.map(|request| request.name);
        consent.insecure.extend(entry.intents.iter().map(|intent| intent.setting.clone()).chain(kept));
    }
    consent
}

/// Run at boot by the unit of a persistent apply: sets what no file can set, and reports what is not in effect.
fn adopt(args: &Args, machine: &Live, lock: &Lock, id: u64, plan: &Plan) -> Done {
    let applied = udpath_tune::adopt(machine, lock, id, plan)?;
    if applied.changes.is_empty() {
        show(args, plan, None, &[], None)?;
    } else {
        show(args, plan, Some(&applied), &[], None)?;
    }
    let status = Status::of(machine, lock.journal())?;
    let ours = status.applies.iter().filter(|apply| apply.id == id).flat_map(|apply| &apply.settings);
    // Policies are set before the other settings of the same apply, which another unit sets later in the same boot.
    let early = plan.settings().all(|setting| matches!(setting, Setting::Policy { .. }));
    let own = |name: &str| plan.settings().any(|setting| setting.to_string() == name);
    let ours = ours.filter(|held| !early || own(&held.setting));
    let names: Vec<&str> =
        ours.filter(|held| held.state.is_lost()).map(|held| held.setting.as_str()).collect();
    match names.as_slice() {
        [] => Ok(()),
        names => Err(Failure::Findings(format!(
            "apply {id} is in effect, except for {}; see `udpath status`",
            names.join(", ")
        ))),
    }
}

fn show(
    args: &Args,
    plan: &Plan,
    applied: Option<&Applied>,
    shown: &[Shown],
    reverter: Option<&Reverter>,
) -> Done {
    let seconds = applied.and(args.confirm).map(|time| time.as_secs());
    if args.json {
        let changes = applied.map_or(&[][..], |applied| &applied.changes);
        let changes = changes.iter().map(|made| Change {
            setting: made.setting.to_string(),
            from: format!("{:#}", made.from),
            to: format!("{:#}", made.to),
            note: made.note.clone(),
        });
        let id = applied.map(|applied| applied.id);
        let (seen, unverified) = in_json(shown);
        let changes = changes.collect();
        let document = Document { schema: SCHEMA, id, changes, seen, unverified, confirm: seconds, reverter };
        return terminal::print(&to_pretty_json(&document));
    }
    let Some(applied) = applied else {
        let kept = if args.persist { ", and a boot keeps them" } else { "" };
        stderrln!("nothing to do: {} settings already have these values{kept}", plan.already.len());
        return Ok(());
    };
    terminal::print(&applied_text(applied))?;
    settings::note_lasting(applied.changes.iter().map(|made| &made.setting));
    let given_up: BTreeSet<&str> =
        applied.changes.iter().filter_map(|made| made.setting.gives_up(&made.to)).collect();
    for what in given_up {
        stderrln!("note: {what}");
    }
    for Shown { change, outcome } in shown {
        match outcome {
            Outcome::InEffect(seen) => stderrln!("seen at the running server: {change}: {seen}"),
            Outcome::Unverified(why) => {
                stderrln!("note: {change} {why}: not verified at the running server");
            }
            // The error says so.
            Outcome::NotInEffect(_) => {}
        }
    }
    stderrln!("{}", applied_sentence(applied, shown, seconds));
    if let Some(note) = reverter.and_then(Reverter::note) {
        stderrln!("note: {note}");
    }
    Ok(())
}

/// What was seen, and what does not show.
fn in_json(shown: &[Shown]) -> (Vec<Seen<'_>>, Vec<Unverified<'_>>) {
    let (mut seen, mut unverified) = (Vec::new(), Vec::new());
    for Shown { change, outcome } in shown {
        match outcome {
            Outcome::InEffect(what) => seen.push(Seen { change, seen: what, in_effect: true }),
            Outcome::NotInEffect(what) => seen.push(Seen { change, seen: what, in_effect: false }),
            Outcome::Unverified(why) => unverified.push(Unverified { change, why }),
        }
    }
    (seen, unverified)
}
