//! Files that the user names: results to read, up to a limit; results to write, completely or not at all.

use std::io::{self, Read};
use std::path::Path;

use udpath_files::output;

/// Mode of a file that is created, less the bits of the umask.
const MODE: u32 = 0o666;

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// A system call failed.
    #[error("cannot read {name}{}", instead(cause))]
    Io {
        /// The file.
        name: String,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// It is larger than any valid one.
    #[error("{name} is too large: more than {} MiB", most >> 20)]
    TooLarge {
        /// The file.
        name: String,
        /// The limit, bytes.
        most: u64,
    },
}

/// What would be right, in parentheses; empty if the cause says it.
fn instead(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::NotFound => " (name a file that exists, or - for standard input)",
        io::ErrorKind::IsADirectory => " (name a file in it, or - for standard input)",
        io::ErrorKind::PermissionDenied => " (run as a user who may read it)",
        _ => "",
    }
}

/// Reads a file, or standard input if `path` is `-`, up to `most` bytes: without a limit, a device or an endless pipe
/// given by mistake would fill the memory. Returns its name in errors, and its bytes.
///
/// # Errors
/// See [`InputError`].
pub fn read_input(path: &Path, most: u64) -> Result<(String, Vec<u8>), InputError> {
    if path == Path::new("-") {
        return read_from(io::stdin().lock(), "standard input".to_owned(), most);
    }
    let name = path.display().to_string();
    match udpath_files::input(path) {
        Ok(file) => read_from(file, name, most),
        Err(cause) => Err(InputError::Io { name, cause }),
    }
}

fn read_from(source: impl Read, name: String, most: u64) -> Result<(String, Vec<u8>), InputError> {
    let mut bytes = Vec::new();
    match source.take(most + 1).read_to_end(&mut bytes) {
        Err(cause) => Err(InputError::Io { name, cause }),
        Ok(_) if bytes.len() as u64 > most => Err(InputError::TooLarge { name, most }),
        Ok(_) => Ok((name, bytes)),
    }
}

/// Why a file could not be written. An existing file is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A system call failed.
    #[error("cannot write {path}{advice}")]
    Io {
        /// The requested file.
        path: String,
        /// The system's error.
        #[source]
        cause: io::Error,
        /// Advice, if any is known.
        advice: &'static str,
    },
    /// The path is a folder.
    #[error("cannot write {path}: it is a folder; name a file in it")]
    Folder {
        /// The folder.
        path: String,
    },
}

/// Writes `contents` to `path`, completely or not at all: see [`udpath_files::output`].
///
/// # Errors
/// See [`WriteError`].
pub fn write_whole(path: &Path, contents: &[u8]) -> Result<(), WriteError> {
    output::whole(path, contents, MODE).map_err(|cause| failed(path, cause))
}

/// Checks whether [`write_whole`] could write `path`, and changes nothing: for use before a long operation whose result
/// goes there. Whether there will be enough space is unknown.
///
/// # Errors
/// See [`WriteError`].
pub fn check_writable(path: &Path) -> Result<(), WriteError> {
    output::check(path).map_err(|cause| failed(path, cause))
}

fn failed(path: &Path, cause: io::Error) -> WriteError {
    let path = path.display().to_string();
    match cause.kind() {
        io::ErrorKind::IsADirectory => WriteError::Folder { path },
        kind => WriteError::Io { path, advice: advice(kind), cause },
    }
}

/// Advice for this error.
fn advice(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => " (make room or choose another folder)",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            " (choose a folder you may write to)"
        }
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            " (create the folder first, or choose another)"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use error_reporter::Report;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .expect("the folder exists")
            .map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn an_endless_file_is_refused() {
        let error = read_from(io::repeat(b' '), "/dev/zero".to_owned(), 1 << 20).expect_err("endless");
        assert!(error.to_string().contains("more than 1 MiB"), "{error}");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let error =
            |path: &str| Report::new(read_input(Path::new(path), 1).expect_err("unreadable")).to_string();
        let missing = error("/nowhere/at-all.json");
        assert!(
            missing.starts_with("cannot read /nowhere/at-all.json (name a file that exists"),
            "{missing}"
        );
        let folder = error("/");
        assert!(folder.starts_with("cannot read / (name a file in it"), "{folder}");
    }

    #[test]
    fn a_file_is_replaced_whole_and_leaves_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.html");
        write_whole(&path, b"first, and longer").unwrap();
        write_whole(&path, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(names(folder.path()), ["x.html"]);
    }

    #[test]
    fn check_writable_detects_unwritable_paths() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.html");
        check_writable(&path).unwrap();
        assert_eq!(names(folder.path()).len(), 0);
        fs::write(&path, b"old").unwrap();
        check_writable(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(folder.path()), ["x.html"]);
        let error = |path: &Path| check_writable(path).expect_err("this cannot work").to_string();
        assert!(error(folder.path()).contains("it is a folder"));
        assert!(error(&folder.path().join("no/x.html")).contains("create the folder first"));
        assert!(error(Path::new("/proc/x.html")).starts_with("cannot write /proc/x.html ("));
    }

    #[test]
    fn a_link_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        fs::write(&real, b"old").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        write_whole(&link, b"new").unwrap();
        assert_eq!(fs::read(&real).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn files_left_by_killed_runs_are_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.html");
        // No pid exceeds 2^22 (proc(5), pid_max).
        for name in [
            ".x.html.udpath-99999999-0",
            ".x.html.udpath-1-0",
            ".x.html.udpath-",
            ".y.html.udpath-99999999-0",
        ] {
            fs::write(folder.path().join(name), b"half").unwrap();
        }
        write_whole(&path, b"whole").unwrap();
        assert_eq!(
            names(folder.path()),
            [".x.html.udpath-", ".x.html.udpath-1-0", ".y.html.udpath-99999999-0", "x.html"]
        );
    }

    #[test]
    fn errors_name_the_file_and_the_fix() {
        let folder = tempfile::tempdir().unwrap();
        let error =
            |path: &Path| Report::new(write_whole(path, b"x").expect_err("this cannot work")).to_string();
        let e = error(folder.path());
        assert!(e.contains("it is a folder"), "{e}");
        let e = error(&folder.path().join("no/such/x.html"));
        assert!(
            e.contains("no/such/x.html (create the folder first, or choose another): No such file"),
            "{e}"
        );
        let e = error(Path::new("/dev/full"));
        assert!(
            e.starts_with("cannot write /dev/full (make room or choose another folder): No space left"),
            "{e}"
        );
        let e = error(Path::new("/proc/x.html"));
        assert!(e.starts_with("cannot write /proc/x.html (") && e.contains("): "), "{e}");
        let long = folder.path().join("x".repeat(300));
        assert!(error(&long).contains("name too long"));
        assert_eq!(names(folder.path()).len(), 0);
    }
}
