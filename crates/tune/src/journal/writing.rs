//! An entry open for writing.

use std::fs::File;
use std::path::PathBuf;

use udpath_files::Private;

use super::disk::{Disk, Step};
use super::entry::Parsed;
use super::{JournalError, Line, line};

/// Append-only access to an entry's file.
#[derive(Debug)]
pub(crate) struct Writing {
    folder: Private,
    name: String,
    file: File,
    disk: Disk,
    /// Checksum of all lines so far.
    chain: u64,
    /// Bytes of complete lines.
    length: u64,
}

impl Writing {
    /// A new file, which must not exist.
    pub(super) fn make(folder: &Private, name: String, disk: &Disk) -> Result<Self, JournalError> {
        let file = disk.step(Step::Make, || folder.create_new(&name));
        let file = file.map_err(|cause| JournalError::system("make", &folder.path().join(&name), cause))?;
        let folder = folder.clone();
        Ok(Self { folder, name, file, disk: disk.clone(), chain: line::START, length: 0 })
    }

    /// Continues after the lines that were read. `length`: of the file, bytes.
    pub(super) fn resume(
        folder: &Private,
        name: String,
        disk: &Disk,
        parsed: &Parsed,
        length: u64,
    ) -> Result<Self, JournalError> {
        let file = folder.append(&name);
        let file = file.map_err(|cause| JournalError::system("open", &folder.path().join(&name), cause))?;
        let Parsed { chain, length: whole, .. } = *parsed;
        let (folder, disk) = (folder.clone(), disk.clone());
        let writing = Self { folder, name, file, disk, chain, length: whole };
        if length > whole {
            writing.cut()?;
        }
        Ok(writing)
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }

    /// Renames the file; the new name is durable on return.
    pub(super) fn rename(&mut self, name: String) -> Result<(), JournalError> {
        let renamed = self.disk.step(Step::Rename, || self.folder.rename(&self.name, &name));
        renamed.map_err(|cause| JournalError::system("make", &self.path(), cause))?;
        self.name = name;
        sync_folder(&self.folder, &self.disk)
    }

    /// Appends a line. After an error the file is as before, as far as the disk allows.
    pub(crate) fn append(&mut self, line: &Line) -> Result<(), JournalError> {
        let failed = |path: PathBuf, cause| JournalError::system("write", &path, cause);
        let json = serde_json::to_string(line).map_err(|error| failed(self.path(), error.into()))?;
        let chain = line::chained(self.chain, &json);
        let text = format!("{chain:016x} {json}\n");
        if let Err(cause) = self.disk.write(&mut self.file, text.as_bytes()) {
            self.cut()?;
            return Err(failed(self.path(), cause));
        }
        self.chain = chain;
        self.length += text.len() as u64;
        Ok(())
    }

    /// Everything appended is on disk on return.
    pub(crate) fn sync(&self) -> Result<(), JournalError> {
        let synced = self.disk.step(Step::Sync, || self.file.sync_data());
        synced.map_err(|cause| JournalError::system("sync", &self.path(), cause))
    }

    /// Truncates a partial line.
    fn cut(&self) -> Result<(), JournalError> {
        let cut = self.disk.step(Step::Cut, || self.file.set_len(self.length));
        cut.map_err(|cause| JournalError::system("cut", &self.path(), cause))
    }
}

/// The folder's names are durable on return.
pub(super) fn sync_folder(folder: &Private, disk: &Disk) -> Result<(), JournalError> {
    let synced = disk.step(Step::SyncFolder, || folder.sync());
    synced.map_err(|cause| JournalError::system("sync", folder.path(), cause))
}
