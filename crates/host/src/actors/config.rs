//! Parsers for single configuration files, for code that copies them.

use super::files::{self, LinkFile, SysctlLine, UdevRule};
use super::network::{self, Pairs};

/// Kind of a configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// systemd.link(5).
    Link,
    /// NetworkManager, systemd-networkd or an agent.
    Network,
    /// udev(7).
    Rules,
    /// sysctl.d(5).
    Sysctl,
}

/// The directories of these files.
pub fn folders() -> impl Iterator<Item = &'static str> {
    files::FOLDERS.into_iter().flatten().chain(network::folders())
}

/// The kind of the file at a path; `None` for any other file.
pub fn format(path: &str) -> Option<Format> {
    if network::is_one(path) {
        return Some(Format::Network);
    }
    let (folder, name) = path.rsplit_once('/')?;
    let [links, rules, sysctls] = files::FOLDERS;
    match name.rsplit('.').next()? {
        "link" if links.contains(&folder) => Some(Format::Link),
        "rules" if rules.contains(&folder) => Some(Format::Rules),
        "conf" if sysctls.contains(&folder) || path == "/etc/sysctl.conf" => Some(Format::Sysctl),
        _ => None,
    }
}

/// A `.link` file; `None` if it only names devices.
pub fn link(path: &str, text: &str) -> Option<LinkFile> {
    files::link_file(path, text)
}

/// The rules of a file that act on network devices.
pub fn rules(path: &str, text: &str) -> Vec<UdevRule> {
    files::udev_rules(path, text)
}

/// Splits a part of a rule into key, operator and value.
pub fn token(token: &str) -> Option<(&str, &str, &str)> {
    files::parts(token)
}

/// The lines of a file that affect packets.
pub fn sysctl(path: &str, text: &str) -> Vec<SysctlLine> {
    files::sysctl_lines(path, text)
}

/// The matches and settings of a network daemon's file, as `SECTION.KEY` and value.
pub fn network(path: &str, text: &str) -> (Pairs, Pairs) {
    network::pairs(path, text)
}
