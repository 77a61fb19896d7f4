//! Changes of settings as text: what was applied, what was undone, and what is still in effect.

use udpath_tune::apply::{Applied, Made};
use udpath_tune::journal::State as Progress;
use udpath_tune::services::{Outcome, Shown};
use udpath_tune::settings::Phase;
use udpath_tune::status::{Held, Hold, Reverted, Standing, Status};
use udpath_tune::undo::Undone;

use super::Style;
use super::table::{Cell, Table};
use crate::units;

/// Each change that was made: the setting, its old and its new value, a note.
#[must_use]
pub fn applied(applied: &Applied) -> String {
    let name = applied.changes.iter().map(|made| made.setting.to_string().len()).max().unwrap_or(0);
    let line = |made: &Made| {
        let note = made.note.as_ref().map_or(String::new(), |note| format!("  ({note})"));
        format!("{:name$}  {:#} -> {:#}{note}\n", made.setting, made.from, made.to)
    };
    applied.changes.iter().map(line).collect()
}

/// That an apply is in effect, and how to undo it, or how long to confirm it. `shown`: how changed knobs show at a
/// restarted server; one that does not is not called verified.
#[must_use]
pub fn applied_sentence(applied: &Applied, shown: &[Shown], confirm_seconds: Option<u64>) -> String {
    let id = applied.id;
    // A restart is not read back: the server answered instead.
    let untold = |made: &&Made| made.setting.assumed().is_some() && made.setting.phase() != Phase::Restart;
    let untold = applied.changes.iter().filter(untold).count();
    let hidden = shown.iter().filter(|one| matches!(one.outcome, Outcome::Unverified(_))).count();
    let verb = if hidden == 1 { "does" } else { "do" };
    let except: Vec<String> = [
        (untold, "that the kernel does not report".to_owned()),
        (hidden, format!("that {verb} not show at the running server")),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, what)| format!("{count} {what}"))
    .collect();
    let verified = match except.is_empty() {
        _ if shown.iter().any(|one| matches!(one.outcome, Outcome::NotInEffect(_))) => String::new(),
        true => " and verified".to_owned(),
        false => format!(" and verified (except {})", except.join(", ")),
    };
    match confirm_seconds {
        None => format!("applied{verified} as {id}; undo with `udpath undo {id}`"),
        Some(seconds) => format!(
            "applied{verified} as {id}; reverts in {seconds} s unless confirmed with `udpath confirm {id}`"
        ),
    }
}

/// The result of a complete undo.
#[must_use]
pub fn undone_sentence(undone: &Undone) -> String {
    let Undone { id, ended, untold, gone_with_boot, .. } = undone;
    let except: Vec<String> = [
        (untold, "written, but not reported by the kernel"),
        (ended, "gone with their process or socket"),
        (gone_with_boot, "reset by an earlier boot, not checked"),
    ]
    .into_iter()
    .filter(|(names, _)| !names.is_empty())
    .map(|(names, why)| format!("{why}: {}", names.join(", ")))
    .collect();
    match except.as_slice() {
        [] => format!("undid apply {id}: all settings read back at their previous values"),
        except => format!(
            "undid apply {id}: settings read back at their previous values, except: {}",
            except.join("; ")
        ),
    }
}

/// The applies in effect with their settings, and those that were reverted. `now` is in milliseconds since 1970.
#[must_use]
pub fn status(status: &Status, now: u64, style: &Style) -> String {
    let applies = status.applies.iter().map(|apply| standing(apply, now, style));
    applies.chain(status.reverted.iter().map(reverted)).collect()
}

fn reverted(reverted: &Reverted) -> String {
    let Reverted { id, time, why, left } = reverted;
    let except = if left.is_empty() { String::new() } else { format!(", except: {}", left.join("; ")) };
    format!("apply {id}  {}  reverted: {why}{except}\n", units::date(time / 1000))
}

fn standing(apply: &Standing, now: u64, style: &Style) -> String {
    let id = apply.id;
    let state = match (apply.state, apply.deadline) {
        (Progress::Awaiting, _) if apply.booted => {
            format!("not confirmed before a reboot, which reset it: close it with `udpath undo {id}`")
        }
        (Progress::Awaiting, Some(deadline)) => match deadline.checked_sub(now) {
            Some(_) if is_stopped(apply) => {
                format!("awaits confirmation; {}, which would revert it, is stopped", reverter(apply))
            }
            Some(left) => format!("reverts in {} s unless confirmed", left / 1000),
            None if is_stopped(apply) => {
                format!("not confirmed in time, and not reverted: {} is stopped", reverter(apply))
            }
            None if apply.attended == Some(false) => "not confirmed in time, and not reverted".into(),
            None => "not confirmed in time: being reverted".into(),
        },
        (Progress::Unfinished, _) => "did not finish".into(),
        (Progress::HalfUndone, _) if apply.left.is_empty() => "half undone".into(),
        (Progress::HalfUndone, _) => format!("half undone: {}", apply.left.join("; ")),
        _ => "applied".into(),
    };
    let place = apply.elsewhere.as_ref().map_or(String::new(), |place| format!(", in {place}"));
    let date = units::date(apply.time / 1000);
    let mut table = Table::default();
    for held in &apply.settings {
        table.row(vec![
            Cell::whole(format!("  {}", held.setting)),
            Cell::whole(&held.applied),
            Cell::whole(hold(held)),
        ]);
    }
    format!("apply {id}  {date}  by {}  {state}{place}\n{}", apply.user, table.text(*style))
}

fn hold(held: &Held) -> String {
    let suspects = match held.suspects.as_slice() {
        [] => String::new(),
        all => format!("; perhaps by {}", all.join(", or ")),
    };
    let note = held.note.as_ref().map_or(String::new(), |note| format!(" ({note})"));
    match (held.state, &held.now) {
        (Hold::Holds, _) => format!("holds{note}"),
        (Hold::Untold, _) => format!("set; the kernel does not report its current value{note}"),
        (Hold::Superseded, _) => "changed by a later apply".into(),
        (Hold::Drifted, Some(now)) => format!("is {now}{note}{suspects}"),
        (Hold::Drifted | Hold::Gone, _) => format!("gone{note}{suspects}"),
    }
}

fn is_stopped(apply: &Standing) -> bool {
    apply.reverter.is_some_and(|process| process.stopped)
}

/// The process that reverts an apply: `pid 812`.
fn reverter(apply: &Standing) -> String {
    let pid = apply.reverter.and_then(|process| process.pid);
    pid.map_or_else(|| "a process that is not visible here".to_owned(), |pid| format!("pid {pid}"))
}

/// Problems that need action, a sentence each.
#[must_use]
pub fn status_findings(status: &Status) -> Vec<String> {
    let mut findings: Vec<String> = status.applies.iter().filter_map(problem).collect();
    for Reverted { id, left, .. } in status.reverted.iter().filter(|reverted| !reverted.left.is_empty()) {
        findings.push(format!(
            "apply {id} was reverted, except: {}; close it with `udpath undo --forget {id}`",
            left.join("; ")
        ));
    }
    match status.drifted().count() {
        0 => {}
        1 => findings.push("1 setting is not at its applied value".into()),
        count => findings.push(format!("{count} settings are not at their applied values")),
    }
    match status.unreadable.as_slice() {
        [] => {}
        [bad] => findings.push(format!("journal entry {} cannot be read", bad.id)),
        all => findings.push(format!("{} journal entries cannot be read", all.len())),
    }
    findings
}

fn problem(apply: &Standing) -> Option<String> {
    let id = apply.id;
    Some(match apply.state {
        _ if apply.lost => format!(
            "apply {id} was made in a network namespace that no longer exists: close it with `udpath undo --forget {id}`"
        ),
        Progress::Unfinished | Progress::HalfUndone => {
            format!("apply {id} is only partly in effect: run `udpath undo {id}`")
        }
        Progress::Awaiting if is_stopped(apply) => format!(
            "apply {id} is not confirmed, and the process that would revert it, {}, is stopped: run `kill -CONT` with its \
             pid, `udpath undo {id}` or `udpath confirm {id}`",
            reverter(apply)
        ),
        Progress::Awaiting if apply.attended == Some(false) && apply.reverter.is_some() => format!(
            "apply {id} was not confirmed in time, and the process that reverts it, {}, has not done so: run \
             `udpath undo {id}`",
            reverter(apply)
        ),
        Progress::Awaiting if apply.attended == Some(false) => format!(
            "apply {id} is not confirmed, and the process that would revert it is gone: run `udpath undo {id}` or \
             `udpath confirm {id}`"
        ),
        _ => return None,
    })
}
