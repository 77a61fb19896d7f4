//! User-chosen names of configuration files, and of packet filter chains and tables.

use std::collections::{BTreeMap, BTreeSet};

use super::{Kind, Redactor};
use udpath_host::actors::{self, config};
use udpath_host::source::Recording;

/// Names of files shipped by distributions and by udpath.
const FILES: [&str; 14] = [
    "10-network-security.conf",
    "50-default.conf",
    "50-pid-max.conf",
    "70-persistent-net.rules",
    "73-usb-net-by-mac.link",
    "80-net-setup-link.rules",
    "98-default-mac-none.link",
    "99-default.link",
    "99-protect-links.conf",
    "99-sysctl.conf",
    "99-systemd.rules",
    "99-vpc-policy-routes.rules",
    "instance_configs.cfg",
    "sysctl.conf",
];

/// Tables and chains of iptables over nftables and of distributions' own rules (hook names in either case).
const CHAINS: [&str; 16] = [
    "filter",
    "nat",
    "mangle",
    "raw",
    "security",
    "broute",
    "input",
    "output",
    "forward",
    "prerouting",
    "postrouting",
    "ingress",
    "egress",
    "firewalld",
    "main",
    "global",
];

impl Redactor {
    /// Gives every file in the configuration folders a name that preserves its sort order, since the order determines
    /// which file wins.
    pub(super) fn files(&mut self, recording: &Recording) {
        let mut names = BTreeSet::new();
        let paths = recording.texts.keys().chain(&recording.directories).chain(recording.index.absent.keys());
        for path in paths.chain(recording.index.links.keys()) {
            let below = config::folders().find_map(|folder| path.strip_prefix(folder)?.strip_prefix('/'));
            for part in below.into_iter().flat_map(|below| below.split('/')) {
                names.insert(part.strip_suffix(".d").unwrap_or(part).to_owned());
            }
        }
        let named = |(at, name): (usize, String)| {
            let digits = name.len() - name.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let first =
                if digits > 0 && digits <= 3 { format!("{}-", &name[..digits]) } else { String::new() };
            let ending = [".conf", ".link", ".rules", ".network", ".nmconnection", ".cfg"];
            let ending = ending.into_iter().find(|ending| name.ends_with(ending)).unwrap_or_default();
            let other = format!("{first}file-{:03}{ending}", at + 1);
            (name, other)
        };
        let kept = |name: &String| FILES.contains(&name.as_str());
        self.files =
            names.into_iter().filter(|name| !kept(name)).enumerate().map(named).collect::<BTreeMap<_, _>>();
    }

    /// The path of a configuration file or of an entry below its folder; `None` for any other path.
    pub(super) fn file_path(&mut self, path: &str) -> Option<String> {
        if actors::is_asked_for(path) {
            return Some(path.to_owned());
        }
        let folder = config::folders()
            .find(|folder| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/')))?;
        let below = path[folder.len() + 1..].to_owned();
        let parts: Vec<String> = below.split('/').map(|part| self.file_name(part)).collect();
        Some(format!("{folder}/{}", parts.join("/")))
    }

    fn file_name(&mut self, name: &str) -> String {
        let (stem, drop_ins) = name.strip_suffix(".d").map_or((name, ""), |stem| (stem, ".d"));
        if FILES.contains(&stem) {
            return name.to_owned();
        }
        let other = self.files.get(stem).cloned().unwrap_or_else(|| "file".to_owned());
        self.note(Kind::FileName, stem, &other);
        format!("{other}{drop_ins}")
    }

    /// The name of an nftables table or chain.
    pub(super) fn chain(&mut self, name: &str, what: &'static str) -> String {
        if CHAINS.contains(&name.to_ascii_lowercase().as_str()) {
            return name.to_owned();
        }
        self.numbered(Kind::ChainName, name, what)
    }
}
