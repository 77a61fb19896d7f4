//! The columns of a map's tables, and an interface in one line.

use udpath_host::map::{CpuMap, InterfaceMap, QueueMap};
use udpath_steer::CpuSet;

use crate::units;

/// Absent, or off.
pub(super) const NONE: &str = "-";

/// A column of a table of `R`s. A column that is empty in all rows is left out.
pub(super) struct Column<R> {
    pub(super) name: &'static str,
    pub(super) says: fn(&R) -> bool,
    pub(super) text: fn(&R) -> String,
}

/// A share of CPU time; left out if it is zero on all CPUs.
macro_rules! time {
    ($name:literal, $field:ident) => {
        Column {
            name: $name,
            says: |cpu| cpu.time.is_some_and(|time| time.$field >= 0.000_5),
            text: |cpu| cpu.time.map_or_else(String::new, |time| units::share_in_column(time.$field)),
        }
    };
}

/// A count of the receive path; left out if it is zero on all CPUs.
macro_rules! softnet {
    ($name:literal, |$softnet:ident| $count:expr) => {
        Column {
            name: $name,
            says: |cpu| cpu.softnet.is_some_and(|$softnet| $count > 0),
            text: |cpu| cpu.softnet.map_or_else(String::new, |$softnet| units::count($count.into())),
        }
    };
}

pub(super) const CPU_COLUMNS: &[Column<CpuMap>] = &[
    Column {
        name: "node",
        says: |cpu| cpu.node.is_some_and(|node| node > 0),
        text: |cpu| cpu.node.map_or_else(|| NONE.to_owned(), |node| node.to_string()),
    },
    time!("usr", usr),
    time!("sys", sys),
    time!("soft", soft),
    time!("irq", irq),
    time!("steal", steal),
    time!("idle", idle),
    softnet!("packets", |softnet| softnet.processed),
    softnet!("dropped", |softnet| softnet.dropped),
    softnet!("squeezed", |softnet| softnet.time_squeeze),
    softnet!("by RPS", |softnet| softnet.received_rps.unwrap_or(0)),
];

/// The path from left to right.
pub(super) const COLUMNS: &[Column<QueueMap>] = &[
    Column {
        name: "RSS",
        says: |q| q.share.is_some(),
        text: |q| q.share.map_or_else(String::new, units::share_in_column),
    },
    Column {
        name: "packets",
        says: |q| q.packets.is_some(),
        text: |q| q.packets.map_or_else(String::new, units::count),
    },
    Column {
        name: "lost",
        says: |q| q.drops.is_some(),
        text: |q| q.drops.map_or_else(String::new, units::count),
    },
    Column {
        name: "IRQ",
        says: |q| q.irq.is_some(),
        text: |q| q.irq.map_or_else(|| NONE.into(), |irq| irq.to_string()),
    },
    Column {
        name: "interrupts",
        says: |q| q.interrupts.is_some(),
        text: |q| q.interrupts.map_or_else(String::new, units::count),
    },
    Column {
        name: "may go to",
        says: |q| q.affinity.is_some(),
        text: |q| q.affinity.as_ref().map_or_else(String::new, list),
    },
    Column { name: "goes to", says: |q| !q.cpus.is_empty(), text: |q| list(&q.cpus) },
    Column {
        name: "node",
        says: |q| !q.nodes.is_empty(),
        text: |q| list(&q.nodes.iter().copied().collect()),
    },
    Column {
        name: "hint",
        says: |q| q.hint.is_some(),
        text: |q| q.hint.as_ref().map_or_else(String::new, list),
    },
    Column { name: "RPS", says: |q| !q.rps.is_empty(), text: |q| list(&q.rps) },
    Column { name: "XPS", says: |q| !q.xps.is_empty(), text: |q| list(&q.xps) },
];

fn list(cpus: &CpuSet) -> String {
    if cpus.is_empty() { NONE.into() } else { cpus.to_string() }
}

/// An interface in one line: its kind, how packets are distributed, its counters.
pub(super) fn about(interface: &InterfaceMap) -> String {
    let mut parts = vec![match &interface.driver {
        Some(driver) => format!("{} ({driver})", interface.name),
        None => format!("{} ({})", interface.name, interface.kind),
    }];
    parts.extend(interface.speed.map(|mbits| match mbits {
        m if m >= 1000 => format!("{} Gbit/s", f64::from(m) / 1000.0),
        m => format!("{m} Mbit/s"),
    }));
    if interface.carrier == Some(false) {
        parts.push("no carrier".into());
    }
    parts.extend(interface.node.map(|node| format!("node {node}")));
    if !interface.lower.is_empty() {
        parts.push(format!("over {}", interface.lower.join(" and ")));
    }
    parts.push(format!("{} rx and {} tx queues", interface.rx_queues, interface.tx_queues));
    parts.extend(interface.rss.as_ref().map(|rss| {
        let fields = |family: &str, fields: &Option<String>| {
            fields.as_ref().map_or_else(String::new, |fields| format!(", {family} by {fields}"))
        };
        let spread = format!("RSS over {} of them", rss.queues);
        format!("{spread}{}{}", fields("udp4", &rss.udp4), fields("udp6", &rss.udp6))
    }));
    if interface.xdp {
        parts.push("XDP".into());
    }
    parts.extend(interface.packets.map(|packets| format!("{} packets", units::count(packets))));
    let losses = [(interface.missed, "missed"), (interface.dropped, "dropped")];
    parts.extend(
        losses.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{} {what}", units::count(*n))),
    );
    parts.join(", ")
}
