//! `udpath apply`: applies a plan completely, or restores the previous state.

use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use udpath_tune::apply::{self, Applied};
use udpath_tune::journal::{JournalError, Lock};
use udpath_tune::persist::{self, Boot};
use udpath_tune::status::Status;
use udpath_tune::{Live, Plan};

use super::revert::{self, Reverter};
use super::settings::{self, Common, Wanted};
use crate::exit::{Done, Failure};
use crate::terminal;

/// Version of the JSON format; incremented when a field changes its meaning or is removed.
const SCHEMA: &str = "udpath.apply/1";
/// Longest time to wait for a confirmation: after a day without one, none will come.
const MAX_CONFIRM: Duration = Duration::from_secs(86_400);

/// Arguments of `udpath apply`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    wanted: Wanted,
    /// Revert after this time, such as 60s or 5m, unless `udpath confirm` is run; uses a systemd unit, or a background
    /// process if systemd is not running
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "persist")]
    confirm: Option<Duration>,
    /// Keep the changes across reboots, using files that undo removes: sysctl.d, udev rules, systemd link files, and a
    /// unit for the rest
    #[arg(long)]
    persist: bool,
    /// Used at boot: the plan contains the remaining settings of this persistent apply
    #[arg(long, value_name = "ID", hide = true, conflicts_with_all = ["persist", "confirm"])]
    adopt: Option<u64>,
    #[command(flatten)]
    common: Common,
}

/// The JSON format of an apply.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    /// `None` if there was nothing to do.
    id: Option<u64>,
    changes: Vec<Change>,
    /// Seconds until it is reverted unless confirmed.
    confirm: Option<u64>,
    /// What will revert it.
    #[serde(skip_serializing_if = "Option::is_none")]
    reverter: Option<&'a Reverter>,
}

#[derive(Serialize)]
struct Change {
    setting: String,
    from: String,
    to: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

/// Whole seconds, from one to a day.
fn time(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "s" => Some(1),
        "m" | "min" => Some(60),
        "h" => Some(3600),
        _ => None,
    };
    let number = digits.parse::<u64>().ok().filter(|_| !digits.starts_with('+'));
    let time = number.zip(unit).and_then(|(number, unit)| number.checked_mul(unit)).map(Duration::from_secs);
    let within = time.filter(|time| (1..=MAX_CONFIRM.as_secs()).contains(&time.as_secs()));
    within.ok_or_else(|| format!("'{text}' is no time to wait; write it like 60s or 5m, up to 24h"))
}

/// Plans, applies, shows.
pub(crate) fn run(args: &Args) -> Done {
    args.common.namespace.run(|| make(args))
}

fn make(args: &Args) -> Done {
    let machine = Live::new();
    let journal = args.common.state.journal();
    // Locked before the machine is read, so that the plan is still valid when it is applied.
    let lock = journal.lock().map_err(settings::journal)?;
    settings::warn_of_unreadable(&journal)?;
    let mut plan = args.wanted.plan(&machine)?;
    let folder = args.common.state.absolute()?;
    if let Some(id) = args.adopt {
        match journal.entry(id) {
            Err(JournalError::Unknown { .. }) => {
                eprintln!("udpath: warning: the journal has no apply {id} any more; this is a new one");
            }
            _ => return adopt(args, &machine, &lock, id, &plan),
        }
    }
    let mut notes = Vec::new();
    if args.persist {
        let id = journal.next_id().map_err(settings::journal)?;
        let program = std::env::current_exe().context("cannot tell where this program is")?;
        let boot = Boot { program: &program, journal: &folder, consent: &args.wanted.consent() };
        let kept = persist::files(&machine, &plan, id, &boot).map_err(anyhow::Error::from)?;
        plan.changes.extend(kept.changes);
        notes = kept.notes;
    }
    if plan.is_empty() {
        return show(args, &plan, None, None);
    }
    let mut reverter = None;
    let armed = |id: u64| {
        if args.confirm.is_some() {
            let started = revert::start(&folder, id);
            reverter =
                Some(started.map_err(|error| format!("cannot start what would revert it: {error:#}"))?);
        }
        Ok(())
    };
    // Until here a signal ends the program, and nothing has been changed; from here on, it reverts everything.
    let signals = terminal::hold_signals()?;
    let interrupted = || signals.came().map(|signal| format!("interrupted by {signal}"));
    let applied = apply::apply_until(&machine, &lock, &plan, args.confirm, armed, &interrupted);
    let applied = applied.map_err(settings::apply)?;
    drop(lock);
    for note in notes {
        eprintln!("note: {note}");
    }
    show(args, &plan, Some(&applied), reverter.as_ref())
}

/// Run at boot by the unit of a persistent apply: sets what no file can set, and reports what is not in effect.
fn adopt(args: &Args, machine: &Live, lock: &Lock, id: u64, plan: &Plan) -> Done {
    let applied = udpath_tune::adopt(machine, lock, id, plan).map_err(settings::apply)?;
    if applied.changes.is_empty() {
        show(args, plan, None, None)?;
    } else {
        show(args, plan, Some(&applied), None)?;
    }
    let status = Status::of(machine, lock.journal()).map_err(settings::journal)?;
    let ours = status.applies.iter().filter(|apply| apply.id == id).flat_map(|apply| &apply.settings);
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

fn show(args: &Args, plan: &Plan, applied: Option<&Applied>, reverter: Option<&Reverter>) -> Done {
    let seconds = applied.and(args.confirm).map(|time| time.as_secs());
    if args.common.json {
        let changes = applied.map_or(&[][..], |applied| &applied.changes);
        let changes = changes.iter().map(|made| Change {
            setting: made.setting.to_string(),
            from: format!("{:#}", made.from),
            to: format!("{:#}", made.to),
            note: made.note.clone(),
        });
        let id = applied.map(|applied| applied.id);
        let document =
            Document { schema: SCHEMA, id, changes: changes.collect(), confirm: seconds, reverter };
        return terminal::print(&serde_json::to_string_pretty(&document).context("cannot write JSON")?);
    }
    let Some(applied) = applied else {
        eprintln!("nothing to do: all {} settings are so already", plan.already.len());
        return Ok(());
    };
    let name = applied.changes.iter().map(|made| made.setting.to_string().len()).max().unwrap_or(0);
    let mut text = String::new();
    for made in &applied.changes {
        let note = made.note.as_ref().map_or(String::new(), |note| format!("  ({note})"));
        text.push_str(&format!("{:name$}  {:#} -> {:#}{note}\n", made.setting, made.from, made.to));
    }
    terminal::print(&text)?;
    settings::tell_lasting(applied.changes.iter().map(|made| &made.setting));
    let id = applied.id;
    let untold = match applied.changes.iter().filter(|made| made.setting.assumed().is_some()).count() {
        0 => String::new(),
        count => format!(" (but for {count} that the kernel does not tell)"),
    };
    match seconds {
        None => eprintln!("applied and verified{untold} as {id}; `udpath undo {id}` takes it back"),
        Some(seconds) => eprintln!(
            "applied and verified{untold} as {id}; reverts in {seconds} s unless you say `udpath confirm {id}`"
        ),
    }
    if let Some(note) = reverter.and_then(Reverter::note) {
        eprintln!("note: {note}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_wait() {
        assert_eq!(time("60s"), Ok(Duration::from_secs(60)));
        assert_eq!(time("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(time("24h"), Ok(MAX_CONFIRM));
        for bad in ["", "0", "25h", "-1s", "+5", "1.5s", "5 s", "99999999999999999999h", "5ü"] {
            assert!(time(bad).unwrap_err().contains("60s"), "{bad}");
        }
    }
}
