//! Replaces personal and network data in a capture consistently, so that the snapshot remains coherent.
//!
//! The replacement key exists only as long as the [`Redactor`], and is never written. The pairs are shown only to the
//! user who made the capture, who alone can map a replaced address back to the original.

mod address;
mod answers;
mod config;
mod files;
mod kind;
mod names;
mod process;
mod recording;
mod scan;
mod status;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use kind::Kind;

use super::identity::Identity;
use address::Addresses;

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
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
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
}
