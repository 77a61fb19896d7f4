//! Snapshots of this machine and of labs. Needs root.

use std::collections::BTreeSet;
use std::path::Path;

use udpath_host::interfaces::{Interface, Relation};
use udpath_host::namespace::{Place, inside};
use udpath_host::queues::Direction;
use udpath_host::snapshot::Snapshot;
use udpath_host::source::{Folder, Recorder};
use udpath_host::{Absence, Source};
use udpath_lab::{Lab, LabBuilder, LinkSpec, Machine, Offloads};
use udpath_netlink::netdev::{NapiChange, set_napi};
use udpath_netlink::{Generic, ethtool, numbers};
use udpath_steer::CpuSet;

fn pair(name: &str) -> Lab {
    let spec = LinkSpec::with_queues(4);
    LabBuilder::new(name).machine("client").machine("server").link("client", "server", &spec).up().unwrap()
}

fn snapshot_of(machine: &Machine) -> Snapshot {
    machine.run(|| Snapshot::read(&Folder::live())).unwrap()
}

fn interface<'a>(snapshot: &'a Snapshot, name: &str) -> &'a Interface {
    let names: Vec<_> = snapshot.interfaces.iter().map(|interface| &interface.name).collect();
    let found = snapshot.interfaces.iter().find(|interface| interface.name == name);
    found.unwrap_or_else(|| panic!("no {name} in {names:?}"))
}

fn write(machine: &Machine, path: &str, text: &str) {
    machine.run(|| std::fs::write(path, text)).unwrap().unwrap_or_else(|error| panic!("{path}: {error}"));
}

fn cpu(number: u32) -> CpuSet {
    CpuSet::from_iter([number])
}

#[test]
fn a_veth_is_read_as_it_was_set() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let lab = pair("t-host-veth");
    let server = lab.machine("server").unwrap();
    let eth0 = server.interface("eth0").unwrap();
    eth0.set_offloads(&Offloads { gro: true, ..Offloads::default() }).unwrap();
    eth0.set_xps(&[cpu(0), cpu(1), cpu(0), CpuSet::new()]).unwrap();
    write(server, "/sys/class/net/eth0/queues/rx-2/rps_cpus", "3");
    write(server, "/sys/class/net/eth0/queues/rx-3/rps_flow_cnt", "256");
    write(server, "/sys/class/net/eth0/napi_defer_hard_irqs", "2");
    write(server, "/sys/class/net/eth0/gro_flush_timeout", "150000");

    let snapshot = snapshot_of(server);
    assert_eq!(snapshot.interfaces.iter().map(|i| i.name.as_str()).collect::<Vec<_>>(), ["lo", "eth0"]);
    let read = interface(&snapshot, "eth0");
    assert_eq!((read.kind.as_str(), read.index, read.mtu), ("veth", eth0.ifindex(), eth0.mtu()));
    assert_eq!(read.address.as_deref(), Some(eth0.mac().to_string().as_str()));
    assert_eq!((read.link.up, read.link.carrier, read.link.state.as_deref()), (true, Some(true), Some("up")));
    let peer = Relation::Elsewhere { index: eth0.peer().ifindex, namespace: 0 };
    assert!(
        matches!(read.relations[..], [Relation::Elsewhere { index, .. }] if index == eth0.peer().ifindex),
        "{:?}, not {peer:?}",
        read.relations
    );
    assert_eq!(read.driver.as_ref().unwrap().value.name, "veth");
    let channels = read.channels.as_ref().unwrap().value;
    assert_eq!((channels.now.rx, channels.now.tx), (Some(4), Some(4)));
    let features = &read.features.as_ref().unwrap().value;
    assert!(features["rx-gro"].active && features["rx-gro"].changeable);
    assert_eq!(read.rx.iter().map(|queue| queue.id).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(read.rx[2].rps_cpus, Some(CpuSet::from_iter([0, 1])));
    assert_eq!((read.rx[0].rps_cpus.clone(), read.rx[3].rps_flow_cnt), (Some(CpuSet::new()), Some(256)));
    let xps: Vec<_> = read.tx.iter().map(|queue| queue.xps_cpus.clone().unwrap()).collect();
    assert_eq!(xps, eth0.xps().unwrap());
    assert_eq!(
        (read.napi_defaults.defer_hard_irqs, read.napi_defaults.gro_flush_timeout),
        (Some(2), Some(150_000))
    );
    // Software devices have no interrupts, no rings and no RSS, and this is reported.
    assert!(read.rx.iter().all(|queue| queue.irq.is_none()) && read.rings.is_none() && read.rss.is_none());
    // The kernel stamps its packets; the device has no clock.
    let offer = read.time_stamping_offer.as_ref().unwrap();
    assert_eq!(offer.from.to_string(), "ethtool netlink tsinfo-get");
    assert!(offer.value.kinds.contains("software-receive"), "{offer:?}");
    assert!(!offer.value.kinds.iter().any(|kind| kind.starts_with("hardware")), "{offer:?}");
    assert_eq!((offer.value.clock, &read.time_stamping), (None, &None));
    let lacks =
        |what: &str| snapshot.missing.iter().any(|m| m.what == what && m.why == Absence::NotSupported);
    assert!(lacks("rings of eth0") && lacks("RSS of eth0"), "{:#?}", snapshot.missing);
    lab.down().unwrap();
}

#[test]
fn qdiscs_and_their_drops_are_read() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let lab = pair("t-host-qdisc");
    let server = lab.machine("server").unwrap();
    let tc = |arguments: &[&str]| assert!(server.command("tc").args(arguments).status().unwrap().success());
    tc(&[
        "qdisc", "replace", "dev", "eth0", "root", "handle", "7:", "tbf", "rate", "8kbit", "burst", "200",
        "limit", "200",
    ]);
    let socket = server.run(|| std::net::UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    let there = lab.address_of("client", "server").unwrap().ipv4;
    for _ in 0..8 {
        socket.send_to(&[0; 100], (there, 9)).unwrap();
    }
    let snapshot = snapshot_of(server);
    let qdiscs = &interface(&snapshot, "eth0").qdiscs.as_ref().unwrap().value;
    let tbf = qdiscs.iter().find(|qdisc| qdisc.kind == "tbf").unwrap_or_else(|| panic!("{qdiscs:?}"));
    assert_eq!((tbf.handle.as_str(), tbf.parent.as_str()), ("7:", "root"));
    // 142 bytes on the wire: one fits the burst, one the queue, the rest is dropped.
    assert!(tbf.drops >= 5 && tbf.overlimits > 0, "{tbf:?}");
    let loopback = interface(&snapshot, "lo").qdiscs.as_ref().unwrap();
    assert!(loopback.value.iter().all(|qdisc| qdisc.interface == 1));
    lab.down().unwrap();
}

#[test]
fn a_change_of_channels_and_offloads_is_seen() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let lab = pair("t-host-set");
    let server = lab.machine("server").unwrap();
    let before = snapshot_of(server);
    server
        .run(|| {
            let mut generic = Generic::open().unwrap();
            let offloads = [("rx-gro", true), ("tx-scatter-gather", false)];
            ethtool::set(&mut generic, numbers::ETHTOOL_MSG_FEATURES_SET, "eth0", |body| {
                body.nest(numbers::ETHTOOL_A_FEATURES_WANTED, |set| ethtool::bitset::write(set, &offloads));
            })
            .unwrap();
            ethtool::set(&mut generic, numbers::ETHTOOL_MSG_CHANNELS_SET, "eth0", |body| {
                body.u32(numbers::ETHTOOL_A_CHANNELS_RX_COUNT, 2);
                body.u32(numbers::ETHTOOL_A_CHANNELS_TX_COUNT, 3);
            })
            .unwrap();
        })
        .unwrap();
    let after = snapshot_of(server);
    let (old, new) = (interface(&before, "eth0"), interface(&after, "eth0"));
    let now = new.channels.as_ref().unwrap().value.now;
    assert_eq!((now.rx, now.tx), (Some(2), Some(3)));
    assert_eq!((new.rx.len(), new.tx.len()), (2, 3));
    let active = |interface: &Interface, name: &str| interface.features.as_ref().unwrap().value[name].active;
    assert!(active(new, "rx-gro") && !active(new, "tx-scatter-gather"));
    assert!(!active(old, "rx-gro") && active(old, "tx-scatter-gather"));
    lab.down().unwrap();
}

#[test]
fn a_napi_instance_has_its_own_settings() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let lab = pair("t-host-napi");
    let server = lab.machine("server").unwrap();
    let eth0 = server.interface("eth0").unwrap();
    let _napi = eth0.ensure_napi().unwrap();
    let napis =
        |snapshot: &Snapshot| interface(snapshot, "eth0").napis.as_ref().map(|napis| napis.value.clone());
    let before = napis(&snapshot_of(server)).unwrap();
    assert_eq!(before.len(), 4);
    let change = NapiChange {
        defer_hard_irqs: Some(3),
        gro_flush_timeout: Some(5_000_000_000),
        ..NapiChange::default()
    };
    server.run(|| set_napi(&mut Generic::open().unwrap(), before[1].id, &change)).unwrap().unwrap();
    let after = napis(&snapshot_of(server)).unwrap();
    // More nanoseconds than fit in 32 bits.
    assert_eq!((after[1].defer_hard_irqs, after[1].gro_flush_timeout), (Some(3), Some(5_000_000_000)));
    assert_eq!((after[0], after[2], after[3]), (before[0], before[2], before[3]));
    let refused =
        server.run(|| set_napi(&mut Generic::open().unwrap(), u32::MAX, &change)).unwrap().unwrap_err();
    assert!(refused.to_string().starts_with("cannot set NAPI instance 4294967295: "), "{refused}");
    lab.down().unwrap();
}

#[test]
fn an_xdp_program_is_seen_with_its_mode() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let lab = pair("t-host-xdp");
    let server = lab.machine("server").unwrap();
    assert_eq!(interface(&snapshot_of(server), "eth0").xdp, None);
    let napi = server.interface("eth0").unwrap().ensure_napi().unwrap();
    let xdp = interface(&snapshot_of(server), "eth0").xdp.unwrap();
    assert!(xdp.driver.is_some() && xdp.generic.is_none() && xdp.hardware.is_none(), "{xdp:?}");
    drop(napi);
    assert_eq!(interface(&snapshot_of(server), "eth0").xdp, None);
    lab.down().unwrap();
}

#[test]
fn a_named_namespace_shows_what_its_own_thread_sees() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let lab = pair("t-host-inside");
    let server = lab.machine("server").unwrap();
    let named = Place::Named(server.namespace().to_owned());
    // Only the namespace's own values; the machine's counters keep running.
    let own_of = |snapshot: Snapshot| {
        (snapshot.interfaces, snapshot.steering, snapshot.packet_sockets, snapshot.udp.v4, snapshot.sysctls)
    };
    let there = own_of(inside(&named, || Snapshot::read(&Folder::live())).unwrap());
    let own = own_of(snapshot_of(server));
    assert_eq!(there, own);
    // The same for a process that lives in it.
    let mut sleeper = server.command("sleep").arg("60").spawn().unwrap();
    let process = inside(&Place::Process(sleeper.id()), || Snapshot::read(&Folder::live()));
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert_eq!(own_of(process.unwrap()), own);
    lab.down().unwrap();
}

/// A recorded source gives the same answers from files.
fn round_trip(source: &dyn Source) -> (Snapshot, Snapshot) {
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::new(source);
    let live = Snapshot::read(&recorder);
    recorder.write(folder.path()).unwrap();
    (live, Snapshot::read(&Folder::captured(folder.path())))
}

#[test]
fn a_capture_gives_the_same_snapshot() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let (live, captured) = round_trip(&Folder::live());
    assert!(live.interfaces.iter().any(|interface| interface.name == "lo"));
    assert_eq!(live, captured);
    let lab = pair("t-host-capture");
    let server = lab.machine("server").unwrap();
    let _napi = server.interface("eth0").unwrap().ensure_napi().unwrap();
    let (live, captured) = server.run(|| round_trip(&Folder::live())).unwrap();
    assert_eq!(interface(&live, "eth0").rx.len(), 4);
    assert_eq!(live, captured);
    // And through JSON.
    let json = serde_json::to_string(&live).unwrap();
    assert_eq!(serde_json::from_str::<Snapshot>(&json).unwrap(), live);
    lab.down().unwrap();
}

#[test]
fn every_device_of_this_machine_is_read() {
    udpath_lab::needs_root!();
    // A socket of another test that closes meanwhile would have no owner.
    let _turn = udpath_rig::alone();
    let snapshot = Snapshot::read(&Folder::live());
    let names: BTreeSet<_> = snapshot.interfaces.iter().map(|interface| interface.name.clone()).collect();
    let wanted: BTreeSet<_> = std::fs::read_dir("/sys/class/net")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| Path::new("/sys/class/net").join(name).is_dir())
        .collect();
    assert_eq!(names, wanted);
    for interface in &snapshot.interfaces {
        let name = &interface.name;
        assert!(!interface.rx.is_empty() && !interface.tx.is_empty(), "{name}");
        assert!(interface.features.as_ref().is_some_and(|features| features.value.len() > 40), "{name}");
        assert!(interface.statistics.contains_key("rx_packets"), "{name}");
        // A device with an interrupt per queue: the interrupt of each queue and its source are known.
        if interface.driver.as_ref().is_some_and(|driver| driver.value.name == "virtio_net") {
            assert!(interface.rx.iter().all(|queue| queue.irq.is_some()), "{name}: {:?}", interface.rx);
            assert!(interface.tx.iter().all(|queue| queue.irq.is_some()), "{name}: {:?}", interface.tx);
            let counters = interface.rx[0].counters.as_ref().unwrap();
            assert!(counters.value.contains_key("packets"), "{counters:?}");
        }
    }
    for missing in &snapshot.missing {
        assert!(
            matches!(missing.why, Absence::NotSupported | Absence::NotThere | Absence::Changed(_)),
            "{missing}"
        );
    }
    let queues: &dyn Source = &Folder::live();
    let queues = queues.queues().unwrap().value;
    assert!(queues.iter().any(|queue| queue.direction == Direction::Tx));
}

/// Drops all privileges of the calling thread.
fn become_nobody() {
    use rustix::thread::{Gid, Uid};
    let (nobody, nogroup) = (Uid::from_raw(65534), Gid::from_raw(65534));
    rustix::thread::set_thread_groups(&[]).unwrap();
    rustix::thread::set_thread_res_gid(nogroup, nogroup, nogroup).unwrap();
    rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
}

#[test]
fn an_unprivileged_user_sees_nearly_everything() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let lab = pair("t-host-nobody");
    let server = lab.machine("server").unwrap();
    let hidden = "/sys/class/net/eth0/queues/rx-1/rps_cpus";
    server
        .run(|| std::fs::set_permissions(hidden, std::os::unix::fs::PermissionsExt::from_mode(0o600)))
        .unwrap()
        .unwrap();
    let mut root = snapshot_of(server);
    let mut nobody = server
        .run(|| {
            become_nobody();
            Snapshot::read(&Folder::live())
        })
        .unwrap();
    let told: Vec<String> = nobody
        .missing
        .extract_if(.., |missing| matches!(missing.why, Absence::NotPermitted { .. }))
        .map(|missing| missing.to_string())
        .collect();
    let wanted = format!("rps_cpus of eth0 rx-1 ({hidden}): not permitted; root would show it");
    assert!(told.contains(&wanted), "{told:?}");
    let queues = |snapshot: &mut Snapshot| {
        let eth0 = snapshot.interfaces.iter_mut().find(|interface| interface.name == "eth0").unwrap();
        eth0.rx[1].rps_cpus.take()
    };
    assert_eq!((queues(&mut root), queues(&mut nobody)), (Some(CpuSet::new()), None));
    // Everything else about interfaces is the same; machine.rs covers what is hidden of the machine.
    let shown = |snapshot: Snapshot| (snapshot.interfaces, snapshot.steering, snapshot.packet_sockets);
    assert_eq!(shown(root), shown(nobody));
    lab.down().unwrap();
}

#[test]
fn a_tap_is_seen() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let lab = pair("t-host-tap");
    let server = lab.machine("server").unwrap();
    assert_eq!(snapshot_of(server).packet_sockets.sockets, []);
    // A packet socket for everything (ETH_P_ALL), on all interfaces.
    let everything =
        rustix::net::Protocol::from_raw(std::num::NonZeroU32::new(u32::from(3_u16.to_be())).unwrap());
    let family = rustix::net::AddressFamily::PACKET;
    let socket = server.run(|| rustix::net::socket(family, rustix::net::SocketType::RAW, Some(everything)));
    let socket = socket.unwrap().unwrap();
    let found = snapshot_of(server).packet_sockets;
    let inode = rustix::fs::fstat(&socket).unwrap().st_ino;
    let [socket] = found.sockets[..] else { panic!("{found:?}") };
    assert_eq!(
        (socket.kind, socket.protocol, socket.interface, socket.running, socket.inode),
        (3, 3, 0, true, inode)
    );
    assert!(found.handlers.iter().any(|handler| handler.kind == "ALL"), "{found:?}");
    lab.down().unwrap();
}

#[test]
fn a_bridge_and_its_port_know_each_other() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let lab = pair("t-host-bridge");
    let server = lab.machine("server").unwrap();
    let ip = |arguments: &[&str]| assert!(server.command("ip").args(arguments).status().unwrap().success());
    ip(&["link", "add", "br0", "type", "bridge"]);
    // A pair with both ends here: one is the bridge port.
    ip(&["link", "add", "port0", "type", "veth", "peer", "name", "host0"]);
    ip(&["link", "set", "port0", "master", "br0"]);
    let snapshot = snapshot_of(server);
    let related = |name: &str| interface(&snapshot, name).relations.clone();
    assert_eq!(interface(&snapshot, "br0").kind, "bridge");
    assert_eq!(related("br0"), [Relation::Lower("port0".into())]);
    assert_eq!(related("port0"), [Relation::Peer("host0".into()), Relation::Upper("br0".into())]);
    assert_eq!(related("host0"), [Relation::Peer("port0".into())]);
    lab.down().unwrap();
}
