//! Files: read up to a limit; written completely or not at all.
//!
//! A file is written next to the target under another name, synced, then renamed.
//!
//! ```text
//! .x.html.udpath-PID-N   <- bytes, fsync            a failure here removes it; x.html is as it was
//! x.html                 <- rename, fsync(folder)
//! ```
//! The next run that writes the file removes temporary files that a killed run left behind.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

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

/// Reads a file, or standard input if `path` is `-`, up to `most` bytes: without a limit, a device or an endless pipe given
/// by mistake would fill the memory. Returns its name in errors, and its bytes.
///
/// # Errors
/// See [`InputError`].
pub fn read_input(path: &Path, most: u64) -> Result<(String, Vec<u8>), InputError> {
    if path == Path::new("-") {
        return read_from(io::stdin().lock(), "standard input".to_owned(), most);
    }
    let name = path.display().to_string();
    match File::open(path) {
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

/// Removes the temporary file unless it has been renamed.
struct Part {
    path: PathBuf,
    done: bool,
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.done {
            // The first error is the one to report; this one leaves a hidden file that the next run removes.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Writes `contents` to `path`, completely or not at all. A symbolic link is followed; a device or pipe is written
/// directly.
///
/// # Errors
/// See [`WriteError`].
pub fn write_whole(path: &Path, contents: &[u8]) -> Result<(), WriteError> {
    let outcome = match fs::metadata(path) {
        Ok(there) if there.is_dir() => {
            return Err(WriteError::Folder { path: path.display().to_string() });
        }
        // A device or a pipe cannot be replaced by a rename.
        Ok(there) if !there.is_file() => OpenOptions::new().write(true).open(path).and_then(|mut file| {
            file.write_all(contents)?;
            file.flush()
        }),
        Ok(_) => fs::canonicalize(path).and_then(|real| replace(&real, contents)),
        Err(_) => replace(path, contents),
    };
    outcome.map_err(|cause| WriteError::Io {
        path: path.display().to_string(),
        advice: advice(cause.kind()),
        cause,
    })
}

/// Checks whether [`write_whole`] could write `path`, and changes nothing: for use before a long operation whose result
/// goes there. Whether there will be enough space is unknown.
///
/// # Errors
/// See [`WriteError`].
pub fn check_writable(path: &Path) -> Result<(), WriteError> {
    let outcome = match fs::metadata(path) {
        Ok(there) if there.is_dir() => {
            return Err(WriteError::Folder { path: path.display().to_string() });
        }
        // A pipe may have no reader yet, and opening it would block.
        Ok(there) if !there.is_file() => Ok(()),
        Ok(_) => fs::canonicalize(path).and_then(|real| Part::create(&real)).map(drop),
        Err(_) => Part::create(path).map(drop),
    };
    outcome.map_err(|cause| WriteError::Io {
        path: path.display().to_string(),
        advice: advice(cause.kind()),
        cause,
    })
}

impl Part {
    /// Creates the file that will become `path`.
    fn create(path: &Path) -> io::Result<(Self, File)> {
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let folder = folder(path);
        remove_left_behind(folder, name);
        let mut part_name = part_prefix(name);
        part_name.push(format!("{}-{}", std::process::id(), WRITTEN.fetch_add(1, Ordering::Relaxed)));
        let path = folder.join(part_name);
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        Ok((Self { path, done: false }, file))
    }
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    let (mut part, mut file) = Part::create(path)?;
    file.write_all(contents)?;
    file.sync_all()?;
    fs::rename(&part.path, path)?;
    part.done = true;
    // The file is complete and in place; some file systems cannot sync a folder, which is harmless.
    let _ = File::open(folder(path)).and_then(|f| f.sync_all());
    Ok(())
}

fn part_prefix(name: &OsStr) -> OsString {
    let mut prefix = b".".to_vec();
    // A file name may have 255 bytes; the additions need at most 50.
    prefix.extend_from_slice(&name.as_bytes()[..name.len().min(200)]);
    prefix.extend_from_slice(b".udpath-");
    OsString::from_vec(prefix)
}

/// Removes temporary files for `name` that a killed run left behind: those with udpath's prefix and a pid that no
/// longer exists.
fn remove_left_behind(folder: &Path, name: &OsStr) {
    let prefix = part_prefix(name);
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let file_name = entry.file_name();
        let Some(rest) = file_name.as_bytes().strip_prefix(prefix.as_bytes()) else { continue };
        let pid = std::str::from_utf8(rest).ok().and_then(|r| r.split_once('-')?.0.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            let _ = fs::remove_file(entry.path());
        }
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
