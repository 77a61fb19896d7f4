//! A capture of this machine for someone else to read: made by the same readers, without unrelated private data, in one
//! file that every command with `--sysroot` can read.
//!
//! ```text
//!  readers ─▸ Recorder ─▸ trim ─▸ redact ─▸ read back: what is missing ─▸ package
//!  twice, for rates               |          names, addresses: replaced consistently
//!                                 everything that the snapshot does not show is removed
//!
//!  manifest.json    udpath.support/1: what was read, what is missing and why, what was redacted and how
//!  status.json      udpath.status/1: applied changes, and which are in effect
//!  now/             proc, sys, etc, udpath: see the module source
//!  earlier/         the same, some seconds before
//! ```
//! Nothing is sent anywhere: the user passes the file on.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open their own files"))]

mod archive;
mod capture;
mod identity;
mod kept;
mod manifest;
mod package;
mod redact;
mod trim;

use std::collections::BTreeMap;
use std::time::Duration;

pub use archive::{Archive, ArchiveError, Captured};
pub use capture::{Capture, CaptureError};
pub use identity::Identity;
pub use kept::{KEPT, Kept};
pub use manifest::{MANIFEST, Manifest, SCHEMA};
pub use package::{PackageError, Target};
pub use redact::{Kind, Redacted, Redactor};

use udpath_host::source::{Recorder, Recording};
use udpath_host::{Snapshot, Source};

/// Folder of the snapshot.
pub const NOW: &str = "now";
/// Folder of the earlier snapshot.
pub const EARLIER: &str = "earlier";
/// Name of the status file.
pub const STATUS: &str = "status.json";

/// Options of a capture.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Also take an earlier snapshot, for rates.
    pub interval: Option<Duration>,
    /// Keep addresses, names and everything else unchanged.
    pub no_redact: bool,
    /// Keep RSS keys, which predictions need.
    pub keep_rss_key: bool,
}

/// A capture could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SupportError {
    /// No random key.
    #[error("cannot get 16 random bytes for the key of the replacements")]
    Random(#[source] std::io::Error),
    /// JSON cannot be written.
    #[error("cannot write a part of the capture as JSON")]
    Json(#[from] serde_json::Error),
    /// Its own reader would reject it.
    #[error("the capture cannot be read back")]
    Unreadable(#[from] ArchiveError),
}

/// Data read from a machine, not redacted until it is made into a [`Support`].
#[derive(Debug)]
pub struct Taken {
    pictures: Vec<(&'static str, Recording, Snapshot)>,
}

/// Takes the snapshots. Call it where the machine is: inside its namespace.
#[must_use]
pub fn take(source: &dyn Source, options: &Options) -> Taken {
    let picture = |name| {
        let recorder = Recorder::new(source);
        let snapshot = Snapshot::read(&recorder);
        (name, trim::trim(recorder.into_recording(), &snapshot), snapshot)
    };
    let mut pictures = Vec::new();
    if let Some(interval) = options.interval {
        pictures.push(picture(EARLIER));
        std::thread::sleep(interval);
    }
    pictures.push(picture(NOW));
    Taken { pictures }
}

/// A capture, ready to be written.
#[derive(Debug)]
pub struct Support {
    /// Its manifest.
    pub manifest: Manifest,
    /// Its files by name; [`None`]: a directory.
    files: BTreeMap<String, Option<String>>,
    redactor: Option<Redactor>,
}

impl Support {
    /// Redacts the recorded data and assembles the capture. `status`: the changes in effect, as JSON, or why they are
    /// unknown.
    ///
    /// # Errors
    /// No random key, or a capture that its own reader would reject.
    pub fn new(
        taken: Taken,
        status: Result<serde_json::Value, String>,
        identity: &Identity,
        options: &Options,
    ) -> Result<Self, SupportError> {
        let mut redactor = match options.no_redact {
            true => None,
            false => Some(Redactor::new(&key()?, identity, options.keep_rss_key)),
        };
        let mut files = BTreeMap::new();
        let times: Vec<u64> = taken.pictures.iter().map(|(_, _, snapshot)| snapshot.taken).collect();
        let names: Vec<String> = taken.pictures.iter().map(|(name, ..)| (*name).to_owned()).collect();
        for (name, recording, _) in taken.pictures {
            let recording = match &mut redactor {
                Some(redactor) => redactor.recording(recording),
                None => recording,
            };
            files.extend(recording.files()?.into_iter().map(|(path, text)| (format!("{name}/{path}"), text)));
        }
        let status = status.map(|mut status| {
            redactor.iter_mut().for_each(|redactor| redactor.status(&mut status));
            status
        });
        let status =
            status.map_err(|why| redactor.as_mut().map_or(why.clone(), |redactor| redactor.sentence(&why)));
        // Missing files are listed as a reader of the capture will report them, not as the machine did.
        let archive = Archive::of(&files)?;
        let read = Snapshot::read(&archive.machine(NOW));
        let manifest = Manifest::new(&read, &names, &times, &files, status.as_ref().err(), redactor.as_ref());
        if let Ok(status) = &status {
            files.insert(STATUS.into(), Some(serde_json::to_string_pretty(status)?));
        }
        files.insert(MANIFEST.into(), Some(serde_json::to_string_pretty(&manifest)?));
        Ok(Self { manifest, files, redactor })
    }

    /// The replacements, with their originals: for the user who made the capture.
    pub fn replacements(&self) -> impl Iterator<Item = (Kind, &str, &str)> {
        self.redactor.iter().flat_map(Redactor::pairs)
    }

    /// Writes the capture, completely or not at all.
    ///
    /// # Errors
    /// The target exists, the disk is full, or permission is denied.
    pub fn write(&self, target: &Target) -> Result<(), PackageError> {
        package::write(&self.files, target)
    }
}

fn key() -> Result<[u8; 16], SupportError> {
    let mut key = [0; 16];
    let mut filled = 0;
    while filled < key.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        let count = rustix::rand::getrandom(&mut key[filled..], flags);
        filled += count.map_err(|errno| SupportError::Random(errno.into()))?;
    }
    Ok(key)
}
