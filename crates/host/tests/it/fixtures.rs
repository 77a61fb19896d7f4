//! Machines of many kinds, read from captured folders.

use std::path::Path;

use udpath_host::interfaces::{FlowAction, Relation, RssContext};
use udpath_host::irqs::Irq;
use udpath_host::map::{Map, Selection};
use udpath_host::source::Folder;
use udpath_host::tables::tables;
use udpath_host::{Absence, Snapshot};
use udpath_steer::predict::{Predictor, Why};
use udpath_steer::{CpuSet, Flow};

use crate::machines::{self, Machine, list};

fn read(machine: &Machine) -> Snapshot {
    let folder = machines::folder();
    machine.write(folder.path());
    Snapshot::read(&Folder::captured(folder.path()))
}

fn find(name: &str) -> Snapshot {
    read(list::all().iter().find(|machine| machine.name == name).unwrap())
}

fn set(list: &str) -> CpuSet {
    list.parse().unwrap()
}

fn irq<'a>(snapshot: &'a Snapshot, name: &str) -> &'a Irq {
    snapshot.irqs.iter().find(|irq| irq.name == name).unwrap()
}

#[test]
fn every_machine_is_understood_and_survives_json() {
    for machine in list::all() {
        let snapshot = read(&machine);
        let name = machine.name;
        for missing in &snapshot.missing {
            let garbled = matches!(missing.why, Absence::NotUnderstood(_) | Absence::Failed(_));
            assert!(!garbled, "{name}: {missing}");
        }
        assert_eq!(snapshot.kernel.release, machine.release, "{name}");
        assert_eq!(snapshot.kernel.version(), Some(machine.version()), "{name}");
        assert_eq!(snapshot.cpus.online, machine.online(), "{name}");
        assert_eq!(snapshot.nodes.len(), machine.nodes.len(), "{name}");
        let irqs: usize = machine.interfaces.iter().map(|interface| interface.irqs.len()).sum();
        assert_eq!(snapshot.irqs.len(), irqs, "{name}");
        let rows: CpuSet = snapshot.softnet.cpus.keys().copied().collect();
        assert_eq!(rows, machine.online(), "{name}");
        let sockets: usize = machine.servers.iter().map(|server| server.inodes.len()).sum();
        assert_eq!(snapshot.sockets.list.len(), sockets, "{name}");
        assert!(snapshot.sockets.list.iter().all(|socket| socket.owners.len() == 1), "{name}");
        let json = serde_json::to_string(&snapshot).unwrap();
        assert_eq!(serde_json::from_str::<Snapshot>(&json).unwrap(), snapshot, "{name}");
    }
}

/// The number of the interrupt that serves a receive queue, by its driver's name for it.
#[test]
fn queues_find_their_interrupts() {
    for (machine, interface, queue, interrupt) in [
        ("ixgbe-as-found", "ens1f0", 19, "ens1f0-TxRx-19"),
        ("i40e", "eth2", 31, "i40e-eth2-TxRx-31"),
        ("ice-six-nodes", "ens801f0", 63, "ice-ens801f0-TxRx-63"),
        ("mlx5-doubled", "eth0", 11, "mlx5_comp11@pci:0000:01:00.0"),
        ("virtio-one-queue", "eth0", 0, "virtio2-input.0"),
        ("virtio-many", "eth0", 15, "virtio2-input.15"),
        ("ena", "eth0", 7, "eth0-Tx-Rx-7"),
        ("gvnic", "eth0", 0, "gve-ntfy-blk8@pci:0000:00:04.0"),
        ("netvsc", "enP19340s1", 3, "mlx5_comp3@pci:4b8c:00:02.0"),
        ("bond", "eth1", 7, "i40e-eth1-TxRx-7"),
        ("igb-offline", "em1", 2, "em1-TxRx-2"),
    ] {
        let snapshot = find(machine);
        let interface = snapshot.interfaces.iter().find(|one| one.name == interface).unwrap();
        let found = interface.rx[queue].irq.as_ref().map(|irq| irq.value);
        assert_eq!(found, Some(irq(&snapshot, interrupt).number), "{machine}");
        let none = |missing: &&udpath_host::Missing| missing.what.contains("interrupts of the queues");
        assert_eq!(snapshot.missing.iter().find(none), None, "{machine}");
    }
}

#[test]
fn interfaces_on_top_of_others() {
    let snapshot = find("vlan-on-bond");
    let interface = |name: &str| snapshot.interfaces.iter().find(|one| one.name == name).unwrap();
    let lower = |name: &str| Relation::Lower(name.into());
    assert_eq!((interface("bond0.10").vlan, interface("bond0.1").vlan), (Some(10), Some(1)));
    assert!(interface("bond0.1").relations.contains(&lower("bond0")));
    let bond = &interface("bond0").relations;
    assert!(bond.contains(&lower("eth0")) && bond.contains(&lower("eth1")), "{bond:?}");
    // Twice as many receive queues as channels: the second half is for AF_XDP.
    let doubled = find("mlx5-doubled");
    let eth0 = doubled.interfaces.iter().find(|one| one.name == "eth0").unwrap();
    assert_eq!(eth0.rx.iter().map(|queue| queue.xsk).collect::<Vec<_>>(), [[false; 12], [true; 12]].concat());
}

#[test]
fn every_machine_says_where_it_is_from() {
    for machine in list::all() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/fixtures/made-up")
            .join(machine.name)
            .join("NOTES.md");
        assert!(std::fs::read_to_string(&path).is_ok_and(|text| text.len() > 100), "{}", path.display());
    }
}

/// A server as it was found (Makita, LinuxCon Japan 2016): all interrupts on node 0, and a hint that is not followed.
#[test]
fn interrupts_of_one_node_only() {
    let snapshot = find("ixgbe-as-found");
    let node = &snapshot.nodes[0];
    assert_eq!(node.cpus, set("0-4,10-14"));
    let used = snapshot.irqs.iter().fold(CpuSet::new(), |all, irq| all.union(irq.affinity.as_ref().unwrap()));
    assert!(used.is_subset(&node.cpus), "{used}");
    let queue_3 = irq(&snapshot, "ens1f0-TxRx-3");
    assert_eq!((queue_3.number, queue_3.chip.as_str()), (108, "IR-PCI-MSI"));
    assert_eq!((queue_3.affinity.clone(), queue_3.hint.clone()), (Some(set("10")), Some(set("3"))));
    // This kernel does not report the effective affinity.
    assert_eq!(queue_3.effective, None);
    let busy = |cpu: u32| snapshot.cpus.cpu(cpu).unwrap().ticks.unwrap().softirq > 100_000;
    let busy: CpuSet = (0..20).filter(|cpu| busy(*cpu)).collect();
    assert_eq!(busy, node.cpus);
    // After configuring it to follow the hints.
    let steered = find("ixgbe-steered");
    assert!(steered.irqs.iter().all(|irq| irq.affinity == irq.hint && irq.hint.is_some()));
}

#[test]
fn offline_cpus_leave_holes() {
    let snapshot = find("igb-offline");
    assert_eq!(snapshot.cpus.online, set("0-1,4-7"));
    assert_eq!(snapshot.softnet.cpus.keys().copied().collect::<CpuSet>(), set("0-1,4-7"));
    assert_eq!(snapshot.softnet.cpus[&4].received_rps, Some(0));
    assert_eq!(snapshot.softnet.cpus[&4].flow_limit, None);
    let (two, four) = (snapshot.cpus.cpu(2).unwrap(), snapshot.cpus.cpu(4).unwrap());
    assert!(!two.online && two.siblings.is_empty() && two.ticks.is_none());
    assert_eq!((four.node, four.package), (Some(1), Some(1)));
    assert_eq!(irq(&snapshot, "em1-TxRx-2").counts.iter().collect::<Vec<_>>(), [(&4, &1_000_002)]);
    assert_eq!(snapshot.cpus.caches, [set("0-1"), set("4-7")]);
}

#[test]
fn six_nodes_with_two_threads_to_a_core() {
    let snapshot = find("ice-six-nodes");
    assert_eq!(snapshot.nodes.len(), 6);
    assert_eq!(snapshot.nodes[4].distance[&4], 10);
    let cpu = snapshot.cpus.cpu(100).unwrap();
    assert_eq!((cpu.node, cpu.siblings.clone()), (Some(0), set("4,100")));
    let last = irq(&snapshot, "ice-ens801f0-TxRx-63");
    assert_eq!((last.affinity.clone(), last.node), (Some(set("189")), Some(4)));
    assert_eq!(snapshot.cpus.idle.len(), 1);
    assert_eq!(snapshot.cpus.frequencies.len(), 1);
    assert_eq!(snapshot.cpus.frequencies[0].cpus, set("0-191"));
}

#[test]
fn flow_rules_come_before_the_hash() {
    let mut snapshot = find("i40e");
    let decide = |snapshot: &Snapshot, from: &str, to: &str| {
        let eth2 = snapshot.interfaces.iter().find(|one| one.name == "eth2").unwrap();
        let flow = Flow::udp(from.parse().unwrap(), to.parse().unwrap()).unwrap();
        Predictor::new(&tables(snapshot, eth2)).unwrap().decide(&flow)
    };
    let path = decide(&snapshot, "192.0.2.7:4000", "192.0.2.1:53");
    assert_eq!((path.queue.value, path.queue.why), (Some(7), Why::Rule { location: 1023 }));
    assert_eq!((path.irq.value, path.cpu.value), (Some(147), Some(7)));
    let path = decide(&snapshot, "192.0.2.7:4000", "192.0.2.1:54");
    assert!(matches!(path.queue.why, Why::Entry { of: 512, .. }), "{}", path.queue.why);
    // The lower location takes precedence.
    let path = decide(&snapshot, "198.51.100.9:4000", "192.0.2.1:53");
    assert_eq!((path.queue.value, path.queue.why), (None, Why::RuleDrops { location: 12 }));
    // The same rule for an additional context, as reported by kernels since 6.12.
    let eth2 = snapshot.interfaces.iter_mut().find(|one| one.name == "eth2").unwrap();
    let rules = &mut eth2.flow_rules.as_mut().unwrap().value;
    rules[0].action = FlowAction::Context { context: 1, queue: 0 };
    let context = RssContext { table: vec![30, 31, 30, 31], ..RssContext::default() };
    eth2.rss.as_mut().unwrap().value.contexts.insert(1, context);
    let path = decide(&snapshot, "192.0.2.7:4000", "192.0.2.1:53");
    assert!(matches!(path.queue.value, Some(30 | 31)), "{path:?}");
    assert!(path.queue.why.to_string().starts_with("ntuple rule 1023: entry "), "{}", path.queue.why);
}

/// With an AF_XDP socket on each queue the number of queues stays the same; a half reserved for AF_XDP does not count.
#[test]
fn af_xdp_queues_do_not_prevent_predictions() {
    let mut snapshot = find("i40e");
    snapshot.interfaces.iter_mut().flat_map(|one| &mut one.rx).for_each(|queue| queue.xsk = true);
    let doubled = find("mlx5-doubled");
    for (snapshot, name, queues) in [(&snapshot, "eth2", 32), (&doubled, "eth0", 12)] {
        let interface = snapshot.interfaces.iter().find(|one| one.name == name).unwrap();
        let tables = tables(snapshot, interface);
        assert_eq!((tables.queues, tables.receive.len()), (Some(queues), queues as usize));
        tables.check().unwrap();
    }
}

/// A time daemon runs, and the driver supports no filter but all.
#[test]
fn a_device_that_stamps_every_packet_has_its_clock_in_the_map() {
    let snapshot = find("ice-six-nodes");
    let map = Map::new(&snapshot, None, &Selection::All).unwrap();
    let interface = map.interfaces.iter().find(|one| one.name == "ens801f0").unwrap();
    let set = interface.time_stamping.as_ref().unwrap();
    assert_eq!((set.tx.as_str(), set.rx.as_str(), set.clock), ("on", "all", Some(0)));
    let fact = &snapshot.interfaces.iter().find(|one| one.name == "ens801f0").unwrap().time_stamping;
    assert_eq!(fact.as_ref().unwrap().from.to_string(), "ioctl SIOCGHWTSTAMP");
    let plain = find("i40e");
    assert!(plain.interfaces.iter().all(|one| one.time_stamping.is_none()));
    assert!(!plain.missing.iter().any(|missing| missing.what.contains("time stamp")), "{:?}", plain.missing);
}

#[test]
fn hypervisors_by_name() {
    for (name, hypervisor) in [
        ("ena", Some("Amazon EC2")),
        ("gvnic", Some("Google Compute Engine")),
        ("netvsc", Some("Hyper-V")),
        ("virtio-many", Some("QEMU/KVM")),
        ("virtio-one-queue", Some("unknown")),
        ("i40e", None),
    ] {
        let found = find(name).kernel.hypervisor.map(|fact| fact.value);
        assert_eq!(found.as_deref(), hypervisor, "{name}");
    }
}

#[test]
fn a_container_is_identified_and_host_settings_are_reported() {
    let snapshot = find("veth");
    let process = &snapshot.sockets.processes[0];
    let container = process.container.as_ref().unwrap();
    assert_eq!((container.runtime.as_str(), container.id.len()), ("docker", 64));
    let hidden =
        |missing: &udpath_host::Missing| missing.what.contains("only in the initial network namespace");
    assert!(snapshot.missing.iter().any(hidden), "{:?}", snapshot.missing);
    assert!(!find("i40e").missing.iter().any(hidden));
}

#[test]
fn a_reuseport_group_and_its_owner() {
    let snapshot = find("i40e");
    let [group] = &snapshot.sockets.groups[..] else { panic!("{:?}", snapshot.sockets.groups) };
    assert_eq!((group.port, group.members.len(), group.uid), (53, 4, 101));
    let process = snapshot.sockets.process(900).unwrap();
    assert_eq!((process.name.as_str(), process.unit.as_deref()), ("nsd", Some("nsd.service")));
    assert_eq!(
        process.threads.iter().map(|thread| thread.last_cpu).collect::<Vec<_>>(),
        [0, 1, 2, 3].map(Some)
    );
    assert_eq!(snapshot.sockets.list[0].drops, 5);
}

#[test]
fn many_sockets_find_their_owners() {
    let snapshot = read(&machines::big::big(16, 16, 250));
    let sockets = &snapshot.sockets;
    assert_eq!((sockets.list.len(), sockets.processes.len(), sockets.groups.len()), (250, 3, 3));
    assert_eq!(sockets.groups.iter().map(|group| group.members.len()).collect::<Vec<_>>(), [100, 100, 50]);
    for socket in &sockets.list {
        let process = sockets.process(socket.owners[0].pid).unwrap();
        assert_eq!((socket.inode - 100_000) / 100, (process.pid - 1_000) / 50);
    }
}
