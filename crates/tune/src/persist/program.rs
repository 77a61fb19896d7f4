//! A program that a unit runs as root must be writable by root only.

use std::path::{Path, PathBuf};

use udpath_files::owners::only_root;

use super::PersistError;

/// The program's path with symlinks resolved, if only root can replace it, see [`only_root`].
///
/// # Errors
/// The first part of the path that somebody else can change, and how to install the program.
pub(crate) fn trusted(program: &Path) -> Result<PathBuf, PersistError> {
    only_root(program).map_err(|changeable| PersistError::Unsafe {
        program: program.display().to_string(),
        part: changeable.part.display().to_string(),
        why: changeable.why,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
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
