//! The machine's root file system: built in memory and passed to the emulator as a descriptor, so that no file can be
//! left behind.
//!
//! ```text
//! /init            init.sh
//! /bin/busybox     every tool
//! /modules/        drivers; `order`: their load order, `command`: the command to run, `out`: is there a shared folder?
//! /files/          this program and the caller's files; first in PATH
//! /lib, /lib64     the libraries of all of these, at the same paths as on the host
//! ```

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::MemfdFlags;

use super::cpio::Archive;
use super::kernel::Module;
use super::{VmError, libraries};

const INIT: &str = include_str!("init.sh");
/// Where the loader finds libraries outside its own directories.
const LOADER_CACHE: &str = "/etc/ld.so.cache";

/// Additional contents.
pub(super) struct Contents<'a> {
    pub(super) modules: &'a [Module],
    /// Host path, and path in the machine.
    pub(super) files: &'a [(PathBuf, String)],
    pub(super) command: &'a [OsString],
    pub(super) shares_folder: bool,
}

/// The file system and its size in bytes.
pub(super) fn build(contents: &Contents<'_>) -> Result<(OwnedFd, u64), VmError> {
    let memory = rustix::fs::memfd_create("initramfs", MemfdFlags::CLOEXEC)
        .map_err(|cause| VmError::System { what: "make memory for the initramfs", cause: cause.into() })?;
    let mut file = File::from(memory);
    let size = write(contents, &mut file)?;
    Ok((file.into(), size))
}

fn write(contents: &Contents<'_>, into: &mut File) -> Result<u64, VmError> {
    let failed = |cause| VmError::System { what: "write the initramfs", cause };
    let mut archive = Archive::new(into);
    let mut text = |path: &str, mode, bytes: &[u8]| archive.file(path, mode, bytes.len() as u64, bytes);
    text("init", 0o755, INIT.as_bytes()).map_err(failed)?;
    text("modules/command", 0o755, &script(contents.command)).map_err(failed)?;
    let order: String = contents.modules.iter().map(|module| module.name.clone() + "\n").collect();
    text("modules/order", 0o644, order.as_bytes()).map_err(failed)?;
    for Module { name, bytes } in contents.modules {
        text(&format!("modules/{name}.ko"), 0o644, bytes).map_err(failed)?;
    }
    if contents.shares_folder {
        text("modules/out", 0o644, b"").map_err(failed)?;
    }
    // The kernel opens it for the first process, before anything is mounted.
    archive.character_device("dev/console", 5, 1).map_err(failed)?;

    let busybox = (busybox()?, "bin/busybox".to_owned());
    let mut libraries = BTreeSet::new();
    for (host, guest) in contents.files.iter().chain([&busybox]) {
        add(&mut archive, host, guest.trim_start_matches('/'))?;
        libraries.extend(libraries::of(host)?);
    }
    if !libraries.is_empty() && Path::new(LOADER_CACHE).exists() {
        libraries.insert(LOADER_CACHE.into());
    }
    for library in libraries {
        add(&mut archive, &library, library.to_string_lossy().trim_start_matches('/'))?;
    }
    archive.finish().map_err(failed)
}

fn add(archive: &mut Archive<&mut File>, host: &Path, guest: &str) -> Result<(), VmError> {
    let failed = |cause| VmError::File { what: "read", path: host.to_owned(), cause };
    let file = File::open(host).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    if !about.is_file() {
        return Err(failed(std::io::Error::other("it is no regular file; name each file by itself")));
    }
    archive.file(guest, about.permissions().mode(), about.len(), file).map_err(failed)
}

/// A script that execs `command`.
fn script(command: &[OsString]) -> Vec<u8> {
    let mut script = b"#!/bin/sh\nexec".to_vec();
    for word in command {
        script.push(b' ');
        script.extend(quoted(word));
    }
    script.push(b'\n');
    script
}

/// Quotes one word for the shell, whatever it contains.
fn quoted(word: &OsStr) -> Vec<u8> {
    let mut quoted = vec![b'\''];
    for &byte in word.as_bytes() {
        match byte {
            b'\'' => quoted.extend(b"'\\''"),
            other => quoted.push(other),
        }
    }
    quoted.push(b'\'');
    quoted
}

/// Path of busybox.
pub(super) fn busybox() -> Result<PathBuf, VmError> {
    super::installed("busybox").ok_or(VmError::NotInstalled { program: "busybox", package: "busybox-static" })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use error_reporter::Report;

    use super::*;

    #[test]
    fn any_word_reaches_the_command_as_it_was() {
        let words = ["printf", "%s|", "a b", "it's", "'", "", "$HOME", "\\", "\n", "ü"];
        let command: Vec<OsString> = words.iter().map(OsString::from).collect();
        let output = Command::new("sh").arg("-c").arg(OsStr::from_bytes(&script(&command))).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), words[2..].join("|") + "|");
    }

    #[test]
    fn a_folder_is_refused_by_name() {
        let files = [(PathBuf::from("/tmp"), "files/tmp".to_owned())];
        let contents = Contents { modules: &[], files: &files, command: &[], shares_folder: false };
        let said = Report::new(build(&contents).unwrap_err()).to_string();
        assert_eq!(said, "cannot read /tmp: it is no regular file; name each file by itself");
    }
}
