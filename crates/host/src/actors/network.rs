//! Files through which NetworkManager, systemd-networkd and cloud agents set anything that affects packets, when a
//! connection comes up or the machine boots.
//!
//! ```text
//! NetworkManager     NAME.nmconnection    [ethernet] mtu, [ethtool] feature-gro=..., ring-rx=..., [tc] qdisc.root=...
//! systemd-networkd   NAME.network         [Link] MTUBytes=, sections of queueing disciplines; drop-ins in NAME.network.d
//! Google's agent     instance_configs.cfg [InstanceSetup] set_multiqueue=: spreads IRQs and XPS at boot
//! ```
//! Connection files also contain secrets (Wi-Fi keys, passwords): only the keys listed here are kept, in snapshots and
//! in captures.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text::optional;
use crate::{Missing, Source};

/// A daemon's configuration file for interfaces.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct NetworkFile {
    /// Its daemon, as in the list of actors: `NetworkManager`, `systemd-networkd`, `google-guest-agent`.
    pub by: String,
    /// Its path; its drop-ins are included.
    pub path: String,
    /// The interfaces it matches: `SECTION.KEY` and value.
    pub matches: Vec<(String, String)>,
    /// Its settings: `SECTION.KEY` and value, except those that do not affect packets.
    pub sets: Vec<(String, String)>,
}

/// Keys with their sections, and values.
pub(crate) type Pairs = Vec<(String, String)>;

/// A kind of file.
struct Format {
    by: &'static str,
    /// Their directories; a file hides files of the same name in later directories.
    folders: &'static [&'static str],
    /// Their file name suffix.
    ending: &'static str,
    /// Sections and keys that select the device.
    matches: &'static [(&'static str, &'static str)],
    /// Sections and keys that set something; `*` is every key.
    sets: &'static [(&'static str, &'static str)],
}

const FORMATS: [Format; 3] = [
    Format {
        by: "NetworkManager",
        folders: &[
            "/etc/NetworkManager/system-connections",
            "/run/NetworkManager/system-connections",
            "/usr/lib/NetworkManager/system-connections",
        ],
        ending: ".nmconnection",
        matches: &[
            ("connection", "interface-name"),
            ("connection", "type"),
            ("connection", "autoconnect"),
            ("match", "interface-name"),
            ("match", "driver"),
            ("match", "path"),
            ("ethernet", "mac-address"),
        ],
        // nm-settings-keyfile(5).
        sets: &[
            ("ethernet", "mtu"),
            ("ethernet", "auto-negotiate"),
            ("ethernet", "speed"),
            ("ethernet", "duplex"),
            ("infiniband", "mtu"),
            ("ethtool", "*"),
            ("tc", "*"),
            ("link", "*"),
            ("bond", "xmit_hash_policy"),
        ],
    },
    Format {
        by: "systemd-networkd",
        folders: &["/etc/systemd/network", "/run/systemd/network", "/usr/lib/systemd/network"],
        ending: ".network",
        matches: &[("Match", "*")],
        // systemd.network(5).
        sets: &[
            ("Link", "MTUBytes"),
            ("QDisc", "*"),
            ("BFIFO", "*"),
            ("CAKE", "*"),
            ("ControlledDelay", "*"),
            ("DeficitRoundRobinScheduler", "*"),
            ("EnhancedTransmissionSelection", "*"),
            ("FairQueueing", "*"),
            ("FairQueueingControlledDelay", "*"),
            ("FlowQueuePIE", "*"),
            ("GenericRandomEarlyDetection", "*"),
            ("HeavyHitterFilter", "*"),
            ("HierarchyTokenBucket", "*"),
            ("NetworkEmulator", "*"),
            ("PFIFO", "*"),
            ("PFIFOFast", "*"),
            ("PFIFOHeadDrop", "*"),
            ("PIE", "*"),
            ("QuickFairQueueing", "*"),
            ("StochasticFairBlue", "*"),
            ("StochasticFairnessQueueing", "*"),
            ("TokenBucketFilter", "*"),
            ("TrivialLinkEqualizer", "*"),
        ],
    },
    Format {
        by: "google-guest-agent",
        folders: &["/etc/default"],
        ending: "instance_configs.cfg",
        matches: &[],
        sets: &[("InstanceSetup", "set_multiqueue"), ("NetworkInterfaces", "setup")],
    },
];

pub(super) fn read(source: &dyn Source, missing: &mut Vec<Missing>) -> Vec<NetworkFile> {
    let mut found = Vec::new();
    for format in &FORMATS {
        let mut in_force: BTreeMap<String, &str> = BTreeMap::new();
        for folder in format.folders.iter().rev() {
            let names = source.names(folder).unwrap_or_default();
            let ours = names.into_iter().filter(|name| name.ends_with(format.ending));
            in_force.extend(ours.map(|name| (name, *folder)));
        }
        for (name, folder) in in_force {
            // Drop-ins are in directories named after the file, in any of these directories, and are read after it,
            // sorted by name.
            let mut parts: BTreeMap<String, String> = BTreeMap::new();
            for beside in format.folders.iter().rev() {
                let beside = format!("{beside}/{name}.d");
                let names = source.names(&beside).unwrap_or_default();
                let ours = names.into_iter().filter(|part| part.ends_with(".conf"));
                parts.extend(ours.map(|part| (part.clone(), format!("{beside}/{part}"))));
            }
            let first = format!("{folder}/{name}");
            let mut file = NetworkFile {
                by: format.by.into(),
                path: first.clone(),
                matches: Vec::new(),
                sets: Vec::new(),
            };
            for path in std::iter::once(first).chain(parts.into_values()) {
                let what = "a file that changes settings";
                let text = optional(source, missing, what, &path, |text| Ok(text.to_owned()));
                add(&mut file, format, &text.unwrap_or_default());
            }
            if !file.sets.is_empty() {
                found.push(file);
            }
        }
    }
    found
}

/// Adds the contents of a text in this format.
fn add(file: &mut NetworkFile, format: &Format, text: &str) {
    for (_, section, key, value) in lines(text) {
        let pair = (format!("{section}.{key}"), value.to_owned());
        if named(format.matches, section, key) {
            file.matches.push(pair);
        } else if named(format.sets, section, key) {
            file.sets.push(pair);
        }
    }
}

fn named(table: &[(&str, &str)], section: &str, key: &str) -> bool {
    table.iter().any(|(of, known)| *of == section && (*known == "*" || *known == key))
}

/// `key=value` lines with their index from 0 and their section.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str, &str, &str)> {
    let mut section = "";
    text.lines().enumerate().filter_map(move |(at, line)| {
        let line = line.trim();
        if line.starts_with(['#', ';']) {
            return None;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name;
            return None;
        }
        let (key, value) = line.split_once('=')?;
        Some((at, section, key.trim(), value.trim()))
    })
}

/// The kind of the file at a path.
fn format(path: &str) -> Option<&'static Format> {
    let (folder, name) = path.rsplit_once('/')?;
    FORMATS.iter().find(|format| {
        let file = format.folders.contains(&folder) && name.ends_with(format.ending);
        file || name.ends_with(".conf") && folder.ends_with(&format!("{}.d", format.ending))
    })
}

/// Whether it is one of these files.
pub(super) fn is_one(path: &str) -> bool {
    format(path).is_some()
}

/// Their directories.
pub(super) fn folders() -> impl Iterator<Item = &'static str> {
    FORMATS.iter().flat_map(|format| format.folders).copied()
}

/// The matches and settings of the text at that path.
pub(super) fn pairs(path: &str, text: &str) -> (Pairs, Pairs) {
    let mut file =
        NetworkFile { by: String::new(), path: String::new(), matches: Vec::new(), sets: Vec::new() };
    if let Some(format) = format(path) {
        add(&mut file, format, text);
    }
    (file.matches, file.sets)
}

/// The part of a file that is read, if it is one of these; the other lines are kept as empty ones. [`None`]: it is not.
pub(super) fn used(path: &str, text: &str) -> Option<Option<String>> {
    let format = format(path)?;
    let wanted: Vec<usize> = lines(text)
        .filter(|(_, section, key, _)| {
            named(format.matches, section, key) || named(format.sets, section, key)
        })
        .map(|(at, ..)| at)
        .collect();
    let keep = |(at, line): (usize, &str)| {
        let bare = line.trim();
        let section = bare.starts_with('[') && bare.ends_with(']');
        if section || wanted.contains(&at) { format!("{line}\n") } else { "\n".to_owned() }
    };
    Some((!wanted.is_empty()).then(|| text.lines().enumerate().map(keep).collect()))
}

/// Runs the parsers of this module, for tests with arbitrary text.
#[cfg(test)]
pub(crate) fn any(text: &str) {
    for format in &FORMATS {
        let empty =
            NetworkFile { by: String::new(), path: String::new(), matches: Vec::new(), sets: Vec::new() };
        let mut file = empty.clone();
        add(&mut file, format, text);
        // The kept part of a text parses the same as the text.
        let path = format!("{}/a{}", format.folders[0], format.ending);
        let mut again = empty;
        add(&mut again, format, &used(&path, text).flatten().unwrap_or_default());
        assert_eq!(again, file);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::Absence;
    use crate::source::Folder;

    const CONNECTION: &str = "[connection]\nid=office\nuuid=9c2f3a5e-0b1d-4c6f-8a7e-1d2c3b4a5f60\ntype=ethernet\n\
        interface-name=ens1f0\npermissions=user:ada:;\n\n[ethernet]\nmtu=9000\n\n[ethtool]\nfeature-gro=false\nring-rx=4096\n\
        # a note\n[802-1x]\npassword=hunter2\n[tc]\nqdisc.root=fq\n[ipv4]\naddress1=192.0.2.1/24\n";

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    fn pairs(pairs: &[(String, String)]) -> Vec<String> {
        pairs.iter().map(|(key, value)| format!("{key}={value}")).collect()
    }

    #[test]
    fn a_connection_says_what_it_sets_and_keeps_its_secrets() {
        let folder = machine(&[
            ("etc/NetworkManager/system-connections/office.nmconnection", CONNECTION),
            ("etc/NetworkManager/system-connections/wifi.nmconnection", "[wifi-security]\npsk=secret\n"),
        ]);
        let mut missing = Vec::new();
        let found = read(&Folder::captured(folder.path()), &mut missing);
        assert_eq!((found.len(), missing.len()), (1, 0));
        assert_eq!(found[0].by, "NetworkManager");
        assert_eq!(
            pairs(&found[0].matches),
            ["connection.type=ethernet", "connection.interface-name=ens1f0"]
        );
        assert_eq!(
            pairs(&found[0].sets),
            ["ethernet.mtu=9000", "ethtool.feature-gro=false", "ethtool.ring-rx=4096", "tc.qdisc.root=fq"]
        );
        let path = "/etc/NetworkManager/system-connections/office.nmconnection";
        let kept = used(path, CONNECTION).unwrap().unwrap();
        assert!(
            ["hunter2", "ada", "192.0.2.1", "9c2f", "a note"].iter().all(|secret| !kept.contains(secret))
        );
        assert_eq!(
            used("/etc/NetworkManager/system-connections/w.nmconnection", "[wifi]\npsk=x\n"),
            Some(None)
        );
        assert_eq!(used("/etc/passwd", "x"), None);
    }

    #[test]
    fn networkd_takes_the_first_folder_and_all_drop_ins() {
        let folder = machine(&[
            (
                "etc/systemd/network/10-a.network",
                "[Match]\nName=ens1f0\n[Link]\nMTUBytes=9000\n[Network]\nDHCP=yes\n",
            ),
            ("usr/lib/systemd/network/10-a.network", "[Match]\nName=*\n[Link]\nMTUBytes=1500\n"),
            ("run/systemd/network/10-a.network.d/q.conf", "[FairQueueing]\nParent=root\nPacketLimit=100\n"),
            ("usr/lib/systemd/network/80-dhcp.network", "[Match]\nName=en*\n[Network]\nDHCP=yes\n"),
        ]);
        let found = read(&Folder::captured(folder.path()), &mut Vec::new());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, "/etc/systemd/network/10-a.network");
        assert_eq!(pairs(&found[0].matches), ["Match.Name=ens1f0"]);
        let wanted = ["Link.MTUBytes=9000", "FairQueueing.Parent=root", "FairQueueing.PacketLimit=100"];
        assert_eq!(pairs(&found[0].sets), wanted);
    }

    #[test]
    fn a_connection_that_may_not_be_read_is_missing() {
        let folder = machine(&[
            ("etc/NetworkManager/system-connections/office.nmconnection", ""),
            (
                "udpath/files.json",
                r#"{"absent": {"/etc/NetworkManager/system-connections/office.nmconnection": {"not-permitted": {"needs": "root"}}}}"#,
            ),
        ]);
        let path = folder.path().join("etc/NetworkManager/system-connections/office.nmconnection");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let mut missing = Vec::new();
        assert_eq!(read(&Folder::captured(folder.path()), &mut missing), []);
        assert!(matches!(missing[0].why, Absence::NotPermitted { .. }), "{missing:?}");
    }

    #[test]
    fn googles_agent_says_whether_it_spreads_queues() {
        let folder =
            machine(&[("etc/default/instance_configs.cfg", "[InstanceSetup]\nset_multiqueue = true\n")]);
        let found = read(&Folder::captured(folder.path()), &mut Vec::new());
        assert_eq!(pairs(&found[0].sets), ["InstanceSetup.set_multiqueue=true"]);
    }
}
