//! What one interval counted, per second: a map of two snapshots, divided by the time between them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use udpath_advise::{Finding, Location, MapResult, Severity};
use udpath_host::map::{InterfaceMap, Map, ProcessMap, QueueMap, Shares, SocketMap};
use udpath_host::snapshot::udp::UdpCounters;
use udpath_steer::CpuSet;

use std::net::SocketAddr;

/// Version of the JSON form. Raised when a field changes its meaning or goes; new fields may come without.
pub const SCHEMA: &str = "udpath.top/2";

/// The machine during one interval. Counts are per second, and of what the map was selected to show.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Top {
    /// [`SCHEMA`].
    pub schema: String,
    /// The interval's end, milliseconds since 1970.
    pub taken: u64,
    /// Its length, seconds.
    pub seconds: f64,
    /// The kernel's release.
    pub kernel: String,
    /// The hypervisor it runs under, where there is one.
    pub hypervisor: Option<String>,
    /// UDP as a whole, by family.
    pub udp: Vec<UdpRow>,
    /// The interfaces, those below one after it.
    pub interfaces: Vec<InterfaceRow>,
    /// CPUs that run, by number.
    pub cpus: Vec<CpuRow>,
    /// Receive queues, in the order of their interfaces.
    pub queues: Vec<QueueRow>,
    /// UDP sockets, the ones with the most drops and the fullest queues first.
    pub sockets: Vec<SocketRow>,
    /// What is wrong or worth knowing, the most severe first.
    pub findings: Vec<Finding>,
    /// What could not be read, and why.
    pub missing: Vec<String>,
}

/// UDP of one family. Each count is per second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UdpRow {
    /// `IPv4` or `IPv6`.
    pub family: String,
    /// Datagrams delivered to applications.
    pub received: f64,
    /// For a port without a socket.
    pub no_port: f64,
    /// Not delivered: a full receive buffer.
    pub full_buffer: f64,
    /// Not delivered: the memory of all UDP sockets was used up. None before Linux 5.11.
    pub no_memory: Option<f64>,
    /// Not delivered: wrong checksum.
    pub checksum: Option<f64>,
    /// Datagrams sent.
    pub sent: f64,
    /// Not sent: no memory, or a full device queue.
    pub not_sent: f64,
}

/// An interface.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InterfaceRow {
    /// Its name.
    pub name: String,
    /// Its driver, else its kind.
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

/// A CPU that runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CpuRow {
    /// Its number.
    pub cpu: u32,
    /// Its memory node.
    pub node: Option<u32>,
    /// How it spent the interval.
    pub time: Option<Shares>,
    /// Packets per second that it took up the stack.
    pub packets: f64,
    /// Packets per second dropped because its backlog was full.
    pub dropped: f64,
    /// How often per second its softirq gave up with work left.
    pub squeezed: f64,
    /// How often per second other CPUs steered packets here (RPS).
    pub by_rps: Option<f64>,
    /// Queues whose interrupts it handles.
    pub queues: Vec<String>,
    /// Queues whose packets it is sent by RPS.
    pub rps_of: Vec<String>,
    /// It has a finding.
    pub marked: bool,
}

/// A receive queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    /// How often that came per second.
    pub interrupts: Option<f64>,
    /// The CPUs that it goes to.
    pub cpus: CpuSet,
    /// CPUs that handle its packets after that.
    pub rps: CpuSet,
    /// What takes packets before the stack: `xsk`, an AF_XDP socket of this queue; `program`, an XDP program.
    pub xdp: Option<String>,
    /// It has a finding.
    pub marked: bool,
}

/// A UDP socket. The kernel counts what it drops at a socket, not what it delivers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SocketRow {
    /// Its inode.
    pub inode: u32,
    /// Where it is bound.
    pub local: SocketAddr,
    /// Whom it is connected to.
    pub peer: Option<SocketAddr>,
    /// Sockets that share its address and port, itself included.
    pub group: usize,
    /// Bytes that wait to be received now, by the kernel's accounting.
    pub queued: u32,
    /// Its receive buffer's size by the same accounting.
    pub buffer: Option<u32>,
    /// How full that is, a share of 1.
    pub full: Option<f64>,
    /// Datagrams dropped per second.
    pub dropped: f64,
    /// The process that has it open, the first of them.
    pub pid: Option<u32>,
    /// Its name.
    pub process: Option<String>,
    /// How many more processes have it open.
    pub others: usize,
    /// Threads of that process.
    pub threads: Option<usize>,
    /// It has a finding.
    pub marked: bool,
}

impl Top {
    /// The rates of a map. None if it counts since boot.
    #[must_use]
    pub fn new(result: &MapResult) -> Option<Self> {
        let MapResult { map, findings, .. } = result;
        let seconds = map.seconds.filter(|seconds| *seconds > 0.0)?;
        // A note marks nothing.
        let severe = findings.iter().filter(|finding| finding.severity < Severity::Note);
        let marked: BTreeSet<&Location> = severe.flat_map(|finding| &finding.locations).collect();
        let view = Rates { map, seconds, marked };
        let families = [("IPv4", map.udp.v4), ("IPv6", map.udp.v6)];
        Some(Self {
            schema: SCHEMA.into(),
            taken: map.taken,
            seconds,
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

/// The process of that number. They are in the order of their numbers, as maps are made.
fn process(processes: &[ProcessMap], pid: u32) -> Option<&ProcessMap> {
    processes.binary_search_by_key(&pid, |process| process.pid).ok().map(|at| &processes[at])
}
