//! Settings that are files: kernel files written in one system call, or whole files on disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Writes an existing file of sysfs or procfs in one system call.
pub(super) fn write_kernel(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    let line = format!("{text}\n");
    let written = file.write(line.as_bytes())?;
    if written < line.len() {
        return Err(io::Error::other(format!("only {written} of {} bytes were written", line.len())));
    }
    Ok(())
}

/// The text of a file on disk; `None` if it does not exist.
pub(crate) fn read_whole(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Creates or replaces a file on disk with `text`, or removes it: written to a temporary file first, so that neither a
/// reader nor a crash sees half of it. A file that is replaced keeps its owner and mode. Removing the last file also removes a folder that is useless when empty.
pub(crate) fn write_whole(path: &Path, text: Option<&str>) -> io::Result<()> {
    let folder = path.parent().ok_or_else(|| io::Error::other("it has no parent folder"))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Leading dot and unknown extension: readers of the folder skip it.
    let beside = folder.join(format!(".{name}.udpath-new"));
    if let Some(text) = text {
        fs::create_dir_all(folder)?;
        let written = || {
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(&beside)?;
            if let Ok(old) = fs::metadata(path) {
                std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid()))?;
                file.set_permissions(old.permissions())?;
            }
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&beside, path)
        };
        written().inspect_err(|_| {
            // Remove the leftover temporary file.
            let _ = fs::remove_file(&beside);
        })?;
    } else {
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // Of a write that was killed.
        let _ = fs::remove_file(&beside);
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let is_ours = name == "udpath" || name.ends_with(".target.d") || name.ends_with(".service.d");
        if is_ours && fs::remove_dir(folder).is_ok() {
            return folder.parent().map_or(Ok(()), |above| File::open(above)?.sync_all());
        }
    }
    File::open(folder)?.sync_all()
}
