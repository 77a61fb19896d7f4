//! A capture's contents as text, so that its owner knows them before sending it.

use std::fmt::Write as _;
use std::path::Path;

use udpath_host::Absence;
use udpath_support::{Kind, Manifest};

use crate::{units, words};

/// What the capture at `path` contains, what was replaced in it, and what is missing.
#[must_use]
pub fn contents(manifest: &Manifest, path: &Path) -> String {
    let snapshots = match manifest.interval {
        Some(ms) => format!("two snapshots, {} apart", units::duration(ms as f64 / 1000.0)),
        None => "one snapshot".to_owned(),
    };
    // Writing to a string cannot fail.
    let mut text = format!(
        "{}: {snapshots}; {} files and {} kernel replies of Linux {}; readable only by its owner\n",
        path.display(),
        units::count(manifest.files as u64),
        units::count(manifest.answers as u64),
        manifest.kernel
    );
    match &manifest.redacted {
        None => {
            text += "NOT REDACTED: contains, unchanged, IP and link-layer addresses of interfaces, sockets and their \
                     peers, names of this host and its users, command lines, paths, identifiers, RSS keys. Do not \
                     send it by mail.\n";
        }
        Some(redacted) => {
            for row in redacted.iter().filter(|row| row.different > 0) {
                let (kind, different, places) = (row.kind.name(), row.different, row.places);
                let _ = writeln!(
                    text,
                    "  replaced  {kind:24} {different:6} different in {places} places: {}",
                    row.how
                );
            }
            for left in &manifest.not_redacted {
                let _ = writeln!(text, "  NOT replaced: {left}");
            }
        }
    }
    for missing in manifest.missing.iter().filter(|one| matches!(one.why, Absence::NotPermitted { .. })) {
        let _ = writeln!(text, "  missing: {missing}");
    }
    if let Some(why) = &manifest.no_status {
        let _ = writeln!(text, "  missing: changes made by udpath: {why}");
    }
    text
}

/// A line per replacement, tab-separated: its kind, the original, what replaced it.
#[must_use]
pub fn redactions<'a>(replacements: impl Iterator<Item = (Kind, &'a str, &'a str)>) -> String {
    let line = |text: &str| words::one_line(text.trim_end_matches('\0'));
    replacements.map(|(kind, from, to)| format!("{}\t{}\t{}\n", kind.name(), line(from), line(to))).collect()
}
