//! Interrupts, softirqs, softnet, UDP, sysctls: in this kernel's format.

use std::fmt::Write as _;

use super::{Interface, Irq, Machine, Tree};

pub(super) fn write(machine: &Machine, tree: &Tree) {
    tree.file("proc/interrupts", interrupts(machine));
    for irq in machine.interfaces.iter().flat_map(|interface| &interface.irqs) {
        let at = |file: &str| format!("proc/irq/{}/{file}", irq.number);
        tree.file(at("smp_affinity_list"), irq.affinity.to_string());
        // From 4.12 on.
        if machine.version() >= (4, 12) {
            tree.file(
                at("effective_affinity_list"),
                irq.affinity.first().map_or(String::new(), |cpu| cpu.to_string()),
            );
        }
        tree.file(
            at("affinity_hint"),
            machine.mask(irq.hint.as_ref().unwrap_or(&udpath_steer::CpuSet::new())),
        );
        let node =
            machine.interfaces.iter().find(|one| one.irqs.iter().any(|other| other.number == irq.number));
        tree.file(
            at("node"),
            node.and_then(|one| one.device.as_ref()).map_or(-1, |device| device.node).to_string(),
        );
    }
    let possible: Vec<u32> = (0..machine.cpus).collect();
    let mut softirqs = header(&possible, 20);
    for (name, count) in [("HI", 0), ("TIMER", 640_000), ("NET_TX", 5_440), ("NET_RX", 3_000_000_000_u32)] {
        let counts: String =
            possible.iter().map(|cpu| format!(" {:>10}", count.wrapping_add(*cpu))).collect();
        let _ = writeln!(softirqs, "{name:>12}:{counts}");
    }
    tree.file("proc/softirqs", softirqs);
    tree.file("proc/net/softnet_stat", softnet(machine));
    let ipv4 = "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors";
    tree.file("proc/net/snmp", format!("{ipv4}\nUdp: 13050470 12918 72760 61006140 72720 0 40\n"));
    let ipv6 = ["InDatagrams", "NoPorts", "InErrors", "OutDatagrams", "RcvbufErrors", "SndbufErrors"];
    tree.file("proc/net/snmp6", ipv6.map(|name| format!("{:<32}\t7\n", format!("Udp6{name}"))).concat());
    tree.file("proc/net/sockstat", "sockets: used 13\nUDP: inuse 4 mem 158\nUDPLITE: inuse 0\n");
    tree.file("proc/net/packet", "sk               RefCnt Type Proto  Iface R Rmem   User   Inode\n");
    tree.file("proc/net/ptype", "Type Device      Function\n0800          ip_rcv\n86dd          ipv6_rcv\n");
    const HOST: [&str; 8] = [
        "core/netdev_max_backlog",
        "core/netdev_budget",
        "core/rps_sock_flow_entries",
        "core/flow_limit_cpu_bitmap",
        "core/flow_limit_table_len",
        "core/default_qdisc",
        "core/busy_read",
        "ipv4/udp_mem",
    ];
    for (name, value) in [
        ("core/rmem_max", "212992"),
        ("core/rmem_default", "212992"),
        ("core/netdev_max_backlog", "1000"),
        ("core/netdev_budget", "300"),
        ("core/rps_sock_flow_entries", "0"),
        ("core/flow_limit_cpu_bitmap", "0"),
        ("core/flow_limit_table_len", "4096"),
        ("core/default_qdisc", "pfifo_fast"),
        ("ipv4/udp_mem", "575799\t767734\t1151598"),
        ("core/busy_read", "0"),
        ("ipv4/conf/all/rp_filter", "1"),
    ] {
        if machine.namespace && HOST.contains(&name) {
            continue;
        }
        tree.file(format!("proc/sys/net/{name}"), value);
    }
}

fn header(cpus: &[u32], width: usize) -> String {
    let names: String = cpus.iter().map(|cpu| format!("       CPU{cpu:<4}")).collect();
    format!("{:width$}{}\n", "", names.trim_start())
}

fn interrupts(machine: &Machine) -> String {
    let online: Vec<u32> = machine.online().iter().collect();
    let mut text = header(&online, 11);
    let mut line = |interface: &Interface, irq: &Irq| {
        // As its affinity permits: its first CPU handles all.
        let takes = irq.affinity.first();
        let count = |cpu: &u32| if Some(*cpu) == takes { irq.count } else { 0 };
        let counts: String = online.iter().map(|cpu| format!(" {:>10}", count(cpu))).collect();
        let bus = interface.device.as_ref().map_or("", |device| device.bus);
        let chip = match machine.version() {
            version if version >= (6, 2) && bus.contains(':') => {
                format!("IR-PCI-MSIX-{bus}    {}-edge     ", irq.number % 64)
            }
            version if version >= (4, 0) => format!("IR-PCI-MSI {}-edge     ", 524_288 + irq.number),
            _ => "IR-PCI-MSI-edge     ".to_owned(),
        };
        let _ = writeln!(text, "{:>4}:{counts}  {chip} {}", irq.number, irq.name);
    };
    for interface in &machine.interfaces {
        interface.irqs.iter().for_each(|irq| line(interface, irq));
    }
    let counts: String = online.iter().map(|cpu| format!(" {:>10}", 4_934_137 + cpu)).collect();
    let _ = writeln!(text, " CAL:{counts}   Function call interrupts\n ERR:          0\n MIS:          0");
    text
}

/// Columns of the kernel's version; a row for each online CPU.
fn softnet(machine: &Machine) -> String {
    let columns = match machine.version() {
        version if version >= (6, 4) => 15,
        version if version >= (5, 10) => 13,
        version if version >= (3, 11) => 11,
        version if version >= (2, 6) => 10,
        _ => 9,
    };
    let row = |cpu: u32| {
        let mut words = vec![0; columns];
        (words[0], words[2]) = (0x1fc1_b203_u32.wrapping_add(cpu), 7);
        if columns >= 13 {
            words[12] = cpu;
        }
        words.iter().map(|word| format!("{word:08x}")).collect::<Vec<_>>().join(" ") + "\n"
    };
    machine.online().iter().map(row).collect()
}
