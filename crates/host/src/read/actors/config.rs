//! Configuration files one by one, for those who copy them.

use super::{files, network};
use crate::snapshot::actors::{LinkFile, SysctlLine, UdevRule};

/// Keys with their sections, and values.
pub(crate) type Pairs = Vec<(String, String)>;

/// What kind of file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// systemd.link(5).
    Link,
    /// Of NetworkManager, systemd-networkd or an agent.
    Network,
    /// udev(7).
    Rules,
    /// sysctl.d(5).
    Sysctl,
}

/// The folders of these files.
pub fn folders() -> impl Iterator<Item = &'static str> {
    files::FOLDERS.into_iter().flatten().chain(network::folders())
}

/// What kind of file lies at a path; nothing for one that is not of these.
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

/// A `.link` file; nothing if it does no more than name devices.
pub fn link(path: &str, text: &str) -> Option<LinkFile> {
    files::link_file(path, text)
}

/// The rules of a file that act on network devices.
pub fn rules(path: &str, text: &str) -> Vec<UdevRule> {
    files::udev_rules(path, text)
}

/// A part of a rule as key, operator and value.
pub fn token(token: &str) -> Option<(&str, &str, &str)> {
    files::parts(token)
}

/// The lines of a file that bear on packets.
pub fn sysctl(path: &str, text: &str) -> Vec<SysctlLine> {
    files::sysctl_lines(path, text)
}

/// What a file of a network daemon matches and sets, as `SECTION.KEY` and value.
pub fn network(path: &str, text: &str) -> (Pairs, Pairs) {
    network::pairs(path, text)
}
