//! The user, the time, the boot and the network namespace of the caller.

mod sys;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use udpath_files::kernel;
use udpath_host::namespace::{NAMED, Place, inside};

/// Largest list of accounts, bytes. Lower: the user of a machine with many is only a number in the journal. Higher:
/// more memory for a file that is something else.
const MAX_ACCOUNTS: u64 = 16 << 20;

/// A network namespace, by its file and its cookie, since a later namespace may reuse the inode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// Device of the file.
    pub device: u64,
    /// Inode of the file.
    pub inode: u64,
    /// `SO_NETNS_COOKIE`, unique within a boot. `None` before Linux 5.14, and in entries of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cookie: Option<u64>,
}

impl Namespace {
    /// Is it the same namespace, as far as both report?
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        let cookies = self.cookie.zip(other.cookie).is_none_or(|(this, that)| this == that);
        (self.device, self.inode) == (other.device, other.inode) && cookies
    }
}

/// Milliseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The kernel's boot ID, new at each boot. Empty if the kernel does not report one.
pub(crate) fn boot() -> String {
    kernel::text("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// The calling thread's network namespace.
pub(crate) fn namespace() -> io::Result<Namespace> {
    // Not /proc/self, which is the main thread.
    let file = fs::metadata("/proc/thread-self/ns/net")?;
    // Missing before Linux 5.14.
    let cookie = UnixDatagram::unbound().and_then(|socket| sys::namespace_cookie(&socket)).ok();
    Ok(Namespace { device: file.dev(), inode: file.ino(), cookie })
}

/// The current location of a namespace: here, under a name, or in a process. `None`: not visible from here; a process
/// of another pid namespace, or a mount of another mount namespace, may still hold it.
pub(crate) fn find(namespace: &Namespace) -> Option<Place> {
    if self::namespace().is_ok_and(|here| here.is(namespace)) {
        return Some(Place::Here);
    }
    let is = |path: &Path, place: &Place| {
        let file = fs::metadata(path)
            .is_ok_and(|file| (file.dev(), file.ino()) == (namespace.device, namespace.inode));
        // A namespace that cannot be entered is identified by its file only.
        file && inside(place, self::namespace)
            .map_or(true, |there| there.is_ok_and(|there| there.is(namespace)))
    };
    let names =
        |folder: &str| udpath_files::names(folder, udpath_files::MAX_NAMES).unwrap_or_default().into_iter();
    let named = names(NAMED).find_map(|name| {
        let place = Place::Named(name.to_str()?.to_owned());
        is(&Path::new(NAMED).join(&name), &place).then_some(place)
    });
    named.or_else(|| {
        names("/proc").find_map(|name| {
            let place = Place::Process(name.to_str()?.parse().ok()?);
            is(&Path::new("/proc").join(&name).join("ns/net"), &place).then_some(place)
        })
    })
}

/// The user by name or number, and the invoking user behind sudo.
pub(crate) fn user() -> String {
    let number = rustix::process::getuid().as_raw();
    let accounts = udpath_files::text("/etc/passwd", MAX_ACCOUNTS).unwrap_or_default();
    let is = |line: &&str| line.split(':').nth(2) == Some(number.to_string().as_str());
    let name = accounts.lines().find(is).and_then(|line| line.split(':').next()).map(str::to_owned);
    let name = name.unwrap_or_else(|| number.to_string());
    match std::env::var("SUDO_USER") {
        Ok(behind) if !behind.is_empty() && behind != name => format!("{name} ({behind} by sudo)"),
        _ => name,
    }
}
