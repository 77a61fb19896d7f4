//! The state of a machine at one moment: plain, serialisable, and the same for a live machine and a captured one.
//!
//! Its counters are the kernel's, since boot or since the driver was last configured; two snapshots give rates.

pub mod actors;
pub mod cpus;
mod interface;
pub mod irqs;
pub mod kernel;
pub mod limits;
mod link;
pub mod netfilter;
mod packet_sockets;
pub mod processes;
pub mod sockets;
pub mod softnet;
pub mod sysctls;
pub mod udp;

use serde::{Deserialize, Serialize};

pub use udpath_netlink::ethtool::channels::{ChannelCounts, Channels};
pub use udpath_netlink::ethtool::coalesce::Coalescing;
pub use udpath_netlink::ethtool::features::{Feature, Features};
pub use udpath_netlink::ethtool::rings::Rings;
pub use udpath_netlink::ethtool::rss::{Fields, HashFields, Rss, RssContext};
pub use udpath_netlink::ethtool::time_stamping::{TimeStamping, TimeStampingOffer};
pub use udpath_netlink::ioctl::device::Driver;
pub use udpath_steer::rules::{FlowAction, FlowRule, Masked};

pub use interface::{
    Bond, FlowLimit, Interface, LinkState, NapiDefaults, Relation, RxQueue, Steering, TxQueue,
};
pub use link::{Counters, Direction, Link, Napi, NetdevQueue, Qdisc, QueueCounters, Xdp, XdpFeatures};
pub use packet_sockets::{PacketHandler, PacketSocket, PacketSockets};

use crate::{Missing, Source, read};

/// Version of the JSON form. Raised when a field changes its meaning or is removed; new fields do not raise it.
pub const SCHEMA: &str = "udpath.snapshot/2";

/// The state of a machine at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    pub kernel: kernel::Kernel,
    /// The processors.
    pub cpus: cpus::Cpus,
    /// The NUMA nodes; none is normal.
    pub nodes: Vec<cpus::Node>,
    /// Limits of the process that reads.
    pub limits: limits::Limits,
    /// Interrupts of devices.
    pub irqs: Vec<irqs::Irq>,
    /// Interrupts of the processors themselves.
    pub processor_interrupts: Vec<irqs::ProcessorInterrupt>,
    /// Softirqs.
    pub softirqs: Vec<irqs::Softirq>,
    /// The receive path of each CPU.
    pub softnet: softnet::Softnet,
    /// UDP's counters and memory.
    pub udp: udp::Udp,
    /// UDP sockets and their owners.
    pub sockets: sockets::Sockets,
    /// Kernel settings that affect UDP.
    pub sysctls: Vec<sysctls::Sysctl>,
    /// Packet filtering and connection tracking.
    pub netfilter: netfilter::Netfilter,
    /// Other programs and files that change settings.
    pub actors: actors::Actors,
    /// What it lacks, and why.
    pub missing: Vec<Missing>,
}

impl Snapshot {
    /// Takes a snapshot. What cannot be read is listed in it and is not an error.
    #[must_use]
    pub fn read(source: &dyn Source) -> Self {
        let mut missing = Vec::new();
        let taken = source.time().map_or(0, |time| time.value);
        let machine = read::machine::read(source, &mut missing);
        let interfaces = read::interfaces::read(source, &machine.interrupts.irqs, &mut missing);
        let steering = read::steering::read(source, &mut missing);
        let packet_sockets = read::packet_sockets::read(source, &mut missing);
        Self {
            schema: SCHEMA.into(),
            taken,
            interfaces,
            steering,
            packet_sockets,
            kernel: machine.kernel,
            cpus: machine.cpus,
            nodes: machine.nodes,
            limits: machine.limits,
            irqs: machine.interrupts.irqs,
            processor_interrupts: machine.interrupts.processor,
            softirqs: machine.softirqs,
            softnet: machine.softnet,
            udp: machine.udp,
            sockets: machine.sockets,
            sysctls: machine.sysctls,
            netfilter: machine.netfilter,
            actors: machine.actors,
            missing,
        }
    }
}
