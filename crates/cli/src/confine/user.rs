//! The user that a confined process becomes.

use std::fs;
use std::path::Path;

use rustix::thread::CapabilitySet;

use super::Error;

/// Made by the Debian package.
const OWN: &str = "udpath";
/// The kernel's overflow user and group, which own nothing; for machines without [`OWN`] in /etc/passwd.
const NOBODY: u32 = 65534;

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
            Some(name) => find(&read("/etc/passwd")?, name).map(Self::Becomes),
            // Also a container's root that was left without these capabilities.
            None if !root || !may_change()? => Ok(Self::Stays),
            // Root of a user namespace that knows no other user.
            None if !maps(&read("/proc/self/uid_map")?, NOBODY) => Ok(Self::Stays),
            None => {
                // A container image may have no users at all.
                let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
                let nobody = || User { name: "nobody".to_owned(), uid: NOBODY, gid: NOBODY };
                Ok(Self::Becomes(find(&users, OWN).unwrap_or_else(|_none| nobody())))
            }
        }
    }

    pub(super) fn stays_root(&self) -> bool {
        *self == Self::Root
    }

    /// As in `runs as nobody`; `None` if it is still the user that started it.
    pub(crate) fn becomes(&self) -> Option<&str> {
        match self {
            Self::Becomes(user) => Some(&user.name),
            Self::Root | Self::Stays => None,
        }
    }
}

/// Whether this thread has the capabilities to become another user.
fn may_change() -> Result<bool, Error> {
    let has =
        rustix::thread::capabilities(None).map_err(|error| Error::Capabilities(error.into()))?.effective;
    Ok(has.contains(CapabilitySet::SETUID | CapabilitySet::SETGID))
}

fn read(path: &str) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|source| Error::Read { path: Path::new(path).to_owned(), source })
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
        assert!(maps("         0          0 4294967295\n", NOBODY));
        assert!(!maps("         0       1000          1\n", NOBODY));
        assert!(maps("0 1000 1\n1 100000 65536\n", NOBODY));
        assert!(!maps("", NOBODY));
    }
}
