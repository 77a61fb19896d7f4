//! A plan for people: as a diff, and as lines for a shell.

use std::fmt::Write as _;

use super::{Change, Plan};

impl Plan {
    /// What is now and what will be, one change after the other; what is so already at the end.
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
            notes.extend(setting.lowers_security(change.from.as_ref(), &change.to));
            notes.extend(Some(reason.as_str()).filter(|reason| !reason.is_empty()));
            let line =
                format!("{setting:name$}  {:from$} -> {value:to$}  {}", before(change), notes.join("; "));
            let _ = writeln!(text, "{}", line.trim_end());
        }
        for (setting, value) in &self.already {
            let _ = writeln!(text, "{setting:name$}  {value:#} already");
        }
        text
    }

    /// The same as lines that a shell runs, each with why it is there.
    #[must_use]
    pub fn shell(&self) -> String {
        let mut text = String::new();
        for change in &self.changes {
            let was = change.from.as_ref().map_or(String::new(), |from| format!(", was {from:#}"));
            let why = if change.reason.is_empty() { String::new() } else { format!(": {}", change.reason) };
            let _ = writeln!(text, "# {}{was}{}", change.setting, why.replace('\n', " "));
            let _ = writeln!(text, "{}", change.shell());
        }
        text
    }
}

fn before(change: &Change) -> String {
    change.from.as_ref().map_or("not there yet".to_owned(), |from| format!("{from:#}"))
}
