//! Writes a capture to disk: one archive, or a folder. It is written completely, readable only by its owner, or not at
//! all.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::manifest::MANIFEST;
use udpath_files::own;

/// The target of a capture.
#[derive(Debug, Clone)]
pub struct Target {
    /// An archive if it ends in `.tar.gz` or `.tgz`, else a folder.
    pub path: PathBuf,
    /// Replace an existing target.
    pub force: bool,
}

impl Target {
    /// Is it an archive?
    #[must_use]
    pub fn is_archive(&self) -> bool {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        [".tar.gz", ".tgz"].iter().any(|end| name.ends_with(end))
    }

    fn folder(&self) -> &Path {
        self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }
}

/// A capture could not be written.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    /// The target exists.
    #[error("{path} exists; choose another path with -o, or replace it with --force")]
    Exists {
        /// Its path.
        path: String,
    },
    /// The existing target is not a capture and must not be replaced.
    #[error(
        "{path} exists and is not a capture (a file, or a folder with {MANIFEST}); --force replaces only captures"
    )]
    NotOurs {
        /// Its path.
        path: String,
    },
    /// Any other error: disk full, permission denied, no such folder.
    #[error("cannot write {path}; nothing was left behind")]
    Failed {
        /// Its path.
        path: String,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
}

/// Writes the files; `None` is a directory.
pub(super) fn write(files: &BTreeMap<String, Option<String>>, target: &Target) -> Result<(), PackageError> {
    let path = || target.path.display().to_string();
    // Through no link that somebody else may change while it is written.
    let folder_of = udpath_files::output::folder(target.folder());
    let folder_of = folder_of.map_err(|cause| PackageError::Failed { path: path(), cause })?;
    let name = target.path.file_name().unwrap_or_default();
    let target = &Target { path: folder_of.join(name), force: target.force };
    // Checked before the work; the final rename checks it too.
    if let Ok(there) = target.path.symlink_metadata() {
        if !target.force {
            return Err(PackageError::Exists { path: path() });
        }
        let folder = there.is_dir() && target.path.join(MANIFEST).is_file();
        if !(if target.is_archive() { there.is_file() } else { folder }) {
            return Err(PackageError::NotOurs { path: path() });
        }
    }
    let written = if target.is_archive() { archive(files, target) } else { folder(files, target) };
    written.map_err(|cause| match cause.kind() {
        ErrorKind::AlreadyExists => PackageError::Exists { path: path() },
        _ => PackageError::Failed { path: path(), cause },
    })
}

fn archive(files: &BTreeMap<String, Option<String>>, target: &Target) -> io::Result<()> {
    let bytes = pack(files)?;
    // Removed on drop; a signal in between leaves a hidden file with a recognizable name.
    let mut file = tempfile::Builder::new().prefix(".udpath-support-").tempfile_in(target.folder())?;
    file.write_all(&bytes)?;
    file.as_file().sync_all()?;
    let kept = if target.force { file.persist(&target.path) } else { file.persist_noclobber(&target.path) };
    kept.map_err(|error| error.error)?;
    udpath_files::folder(target.folder())?.sync_all()
}

/// The archive's bytes. The same files produce the same bytes.
fn pack(files: &BTreeMap<String, Option<String>>) -> io::Result<Vec<u8>> {
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for (name, text) in files {
        let mut header = tar::Header::new_gnu();
        let (kind, mode, bytes) = match text {
            None => (tar::EntryType::Directory, 0o700, &[][..]),
            Some(text) => (tar::EntryType::Regular, 0o600, text.as_bytes()),
        };
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(bytes.len() as u64);
        builder.append_data(&mut header, name, bytes)?;
    }
    builder.into_inner()?.finish()
}

fn folder(files: &BTreeMap<String, Option<String>>, target: &Target) -> io::Result<()> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".udpath-support-").permissions(fs::Permissions::from_mode(0o700));
    // Removed on drop.
    let made = builder.tempdir_in(target.folder())?;
    let directory = |path: &Path| fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    for (name, text) in files {
        let path = made.path().join(name);
        match text {
            None => directory(&path)?,
            Some(text) => {
                path.parent().map_or(Ok(()), directory)?;
                own::create(&path)?.write_all(text.as_bytes())?;
            }
        }
    }
    let there = target.path.symlink_metadata().is_ok();
    let name: &OsStr = target.path.as_os_str();
    if there {
        // The old folder is now where the new one was created, and is removed with it.
        renameat_with(CWD, made.path(), CWD, name, RenameFlags::EXCHANGE)?;
    } else {
        renameat_with(CWD, made.path(), CWD, name, RenameFlags::NOREPLACE)?;
    }
    udpath_files::folder(target.folder())?.sync_all()
}
