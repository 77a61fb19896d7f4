//! The queues of an interface: steering from sysfs, NAPI and interrupt from the best source, counters by name.

use std::collections::BTreeMap;

use super::queue_irqs::{self, Device, QueueIrqs};
use super::text::{Malformed, cpu_mask, noted, one, optional};
use crate::snapshot::irqs::Irq;
use crate::snapshot::{
    Channels, Counters, Direction, Driver, Napi, NetdevQueue, QueueCounters, RxQueue, TxQueue,
};
use crate::{Fact, Missing, Source, drivers};

type CountersOfQueues = BTreeMap<(Direction, u32), Counters>;

/// What was asked for all interfaces at once.
pub(super) struct Lists<'a> {
    pub(super) queues: Option<Fact<Vec<NetdevQueue>>>,
    pub(super) napis: Option<Fact<Vec<Napi>>>,
    pub(super) counters: Option<Fact<Vec<QueueCounters>>>,
    pub(super) irqs: &'a [Irq],
}

/// The interface whose queues are wanted.
pub(super) struct Owner<'a> {
    pub(super) name: &'a str,
    pub(super) index: u32,
    pub(super) driver: Option<&'a Driver>,
    pub(super) channels: Option<&'a Channels>,
    pub(super) driver_counters: Option<&'a Fact<Counters>>,
    /// Name of the device below /sys/class/net/DEV/device; none of a software device.
    pub(super) device: Option<&'a str>,
}

/// The queues.
pub(super) fn read(
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
    let counters = table.counters(owner, lists);
    let xsk_from = first_xsk_queue(owner, rx_ids.len());
    let irq_of = |direction, id| {
        let irq = *irqs.as_ref()?.value.get(&(direction, id))?;
        Some(Fact::new(irq, irqs.as_ref()?.from.clone()))
    };
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

/// Where the half of receive queues begins that is there for AF_XDP alone.
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
        let all = lists.queues.iter().flat_map(|queues| &queues.value);
        let own = all.filter(|queue| queue.interface == owner.index);
        Self { queues: own.map(|queue| ((queue.direction, queue.id), queue)).collect() }
    }

    fn queue(&self, direction: Direction, id: u32) -> Option<&NetdevQueue> {
        self.queues.get(&(direction, id)).copied()
    }

    /// Interrupts of queues: from the kernel, else by names.
    fn irqs(
        &self,
        source: &dyn Source,
        missing: &mut Vec<Missing>,
        owner: &Owner<'_>,
        lists: &Lists<'_>,
        queues: usize,
    ) -> Option<Fact<QueueIrqs>> {
        if let Some(fact) = self.irqs_of_napis(owner, lists) {
            return Some(fact);
        }
        let driver = owner.driver.map(|driver| driver.name.as_str());
        // Software devices have no interrupts, and some hardware has none of the kernel's.
        let (Some(driver), Some(bus)) = (driver, owner.device) else { return None };
        // Without a list of interrupts that is said already.
        if drivers::WITHOUT_IRQS.contains(&driver) || queues == 0 || lists.irqs.is_empty() {
            return None;
        }
        let device = Device { interface: owner.name, driver, bus: Some(bus), queues };
        let found = queue_irqs::find(source, &device, lists.irqs);
        noted(missing, &format!("interrupts of the queues of {}", owner.name), "/proc/interrupts", found)
    }

    fn irqs_of_napis(&self, owner: &Owner<'_>, lists: &Lists<'_>) -> Option<Fact<QueueIrqs>> {
        let napis = lists.napis.as_ref()?;
        let own = napis.value.iter().filter(|napi| napi.interface == owner.index);
        let irqs: BTreeMap<u32, u32> = own.filter_map(|napi| Some((napi.id, napi.irq?))).collect();
        let served = self.queues.iter().filter_map(|(queue, row)| Some((*queue, *irqs.get(&row.napi?)?)));
        let found: QueueIrqs = served.collect();
        (!found.is_empty()).then(|| Fact::new(found, napis.from.clone()))
    }

    /// Counters of queues: from the kernel, else the driver's by their names.
    fn counters(&self, owner: &Owner<'_>, lists: &Lists<'_>) -> Option<Fact<CountersOfQueues>> {
        if let Some(fact) = &lists.counters {
            let own = fact.value.iter().filter(|queue| queue.interface == owner.index);
            let found: CountersOfQueues =
                own.map(|queue| ((queue.direction, queue.id), queue.counters.clone())).collect();
            if !found.is_empty() {
                return Some(Fact::new(found, fact.from.clone()));
            }
        }
        let (driver, counters) = (owner.driver?, owner.driver_counters?);
        let mut found = CountersOfQueues::new();
        for (name, value) in &counters.value {
            if let Some((direction, id, counter)) = drivers::queue_counter(&driver.name, name) {
                found.entry((direction, id)).or_default().insert(counter.to_owned(), *value);
            }
        }
        (!found.is_empty()).then(|| Fact::new(found, counters.from.clone()))
    }
}
