//! What the journal does to its files, step by step. A test watches the steps: it refuses one, or ends the program before,
//! halfway through or after it.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;

/// What is done to a file of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// An entry's file is made, under a name that nobody reads.
    Make,
    /// A line is written.
    Write,
    /// What was written is synced.
    Sync,
    /// A file gets its name.
    Rename,
    /// The folder is synced.
    SyncFolder,
    /// Half a line is taken off.
    Cut,
    /// An entry that has changed nothing is removed.
    Remove,
}

/// When in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// It has not begun.
    Before,
    /// Half of a line is written.
    Halfway,
    /// It is done.
    After,
}

/// A moment at which the program may die.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// In which step.
    pub step: Step,
    /// When in it.
    pub when: When,
}

/// Called at each moment. An error before a step refuses it; at other moments it is ignored.
pub type Watcher = Arc<dyn Fn(Moment) -> io::Result<()> + Send + Sync>;

/// How the journal reaches its files.
#[derive(Clone, Default)]
pub(super) struct Disk(Option<Watcher>);

impl Disk {
    pub(super) fn watched(watcher: Watcher) -> Self {
        Self(Some(watcher))
    }

    /// Does one step.
    pub(super) fn step<T>(&self, step: Step, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let Some(watcher) = &self.0 else { return work() };
        watcher(Moment { step, when: When::Before })?;
        let done = work()?;
        let _ = watcher(Moment { step, when: When::After });
        Ok(done)
    }

    /// Writes a line; in two pieces when somebody watches, since the kernel may write it so.
    pub(super) fn write(&self, file: &mut File, line: &[u8]) -> io::Result<()> {
        self.step(Step::Write, || {
            let Some(watcher) = &self.0 else { return file.write_all(line) };
            let (first, second) = line.split_at(line.len() / 2);
            file.write_all(first)?;
            let _ = watcher(Moment { step: Step::Write, when: When::Halfway });
            file.write_all(second)
        })
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Disk (watched)" } else { "Disk" })
    }
}
