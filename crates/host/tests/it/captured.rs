//! Snapshots of other machines: answers and files from a capture.

use std::fs;
use std::path::Path;

use udpath_host::interfaces::{Fields, Interface, Relation};
use udpath_host::snapshot::Snapshot;
use udpath_host::source::{Answer, Folder, Question};
use udpath_host::{Absence, Fact, Provenance, Source};
use udpath_steer::CpuSet;

/// A capture under construction.
struct Capture(tempfile::TempDir);

impl Capture {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn file(&self, path: &str, text: &str) -> &Self {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn directory(&self, path: &str) -> &Self {
        fs::create_dir_all(self.path().join(path)).unwrap();
        self
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot::read(&Folder::captured(self.path()))
    }
}

fn only(snapshot: &Snapshot) -> &Interface {
    assert_eq!(snapshot.interfaces.len(), 1, "{:?}", snapshot.missing);
    &snapshot.interfaces[0]
}

/// ConnectX-5, four channels, Linux 5.10: eight receive queues in sysfs, four of which are only for AF_XDP.
fn mlx5() -> Capture {
    let capture = Capture::new();
    let net = "sys/class/net/ens2f0";
    capture
        .file(
            "udpath/links.json",
            r#"{"value": [{"index": 3, "name": "ens2f0", "up": true, "carrier": true, "mtu": 1500}],
                "from": {"route": "RTM_GETLINK"}}"#,
        )
        .file(
            "udpath/driver/ens2f0.json",
            r#"{"value": {"name": "mlx5_core", "bus": "0000:3b:00.0"}, "from": {"ethtool-ioctl": "ETHTOOL_GDRVINFO"}}"#,
        )
        .file(
            "udpath/channels/ens2f0.json",
            r#"{"value": {"now": {"combined": 4}, "max": {"combined": 63}}, "from": {"ethtool": "channels-get"}}"#,
        )
        .file(
            "udpath/rss/ens2f0.json",
            r#"{"value": {"main": {"table": [0, 1, 2, 3], "key": "6d:5a", "function": "toeplitz"}},
                "from": {"ethtool-ioctl": "ETHTOOL_GRSSH"}}"#,
        )
        .file(
            "udpath/hash-fields/ens2f0.json",
            r#"{"value": {"udp4": "sd", "udp6": "sdfn"}, "from": {"ethtool-ioctl": "ETHTOOL_GRXFH"}}"#,
        )
        .file(
            "udpath/driver-counters/ens2f0.json",
            r#"{"value": {"rx_packets": 99, "rx0_packets": 5, "rx3_packets": 7, "rx3_wqe_err": 1, "tx2_dropped": 4},
                "from": {"ethtool-ioctl": "ETHTOOL_GSTATS"}}"#,
        )
        .file(
            "udpath/files.json",
            r#"{"links": {"/sys/class/net/ens2f0/device": "../../../0000:3b:00.0"}}"#,
        )
        .file(&format!("{net}/ifindex"), "3\n")
        .file(&format!("{net}/speed"), "25000\n")
        .file(&format!("{net}/device/numa_node"), "1\n")
        .file(&format!("{net}/device/local_cpulist"), "10-19\n")
        .file(&format!("{net}/queues/rx-1/rps_cpus"), "00000000,00000c00\n");
    for queue in 0..8 {
        capture.directory(&format!("{net}/queues/rx-{queue}"));
    }
    for queue in 0..4 {
        capture.directory(&format!("{net}/queues/tx-{queue}"));
    }
    // The card's other port has interrupts with the same names.
    let mut interrupts = "           CPU0       CPU1\n".to_owned();
    for (port, irq) in [(0, 70), (1, 80)] {
        interrupts +=
            &format!(" {irq}:  1  0  IR-PCI-MSI 30932992-edge      mlx5_async@pci:0000:3b:00.{port}\n");
        for queue in 0..4 {
            let number = irq + 1 + queue;
            interrupts += &format!(
                " {number}:  9  9  IR-PCI-MSI 30932993-edge  mlx5_comp{queue}@pci:0000:3b:00.{port}\n"
            );
        }
    }
    capture.file("proc/interrupts", &interrupts);
    capture
}

#[test]
fn the_half_of_queues_that_only_af_xdp_uses_is_marked() {
    let snapshot = mlx5().snapshot();
    let ens2f0 = only(&snapshot);
    assert_eq!(ens2f0.rx.len(), 8);
    let marked: Vec<u32> = ens2f0.rx.iter().filter(|queue| queue.xsk).map(|queue| queue.id).collect();
    assert_eq!(marked, [4, 5, 6, 7]);
    // Each of the others has its interrupt, on the right port, and its source is recorded.
    let irqs: Vec<_> = ens2f0.rx[..4].iter().map(|queue| queue.irq.clone().unwrap()).collect();
    assert_eq!(irqs.iter().map(|irq| irq.value).collect::<Vec<_>>(), [71, 72, 73, 74]);
    assert!(irqs.iter().all(|irq| irq.from == Provenance::Derived("names in /proc/interrupts".into())));
    assert!(ens2f0.rx[4..].iter().all(|queue| queue.irq.is_none()));
    assert_eq!(ens2f0.tx[2].irq.as_ref().unwrap().value, 73);
}

#[test]
fn groups_come_from_their_answers_and_files() {
    let snapshot = mlx5().snapshot();
    let ens2f0 = only(&snapshot);
    assert_eq!((ens2f0.kind.as_str(), ens2f0.node, ens2f0.link.speed), ("device", Some(1), Some(25_000)));
    assert_eq!(ens2f0.local_cpus, Some((10..20).collect()));
    assert_eq!(ens2f0.rx[1].rps_cpus, Some(CpuSet::from_iter([10, 11])));
    let rss = ens2f0.rss.as_ref().unwrap();
    assert_eq!((&rss.value.main.table[..], &rss.value.main.key[..]), (&[0, 1, 2, 3][..], &[0x6d, 0x5a][..]));
    let fields = ens2f0.hash_fields.as_ref().unwrap().value;
    assert_eq!((fields.udp4, fields.udp6), (Some(Fields::ADDRESSES), Some(Fields::PORTS)));
    let counters = ens2f0.rx[3].counters.as_ref().unwrap();
    assert_eq!((counters.value["packets"], counters.value["drops"]), (7, 1));
    assert_eq!(ens2f0.tx[2].counters.as_ref().unwrap().value["drops"], 4);
    // What the capture lacks is reported as not captured.
    let rings = snapshot.missing.iter().find(|missing| missing.what == "rings of ens2f0").unwrap();
    assert_eq!(
        (&rings.why, rings.to_string().as_str()),
        (&Absence::NotCaptured, "rings of ens2f0 (ethtool netlink rings-get): not in the capture",)
    );
}

#[test]
fn queues_without_an_interrupt_are_an_error() {
    let capture = mlx5();
    capture.file("proc/interrupts", "           CPU0       CPU1\n  0:  1  1  IO-APIC  2-edge  timer\n");
    let snapshot = capture.snapshot();
    let missing =
        snapshot.missing.iter().find(|missing| missing.what == "interrupts of the queues of ens2f0");
    let told = missing.unwrap().to_string();
    assert!(
        told.contains("no interrupts found for 12 queues of driver mlx5_core") && told.contains("timer"),
        "{told}"
    );
    assert!(only(&snapshot).rx.iter().all(|queue| queue.irq.is_none()));
}

#[test]
fn the_kernels_queue_irqs_take_precedence_over_names() {
    let capture = mlx5();
    // For other interfaces too, in any order, as a capture may have them.
    capture
        .file(
            "udpath/queues.json",
            r#"{"value": [{"interface": 9, "direction": "rx", "id": 1, "napi": 700},
                          {"interface": 3, "direction": "rx", "id": 1, "napi": 801, "xsk": true},
                          {"interface": 3, "direction": "rx", "id": 0, "napi": 800},
                          {"interface": 2, "direction": "rx", "id": 2, "napi": 600}],
                "from": {"netdev": "queue-get"}}"#,
        )
        .file(
            "udpath/napis.json",
            r#"{"value": [{"interface": 9, "id": 700, "irq": 1}, {"interface": 3, "id": 801, "irq": 171},
                          {"interface": 3, "id": 800, "defer_hard_irqs": 2}],
                "from": {"netdev": "napi-get"}}"#,
        )
        .file(
            "udpath/queue-counters.json",
            r#"{"value": [{"interface": 3, "direction": "tx", "id": 2, "counters": {"packets": 5000000000}}],
                "from": {"netdev": "qstats-get"}}"#,
        );
    let snapshot = capture.snapshot();
    let ens2f0 = only(&snapshot);
    let irqs: Vec<_> = ens2f0.rx[..3].iter().map(|queue| queue.irq.clone().unwrap()).collect();
    assert_eq!(irqs.iter().map(|irq| irq.value).collect::<Vec<_>>(), [71, 171, 73]);
    assert_eq!(irqs[1].from, Provenance::Netdev("napi-get".into()));
    assert_eq!(irqs[2].from, Provenance::Derived("names in /proc/interrupts".into()));
    assert_eq!(
        ens2f0.rx[..3].iter().map(|queue| queue.napi).collect::<Vec<_>>(),
        [Some(800), Some(801), None]
    );
    assert!(ens2f0.rx[1].xsk && !ens2f0.rx[0].xsk);
    let napis = &ens2f0.napis.as_ref().unwrap().value;
    assert_eq!(
        napis.iter().map(|napi| (napi.id, napi.defer_hard_irqs)).collect::<Vec<_>>(),
        [(801, None), (800, Some(2))]
    );
    assert_eq!(ens2f0.tx[2].counters.as_ref().unwrap().value["packets"], 5_000_000_000);
    // An invalid list is reported.
    capture
        .file("udpath/napis.json", r#"{"value": [{"interface": "three"}], "from": {"netdev": "napi-get"}}"#);
    let snapshot = capture.snapshot();
    let told = snapshot.missing.iter().find(|missing| missing.what == "NAPI instances").unwrap().to_string();
    assert!(told.contains("udpath/napis.json") && told.contains("three"), "{told}");
    assert_eq!(only(&snapshot).rx[1].irq.as_ref().unwrap().value, 72);
}

#[test]
fn without_netlink_sysfs_is_the_list() {
    let capture = Capture::new();
    let net = "sys/class/net";
    for (name, index, link, kind) in [
        ("eth1", 2, 2, 1),
        ("eth10", 11, 11, 1),
        ("bond0", 20, 20, 1),
        ("bond0.7", 21, 20, 1),
        ("lo", 1, 1, 772),
    ] {
        capture
            .file(&format!("{net}/{name}/ifindex"), &format!("{index}\n"))
            .file(&format!("{net}/{name}/iflink"), &format!("{link}\n"))
            .file(&format!("{net}/{name}/type"), &format!("{kind}\n"))
            .file(&format!("{net}/{name}/flags"), "0x1003\n")
            .file(&format!("{net}/{name}/mtu"), "1500\n");
    }
    capture
        .file(&format!("{net}/bonding_masters"), "bond0\n")
        .file(&format!("{net}/bond0/bonding/mode"), "802.3ad 4\n")
        .file(&format!("{net}/bond0/bonding/xmit_hash_policy"), "layer3+4 1\n")
        .file(&format!("{net}/bond0/bonding/active_slave"), "\n")
        .file(
            "udpath/files.json",
            r#"{"links": {"/sys/class/net/eth1/master": "../bond0", "/sys/class/net/eth10/master": "../bond0"}}"#,
        );
    let snapshot = capture.snapshot();
    let names: Vec<_> = snapshot.interfaces.iter().map(|interface| interface.name.as_str()).collect();
    assert_eq!(names, ["lo", "eth1", "eth10", "bond0", "bond0.7"]);
    let bond = &snapshot.interfaces[3];
    assert_eq!(bond.kind, "bond");
    let members =
        [Relation::Lower("eth1".into()), Relation::Lower("eth10".into()), Relation::Upper("bond0.7".into())];
    assert_eq!(bond.relations, members);
    let settings = bond.bond.as_ref().unwrap();
    assert_eq!((settings.mode.as_deref(), settings.active.as_deref()), (Some("802.3ad"), None));
    assert_eq!(settings.xmit_hash_policy.as_deref(), Some("layer3+4"));
    assert_eq!(snapshot.interfaces[0].kind, "loopback");
    assert!(snapshot.interfaces[1].link.up);
}

/// A machine whose interface has a new index by the time its files are read.
#[derive(Debug)]
struct Renumbered(Folder);

impl Source for Renumbered {
    fn text(&self, path: &str) -> Result<String, Absence> {
        match path {
            "/sys/class/net/lo/ifindex" => Ok("7\n".into()),
            "/sys/class/net/gone0/ifindex" => Err(Absence::NotThere),
            _ => self.0.text(path),
        }
    }

    fn names(&self, directory: &str) -> Result<Vec<String>, Absence> {
        self.0.names(directory)
    }

    fn target(&self, link: &str) -> Result<String, Absence> {
        self.0.target(link)
    }

    fn ask(&self, question: &Question) -> Result<Fact<Answer>, Absence> {
        let mut fact = self.0.ask(question)?;
        if let Answer::Links(links) = &mut fact.value {
            let mut gone = links[0].clone();
            (gone.name, gone.index) = ("gone0".into(), 99);
            links.push(gone);
        }
        Ok(fact)
    }
}

#[test]
fn an_interface_that_disappears_is_left_out_and_reported() {
    let snapshot = Snapshot::read(&Renumbered(Folder::live()));
    let there = |name: &str| snapshot.interfaces.iter().any(|interface| interface.name == name);
    assert!(!there("lo") && !there("gone0"));
    let told = |name: &str| {
        let missing = snapshot.missing.iter().find(|missing| missing.what == format!("interface {name}"));
        missing.map(ToString::to_string).unwrap_or_default()
    };
    assert_eq!(
        told("lo"),
        "interface lo (/sys/class/net/lo): changed while it was read: its number was 1 and is 7"
    );
    assert_eq!(
        told("gone0"),
        "interface gone0 (/sys/class/net/gone0): changed while it was read: it is gone"
    );
}

#[test]
fn a_broken_answer_is_reported_and_the_rest_remains() {
    let capture = mlx5();
    capture.file("udpath/channels/ens2f0.json", r#"{"value": {"now": {"combind": 4}}}"#);
    let snapshot = capture.snapshot();
    let told =
        snapshot.missing.iter().find(|missing| missing.what == "channels of ens2f0").unwrap().to_string();
    assert!(told.contains("udpath/channels/ens2f0.json") && told.contains("combind"), "{told}");
    let ens2f0 = only(&snapshot);
    assert!(ens2f0.channels.is_none() && ens2f0.rss.is_some());
    // Without channels, halves cannot be determined.
    assert!(ens2f0.rx.iter().all(|queue| !queue.xsk));
    assert_eq!(ens2f0.rx.iter().filter(|queue| queue.irq.is_some()).count(), 4);
}
