//! What many machines have in common, and what differs: read from a folder of their captures.
//!
//! ```text
//!  folder ─▸ files.rs ─▸ input.rs, in two threads ─▸ compact.rs ─▸ compare.rs ─▸ result.rs
//!            which file   a capture, or JSON of      texts, each    what most      plain and
//!            is of which  `show`: its facts.rs       kept once      have, and who  serialisable
//!            machine      and findings                              has not
//! ```
//! A thread holds one capture at a time; what stays of it are its facts: settings by their names in udpath's grammar,
//! versions, numbers of queues and CPUs. What differs between any two machines is not a fact: counters, addresses,
//! process and thread numbers, times.
//!
//! The value that more than half of the machines have is the norm; a fact without such a value is listed as mixed, and
//! no machine differs by it. A machine that does not report a fact, such as one of which there is only the JSON of
//! `show`, does not differ either.

mod compact;
mod compare;
mod facts;
mod files;
mod input;
mod result;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

pub use files::FolderError;
pub use result::{
    Common, FLEET_SCHEMA, FleetFinding, FleetReport, Group, MachineSummary, Mixed, Older, Source, Unread,
    Variation, VariationValue,
};

use compact::Machines;
use compare::compare;

/// Threads that read captures. One holds a capture in memory, 1 to 30 MiB. Fewer: a thousand captures take twice as
/// long. More: they compete for the CPUs of a small machine, and each adds the memory of a capture.
const WORKERS: usize = 2;

/// Reads the captures and the JSON of `udpath show --json` in a folder, and compares the machines. Files that are
/// neither are named in the report. `progress` is called from several threads with the number of files read so far, and
/// of all.
///
/// # Errors
/// The folder cannot be read, or contains no machine.
pub fn report(folder: &Path, progress: &(dyn Fn(usize, usize) + Sync)) -> Result<FleetReport, FolderError> {
    let (entries, unread) = files::list(folder)?;
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let found = Mutex::new((Machines::default(), unread));
    let work = || {
        while let Some(entry) = entries.get(next.fetch_add(1, Ordering::Relaxed)) {
            let facts = input::read(&entry.path);
            // A thread that panics has changed nothing by halves.
            let (machines, unread) = &mut *found.lock().unwrap_or_else(PoisonError::into_inner);
            match facts {
                Ok(facts) => machines.add(entry, facts),
                Err(why) => unread.push(Unread { file: entry.shown.clone(), why: why.to_string() }),
            }
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, entries.len());
        }
    };
    thread::scope(|scope| {
        for _ in 1..WORKERS {
            scope.spawn(work);
        }
        work();
    });
    let (machines, mut unread) = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    unread.sort_by(|a, b| a.file.cmp(&b.file));
    if machines.is_empty() {
        return Err(FolderError::nothing(folder, &unread));
    }
    Ok(compare(machines, unread))
}

/// Compares machines by documents of `udpath show --json`, each with the machine's name. What is no such document is
/// named in the report. `None` if none is.
#[must_use]
pub fn of_json(documents: &[(&str, &[u8])]) -> Option<FleetReport> {
    let (mut machines, mut unread) = (Machines::default(), Vec::new());
    for (name, text) in documents {
        match input::of_json(text) {
            Ok(seen) => machines.add(&files::Entry::named(name), seen),
            Err(why) => unread.push(Unread { file: (*name).to_owned(), why: why.to_string() }),
        }
    }
    (!machines.is_empty()).then(|| compare(machines, unread))
}

#[cfg(test)]
mod tests;
