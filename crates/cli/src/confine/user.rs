//! The user that a confined process becomes.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::Path;

use rustix::thread::CapabilitySet;

use super::{Error, sys};

/// Made by the Debian package.
const OWN: &str = "udpath";
/// Numbers of temporary users, for machines without [`OWN`] in /etc/passwd: those that systemd sets aside for users
/// that exist as long as a service runs (DynamicUser=, systemd.exec(5)). Not `nobody`: other programs and NFS servers
/// use it, and processes of one user may signal each other and read each other's files.
const TEMPORARY: RangeInclusive<u32> = 61184..=65519;
/// Numbers that are tried. One is taken if a temporary user of systemd has it. Fewer: all of them may be; more: the
/// start takes longer where the databases are asked over a network.
const TRIES: usize = 64;
/// Where systemd notes the numbers it has given away.
const GIVEN: &str = "/run/systemd/dynamic-uid";
/// Longest /etc/passwd, in bytes. Shorter: users of a large machine are not found; longer: more memory.
const MAX_USERS: u64 = 16 << 20;
/// Most processes, as PID_MAX_LIMIT allows (proc(5)).
const MAX_PROCESSES: usize = 1 << 22;

/// A user and its primary group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(super) name: String,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// Whose process it is once it is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Root's, with all privileges: asked for.
    Root,
    /// This user's.
    Becomes(User),
    /// A user's that exists only as a number, and that nobody else has.
    Temporary(User),
    /// The user's who started it, who is not root or cannot become another one; capabilities are dropped all the same.
    Stays,
}

impl Choice {
    /// `asked`: the argument of --user.
    ///
    /// # Errors
    /// There is no such user, or only root could become it.
    pub(crate) fn of(asked: Option<&str>) -> Result<Self, Error> {
        let root = rustix::process::geteuid().is_root();
        match asked {
            Some("root" | "0") if root => Ok(Self::Root),
            Some(name) if !root || !may_change()? => Err(Error::NotRoot(name.to_owned())),
            Some(name) => find(&users()?, name).map(Self::Becomes),
            // Also a container's root that was left without these capabilities.
            None if !root || !may_change()? => Ok(Self::Stays),
            None => {
                // A container image may have no users at all.
                match find(&users().unwrap_or_default(), OWN) {
                    Ok(user) => Ok(Self::Becomes(user)),
                    Err(_none) => temporary(),
                }
            }
        }
    }

    pub(super) fn stays_root(&self) -> bool {
        *self == Self::Root
    }

    /// The user that it becomes; `None` if it is still the user that started it.
    pub(super) fn user(&self) -> Option<&User> {
        match self {
            Self::Becomes(user) | Self::Temporary(user) => Some(user),
            Self::Root | Self::Stays => None,
        }
    }

    /// As in `runs as udpath`; `None` if it is still the user that started it.
    pub(crate) fn becomes(&self) -> Option<&str> {
        self.user().map(|user| &*user.name)
    }

    /// Whether files of its user would belong to somebody else later.
    pub(crate) fn is_temporary(&self) -> bool {
        matches!(self, Self::Temporary(_))
    }

    /// The argument of --user that makes another process choose the same.
    pub(crate) fn argument(&self) -> Option<&str> {
        if self.stays_root() { Some("root") } else { self.becomes() }
    }
}

/// Whether this thread has the capabilities to become another user.
fn may_change() -> Result<bool, Error> {
    let has =
        rustix::thread::capabilities(None).map_err(|error| Error::Capabilities(error.into()))?.effective;
    Ok(has.contains(CapabilitySet::SETUID | CapabilitySet::SETGID))
}

/// The text of /etc/passwd.
fn users() -> Result<String, Error> {
    let path = Path::new("/etc/passwd");
    udpath_files::text(path, MAX_USERS).map_err(|source| Error::Read { path: path.to_owned(), source })
}

fn kernel(path: &str) -> Result<String, Error> {
    udpath_files::kernel::text(path)
        .map_err(|source| Error::Read { path: Path::new(path).to_owned(), source })
}

/// A user that nobody else has, from a random number on, so that two programs that start at the same time get different
/// ones.
fn temporary() -> Result<Choice, Error> {
    let maps_of = |path: &str| kernel(path).map(|map| move |id: u32| maps(&map, id));
    let (has_user, has_group) = (maps_of("/proc/self/uid_map")?, maps_of("/proc/self/gid_map")?);
    let mapped: Vec<u32> = TEMPORARY.filter(|id| has_user(*id) && has_group(*id)).collect();
    if mapped.is_empty() {
        // Root of a user namespace that knows no other user.
        return Ok(Choice::Stays);
    }
    let mut random = [0; 4];
    // Without random bytes the first number is tried first.
    let _ = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
    let first = u32::from_ne_bytes(random) as usize % mapped.len();
    let running = running()?;
    let is_taken = |id: u32| {
        running.contains(&id)
            || Path::new(GIVEN).join(id.to_string()).exists()
            || sys::is_user(id)
            || sys::is_group(id)
    };
    let free =
        mapped.iter().cycle().skip(first).take(TRIES.min(mapped.len())).copied().find(|id| !is_taken(*id));
    let id = free.ok_or(Error::NoFreeUser(TEMPORARY))?;
    Ok(Choice::Temporary(User { name: id.to_string(), uid: id, gid: id }))
}

/// The users and groups of all processes.
fn running() -> Result<BTreeSet<u32>, Error> {
    let proc = Path::new("/proc");
    let names = udpath_files::names(proc, MAX_PROCESSES)
        .map_err(|source| Error::Read { path: proc.to_owned(), source })?;
    let processes = names.iter().filter_map(|name| name.to_str()?.parse::<u32>().ok());
    // A process that has ended since has no user.
    let statuses = processes.filter_map(|pid| udpath_files::kernel::text(format!("/proc/{pid}/status")).ok());
    Ok(statuses.flat_map(|status| ids(&status)).collect())
}

/// The real, effective, saved and file system user and group in the text of /proc/PID/status (proc(5)).
fn ids(status: &str) -> Vec<u32> {
    let of = |line: &str| line.strip_prefix("Uid:").or_else(|| line.strip_prefix("Gid:")).map(str::to_owned);
    let lines = status.lines().filter_map(of);
    lines
        .flat_map(|line| line.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// The user with this name, or this number, in the text of /etc/passwd (passwd(5)).
fn find(users: &str, name: &str) -> Result<User, Error> {
    let number = name.parse::<u32>().ok();
    let listed = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (user, uid, gid) = (fields.next()?, fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
        (user == name || number == Some(uid)).then(|| User { name: user.to_owned(), uid, gid })
    });
    listed
        // A number needs no entry: its group has the same one.
        .or_else(|| number.map(|uid| User { name: name.to_owned(), uid, gid: uid }))
        .ok_or_else(|| Error::NoUser(name.to_owned()))
}

/// Whether a user namespace, given as the text of its `uid_map` (user_namespaces(7)), has the user `uid`.
fn maps(map: &str, uid: u32) -> bool {
    map.lines().any(|line| {
        let mut fields = line.split_whitespace().filter_map(|field| field.parse::<u64>().ok());
        let (Some(first), Some(_outside), Some(count)) = (fields.next(), fields.next(), fields.next()) else {
            return false;
        };
        (first..first.saturating_add(count)).contains(&u64::from(uid))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str = "root:x:0:0:root:/root:/bin/bash\nbroken\nbad:x:many:1::/:/bin/sh\n\
                         udpath:x:997:996:Reads:/:/usr/sbin/nologin\nnobody:x:65534:65534::/:/usr/sbin/nologin\n";

    #[test]
    fn a_user_is_found_by_name_and_number() {
        let udpath = User { name: "udpath".into(), uid: 997, gid: 996 };
        assert_eq!(find(USERS, "udpath").unwrap(), udpath);
        assert_eq!(find(USERS, "997").unwrap(), udpath);
        assert_eq!(find(USERS, "1234").unwrap(), User { name: "1234".into(), uid: 1234, gid: 1234 });
        for unknown in ["udp", "bad", "", "-1", "4294967296"] {
            assert!(matches!(find(USERS, unknown), Err(Error::NoUser(_))), "{unknown}");
        }
    }

    #[test]
    fn a_user_namespace_may_lack_users() {
        let last = *TEMPORARY.end();
        assert!(maps("         0          0 4294967295\n", last));
        assert!(!maps("         0       1000          1\n", last));
        assert!(maps("0 1000 1\n1 100000 65536\n", last));
        assert!(!maps("", last));
    }

    #[test]
    fn users_and_groups_of_a_process_are_read() {
        let status = "Name:\tx\nUid:\t1000\t61184\t1\t0\nGid:\t5\t6\t7\t8\nGroups:\t9\n";
        assert_eq!(ids(status), [1000, 61184, 1, 0, 5, 6, 7, 8]);
        assert!(ids("").is_empty() && ids("Uid:\tx\n").is_empty());
    }

    /// The databases are those of this machine: root is in them, and no number above all ranges is.
    #[test]
    fn the_databases_are_asked() {
        assert!(sys::is_user(0) && sys::is_group(0));
        assert!(!sys::is_user(4_000_000_000) && !sys::is_group(4_000_000_000));
    }
}
