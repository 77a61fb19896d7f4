//! The state of a machine at one moment: plain, serialisable, and the same for a live machine and a captured one.
//!
//! Its counters are the kernel's, since boot or since the driver was last configured; two snapshots give rates.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::actors::{self, Actors};
use crate::cpus::{self, Cpus, Node};
use crate::interfaces::{self, Interface};
use crate::ip::{self, Ip};
use crate::irqs::{self, Irq, ProcessorInterrupt, Softirq};
use crate::kernel::{self, Kernel};
use crate::limits::{self, Limits};
use crate::neighbours::{self, Neighbours};
use crate::netfilter::{self, Netfilter};
use crate::packet_sockets::{self, PacketSockets};
use crate::sockets::{self, Sockets};
use crate::softnet::{self, Softnet};
use crate::steering::{self, Steering};
use crate::sysctls::{self, Sysctl};
use crate::text::noted;
use crate::tun::{self, Tun};
use crate::udp::{self, Udp};
use crate::{Missing, Source, processes};

/// Version of the JSON form. Raised when a field changes its meaning or is removed; new fields do not raise it.
pub const SCHEMA: &str = "udpath.snapshot/2";

/// The state of a machine at one moment.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Snapshot {
    /// [`SCHEMA`].
    pub schema: String,
    /// When it was taken, milliseconds since 1970.
    pub taken: u64,
    /// Network interfaces, by index.
    pub interfaces: Vec<Interface>,
    /// Steering settings of the network namespace.
    pub steering: Steering,
    /// Packet sockets, which receive packets before the protocols.
    pub packet_sockets: PacketSockets,
    /// The kernel.
    pub kernel: Kernel,
    /// The processors.
    pub cpus: Cpus,
    /// The NUMA nodes; none is normal.
    pub nodes: Vec<Node>,
    /// Limits of the process that reads.
    pub limits: Limits,
    /// Interrupts of devices.
    pub irqs: Vec<Irq>,
    /// Interrupts of the processors themselves.
    pub processor_interrupts: Vec<ProcessorInterrupt>,
    /// Softirqs.
    pub softirqs: Vec<Softirq>,
    /// The receive path of each CPU.
    pub softnet: Softnet,
    /// Counters of the IP layer.
    #[serde(default)]
    pub ip: Ip,
    /// Neighbour tables.
    #[serde(default)]
    pub neighbours: Neighbours,
    /// UDP's counters and memory.
    pub udp: Udp,
    /// UDP sockets and their owners.
    pub sockets: Sockets,
    /// Programs behind tun and tap interfaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tuns: Vec<Tun>,
    /// Kernel settings that affect UDP.
    pub sysctls: Vec<Sysctl>,
    /// Packet filtering and connection tracking.
    pub netfilter: Netfilter,
    /// Other programs and files that change settings.
    pub actors: Actors,
    /// What it lacks, and why.
    pub missing: Vec<Missing>,
}

impl Snapshot {
    /// Takes a snapshot. What cannot be read is listed in it and is not an error.
    #[must_use]
    pub fn read(source: &dyn Source) -> Self {
        let missing = &mut Vec::new();
        let taken = source.time().map_or(0, |time| time.value);
        let mut kernel = kernel::read(source, missing);
        let nodes = cpus::nodes(source, missing);
        let cpus = cpus::read(source, &nodes, missing);
        // One pass over all processes serves both sockets and actors.
        let mut listed = sockets::list(source, missing);
        let inodes = listed.as_mut().map(|listed| sockets::inodes(&mut listed.value)).unwrap_or_default();
        let scan = processes::scan(source, &inodes);
        let scan = noted(missing, "processes", "/proc", scan).unwrap_or_default();
        let sockets = listed.map(|listed| sockets::join(source, listed, &inodes, &scan, missing));
        let tuns = tun::read(source, &scan);
        if kernel.audit.is_none() {
            kernel.audit = Some(kernel::audit_now(source, &scan.seen));
        }
        kernel.stamping = Some(kernel::stamping(&scan.seen));
        let mounts = limits::mounts(source, missing);
        let limits = limits::read(source, &mounts, None, missing);
        let interrupts = irqs::read(source, missing);
        let softirqs = irqs::softirqs(source, missing);
        let softnet = softnet::read(source, missing);
        let ip = ip::read(source, missing);
        let neighbours = neighbours::read(source, missing);
        let udp = udp::read(source, missing);
        let sysctls = sysctls::read(source, missing);
        let netfilter = netfilter::read(source, missing);
        let actors = actors::read(source, &scan.seen, missing);
        let interfaces = interfaces::read(source, &interrupts.irqs, missing);
        let steering = steering::read(source, missing);
        let packet_sockets = packet_sockets::read(source, missing);
        Self {
            schema: SCHEMA.into(),
            taken,
            interfaces,
            steering,
            packet_sockets,
            kernel,
            cpus,
            nodes,
            limits,
            irqs: interrupts.irqs,
            processor_interrupts: interrupts.processor,
            softirqs,
            softnet,
            ip,
            neighbours,
            udp,
            sockets: sockets.unwrap_or_default(),
            tuns,
            sysctls,
            netfilter,
            actors,
            missing: std::mem::take(missing),
        }
    }
}
