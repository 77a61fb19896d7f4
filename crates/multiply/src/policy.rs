//! The policy that lets instances bind one port: `policy:CGROUP/reuseport=on`, applied and undone through the journal.

use std::path::Path;

use udpath_tune::plan::Consent;
use udpath_tune::{Journal, Live, Plan, SettingRequest, apply, undo};

use crate::Error;

/// Why it is set, for the journal.
const REASON: &str = "instances of udpath multiply share their ports";

/// Sets it for all programs of a cgroup.
pub(crate) fn set(journal: &Path, cgroup: &str) -> Result<(), Error> {
    let machine = Live::new();
    let lock = Journal::at(journal).lock()?;
    let request = SettingRequest::parse(&format!("{}=on", setting(cgroup)), REASON)?;
    let plan = Plan::resolve(&machine, vec![request], &Consent::default())?;
    if !plan.is_empty() {
        apply(&machine, &lock, &plan, None, |_| Ok(()))?;
    }
    Ok(())
}

/// Undoes every apply that has set it and nothing else, also one that was cut short. What somebody has undone already
/// is fine.
pub(crate) fn end(journal: &Path, cgroup: &str) -> Result<(), Error> {
    let journal = Journal::at(journal);
    let lock = journal.lock()?;
    let setting = setting(cgroup);
    let entries = journal.entries()?;
    let ours = entries.iter().rev().filter(|entry| {
        let intents = &entry.intents;
        entry.stands() && !intents.is_empty() && intents.iter().all(|intent| intent.setting == setting)
    });
    for entry in ours {
        undo(&Live::new(), &lock, Some(entry.id), "the instances of udpath multiply have ended", true)?;
    }
    Ok(())
}

fn setting(cgroup: &str) -> String {
    format!("policy:{cgroup}/reuseport")
}
