//! The identity of this machine: the names that a capture must not contain.

use udpath_files::kernel;

/// Names of a host and of its users.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// The host's fully qualified name, its short name, and its domain.
    pub hosts: Vec<String>,
    /// User accounts and their home directories.
    pub users: Vec<(String, String)>,
}

/// The first UID of regular users (`UID_MIN` of login.defs(5)); lower ones belong to daemons, which are named after
/// their programs. UIDs from directory services and systemd-homed are above `UID_MAX`.
const PEOPLE: u32 = 1000;
/// `nobody` (systemd's uid-range documentation, and Debian's `nogroup`).
const NOBODY: [u32; 2] = [65_534, 65_535];

/// Maximum length of the list of accounts, bytes: one of 100,000 has some 8 MiB. Lower: names of people stay in a
/// capture, which a directory of accounts of that length has. Higher: no use.
const MAX_FILE: u64 = 64 << 20;

impl Identity {
    /// The identity of this machine: the kernel's host name, and `/etc/passwd`. Unreadable sources are skipped.
    #[must_use]
    pub fn of_this_machine() -> Self {
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let domain = kernel::text("/proc/sys/kernel/domainname").unwrap_or_default();
        let file = udpath_files::text("/etc/hostname", MAX_FILE).unwrap_or_default();
        let passwd = udpath_files::text("/etc/passwd", MAX_FILE).unwrap_or_default();
        let mut identity = Self { hosts: Vec::new(), users: people(&passwd) };
        for name in [name.as_str(), file.trim(), domain.trim()] {
            identity.host(name);
        }
        identity
    }

    /// Adds a host name, with or without a domain.
    fn host(&mut self, name: &str) {
        let mut add = |name: &str| {
            if !name.is_empty() && name != "(none)" && !self.hosts.iter().any(|known| known == name) {
                self.hosts.push(name.to_owned());
            }
        };
        add(name);
        if let Some((short, domain)) = name.split_once('.') {
            add(short);
            add(domain);
        }
    }

    /// Adds a user who is named elsewhere, such as in the journal.
    pub fn user(&mut self, name: &str) {
        if !name.is_empty() && name != "root" && !self.users.iter().any(|(known, _)| known == name) {
            self.users.push((name.to_owned(), String::new()));
        }
    }
}

fn people(passwd: &str) -> Vec<(String, String)> {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, uid, _, _, home, ..] = fields[..] else { return None };
        let uid: u32 = uid.parse().ok()?;
        (uid >= PEOPLE && !NOBODY.contains(&uid)).then(|| (name.to_owned(), home.to_owned()))
    };
    passwd.lines().filter_map(line).collect()
}
