//! A source that records the questions to another one, and its answers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fs, io};

use super::folder::{ANSWERS, INDEX, Index};
use super::{Answer, Question, Source};
use crate::{Absence, Fact};

/// Passes questions on, and keeps the answers for [`Recorder::write`]. Read everything the capture must contain through
/// it.
#[derive(Debug)]
pub struct Recorder<'a> {
    source: &'a dyn Source,
    seen: Mutex<Recording>,
}

/// The recorded questions and answers.
#[derive(Debug, Default)]
pub struct Recording {
    /// Files by their paths.
    pub texts: BTreeMap<String, String>,
    /// Directories and their entries; some are known only to exist.
    pub directories: BTreeSet<String>,
    /// Links, and reasons why something was not there.
    pub index: Index,
    /// Answers from the kernel, with their questions.
    pub answers: Vec<(Question, Result<Fact<Answer>, Absence>)>,
}

impl Recording {
    /// The files of a capture, by path relative to it; [`None`]: a directory.
    pub fn files(&self) -> serde_json::Result<BTreeMap<String, Option<String>>> {
        let mut files = BTreeMap::new();
        for path in self.directories.iter().chain(self.texts.keys()) {
            // `device/../numa_node`: the path leads through `device`, which the folder must contain.
            let through = path.match_indices("/..").map(|(at, _)| (flat(&path[..at]), None));
            files.extend(through);
        }
        files.extend(self.directories.iter().map(|path| (flat(path), None)));
        // A name that was read as a file is a file.
        files.extend(self.texts.iter().map(|(path, text)| (flat(path), Some(text.clone()))));
        for (question, answer) in &self.answers {
            files.insert(format!("{ANSWERS}/{}", question.file()), Some(Question::encode(answer)?));
        }
        files.insert(format!("{ANSWERS}/{INDEX}"), Some(serde_json::to_string_pretty(&self.index)?));
        Ok(files)
    }
}

/// A path without the leading slash, and with each `..` and its parent removed.
pub fn flat(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

impl<'a> Recorder<'a> {
    /// Records the questions to `source`.
    #[must_use]
    pub fn new(source: &'a dyn Source) -> Self {
        Self { source, seen: Mutex::default() }
    }

    fn seen(&self) -> MutexGuard<'_, Recording> {
        // Every update is complete, so a poisoned lock is still consistent.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, path: &str, answer: Result<String, Absence>) -> Result<String, Absence> {
        let mut seen = self.seen();
        match &answer {
            Ok(text) => drop(seen.texts.insert(path.to_owned(), text.clone())),
            Err(absence) => drop(seen.index.absent.insert(path.to_owned(), absence.clone())),
        }
        answer
    }

    /// The recorded questions and answers.
    pub fn into_recording(self) -> Recording {
        self.seen.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates the folder and writes the capture to it. [`Folder::captured`](super::Folder::captured) then gives the
    /// same answers to the same questions.
    ///
    /// # Errors
    /// The folder or a file in it cannot be created.
    #[allow(
        clippy::disallowed_methods,
        reason = "the folder is the caller's own, and the capture's names are new in it"
    )]
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        for (path, text) in self.seen().files()? {
            let path = folder.join(path);
            match text {
                None => fs::create_dir_all(path)?,
                Some(text) => {
                    path.parent().map_or(Ok(()), fs::create_dir_all)?;
                    fs::write(path, text)?;
                }
            }
        }
        Ok(())
    }
}

impl Source for Recorder<'_> {
    fn text(&self, path: &str) -> Result<String, Absence> {
        self.keep(path, self.source.text(path))
    }

    fn start(&self, path: &str, length: usize) -> Result<String, Absence> {
        self.keep(path, self.source.start(path, length))
    }

    fn names(&self, directory: &str) -> Result<Vec<String>, Absence> {
        let answer = self.source.names(directory);
        let mut seen = self.seen();
        match &answer {
            Ok(names) => {
                seen.directories.insert(directory.to_owned());
                seen.directories.extend(names.iter().map(|name| format!("{directory}/{name}")));
            }
            Err(absence) => drop(seen.index.absent.insert(directory.to_owned(), absence.clone())),
        }
        answer
    }

    fn target(&self, link: &str) -> Result<String, Absence> {
        let answer = self.source.target(link);
        let mut seen = self.seen();
        match &answer {
            Ok(target) => drop(seen.index.links.insert(link.to_owned(), target.clone())),
            Err(absence) => drop(seen.index.absent.insert(link.to_owned(), absence.clone())),
        }
        answer
    }

    fn ask(&self, question: &Question) -> Result<Fact<Answer>, Absence> {
        let answer = self.source.ask(question);
        self.seen().answers.push((question.clone(), answer.clone()));
        answer
    }
}
