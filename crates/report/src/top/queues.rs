//! A line for each receive queue: its packets and losses, and where they go.

use std::cmp::Ordering;

use ratatui::text::Line;

use super::columns::{self, Column, NONE, Row, Width};
use super::model::QueueRow;

/// A column of a rate per second that may be unknown.
macro_rules! per_second {
    ($name:literal, $width:literal, $keep:literal, $field:ident, $show:path) => {
        Column {
            name: $name,
            width: Width::Fixed($width),
            right: true,
            keep: $keep,
            says: |queue| queue.$field.is_some(),
            cell: |queue, _| $show(queue.$field),
            order: |a, b| known(a.$field, b.$field),
            falling: true,
        }
    };
}

pub(super) const COLUMNS: &[Column<QueueRow>] = &[
    Column {
        name: "queue",
        width: Width::Between(11, 22),
        right: false,
        keep: 20,
        says: |_| true,
        cell: |queue, width| name(queue, width),
        // They are already sorted by interface and number.
        order: |a, b| if a.interface == b.interface { a.queue.cmp(&b.queue) } else { Ordering::Equal },
        falling: false,
    },
    per_second!("packets/s", 10, 19, packets, columns::known_rate),
    per_second!("bytes/s", 8, 15, bytes, columns::known_rate),
    per_second!("lost/s", 7, 18, lost, columns::known_loss),
    Column {
        name: "IRQ",
        width: Width::Fixed(5),
        right: true,
        keep: 14,
        says: |queue| queue.irq.is_some(),
        cell: |queue, _| Line::raw(queue.irq.map_or_else(|| NONE.into(), |irq| irq.to_string())),
        order: |a, b| a.irq.cmp(&b.irq),
        falling: false,
    },
    per_second!("irqs/s", 7, 13, interrupts, columns::known_rate),
    Column {
        name: "goes to",
        width: Width::Between(8, 24),
        right: false,
        keep: 17,
        says: |queue| !queue.cpus.is_empty(),
        cell: |queue, width| columns::list(&cpus(&queue.cpus), ',', width),
        order: |a, b| a.cpus.iter().cmp(b.cpus.iter()),
        falling: false,
    },
    Column {
        name: "RPS",
        width: Width::Between(6, 24),
        right: false,
        keep: 16,
        says: |queue| !queue.rps.is_empty(),
        cell: |queue, width| columns::list(&cpus(&queue.rps), ',', width),
        order: |a, b| a.rps.iter().cmp(b.rps.iter()),
        falling: false,
    },
    Column {
        name: "XDP",
        width: Width::Fixed(7),
        right: false,
        keep: 12,
        says: |queue| queue.xdp.is_some(),
        cell: |queue, _| Line::raw(queue.xdp.clone().unwrap_or_else(|| NONE.into())),
        order: |a, b| a.xdp.cmp(&b.xdp),
        falling: true,
    },
];

impl Row for QueueRow {
    fn contains(&self, text: &str) -> bool {
        full_name(self).to_lowercase().contains(text)
    }

    fn marked(&self) -> bool {
        self.marked
    }
}

/// Unknown values sort below zero.
fn known(a: Option<f64>, b: Option<f64>) -> Ordering {
    a.unwrap_or(-1.0).total_cmp(&b.unwrap_or(-1.0))
}

fn cpus(cpus: &udpath_steer::CpuSet) -> String {
    if cpus.is_empty() { String::new() } else { cpus.to_string() }
}

fn full_name(queue: &QueueRow) -> String {
    format!("{}/rx-{}", queue.interface, queue.queue)
}

/// `eth0/rx-3`; a long interface name is cut, the number never.
fn name(queue: &QueueRow, width: usize) -> Line<'static> {
    let number = format!("/rx-{}", queue.queue);
    let interface = columns::name(&queue.interface, width.saturating_sub(number.len()));
    Line::raw(format!("{interface}{number}"))
}
