//! Identifies the IRQ behind a number. The kernel reuses numbers: after a driver reload the same number may belong to
//! another card, or to a disk.

use super::Identity;
use udpath_host::Source;
use udpath_host::irqs;
use udpath_host::source::value;

/// Devices that have IRQs, by their addresses.
const DEVICES: &str = "/sys/bus/pci/devices";

/// The identity of an IRQ; `None` if the IRQ does not exist, or neither its action nor its device is known.
pub(super) fn identity(source: &dyn Source, irq: u32) -> Option<Identity> {
    let (action, device) = (action(source, irq), device(source, irq));
    if action.is_none() && device.is_none() {
        return None;
    }
    Some(Identity::Irq { action: action.unwrap_or_default(), device: device.unwrap_or_default() })
}

/// The only IRQ with the same action and device, under any number.
pub(super) fn find(source: &dyn Source, wanted: &Identity) -> Option<u32> {
    let Identity::Irq { action: name, .. } = wanted else { return None };
    let numbers = source.names("/proc/irq").ok()?;
    let mut found = numbers.iter().filter_map(|number| {
        let number = number.parse().ok()?;
        // Check the action first: it is one small file.
        let same = action(source, number).as_ref() == Some(name)
            && identity(source, number).as_ref() == Some(wanted);
        same.then_some(number)
    });
    let first = found.next()?;
    // Two matches: it is not known which one it is.
    found.next().is_none().then_some(first)
}

/// The driver's name for it; several names if it is shared.
fn action(source: &dyn Source, irq: u32) -> Option<String> {
    // Linux 4.9 and later; empty while there is no handler.
    value(source, &format!("/sys/kernel/irq/{irq}/actions")).ok().or_else(|| {
        let listed = irqs::listed(source).ok()?;
        listed.irqs.into_iter().find(|found| found.number == irq).map(|found| found.name)
    })
}

/// The device of an IRQ.
fn device(source: &dyn Source, irq: u32) -> Option<String> {
    let number = irq.to_string();
    let of = |device: &&String| {
        let at = |file: &str| format!("{DEVICES}/{device}/{file}");
        // Devices without MSI have the file `irq`.
        match source.names(&at("msi_irqs")) {
            Ok(irqs) if !irqs.is_empty() => irqs.contains(&number),
            _ => value(source, &at("irq")).is_ok_and(|found| found == number),
        }
    };
    let devices = source.names(DEVICES).unwrap_or_default();
    devices.iter().find(of).cloned().or_else(|| {
        let file = |name: &str| value(source, &format!("/sys/kernel/irq/{irq}/{name}")).ok();
        Some(format!("{} {}", file("chip_name")?, file("hwirq")?))
    })
}
