//! A machine as large as the reader's bounds allow for.

use super::list::{device, machine, server};
use super::{Device, Machine, Server};

/// A machine of any size: `queues` of one device, and `sockets` of servers with 100 each.
pub fn big(cpus: u32, queues: u32, sockets: u32) -> Machine {
    let on = Device { driver: "mlx5_core", bus: "0000:c1:00.0", node: 1 };
    let label = |queue| format!("mlx5_comp{queue}@pci:0000:c1:00.0");
    let half = cpus / 2;
    let nodes = [format!("0-{}", half - 1), format!("{half}-{}", cpus - 1)];
    let of = |(number, first): (u32, u32)| Server {
        inodes: 100_000 + first..100_000 + sockets.min(first + 100),
        port: 5_000 + u16::try_from(number).unwrap(),
        pid: 1_000 + 50 * number,
        threads: 16,
        ..server(0, "resolver", "/usr/sbin/resolver", 0)
    };
    Machine {
        interfaces: vec![device("eth0", 2, on, queues, 300, label, |queue| queue % cpus)],
        threads: 2,
        model: "AMD EPYC 9554 64-Core Processor",
        servers: (0..).zip((0..sockets).step_by(100)).map(of).collect(),
        ..machine("big", "6.12.0-amd64", cpus, &[&nodes[0], &nodes[1]])
    }
}
