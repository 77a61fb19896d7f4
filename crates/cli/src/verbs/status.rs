//! `udpath status`: applied changes, and which are still in effect. Read-only.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use udpath_tune::Live;
use udpath_tune::journal::State as Progress;
use udpath_tune::status::{Held, Hold, Reverted, Standing, Status};

use super::settings::{self, Common};
use crate::exit::{Done, Failure};
use crate::terminal;

/// Arguments of `udpath status`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
}

/// Reads and prints; exit 1 if a change is no longer in effect.
pub(crate) fn run(args: &Args) -> Done {
    args.common.namespace.run(|| show(args))
}

fn show(args: &Args) -> Done {
    let journal = args.common.state.journal();
    let status = Status::of(&Live::new(), &journal).map_err(settings::journal)?;
    if args.common.json {
        terminal::print(&serde_json::to_string_pretty(&status).context("cannot write JSON")?)?;
    } else {
        for bad in &status.unreadable {
            eprintln!("udpath: warning: {}", bad.why);
        }
        let Status { applies, reverted, .. } = &status;
        if applies.is_empty() && reverted.is_empty() {
            eprintln!("no changes made by udpath are in effect (journal {})", journal.directory().display());
        } else {
            let text = applies.iter().map(text).chain(reverted.iter().map(revert)).collect::<String>();
            terminal::print(&text)?;
        }
    }
    match findings(&status).as_slice() {
        [] => Ok(()),
        all => Err(Failure::Findings(all.join("; "))),
    }
}

/// Problems that need action.
fn findings(status: &Status) -> Vec<String> {
    let mut findings = Vec::new();
    for apply in &status.applies {
        let id = apply.id;
        match apply.state {
            _ if apply.lost => findings.push(format!(
                "apply {id} was made in a network namespace that is gone: `udpath undo --forget {id}` closes it"
            )),
            Progress::Unfinished | Progress::HalfUndone => {
                findings.push(format!("apply {id} is between old and new: run `udpath undo {id}`"));
            }
            Progress::Awaiting if apply.attended == Some(false) => findings.push(format!(
                "apply {id} is not confirmed and the process that would revert it is gone: run `udpath undo {id}` or `udpath \
                 confirm {id}`"
            )),
            _ => {}
        }
    }
    for Reverted { id, left, .. } in status.reverted.iter().filter(|reverted| !reverted.left.is_empty()) {
        findings.push(format!(
            "apply {id} was reverted, except: {}; `udpath undo --forget {id}` closes it",
            left.join("; ")
        ));
    }
    match status.drifted().count() {
        0 => {}
        1 => findings.push("1 setting is not as it was applied".into()),
        count => findings.push(format!("{count} settings are not as they were applied")),
    }
    match status.unreadable.as_slice() {
        [] => {}
        [bad] => findings.push(format!("journal entry {} cannot be read", bad.id)),
        all => findings.push(format!("{} journal entries cannot be read", all.len())),
    }
    findings
}

fn revert(reverted: &Reverted) -> String {
    let Reverted { id, time, why, left } = reverted;
    let date = udpath_report::date(time / 1000);
    let but = if left.is_empty() { String::new() } else { format!(", except: {}", left.join("; ")) };
    format!("apply {id}  {date}  reverted: {why}{but}\n")
}

fn text(apply: &Standing) -> String {
    let state = match (apply.state, apply.deadline) {
        (Progress::Awaiting, _) if apply.booted => {
            format!("not confirmed before a boot, which ended it: `udpath undo {}` closes it", apply.id)
        }
        (Progress::Awaiting, Some(deadline)) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
            match u128::from(deadline).checked_sub(now) {
                Some(left) => format!("reverts in {} s unless confirmed", left / 1000),
                None if apply.attended == Some(false) => "not confirmed in time, and not reverted".into(),
                None => "not confirmed in time: being reverted".into(),
            }
        }
        (Progress::Unfinished, _) => "did not finish".into(),
        (Progress::HalfUndone, _) if apply.left.is_empty() => "half undone".into(),
        (Progress::HalfUndone, _) => format!("half undone: {}", apply.left.join("; ")),
        _ => "applied".into(),
    };
    let elsewhere = apply.elsewhere.as_ref().map_or(String::new(), |place| format!(", in {place}"));
    let date = udpath_report::date(apply.time / 1000);
    let mut text = format!("apply {}  {date}  by {}  {state}{elsewhere}\n", apply.id, apply.user);
    let name = apply.settings.iter().map(|held| held.setting.len()).max().unwrap_or(0);
    let value = apply.settings.iter().map(|held| held.applied.len()).max().unwrap_or(0);
    for held in &apply.settings {
        let line = format!("  {:name$}  {:value$}  {}", held.setting, held.applied, words(held));
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

fn words(held: &Held) -> String {
    let suspects = match held.suspects.as_slice() {
        [] => String::new(),
        all => format!("; perhaps by {}", all.join(", or ")),
    };
    let note = held.note.as_ref().map_or(String::new(), |note| format!(" ({note})"));
    match (held.state, &held.now) {
        (Hold::Holds, _) => format!("holds{note}"),
        (Hold::Untold, _) => format!("set; the kernel does not tell whether it still is{note}"),
        (Hold::Superseded, _) => "changed by a later apply".into(),
        (Hold::Drifted, Some(now)) => format!("is {now}{suspects}"),
        (Hold::Drifted | Hold::Gone, _) => format!("gone{note}{suspects}"),
    }
}
