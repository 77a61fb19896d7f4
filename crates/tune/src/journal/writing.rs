//! An entry open for writing.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::disk::{Disk, Step};
use super::entry::Parsed;
use super::{JournalError, Line, line};

/// Append-only access to an entry's file.
#[derive(Debug)]
pub(crate) struct Writing {
    path: PathBuf,
    file: File,
    disk: Disk,
    /// Checksum of all lines so far.
    chain: u64,
    /// Bytes of complete lines.
    length: u64,
}

impl Writing {
    /// A new file, which must not exist.
    pub(super) fn make(path: &Path, disk: &Disk) -> Result<Self, JournalError> {
        let open = || OpenOptions::new().append(true).create_new(true).mode(0o600).open(path);
        let file = disk.step(Step::Make, open).map_err(|cause| JournalError::system("make", path, cause))?;
        Ok(Self { path: path.to_owned(), file, disk: disk.clone(), chain: line::START, length: 0 })
    }

    /// Continues after the lines that were read. `length`: of the file, bytes.
    pub(super) fn resume(
        path: &Path,
        disk: &Disk,
        parsed: &Parsed,
        length: u64,
    ) -> Result<Self, JournalError> {
        let file = OpenOptions::new().append(true).open(path);
        let file = file.map_err(|cause| JournalError::system("open", path, cause))?;
        let Parsed { chain, length: whole, .. } = *parsed;
        let writing = Self { path: path.to_owned(), file, disk: disk.clone(), chain, length: whole };
        if length > whole {
            writing.cut()?;
        }
        Ok(writing)
    }

    /// Renames the file; the new name is durable on return.
    pub(super) fn rename(&mut self, path: &Path) -> Result<(), JournalError> {
        let renamed = self.disk.step(Step::Rename, || std::fs::rename(&self.path, path));
        renamed.map_err(|cause| JournalError::system("make", path, cause))?;
        path.clone_into(&mut self.path);
        sync_folder(path, &self.disk)
    }

    /// Appends a line. After an error the file is as before, as far as the disk allows.
    pub(crate) fn append(&mut self, line: &Line) -> Result<(), JournalError> {
        let failed = |path: &Path, cause| JournalError::system("write", path, cause);
        let json = serde_json::to_string(line).map_err(|error| failed(&self.path, error.into()))?;
        let chain = line::chained(self.chain, &json);
        let text = format!("{chain:016x} {json}\n");
        if let Err(cause) = self.disk.write(&mut self.file, text.as_bytes()) {
            self.cut()?;
            return Err(failed(&self.path, cause));
        }
        self.chain = chain;
        self.length += text.len() as u64;
        Ok(())
    }

    /// Everything appended is on disk on return.
    pub(crate) fn sync(&self) -> Result<(), JournalError> {
        let synced = self.disk.step(Step::Sync, || self.file.sync_data());
        synced.map_err(|cause| JournalError::system("sync", &self.path, cause))
    }

    /// Truncates a partial line.
    fn cut(&self) -> Result<(), JournalError> {
        let cut = self.disk.step(Step::Cut, || self.file.set_len(self.length));
        cut.map_err(|cause| JournalError::system("cut", &self.path, cause))
    }
}

/// The file's directory entry is durable on return.
pub(super) fn sync_folder(path: &Path, disk: &Disk) -> Result<(), JournalError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let synced = disk.step(Step::SyncFolder, || -> io::Result<()> { File::open(folder)?.sync_all() });
    synced.map_err(|cause| JournalError::system("sync", folder, cause))
}
