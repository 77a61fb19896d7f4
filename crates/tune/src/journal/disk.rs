//! The journal's disk operations, one by one. A test can watch them: it fails one, or stops the program before, in the
//! middle of, or after it.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;

/// An operation on a journal file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Create an entry's file, under a name no reader looks at.
    Make,
    /// Write a line.
    Write,
    /// Sync what was written.
    Sync,
    /// Rename a file to its final name.
    Rename,
    /// Sync the folder.
    SyncFolder,
    /// Truncate a partial line.
    Cut,
    /// Remove an entry that has changed nothing.
    Remove,
}

/// The point within a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Before it starts.
    Before,
    /// Half of a line is written.
    Halfway,
    /// After it.
    After,
}

/// A point at which the program may die.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The step.
    pub step: Step,
    /// The point within it.
    pub when: When,
}

/// Called at each point. An error before a step makes it fail; at other points errors are ignored.
pub type Watcher = Arc<dyn Fn(Moment) -> io::Result<()> + Send + Sync>;

/// The journal's access to its files.
#[derive(Clone, Default)]
pub(super) struct Disk(Option<Watcher>);

impl Disk {
    pub(super) fn watched(watcher: Watcher) -> Self {
        Self(Some(watcher))
    }

    /// Performs one step.
    pub(super) fn step<T>(&self, step: Step, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let Some(watcher) = &self.0 else { return work() };
        watcher(Moment { step, when: When::Before })?;
        let done = work()?;
        let _ = watcher(Moment { step, when: When::After });
        Ok(done)
    }

    /// Writes a line; in two pieces if there is a watcher, since the kernel may split the write too.
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
