//! Who can change a file: for programs that root runs, and for text that it believes.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Mode bits that let group or others write.
const WRITABLE: u32 = 0o022;

/// The part of a path that somebody other than root can change.
#[derive(Debug)]
pub struct Changeable {
    /// The file, or a folder above it.
    pub part: PathBuf,
    /// How: `belongs to user 1000`.
    pub why: String,
}

impl fmt::Display for Changeable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.part.display(), self.why)
    }
}

impl std::error::Error for Changeable {}

/// The path with links resolved, if only root can change what it leads to: it and every folder above it belong to root,
/// and neither group nor others may write to them. A sticky folder does not qualify: it may be emptied.
///
/// # Errors
/// The first part of the path for which that is not so, beginning with the file.
pub fn only_root(path: &Path) -> Result<PathBuf, Changeable> {
    let cannot = |part: &Path, doing: &str, error: &io::Error| Changeable {
        part: part.to_owned(),
        why: format!("cannot be {doing}: {error}"),
    };
    let real = std::fs::canonicalize(path).map_err(|error| cannot(path, "found", &error))?;
    for part in real.ancestors() {
        let about = std::fs::metadata(part).map_err(|error| cannot(part, "read", &error))?;
        if let Some(why) = changeable(&about) {
            return Err(Changeable { part: part.to_owned(), why });
        }
    }
    Ok(real)
}

/// How somebody other than root can change a file or folder: `belongs to user 1000`; [`None`]: nobody else can. Access
/// control lists are covered: their mask shows as the group's bits.
#[must_use]
pub fn changeable(about: &std::fs::Metadata) -> Option<String> {
    if about.uid() != 0 {
        return Some(format!("belongs to user {}", about.uid()));
    }
    (about.mode() & WRITABLE != 0)
        .then(|| format!("is writable by users other than root (mode {:o})", about.mode() & 0o7777))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn every_part_of_the_path_counts() {
        let shell = fs::canonicalize("/bin/sh").unwrap();
        assert_eq!(only_root(Path::new("/bin/sh")).unwrap(), shell);
        // For any user, a temporary folder has a world-writable parent.
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let program = folder.path().join("udpath");
        fs::copy(&shell, &program).unwrap();
        let said = |program: &Path| only_root(program).unwrap_err().to_string();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o775)).unwrap();
        let wrong = said(&program);
        assert!(wrong.contains("writable by users") || wrong.contains("belongs to"), "{wrong}");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(said(&program).contains("/tmp"), "{}", said(&program));
        assert!(said(Path::new("/no/such")).contains("cannot be found"));
    }
}
