//! Files applied when a device appears or at boot: `.link` files, udev rules, sysctl.d.
//!
//! Each kind lives in three directories; a file hides files of the same name in later directories.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text::optional;
use crate::{Missing, Source};

/// A `.link` file (systemd.link(5)).
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct LinkFile {
    /// Its path.
    pub path: String,
    /// The devices it matches: keys and values of `[Match]`.
    pub matches: Vec<(String, String)>,
    /// Its settings: keys and values of `[Link]`, except those that name the device.
    pub sets: Vec<(String, String)>,
}

/// A udev rule that acts on network devices (udev(7)).
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct UdevRule {
    /// Its file.
    pub path: String,
    /// Its line number, from 1.
    pub line: usize,
    /// Its match conditions.
    pub matches: Vec<String>,
    /// Its actions.
    pub acts: Vec<String>,
}

/// A line of sysctl.d(5) that affects packets.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct SysctlLine {
    /// Its file.
    pub path: String,
    /// Its line number, from 1.
    pub line: usize,
    /// The setting: `net.core.rmem_max`.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// What the files set.
#[derive(Default)]
pub(super) struct Applied {
    pub(super) link_files: Vec<LinkFile>,
    pub(super) udev_rules: Vec<UdevRule>,
    pub(super) sysctl_lines: Vec<SysctlLine>,
}

const LINKS: [&str; 3] = ["/etc/systemd/network", "/run/systemd/network", "/usr/lib/systemd/network"];
const RULES: [&str; 3] = ["/etc/udev/rules.d", "/run/udev/rules.d", "/usr/lib/udev/rules.d"];
const SYSCTLS: [&str; 3] = ["/etc/sysctl.d", "/run/sysctl.d", "/usr/lib/sysctl.d"];

/// The directories of each kind.
pub(super) const FOLDERS: [[&str; 3]; 3] = [LINKS, RULES, SYSCTLS];

/// Keys of `[Link]` that only name or describe a device.
const NAMES: [&str; 7] = [
    "Description",
    "Alias",
    "Name",
    "NamePolicy",
    "AlternativeName",
    "AlternativeNamesPolicy",
    "MACAddressPolicy",
];

/// Prefixes of settings that affect packets.
const BEARING: [&str; 3] = ["net.", "kernel.numa_balancing", "kernel.timer_migration"];

pub(super) fn read(source: &dyn Source, missing: &mut Vec<Missing>) -> Applied {
    let mut found = Applied::default();
    for (path, text) in all(source, missing, &LINKS, ".link") {
        found.link_files.extend(link_file(&path, &text));
    }
    for (path, text) in all(source, missing, &RULES, ".rules") {
        found.udev_rules.extend(udev_rules(&path, &text));
    }
    for (path, text) in all(source, missing, &SYSCTLS, ".conf") {
        found.sysctl_lines.extend(sysctl_lines(&path, &text));
    }
    // Applied last by systemd-sysctl if it is linked into the directory, and always by sysctl --system.
    let last = "/etc/sysctl.conf";
    let linked =
        source.target("/etc/sysctl.d/99-sysctl.conf").is_ok_and(|target| target.ends_with("sysctl.conf"));
    if !linked
        && let Some(text) = optional(source, missing, "settings of boot", last, |text| Ok(text.to_owned()))
    {
        found.sysctl_lines.extend(sysctl_lines(last, &text));
    }
    found
}

/// The files in effect, by name.
fn all(
    source: &dyn Source,
    missing: &mut Vec<Missing>,
    folders: &[&str],
    ending: &str,
) -> Vec<(String, String)> {
    let mut in_force: BTreeMap<String, &str> = BTreeMap::new();
    for folder in folders.iter().rev() {
        let names = source.names(folder).unwrap_or_default();
        in_force.extend(names.into_iter().filter(|name| name.ends_with(ending)).map(|name| (name, *folder)));
    }
    let mut texts = Vec::new();
    for (name, folder) in in_force {
        let path = format!("{folder}/{name}");
        let text =
            optional(source, missing, "a file that changes settings", &path, |text| Ok(text.to_owned()));
        texts.extend(text.map(|text| (path, text)));
    }
    texts
}

/// The part of a file that is read: see [`super::used`].
pub(super) fn used(path: &str, text: &str) -> Option<String> {
    let read = match path.rsplit('.').next() {
        Some("link") => link_file(path, text).is_some(),
        Some("rules") => !udev_rules(path, text).is_empty(),
        Some("conf") => !sysctl_lines(path, text).is_empty(),
        _ => false,
    };
    let setting = path.ends_with(".conf");
    if !read {
        return None;
    }
    let line = |line: &str| {
        let comment = line.trim_start().starts_with(['#', ';']);
        let wanted = !comment && (!setting || !sysctl_lines(path, line).is_empty());
        if wanted { format!("{line}\n") } else { "\n".to_owned() }
    };
    Some(text.lines().map(line).collect())
}

/// A `.link` file; [`None`] if it only names devices.
pub(super) fn link_file(path: &str, text: &str) -> Option<LinkFile> {
    let mut file = LinkFile { path: path.to_owned(), matches: Vec::new(), sets: Vec::new() };
    let mut section = "";
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name;
        } else if let Some((key, value)) = line.split_once('=') {
            let pair = (key.trim().to_owned(), value.trim().to_owned());
            match section {
                "Match" => file.matches.push(pair),
                // Other sections ([SR-IOV], [EnergyEfficientEthernet]) change the device as well.
                "Link" if NAMES.contains(&pair.0.as_str()) => {}
                _ => file.sets.push(pair),
            }
        }
    }
    (!file.sets.is_empty()).then_some(file)
}

/// The rules of a file that act on network devices.
pub(super) fn udev_rules(path: &str, text: &str) -> Vec<UdevRule> {
    let mut rules = Vec::new();
    // `SUBSYSTEM!="net", GOTO="end"`: the rules up to the label apply to network devices.
    let mut net_until: Option<String> = None;
    for (line, rule) in joined(text) {
        let mut found = UdevRule { path: path.to_owned(), line, matches: Vec::new(), acts: Vec::new() };
        let (mut net, mut elsewhere, mut other, mut goto) = (false, false, false, None);
        for token in tokens(&rule) {
            let Some((key, operator, value)) = parts(token) else { continue };
            match (key, operator) {
                ("SUBSYSTEM", "==") if value.split('|').any(|name| name == "net") => net = true,
                ("SUBSYSTEM", "==") => elsewhere = true,
                ("SUBSYSTEM", "!=") => other |= value == "net",
                ("LABEL", _) if net_until.as_deref() == Some(value) => net_until = None,
                ("GOTO", _) => goto = Some(value.to_owned()),
                _ if matches!(operator, "==" | "!=") => {}
                // Loading a module does not change a setting.
                ("RUN{builtin}", _) if value.starts_with("kmod") => {}
                _ if acts(key) => {
                    found.acts.push(token.to_owned());
                    continue;
                }
                _ => continue,
            }
            if matches!(operator, "==" | "!=") {
                found.matches.push(token.to_owned());
            }
        }
        if other && goto.is_some() {
            net_until = goto;
        } else if (net || net_until.is_some() && !elsewhere) && !found.acts.is_empty() {
            rules.push(found);
        }
    }
    rules
}

/// Whether an assignment to this key changes the device, or starts something that may.
fn acts(key: &str) -> bool {
    key == "RUN"
        || ["RUN{", "ATTR{", "SYSCTL{"].iter().any(|start| key.starts_with(start))
        || key == "ENV{SYSTEMD_WANTS}"
}

/// Lines with their numbers; a trailing backslash continues a line. Comments are left out.
fn joined(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if !goes_on && (line.is_empty() || line.starts_with('#')) {
            continue;
        }
        let part = line.strip_suffix('\\').unwrap_or(line);
        match lines.last_mut().filter(|_| goes_on) {
            Some((_, whole)) => whole.push_str(part),
            None => lines.push((index + 1, part.to_owned())),
        }
        goes_on = line.ends_with('\\');
    }
    lines
}

/// Splits a rule at commas outside quotes.
fn tokens(rule: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    rule.split(move |c: char| {
        quoted ^= c == '"';
        c == ',' && !quoted
    })
    .map(str::trim)
    .filter(|token| !token.is_empty())
}

/// Splits `ATTR{queues/rx-0/rps_cpus}="f"` into key, operator and value.
pub(super) fn parts(token: &str) -> Option<(&str, &str, &str)> {
    let quote = token.find('"')?;
    let front = token[..quote].trim_end();
    let operator =
        ["==", "!=", "+=", "-=", ":=", "="].into_iter().find(|operator| front.ends_with(operator))?;
    let key = front.strip_suffix(operator)?.trim();
    Some((key, operator, token[quote + 1..].trim_end_matches('"')))
}

/// The lines of a sysctl.d(5) file that affect packets. Accepts both ways to write a name: `net.core.rmem_max` and
/// `net/core/rmem_max`.
pub(super) fn sysctl_lines(path: &str, text: &str) -> Vec<SysctlLine> {
    let line = |(index, line): (usize, &str)| {
        let line = line.trim();
        if line.starts_with(['#', ';']) {
            return None;
        }
        let (name, value) = line.split_once('=')?;
        // A leading dash: failures are ignored.
        let name = name.trim().trim_start_matches('-');
        // The first of the two characters is the separator.
        let name = match name.find(['.', '/']).map(|at| name.as_bytes()[at]) {
            Some(b'/') => name.chars().map(|c| if c == '/' { '.' } else { c }).collect(),
            _ => name.to_owned(),
        };
        let bears = BEARING.iter().any(|start| name.starts_with(start));
        let value = value.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        bears.then(|| SysctlLine { path: path.to_owned(), line: index + 1, name, value })
    };
    text.lines().enumerate().filter_map(line).collect()
}

/// Runs every parser of this module, for tests with arbitrary text.
#[cfg(test)]
pub(crate) fn any(text: &str) {
    assert!(udev_rules("a", text).iter().all(|rule| rule.line >= 1 && !rule.acts.is_empty()));
    assert!(link_file("a", text).is_none_or(|file| !file.sets.is_empty()));
    assert!(sysctl_lines("a", text).len() <= text.lines().count());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_file_that_sets_more_than_a_name() {
        // Example from systemd.link(5).
        let text = "# queues\n[Match]\nDriver=ixgbe\nOriginalName=*\n\n[Link]\nNamePolicy=kernel path\nRxChannels=8\n\
                    RxBufferSize = 4096\nReceivePacketSteeringCPUMask=0-3\n";
        let file = link_file("/etc/systemd/network/10-a.link", text).unwrap();
        assert_eq!(file.matches, [("Driver".into(), "ixgbe".into()), ("OriginalName".into(), "*".into())]);
        let sets: Vec<_> = file.sets.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(sets, ["RxChannels=8", "RxBufferSize=4096", "ReceivePacketSteeringCPUMask=0-3"]);
        // Debian's 99-default.link.
        let default = "[Match]\nOriginalName=*\n[Link]\nNamePolicy=keep kernel database onboard slot path\n\
                       AlternativeNamesPolicy=database onboard slot path\nMACAddressPolicy=persistent\n";
        assert_eq!(link_file("99-default.link", default), None);
    }

    #[test]
    fn rules_that_act_on_network_devices() {
        let text = "# comment, \"quoted\nSUBSYSTEM==\"net\", ACTION==\"add\", KERNEL==\"eth*\", \\\n  \
                    ATTR{queues/rx-0/rps_cpus}=\"f,f\", RUN+=\"/usr/sbin/ethtool -K $name gro off\"\n\
                    SUBSYSTEM==\"block\", RUN+=\"x\"\nSUBSYSTEM==\"net\", NAME=\"lan0\"\n";
        let rules = udev_rules("/etc/udev/rules.d/70-a.rules", text);
        assert_eq!(rules.len(), 1);
        assert_eq!(rules[0].line, 2);
        assert_eq!(rules[0].matches, ["SUBSYSTEM==\"net\"", "ACTION==\"add\"", "KERNEL==\"eth*\""]);
        assert_eq!(
            rules[0].acts,
            ["ATTR{queues/rx-0/rps_cpus}=\"f,f\"", "RUN+=\"/usr/sbin/ethtool -K $name gro off\""]
        );
    }

    #[test]
    fn rules_behind_a_jump() {
        let text = "SUBSYSTEM!=\"net\", GOTO=\"end\"\nENV{ID_NET_DRIVER}==\"ena\", ENV{SYSTEMD_WANTS}+=\"x@$name.service\"\n\
                    LABEL=\"end\"\nKERNEL==\"sd*\", RUN+=\"y\"\n";
        let rules = udev_rules("a.rules", text);
        assert_eq!(rules.iter().map(|rule| rule.line).collect::<Vec<_>>(), [2]);
        let other = "SUBSYSTEM!=\"net\", GOTO=\"end\"\nSUBSYSTEM==\"block\", RUN+=\"y\"\n";
        assert_eq!(udev_rules("a.rules", other), []);
        // Debian's 90-rdma-hw-modules.rules.
        let modules = "SUBSYSTEM==\"net\", ENV{ID_NET_DRIVER}==\"i40e\", RUN{builtin}+=\"kmod load i40iw\"\n";
        assert_eq!(udev_rules("a.rules", modules), []);
    }

    #[test]
    fn lines_of_sysctl() {
        let text = "# net.core.rmem_max = 1\n-net.core.rmem_max = 4194304\nnet/ipv4/conf/eth0.100/rp_filter=0\n\
                    vm.swappiness=10\nnet.ipv4.udp_mem = 1\t2  3\n";
        let lines = sysctl_lines("/etc/sysctl.d/a.conf", text);
        let told: Vec<_> =
            lines.iter().map(|one| format!("{}:{}={}", one.line, one.name, one.value)).collect();
        assert_eq!(
            told,
            [
                "2:net.core.rmem_max=4194304",
                "3:net.ipv4.conf.eth0.100.rp_filter=0",
                "5:net.ipv4.udp_mem=1 2 3"
            ]
        );
    }

    #[test]
    fn a_file_hides_those_of_its_name_in_later_folders() {
        let folder = tempfile::tempdir().unwrap();
        for (place, text) in [
            ("etc/sysctl.d/a.conf", "net.core.rmem_max=1\n"),
            ("usr/lib/sysctl.d/a.conf", "net.core.rmem_max=2\n"),
            ("usr/lib/sysctl.d/b.conf", "net.core.wmem_max=3\n"),
        ] {
            let path = folder.path().join(place);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let found = read(&crate::source::Folder::captured(folder.path()), &mut Vec::new());
        let told: Vec<_> =
            found.sysctl_lines.iter().map(|one| format!("{}={}", one.path, one.value)).collect();
        assert_eq!(told, ["/etc/sysctl.d/a.conf=1", "/usr/lib/sysctl.d/b.conf=3"]);
    }
}
