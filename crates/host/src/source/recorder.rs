//! A source that writes down what was asked of another one, and what it answered.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fs, io};

use super::folder::{ANSWERS, INDEX, Index};
use super::{Answer, Question, Source};
use crate::{Absence, Fact};

/// Passes questions on, and keeps the answers for [`Recorder::write`]. Read through it whatever a capture shall hold.
#[derive(Debug)]
pub struct Recorder<'a> {
    source: &'a dyn Source,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    texts: BTreeMap<String, String>,
    directories: BTreeSet<String>,
    index: Index,
    answers: BTreeMap<String, Result<Fact<Answer>, Absence>>,
}

impl<'a> Recorder<'a> {
    /// Records what is asked of `source`.
    #[must_use]
    pub fn new(source: &'a dyn Source) -> Self {
        Self { source, seen: Mutex::default() }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // Every change to it is whole.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the capture to a folder, which is made. [`Folder::captured`](super::Folder::captured) then answers the
    /// same questions alike.
    ///
    /// # Errors
    /// The folder or a file in it cannot be made.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let seen = self.seen();
        let below = |path: &str| folder.join(path.trim_start_matches('/'));
        // A name that was read as a file is one; of the others nothing is known but that they are there.
        for directory in seen.directories.iter().filter(|path| !seen.texts.contains_key(*path)) {
            fs::create_dir_all(below(directory))?;
        }
        for (path, text) in &seen.texts {
            write(&below(path), text)?;
        }
        let answers = folder.join(ANSWERS);
        for (file, answer) in &seen.answers {
            write(&answers.join(file), &Question::encode(answer)?)?;
        }
        write(&answers.join(INDEX), &serde_json::to_string_pretty(&seen.index)?)
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, text)
}

impl Source for Recorder<'_> {
    fn text(&self, path: &str) -> Result<String, Absence> {
        let answer = self.source.text(path);
        let mut seen = self.seen();
        match &answer {
            Ok(text) => drop(seen.texts.insert(path.to_owned(), text.clone())),
            Err(absence) => drop(seen.index.absent.insert(path.to_owned(), absence.clone())),
        }
        answer
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
        self.seen().answers.insert(question.file(), answer.clone());
        answer
    }
}
