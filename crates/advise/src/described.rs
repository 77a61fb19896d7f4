//! A machine as the model describes it: from a snapshot, with the costs that a profile of it shows.

use std::collections::BTreeMap;

use udpath_host::Snapshot;
use udpath_host::map::{InterfaceMap, Map};
use udpath_model::costs::{COSTS_SCHEMA, Range};
use udpath_model::description::{Io, Link};
use udpath_model::kernel::Kernel;
use udpath_model::{Costs, Description};
use udpath_profile::Profile;
use udpath_profile::context::Context;
use udpath_steer::CpuSet;

/// Why a machine cannot be described, or its profile says nothing.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DescribeError {
    /// The interface is not there.
    #[error("there is no interface {name:?}; there are {known}")]
    NoInterface {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// No interface that carries traffic.
    #[error("there is no interface with receive queues to describe")]
    Nothing,
    /// The profile has no cost per transaction.
    #[error("the profile has no cost per transaction: {0}")]
    Profile(&'static str),
}

/// Fewest transactions for a cost. Fewer: the cost is that of an idle machine.
const FEWEST: u64 = 1000;
/// Relative error of costs that come from one profile: the split of its classes, and a load that is not at the limit.
const PROFILE_ERROR: f64 = 0.2;

/// Describes the machine of a snapshot, with the named interface or the one that received most; its service is that
/// with the largest group of sockets, and its load a closed loop that keeps it busy.
///
/// # Errors
/// The interface is not there, or there is none.
pub fn describe(now: &Snapshot, interface: Option<&str>) -> Result<Description, DescribeError> {
    let map = Map::whole(now, None);
    let interface = chosen(&map, interface)?;
    let order = Order::of(now);
    let cpus = order.cpus();
    let queues = interface.rx_queues.max(1);
    let virtual_link = interface.kind != "device";
    let all = |set: &CpuSet| set.is_empty() || set.len() >= cpus;
    let irqs: CpuSet = interface.queues.iter().flat_map(|queue| queue.cpus.iter()).collect();
    let rps: Vec<CpuSet> =
        interface.queues.iter().take(queues).map(|queue| order.renumbered(&queue.rps)).collect();
    let xps = interface.queues.iter().any(|queue| !queue.xps.is_empty());
    let group = map.sockets.iter().map(|socket| socket.group).max().unwrap_or(0);
    let busy = map.processes.iter().map(|process| process.threads.min(cpus)).max().unwrap_or(cpus);
    let (io, workers) = match group {
        0 => (Io::Reuseport, cpus),
        1 => (Io::Shared, busy.max(1)),
        group => (Io::Reuseport, group),
    };
    Ok(Description {
        cores: order.cores,
        threads_per_core: order.threads,
        nodes: order.nodes,
        virtual_machine: map.hypervisor.is_some(),
        kernel: map.kernel.parse().unwrap_or(Kernel::new(6, 18)),
        link: if virtual_link { Link::Veth } else { Link::Card },
        link_gbps: interface
            .speed
            .filter(|_| !virtual_link)
            .map_or(0.0, |megabits| f64::from(megabits) / 1e3),
        queues: if virtual_link { queues } else { queues.min(cpus) },
        transmit_queues: interface.tx_queues,
        irqs: if all(&irqs) { CpuSet::new() } else { order.renumbered(&irqs) },
        xps: xps && interface.tx_queues > 1,
        rps: if rps.iter().all(CpuSet::is_empty) { Vec::new() } else { rps },
        io,
        workers,
        pin: false,
        flows: 1024,
        inflight: 64 * cpus,
        ..Description::default()
    })
}

fn chosen<'m>(map: &'m Map, name: Option<&str>) -> Result<&'m InterfaceMap, DescribeError> {
    let known = || map.interfaces.iter().map(|it| it.name.as_str()).collect::<Vec<_>>().join(", ");
    if let Some(name) = name {
        let found = map.interfaces.iter().find(|it| it.name == name);
        return found.ok_or_else(|| DescribeError::NoInterface { name: name.to_owned(), known: known() });
    }
    let candidates = map.interfaces.iter().filter(|it| it.rx_queues > 0 && it.kind != "loopback");
    candidates.max_by_key(|it| (it.kind == "device", it.packets.unwrap_or(0))).ok_or(DescribeError::Nothing)
}

/// The model's numbers of CPUs: first a thread of each core, node by node, then the second threads.
struct Order {
    number: BTreeMap<u32, u32>,
    cores: usize,
    threads: usize,
    nodes: usize,
}

impl Order {
    fn of(now: &Snapshot) -> Self {
        let online = now.cpus.list.iter().filter(|cpu| cpu.online);
        let mut cores = BTreeMap::<_, Vec<u32>>::new();
        for cpu in online {
            // Where the kernel does not say, each CPU is a core.
            let core = cpu.core.map_or((1, cpu.number), |core| (0, core));
            cores.entry((cpu.node, cpu.package, core)).or_default().push(cpu.number);
        }
        let threads = cores.values().map(Vec::len).max().unwrap_or(1);
        let nodes = cores.keys().map(|(node, ..)| *node).collect::<std::collections::BTreeSet<_>>().len();
        let count = cores.len().max(1);
        let mut number = BTreeMap::new();
        for (core, cpus) in (0..).zip(cores.values()) {
            for (thread, cpu) in (0..).zip(cpus) {
                number.insert(*cpu, core + thread * count as u32);
            }
        }
        // Nodes of unequal size cannot be described: their lines are taken to be as near as within one.
        let nodes = if nodes > 0 && count % nodes == 0 { nodes } else { 1 };
        Self { number, cores: count, threads, nodes }
    }

    fn cpus(&self) -> usize {
        self.cores * self.threads
    }

    fn renumbered(&self, cpus: &CpuSet) -> CpuSet {
        cpus.iter().filter_map(|cpu| self.number.get(&cpu).copied()).collect()
    }
}

/// Costs of the described machine, from a profile of it under load: `base`, with its receiving and its program's work
/// scaled to what the profile's transactions took.
///
/// # Errors
/// A profile of some CPUs only, or of too few transactions.
pub fn costs_of(profile: &Profile, description: &Description, base: &Costs) -> Result<Costs, DescribeError> {
    if !profile.whole() {
        return Err(DescribeError::Profile("not all CPUs were sampled"));
    }
    let datagrams = profile.datagrams.ok_or(DescribeError::Profile("datagrams were not counted"))?;
    let transactions = datagrams.transactions();
    if transactions < FEWEST {
        return Err(DescribeError::Profile("fewer than 1000 transactions passed during it"));
    }
    let charged = profile.charged() as f64;
    let softirq: u64 =
        [Context::Softirq, Context::HardIrq].iter().filter_map(|at| profile.contexts.get(at)).sum();
    let [receiving, program] =
        [softirq as f64, (charged - softirq as f64).max(0.0)].map(|ns| ns / transactions as f64);
    let terms = base.terms;
    let own = [
        terms.poll + terms.device_receive + terms.protocol_receive + terms.enqueue + terms.sent,
        2.0 * terms.call + terms.read + terms.service + terms.send + terms.device_send,
    ];
    let [receive, serve] = [receiving / own[0].max(1.0), program / own[1].max(1.0)];
    let terms = terms.map(|term, value| match term.name {
        "poll" | "device_receive" | "protocol_receive" | "enqueue" | "sent" | "discard" => value * receive,
        "call" | "read" | "service" | "send" | "device_send" => value * serve,
        _ => value,
    });
    Ok(Costs {
        schema: COSTS_SCHEMA.to_owned(),
        machine: format!("a profile of {transactions} transactions; between CPUs: {}", base.machine),
        range: Range {
            cpus: description.cpus(),
            queues: description.queues,
            nodes: description.nodes,
            threads_per_core: description.threads_per_core,
            kernel: description.kernel.to_string(),
            virtual_link: description.link == Link::Veth,
        },
        error: PROFILE_ERROR.max(base.error),
        terms,
    })
}

#[cfg(test)]
mod tests {
    use udpath_host::source::Folder;

    use super::*;

    #[test]
    fn this_machine_can_be_described() {
        let now = Snapshot::read(&Folder::live());
        match describe(&now, None) {
            Ok(description) => {
                assert_eq!(description.check(), Ok(()), "{description:?}");
                assert_eq!(description.cpus(), now.cpus.online.len());
            }
            Err(error) => assert_eq!(error, DescribeError::Nothing),
        }
        let none = describe(&now, Some("no-such-0")).unwrap_err().to_string();
        assert!(none.starts_with("there is no interface \"no-such-0\"; there are "), "{none}");
    }
}
