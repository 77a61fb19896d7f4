//! Replaces personal and network data in a capture consistently, so that the snapshot remains coherent.
//!
//! The replacement key exists only as long as the [`Redactor`], and is never written. The pairs are shown only to the
//! user who made the capture, who alone can map a replaced address back to the original.

mod address;
mod answers;
mod config;
mod files;
mod names;
mod process;
mod scan;
mod status;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::identity::Identity;
use address::Addresses;
use udpath_host::source::{Answer, Recording};
use udpath_host::{Fact, Provenance};

/// What is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// IPv4 and IPv6 addresses of sockets, peers, rules.
    Address,
    /// Link-layer addresses.
    LinkAddress,
    /// Names of this host and its domain.
    HostName,
    /// User account names.
    UserName,
    /// Arguments of programs.
    CommandLine,
    /// Paths below home directories.
    HomePath,
    /// UUIDs, identifiers of containers and machines, serial numbers.
    Identifier,
    /// Keys of RSS.
    RssKey,
    /// Folders of programs.
    Path,
    /// Names that processes and threads set for themselves.
    ProcessName,
    /// Instances of units, names of containers and of other control groups.
    Unit,
    /// Names of configuration files.
    FileName,
    /// Values in configuration files, if they may be anything.
    Configuration,
    /// Names of chains and tables of nftables.
    ChainName,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Address,
        Self::LinkAddress,
        Self::HostName,
        Self::UserName,
        Self::CommandLine,
        Self::HomePath,
        Self::Identifier,
        Self::RssKey,
        Self::Path,
        Self::ProcessName,
        Self::Unit,
        Self::FileName,
        Self::Configuration,
        Self::ChainName,
    ];

    /// A description for users.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Address => "IP addresses",
            Self::LinkAddress => "link-layer addresses",
            Self::HostName => "host names",
            Self::UserName => "user names",
            Self::CommandLine => "command lines",
            Self::HomePath => "paths in home directories",
            Self::Identifier => "identifiers",
            Self::RssKey => "RSS keys",
            Self::Path => "folders of programs",
            Self::ProcessName => "process and thread names",
            Self::Unit => "units, containers, groups",
            Self::FileName => "configuration file names",
            Self::Configuration => "configuration values",
            Self::ChainName => "nftables names",
        }
    }

    /// How it is replaced.
    #[must_use]
    pub const fn how(self) -> &'static str {
        match self {
            Self::Address => {
                "another address of the same kind; networks stay networks; loopback, multicast and unspecified ones stay"
            }
            Self::LinkAddress => "the maker's three bytes, and three others",
            Self::HostName => "host-N",
            Self::UserName => "user-N",
            Self::CommandLine => "the program's name; of a known daemon's interpreter also its script",
            Self::HomePath => "/home/user-N and the last part",
            Self::Identifier => "as many other digits; serial numbers by 'serial'",
            Self::Path => "/redacted and the program's name; folders of distributions stay",
            Self::ProcessName => "the program's name, thread-N; what begins the program's name stays",
            Self::Unit => "instance-N, container-N, group-N; names of units stay",
            Self::FileName => "NN-file-N, in the same order",
            Self::Configuration => "'redacted', or nothing; numbers and known words of known keys stay",
            Self::ChainName => "table-N, chain-N; those of iptables stay",
            Self::RssKey => "nothing; keys that everybody knows stay; --keep-rss-key keeps them",
        }
    }
}

/// Well-known keys that do not identify a machine: Microsoft's, used by many drivers, and the symmetric one.
const KNOWN_KEYS: [&[u8]; 2] =
    [&[0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2], &[0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a]];

/// Keywords of the kernel's formats and of udpath's own: a host with such a name keeps it, because replacing the
/// keyword would change the meaning of the files.
const FORMATS: [&str; 30] = [
    "cgroup",
    "cgroup2",
    "cpu",
    "cpuacct",
    "cpuset",
    "name",
    "systemd",
    "net",
    "match",
    "link",
    "subsystem",
    "action",
    "attr",
    "attrs",
    "env",
    "run",
    "goto",
    "label",
    "add",
    "core",
    "ipv4",
    "ipv6",
    "kernel",
    "docker",
    "slice",
    "service",
    "scope",
    "localhost",
    "none",
    "eth0",
];

/// Makes replacements, and remembers them.
pub struct Redactor {
    addresses: Addresses,
    keep_rss_key: bool,
    /// Names of hosts and users, longest first.
    words: Vec<(Kind, String, String)>,
    users: BTreeMap<String, String>,
    /// Path prefixes and their owners; `None`: the next component names the owner.
    homes: Vec<(String, Option<String>)>,
    /// Interface names that contain private data.
    interfaces: Vec<(String, String)>,
    /// Names of programs by process.
    programs: BTreeMap<String, String>,
    /// Names of configuration files, by original.
    files: BTreeMap<String, String>,
    /// Counters for names that became `WHAT-N`.
    numbers: BTreeMap<&'static str, BTreeMap<String, usize>>,
    found: BTreeMap<(Kind, String), (String, u64)>,
    left: BTreeSet<String>,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Print neither the key nor the replaced data.
        f.debug_struct("Redactor").field("found", &self.found.len()).finish_non_exhaustive()
    }
}

/// Statistics for one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redacted {
    /// The kind.
    pub kind: Kind,
    /// Number of distinct values.
    pub different: u64,
    /// Number of occurrences.
    pub places: u64,
    /// How they are replaced.
    pub how: String,
}

impl Redactor {
    /// With a key of 16 random bytes. `identity`: the names to replace.
    #[must_use]
    pub fn new(key: &[u8; 16], identity: &Identity, keep_rss_key: bool) -> Self {
        let mut redactor = Self {
            addresses: Addresses::new(key),
            keep_rss_key,
            words: Vec::new(),
            users: BTreeMap::new(),
            homes: vec![("/home/".into(), None), ("/root".into(), Some("root".into()))],
            interfaces: Vec::new(),
            programs: BTreeMap::new(),
            files: BTreeMap::new(),
            numbers: BTreeMap::new(),
            found: BTreeMap::new(),
            left: BTreeSet::new(),
        };
        for (number, host) in (1..).zip(&identity.hosts) {
            redactor.word(Kind::HostName, host, format!("host-{number}"));
        }
        for (name, home) in &identity.users {
            let other = redactor.user(name);
            if !home.is_empty() && home != "/" && !home.starts_with("/home/") {
                redactor.homes.push((home.clone(), Some(other)));
            }
        }
        redactor
    }

    fn word(&mut self, kind: Kind, word: &str, other: String) {
        if FORMATS.contains(&word.to_ascii_lowercase().as_str()) {
            self.left.insert(format!("one of the {}: it is a word of the kernel's own formats", kind.name()));
        } else if !word.is_empty() && !word.bytes().all(|byte| byte.is_ascii_digit()) {
            self.words.push((kind, word.to_owned(), other));
            // The short name is a part of the long one, so replace the long one first.
            self.words.sort_by_key(|(_, word, _)| std::cmp::Reverse(word.len()));
        }
    }

    /// The replacement for a user's name.
    fn user(&mut self, name: &str) -> String {
        if name.is_empty() {
            return String::new();
        }
        if let Some(other) = self.users.get(name) {
            return other.clone();
        }
        let other = format!("user-{}", self.users.len() + 1);
        self.users.insert(name.to_owned(), other.clone());
        self.word(Kind::UserName, name, other.clone());
        other
    }

    fn note(&mut self, kind: Kind, original: &str, other: &str) {
        let entry = self.found.entry((kind, original.to_owned())).or_insert_with(|| (other.to_owned(), 0));
        entry.1 += 1;
    }

    /// Counts a replacement or omission for which there is no pair to report.
    fn count(&mut self, kind: Kind) {
        self.note(kind, "", "");
    }

    fn address(&mut self, address: IpAddr) -> IpAddr {
        let other = self.addresses.ip(address);
        if other != address {
            self.note(Kind::Address, &address.to_string(), &other.to_string());
        }
        other
    }

    fn link(&mut self, address: &[u8]) -> Vec<u8> {
        let other = self.addresses.link(address);
        let text =
            |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":");
        if other != address {
            self.note(Kind::LinkAddress, &text(address), &text(&other));
        }
        other
    }

    fn identifier(&mut self, bytes: &[u8], text: &str) -> Vec<u8> {
        let other = self.addresses.bytes(bytes);
        self.note(Kind::Identifier, text, "as many other digits");
        other
    }

    /// Redacts any text: addresses, names, identifiers, home paths.
    #[must_use]
    pub fn text(&mut self, text: &str) -> String {
        scan::scan(self, text)
    }

    /// Redacts a text in which only interface names may be private.
    fn names_of_interfaces(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, other) in &self.interfaces {
            text = scan::replaced(&text, name, other, || ());
        }
        text
    }

    /// The statistics by kind; kinds that did not occur have zeros.
    #[must_use]
    pub fn counts(&self) -> Vec<Redacted> {
        let of = |kind| self.found.iter().filter(move |((other, _), _)| *other == kind);
        let count = |kind: Kind| Redacted {
            kind,
            different: of(kind).count() as u64,
            places: of(kind).map(|(_, (_, places))| places).sum(),
            how: kind.how().to_owned(),
        };
        Kind::ALL.into_iter().map(count).collect()
    }

    /// The replacements with their originals: for the user who made the capture, never in the capture.
    pub fn pairs(&self) -> impl Iterator<Item = (Kind, &str, &str)> {
        let told = self.found.iter().filter(|((_, original), _)| !original.is_empty());
        told.map(|((kind, original), (other, _))| (*kind, original.as_str(), other.as_str()))
    }

    /// What could not be replaced.
    #[must_use]
    pub fn left(&self) -> Vec<String> {
        self.left.iter().cloned().collect()
    }

    /// Redacts a recording.
    pub(crate) fn recording(&mut self, recording: Recording) -> Recording {
        self.learn(&recording);
        self.programs(&recording.index.links);
        self.files(&recording);
        let mut redacted = Recording::default();
        for (path, text) in recording.texts {
            let text = files::text(self, &path, &text);
            redacted.texts.insert(self.path(&path), text);
        }
        redacted.directories = recording.directories.iter().map(|path| self.path(path)).collect();
        for (path, target) in recording.index.links {
            let target = match path.as_str() {
                // A device's bus.
                path if path.starts_with("/sys/") => self.names_of_interfaces(&target),
                path if path.starts_with("/proc/") && path.ends_with("/exe") => self.program(&target),
                path if path.starts_with("/proc/") => self.text(&target),
                // For a configuration file that is a link, only the last component of its target is read.
                _ if target.ends_with("sysctl.conf") => "../sysctl.conf".to_owned(),
                _ => "redacted".to_owned(),
            };
            redacted.index.links.insert(self.path(&path), target);
        }
        for (path, absence) in recording.index.absent {
            let absence = self.absence(absence);
            redacted.index.absent.insert(self.path(&path), absence);
        }
        for (question, answer) in recording.answers {
            let question = question.of(|interface| self.names_of_interfaces(interface));
            let answer = match answer {
                Ok(Fact { value, from }) => {
                    let from = match from {
                        Provenance::File(path) => Provenance::File(self.path(&path)),
                        from => from,
                    };
                    Ok(Fact::new(self.answer(value), from))
                }
                Err(absence) => Err(self.absence(absence)),
            };
            redacted.answers.push((question, answer));
        }
        redacted
    }

    /// Learns home directories and private interface names, before any text that may contain them.
    fn learn(&mut self, recording: &Recording) {
        for text in recording.texts.values().chain(recording.index.links.values()) {
            for (at, home) in text.match_indices("/home/") {
                let rest = &text[at + home.len()..];
                let end = rest
                    .find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.')))
                    .unwrap_or(rest.len());
                let _ = self.user(&rest[..end]);
            }
        }
        let links = recording.answers.iter().filter_map(|(_, answer)| match answer {
            Ok(Fact { value: Answer::Links(links), .. }) => Some(links.iter().map(|link| link.name.clone())),
            _ => None,
        });
        let of_files = recording.directories.iter().filter_map(|path| {
            let name = path.strip_prefix("/sys/class/net/")?;
            (!name.contains('/')).then(|| name.to_owned())
        });
        let names: BTreeSet<String> = links.flatten().chain(of_files).collect();
        for name in names {
            let other = self.text(&name);
            if other != name && !self.interfaces.iter().any(|(known, _)| *known == name) {
                self.interfaces.push((name, other));
            }
        }
        self.interfaces.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    }

    /// A file's path. Control groups are named after users, units and containers; users choose the names of
    /// configuration files.
    fn path(&mut self, path: &str) -> String {
        if path.starts_with("/sys/fs/cgroup") {
            return self.cgroup_folder(path);
        }
        if ["/proc/", "/sys/"].iter().any(|start| path.starts_with(start)) {
            return self.names_of_interfaces(path);
        }
        self.file_path(path).unwrap_or_else(|| self.text(path))
    }
}
