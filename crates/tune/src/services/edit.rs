//! Edits of a configuration, and the files that they make.

use std::collections::BTreeMap;
use std::ops::Range;

use super::knob::Edit;
use super::{Proposal, Service, ServiceError};

/// The first line of a file that is added.
const HEAD: &str = "# Written by udpath; `udpath undo` removes it.\n";

/// A file before and after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// As the server names it.
    pub path: String,
    /// Its text; `None` if it does not exist.
    pub old: Option<String>,
    /// Its new text.
    pub new: String,
}

impl Service {
    /// The files that these proposals change, together.
    ///
    /// # Errors
    /// Two of them set the same knob.
    pub fn files(&self, proposals: &[Proposal]) -> Result<Vec<FileChange>, ServiceError> {
        for (at, one) in proposals.iter().enumerate() {
            if let Some(other) = proposals[at + 1..].iter().find(|other| other.knob == one.knob) {
                return Err(ServiceError::Twice { one: one.id(), other: other.id() });
            }
        }
        let mut replaced: BTreeMap<usize, Vec<(&Range<usize>, &str)>> = BTreeMap::new();
        let mut added: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
        for edit in proposals.iter().flat_map(|proposal| &proposal.edits) {
            match edit {
                Edit::Replace { file, span, text } => replaced.entry(*file).or_default().push((span, text)),
                Edit::New { section, key, value } => added.entry(section).or_default().push((key, value)),
            }
        }
        let mut changes = Vec::new();
        for (at, mut edits) in replaced {
            let Some(file) = self.config.files.get(at) else { continue };
            edits.sort_by_key(|(span, _)| span.start);
            let (mut new, mut from) = (String::new(), 0);
            for (span, text) in edits {
                new += file.text.get(from..span.start).unwrap_or_default();
                new += text;
                from = span.end;
            }
            new += file.text.get(from..).unwrap_or_default();
            changes.push(FileChange { path: file.path.clone(), old: Some(file.text.clone()), new });
        }
        if !added.is_empty() {
            let sections = added.iter().filter_map(|(section, keys)| self.config.format.file(section, keys));
            let lines: String = sections.collect();
            let path = self.drop_in.as_ref().unwrap_or(&self.config_path);
            // A line of it may have been replaced just above.
            let known = changes.iter().position(|change| change.path == *path);
            let old = self.config.files.iter().find(|file| file.path == *path).map(|file| file.text.clone());
            let before = known.map_or_else(|| old.clone(), |at| Some(changes[at].new.clone()));
            let new = match before {
                None => format!("{HEAD}{lines}"),
                Some(text) if text.is_empty() || text.ends_with('\n') => format!("{text}{lines}"),
                Some(text) => format!("{text}\n{lines}"),
            };
            match known {
                Some(at) => changes[at].new = new,
                None => changes.push(FileChange { path: path.clone(), old, new }),
            }
        }
        changes.retain(|change| change.old.as_ref() != Some(&change.new));
        Ok(changes)
    }
}
