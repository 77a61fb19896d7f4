//! Processes and their sockets, by one pass over `/proc`.
//!
//! ```text
//! /proc/PID/exe        no program: a kernel thread, skipped
//! /proc/PID/comm       name
//! /proc/PID/fd/N       -> socket:[INODE]      only the requested inodes are kept
//! ```
//! A process may end at any moment; processes that have ended are skipped. For another user's process only the name is
//! readable.

mod threads;

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::container::Container;
use crate::container::container;
use crate::limits::{self, Limits, Mounts};
use crate::text::{field, of_process};
use crate::unit::{self, UnitName};
use crate::{Absence, Missing, Source};

pub use threads::{Thread, ThreadTime};

use threads::threads;

/// A process that has UDP sockets.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Process {
    /// Its PID, as the reader sees it.
    pub pid: u32,
    /// Its name: 15 characters at most.
    pub name: String,
    /// The program it runs; `None` without permission to read it.
    pub executable: Option<String>,
    /// Its arguments, separated by spaces; truncated if long.
    pub command: Option<String>,
    /// The user it runs as.
    pub uid: Option<u32>,
    /// The PID of the process that started it, or took it over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
    /// Its control group.
    pub group: Option<String>,
    /// Its service of systemd's system manager, from the control group's path.
    #[serde(default, deserialize_with = "unit::lenient")]
    pub unit: Option<UnitName>,
    /// Its container, from the control group's name.
    pub container: Option<Container>,
    /// Its CPU and memory limits.
    pub limits: Limits,
    /// Its threads, the main thread first.
    pub threads: Vec<Thread>,
}

/// The device by which programs have tun and tap interfaces.
pub(crate) const TUN_DEVICE: &str = "/dev/net/tun";
/// Most bytes of a command line that are kept. A Java server's runs to many thousands; the distinguishing part is at
/// the front. Shorter: servers that differ in their last argument look the same. Longer: more memory, and more secrets.
const COMMAND: usize = 256;

/// Result of the pass.
#[derive(Debug, Default)]
pub struct Scan {
    /// Every process except kernel threads, in ascending order.
    pub seen: Vec<Seen>,
    /// Holders of the requested sockets: the inode, the process and the descriptor number.
    pub holders: Vec<Holder>,
    /// Process and descriptor of each open tun or tap device. Of a pass that has sockets to look for.
    pub tuns: Vec<(u32, u32)>,
    /// Number of processes whose descriptors are not readable (other users').
    pub hidden: usize,
}

/// One process of the pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Its PID.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Its program; `None` without permission to read it.
    pub executable: Option<String>,
}

/// An open socket of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// The socket.
    pub inode: u32,
    /// The process.
    pub pid: u32,
    /// The descriptor.
    pub fd: u32,
}

/// Walks over all processes once. `wanted`: inodes of the sockets whose holders to find.
///
/// # Errors
/// `/proc` cannot be listed.
pub fn scan(source: &dyn Source, wanted: &HashMap<u32, usize>) -> Result<Scan, Absence> {
    let mut scan = Scan::default();
    for pid in source.names("/proc")?.iter().filter_map(|name| name.parse::<u32>().ok()) {
        let executable = match source.target(&format!("/proc/{pid}/exe")) {
            Ok(path) => Some(path),
            Err(Absence::NotPermitted { .. }) => None,
            // A kernel thread, or one that just ended.
            Err(_) => continue,
        };
        let Ok(name) = of_process(source, &format!("/proc/{pid}/comm")) else { continue };
        scan.seen.push(Seen { pid, name: name.trim_end().to_owned(), executable });
        if wanted.is_empty() {
            continue;
        }
        let folder = format!("/proc/{pid}/fd");
        let (holders, tuns) = (&mut scan.holders, &mut scan.tuns);
        let mut each = |name: &str, target: &str| {
            if target == TUN_DEVICE {
                tuns.extend(name.parse().ok().map(|fd| (pid, fd)));
            }
            let held = || {
                let inode = socket_inode(target)?;
                let fd = name.parse().ok()?;
                wanted.contains_key(&inode).then_some(Holder { inode, pid, fd })
            };
            holders.extend(held());
        };
        match source.targets(&folder, &mut each) {
            Ok(()) => {}
            Err(Absence::NotPermitted { .. }) => scan.hidden += 1,
            Err(_) => {}
        }
    }
    scan.seen.sort_by_key(|seen| seen.pid);
    Ok(scan)
}

/// `socket:[12345]`.
fn socket_inode(target: &str) -> Option<u32> {
    target.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// Reads the details of one process.
pub fn read(source: &dyn Source, mounts: &Mounts, seen: &Seen, missing: &mut Vec<Missing>) -> Process {
    let pid = seen.pid;
    let text = |file: &str| of_process(source, &format!("/proc/{pid}/{file}")).unwrap_or_default();
    let arguments = source.start(&format!("/proc/{pid}/cmdline"), COMMAND).unwrap_or_default();
    let groups = limits::memberships(&text("cgroup")).unwrap_or_default();
    let group = naming_group(&groups);
    let status = text("status");
    let number = |key: &str| field(&status, key)?.split_ascii_whitespace().next()?.parse().ok();
    Process {
        pid,
        name: seen.name.clone(),
        executable: seen.executable.clone(),
        command: Some(command(&arguments)).filter(|command| !command.is_empty()),
        uid: number("Uid"),
        parent: number("PPid"),
        unit: systemd_group(&groups).and_then(UnitName::of_cgroup),
        container: group.and_then(container),
        group: group.map(str::to_owned),
        limits: limits::read(source, mounts, Some(pid), missing),
        threads: threads(source, pid),
    }
}

/// The control group of a process as systemd knows it; `None` for the root.
pub fn group(source: &dyn Source, pid: u32) -> Option<String> {
    let text = of_process(source, &format!("/proc/{pid}/cgroup")).ok()?;
    systemd_group(&limits::memberships(&text).ok()?).map(str::to_owned)
}

/// The service of systemd's system manager that a process belongs to, from the path of its control group.
pub fn unit(source: &dyn Source, pid: u32) -> Option<UnitName> {
    UnitName::of_cgroup(&group(source, pid)?)
}

/// NUL-terminated arguments, separated by spaces.
fn command(text: &str) -> String {
    text.trim_end_matches('\0').replace('\0', " ")
}

/// The most specific group name: as systemd knows it, else the deepest of any controller.
fn naming_group(all: &[limits::Membership]) -> Option<&str> {
    let deepest = || all.iter().max_by_key(|one| one.path.matches('/').count());
    systemd_group(all).or_else(|| deepest().map(|one| one.path.as_str()))
}

/// The group of version 2, else of systemd's own hierarchy. Who made those of a controller alone is unknown.
fn systemd_group(all: &[limits::Membership]) -> Option<&str> {
    let systemd = |one: &&limits::Membership| {
        one.controllers.as_ref().is_some_and(|names| names.iter().any(|name| name == "name=systemd"))
    };
    let telling = |one: &&limits::Membership| one.path != "/";
    let unified = all.iter().filter(telling).find(|one| one.controllers.is_none());
    unified.or_else(|| all.iter().filter(telling).find(systemd)).map(|one| one.path.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Folder;

    #[test]
    fn the_most_specific_group() {
        let of = |text: &str| naming_group(&limits::memberships(text).unwrap()).map(str::to_owned);
        // This machine, both versions at once.
        assert_eq!(
            of("9:name=systemd:/\n4:memory:/process_api/b0\n1:cpu:/\n0::/\n").as_deref(),
            Some("/process_api/b0")
        );
        assert_eq!(
            of("1:name=systemd:/system.slice/a.service\n4:cpu:/x/y/z\n").as_deref(),
            Some("/system.slice/a.service")
        );
        assert_eq!(of("0::/system.slice/a.service\n").as_deref(), Some("/system.slice/a.service"));
        // Somebody's group of a controller is not systemd's.
        assert_eq!(
            systemd_group(&limits::memberships("4:cpu:/system.slice/a.service\n0::/\n").unwrap()),
            None
        );
    }

    #[test]
    fn arguments_are_separated_by_spaces() {
        assert_eq!(command("nsd\0-d\0-P\0\0"), "nsd -d -P");
    }

    #[test]
    fn this_process_is_seen_with_its_socket_and_threads() {
        use std::os::fd::AsRawFd;
        use std::os::linux::fs::MetadataExt;
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let held = std::fs::File::from(std::os::fd::OwnedFd::from(socket.try_clone().unwrap()));
        let inode = u32::try_from(held.metadata().unwrap().st_ino()).unwrap();
        let live = Folder::live();
        let found = scan(&live, &HashMap::from([(inode, 0)])).unwrap();
        let pid = std::process::id();
        let mut fds: Vec<_> = found.holders.iter().map(|holder| (holder.pid, holder.fd)).collect();
        fds.sort_unstable();
        let mut wanted = [(pid, socket.as_raw_fd() as u32), (pid, held.as_raw_fd() as u32)];
        wanted.sort_unstable();
        assert_eq!(fds, wanted);
        let mut missing = Vec::new();
        let seen = found.seen.iter().find(|seen| seen.pid == pid).unwrap();
        let own = read(&live, &limits::mounts(&live, &mut missing), seen, &mut missing);
        assert_eq!(own.threads[0].tid, pid);
        assert!(own.limits.cpus.is_some_and(|cpus| !cpus.is_empty()));
        assert!(own.command.is_some_and(|command| command.len() <= COMMAND));
    }
}
