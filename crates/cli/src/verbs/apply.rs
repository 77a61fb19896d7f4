//! `udpath apply`: makes a plan true, or leaves everything as it was.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use udpath_host::apply::Applied;
use udpath_host::{Live, Plan, persist};

use super::settings::{self, Common, Wanted};
use crate::exit::Done;
use crate::terminal;

/// Version of the JSON form; raised when a field changes its meaning or goes away.
const SCHEMA: &str = "udpath.apply/1";
/// Longest time a confirmation is awaited: who has not looked after a day will not.
const LONGEST: Duration = Duration::from_secs(86_400);

/// Arguments of `udpath apply`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    wanted: Wanted,
    /// Revert after this time, such as 60s or 5m, unless `udpath confirm` is said; by a process of its own, which
    /// needs no terminal
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "persist")]
    confirm: Option<Duration>,
    /// Keep it over a boot, by files that undo removes: sysctl.d, udev rules, systemd link files, and a unit for the rest
    #[arg(long)]
    persist: bool,
    #[command(flatten)]
    common: Common,
}

/// The JSON form of what was applied.
#[derive(Serialize)]
struct Document {
    schema: &'static str,
    /// None when there was nothing to do.
    id: Option<u64>,
    changes: Vec<Change>,
    /// Seconds until it is reverted unless it is confirmed.
    confirm: Option<u64>,
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
    let within = time.filter(|time| (1..=LONGEST.as_secs()).contains(&time.as_secs()));
    within.ok_or_else(|| format!("'{text}' is no time to wait; write it like 60s or 5m, up to 24h"))
}

/// Plans, applies, shows.
pub(crate) fn run(args: &Args) -> Done {
    args.common.namespace.run(|| apply(args))
}

fn apply(args: &Args) -> Done {
    let machine = Live::new();
    let journal = args.common.state.journal();
    // Held from the first look on, so that the plan is still true when it is applied.
    let lock = journal.lock().map_err(settings::journal)?;
    let mut plan = args.wanted.plan(&machine)?;
    if args.persist {
        let id = journal.ids().map_err(settings::journal)?.last().map_or(1, |last| last + 1);
        let program = std::env::current_exe().context("cannot tell where this program is")?;
        let files = persist::files(&machine, &plan, id, &program.to_string_lossy(), &args.wanted.consent());
        plan.changes.extend(files.map_err(anyhow::Error::from)?);
    }
    if plan.is_empty() {
        return show(args, &plan, None);
    }
    let folder = args.common.state.absolute()?;
    let armed = |id: u64| match args.confirm {
        None => Ok(()),
        Some(_) => arm(&folder, id).map_err(|error| format!("cannot start what would revert it: {error:#}")),
    };
    let applied = udpath_host::apply(&machine, &lock, &plan, args.confirm, armed).map_err(settings::apply)?;
    drop(lock);
    show(args, &plan, Some(&applied))
}

/// Starts this program again as the one that reverts, and waits until it says that it stands by.
fn arm(folder: &std::path::Path, id: u64) -> anyhow::Result<()> {
    // Not the path: the file may have been replaced by a newer one meanwhile.
    let mut command = Command::new("/proc/self/exe");
    command.arg("revert").arg(id.to_string()).arg("--state").arg(folder).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().context("cannot run /proc/self/exe")?;
    let mut said = String::new();
    let out = child.stdout.take().context("it has no stdout")?;
    out.take(64).read_to_string(&mut said).context("cannot hear it")?;
    anyhow::ensure!(said == super::confirm::READY, "it ended before it stood by");
    Ok(())
}

fn show(args: &Args, plan: &Plan, applied: Option<&Applied>) -> Done {
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
        let document = Document { schema: SCHEMA, id, changes: changes.collect(), confirm: seconds };
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
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_wait() {
        assert_eq!(time("60s"), Ok(Duration::from_secs(60)));
        assert_eq!(time("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(time("24h"), Ok(LONGEST));
        for bad in ["", "0", "25h", "-1s", "+5", "1.5s", "5 s", "99999999999999999999h", "5ü"] {
            assert!(time(bad).unwrap_err().contains("60s"), "{bad}");
        }
    }
}
