//! The queues of an interface: steering from sysfs, NAPI and interrupt from the best source, counters by name.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use udpath_netlink::ethtool::channels::Channels;
use udpath_netlink::ioctl::device::Driver;
use udpath_steer::CpuSet;

use crate::client::netdev::{Counters, Napi};
use crate::irqs::Irq;
use crate::queue_irqs::{self, Device};
use crate::text::{Malformed, cpu_mask, noted, one, optional};
use crate::{Fact, Missing, Provenance, Source, drivers};

pub use crate::client::netdev::{Direction, NetdevQueue, QueueCounters};

/// A receive queue.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct RxQueue {
    /// Its index, from 0.
    pub id: u32,
    /// The NAPI instance that serves it.
    pub napi: Option<u32>,
    /// Its interrupt. `None` for software devices, and for those whose interrupts the kernel does not manage (Hyper-V).
    pub irq: Option<Fact<u32>>,
    /// CPUs that process its packets after the interrupt's CPU; empty: the interrupt's CPU.
    pub rps_cpus: Option<CpuSet>,
    /// Number of RFS flows for it.
    pub rps_flow_cnt: Option<u32>,
    /// Whether it is bound to an AF_XDP socket, or exists for one alone. From Linux 5.3 to 6.0 mlx5 reported a second
    /// half of receive queues for that: no packet ever arrives on those without one.
    pub xsk: bool,
    /// Its counters.
    pub counters: Option<Fact<Counters>>,
}

/// A transmit queue.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct TxQueue {
    /// Its index, from 0.
    pub id: u32,
    /// The NAPI instance that cleans it.
    pub napi: Option<u32>,
    /// Its interrupt.
    pub irq: Option<Fact<u32>>,
    /// CPUs that send on it. `None` on an interface with one queue.
    pub xps_cpus: Option<CpuSet>,
    /// Receive queues whose flows are sent on it, as a set of their indexes.
    pub xps_rxqs: Option<CpuSet>,
    /// Its counters.
    pub counters: Option<Fact<Counters>>,
}

pub(crate) type CountersOfQueues = BTreeMap<(Direction, u32), Counters>;

/// Interrupts of queues, each with its source.
type Irqs = BTreeMap<(Direction, u32), Fact<u32>>;

/// Answers that cover all interfaces.
pub(crate) struct Lists<'a> {
    pub(crate) queues: List<NetdevQueue>,
    pub(crate) napis: List<Napi>,
    pub(crate) counters: List<QueueCounters>,
    pub(crate) irqs: &'a [Irq],
}

/// A list covering all interfaces, sorted by interface index, so that lookups stay fast with thousands of interfaces.
pub(crate) struct List<T> {
    fact: Option<Fact<Vec<T>>>,
    interface: fn(&T) -> u32,
}

impl<T: Clone> List<T> {
    pub(crate) fn new(mut fact: Option<Fact<Vec<T>>>, interface: fn(&T) -> u32) -> Self {
        if let Some(fact) = &mut fact {
            fact.value.sort_by_key(interface);
        }
        Self { fact, interface }
    }

    /// The entries of one interface.
    fn of(&self, index: u32) -> &[T] {
        let all = self.fact.as_ref().map_or(&[][..], |fact| &fact.value);
        let (begin, end) = (
            all.partition_point(|item| (self.interface)(item) < index),
            all.partition_point(|item| (self.interface)(item) <= index),
        );
        &all[begin..end]
    }

    /// The same, with the list's source; `None` without a list.
    pub(crate) fn fact(&self, index: u32) -> Option<Fact<Vec<T>>> {
        self.fact.as_ref().map(|fact| Fact::new(self.of(index).to_vec(), fact.from.clone()))
    }
}

/// The interface whose queues to read.
pub(crate) struct Owner<'a> {
    pub(crate) name: &'a str,
    pub(crate) index: u32,
    pub(crate) driver: Option<&'a Driver>,
    pub(crate) channels: Option<&'a Channels>,
    pub(crate) driver_counters: Option<&'a Fact<Counters>>,
    /// Name of the device below /sys/class/net/DEV/device; `None` for a software device.
    pub(crate) device: Option<&'a str>,
}

/// The queues.
pub(crate) fn read(
    source: &dyn Source,
    missing: &mut Vec<Missing>,
    owner: &Owner<'_>,
    lists: &Lists<'_>,
) -> (Vec<RxQueue>, Vec<TxQueue>) {
    let directory = format!("/sys/class/net/{}/queues", owner.name);
    let what = format!("queues of {}", owner.name);
    let names = noted(missing, &what, &directory, source.names(&directory)).unwrap_or_default();
    let ids = |stem: &str| -> Vec<u32> {
        names.iter().filter_map(|name| name.strip_prefix(stem)?.parse().ok()).collect()
    };
    let (rx_ids, tx_ids) = (ids("rx-"), ids("tx-"));
    let table = Table::new(owner, lists);
    let irqs = table.irqs(source, missing, owner, lists, rx_ids.len() + tx_ids.len());
    let counters = counters(owner.index, owner.driver, owner.driver_counters, &lists.counters);
    let xsk_from = first_xsk_queue(owner, rx_ids.len());
    let irq_of = |direction, id| irqs.get(&(direction, id)).cloned();
    let counters_of = |direction, id| {
        let fact = counters.as_ref()?;
        Some(Fact::new(fact.value.get(&(direction, id))?.clone(), fact.from.clone()))
    };
    let mut rx = Vec::with_capacity(rx_ids.len());
    for id in rx_ids {
        let queue = table.queue(Direction::Rx, id);
        let files = Files { source, interface: owner.name, queue: format!("rx-{id}") };
        rx.push(RxQueue {
            id,
            napi: queue.and_then(|queue| queue.napi),
            irq: irq_of(Direction::Rx, id),
            rps_cpus: files.read(missing, "rps_cpus", cpu_mask),
            rps_flow_cnt: files.read(missing, "rps_flow_cnt", one),
            xsk: queue.is_some_and(|queue| queue.xsk) || xsk_from.is_some_and(|from| id >= from),
            counters: counters_of(Direction::Rx, id),
        });
    }
    let mut tx = Vec::with_capacity(tx_ids.len());
    for id in tx_ids {
        let files = Files { source, interface: owner.name, queue: format!("tx-{id}") };
        tx.push(TxQueue {
            id,
            napi: table.queue(Direction::Tx, id).and_then(|queue| queue.napi),
            irq: irq_of(Direction::Tx, id),
            xps_cpus: files.read(missing, "xps_cpus", cpu_mask),
            xps_rxqs: files.read(missing, "xps_rxqs", cpu_mask).filter(|queues| !queues.is_empty()),
            counters: counters_of(Direction::Tx, id),
        });
    }
    (rx, tx)
}

/// The files of one queue.
struct Files<'a> {
    source: &'a dyn Source,
    interface: &'a str,
    queue: String,
}

impl Files<'_> {
    fn read<T>(
        &self,
        missing: &mut Vec<Missing>,
        file: &str,
        parse: impl FnOnce(&str) -> Result<T, Malformed>,
    ) -> Option<T> {
        let path = format!("/sys/class/net/{}/queues/{}/{file}", self.interface, self.queue);
        let what = format!("{file} of {} {}", self.interface, self.queue);
        optional(self.source, missing, &what, &path, parse)
    }
}

/// Index of the first receive queue in the half reserved for AF_XDP.
fn first_xsk_queue(owner: &Owner<'_>, rx_queues: usize) -> Option<u32> {
    let doubled = drivers::DOUBLED_RX_QUEUES.contains(&owner.driver?.name.as_str());
    let real = owner.channels?.rx_queues();
    (doubled && real > 0 && rx_queues == 2 * real as usize).then_some(real)
}

/// The kernel's own list of one interface's queues.
struct Table<'a> {
    queues: BTreeMap<(Direction, u32), &'a NetdevQueue>,
}

impl<'a> Table<'a> {
    fn new(owner: &Owner<'_>, lists: &'a Lists<'_>) -> Self {
        let own = lists.queues.of(owner.index).iter();
        Self { queues: own.map(|queue| ((queue.direction, queue.id), queue)).collect() }
    }

    fn queue(&self, direction: Direction, id: u32) -> Option<&NetdevQueue> {
        self.queues.get(&(direction, id)).copied()
    }

    /// Interrupts of queues: from the kernel, and by name where the kernel does not report them.
    fn irqs(
        &self,
        source: &dyn Source,
        missing: &mut Vec<Missing>,
        owner: &Owner<'_>,
        lists: &Lists<'_>,
        queues: usize,
    ) -> Irqs {
        let mut irqs = self.irqs_of_napis(owner, lists);
        if irqs.len() >= queues {
            return irqs;
        }
        let driver = owner.driver.map(|driver| driver.name.as_str());
        // Software devices have no interrupts, and some hardware has none that the kernel manages.
        let (Some(driver), Some(bus)) = (driver, owner.device) else { return irqs };
        // A missing list of interrupts is already reported.
        if drivers::WITHOUT_IRQS.contains(&driver) || lists.irqs.is_empty() {
            return irqs;
        }
        let device = Device { interface: owner.name, driver, bus: Some(bus), queues };
        match queue_irqs::find(source, &device, lists.irqs) {
            Ok(Fact { value, from }) => {
                for (queue, irq) in value {
                    irqs.entry(queue).or_insert_with(|| Fact::new(irq, from.clone()));
                }
            }
            // The kernel reported some: the others may have none.
            Err(_) if !irqs.is_empty() => {}
            Err(why) => {
                let what = format!("interrupts of the queues of {}", owner.name);
                let from = Provenance::File("/proc/interrupts".into());
                missing.push(Missing { what, from, why });
            }
        }
        irqs
    }

    fn irqs_of_napis(&self, owner: &Owner<'_>, lists: &Lists<'_>) -> Irqs {
        let Some(napis) = lists.napis.fact(owner.index) else { return Irqs::new() };
        let irqs: BTreeMap<u32, u32> =
            napis.value.iter().filter_map(|napi| Some((napi.id, napi.irq?))).collect();
        let served = self.queues.iter().filter_map(|(queue, row)| {
            let irq = *irqs.get(&row.napi?)?;
            Some((*queue, Fact::new(irq, napis.from.clone())))
        });
        served.collect()
    }
}

/// Counters of queues: from the kernel, else from the driver by name.
pub(crate) fn counters(
    index: u32,
    driver: Option<&Driver>,
    driver_counters: Option<&Fact<Counters>>,
    lists: &List<QueueCounters>,
) -> Option<Fact<CountersOfQueues>> {
    if let Some(Fact { value, from }) = lists.fact(index).filter(|own| !own.value.is_empty()) {
        let own = value.into_iter().map(|queue| ((queue.direction, queue.id), queue.counters));
        return Some(Fact::new(own.collect(), from));
    }
    let (driver, counters) = (driver?, driver_counters?);
    let mut found = CountersOfQueues::new();
    for (name, value) in &counters.value {
        if let Some((direction, id, counter)) = drivers::queue_counter(&driver.name, name) {
            found.entry((direction, id)).or_default().insert(counter.to_owned(), *value);
        }
    }
    (!found.is_empty()).then(|| Fact::new(found, counters.from.clone()))
}
