//! IRQs: which CPUs handle them, and which IRQs irqbalance leaves alone.

use udpath_host::shell::quoted;

use super::row::{Access, Cost, Extra, OnReset, PartKind, Phase, Row, Scope, Security, Shell, ValueKind};
use super::{Form, Setting};

const WRITERS: &[&str] = &["irqbalance", "tuned", "a reload of the driver"];

/// CPUs that may handle the IRQ of a receive queue.
pub static OF_QUEUE: Row = Row {
    name: "irq",
    part: PartKind::RxQueue,
    value: ValueKind::SomeCpus,
    access: Access::QueueIrq,
    phase: Phase::Irqs,
    cost: Cost::MovesFlows,
    scope: Scope::Host,
    on_reset: OnReset::Rechosen,
    writers: WRITERS,
    shell: Shell::Line(|setting, value| {
        let Setting::Interface(interface, item) = setting else { return String::new() };
        // If the number is known, the command is that of the IRQ itself.
        format!(
            "# once its number N is known: echo {value} > /proc/irq/N/smp_affinity_list # {} {}",
            quoted(interface),
            item.part_text()
        )
    }),
    page: "irq-affinity",
    security: Security::Harmless,
    extra: Extra { tuned: Some(("irq", "affinity")), errno, ..Extra::NONE },
};

/// CPUs that may handle an IRQ, by its number.
pub static BY_NUMBER: Row = Row {
    name: "irq:affinity",
    part: PartKind::Whole,
    value: ValueKind::SomeCpus,
    access: Access::File(
        |setting| match setting {
            Setting::Irq(number) => format!("/proc/irq/{number}/smp_affinity_list"),
            _ => String::new(),
        },
        Form::List,
    ),
    phase: Phase::Irqs,
    cost: Cost::MovesFlows,
    scope: Scope::Host,
    on_reset: OnReset::Kept,
    writers: WRITERS,
    shell: Shell::Echo,
    page: "irq-affinity",
    security: Security::Harmless,
    extra: Extra {
        tuned: Some(("irq", "affinity")),
        errno: |setting, operation, number| match number {
            libc::ENOENT => Some("no such IRQ"),
            _ => errno(setting, operation, number),
        },
        ..Extra::NONE
    },
};

/// IRQs that the running irqbalance leaves alone, set over its own socket.
pub static IRQBALANCE_BAN: Row = Row {
    name: "irqbalance:ban",
    part: PartKind::Whole,
    value: ValueKind::Irqs,
    access: Access::Object,
    phase: Phase::Conflicts,
    cost: Cost::None,
    scope: Scope::Host,
    on_reset: OnReset::Kept,
    writers: &["a restart of irqbalance"],
    shell: Shell::Line(|_, value| {
        let irqs = value
            .irqs()
            .filter(|irqs| !irqs.is_empty())
            .map_or("NONE".to_owned(), |irqs| irqs.iter().map(u32::to_string).collect::<Vec<_>>().join(" "));
        format!(
            "printf 'settings ban irqs {irqs}' | socat - UNIX-CONNECT:$(ls /run/irqbalance/irqbalance*.sock)"
        )
    }),
    page: "irqbalance-ban",
    security: Security::Harmless,
    extra: Extra::NONE,
};

/// The rows of an interface's IRQs; the others do not belong to an interface.
pub static ROWS: &[&Row] = &[&OF_QUEUE];

/// kernel/irq/proc.c and `irq_set_affinity` of the chips; irqbalance's own notes on the three.
fn errno(_: &Setting, operation: &str, errno: i32) -> Option<&'static str> {
    if operation != "set" {
        return None;
    }
    Some(match errno {
        libc::EIO => "the kernel or the driver manages this IRQ's CPUs itself",
        libc::EPERM => "the kernel manages this IRQ's CPUs itself, or root is needed",
        libc::ENOSPC => "these CPUs have no free interrupt vector; name others, or more of them",
        libc::EINVAL => "none of these CPUs is online",
        libc::EOVERFLOW => "this machine has fewer CPUs",
        _ => return None,
    })
}
