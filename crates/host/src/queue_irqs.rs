//! The interrupt of a queue, if the kernel does not report it over netlink: found by the names that drivers give them.
//!
//! ```text
//!  /sys/class/net/eth0/device/msi_irqs   the device's interrupts, by number
//!  /proc/interrupts                      their names: ens1f0-TxRx-3
//!  drivers.rs                            what the names mean
//! ```
//! On some kernels `msi_irqs` is empty (Xen, from 5.17). Then all interrupts are searched, and a name must contain the
//! interface's.

use std::collections::BTreeMap;

use crate::client::netdev::Direction;
use crate::drivers::{self, Serves};
use crate::irqs::Irq;
use crate::{Absence, Fact, Provenance, Source};

const INTERRUPTS: &str = "/proc/interrupts";

/// Interrupts of queues.
pub(crate) type QueueIrqs = BTreeMap<(Direction, u32), u32>;

/// The device whose interrupts to find.
pub(crate) struct Device<'a> {
    pub(crate) interface: &'a str,
    pub(crate) driver: &'a str,
    /// `0000:01:00.0`, `virtio2`.
    pub(crate) bus: Option<&'a str>,
    /// Number of queues.
    pub(crate) queues: usize,
}

/// Its names; several if it is shared.
fn names(irq: &Irq) -> impl Iterator<Item = (u32, &str)> {
    irq.name.split(',').map(|name| (irq.number, name.trim()))
}

/// The interrupts of a device's queues. An error if none is found: a device with queues has some.
pub(crate) fn find(
    source: &dyn Source,
    device: &Device<'_>,
    irqs: &[Irq],
) -> Result<Fact<QueueIrqs>, Absence> {
    let own = device_irqs(source, device.interface);
    let of_device = |irq: &&Irq| own.as_ref().is_none_or(|own| own.contains(&irq.number));
    let candidates: Vec<(u32, &str)> = irqs.iter().filter(of_device).flat_map(names).collect();
    let dev = if own.is_some() { None } else { Some(device.interface) };
    let found = by_name(device, &candidates, dev);
    if found.is_empty() {
        let looked = match &own {
            Some(own) => format!("{} interrupts of the device", own.len()),
            None => format!("{} interrupts in {INTERRUPTS}", irqs.len()),
        };
        let some: Vec<&str> = candidates.iter().take(3).map(|(_, name)| *name).collect();
        return Err(Absence::NotUnderstood(format!(
            "no interrupts found for {} queues of driver {}: none of the {looked} has the name of a queue (seen: {})",
            device.queues,
            device.driver,
            if some.is_empty() { "nothing".into() } else { some.join(", ") },
        )));
    }
    let rule = if own.is_some() {
        "device/msi_irqs and names in /proc/interrupts"
    } else {
        "names in /proc/interrupts"
    };
    Ok(Fact::new(found, Provenance::Derived(rule.into())))
}

/// The device's interrupts: its own, or those of the PCI device below a virtio device. `None` if it lists none.
fn device_irqs(source: &dyn Source, interface: &str) -> Option<Vec<u32>> {
    let lists = [
        format!("/sys/class/net/{interface}/device/msi_irqs"),
        format!("/sys/class/net/{interface}/device/../msi_irqs"),
    ];
    lists.iter().find_map(|list| {
        let irqs: Vec<u32> = source.names(list).ok()?.iter().filter_map(|name| name.parse().ok()).collect();
        (!irqs.is_empty()).then_some(irqs)
    })
}

fn by_name(device: &Device<'_>, candidates: &[(u32, &str)], dev: Option<&str>) -> QueueIrqs {
    let known: Vec<(u32, Serves, u32)> = candidates
        .iter()
        .filter_map(|(irq, name)| {
            let (serves, number) = drivers::queue_of(device.driver, name, dev, device.bus)?;
            Some((*irq, serves, number))
        })
        .collect();
    let half = u32::try_from(known.len() / 2).unwrap_or(0);
    let mut found = QueueIrqs::new();
    for (irq, serves, number) in known {
        let mut serve = |direction, queue| {
            found.entry((direction, queue)).or_insert(irq);
        };
        match serves {
            Serves::Both => {
                serve(Direction::Rx, number);
                serve(Direction::Tx, number);
            }
            Serves::RxAndOnlyTx => {
                serve(Direction::Rx, number);
                serve(Direction::Tx, 0);
            }
            Serves::Rx => serve(Direction::Rx, number),
            Serves::Tx => serve(Direction::Tx, number),
            Serves::Halves if number < half => serve(Direction::Tx, number),
            Serves::Halves => serve(Direction::Rx, number - half),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::source::Folder;

    /// Linux 4.6 with ixgbe, 6.18 with virtio, and a shared line.
    const TEXT: &str = "\
            CPU0       CPU1
  16:          0          9   IO-APIC  16-fasteoi   ehci_hcd:usb1, snd_hda_intel
  38:          0      13437 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0
 131:      12345          1  IR-PCI-MSI 67108864-edge      ens1f0-TxRx-0
 132:      12345          1  IR-PCI-MSI 67108865-edge      ens1f0-TxRx-1
 133:          1          1  IR-PCI-MSI 67108866-edge      ens1f0
 134:          1          1  IR-PCI-MSI 67108867-edge      ens1f01-TxRx-0
 NMI:          0          0   Non-maskable interrupts
";

    fn ixgbe() -> Device<'static> {
        Device { interface: "ens1f0", driver: "ixgbe", bus: Some("0000:81:00.0"), queues: 4 }
    }

    fn queue(direction: Direction, id: u32, irq: u32) -> ((Direction, u32), u32) {
        ((direction, id), irq)
    }

    fn listed(text: &str) -> Vec<Irq> {
        crate::irqs::interrupts(text).unwrap().irqs
    }

    #[test]
    fn a_shared_interrupt_has_several_names() {
        let irqs = listed(TEXT);
        assert_eq!(irqs.len(), 6);
        assert_eq!(names(&irqs[0]).collect::<Vec<_>>(), [(16, "ehci_hcd:usb1"), (16, "snd_hda_intel")]);
    }

    #[test]
    fn without_a_list_the_interface_must_be_in_the_name() {
        let folder = tempfile::tempdir().unwrap();
        let source = Folder::captured(folder.path());
        let found = find(&source, &ixgbe(), &listed(TEXT)).unwrap();
        let wanted = [
            queue(Direction::Rx, 0, 131),
            queue(Direction::Rx, 1, 132),
            queue(Direction::Tx, 0, 131),
            queue(Direction::Tx, 1, 132),
        ];
        assert_eq!(found.value, QueueIrqs::from(wanted));
        assert_eq!(found.from, Provenance::Derived("names in /proc/interrupts".into()));
    }

    #[test]
    fn with_a_list_a_renamed_interface_keeps_its_interrupts() {
        let folder = tempfile::tempdir().unwrap();
        for irq in [131, 132, 133] {
            fs::create_dir_all(folder.path().join(format!("sys/class/net/wan/device/msi_irqs/{irq}")))
                .unwrap();
        }
        let source = Folder::captured(folder.path());
        let renamed = Device { interface: "wan", ..ixgbe() };
        let found = find(&source, &renamed, &listed(TEXT)).unwrap();
        assert_eq!(found.value.len(), 4);
        assert_eq!(found.value[&(Direction::Rx, 1)], 132);
    }

    #[test]
    fn no_interrupt_for_several_queues_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let source = Folder::captured(folder.path());
        let strange = Device { interface: "eth7", driver: "ixgbe", bus: None, queues: 16 };
        let Err(Absence::NotUnderstood(why)) = find(&source, &strange, &listed(TEXT)) else {
            panic!("found something");
        };
        assert!(
            why.starts_with("no interrupts found for 16 queues of driver ixgbe: none of the 6 interrupts"),
            "{why}"
        );
    }

    #[test]
    fn halves_are_split_by_how_many_there_are() {
        let names: Vec<String> = (0..8).map(|n| format!("gve-ntfy-blk{n}@pci:0000:00:04.0")).collect();
        let candidates: Vec<(u32, &str)> = (40..).zip(names.iter().map(String::as_str)).collect();
        let gve = Device { interface: "eth0", driver: "gve", bus: Some("0000:00:04.0"), queues: 8 };
        let found = by_name(&gve, &candidates, None);
        assert_eq!((found[&(Direction::Tx, 3)], found[&(Direction::Rx, 0)]), (43, 44));
        let mana: Vec<(u32, &str)> = vec![(50, "mana_q0@pci:7870:00:00.0"), (51, "mana_q1@pci:7870:00:00.0")];
        let device = Device { interface: "eth1", driver: "mana", bus: Some("7870:00:00.0"), queues: 1 };
        let wanted = [queue(Direction::Rx, 0, 51), queue(Direction::Tx, 0, 51)];
        assert_eq!(by_name(&device, &mana, None), QueueIrqs::from(wanted));
    }
}
