//! The description of a machine, its service and its load: what a prediction is about. Plain data, as a TOML file has
//! it.
//!
//! ```text
//!   card or veth ─▸ queues ─▸ IRQ CPUs ─▸ RPS ─▸ sockets ─▸ workers ─▸ transmit queues
//! ```
//! A field that is left out has the value of [`Description::default`]: one CPU, one queue, one worker, a closed loop.

mod check;
mod text;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use udpath_steer::CpuSet;

pub use check::DescriptionError;
pub use text::{MAX_TOML_LEN, TextError, keys};

use crate::kernel::Kernel;

/// Most CPUs of a machine: what a word of sharers holds, and more than a server with two sockets has today.
pub const MAX_CPUS: usize = 128;

/// What joins the service to its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Link {
    /// A network card: an interrupt per queue, and a wire.
    Card,
    /// A veth pair with a load generator in its other end, as in a lab: a reply becomes the next request on the CPU
    /// that sends it.
    Veth,
}

/// How the service moves datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Io {
    /// One socket that all workers read.
    Shared,
    /// A socket per worker, chosen by flow hash.
    Reuseport,
    /// A socket per worker, chosen by the CPU that received.
    Percpu,
}

impl Io {
    /// All, simplest first.
    pub const ALL: [Self; 3] = [Self::Shared, Self::Reuseport, Self::Percpu];

    /// The name in descriptions and results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Reuseport => "reuseport",
            Self::Percpu => "percpu",
        }
    }
}

/// What carries the transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Datagrams to the sockets of [`Io`].
    Udp,
    /// One request at a time on each connection: a socket and a thread for each flow, as netperf's TCP_RR.
    Tcp,
}

/// How the times between arrivals, or of the service, are distributed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Times {
    /// All alike.
    Constant,
    /// Exponentially: arrivals of a Poisson process.
    Exponential,
}

/// A machine, its service and its load.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Description {
    /// Cores of all nodes.
    pub cores: usize,
    /// Threads per core: CPU `n` and CPU `n + cores` are threads of one core.
    pub threads_per_core: usize,
    /// Nodes; cores are divided evenly, in order.
    pub nodes: usize,
    /// Speed of a core, of that of the calibrated machine: clock times instructions per cycle.
    pub speed: f64,
    /// Speed at which lines move between CPUs, of that of the calibrated machine.
    pub interconnect: f64,
    /// It is a virtual machine: interrupts between its CPUs leave the guest.
    pub virtual_machine: bool,
    /// The kernel's release.
    pub kernel: Kernel,
    /// Timer interrupts per second (`CONFIG_HZ`).
    pub hz: u32,

    /// What joins it to its clients.
    pub link: Link,
    /// Bits per second of the link, 10^9; 0: no limit.
    pub link_gbps: f64,
    /// Receive queues.
    pub queues: usize,
    /// Transmit queues; 0: as many as receive queues.
    pub transmit_queues: usize,
    /// Packets in the ring of a receive queue.
    pub ring: usize,
    /// Shortest time between two interrupts of a queue, microseconds.
    pub moderation_us: f64,
    /// CPUs of the queues' interrupts: queue `n` has the `n`th of them, beginning again at the end. Empty: all.
    pub irqs: CpuSet,
    /// Each CPU transmits on its own queue, as far as there are enough; otherwise the flow's hash chooses.
    pub xps: bool,
    /// RPS: empty: off; one list of CPUs: of all queues; otherwise one per queue.
    pub rps: Vec<CpuSet>,

    /// What carries the transactions.
    pub transport: Transport,
    /// How the service moves datagrams.
    pub io: Io,
    /// Worker threads.
    pub workers: usize,
    /// Datagrams per system call.
    pub batch: usize,
    /// Worker `n` runs on the `n`th CPU only.
    pub pin: bool,
    /// CPUs that workers may use; empty: all.
    pub worker_cpus: CpuSet,
    /// Time of the service on a request beyond that of an echo, nanoseconds.
    pub service_ns: f64,
    /// How that time is distributed.
    pub service_times: Times,
    /// Receive buffer of each socket, bytes (twice SO_RCVBUF, as the kernel counts).
    pub receive_buffer: usize,
    /// Requests are answered. Otherwise the service is a sink, and a transaction is a datagram received.
    pub replies: bool,

    /// Flows: client addresses and ports.
    pub flows: usize,
    /// Addresses that they come from: replies to one address count its identifications together.
    pub clients: usize,
    /// Requests in flight over all flows; 0: an open loop at `rate`.
    pub inflight: usize,
    /// Requests per second of an open loop.
    pub rate: f64,
    /// Times between the arrivals of an open loop.
    pub arrivals: Times,
    /// From a reply to the next request of a closed loop, microseconds: wire and client.
    pub wire_us: f64,
    /// Payload, bytes.
    pub payload: usize,
}

impl Default for Description {
    fn default() -> Self {
        Self {
            cores: 1,
            threads_per_core: 1,
            nodes: 1,
            speed: 1.0,
            interconnect: 1.0,
            virtual_machine: false,
            kernel: Kernel::new(6, 18),
            hz: 1000,
            link: Link::Card,
            link_gbps: 0.0,
            queues: 1,
            transmit_queues: 0,
            ring: 512,
            moderation_us: 20.0,
            irqs: CpuSet::new(),
            xps: true,
            rps: Vec::new(),
            transport: Transport::Udp,
            io: Io::Reuseport,
            workers: 1,
            batch: 1,
            pin: true,
            worker_cpus: CpuSet::new(),
            service_ns: 0.0,
            service_times: Times::Constant,
            receive_buffer: 212_992,
            replies: true,
            flows: 64,
            clients: 1000,
            inflight: 384,
            rate: 0.0,
            arrivals: Times::Exponential,
            wire_us: 50.0,
            payload: 100,
        }
    }
}

impl Description {
    /// CPUs: threads of all cores.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.cores.saturating_mul(self.threads_per_core)
    }

    /// The core of a CPU.
    pub(crate) fn core_of(&self, cpu: usize) -> usize {
        cpu % self.cores
    }

    /// The node of a CPU.
    pub(crate) fn node_of(&self, cpu: usize) -> usize {
        self.core_of(cpu) * self.nodes / self.cores
    }

    /// The CPU of a queue's interrupt.
    pub(crate) fn irq_cpu(&self, queue: usize) -> usize {
        nth(&self.irqs, queue, self.cpus())
    }

    /// The CPU of a pinned worker.
    pub(crate) fn worker_cpu(&self, worker: usize) -> usize {
        nth(&self.worker_cpus, worker, self.cpus())
    }

    /// CPUs that process what a queue received, if RPS is on for it.
    pub(crate) fn rps_of(&self, queue: usize) -> Option<&CpuSet> {
        let list = if self.rps.len() == 1 { self.rps.first() } else { self.rps.get(queue) };
        list.filter(|cpus| !cpus.is_empty())
    }

    /// Transmit queues.
    pub(crate) fn transmit_queues(&self) -> usize {
        if self.transmit_queues == 0 { self.queues } else { self.transmit_queues }
    }

    /// Sockets of the service.
    pub(crate) fn sockets(&self) -> usize {
        match (self.transport, self.io) {
            (Transport::Tcp, _) => self.flows,
            (Transport::Udp, Io::Shared) => 1,
            (Transport::Udp, Io::Reuseport | Io::Percpu) => self.workers,
        }
    }

    /// Threads that read them.
    pub(crate) fn threads(&self) -> usize {
        match self.transport {
            Transport::Tcp => self.flows,
            Transport::Udp => self.workers,
        }
    }
}

/// The nth CPU of a list, beginning again at its end; of all CPUs if it is empty.
fn nth(list: &CpuSet, n: usize, cpus: usize) -> usize {
    match list.len() {
        0 => n % cpus,
        len => list.iter().nth(n % len).map_or(0, |cpu| cpu as usize),
    }
}
