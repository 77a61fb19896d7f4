//! Settings that are whole files on disk.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use udpath_files::{Beneath, replace};

/// Longest file that is read, bytes. What udpath writes has some kB, a server's configuration some 100. Lower: a long
/// one cannot be changed. Higher: the journal, which has its old text, grows by as much.
pub(crate) const MAX_FILE: u64 = 4 << 20;
/// The mode of a file that did not exist.
const MODE: u32 = 0o644;

/// The text of a file on disk; `None` if it does not exist. No part of its path may be a link.
///
/// # Errors
/// It cannot be read, is something else than a file of text, or is longer than [`MAX_FILE`].
pub(crate) fn read_whole(path: &Path) -> io::Result<Option<String>> {
    let root = Beneath::as_root(Path::new("/"))?.on_disk().without_links();
    let path = std::path::absolute(path)?;
    let path = path.to_str().ok_or_else(|| io::Error::other("its name is not UTF-8"))?;
    match root.text(path, MAX_FILE) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Creates or replaces a file on disk with `text`, or removes it, as [`replace::whole`] does. Removing the last file
/// also removes a folder that is useless when empty.
///
/// # Errors
/// As [`replace::whole`]; the file is then as before.
pub(crate) fn write_whole(path: &Path, text: Option<&str>) -> io::Result<()> {
    let folder = path.parent().ok_or_else(|| io::Error::other("it has no parent folder"))?;
    let Some(text) = text else {
        replace::remove(path)?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let is_ours = name == "udpath" || name.ends_with(".target.d") || name.ends_with(".service.d");
        if is_ours && fs::remove_dir(folder).is_ok() {
            replace::sync_folder(folder.parent().unwrap_or(Path::new("/")))?;
        }
        return Ok(());
    };
    fs::create_dir_all(folder)?;
    replace::whole(path, text.as_bytes(), MODE)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use super::*;

    /// What a user who may write a folder can put in the way of root's write there.
    #[test]
    fn traps_in_a_folder_that_others_write_lead_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let fifo = |name: &str| assert!(Command::new("mkfifo").arg(at(name)).status().unwrap().success());
        fs::write(at("shadow"), "secret").unwrap();
        // Where a write puts its new file first, by whatever rule.
        symlink(at("shadow"), at(".a.conf.udpath-new")).unwrap();
        fifo(".b.conf.udpath-new");
        for name in ["a.conf", "b.conf"] {
            write_whole(&at(name), Some("text\n")).unwrap();
            assert_eq!(read_whole(&at(name)).unwrap().as_deref(), Some("text\n"));
            assert!(!fs::symlink_metadata(at(name)).unwrap().is_symlink());
        }
        // The file itself.
        symlink(at("shadow"), at("link")).unwrap();
        fifo("fifo");
        for name in ["link", "fifo"] {
            assert!(read_whole(&at(name)).is_err(), "{name}");
            assert!(write_whole(&at(name), Some("text")).is_err(), "{name}");
        }
        // A folder on the way.
        fs::create_dir(at("real")).unwrap();
        symlink(at("real"), at("folder")).unwrap();
        assert!(write_whole(&at("folder/x"), Some("text")).is_err());
        assert!(read_whole(&at("fifo/x")).is_err() && write_whole(&at("fifo/x"), Some("text")).is_err());
        assert_eq!(fs::read_to_string(at("shadow")).unwrap(), "secret");
        assert!(fs::read_dir(at("real")).unwrap().next().is_none());
        // Removed is the name, not what it leads to.
        write_whole(&at("link"), None).unwrap();
        assert!(at("shadow").exists() && !at("link").exists());
    }
}
