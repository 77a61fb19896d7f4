//! What a capture keeps of each kind of file: none of the planted secrets.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use udpath_host::Snapshot;
use udpath_host::source::Folder;
use udpath_support::Archive;
use udpath_support::{Identity, NOW, Options, Support, Target, take};

use crate::unpacked::unpacked;

fn written(support: &Support, folder: &Path) -> std::path::PathBuf {
    let path = folder.join("capture.tar.gz");
    support.write(&Target { path: path.clone(), force: true }).unwrap();
    path
}

/// Planted secrets, each in one place, so that a secret that is found identifies its place.
#[derive(Default)]
struct Planted(Vec<(String, &'static str)>);

impl Planted {
    fn at(&mut self, place: &'static str) -> String {
        let word = format!("zq{}zq", self.0.len());
        self.0.push((word.clone(), place));
        word
    }
}

/// A machine with a secret in every place of every kind of file where a user may have written one.
fn planted(folder: &Path) -> (Planted, Identity, serde_json::Value) {
    let mut planted = Planted::default();
    let mut s = |place| planted.at(place);
    let file = |path: &str, text: &str| {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    file(
        &format!("etc/udev/rules.d/70-{}.rules", s("name of a file of rules")),
        &format!(
            "# {}\nSUBSYSTEM==\"net\", ENV{{TOKEN}}==\"{}\", ENV{{{}}}==\"1\", ENV{{ID_NET_DRIVER}}==\"ixgbe\", \
             PROGRAM==\"/bin/{}\", ATTRS{{serial}}==\"{}\", KERNEL==\"eth*\", ATTR{{queues/rx-0/rps_cpus}}=\"f,f\", \
             ATTR{{mtu}}=\"{}\", ATTR{{ifalias}}=\"{}\", ENV{{SYSTEMD_WANTS}}=\"a@{}.service\", TAG+=\"{}\", \
             RUN+=\"/usr/bin/curl -u {} https://{}.example.net/?token={}\", RUN+=\"/opt/{}/{}\", \
             RUN+=\"/usr/sbin/ethtool -s eth0 wol s sopass {}\", SYSCTL{{net/ipv4/conf/a/tag}}=\"{}\"\n\
             SUBSYSTEM!=\"net\", GOTO=\"{}\"\nATTR{{tx_queue_len}}=\"9\"\nSUBSYSTEM==\"block\", RUN+=\"{}\"\n",
            s("comment of a rule"),
            s("ENV of a rule"),
            s("name in ENV of a rule"),
            s("PROGRAM of a rule"),
            s("serial of a rule"),
            s("number of a rule"),
            s("alias of a rule"),
            s("unit of a rule"),
            s("tag of a rule"),
            s("password in RUN"),
            s("host in RUN"),
            s("token in RUN"),
            s("folder in RUN"),
            s("program in RUN"),
            s("WoL password in RUN"),
            s("SYSCTL of a rule"),
            s("label of a rule"),
            s("rule of another subsystem"),
        ),
    );
    file(
        &format!("etc/systemd/network/10-{}.link", s("name of a .link file")),
        &format!(
            "[Match]\nDriver=ixgbe\nHost={}\nProperty=ID={}\nPath={}\nKernelCommandLine={}\nCredential={}\n\
             [Link]\nDescription={}\nAlias={}\nWakeOnLanPassword={}\nRxBufferSize=max\nMTUBytes={}\nUnheardOf={}\n\
             ReceivePacketSteeringCPUMask=f\n[SR-IOV]\nMACAddress={}\n",
            s("Host of .link"),
            s("Property of .link"),
            s("Path of .link"),
            s("KernelCommandLine of .link"),
            s("Credential of .link"),
            s("Description of .link"),
            s("Alias of .link"),
            s("WakeOnLanPassword of .link"),
            s("MTUBytes of .link"),
            s("unknown key of .link"),
            s("SR-IOV of .link"),
        ),
    );
    // Half of a value like this was once left as a link-layer address.
    file("etc/systemd/network/11-a.link", "[Link]\nRxBufferSize=max\nWakeOnLanPassword=a1:b2:c3:d4:e5:f6\n");
    let network = s("name of a .network file");
    file(
        &format!("etc/systemd/network/{network}.network"),
        &format!(
            "[Match]\nName=eth*\nSSID={}\nHost={}\n[Network]\nDescription={}\n[Link]\nMTUBytes=9000\n[QDisc]\nParent=root\n\
             Handle={}\n[WireGuard]\nPrivateKey={}\n",
            s("SSID of .network"),
            s("Host of .network"),
            s("Description of .network"),
            s("Handle of .network"),
            s("key of .network"),
        ),
    );
    file(
        &format!("etc/systemd/network/{network}.network.d/{}.conf", s("name of a drop-in")),
        &format!("[Link]\nMTUBytes={}\n", s("MTUBytes of a drop-in")),
    );
    file(
        &format!("etc/NetworkManager/system-connections/{}.nmconnection", s("name of a connection")),
        &format!(
            "[connection]\nid={}\ntype=wifi\ninterface-name=wlan0\n[wifi]\nssid={}\n[wifi-security]\npsk={}\n\
             [802-1x]\npassword={}\n[ethernet]\nmtu=9000\nspeed={}\n[ethtool]\nring-rx={}\n[tc]\nqdisc.root={}\ntfilter.x={}\n\
             [vpn]\ngateway={}\n",
            s("id of a connection"),
            s("SSID of a connection"),
            s("key of a connection"),
            s("password of a connection"),
            s("speed of a connection"),
            s("ring of a connection"),
            s("qdisc of a connection"),
            s("filter of a connection"),
            s("gateway of a connection"),
        ),
    );
    file(
        "etc/default/instance_configs.cfg",
        &format!(
            "[InstanceSetup]\nset_multiqueue = {}\n[Accounts]\nx = {}\n",
            s("agent's setting"),
            s("agent's account")
        ),
    );
    file(
        &format!("etc/sysctl.d/50-{}.conf", s("name of a sysctl file")),
        &format!(
            "# {}\nnet.core.rmem_max=9\nnet.ipv4.tcp_fastopen_key={}\nnet.ipv6.conf.all.stable_secret={}\n\
             net.ipv4.x={}\nkernel.core_pattern=|/bin/{}\nnet.ipv4.tcp_congestion_control=bbr\n",
            s("comment of sysctl"),
            s("fast open key"),
            s("stable secret"),
            s("value of sysctl"),
            s("core pattern"),
        ),
    );
    file("etc/sysctl.conf", &format!("net.ipv4.y={}\n", s("value of sysctl.conf")));
    // A process with a socket: its program's folder, and every name it can set for itself.
    let uid = s("account of high uid");
    for (pid, exe, comm) in [
        (40, format!("/opt/{}/bin/server", s("folder of a program")), s("name of a process")),
        (41, format!("/srv/{uid}/server2"), s("name of another process")),
    ] {
        let argument = (s("argv[0]"), s("argument"));
        file(&format!("proc/{pid}/comm"), &format!("{comm}\n"));
        file(&format!("proc/{pid}/cmdline"), &format!("{}\0--token\0{}\0", argument.0, argument.1));
        file(&format!("proc/{pid}/environ"), &format!("A={}\0", s("environment")));
        file(
            &format!("proc/{pid}/status"),
            &format!("Name:\t{}\nUid:\t7\t7\t7\t7\nCpus_allowed_list:\t0\n", s("Name of status")),
        );
        file(
            &format!("proc/{pid}/cgroup"),
            &format!(
                "3:name={}:/\n2:cpu,cpuacct:/lxc/{}\n0::/{}/{}.example.com.service/vpn@{}.service/lxc.payload.{}/nsd.service\n",
                s("name of a hierarchy"),
                s("name of a container"),
                s("name of a group"),
                s("host in a unit"),
                s("instance of a unit"),
                s("name of another container"),
            ),
        );
        file(
            &format!("proc/{pid}/task/{pid}/stat"),
            &format!("{pid} ({}) S 1 {}", s("name of a thread"), "7 ".repeat(40)),
        );
        file(
            &format!("proc/{pid}/task/{pid}/status"),
            &format!("Name:\t{}\nCpus_allowed_list:\t0\n", s("name of a thread in its status")),
        );
        file(&format!("proc/{pid}/task/{pid}/comm"), &s("comm of a thread"));
        fs::create_dir_all(folder.join(format!("proc/{pid}/fd/3"))).unwrap();
        std::os::unix::fs::symlink(exe, folder.join(format!("proc/{pid}/exe"))).unwrap();
        let _ = fs::remove_dir(folder.join(format!("proc/{pid}/fd/3")));
        std::os::unix::fs::symlink(format!("socket:[{}]", pid - 33), folder.join(format!("proc/{pid}/fd/3")))
            .unwrap();
        std::os::unix::fs::symlink(
            format!("/srv/{}", s("open file")),
            folder.join(format!("proc/{pid}/fd/4")),
        )
        .unwrap();
    }
    // A process without a socket.
    file("proc/50/comm", &s("name of a process that is none of ours"));
    file("proc/50/cmdline", &s("command line of a process that is none of ours"));
    std::os::unix::fs::symlink(
        format!("/usr/bin/{}", s("program of another process")),
        folder.join("proc/50/exe"),
    )
    .unwrap();
    file(
        "proc/cmdline",
        &format!("root=/dev/{} audit=0 a.token={}\n", s("root of boot parameters"), s("boot parameter")),
    );
    file("proc/self/status", &format!("Name:\t{}\nCpus_allowed_list:\t0\n", s("our own name")));
    file("proc/self/cgroup", &format!("0::/{}\n", s("our own group")));
    file(
        "proc/self/mountinfo",
        &format!(
            "31 23 0:31 /{} /mnt rw - nfs {}:/x rw\n29 23 0:26 /{} /sys/fs/cgroup rw shared:9 - cgroup2 {} rw,release_agent=/{}\n",
            s("root of a mount"),
            s("host of a mount"),
            s("root of a mount of groups"),
            s("source of a mount of groups"),
            s("option of a mount"),
        ),
    );
    file("proc/modules", &format!("{} 1 0 - Live 0x0\nnf_tables 1 0 - Live 0x0\n", s("module")));
    file(
        "proc/cpuinfo",
        &format!(
            "processor\t: 0\nmodel name\t: A CPU\nflags\t: fpu hypervisor {}\nSerial\t: {}\nHardware\t: {}\n",
            s("flag"),
            s("serial of the processor"),
            s("hardware")
        ),
    );
    file("proc/stat", &format!("cpu  1 2 3 4\ncpu0 1 2 3 4\nbtime 7\n{} 1\n", s("line of stat")));
    file("sys/class/dmi/id/sys_vendor", &s("vendor"));
    file("sys/class/dmi/id/product_name", &s("product"));
    file("sys/class/net/eth0/ifalias", &s("alias of an interface"));
    file("sys/class/net/eth0/ifindex", "2\n");
    let answer = |value: String, from: &str| format!(r#"{{"value": {value}, "from": {from}}}"#);
    let link = r#"[{"index": 2, "name": "eth0"}]"#.to_owned();
    file("udpath/links.json", &answer(link, r#"{"route": "RTM_GETLINK"}"#));
    let socket = |inode: u32| {
        format!(
            r#"{{"local": "10.0.0.1:53", "inode": {inode}, "uid": 0, "receive_queue": 0, "send_queue": 0, "drops": 0}}"#
        )
    };
    file("udpath/udp-sockets.json", &answer(format!("[{},{}]", socket(7), socket(8)), r#""sock-diag""#));
    let chain = format!(
        r#"[{{"family": "inet", "table": "{}", "name": "{}", "hook": "input", "priority": 0, "rules": 1}}]"#,
        s("table of nftables"),
        s("chain of nftables"),
    );
    file("udpath/nft-chains.json", &answer(chain, r#"{"nftables": "NFT_MSG_GETCHAIN"}"#));
    let hook = format!(
        r#"[{{"family": "inet", "hook": "input", "priority": 0, "chain": {{"family": "inet", "table": "{}", "name": "{}"}}}}]"#,
        s("table of a hook"),
        s("chain of a hook"),
    );
    file("udpath/netfilter-hooks.json", &answer(hook, r#"{"nftables": "NFNL_MSG_HOOK_GET"}"#));
    file(
        "udpath/files.json",
        &format!(
            r#"{{"absent": {{"/proc/net/packet": {{"failed": "line 2: '{}' is odd"}}}}}}"#,
            s("line that was not understood")
        ),
    );
    let status = serde_json::json!({"schema": "udpath.status/1", "applies": [{
        "id": 1, "state": "applied", "user": format!("root ({})", s("user of the journal")),
        "elsewhere": format!("network namespace 4026532 ({})", s("name of a namespace")),
        "settings": [
            {"setting": "sysctl:kernel.core_pattern", "before": format!("|/bin/{}", s("value before")), "applied": "core", "now": null, "state": "drifted",
             "suspects": [], "note": format!("it is '{}' now", s("value in a note"))},
            {"setting": "eth0:rss/key", "before": "01:02:03:04:05:06:07:08", "applied": "unknown", "now": "09:02:03:04:05:06:07:08", "state": "holds"},
            {"setting": "sysctl:net.core.rmem_max", "before": "212992", "applied": "4194304", "now": "4194304", "state": "holds"},
        ],
        "later": s("a key that came later"),
    }]});
    let identity = Identity {
        hosts: vec![format!("{}.example.com", s("host"))],
        users: vec![(uid.clone(), format!("/srv/{uid}"))],
    };
    (planted, identity, status)
}

#[test]
fn no_planted_secret_is_in_a_capture() {
    let folder = tempfile::tempdir().unwrap();
    let (planted, identity, status) = planted(folder.path());
    let captured = Folder::captured(folder.path());
    let options = Options::default();
    let support = Support::new(take(&captured, &options), Ok(status), &identity, &options).unwrap();
    let path = written(&support, folder.path());
    // The raw bytes of the archive: names, texts, padding.
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(fs::File::open(&path).unwrap()).read_to_end(&mut bytes).unwrap();
    let text = String::from_utf8_lossy(&bytes).to_lowercase();
    let found: Vec<_> = planted.0.iter().filter(|(word, _)| text.contains(word.as_str())).collect();
    assert!(found.is_empty(), "{found:?}");
    for secret in ["a1:b2:c3", "d4:e5:f6", "01:02:03", "09:02:03", "example.net", "example.com"] {
        assert!(!text.contains(secret), "{secret}");
    }
    // What the readers need is still there.
    let archive = Archive::open(&path).unwrap();
    let now = Snapshot::read(&archive.machine(NOW));
    let rules: Vec<_> = now.actors.udev_rules.iter().map(|rule| (rule.line, rule.acts.len())).collect();
    assert_eq!(rules, [(2, 6), (4, 1)], "{:?}", now.actors.udev_rules);
    assert!(now.actors.udev_rules[0].acts.contains(&"ATTR{queues/rx-0/rps_cpus}=\"f,f\"".to_owned()));
    assert!(now.actors.udev_rules[0].acts.contains(&"RUN+=\"ethtool\"".to_owned()));
    let link = &now.actors.link_files[0];
    let value = |sets: &[(String, String)], key: &str| {
        sets.iter().find(|(of, _)| of == key).map(|(_, value)| value.clone())
    };
    assert_eq!(value(&link.matches, "Driver").as_deref(), Some("ixgbe"));
    assert_eq!(value(&link.sets, "RxBufferSize").as_deref(), Some("max"));
    assert_eq!(value(&link.sets, "MTUBytes").as_deref(), Some("redacted"));
    assert_eq!(value(&link.sets, "ReceivePacketSteeringCPUMask").as_deref(), Some("f"));
    let by = |by: &str| now.actors.network_files.iter().find(|file| file.by == by).unwrap();
    assert_eq!(value(&by("systemd-networkd").sets, "QDisc.Parent").as_deref(), Some("root"));
    assert_eq!(value(&by("NetworkManager").sets, "ethernet.mtu").as_deref(), Some("9000"));
    let lines: Vec<_> = now.actors.sysctl_lines.iter().map(|line| (line.line, line.value.as_str())).collect();
    assert_eq!(lines[..2], [(2, "9"), (3, "redacted")]);
    assert!(lines.contains(&(7, "bbr")), "{lines:?}");
    let names: Vec<_> = now
        .sockets
        .processes
        .iter()
        .map(|process| (process.name.as_str(), process.command.as_deref()))
        .collect();
    assert_eq!(names, [("server", Some("server")), ("server2", Some("server2"))]);
    assert_eq!(now.sockets.processes[0].executable.as_deref(), Some("/redacted/server"));
    // The name of a unit stays; in a container it is not one of this machine's.
    assert!(now.sockets.processes[0].group.as_ref().is_some_and(|group| group.ends_with("/nsd.service")));
    assert_eq!(now.sockets.processes[0].unit.as_deref(), None);
    assert_eq!(now.netfilter.modules, ["nf_tables"]);
    let status: serde_json::Value =
        serde_json::from_str(&unpacked(&path).into_iter().find(|(name, _)| name == "status.json").unwrap().1)
            .unwrap();
    let settings = &status["applies"][0]["settings"];
    assert_eq!((&settings[2]["before"], &settings[2]["now"]), (&"212992".into(), &"4194304".into()));
    assert_eq!((&settings[0]["before"], &settings[0]["state"]), (&"redacted".into(), &"drifted".into()));
}

#[test]
fn the_documented_list_of_files_is_the_programs() {
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/support.md")).unwrap();
    let rows: Vec<String> =
        udpath_support::KEPT.iter().map(|kept| format!("| `{}` | {} |", kept.path, kept.what)).collect();
    let told: Vec<&str> = page.lines().filter(|line| line.starts_with("| `/")).collect();
    assert_eq!(told, rows);
}
