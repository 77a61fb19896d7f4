//! Redacts a whole recording: first learns the private names in it, then replaces them everywhere.

use std::collections::BTreeSet;

use super::{Redactor, files};
use udpath_host::source::{Answer, Recording};
use udpath_host::{Fact, Provenance};

impl Redactor {
    /// Redacts a recording.
    pub(crate) fn recording(&mut self, recording: Recording) -> Recording {
        self.learn(&recording);
        self.programs(&recording.index.links);
        self.files(&recording);
        let mut redacted = Recording::default();
        for (path, text) in recording.texts {
            let text = files::text(self, &path, &text);
            redacted.texts.insert(self.path(&path), text);
        }
        redacted.directories = recording.directories.iter().map(|path| self.path(path)).collect();
        for (path, target) in recording.index.links {
            let target = match path.as_str() {
                // A device's bus.
                path if path.starts_with("/sys/") => self.names_of_interfaces(&target),
                path if path.starts_with("/proc/") && path.ends_with("/exe") => self.program(&target),
                path if path.starts_with("/proc/") => self.text(&target),
                // For a configuration file that is a link, only the last component of its target is read.
                _ if target.ends_with("sysctl.conf") => "../sysctl.conf".to_owned(),
                _ => "redacted".to_owned(),
            };
            redacted.index.links.insert(self.path(&path), target);
        }
        for (path, absence) in recording.index.absent {
            let absence = self.absence(absence);
            redacted.index.absent.insert(self.path(&path), absence);
        }
        for (question, answer) in recording.answers {
            let question = question.of(|interface| self.names_of_interfaces(interface));
            let answer = match answer {
                Ok(Fact { value, from }) => {
                    let from = match from {
                        Provenance::File(path) => Provenance::File(self.path(&path)),
                        from => from,
                    };
                    Ok(Fact::new(self.answer(value), from))
                }
                Err(absence) => Err(self.absence(absence)),
            };
            redacted.answers.push((question, answer));
        }
        redacted
    }

    /// Learns home directories and private interface names, before any text that may contain them.
    fn learn(&mut self, recording: &Recording) {
        for text in recording.texts.values().chain(recording.index.links.values()) {
            for (at, home) in text.match_indices("/home/") {
                let rest = &text[at + home.len()..];
                let end = rest
                    .find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.')))
                    .unwrap_or(rest.len());
                let _ = self.user(&rest[..end]);
            }
        }
        let links = recording.answers.iter().filter_map(|(_, answer)| match answer {
            Ok(Fact { value: Answer::Links(links), .. }) => Some(links.iter().map(|link| link.name.clone())),
            _ => None,
        });
        let of_files = recording.directories.iter().filter_map(|path| {
            let name = path.strip_prefix("/sys/class/net/")?;
            (!name.contains('/')).then(|| name.to_owned())
        });
        let names: BTreeSet<String> = links.flatten().chain(of_files).collect();
        for name in names {
            let other = self.text(&name);
            if other != name && !self.interfaces.iter().any(|(known, _)| *known == name) {
                self.interfaces.push((name, other));
            }
        }
        self.interfaces.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    }

    /// A file's path. Control groups are named after users, units and containers; users choose the names of
    /// configuration files.
    fn path(&mut self, path: &str) -> String {
        if path.starts_with("/sys/fs/cgroup") {
            return self.cgroup_folder(path);
        }
        if ["/proc/", "/sys/"].iter().any(|start| path.starts_with(start)) {
            return self.names_of_interfaces(path);
        }
        self.file_path(path).unwrap_or_else(|| self.text(path))
    }
}
