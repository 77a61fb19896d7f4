//! Rates of one interval: a map of two snapshots, divided by the time between them.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use udpath_advise::{Finding, Location, MapResult, Severity};
use udpath_host::map::{InterfaceMap, Map, ProcessMap, QueueMap, Shares, SocketMap};
use udpath_host::udp::UdpCounters;
use udpath_steer::CpuSet;

use std::net::SocketAddr;

/// Version of the JSON format. Incremented when a field changes its meaning or is removed; new fields do not change it.
pub const SCHEMA: &str = "udpath.top/2";

/// The machine during one interval. Counts are per second, and cover the map's selection.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Top {
    /// [`SCHEMA`].
    pub schema: String,
    /// The interval's end, milliseconds since 1970.
    pub taken: u64,
    /// Its length, seconds.
    pub seconds: f64,
    /// The most by which a rate may be off, as a part of it: counters are read one after the other. Absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_error: Option<f64>,
    /// The kernel's release.
    pub kernel: String,
    /// The hypervisor that it runs under, if any.
    pub hypervisor: Option<String>,
    /// UDP as a whole, by family.
    pub udp: Vec<UdpRow>,
    /// The interfaces; those below an interface come after it.
    pub interfaces: Vec<InterfaceRow>,
    /// Online CPUs, by number.
    pub cpus: Vec<CpuRow>,
    /// Receive queues, in the order of their interfaces.
    pub queues: Vec<QueueRow>,
    /// UDP sockets, those with the most drops and the fullest queues first.
    pub sockets: Vec<SocketRow>,
    /// Problems and notes, the most severe first.
    pub findings: Vec<Finding>,
    /// What could not be read, and why.
    pub missing: Vec<String>,
}

/// UDP of one family. Each count is per second.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct UdpRow {
    /// `IPv4` or `IPv6`.
    pub family: String,
    /// Datagrams delivered to applications.
    pub received: f64,
    /// For a port without a socket.
    pub no_port: f64,
    /// Not delivered: a full receive buffer.
    pub full_buffer: f64,
    /// Not delivered: the memory of all UDP sockets was used up. `None` before Linux 5.11.
    pub no_memory: Option<f64>,
    /// Not delivered: wrong checksum.
    pub checksum: Option<f64>,
    /// Datagrams sent.
    pub sent: f64,
    /// Not sent: no memory, or a full device queue.
    pub not_sent: f64,
}

/// An interface.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct InterfaceRow {
    /// Its name.
    pub name: String,
    /// Its driver, or else its kind.
    pub driver: String,
    /// Mbit/s.
    pub speed: Option<u32>,
    /// Receive queues that traffic can reach.
    pub queues: usize,
    /// An XDP program is attached.
    pub xdp: bool,
    /// Packets received per second.
    pub packets: Option<f64>,
    /// Bytes received per second.
    pub bytes: Option<f64>,
    /// Packets per second that the device or driver lost before the stack saw them.
    pub missed: f64,
    /// Packets per second that the stack dropped for this interface.
    pub dropped: f64,
    /// It has a finding.
    pub marked: bool,
}

/// An online CPU.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct CpuRow {
    /// Its number.
    pub cpu: u32,
    /// Its NUMA node.
    pub node: Option<u32>,
    /// Its time in the interval.
    pub time: Option<Shares>,
    /// Packets per second that it passed to the stack.
    pub packets: f64,
    /// Packets per second dropped because its backlog was full.
    pub dropped: f64,
    /// Times per second that its softirq stopped with work left.
    pub squeezed: f64,
    /// Times per second that other CPUs steered packets here (RPS).
    pub by_rps: Option<f64>,
    /// Queues whose interrupts it handles.
    pub queues: Vec<String>,
    /// Queues that send it packets by RPS.
    pub rps_of: Vec<String>,
    /// It has a finding.
    pub marked: bool,
}

/// A receive queue.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct QueueRow {
    /// Its interface.
    pub interface: String,
    /// Its number, from 0.
    pub queue: u32,
    /// Packets received per second.
    pub packets: Option<f64>,
    /// Bytes received per second.
    pub bytes: Option<f64>,
    /// Packets lost per second.
    pub lost: Option<f64>,
    /// Its interrupt.
    pub irq: Option<u32>,
    /// Interrupts per second.
    pub interrupts: Option<f64>,
    /// The CPUs that handle it.
    pub cpus: CpuSet,
    /// CPUs that then process its packets by RPS.
    pub rps: CpuSet,
    /// The XDP consumer of its packets: `xsk`, an AF_XDP socket of this queue; `program`, an XDP program.
    pub xdp: Option<String>,
    /// It has a finding.
    pub marked: bool,
}

/// A UDP socket. The kernel counts drops per socket, but not deliveries.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct SocketRow {
    /// Its inode.
    pub inode: u32,
    /// Its local address.
    pub local: SocketAddr,
    /// Its peer, if it is connected.
    pub peer: Option<SocketAddr>,
    /// Sockets that share its address and port, itself included.
    pub group: usize,
    /// Bytes in the receive queue now, by the kernel's accounting.
    pub queued: u32,
    /// Size of its receive buffer by the same accounting.
    pub buffer: Option<u32>,
    /// How full the buffer is, a share of 1.
    pub full: Option<f64>,
    /// Datagrams dropped per second.
    pub dropped: f64,
    /// The first process that has it open.
    pub pid: Option<u32>,
    /// Its name.
    pub process: Option<String>,
    /// Number of further processes that have it open.
    pub others: usize,
    /// Threads of that process.
    pub threads: Option<usize>,
    /// It has a finding.
    pub marked: bool,
}

impl Top {
    /// The rates of a map. `None` if it counts since boot.
    #[must_use]
    pub fn new(result: &MapResult) -> Option<Self> {
        let MapResult { map, findings, .. } = result;
        let seconds = map.seconds.filter(|seconds| *seconds > 0.0)?;
        // A note does not mark anything.
        let severe = findings.iter().filter(|finding| finding.severity < Severity::Note);
        let marked: BTreeSet<&Location> = severe.flat_map(|finding| &finding.locations).collect();
        let view = Rates { map, seconds, marked };
        let families = [("IPv4", map.udp.v4), ("IPv6", map.udp.v6)];
        Some(Self {
            schema: SCHEMA.into(),
            taken: map.taken,
            seconds,
            rate_error: map.rate_error,
            kernel: map.kernel.clone(),
            hypervisor: map.hypervisor.clone(),
            udp: families.into_iter().filter_map(|(name, udp)| Some(view.udp(name, udp?))).collect(),
            interfaces: map.interfaces.iter().map(|interface| view.interface(interface)).collect(),
            cpus: view.cpus(),
            queues: map
                .interfaces
                .iter()
                .flat_map(|interface| interface.queues.iter().map(|queue| view.queue(interface, queue)))
                .collect(),
            sockets: map.sockets.iter().map(|socket| view.socket(socket)).collect(),
            findings: findings.clone(),
            missing: map.missing.clone(),
        })
    }
}

struct Rates<'a> {
    map: &'a Map,
    seconds: f64,
    marked: BTreeSet<&'a Location>,
}

impl Rates<'_> {
    fn rate(&self, count: u64) -> f64 {
        count as f64 / self.seconds
    }

    fn known(&self, count: Option<u64>) -> Option<f64> {
        count.map(|count| self.rate(count))
    }

    fn udp(&self, family: &str, udp: UdpCounters) -> UdpRow {
        UdpRow {
            family: family.into(),
            received: self.rate(udp.in_datagrams),
            no_port: self.rate(udp.no_ports),
            full_buffer: self.rate(udp.rcvbuf_errors),
            no_memory: self.known(udp.mem_errors),
            checksum: self.known(udp.in_csum_errors),
            sent: self.rate(udp.out_datagrams),
            not_sent: self.rate(udp.sndbuf_errors),
        }
    }

    fn interface(&self, interface: &InterfaceMap) -> InterfaceRow {
        InterfaceRow {
            name: interface.name.clone(),
            driver: interface.driver.as_ref().unwrap_or(&interface.kind).clone(),
            speed: interface.speed,
            queues: interface.rx_queues,
            xdp: interface.xdp,
            packets: self.known(interface.packets),
            bytes: self.known(interface.bytes),
            missed: self.rate(interface.missed),
            dropped: self.rate(interface.dropped),
            marked: self.marked.contains(&Location::Interface(interface.name.clone())),
        }
    }

    fn cpus(&self) -> Vec<CpuRow> {
        let online = self.map.cpus.iter().filter(|cpu| cpu.online);
        online
            .map(|cpu| {
                let softnet = cpu.softnet.unwrap_or_default();
                CpuRow {
                    cpu: cpu.cpu,
                    node: cpu.node,
                    time: cpu.time,
                    packets: self.rate(softnet.processed.into()),
                    dropped: self.rate(softnet.dropped.into()),
                    squeezed: self.rate(softnet.time_squeeze.into()),
                    by_rps: self.known(softnet.received_rps.map(u64::from)),
                    queues: cpu.queues.clone(),
                    rps_of: cpu.rps_of.clone(),
                    marked: self.marked.contains(&Location::Cpu(cpu.cpu)),
                }
            })
            .collect()
    }

    fn queue(&self, interface: &InterfaceMap, queue: &QueueMap) -> QueueRow {
        let xdp = if queue.xsk { Some("xsk") } else { interface.xdp.then_some("program") };
        QueueRow {
            interface: interface.name.clone(),
            queue: queue.queue,
            packets: self.known(queue.packets),
            bytes: self.known(queue.bytes),
            lost: self.known(queue.drops),
            irq: queue.irq,
            interrupts: self.known(queue.interrupts),
            cpus: queue.cpus.clone(),
            rps: queue.rps.clone(),
            xdp: xdp.map(str::to_owned),
            marked: self.marked.contains(&Location::Queue(interface.name.clone(), queue.queue)),
        }
    }

    fn socket(&self, socket: &SocketMap) -> SocketRow {
        let pid = socket.pids.first().copied();
        let process = pid.and_then(|pid| process(&self.map.processes, pid));
        SocketRow {
            inode: socket.inode,
            local: socket.local,
            peer: socket.peer,
            group: socket.group,
            queued: socket.queued,
            buffer: socket.buffer,
            full: socket.fill(),
            dropped: self.rate(socket.drops),
            pid,
            process: process.map(|process| process.name.clone()),
            others: socket.pids.len().saturating_sub(1),
            threads: process.map(|process| process.threads),
            marked: self.marked.contains(&Location::Socket(socket.inode)),
        }
    }
}

/// The process with this pid. Maps sort them by pid.
fn process(processes: &[ProcessMap], pid: u32) -> Option<&ProcessMap> {
    processes.binary_search_by_key(&pid, |process| process.pid).ok().map(|at| &processes[at])
}
