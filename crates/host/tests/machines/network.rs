//! Interfaces: sysfs, and the kernel's answers about them.

use serde_json::{Value, json};
use udpath_steer::CpuSet;

use super::{Interface, Machine, Tree};

pub(super) fn write(machine: &Machine, tree: &Tree) {
    let lo = json!({"index": 1, "name": "lo", "loopback": true, "up": true, "mtu": 65536});
    let links: Vec<Value> = std::iter::once(lo).chain(machine.interfaces.iter().map(link)).collect();
    tree.answer("links", &json!(links), &json!({"route": "RTM_GETLINK"}));
    tree.answer("time", &json!(1_700_000_600_000_u64), &json!({"derived": "the clock"}));
    tree.answer("qdiscs", &json!([]), &json!({"route": "RTM_GETQDISC"}));
    sysfs(machine, tree, &Interface { name: "lo", index: 1, rx: 1, tx: 1, ..Interface::default() });
    for interface in &machine.interfaces {
        sysfs(machine, tree, interface);
        for (question, value) in &interface.answers {
            let from = match *question {
                "driver" => json!({"ethtool-ioctl": "ETHTOOL_GDRVINFO"}),
                "driver-counters" => json!({"ethtool-ioctl": "ETHTOOL_GSTATS"}),
                "rss" => json!({"ethtool-ioctl": "ETHTOOL_GRSSH"}),
                "hash-fields" => json!({"ethtool-ioctl": "ETHTOOL_GRXFH"}),
                "time-stamping-offer" => json!({"ethtool": "tsinfo-get"}),
                "flow-rules" => json!({"ethtool-ioctl": "ETHTOOL_GRXCLSRULE"}),
                "time-stamping" => json!({"device-ioctl": "SIOCGHWTSTAMP"}),
                question => json!({"ethtool": format!("{question}-get")}),
            };
            tree.answer(&format!("{question}/{}", interface.name), value, &from);
        }
    }
}

fn link(interface: &Interface) -> Value {
    let mut link = json!({
        "index": interface.index, "name": interface.name, "up": true, "carrier": true, "mtu": 1500,
        "tx_queue_len": 1000, "address": address(interface),
    });
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            link[key] = value;
        }
    };
    set("kind", interface.kind.map(Value::from));
    set("master", interface.master.map(Value::from));
    set("link", interface.below.map(Value::from));
    set("vlan", interface.vlan.map(Value::from));
    link
}

/// In the range for documentation (RFC 7042).
fn address(interface: &Interface) -> String {
    format!("00:00:5e:00:53:{:02x}", interface.index)
}

fn sysfs(machine: &Machine, tree: &Tree, interface: &Interface) {
    let Interface { name, index, .. } = interface;
    let at = |file: &str| format!("sys/class/net/{name}/{file}");
    tree.file(at("ifindex"), index.to_string());
    tree.file(at("iflink"), interface.below.unwrap_or(*index).to_string());
    tree.file(at("type"), if *index == 1 { "772" } else { "1" });
    tree.file(at("flags"), if *index == 1 { "0x9" } else { "0x1003" });
    tree.file(at("address"), if *index == 1 { "00:00:00:00:00:00".to_owned() } else { address(interface) });
    tree.file(at("mtu"), if *index == 1 { "65536" } else { "1500" });
    tree.file(at("carrier"), "1");
    tree.file(at("operstate"), if *index == 1 { "unknown" } else { "up" });
    tree.file(at("tx_queue_len"), "1000");
    tree.file(at("gro_flush_timeout"), "0");
    if interface.device.is_some() {
        tree.file(at("speed"), "10000");
        tree.file(at("duplex"), "full");
    }
    for (counter, value) in
        [("rx_packets", 1_000_u64), ("rx_dropped", 3), ("rx_missed_errors", 0), ("tx_packets", 900)]
    {
        tree.file(at(&format!("statistics/{counter}")), value.to_string());
    }
    let none = machine.mask(&CpuSet::new());
    for queue in 0..interface.rx {
        let mask = interface.rps.iter().find(|(of, _)| *of == queue).map_or(none.as_str(), |(_, mask)| mask);
        tree.file(at(&format!("queues/rx-{queue}/rps_cpus")), mask);
        tree.file(at(&format!("queues/rx-{queue}/rps_flow_cnt")), "0");
    }
    for queue in 0..interface.tx {
        tree.file(at(&format!("queues/tx-{queue}/xps_cpus")), &none);
    }
    device(machine, tree, interface);
}

/// The underlying device: a PCI device, or a virtio device on one, or a Hyper-V device.
fn device(machine: &Machine, tree: &Tree, interface: &Interface) {
    let Some(device) = &interface.device else { return };
    let pci = device.bus.contains(':');
    let place = match pci {
        true => format!("sys/devices/pci0000:00/{}", device.bus),
        false => format!("sys/devices/pci0000:00/0000:00:{:02x}.0/{}", interface.index, device.bus),
    };
    let above = if pci { place.clone() } else { place.rsplit_once('/').unwrap().0.to_owned() };
    tree.link(format!("sys/class/net/{}/device", interface.name), format!("../../../{}", &place[4..]));
    tree.link(format!("{place}/driver"), format!("../../../bus/pci/drivers/{}", device.driver));
    tree.file(format!("{place}/numa_node"), device.node.to_string());
    let near = usize::try_from(device.node).ok().and_then(|node| machine.nodes.get(node));
    tree.file(
        format!("{place}/local_cpulist"),
        near.cloned().unwrap_or_else(|| machine.online()).to_string(),
    );
    for irq in &interface.irqs {
        tree.file(format!("{above}/msi_irqs/{}", irq.number), "msix");
    }
}
