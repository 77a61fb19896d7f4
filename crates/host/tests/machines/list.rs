//! The machines. Known facts about each, and their sources, are in `fixtures/made-up/NAME/NOTES.md`.

use serde_json::{Value, json};
use udpath_steer::CpuSet;

use super::{Device, Interface, Irq, Machine, Server};

/// All of them.
pub fn all() -> Vec<Machine> {
    vec![
        ixgbe_as_found(),
        ixgbe_steered(),
        i40e(),
        ice_six_nodes(),
        mlx5_doubled(),
        virtio_one_queue(),
        virtio_many(),
        ena(),
        gvnic(),
        netvsc(),
        veth(),
        bond(),
        vlan_on_bond(),
        igb_offline(),
    ]
}

fn set(list: &str) -> CpuSet {
    list.parse().unwrap()
}

/// A server in its own unit.
pub(super) fn server(pid: u32, name: &'static str, executable: &'static str, sockets: u32) -> Server {
    let group = format!("/system.slice/{name}.service");
    let inodes = 19_000..19_000 + sockets;
    Server { pid, name, executable, group, uid: 101, threads: sockets, inodes, port: 53, drops: 5 }
}

/// A machine with common defaults.
pub(super) fn machine(name: &'static str, release: &'static str, cpus: u32, nodes: &[&str]) -> Machine {
    Machine {
        name,
        release,
        cpus,
        offline: CpuSet::new(),
        nodes: nodes.iter().map(|node| set(node)).collect(),
        threads: 1,
        platform: ("Dell Inc.", "PowerEdge R630"),
        model: "Intel(R) Xeon(R) CPU E5-2650 v3 @ 2.30GHz",
        interfaces: Vec::new(),
        servers: vec![server(900, "nsd", "/usr/sbin/nsd", 4)],
        namespace: false,
    }
}

/// A device with a receive and a transmit queue per interrupt; `irq`: number of the first interrupt.
pub(super) fn device(
    name: &'static str,
    index: u32,
    device: Device,
    queues: u32,
    irq: u32,
    label: impl Fn(u32) -> String,
    cpu: impl Fn(u32) -> u32,
) -> Interface {
    let one = |queue: u32| Irq {
        number: irq + queue,
        name: label(queue),
        affinity: [cpu(queue)].into_iter().collect(),
        hint: None,
        count: 1_000_000 + queue,
    };
    let driver = device.driver;
    let irqs: Vec<Irq> = (0..queues).map(one).collect();
    Interface {
        name,
        index,
        device: Some(device),
        rx: queues,
        tx: queues,
        irqs,
        answers: vec![("driver", json!({"name": driver})), combined(queues, 64)],
        ..Interface::default()
    }
}

fn combined(now: u32, max: u32) -> (&'static str, Value) {
    ("channels", json!({"now": {"combined": now}, "max": {"combined": max}}))
}

/// The 20-core server of Makita, LinuxCon Japan 2016, as it was found.
fn ixgbe() -> Machine {
    /// `smp_affinity` of IRQs 105 to 124: all on node 0.
    const FOUND: [u32; 20] = [
        0x01000, 0x00800, 0x00400, 0x00400, 0x01000, 0x04000, 0x00400, 0x00010, 0x00004, 0x02000, 0x04000,
        0x00001, 0x02000, 0x01000, 0x00008, 0x00800, 0x00800, 0x04000, 0x00800, 0x02000,
    ];
    /// `rx_queue_N_packets`.
    const PACKETS: [u64; 20] = [
        198_005_155,
        153_339_750,
        162_870_095,
        172_303_801,
        153_728_776,
        158_138_563,
        164_411_653,
        165_924_489,
        176_545_406,
        165_340_188,
        150_279_834,
        150_983_782,
        157_623_687,
        150_743_910,
        158_634_344,
        158_497_890,
        4,
        3,
        0,
        8,
    ];
    let on = Device { driver: "ixgbe", bus: "0000:81:00.0", node: 0 };
    let label = |queue| format!("ens1f0-TxRx-{queue}");
    let mut ens1f0 = device("ens1f0", 2, on, 20, 105, label, |queue| FOUND[queue as usize].trailing_zeros());
    for (queue, irq) in (0..).zip(&mut ens1f0.irqs) {
        irq.hint = Some([queue].into_iter().collect());
    }
    let table: Vec<u32> = (0..128).map(|entry| entry % 16).collect();
    let counters: serde_json::Map<_, _> = (0..)
        .zip(PACKETS)
        .map(|(queue, count)| (format!("rx_queue_{queue}_packets"), count.into()))
        .collect();
    ens1f0.answers.extend([
        ("rss", json!({"main": {"table": table}})),
        ("hash-fields", json!({"udp4": "sdfn", "udp6": "sd"})),
        ("driver-counters", counters.into()),
    ]);
    Machine {
        interfaces: vec![ens1f0],
        servers: vec![Server { threads: 20, ..server(4000, "echo", "/root/echo", 1) }],
        ..machine("ixgbe-as-found", "4.6.3-300.el7.x86_64", 20, &["0-4,10-14", "5-9,15-19"])
    }
}

fn ixgbe_as_found() -> Machine {
    ixgbe()
}

/// The same, after its author configured irqbalance to follow the hints and wrote RPS masks manually.
fn ixgbe_steered() -> Machine {
    let mut steered = Machine { name: "ixgbe-steered", ..ixgbe() };
    let ens1f0 = &mut steered.interfaces[0];
    for irq in &mut ens1f0.irqs {
        irq.affinity = irq.hint.clone().unwrap();
    }
    ens1f0.rps = vec![(6, "10040"), (7, "20080"), (8, "40100"), (9, "80200")];
    steered
}

fn i40e() -> Machine {
    let on = Device { driver: "i40e", bus: "0000:3b:00.1", node: 1 };
    let label = |queue| format!("i40e-eth2-TxRx-{queue}");
    let mut eth2 = device("eth2", 3, on, 32, 140, label, |queue| queue);
    // `ethtool -N eth2 flow-type udp4 dst-ip 192.0.2.1 dst-port 53 action 7 loc 1023`, and one that drops a network.
    let exact = json!({"value": "192.0.2.1", "mask": "255.255.255.255"});
    let port = json!({"value": 53, "mask": 65535});
    let network = json!({"value": "198.51.100.0", "mask": "255.255.255.0"});
    let table: Vec<u32> = (0..512).map(|entry| entry % 32).collect();
    eth2.answers.extend([
        (
            "rss",
            json!({"main": {"table": table, "key": vec!["6d:5a"; 26].join(":"), "function": "toeplitz"}}),
        ),
        ("hash-fields", json!({"udp4": "sdfn", "udp6": "sdfn"})),
        (
            "flow-rules",
            json!([
                {"location": 1023, "flow": "udp4", "destination": exact, "destination_port": port,
                 "action": {"queue": {"queue": 7, "vf": 0}}},
                {"location": 12, "flow": "udp4", "source": network, "action": "drop"},
            ]),
        ),
    ]);
    Machine {
        interfaces: vec![eth2],
        threads: 2,
        model: "Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz",
        ..machine("i40e", "6.1.0-18-amd64", 32, &["0-7,16-23", "8-15,24-31"])
    }
}

fn ice_six_nodes() -> Machine {
    let on = Device { driver: "ice", bus: "0000:af:00.0", node: 4 };
    let label = |queue| format!("ice-ens801f0-TxRx-{queue}");
    let nodes =
        ["0-15,96-111", "16-31,112-127", "32-47,128-143", "48-63,144-159", "64-79,160-175", "80-95,176-191"];
    let mut ens801f0 = device("ens801f0", 4, on, 64, 200, label, |queue| 3 * queue);
    let kinds = ["hardware-raw-clock", "hardware-receive", "hardware-transmit", "software-receive"];
    ens801f0.answers.extend([
        (
            "time-stamping-offer",
            json!({"kinds": kinds, "tx": ["off", "on"], "rx": ["none", "all"], "clock": 0}),
        ),
        ("time-stamping", json!({"tx": "on", "rx": "all"})),
    ]);
    Machine {
        interfaces: vec![ens801f0],
        threads: 2,
        model: "Intel(R) Xeon(R) 6985P-C",
        ..machine("ice-six-nodes", "6.12.0-55.el10.x86_64", 192, &nodes)
    }
}

/// 12 channels, 24 receive queues in sysfs: the second half is for AF_XDP sockets.
fn mlx5_doubled() -> Machine {
    let on = Device { driver: "mlx5_core", bus: "0000:01:00.0", node: 0 };
    let label = |queue| format!("mlx5_comp{queue}@pci:0000:01:00.0");
    let eth0 = device("eth0", 2, on, 12, 60, label, |queue| queue);
    Machine {
        interfaces: vec![Interface { rx: 24, ..eth0 }],
        model: "AMD EPYC 7402P 24-Core Processor",
        ..machine("mlx5-doubled", "5.15.0-91-generic", 24, &["0-23"])
    }
}

/// virtio: an interrupt for each direction of a queue, and one for configuration changes.
fn virtio(index: u32, queues: u32, irq: u32, cpus: u32) -> Interface {
    let on = Device { driver: "virtio_net", bus: "virtio2", node: -1 };
    let label = |at: u32| match at {
        0 => "virtio2-config".to_owned(),
        at if at % 2 == 1 => format!("virtio2-input.{}", at / 2),
        at => format!("virtio2-output.{}", at / 2 - 1),
    };
    let all = device("eth0", index, on, 2 * queues + 1, irq, label, |at| at.saturating_sub(1) / 2 % cpus);
    let answers = vec![("driver", json!({"name": "virtio_net", "bus": "virtio2"})), combined(queues, queues)];
    Interface { rx: queues, tx: queues, answers, ..all }
}

fn virtio_one_queue() -> Machine {
    Machine {
        interfaces: vec![virtio(2, 1, 37, 2)],
        platform: ("", ""),
        model: "AMD EPYC",
        ..machine("virtio-one-queue", "6.18.44-amd64", 2, &["0-1"])
    }
}

fn virtio_many() -> Machine {
    Machine {
        interfaces: vec![virtio(2, 16, 40, 16)],
        platform: ("QEMU", "Standard PC (Q35 + ICH9, 2009)"),
        ..machine("virtio-many", "6.12.107-amd64", 16, &["0-7", "8-15"])
    }
}

fn ena() -> Machine {
    let on = Device { driver: "ena", bus: "0000:00:05.0", node: -1 };
    let mut eth0 = device("eth0", 2, on, 8, 50, |queue| format!("eth0-Tx-Rx-{queue}"), |queue| queue);
    let management = "ena-mgmnt@pci:0000:00:05.0".to_owned();
    eth0.irqs.push(Irq { number: 58, name: management, affinity: set("0-7"), hint: None, count: 1 });
    Machine {
        interfaces: vec![eth0],
        platform: ("Amazon EC2", "c7i.2xlarge"),
        model: "Intel(R) Xeon(R) Platinum 8488C",
        ..machine("ena", "6.1.119-129.201.amzn2023.x86_64", 8, &["0-7"])
    }
}

/// Notification blocks: those of the transmit queues come first.
fn gvnic() -> Machine {
    let on = Device { driver: "gve", bus: "0000:00:04.0", node: -1 };
    let label = |block| format!("gve-ntfy-blk{block}@pci:0000:00:04.0");
    let mut eth0 = device("eth0", 2, on, 16, 30, label, |block| block % 8);
    eth0.answers = vec![
        ("driver", json!({"name": "gve"})),
        ("channels", json!({"now": {"rx": 8, "tx": 8}, "max": {"rx": 8, "tx": 8}})),
    ];
    Machine {
        interfaces: vec![Interface { rx: 8, tx: 8, ..eth0 }],
        platform: ("Google", "Google Compute Engine"),
        ..machine("gvnic", "6.1.0-28-cloud-amd64", 8, &["0-7"])
    }
}

/// A synthetic device without kernel-managed interrupts, and the virtual function that carries its packets.
fn netvsc() -> Machine {
    let eth0 = Interface {
        name: "eth0",
        index: 2,
        device: Some(Device { driver: "hv_netvsc", bus: "000d3a00-0000-0000-0000-000d3a000000", node: -1 }),
        rx: 8,
        tx: 64,
        answers: vec![("driver", json!({"name": "hv_netvsc"})), combined(8, 8)],
        ..Interface::default()
    };
    let on = Device { driver: "mlx5_core", bus: "4b8c:00:02.0", node: 0 };
    let label = |queue| format!("mlx5_comp{queue}@pci:4b8c:00:02.0");
    let vf = Interface { master: Some(2), ..device("enP19340s1", 3, on, 4, 24, label, |queue| queue) };
    Machine {
        interfaces: vec![eth0, vf],
        platform: ("Microsoft Corporation", "Virtual Machine"),
        ..machine("netvsc", "6.2.0-1018-azure", 8, &["0-7"])
    }
}

/// A container: a separate namespace, in which the host's settings are not visible.
fn veth() -> Machine {
    let eth0 = Interface {
        name: "eth0",
        index: 5,
        kind: Some("veth"),
        rx: 1,
        tx: 1,
        below: Some(6),
        answers: vec![
            ("driver", json!({"name": "veth"})),
            ("channels", json!({"now": {"rx": 1, "tx": 1}, "max": {"rx": 1, "tx": 1}})),
        ],
        ..Interface::default()
    };
    let id = "0f3a".repeat(16);
    let contained = Server {
        group: format!("/system.slice/docker-{id}.scope"),
        ..server(7, "knotd", "/usr/sbin/knotd", 4)
    };
    Machine {
        interfaces: vec![eth0],
        servers: vec![contained],
        namespace: true,
        ..machine("veth", "6.8.0-31-generic", 4, &["0-3"])
    }
}

fn bond() -> Machine {
    let port = |name: &'static str, index, bus, irq| {
        let on = Device { driver: "i40e", bus, node: 0 };
        let label = move |queue| format!("i40e-{name}-TxRx-{queue}");
        Interface { master: Some(4), ..device(name, index, on, 8, irq, label, |queue| queue) }
    };
    let bond0 = Interface {
        name: "bond0",
        index: 4,
        kind: Some("bond"),
        rx: 16,
        tx: 16,
        answers: vec![("driver", json!({"name": "bonding"}))],
        ..Interface::default()
    };
    Machine {
        interfaces: vec![port("eth0", 2, "0000:3b:00.0", 70), port("eth1", 3, "0000:3b:00.1", 80), bond0],
        ..machine("bond", "5.14.0-427.el9.x86_64", 16, &["0-7", "8-15"])
    }
}

fn vlan_on_bond() -> Machine {
    let mut machine = Machine { name: "vlan-on-bond", ..bond() };
    let above = |name, index, vlan| Interface {
        name,
        index,
        kind: Some("vlan"),
        rx: 1,
        tx: 1,
        below: Some(4),
        vlan: Some(vlan),
        answers: vec![("driver", json!({"name": "802.1Q VLAN Support"}))],
        ..Interface::default()
    };
    machine.interfaces.extend([above("bond0.1", 5, 1), above("bond0.10", 6, 10)]);
    machine
}

/// An old kernel with offline CPUs: unnamed softnet rows, columns with gaps.
fn igb_offline() -> Machine {
    let on = Device { driver: "igb", bus: "0000:04:00.0", node: 0 };
    let label = |queue| format!("em1-TxRx-{queue}");
    Machine {
        interfaces: vec![device("em1", 2, on, 4, 60, label, |queue| [0, 1, 4, 5][queue as usize])],
        offline: set("2-3"),
        ..machine("igb-offline", "3.10.0-1160.el7.x86_64", 8, &["0-3", "4-7"])
    }
}
