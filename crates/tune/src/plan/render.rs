//! A plan for display: as a diff, and as shell commands.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use udpath_host::visible;

use super::{Change, Plan};
use crate::settings::{Phase, Setting, comment};

impl Plan {
    /// Current and new values, one change after the other; settings that need no change at the end.
    #[must_use]
    pub fn diff(&self) -> String {
        let name = self.changes.iter().map(|change| change.setting.to_string().len()).max().unwrap_or(0);
        let name =
            name.max(self.already.iter().map(|(setting, _)| setting.to_string().len()).max().unwrap_or(0));
        let from = self.changes.iter().map(|change| before(change).len()).max().unwrap_or(0);
        let to = self.changes.iter().map(|change| format!("{:#}", change.to).len()).max().unwrap_or(0);
        let mut text = String::new();
        for change in &self.changes {
            let Change { setting, to: value, reason, .. } = change;
            let value = format!("{value:#}");
            let mut notes: Vec<&str> = Vec::new();
            notes.extend(Some(setting.cost().words()).filter(|words| !words.is_empty()));
            let untold = change.from.as_ref().is_some_and(|from| !from.is_reported());
            let restart = setting.phase() == Phase::Restart;
            let assumed = setting.assumed().filter(|_| untold && !restart).map(|assumed| {
                format!("the kernel does not report it; undo sets {assumed} unless an earlier apply set it")
            });
            notes.extend(assumed.as_deref());
            notes.extend(setting.gives_up(&change.to));
            notes.extend(setting.lowers_security(change.from.as_ref(), &change.to));
            notes.extend(Some(reason.as_str()).filter(|reason| !reason.is_empty()));
            let line =
                format!("{setting:name$}  {:from$} -> {value:to$}  {}", before(change), notes.join("; "));
            let _ = writeln!(text, "{}", visible::line(line.trim_end()));
            text += &lines(change);
        }
        for (setting, value) in &self.already {
            let _ = writeln!(text, "{}", visible::line(&format!("{setting:name$}  {value:#} already")));
        }
        text
    }

    /// The same as shell commands, each with its reason.
    #[must_use]
    pub fn shell(&self) -> String {
        let mut text = String::new();
        for change in &self.changes {
            let from = change.from.as_ref().filter(|from| from.is_reported());
            let was = from.map_or(String::new(), |from| format!(", was {from:#}"));
            let why = if change.reason.is_empty() { String::new() } else { format!(": {}", change.reason) };
            let _ = writeln!(text, "{}", comment(&format!("{}{was}{why}", change.setting)));
            let _ = writeln!(text, "{}", change.shell());
        }
        text
    }
}

/// The lifetime of settings that may not last until the next boot: one line per kind.
#[must_use]
pub fn lasting<'a>(settings: impl Iterator<Item = &'a Setting>) -> Vec<String> {
    let mut by: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for setting in settings {
        if let Some(lasts) = setting.lasts() {
            let name = setting.to_string();
            by.entry(lasts).or_default().insert(name.rsplit(':').next().unwrap_or(&name).to_owned());
        }
    }
    let line = |(lasts, names): (&str, BTreeSet<String>)| {
        let names: Vec<String> = names.into_iter().collect();
        let verb = if names.len() == 1 { "lasts" } else { "last" };
        format!("{} {verb} {lasts}", names.join(", "))
    };
    by.into_iter().map(line).collect()
}

/// A tab of a server's configuration, as it is printed: a terminal would place it by where the line begins.
const TAB: &str = "    ";

/// The lines that a change of a server's configuration changes; empty for other changes.
fn lines(change: &Change) -> String {
    let indented = |line: &str| format!("    {}", visible::line(&line.replace('\t', TAB)));
    change.lines().lines().map(|line| indented(line).trim_end().to_owned() + "\n").collect()
}

fn before(change: &Change) -> String {
    if change.setting.phase() == Phase::Restart {
        return "running".to_owned();
    }
    change.from.as_ref().map_or("does not exist yet".to_owned(), |from| format!("{from:#}"))
}
