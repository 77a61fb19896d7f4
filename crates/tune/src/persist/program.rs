//! A program that a unit runs as root must be writable by root only.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::PersistError;

/// Mode bits that let group or others write.
const WRITABLE: u32 = 0o022;

/// The program's path with symlinks resolved, if only root can replace it: it and every folder above it belong to root,
/// and neither group nor others may write to them. A sticky folder does not qualify: it may be emptied.
///
/// # Errors
/// The first part of the path that violates this, and how to install the program.
pub(crate) fn trusted(program: &Path) -> Result<PathBuf, PersistError> {
    let wrong = |part: &Path, why: String| PersistError::Unsafe {
        program: program.display().to_string(),
        part: part.display().to_string(),
        why,
    };
    let path =
        fs::canonicalize(program).map_err(|error| wrong(program, format!("cannot be found: {error}")))?;
    for part in path.ancestors() {
        let about = fs::metadata(part).map_err(|error| wrong(part, format!("cannot be read: {error}")))?;
        if about.uid() != 0 {
            return Err(wrong(part, format!("belongs to user {}", about.uid())));
        }
        if about.mode() & WRITABLE != 0 {
            return Err(wrong(
                part,
                format!("is writable by users other than root (mode {:o})", about.mode() & 0o7777),
            ));
        }
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn every_part_of_the_path_counts() {
        let shell = fs::canonicalize("/bin/sh").unwrap();
        assert_eq!(trusted(Path::new("/bin/sh")).unwrap(), shell);
        // For any user, a temporary folder has a world-writable parent.
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let program = folder.path().join("udpath");
        fs::copy(&shell, &program).unwrap();
        let said = |program: &Path| trusted(program).unwrap_err().to_string();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o775)).unwrap();
        assert!(said(&program).contains("install -o root -g root -m 755"), "{}", said(&program));
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(said(&program).contains("/tmp"), "{}", said(&program));
        assert!(said(Path::new("/no/such")).contains("cannot be found"));
    }
}
