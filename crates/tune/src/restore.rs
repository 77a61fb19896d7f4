//! Restores what a journal entry has changed, the last change first and restarts of servers at the end, and verifies
//! it.
//!
//! If a change was read back when it was made and has a different value now, another program has changed it since: it
//! is left alone and reported, unless forced. A change that was never read back is always restored.

use std::fmt;

use udpath_host::namespace;

use crate::context::{self, now};
use crate::journal::{Entry, Intent, JournalError, Kept, Line, Writing};
use crate::link_reset::{chosen_by_driver, kept_of};
use crate::machine::{Identity, Machine, Refusal};
use crate::settings::{CONFIG, Phase, RESTART, Scope, Setting, Value};

/// A setting that was not restored, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// The setting.
    pub setting: String,
    /// Why.
    pub why: String,
}

impl Left {
    /// All of them on one line.
    pub(crate) fn list(left: &[Self]) -> String {
        left.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.setting, self.why)
    }
}

/// The outcome for everything an entry has changed.
pub(crate) struct Restored {
    /// What was not restored.
    pub(crate) left: Vec<Left>,
    /// Settings that ended with their process, socket or thread.
    pub(crate) ended: Vec<String>,
    /// What was written and cannot be read back.
    pub(crate) untold: Vec<String>,
    /// Settings that ended with an earlier boot.
    pub(crate) gone_with_boot: Vec<String>,
    /// Whether the journal records it.
    pub(crate) noted: Result<(), JournalError>,
}

/// Restores everything an entry has changed and returns what was not restored. Continues after failures.
pub(crate) fn restore(
    machine: &dyn Machine,
    entry: &Entry,
    writing: &mut Writing,
    why: &str,
    force: bool,
) -> Restored {
    // A full disk must not prevent a restore; the entry stays in effect then, and undo can be repeated.
    let _ = writing.append(&Line::Undoing { time: now(), user: context::user(), why: why.to_owned() });
    let Back { left, ended, untold, gone_with_boot, failed } = back_to(machine, entry, writing, 0, force);
    let words: Vec<String> = left.iter().map(ToString::to_string).collect();
    let noted = match failed {
        // Without this line, the entry reads as half undone.
        true => {
            let _ = writing.append(&Line::Failed { time: now(), left: words }).and_then(|()| writing.sync());
            Ok(())
        }
        false => writing.append(&Line::Undone { time: now(), left: words }).and_then(|()| writing.sync()),
    };
    Restored { left, ended, untold, gone_with_boot, noted }
}

/// The outcome of changes that were undone.
#[derive(Default)]
pub(crate) struct Back {
    /// What was not restored.
    pub(crate) left: Vec<Left>,
    ended: Vec<String>,
    untold: Vec<String>,
    gone_with_boot: Vec<String>,
    /// At least one setting that should have been restored could not be.
    failed: bool,
}

/// Undoes intents from `first` on, the last one first, and restores what link resets have lost.
pub(crate) fn back_to(
    machine: &dyn Machine,
    entry: &Entry,
    writing: &mut Writing,
    first: usize,
    force: bool,
) -> Back {
    let Back { mut left, mut ended, mut untold, mut gone_with_boot, mut failed } = Back::default();
    let after_boot = AfterBoot::of(entry);
    let kept = match after_boot {
        AfterBoot::No if entry.carried == 0 => kept(machine, entry),
        _ => at_stake(machine, entry, first),
    };
    // Changes restored by an interrupted undo are not checked again: their current values may result from its next
    // steps, not from another program.
    let done = |intent: &Intent| intent.restored || intent.replaced;
    let pending = entry.intents.iter().enumerate().skip(first).rev().filter(|(_, intent)| !done(intent));
    // A server reads its files when it is restarted, so they come first.
    let (restarts, others): (Vec<_>, Vec<_>) =
        pending.partition(|(_, intent)| intent.setting.starts_with(RESTART));
    let mut files = 0;
    for (at, intent) in others.into_iter().chain(restarts) {
        let Ok((setting, old, _)) = intent.parsed() else { continue };
        if setting.phase() == Phase::Restart
            && files == 0
            && left.iter().any(|left| left.setting.starts_with(CONFIG))
        {
            let why = "was not restarted, since its configuration was not restored".to_owned();
            left.push(Left { setting: intent.setting.clone(), why });
            continue;
        }
        if after_boot.ended(&setting) {
            gone_with_boot.push(intent.setting.clone());
            continue;
        }
        // The write never happened, and what it would have destroyed still exists: restoring would destroy it.
        let there = |lost: &String| machine.lost(&setting).is_some_and(|now| now.seen && now.words == *lost);
        if intent.done.is_none() && intent.lost.as_ref().is_some_and(there) {
            let _ = writing.append(&Line::Restored { at });
            continue;
        }
        let identity = intent.identity.as_ref().filter(|_| after_boot == AfterBoot::No);
        match back(machine, &setting, identity, &old, verified(&setting, intent), force) {
            Ok(()) => {
                let _ = writing.append(&Line::Restored { at });
                files += usize::from(matches!(setting, Setting::Config(_)));
                // A restart fails unless the server answers.
                if setting.phase() != Phase::Restart
                    && setting.assumed().is_some()
                    && !machine.read(&setting).is_ok_and(|found| found.is_reported())
                {
                    untold.push(intent.setting.clone());
                }
                if let Some(lost) = &intent.lost {
                    let why = format!("is {old:#}, but may differ from before: the apply {lost}");
                    left.push(Left { setting: intent.setting.clone(), why });
                }
            }
            Err(Not::Gone(_)) if setting.scope() == Scope::Process => ended.push(intent.setting.clone()),
            Err(Not::Gone(why) | Not::Changed(why)) => {
                left.push(Left { setting: intent.setting.clone(), why });
            }
            Err(Not::Failed(why)) => {
                failed = true;
                left.push(Left { setting: intent.setting.clone(), why });
            }
        }
    }
    for (setting, identity, old) in kept {
        match back(machine, &setting, identity.as_ref(), &old, None, true) {
            Ok(()) | Err(Not::Gone(_) | Not::Changed(_)) => {}
            Err(Not::Failed(why)) => {
                failed = true;
                left.push(Left { setting: setting.to_string(), why });
            }
        }
    }
    Back { left, ended, untold, gone_with_boot, failed }
}

/// What has survived a boot since the entry was made, or last adopted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterBoot {
    /// No boot since.
    No,
    /// Everything that files keep, under new identities.
    Kept,
    /// Only files.
    Files,
}

impl AfterBoot {
    pub(crate) fn of(entry: &Entry) -> Self {
        match (entry.begun.boot == context::boot(), entry.persists()) {
            (true, _) => Self::No,
            (false, true) => Self::Kept,
            (false, false) => Self::Files,
        }
    }

    /// Do its settings belong to another network namespace? Files keep settings only for the initial one, whatever
    /// number a boot gives it.
    pub(crate) fn is_elsewhere(self, machine: &dyn Machine) -> bool {
        self == Self::Kept && !namespace::is_initial(machine.source())
    }

    /// Did the boot end this setting?
    pub(crate) fn ended(self, setting: &Setting) -> bool {
        match self {
            Self::No => false,
            Self::Kept => *setting == Setting::IrqbalanceBan,
            Self::Files => setting.phase() < Phase::Files,
        }
    }
}

/// Why a setting was not restored.
enum Not {
    /// It no longer exists.
    Gone(String),
    /// Another program has changed it since.
    Changed(String),
    /// It should have been restored, but that failed.
    Failed(String),
}

/// The value read back after the change, if any.
fn verified(setting: &Setting, intent: &Intent) -> Option<Value> {
    setting.decode(intent.done.as_ref()?.as_deref()).ok()
}

/// Restores one value.
fn back(
    machine: &dyn Machine,
    setting: &Setting,
    identity: Option<&Identity>,
    old: &Value,
    made: Option<Value>,
    force: bool,
) -> Result<(), Not> {
    let gone = |refusal: &Refusal| Not::Gone(format!("is gone ({})", refusal.why));
    let failed = |refusal: Refusal| Not::Failed(format!("cannot be restored to {old:#}: {refusal}"));
    if setting.phase() == Phase::Restart {
        // Still the process from before the change: it never read the new files.
        if identity.is_some() && machine.identity(setting).is_ok_and(|now| now.as_ref() == identity) {
            return Ok(());
        }
        return machine.write(setting, old).map_err(failed);
    }
    let setting = &the_same(machine, setting, identity)?;
    let found = match machine.read(setting) {
        Err(refusal) if refusal.is_gone() => return Err(gone(&refusal)),
        found => found.map_err(failed)?,
    };
    if found.is(old) {
        // A write that was cut short leaves its temporary file, programs that serve no policy, or a unit that has not
        // been restarted. The same write completes it.
        let in_steps = matches!(setting, Setting::Policy { .. } | Setting::Instances { .. });
        if in_steps || made.is_none() && setting.phase() == Phase::Files {
            let _ = machine.write(setting, old);
        }
        return Ok(());
    }
    if let Some(made) = made.filter(|made| !force && !found.is(made)) {
        return Err(Not::Changed(format!(
            "is {found:#}: another program changed it from {made:#}; left alone (it was {old:#} before; --force \
             restores that)"
        )));
    }
    match machine.write(setting, old) {
        Err(refusal) if refusal.is_gone() => return Err(gone(&refusal)),
        written => written.map_err(failed)?,
    }
    let found = machine.read(setting).map_err(failed)?;
    if found.is(old) || !found.is_reported() {
        return Ok(());
    }
    Err(Not::Failed(format!("is {found:#} after it was restored to {old:#}")))
}

/// The setting of the same object, under its current name.
fn the_same(machine: &dyn Machine, setting: &Setting, identity: Option<&Identity>) -> Result<Setting, Not> {
    let Some(identity) = identity else { return Ok(setting.clone()) };
    match machine.identity(setting) {
        Ok(Some(now)) if now.is(identity) => Ok(setting.clone()),
        // irqbalance loses its ban list when it exits.
        found => machine.renamed(setting, identity).ok_or_else(|| {
            Not::Gone(match found {
                Ok(Some(now @ Identity::Irq { .. })) => {
                    format!("is now {now}, but was {identity}; left alone")
                }
                Ok(_) => "is now another one of the same name; left alone".to_owned(),
                Err(refusal) => format!("is gone ({})", refusal.why),
            })
        }),
    }
}

/// Settings that this undo's own link resets may lose, for an entry that has no record of them in this boot.
fn at_stake(machine: &dyn Machine, entry: &Entry, first: usize) -> Vec<(Setting, Option<Identity>, Value)> {
    let mut found: Vec<(Setting, Option<Identity>, Value)> = Vec::new();
    for intent in entry.intents.iter().skip(first).filter(|intent| !intent.restored && !intent.replaced) {
        let Ok((setting, old, _)) = intent.parsed() else { continue };
        if machine.read(&setting).is_ok_and(|now| now.is(&old)) {
            continue;
        }
        for (kept, now) in kept_of(machine, &setting) {
            let planned = entry.intents.iter().any(|intent| intent.setting == kept.to_string());
            let known = found.iter().any(|(known, ..)| *known == kept);
            if !planned && !known && !chosen_by_driver(&setting, &kept) {
                found.push((kept, None, now));
            }
        }
    }
    found
}

/// Settings that link resets may have lost, to be checked once everything else is restored.
fn kept(machine: &dyn Machine, entry: &Entry) -> Vec<(Setting, Option<Identity>, Value)> {
    let wanted = |kept: &Kept| {
        let (setting, old) = kept.parsed().ok()?;
        let planned = entry.intents.iter().any(|intent| intent.setting == kept.setting);
        // Apply has restored what was lost, or recorded what the driver chose. A different value was set by another
        // program.
        let moved = kept.moved.as_ref().and_then(|text| setting.decode(text.as_deref()).ok());
        let known = |found: &Value| found.is(&old) || moved.as_ref().is_some_and(|moved| found.is(moved));
        let changed = || machine.read(&setting).is_ok_and(|found| !known(&found));
        let left_alone = entry.applied.is_some() && !planned && changed();
        (!left_alone).then(|| (setting.clone(), kept.identity.clone(), old))
    };
    entry.kept.iter().filter_map(wanted).collect()
}
