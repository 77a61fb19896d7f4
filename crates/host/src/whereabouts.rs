//! Who acts, in which boot and in which network namespace.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use crate::journal::Namespace;

/// Which boot of the machine: a number the kernel draws at each. Empty where it tells none.
pub(crate) fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// The calling thread's network namespace.
pub(crate) fn namespace() -> io::Result<Namespace> {
    // Not /proc/self: that is the main thread's.
    let file = fs::metadata("/proc/thread-self/ns/net")?;
    Ok(Namespace { device: file.dev(), inode: file.ino() })
}

/// The name of a namespace under /run/netns.
pub(crate) fn name(namespace: &Namespace) -> Option<String> {
    let entries = fs::read_dir("/run/netns").ok()?;
    let is = |entry: &fs::DirEntry| {
        fs::metadata(entry.path())
            .is_ok_and(|file| (file.dev(), file.ino()) == (namespace.device, namespace.inode))
    };
    let found = entries.flatten().find(is)?;
    Some(found.file_name().to_string_lossy().into_owned())
}

/// The user by name or number, and who that is behind sudo.
pub(crate) fn user() -> String {
    let number = rustix::process::getuid().as_raw();
    let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let is = |line: &&str| line.split(':').nth(2) == Some(number.to_string().as_str());
    let name = accounts.lines().find(is).and_then(|line| line.split(':').next()).map(str::to_owned);
    let name = name.unwrap_or_else(|| number.to_string());
    match std::env::var("SUDO_USER") {
        Ok(behind) if !behind.is_empty() && behind != name => format!("{name} ({behind} by sudo)"),
        _ => name,
    }
}
