//! The IRQ of each receive queue.

use std::collections::BTreeMap;

use udpath_host::queues::Direction;
use udpath_host::{Source, interfaces, irqs};

/// IRQs of an interface's receive queues, by queue; empty if it has none.
pub(super) fn of_interface(
    source: &dyn Source,
    interface: &str,
    index: u32,
) -> Result<BTreeMap<u32, u32>, String> {
    let by_napi = by_napi(source, index);
    if !by_napi.is_empty() {
        return Ok(by_napi);
    }
    // Drivers that do not report it to the kernel: by interrupt name. The reader knows the naming rules, and reports
    // why it fails.
    let mut missing = Vec::new();
    let irqs = irqs::read(source, &mut missing).irqs;
    let all = interfaces::read(source, &irqs, &mut missing);
    let found = all.into_iter().find(|one| one.name == interface).ok_or("no such interface")?;
    let irqs: BTreeMap<u32, u32> =
        found.rx.iter().filter_map(|queue| Some((queue.id, queue.irq.as_ref()?.value))).collect();
    let why =
        missing.iter().find(|missing| missing.what.contains(interface) && missing.what.contains("interrupt"));
    match why {
        Some(why) if irqs.is_empty() => Err(why.to_string()),
        _ => Ok(irqs),
    }
}

/// As reported by the kernel's netdev family: queue, NAPI, IRQ.
fn by_napi(source: &dyn Source, index: u32) -> BTreeMap<u32, u32> {
    let (Ok(queues), Ok(napis)) = (source.queues(), source.napis()) else { return BTreeMap::new() };
    let irqs: BTreeMap<u32, u32> = napis.value.iter().filter_map(|napi| Some((napi.id, napi.irq?))).collect();
    let own =
        queues.value.iter().filter(|queue| queue.interface == index && queue.direction == Direction::Rx);
    own.filter_map(|queue| Some((queue.id, *irqs.get(&queue.napi?)?))).collect()
}
