//! Link settings that systemd-udevd applies when an interface appears (systemd.link(5)).
//!
//! Of all link files that match an interface, the first by name is in effect, with its drop-ins. If it matches only
//! this interface, ours is one more drop-in. A drop-in of a file that matches many interfaces, such as 99-default.link,
//! would apply to all of them; ours is then a file for this interface that sorts before it and repeats its settings and
//! drop-ins: names, addresses, MTU, SR-IOV.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::settings::{Item, Value};
use udpath_host::Source;

/// Folders of systemd.link(5), highest priority first.
const FOLDERS: [&str; 4] = [
    "/etc/systemd/network",
    "/run/systemd/network",
    "/usr/local/lib/systemd/network",
    "/usr/lib/systemd/network",
];
/// File name prefixes, tried in this order: the file must sort before the one in effect.
const BEFORE: [&str; 2] = ["05", "00"];
/// Drop-in name prefixes, tried in this order: the drop-in must sort after those that set the same key.
const AFTER: [&str; 3] = ["90", "99", "zz"];

/// Link file keys of the kernel's names.
const KEYS: [(&str, &str); 22] = [
    ("channels/rx", "RxChannels"),
    ("channels/tx", "TxChannels"),
    ("channels/other", "OtherChannels"),
    ("channels/combined", "CombinedChannels"),
    ("ring/rx", "RxBufferSize"),
    ("ring/tx", "TxBufferSize"),
    ("coalesce/rx-usecs", "RxCoalesceSec"),
    ("coalesce/tx-usecs", "TxCoalesceSec"),
    ("coalesce/rx-frames", "RxMaxCoalescedFrames"),
    ("coalesce/tx-frames", "TxMaxCoalescedFrames"),
    ("coalesce/adaptive-rx", "UseAdaptiveRxCoalesce"),
    ("coalesce/adaptive-tx", "UseAdaptiveTxCoalesce"),
    ("feature/rx-checksum", "ReceiveChecksumOffload"),
    ("feature/rx-gro", "GenericReceiveOffload"),
    ("feature/rx-gro-hw", "GenericReceiveOffloadHardware"),
    ("feature/rx-lro", "LargeReceiveOffload"),
    ("feature/rx-ntuple-filter", "NTupleFilter"),
    ("feature/rx-vlan-filter", "ReceiveVLANCTAGFilter"),
    ("feature/rx-vlan-hw-parse", "ReceiveVLANCTAGHardwareAcceleration"),
    ("feature/tx-generic-segmentation", "GenericSegmentationOffload"),
    ("feature/tx-tcp-segmentation", "TCPSegmentationOffload"),
    ("feature/tx-tcp6-segmentation", "TCP6SegmentationOffload"),
];

/// The link file key of a setting; `None` if link files cannot set it.
pub(super) fn key(item: &Item) -> Option<&'static str> {
    let name = item.to_string();
    KEYS.iter().find(|(known, _)| *known == name).map(|(_, key)| *key)
}

/// The link file in effect for an interface, and its drop-ins.
pub(super) struct Link {
    interface: String,
    address: String,
    /// The file's name.
    name: String,
    /// Text of the file, then of its drop-ins, in order.
    texts: Vec<String>,
    /// Names and texts of the drop-ins.
    drop_ins: BTreeMap<String, String>,
}

impl Link {
    /// `None` if systemd-udevd does not configure links, if the interface has no permanent address to match, or if an
    /// earlier apply keeps a file for it: the unit then keeps the settings.
    pub(super) fn of(source: &dyn Source, interface: &str) -> Option<Self> {
        let folder = format!("/sys/class/net/{interface}");
        let own =
            |file: &str| source.text(&format!("{folder}/{file}")).ok().map(|text| text.trim().to_owned());
        // NET_ADDR_PERM of linux/netdevice.h: the card's own address.
        if own("addr_assign_type")? != "0" {
            return None;
        }
        let database = source.text(&format!("/run/udev/data/n{}", own("ifindex")?)).ok()?;
        let path = database.lines().find_map(|line| line.strip_prefix("E:ID_NET_LINK_FILE="))?;
        let name = path.rsplit('/').next()?.to_owned();
        // Removed by that apply's undo, and in the udev database only from the next boot on.
        let kept = source.names(FOLDERS[0]).unwrap_or_default();
        let ends = format!("-{interface}.link");
        if kept.iter().any(|file| file.contains("-udpath-") && file.ends_with(&ends)) {
            return None;
        }
        let mut drop_ins = BTreeMap::new();
        for folder in FOLDERS {
            let folder = format!("{folder}/{name}.d");
            for file in source.names(&folder).unwrap_or_default() {
                if file.ends_with(".conf") && !drop_ins.contains_key(&file) {
                    let text = source.text(&format!("{folder}/{file}")).unwrap_or_default();
                    drop_ins.insert(file, text);
                }
            }
        }
        let mut texts = vec![source.text(path).ok()?];
        texts.extend(drop_ins.values().cloned());
        Some(Self { interface: interface.to_owned(), address: own("address")?, name, texts, drop_ins })
    }

    /// Path and text of the file that also sets these keys; `None` if no name sorts before the file in effect.
    pub(super) fn file(&self, head: &str, id: u64, keys: &[(&str, &Value)]) -> Option<(String, String)> {
        let mut ours = String::from("[Link]\n");
        for (key, value) in keys {
            let _ = match value {
                // Times without a unit would be read as seconds.
                Value::Number(microseconds) if key.ends_with("CoalesceSec") => {
                    writeln!(ours, "{key}={microseconds}us")
                }
                Value::Switch(on) => writeln!(ours, "{key}={}", if *on { "yes" } else { "no" }),
                value => writeln!(ours, "{key}={value}"),
            };
        }
        let Self { interface, address, name, .. } = self;
        if self.is_for_this_alone() {
            let last = self.drop_ins.iter().rev().find(|(_, text)| {
                entries(text).any(|(section, line)| {
                    section == "Link"
                        && keys.iter().any(|(key, _)| line.split('=').next().unwrap_or("").trim() == *key)
                })
            });
            let names = AFTER.map(|prefix| format!("{prefix}-udpath-{id:06}-{interface}.conf"));
            let file = names.iter().find(|ours| last.is_none_or(|(theirs, _)| *ours > theirs))?;
            return Some((format!("{}/{name}.d/{file}", FOLDERS[0]), format!("{head}{ours}")));
        }
        let names = BEFORE.map(|prefix| format!("{prefix}-udpath-{id:06}-{interface}.link"));
        let file = names.iter().find(|ours| *ours < name)?;
        let mut text = format!("{head}[Match]\nPermanentMACAddress={address}\n");
        for theirs in &self.texts {
            text.push_str(&acting(theirs));
        }
        Some((format!("{}/{file}", FOLDERS[0]), format!("{text}\n{ours}")))
    }

    /// Does the file in effect match only this interface's address?
    fn is_for_this_alone(&self) -> bool {
        let mut named = false;
        for text in &self.texts {
            for (section, line) in entries(text) {
                let Some((key, value)) = line.split_once('=') else { continue };
                if section == "Match" && matches!(key.trim(), "MACAddress" | "PermanentMACAddress") {
                    let mut addresses = value.split_whitespace();
                    named = addresses.next().is_some_and(|one| one.eq_ignore_ascii_case(&self.address))
                        && addresses.next().is_none();
                }
            }
        }
        named
    }
}

/// A file's contents without its `[Match]` section: sections with their lines.
fn acting(text: &str) -> String {
    let (mut kept, mut acts) = (String::new(), false);
    for line in lines(text) {
        if line.starts_with('[') {
            acts = line != "[Match]";
            kept.push_str(if acts { "\n" } else { "" });
        }
        if acts {
            kept.push_str(&line);
            kept.push('\n');
        }
    }
    kept
}

/// Section and line of every assignment.
fn entries(text: &str) -> impl Iterator<Item = (String, String)> {
    let mut section = String::new();
    lines(text).into_iter().filter_map(move |line| {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').to_owned();
            return None;
        }
        Some((section.clone(), line))
    })
}

/// Non-empty lines; continued ones (systemd.syntax(7)) joined.
fn lines(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut continued = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with(['#', ';']) || (line.is_empty() && !continued) {
            continue;
        }
        let (part, more) = match line.strip_suffix('\\') {
            Some(part) => (part.trim_end(), true),
            None => (line, false),
        };
        match found.last_mut().filter(|_| continued) {
            Some(last) => {
                last.push(' ');
                last.push_str(part);
            }
            None => found.push(part.to_owned()),
        }
        continued = more;
    }
    found
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;
    use udpath_host::source::Folder;

    const DEFAULT: &str =
        "# theirs\n[Match]\nOriginalName=*\n[Link]\nNamePolicy=keep kernel\nMACAddressPolicy=persistent\n";

    fn link(file: &str, files: &[(&str, &str)]) -> (tempfile::TempDir, Option<Link>) {
        let folder = tempfile::tempdir().unwrap();
        let database = format!("I:1\nE:ID_NET_LINK_FILE={file}\n");
        let card = [
            ("sys/class/net/eth0/addr_assign_type", "0\n"),
            ("sys/class/net/eth0/address", "02:00:00:00:00:0a\n"),
            ("sys/class/net/eth0/ifindex", "3\n"),
            ("run/udev/data/n3", database.as_str()),
        ];
        for (path, text) in card.iter().chain(files) {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let link = Link::of(&Folder::captured(folder.path()), "eth0");
        (folder, link)
    }

    fn file(file: &str, files: &[(&str, &str)]) -> Option<(String, String)> {
        let value = Value::Number(8);
        link(file, files).1?.file("# head\n", 7, &[("CombinedChannels", &value)])
    }

    #[test]
    fn a_shared_file_is_repeated_for_this_interface_with_its_drop_ins() {
        let (path, text) = file(
            "/usr/lib/systemd/network/99-default.link",
            &[
                ("usr/lib/systemd/network/99-default.link", DEFAULT),
                ("etc/systemd/network/99-default.link.d/20-mtu.conf", "[Link]\nMTUBytes=9000\nName=lan0\n"),
                (
                    "usr/lib/systemd/network/99-default.link.d/10-vf.conf",
                    "[SR-IOV]\nVirtualFunction=0\nTrust=yes\n",
                ),
                // Masked by the file of the same name in /etc.
                ("usr/lib/systemd/network/99-default.link.d/20-mtu.conf", "[Link]\nMTUBytes=1280\n"),
            ],
        )
        .unwrap();
        assert_eq!(path, "/etc/systemd/network/05-udpath-000007-eth0.link");
        assert_eq!(
            text,
            "# head\n[Match]\nPermanentMACAddress=02:00:00:00:00:0a\n\n[Link]\nNamePolicy=keep kernel\n\
             MACAddressPolicy=persistent\n\n[SR-IOV]\nVirtualFunction=0\nTrust=yes\n\n[Link]\nMTUBytes=9000\nName=lan0\n\n\
             [Link]\nCombinedChannels=8\n"
        );
    }

    #[test]
    fn a_file_for_this_interface_alone_gets_a_drop_in() {
        let theirs = "[Match]\nMACAddress=02:00:00:00:00:0A\n[Link]\nName=lan0\nMTUBytes=9000\n";
        let path = "/etc/systemd/network/10-lan0.link";
        let (ours, text) = file(path, &[(&path[1..], theirs)]).unwrap();
        assert_eq!(ours, "/etc/systemd/network/10-lan0.link.d/90-udpath-000007-eth0.conf");
        assert_eq!(text, "# head\n[Link]\nCombinedChannels=8\n");
        // After a drop-in that sets the same key.
        let other = ("etc/systemd/network/10-lan0.link.d/95-x.conf", "[Link]\nCombinedChannels = 4\n");
        let (ours, _) = file(path, &[(&path[1..], theirs), other]).unwrap();
        assert!(ours.ends_with("/99-udpath-000007-eth0.conf"), "{ours}");
        // A file that matches other addresses too applies to those as well.
        let two = theirs.replace("0A\n", "0A 02:00:00:00:00:0b\n");
        assert!(file(path, &[(&path[1..], &two)]).unwrap().0.ends_with(".link"));
    }

    #[test]
    fn the_file_sorts_before_the_one_in_effect_or_the_unit_keeps_it() {
        let named = |name: &str| {
            let path = format!("/etc/systemd/network/{name}");
            file(&path, &[(&path[1..], DEFAULT)]).map(|(path, _)| path)
        };
        assert!(named("04-first.link").unwrap().ends_with("/00-udpath-000007-eth0.link"));
        assert_eq!(named("00-first.link"), None);
        // Another apply's file takes effect only from the next boot on.
        let kept = ("etc/systemd/network/05-udpath-000003-eth0.link", DEFAULT);
        let default = ("usr/lib/systemd/network/99-default.link", DEFAULT);
        assert!(link("/usr/lib/systemd/network/99-default.link", &[kept, default]).1.is_none());
    }

    #[test]
    fn continued_lines_are_joined() {
        assert_eq!(lines("[Link]\nName=a\\\n# no\n b\n\nX=1\n"), ["[Link]", "Name=a b", "X=1"]);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed(text in "(\\[?[A-Za-z=\\\\#; ]{0,12}\\]?\n){0,8}") {
            let _ = acting(&text);
            let _ = entries(&text).count();
        }
    }
}
