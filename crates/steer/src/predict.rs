//! Where a flow's datagrams go, given the tables of a machine; and which source ports lead to a wanted place.
//!
//! ```text
//! Tables (what is known) --check--> Predictor --decide(flow)--> Path: hash, queue, irq, cpu, rps, socket
//!                                             --source_ports--> ports whose path ends where it should
//!                          paths of many flows --> Spread        packets that really came --> Verification
//! ```
//! Every step has a value or none, and says why: "not known" is a normal answer, and a guess never is. What the kernel
//! does with a secret of its own (its software hash, its choice by hash in a reuseport group) is not known to anybody
//! outside, and is told as such.

mod path;
mod reverse;
mod spread;
mod tables;
mod verify;
mod why;

pub use path::{Path, Step};
pub use reverse::{Ports, ReverseError, Wanted};
pub use spread::{Amount, Spread};
pub use tables::{HashFunction, Queue, Schema, Sockets, Tables, TablesError};
pub use verify::{Differs, Judged, Observed, Verification};
pub use why::Why;

use std::collections::BTreeMap;

use crate::drivers::{self, Driver};
use crate::flow::Flow;
use crate::hash::reciprocal_scale;
use crate::reuseport::{By, Group};
use crate::rps::RpsMap;
use crate::rss::IndirectionTable;
use crate::toeplitz::{Fields, Toeplitz, Transform};

/// Tables made ready for many flows.
#[derive(Debug)]
pub struct Predictor {
    hash: Hash,
    /// Queues there are.
    queues: Option<u32>,
    table: Option<IndirectionTable>,
    /// The queue of every entry, if it is the same for all.
    only: Option<u32>,
    by_queue: BTreeMap<u32, Receive>,
    sockets: Option<Receivers>,
    threaded: bool,
    senders_queue: bool,
}

/// The sockets of which one gets a datagram, made ready for many flows.
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

/// What the network card hashes.
#[derive(Debug)]
struct Hash {
    key: Result<Toeplitz, Why>,
    udp4: Result<Fields, Why>,
    udp6: Result<Fields, Why>,
    transform: Transform,
    /// Does the driver pass it on, so that RPS and programs see the same hash?
    passed_on: Option<bool>,
}

/// What is known of a receive queue.
#[derive(Debug, Clone, Default)]
struct Receive {
    irq: Option<u32>,
    cpu: Option<Step>,
    /// Was a map given at all?
    given: bool,
    map: Option<RpsMap>,
    rfs: bool,
}

impl Predictor {
    /// Checks the tables and prepares them.
    ///
    /// # Errors
    /// They contradict themselves or name what there is not.
    pub fn new(tables: &Tables) -> Result<Self, TablesError> {
        tables.check()?;
        let driver = tables.driver.as_deref().and_then(drivers::find);
        let table = tables.table.clone();
        let only = table.as_ref().and_then(|table| {
            let first = table.entries()[0];
            table.entries().iter().all(|&queue| queue == first).then_some(first)
        });
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
            hash: Hash::new(tables, driver),
            queues: tables.queues,
            table,
            only,
            by_queue: by_queue.collect(),
            sockets: tables.sockets.as_ref().map(Receivers::new),
            threaded: tables.threaded == Some(true),
            senders_queue: tables.senders_queue == Some(true),
        })
    }

    /// The way of the flow's datagrams.
    #[must_use]
    pub fn decide(&self, flow: &Flow) -> Path {
        self.decide_among(flow, self.sockets.as_ref())
    }

    /// The same, with these sockets at its end instead of those of the tables.
    #[must_use]
    pub fn decide_among(&self, flow: &Flow, receivers: Option<&Receivers>) -> Path {
        let hash = self.hash.of(flow);
        let queue = self.queue(hash);
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
        // The hash as the stack sees it: the card's, if it counts as one over ports.
        let seen = self.hash.seen(flow, hash);
        let rps = match receive {
            Some(receive) => rps(receive, seen, cpu),
            None if queue.value.is_some() => without_rps(cpu),
            None => Step::unknown(Why::QueueUnknown),
        };
        Path { hash, queue, irq, cpu, rps, socket: socket(receivers, seen, rps) }
    }

    /// The hash that the stack sees with the flow's packets, if the driver passes on the card's.
    #[must_use]
    pub fn seen(&self, flow: &Flow) -> Step {
        self.hash.seen(flow, self.hash.of(flow))
    }

    /// How many receive queues there are.
    #[must_use]
    pub const fn queues(&self) -> Option<u32> {
        self.queues
    }

    fn queue(&self, hash: Step) -> Step {
        if self.queues == Some(1) {
            return Step::known(0, Why::OnlyQueue);
        }
        if let Some(queue) = self.only {
            return Step::known(queue, Why::EveryEntry);
        }
        match (&self.table, hash.value) {
            (None, _) if self.senders_queue => Step::unknown(Why::SendersQueue),
            (None, _) => Step::unknown(Why::NoTable),
            (Some(_), None) => Step::unknown(Why::HashUnknown),
            (Some(table), Some(hash)) => {
                let why = Why::Entry { index: table.index(hash), of: table.entries().len() };
                Step::known(table.queue(hash), why)
            }
        }
    }
}

/// The socket that gets it.
fn socket(receivers: Option<&Receivers>, seen: Step, cpu: Step) -> Step {
    let Some(Receivers { by, group }) = receivers else { return Step::unknown(Why::NoSockets) };
    match group.len() {
        0 => return Step::unknown(Why::NoListener),
        1 => return Step::known(0, Why::OnlySocket),
        _ => {}
    }
    match by {
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
        // Any hash leads there.
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

/// No map: where it was received, if that is known.
const fn without_rps(cpu: Step) -> Step {
    match cpu.value {
        Some(_) => Step { why: Why::RpsDefault, ..cpu },
        None => cpu,
    }
}

impl Hash {
    fn new(tables: &Tables, driver: Option<&'static Driver>) -> Self {
        let key = match (&tables.key, tables.function, driver) {
            (_, Some(function), _) if function != HashFunction::Toeplitz => {
                Err(Why::OtherFunction { function })
            }
            (_, _, Some(driver)) if !driver.toeplitz => Err(Why::OtherToeplitz { driver: driver.name }),
            (Some(key), ..) => Ok(Toeplitz::new(key.clone())),
            (None, _, Some(driver)) => Err(Why::RandomKey { driver: driver.name }),
            (None, ..) => Err(Why::NoKey),
        };
        let fields = |given: Option<Fields>, family: &'static str| match (given, driver) {
            (Some(fields), _) => Ok(fields),
            (None, Some(driver)) => match driver.udp_ports {
                Some(true) => Ok(Fields::AddressesPorts),
                Some(false) => Ok(Fields::Addresses),
                None => Err(Why::NoFields { family }),
            },
            (None, None) => Err(Why::NoFields { family }),
        };
        let default = driver.map(|driver| driver.transform).unwrap_or_default();
        Self {
            key,
            udp4: fields(tables.udp4, "udp4"),
            udp6: fields(tables.udp6, "udp6"),
            transform: tables.transform.unwrap_or(default),
            passed_on: tables.passed_on.or(driver.and_then(|driver| driver.l4_hash)),
        }
    }

    const fn fields(&self, flow: &Flow) -> Result<Fields, Why> {
        if flow.is_ipv4() { self.udp4 } else { self.udp6 }
    }

    fn of(&self, flow: &Flow) -> Step {
        match (&self.key, self.fields(flow)) {
            (Err(why), _) => Step::unknown(*why),
            (_, Err(why)) => Step::unknown(why),
            (Ok(toeplitz), Ok(fields)) => {
                let transform = self.transform;
                Step::known(toeplitz.hash(flow, fields, transform), Why::Toeplitz { fields, transform })
            }
        }
    }

    /// The hash that RPS and programs see (`skb_get_hash`): the card's only if it is over ports and passed on;
    /// otherwise the kernel computes one with a secret.
    fn seen(&self, flow: &Flow, hash: Step) -> Step {
        match (hash.value, self.fields(flow), self.passed_on) {
            (_, Ok(Fields::Addresses), _) => Step::unknown(Why::HashOfAddresses),
            (_, _, Some(false)) => Step::unknown(Why::HashNotPassedOn),
            (None, ..) => Step::unknown(Why::HashUnknown),
            (Some(_), _, None) => Step { why: Why::IfPassedOn, ..hash },
            (Some(_), _, Some(true)) => hash,
        }
    }
}
