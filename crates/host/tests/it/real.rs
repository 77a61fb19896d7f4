//! Real machines, read from their captures: `fixtures/captured/*.tar.gz` (see the README beside them).

use std::path::Path;
use std::process::Command;

use udpath_host::interfaces::Interface;
use udpath_host::source::Folder;
use udpath_host::tables::tables;
use udpath_host::{Absence, Provenance, Snapshot};
use udpath_steer::CpuSet;

fn read(name: &str) -> Snapshot {
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/captured").join(name);
    let folder = tempfile::tempdir().unwrap();
    let unpacked =
        Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(folder.path()).status().unwrap();
    assert!(unpacked.success(), "{}", archive.display());
    let snapshot = Snapshot::read(&Folder::captured(&folder.path().join("now")));
    for missing in &snapshot.missing {
        let garbled = match missing.why {
            Absence::NotUnderstood(_) | Absence::NotCaptured => true,
            // A kernel without the module of nftables.
            Absence::Failed(_) => !matches!(missing.from, Provenance::Nftables(_)),
            _ => false,
        };
        assert!(!garbled, "{name}: {missing}");
    }
    let json = serde_json::to_string(&snapshot).unwrap();
    assert_eq!(serde_json::from_str::<Snapshot>(&json).unwrap(), snapshot, "{name}");
    snapshot
}

fn set(list: &str) -> CpuSet {
    list.parse().unwrap()
}

/// An interface by its driver: a capture replaces names.
fn of<'a>(snapshot: &'a Snapshot, driver: &str) -> &'a Interface {
    let its = |one: &&Interface| one.driver.as_ref().is_some_and(|fact| fact.value.name == driver);
    snapshot.interfaces.iter().find(its).unwrap_or_else(|| panic!("no {driver}: {:?}", snapshot.interfaces))
}

/// QEMU with virtio-net, vmxnet3 and e1000e: what the machine was built with.
#[test]
fn the_emulated_machine_is_the_one_that_was_asked_for() {
    let snapshot = read("emulated-20-cpus.tar.gz");
    assert_eq!(snapshot.cpus.online, set("0-19"));
    let nodes: Vec<CpuSet> = snapshot.nodes.iter().map(|node| node.cpus.clone()).collect();
    assert_eq!(nodes, [set("0-9"), set("10-19")]);
    let virtio = of(&snapshot, "virtio_net");
    assert_eq!((virtio.rx.len(), virtio.tx.len(), virtio.node), (16, 16, Some(1)));
    // Queue N's interrupt is on CPU N, except for 3 and 13, which were exchanged.
    for queue in &virtio.rx {
        let number = queue.irq.as_ref().unwrap().value;
        let irq = snapshot.irqs.iter().find(|irq| irq.number == number).unwrap();
        assert!(irq.name.ends_with(&format!("-input.{}", queue.id)), "{}", irq.name);
        let cpu = match queue.id {
            3 => 13,
            13 => 3,
            other => other,
        };
        assert_eq!(irq.affinity, Some([cpu].into_iter().collect()), "queue {}", queue.id);
        // This driver counts by queue over netlink alone.
        let counters = queue.counters.as_ref().unwrap();
        assert_eq!(counters.from, Provenance::Netdev("qstats-get".into()));
    }
    let channels = virtio.channels.as_ref().unwrap().value;
    assert_eq!((channels.now.combined, channels.max.combined), (Some(16), Some(16)));
    let rss = &virtio.rss.as_ref().unwrap().value.main;
    assert_eq!((rss.table.len(), rss.key.len()), (128, 40));
    assert!(tables(&snapshot, virtio).check().is_ok());
    let vmxnet3 = of(&snapshot, "vmxnet3");
    assert!(!vmxnet3.rss.as_ref().unwrap().value.main.table.is_empty());
    assert!(vmxnet3.rings.as_ref().unwrap().value.rx.is_some());
    let e1000e = of(&snapshot, "e1000e");
    assert!(e1000e.coalescing.as_ref().unwrap().value.contains_key("rx-usecs"));
    for one in [virtio, vmxnet3, e1000e] {
        assert!(one.features.as_ref().unwrap().value.len() > 40, "{}", one.name);
        assert_eq!(one.mtu, 1500);
    }
}

/// A virtual machine under Firecracker: no DMI, no nodes' distances to speak of, one queue.
#[test]
fn a_firecracker_machine_has_one_queue() {
    let snapshot = read("firecracker-2-cpus.tar.gz");
    assert_eq!(snapshot.cpus.online, set("0-1"));
    assert_eq!(snapshot.kernel.hypervisor.as_ref().map(|fact| fact.value.as_str()), Some("unknown"));
    assert_eq!(snapshot.kernel.version(), Some((6, 18)));
    let virtio = of(&snapshot, "virtio_net");
    assert_eq!((virtio.rx.len(), virtio.tx.len()), (1, 1));
    let number = virtio.rx[0].irq.as_ref().unwrap().value;
    let irq = snapshot.irqs.iter().find(|irq| irq.number == number).unwrap();
    assert!(irq.name.ends_with("-input.0"), "{}", irq.name);
    assert_eq!(snapshot.softnet.cpus.keys().copied().collect::<CpuSet>(), set("0-1"));
}
