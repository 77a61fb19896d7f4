//! A capture as it is passed on: a folder or an archive of `udpath support`, with one snapshot or two.

use std::path::Path;

use udpath_host::Source;
use udpath_host::source::Folder;

use crate::{Archive, ArchiveError, EARLIER, NOW};

/// A captured machine.
#[derive(Debug)]
pub enum Capture {
    /// In a folder: directly, or in its subfolder `now`.
    Folder {
        /// The last snapshot.
        now: Folder,
        /// The one before, if there are two.
        earlier: Option<Folder>,
    },
    /// In an archive.
    Archive {
        /// Its files.
        archive: Archive,
        /// The name of the last snapshot's directory in it.
        now: String,
        /// The same of the one before, if there are two.
        earlier: Option<String>,
    },
}

/// Why a file or a folder is not a capture.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// Its archive cannot be read.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// It contains no machine.
    #[error(
        "not a capture: it contains neither proc nor sys; name a folder or an archive that `udpath support` wrote"
    )]
    Empty,
}

impl Capture {
    /// Opens a capture: a folder, or else an archive. An archive is in memory from here on.
    ///
    /// # Errors
    /// It is not a capture, or cannot be read.
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        let found = if path.is_file() { Self::archive(Archive::open(path)?) } else { Self::folder(path) };
        found.ok_or(CaptureError::Empty)
    }

    fn archive(archive: Archive) -> Option<Self> {
        // An archive packed by hand has one more folder level.
        let within = match archive.top()[..] {
            [only] if only != NOW => format!("{only}/"),
            _ => String::new(),
        };
        let tops = [NOW.to_owned(), String::new(), format!("{within}{NOW}"), within.clone()];
        let tops = tops.map(|top| top.trim_end_matches('/').to_owned());
        let is_machine =
            |top: &&String| ["proc", "sys"].iter().any(|name| archive.is_directory(&below(top, name)));
        let now = tops.iter().find(is_machine).cloned()?;
        let earlier = now.strip_suffix(NOW).map(|within| format!("{within}{EARLIER}"));
        let earlier = earlier.filter(|earlier| archive.is_directory(earlier));
        Some(Self::Archive { archive, now, earlier })
    }

    fn folder(path: &Path) -> Option<Self> {
        let top = Folder::captured(path);
        let is_machine = |folder: &Folder| ["proc", "sys"].iter().any(|name| folder.within(name).is_some());
        let now = top.within(NOW).filter(is_machine);
        let two = now.map(|now| Self::Folder { now, earlier: top.within(EARLIER) });
        two.or_else(|| is_machine(&top).then_some(Self::Folder { now: top, earlier: None }))
    }

    /// The last snapshot.
    #[must_use]
    pub fn now(&self) -> Box<dyn Source + '_> {
        match self {
            Self::Folder { now, .. } => Box::new(now.clone()),
            Self::Archive { archive, now, .. } => Box::new(archive.machine(now)),
        }
    }

    /// The earlier snapshot, if there are two.
    #[must_use]
    pub fn earlier(&self) -> Option<Box<dyn Source + '_>> {
        match self {
            Self::Folder { earlier, .. } => {
                earlier.as_ref().map(|earlier| Box::new(earlier.clone()) as Box<dyn Source>)
            }
            Self::Archive { archive, earlier, .. } => {
                earlier.as_ref().map(|earlier| Box::new(archive.machine(earlier)) as Box<dyn Source + '_>)
            }
        }
    }
}

fn below(top: &str, name: &str) -> String {
    if top.is_empty() { name.to_owned() } else { format!("{top}/{name}") }
}
