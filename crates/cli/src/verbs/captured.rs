//! Captured machines, as given to `--sysroot`: a folder or an archive of `udpath support`, with one snapshot or two.

use std::path::Path;

use udpath_host::Source;
use udpath_host::source::Folder;
use udpath_support::{Archive, EARLIER, NOW};

use crate::exit::Failure;

/// A captured machine.
pub(crate) enum Captured {
    /// In a folder: directly, or in its subfolder `now`.
    Folder { now: Folder, earlier: Option<Folder> },
    /// In an archive, under these names.
    Archive { archive: Archive, now: String, earlier: Option<String> },
}

impl Captured {
    /// Opens the capture given to `--sysroot`.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let usage = |why: String| Failure::Usage(format!("--sysroot {}: {why}", path.display()));
        let found = if path.is_file() {
            let archive = Archive::open(path).map_err(|error| usage(error.to_string()))?;
            // An archive packed by hand has one more folder level.
            let within = match archive.top()[..] {
                [only] if only != NOW => format!("{only}/"),
                _ => String::new(),
            };
            let tops = [NOW.to_owned(), String::new(), format!("{within}{NOW}"), within.clone()];
            let tops = tops.map(|top| top.trim_end_matches('/').to_owned());
            let is_machine =
                |top: &&String| ["proc", "sys"].iter().any(|name| archive.is_directory(&below(top, name)));
            let now = tops.iter().find(is_machine).cloned();
            now.map(|now| {
                let earlier = now.strip_suffix(NOW).map(|within| format!("{within}{EARLIER}"));
                let earlier = earlier.filter(|earlier| archive.is_directory(earlier));
                Self::Archive { archive, now, earlier }
            })
        } else {
            let top = Folder::captured(path);
            let is_machine =
                |folder: &Folder| ["proc", "sys"].iter().any(|name| folder.within(name).is_some());
            let now = top.within(NOW).filter(is_machine);
            let two = now.map(|now| Self::Folder { now, earlier: top.within(EARLIER) });
            two.or_else(|| is_machine(&top).then_some(Self::Folder { now: top, earlier: None }))
        };
        found.ok_or_else(|| {
            usage("not a capture: it contains neither proc nor sys; name a folder or an archive that `udpath support` wrote".into())
        })
    }

    /// The last snapshot.
    pub(crate) fn now(&self) -> Box<dyn Source + '_> {
        match self {
            Self::Folder { now, .. } => Box::new(now.clone()),
            Self::Archive { archive, now, .. } => Box::new(archive.machine(now)),
        }
    }

    /// The earlier snapshot, if there are two.
    pub(crate) fn earlier(&self) -> Option<Box<dyn Source + '_>> {
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
