//! `udpath status`: what was applied, and what of it still holds. Reads alone.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use udpath_host::Live;
use udpath_host::journal::State as Progress;
use udpath_host::status::{Held, Hold, Standing, Status};

use super::settings::{self, Common};
use crate::exit::{Done, Failure};
use crate::terminal;

/// Arguments of `udpath status`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
}

/// Looks and shows; exit 1 when something does not hold.
pub(crate) fn run(args: &Args) -> Done {
    args.common.namespace.run(|| show(args))
}

fn show(args: &Args) -> Done {
    let journal = args.common.state.journal();
    let status = Status::of(&Live::new(), &journal).map_err(settings::journal)?;
    if args.common.json {
        terminal::print(&serde_json::to_string_pretty(&status).context("cannot write JSON")?)?;
    } else if status.applies.is_empty() {
        eprintln!("nothing that udpath has applied stands (journal {})", journal.directory().display());
    } else {
        terminal::print(&status.applies.iter().map(text).collect::<String>())?;
    }
    let torn = status
        .applies
        .iter()
        .find(|apply| matches!(apply.state, Progress::Unfinished | Progress::HalfUndone));
    if let Some(apply) = torn {
        let id = apply.id;
        return Err(Failure::Findings(format!(
            "apply {id} stands between old and new: run `udpath undo {id}`"
        )));
    }
    match status.drifted().count() {
        0 => Ok(()),
        1 => Err(Failure::Findings("1 setting is not as it was applied".into())),
        count => Err(Failure::Findings(format!("{count} settings are not as they were applied"))),
    }
}

fn text(apply: &Standing) -> String {
    let state = match (apply.state, apply.deadline) {
        (Progress::Awaiting, Some(deadline)) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
            match u128::from(deadline).checked_sub(now) {
                Some(left) => format!("reverts in {} s unless confirmed", left / 1000),
                None => "not confirmed in time, and what would revert it is gone: undo or confirm it".into(),
            }
        }
        (Progress::Unfinished, _) => "did not finish".into(),
        (Progress::HalfUndone, _) => "half undone".into(),
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
