//! Predicts the path of a flow's datagrams from the tables of a machine; and, in reverse, finds source ports that
//! lead to a wanted place.
//!
//! ```text
//! Tables (what is known) --check--> Predictor --decide(flow)--> Path: hash, queue, irq, cpu, rps, socket
//!                                             --source_ports--> ports whose path ends where it should
//!                          paths of many flows --> Spread        observed packets --> Verification
//! ```
//! Every step has a value or none, and a reason: "not known" is a normal answer, and nothing is guessed. Decisions
//! that the kernel bases on a secret (its software hash, selection by hash in a reuseport group) cannot be predicted,
//! and are reported as such.

mod nic;
mod path;
mod reverse;
mod spread;
mod tables;
mod verify;
mod why;

pub use path::{Path, Step};
pub use reverse::{ReverseError, SourcePorts, Wanted};
pub use spread::{Amount, Spread};
pub use tables::{Context, HashFunction, Queue, Schema, Sockets, Tables, TablesError};
pub use verify::{Mismatch, Observed, StepAccuracy, Verification};
pub use why::Why;

use std::collections::BTreeMap;

use crate::flow::Flow;
use crate::hash::reciprocal_scale;
use crate::reuseport::{By, Group};
use crate::rps::RpsMap;
use nic::{Nic, NicResult};

/// Tables prepared for many flows.
#[derive(Debug)]
pub struct Predictor {
    nic: Nic,
    by_queue: BTreeMap<u32, Receive>,
    sockets: Option<Receivers>,
    threaded: bool,
    senders_queue: bool,
}

/// The sockets that may receive a datagram, prepared for many flows.
#[derive(Debug)]
pub struct Receivers {
    by: By,
    group: Group<u32>,
}

impl Receivers {
    /// Prepares them.
    #[must_use]
    pub fn new(sockets: &Sockets) -> Self {
        let mut group = Group::new();
        for (name, cpu) in (0..).zip(&sockets.cpus) {
            group.bind(name, *cpu);
        }
        Self { by: sockets.by, group }
    }
}

/// A receive queue, as far as it is known.
#[derive(Debug, Clone, Default)]
struct Receive {
    irq: Option<u32>,
    cpu: Option<Step>,
    /// Whether an RPS map was given.
    given: bool,
    map: Option<RpsMap>,
    rfs: bool,
}

impl Predictor {
    /// Validates the tables and prepares them.
    ///
    /// # Errors
    /// They contradict themselves or refer to something that does not exist.
    pub fn new(tables: &Tables) -> Result<Self, TablesError> {
        tables.check()?;
        let rfs = tables.sock_flow_entries.is_some_and(|entries| entries > 0);
        let by_queue = tables.receive.iter().map(|queue| {
            let online = tables.online.as_ref();
            let receive = Receive {
                irq: queue.irq,
                cpu: queue.irq_cpus.as_ref().map(|cpus| match (cpus.first(), cpus.len()) {
                    (Some(cpu), 1) => Step::known(cpu, Why::IrqCpu),
                    _ => Step::unknown(Why::SeveralIrqCpus),
                }),
                given: queue.rps_cpus.is_some(),
                map: queue.rps_cpus.as_ref().and_then(|cpus| RpsMap::new(cpus, online)),
                rfs: rfs && queue.rfs_entries.is_some_and(|entries| entries > 0),
            };
            (queue.queue, receive)
        });
        Ok(Self {
            nic: Nic::new(tables),
            by_queue: by_queue.collect(),
            sockets: tables.sockets.as_ref().map(Receivers::new),
            threaded: tables.threaded == Some(true),
            senders_queue: tables.senders_queue == Some(true),
        })
    }

    /// The path of the flow's datagrams.
    #[must_use]
    pub fn decide(&self, flow: &Flow) -> Path {
        self.decide_among(flow, self.sockets.as_ref())
    }

    /// The same, with these sockets instead of those in the tables.
    #[must_use]
    pub fn decide_among(&self, flow: &Flow, receivers: Option<&Receivers>) -> Path {
        let NicResult { hash, queue, seen, gone } = self.nic.receive(flow);
        if let Some(why) = gone {
            let none = Step::unknown(why);
            return Path { hash, queue, irq: none, cpu: none, rps: none, socket: none };
        }
        let receive = queue.value.and_then(|queue| self.by_queue.get(&queue));
        let depends = |why: Why| if queue.value.is_some() { why } else { Why::QueueUnknown };
        let irq = match receive.and_then(|receive| receive.irq) {
            Some(irq) => Step::known(irq, Why::IrqGiven),
            None if self.senders_queue => Step::unknown(Why::NoInterrupt),
            None => Step::unknown(depends(Why::NoIrq)),
        };
        let cpu = match receive.and_then(|receive| receive.cpu) {
            // The interrupt only wakes the thread.
            Some(_) if self.threaded => Step::unknown(Why::Threaded),
            Some(cpu) => cpu,
            None if self.senders_queue => Step::unknown(Why::NoInterrupt),
            None => Step::unknown(depends(Why::NoIrqCpus)),
        };
        let rps = match receive {
            Some(receive) => rps(receive, seen, cpu),
            None if queue.value.is_some() => without_rps(cpu),
            None => Step::unknown(Why::QueueUnknown),
        };
        Path { hash, queue, irq, cpu, rps, socket: socket(receivers, seen, rps) }
    }

    /// The hash that the stack sees for the flow's packets, if the driver passes the card's on.
    #[must_use]
    pub fn seen(&self, flow: &Flow) -> Step {
        self.nic.receive(flow).seen
    }

    /// Number of receive queues.
    #[must_use]
    pub const fn queues(&self) -> Option<u32> {
        self.nic.queues()
    }
}

/// The socket that receives it.
fn socket(receivers: Option<&Receivers>, seen: Step, cpu: Step) -> Step {
    let Some(Receivers { by, group }) = receivers else { return Step::unknown(Why::NoSockets) };
    match group.len() {
        0 => return Step::unknown(Why::NoListener),
        1 => return Step::known(0, Why::OnlySocket),
        _ => {}
    }
    match by {
        By::Unknown => Step::unknown(Why::SelectionUnknown),
        By::Last => last(group, cpu),
        By::CpuModulo => match cpu.value {
            None => Step::unknown(Why::CpuUnknown),
            Some(cpu) => Step::known(cpu % group.len() as u32, Why::CpuModulo { of: group.len() }),
        },
        By::CpuIndex => match cpu.value {
            None => Step::unknown(Why::CpuUnknown),
            Some(cpu) if (cpu as usize) < group.len() => Step::known(cpu, Why::CpuIndex),
            Some(_) => Step::unknown(Why::CpuBeyond { of: group.len() }),
        },
        By::Hash => Step::unknown(Why::SocketHash),
        By::Rxhash => match seen.value {
            Some(hash) => Step::known(reciprocal_scale(hash, group.len() as u32), Why::RxhashSocket),
            None => seen,
        },
        By::Cpu => match cpu.value {
            None => Step::unknown(Why::CpuUnknown),
            Some(cpu) => {
                let mut named = group.of_cpu(cpu);
                match (named.next(), named.next()) {
                    (Some(at), None) => Step::known(at as u32, Why::IncomingCpu),
                    (Some(_), Some(_)) => Step::unknown(Why::SeveralIncomingCpu),
                    (None, _) => Step::unknown(Why::NoIncomingCpu),
                }
            }
        },
    }
}

/// For sockets that do not share their address, of which there are two or more.
fn last(group: &Group<u32>, cpu: Step) -> Step {
    let last = (group.len() - 1) as u32;
    if !group.has_cpus() {
        return Step::known(last, Why::BoundLast);
    }
    let Some(cpu) = cpu.value else { return Step::unknown(Why::CpuUnknown) };
    match group.of_cpu(cpu).last() {
        Some(at) => Step::known(at as u32, Why::BoundLastOfCpu),
        None => Step::known(last, Why::BoundLast),
    }
}

/// The CPU after RPS.
fn rps(receive: &Receive, seen: Step, cpu: Step) -> Step {
    let Some(map) = &receive.map else {
        return if receive.given && cpu.value.is_some() {
            Step { why: Why::RpsOff, ..cpu }
        } else {
            without_rps(cpu)
        };
    };
    let of = map.cpus().len();
    match seen.value {
        // Any hash selects it.
        _ if of == 1 => Step::known(map.cpus()[0].into(), Why::OnlyRpsCpu { rfs: receive.rfs }),
        Some(0) => Step { why: Why::NoHash, ..cpu },
        Some(hash) => {
            let place = reciprocal_scale(hash, of as u32);
            let assumed = seen.why == Why::IfPassedOn;
            Step::known(map.cpu(hash).into(), Why::RpsPlace { place, of, rfs: receive.rfs, assumed })
        }
        None => seen,
    }
}

/// No map: the CPU it was received on, if that is known.
const fn without_rps(cpu: Step) -> Step {
    match cpu.value {
        Some(_) => Step { why: Why::RpsDefault, ..cpu },
        None => cpu,
    }
}
