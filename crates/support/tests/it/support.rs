//! Captures for another person: what they contain, what they do not, and that they read back like the machine.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use error_reporter::Report;
use proptest::prelude::*;
use udpath_host::map::{Map, Selection};
use udpath_host::source::Folder;
use udpath_host::{Snapshot, Source};
use udpath_support::Archive;
use udpath_support::{EARLIER, Identity, Kind, NOW, Options, PackageError, Support, Target, take};

use crate::machines::{self, list};
use crate::unpacked::unpacked;

fn plain() -> Options {
    Options { no_redact: true, ..Options::default() }
}

fn made(source: &dyn Source, identity: &Identity, options: &Options) -> Support {
    Support::new(take(source, options), Ok(serde_json::json!({"applies": []})), identity, options).unwrap()
}

fn written(support: &Support, folder: &Path) -> std::path::PathBuf {
    let path = folder.join("capture.tar.gz");
    support.write(&Target { path: path.clone(), force: true }).unwrap();
    path
}

#[test]
fn an_unredacted_capture_reads_like_the_machine() {
    for machine in list::all() {
        let folder = machines::folder();
        machine.write(folder.path());
        let captured = Folder::captured(folder.path());
        let support = made(&captured, &Identity::default(), &plain());
        let archive = Archive::open(&written(&support, folder.path())).unwrap();
        assert_eq!(Snapshot::read(&archive.machine(NOW)), Snapshot::read(&captured), "{}", machine.name);
        // And as a folder.
        let path = folder.path().join("capture");
        support.write(&Target { path: path.clone(), force: false }).unwrap();
        let again = Snapshot::read(&Folder::captured(&path.join(NOW)));
        assert_eq!(again, Snapshot::read(&captured), "{}", machine.name);
    }
}

/// The same map with the capture's replacements applied; lists sorted by address are put into an order that does not
/// depend on addresses.
fn replaced_in(map: &Map, support: &Support) -> serde_json::Value {
    let mut text = serde_json::to_string(map).unwrap();
    let mut pairs: Vec<_> = support.replacements().collect();
    pairs.sort_by_key(|(_, original, _)| std::cmp::Reverse(original.len()));
    let told = [Kind::Address, Kind::LinkAddress, Kind::HostName, Kind::UserName, Kind::Identifier];
    for (_, original, other) in pairs.into_iter().filter(|(kind, ..)| told.contains(kind)) {
        text = text.replace(original, other);
    }
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let sockets = value["sockets"].as_array_mut().unwrap();
    sockets.sort_by_key(|socket| socket["inode"].as_u64());
    value
}

#[test]
fn a_redacted_capture_has_the_machines_map() {
    for machine in list::all() {
        let folder = machines::folder();
        machine.write(folder.path());
        let captured = Folder::captured(folder.path());
        let support = made(&captured, &Identity::default(), &Options::default());
        let archive = Archive::open(&written(&support, folder.path())).unwrap();
        let map = |snapshot: &Snapshot| Map::new(snapshot, None, &Selection::All).unwrap();
        let machines_ = replaced_in(&map(&Snapshot::read(&captured)), &support);
        let captures = replaced_in(&map(&Snapshot::read(&archive.machine(NOW))), &support);
        // Identifiers are replaced by others of the same length: compare everything else.
        let named = |value: &serde_json::Value| -> Vec<serde_json::Value> {
            let processes = value["processes"].as_array().unwrap().iter();
            processes.map(|process| process["name"].clone()).collect()
        };
        assert_eq!(named(&machines_), named(&captures), "{}", machine.name);
        for part in ["interfaces", "cpus", "udp", "sockets"] {
            assert_eq!(machines_[part], captures[part], "{} of {}", part, machine.name);
        }
    }
}

/// A machine with every kind of secret in every place it may occur.
#[derive(Debug, Clone)]
struct Secrets {
    v4: [u8; 4],
    v6: [u16; 8],
    link: [u8; 6],
    host: String,
    domain: String,
    user: String,
    argument: String,
    uuid: u128,
}

fn secrets() -> impl Strategy<Value = Secrets> {
    let v4 = any::<[u8; 4]>().prop_filter("one that is somebody's", |v4| {
        !(matches!(v4[0], 0 | 127 | 224..) || v4[0] == 169 && v4[1] == 254)
    });
    let v6 = any::<[u16; 8]>().prop_map(|mut v6| {
        v6[0] = 0x2000 | v6[0] & 0x1fff;
        // All in one block of text.
        v6.map(|part| part | 0x1000)
    });
    let link = any::<[u8; 6]>().prop_filter("one host's", |link| link[0] & 1 == 0 && link[3..] != [0; 3]);
    let word = || "[a-z]{5}q[0-9]{2}";
    (v4, v6, link, word(), word(), word(), "[a-zA-Z0-9]{12}", any::<u128>()).prop_map(
        |(v4, v6, link, host, domain, user, argument, uuid)| {
            // Distinct words: none is part of another.
            let (host, domain, user) = (format!("h{host}"), format!("d{domain}.example"), format!("u{user}"));
            Secrets { v4, v6, link, host, domain, user, argument, uuid }
        },
    )
}

impl Secrets {
    fn v4(&self) -> String {
        std::net::Ipv4Addr::from(self.v4).to_string()
    }

    fn v6(&self) -> String {
        std::net::Ipv6Addr::from(self.v6).to_string()
    }

    fn link(&self) -> String {
        self.link.map(|byte| format!("{byte:02x}")).join(":")
    }

    fn uuid(&self) -> String {
        let text = format!("{:032x}", self.uuid);
        [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-")
    }

    /// Every spelling of the secrets; none may occur in a capture.
    fn texts(&self) -> Vec<String> {
        let bare = self.link().replace(':', "");
        let native: String = format!("{:08X}", u32::from_ne_bytes(self.v4));
        let mut texts = vec![self.v4(), self.v6(), self.link(), bare[6..].to_owned(), self.host.clone()];
        texts.extend([self.domain.clone(), self.user.clone(), self.argument.clone(), self.uuid(), native]);
        texts
    }

    fn identity(&self) -> Identity {
        let hosts = vec![format!("{}.{}", self.host, self.domain), self.host.clone(), self.domain.clone()];
        Identity { hosts, users: vec![(self.user.clone(), format!("/home/{}", self.user))] }
    }

    fn machine(&self, folder: &Path) {
        let file = |path: &str, text: String| {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let (v4, v6, link) = (self.v4(), self.v6(), self.link());
        let Self { host, domain, user, argument, .. } = self;
        let uuid = self.uuid();
        let named = format!("enx{}", link.replace(':', ""));
        let answer = |value: String, from: &str| format!(r#"{{"value": {value}, "from": {from}}}"#);
        let links = format!(
            r#"[{{"index": 2, "name": "eth0", "address": "{link}", "permanent_address": "{link}"}}, {{"index": 3, "name": "{named}", "address": "{link}"}}]"#
        );
        file("udpath/links.json", answer(links, r#"{"route": "RTM_GETLINK"}"#));
        let socket = |local: &str, peer: &str, inode: u32| {
            format!(
                r#"{{"local": "{local}:53", "peer": "{peer}:4000", "inode": {inode}, "uid": 0, "receive_queue": 0, "send_queue": 0, "drops": 0}}"#
            )
        };
        let sockets = [
            socket(&v4, "127.0.0.1", 7),
            socket(&format!("[{v6}]"), &format!("[{v6}]"), 8),
            socket(&format!("[::ffff:{v4}]"), "[::1]", 9),
        ];
        file("udpath/udp-sockets.json", answer(format!("[{}]", sockets.join(",")), r#""sock-diag""#));
        let key: Vec<String> = self.uuid.to_be_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        file(
            "udpath/rss/eth0.json",
            answer(
                format!(r#"{{"main": {{"table": [0], "key": "{}"}}}}"#, key.join(":")),
                r#"{"ethtool": "rss-get"}"#,
            ),
        );
        let rule = format!(
            r#"[{{"location": 1, "flow": "udp4", "source": {{"value": "{v4}", "mask": "255.255.255.255"}}, "action": "drop"}}]"#
        );
        file("udpath/flow-rules/eth0.json", answer(rule, r#"{"ethtool-ioctl": "ETHTOOL_GRXCLSRLALL"}"#));
        let chain = format!(
            r#"[{{"family": "inet", "table": "{host}", "name": "from-{v4}", "hook": "input", "priority": 0, "rules": 1}}]"#
        );
        file("udpath/nft-chains.json", answer(chain, r#"{"nftables": "NFT_MSG_GETCHAIN"}"#));
        let home = format!("/home/{user}/{argument}/server");
        file(
            "udpath/files.json",
            format!(
                r#"{{"links": {{"/proc/40/exe": "{home}", "/proc/40/fd/3": "socket:[7]", "/proc/40/fd/4": "/home/{user}/{argument}", "/proc/41/exe": "/usr/bin/{argument}"}}}}"#
            ),
        );
        for fd in [3, 4] {
            fs::create_dir_all(folder.join(format!("proc/40/fd/{fd}"))).unwrap();
        }
        file("proc/40/comm", format!("{user}\n"));
        file("proc/40/cmdline", format!("{home}\0--listen={v4}\0--password\0{argument}\0{host}.{domain}\0"));
        file("proc/40/environ", format!("SECRET={argument}\0"));
        file("proc/40/status", format!("Name:\t{user}\nUid:\t7\t7\t7\t7\nCpus_allowed_list:\t0\n"));
        file("proc/40/cgroup", format!("0::/user.slice/{user}.service/{uuid}\n"));
        file("proc/40/task/40/stat", format!("40 ({user}) S 1 1"));
        // Private: it has no UDP socket.
        file("proc/41/comm", format!("{argument}\n"));
        file("proc/41/cmdline", format!("{argument}\0"));
        let root = format!("31 23 0:31 /home/{user} /mnt rw - nfs {v4}:/{argument} rw\n");
        file("proc/self/mountinfo", format!("{root}29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"));
        file("sys/fs/cgroup/cpu.max", "max 100000\n".into());
        let group = format!("sys/fs/cgroup/user.slice/{user}.service/{uuid}");
        file(&format!("{group}/cpu.max"), "50000 100000\n".into());
        file("proc/cmdline", format!("root=UUID={uuid} audit=0 password={argument}\n"));
        file(&format!("sys/class/net/{named}/ifindex"), "3\n".into());
        file("proc/interrupts", format!("      CPU0\n 20:   5  PCI-MSI 1-edge  {named}-TxRx-0\n"));
        let udp = u32::from_ne_bytes(self.v4);
        file(
            "proc/net/udp",
            format!("  sl  local\n   1: {udp:08X}:0035 00000000:0000 07 0:0 00:0 0 0 0 7 2 0 0\n"),
        );
        file(
            "etc/udev/rules.d/70-a.rules",
            format!(
                "# {argument}\nSUBSYSTEM==\"net\", ATTR{{address}}==\"{link}\", ATTRS{{serial}}==\"{argument}\", ATTR{{mtu}}=\"9000\"\n"
            ),
        );
        file(
            "etc/systemd/network/10-a.link",
            format!(
                "[Match]\nMACAddress={link} {}\nHost={host}\n[Link]\nRxBufferSize=max\n",
                link.replace(':', "-")
            ),
        );
        file("etc/sysctl.d/a.conf", format!("# of {host}\nkernel.x={argument}\nnet.core.rmem_max=9\n"));
        file("etc/sysctl.d/b.conf", format!("kernel.hostname={host}\n"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn no_private_data_is_in_a_capture(secrets in secrets()) {
        let folder = machines::folder();
        secrets.machine(folder.path());
        let captured = Folder::captured(folder.path());
        let options = Options { interval: Some(std::time::Duration::from_millis(1)), ..Options::default() };
        let support = made(&captured, &secrets.identity(), &options);
        let path = written(&support, folder.path());
        let files = unpacked(&path);
        for secret in secrets.texts() {
            for (name, text) in &files {
                let lower = text.to_lowercase();
                let found = name.contains(&secret) || lower.contains(&secret.to_lowercase());
                prop_assert!(!found, "{secret} is in {name}: {text}");
            }
        }
        // It is still the same machine: replacements are consistent across both snapshots and all files.
        let archive = Archive::open(&path).unwrap();
        let snapshots = [EARLIER, NOW].map(|name| Snapshot::read(&archive.machine(name)));
        prop_assert_eq!(&snapshots[0].sockets, &snapshots[1].sockets);
        let now = &snapshots[1];
        let other = |socket: usize| now.sockets.list.iter().find(|one| one.inode == 7 + socket as u32).unwrap().local.ip();
        let std::net::IpAddr::V4(v4) = other(0) else { panic!("{}", other(0)) };
        prop_assert_eq!(other(2), std::net::IpAddr::from(v4.to_ipv6_mapped()));
        let six = now.sockets.list.iter().find(|socket| socket.inode == 8).unwrap();
        prop_assert_eq!(six.local.ip(), six.peer.unwrap().ip());
        let pairs: BTreeMap<&str, &str> = support.replacements().map(|(_, original, other)| (original, other)).collect();
        prop_assert_eq!(pairs[secrets.v4().as_str()], v4.to_string());
        let rule = &now.interfaces[0].flow_rules.as_ref().unwrap().value[0];
        prop_assert_eq!(rule.source.unwrap().value, std::net::IpAddr::from(v4));
        prop_assert_eq!(&now.netfilter.nftables.as_ref().unwrap().value[0].name, "chain-1");
        // The interface named after its address has the same name throughout, and its interrupt is recognized by name.
        let link = now.interfaces[0].address.clone().unwrap();
        prop_assert_eq!(&link[..9], &secrets.link()[..9]);
        let named = &now.interfaces[1];
        prop_assert_eq!(&named.name, &format!("enx{}", link.replace(':', "")));
        prop_assert_eq!(&now.irqs[0].name, &format!("{}-TxRx-0", named.name));
        let process = now.sockets.process(40).unwrap();
        prop_assert_eq!((process.name.as_str(), process.command.as_deref()), ("server", Some("server")));
        prop_assert_eq!(process.executable.as_deref(), Some("/home/user-1/server"));
        prop_assert_eq!(process.limits.quotas.len(), 1);
        prop_assert_eq!(&now.kernel.parameters, &["audit=0"]);
        prop_assert_eq!(now.actors.link_files[0].sets.len(), 1);
        prop_assert_eq!(now.actors.udev_rules[0].line, 2);
        prop_assert_eq!((now.actors.sysctl_lines.len(), now.actors.sysctl_lines[0].line), (1, 3));
        // The replacement key is different each time, and never included.
        let again = made(&captured, &secrets.identity(), &options);
        let second: BTreeMap<&str, &str> = again.replacements().map(|(_, original, other)| (original, other)).collect();
        prop_assert!(second[secrets.v6().as_str()] != pairs[secrets.v6().as_str()]);
    }
}

#[test]
fn the_kernels_socket_table_is_redacted_when_used() {
    let secrets = Secrets {
        v4: [198, 51, 100, 7],
        v6: [0x2001; 8],
        link: [2, 0, 0, 0, 0, 1],
        host: "h".into(),
        domain: "d.example".into(),
        user: "someone".into(),
        argument: "x".into(),
        uuid: 1,
    };
    let folder = machines::folder();
    secrets.machine(folder.path());
    fs::remove_file(folder.path().join("udpath/udp-sockets.json")).unwrap();
    let captured = Folder::captured(folder.path());
    let support = made(&captured, &secrets.identity(), &Options::default());
    let path = written(&support, folder.path());
    let native = format!("{:08X}", u32::from_ne_bytes(secrets.v4));
    assert!(unpacked(&path).iter().all(|(_, text)| !text.contains(&native)));
    let archive = Archive::open(&path).unwrap();
    let found = &Snapshot::read(&archive.machine(NOW)).sockets.list[0];
    let replaced = support.replacements().find(|(_, original, _)| *original == "198.51.100.7").unwrap().2;
    assert_eq!(found.local.to_string(), format!("{replaced}:53"));
}

#[test]
fn rss_keys_are_kept_on_request_and_if_well_known() {
    let folder = machines::folder();
    let file = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    file(
        "udpath/links.json",
        r#"{"value": [{"index": 2, "name": "eth0"}, {"index": 3, "name": "eth1"}], "from": {"route": "RTM_GETLINK"}}"#,
    );
    for (name, key) in [("eth0", "6d:5a:56:da:25:5b:0e:c2:41"), ("eth1", "01:02:03:04")] {
        let rss = format!(r#"{{"value": {{"main": {{"key": "{key}"}}}}, "from": {{"ethtool": "rss-get"}}}}"#);
        file(&format!("udpath/rss/{name}.json"), &rss);
    }
    let keys = |options: &Options| {
        let support = made(&Folder::captured(folder.path()), &Identity::default(), options);
        let archive = Archive::open(&written(&support, folder.path())).unwrap();
        let snapshot = Snapshot::read(&archive.machine(NOW));
        let of = |at: usize| snapshot.interfaces[at].rss.as_ref().unwrap().value.main.key.len();
        (of(0), of(1))
    };
    assert_eq!(keys(&Options::default()), (9, 0));
    assert_eq!(keys(&Options { keep_rss_key: true, ..Options::default() }), (9, 4));
}

#[test]
fn a_capture_is_private_and_overwrites_nothing_by_accident() {
    let folder = machines::folder();
    let machine = &list::all()[0];
    machine.write(folder.path());
    let support = made(&Folder::captured(folder.path()), &Identity::default(), &Options::default());
    let there = tempfile::tempdir().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for (name, wanted) in [("a.tar.gz", 0o600), ("folder", 0o700)] {
        let path = there.path().join(name);
        let target = |force| Target { path: path.clone(), force };
        support.write(&target(false)).unwrap();
        assert_eq!(mode(&path), wanted, "{name}");
        let told = support.write(&target(false)).unwrap_err();
        assert!(matches!(told, PackageError::Exists { .. }), "{told}");
        support.write(&target(true)).unwrap();
    }
    assert_eq!(mode(&there.path().join("folder/manifest.json")), 0o600);
    // A folder that is not a capture is not replaced even with force.
    let mine = there.path().join("mine");
    fs::create_dir(&mine).unwrap();
    fs::write(mine.join("thesis"), "x").unwrap();
    let told = support.write(&Target { path: mine.clone(), force: true }).unwrap_err();
    assert!(told.to_string().contains("is not a capture"), "{told}");
    assert!(mine.join("thesis").exists());
    let nowhere = Target { path: there.path().join("no/such.tar.gz"), force: false };
    let told = Report::new(support.write(&nowhere).unwrap_err()).to_string();
    assert!(told.contains("No such file") && told.contains("nothing was left behind"), "{told}");
    let left: Vec<_> = fs::read_dir(there.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
}
