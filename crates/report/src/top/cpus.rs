//! A line for each CPU: its time in the interval as one bar, and its receive path counters.

use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use udpath_host::map::Shares;

use super::columns::{self, Column, DIM, Row, UNKNOWN, Width};
use super::model::CpuRow;
use crate::units;

/// The legend of the bars' letters.
pub(super) const LEGEND: &str = "i irq  s softirq  k system  u user  t stolen by the hypervisor  · idle";

/// A kind of time in the bar: its letter, its colour, its share.
type Kind = (char, Option<Color>, fn(&Shares) -> f64);

/// From the left: the cost of the network first.
const KINDS: [Kind; 5] = [
    ('i', Some(Color::Magenta), |time| time.irq),
    ('s', Some(Color::Cyan), |time| time.soft),
    ('k', Some(Color::Red), |time| time.sys),
    ('u', Some(Color::Green), |time| time.usr),
    ('t', Some(Color::Yellow), |time| time.steal),
];

/// A share of the time in a column of its own.
macro_rules! share {
    ($name:literal, $keep:literal, $field:ident) => {
        Column {
            name: $name,
            width: Width::Fixed(7),
            right: true,
            keep: $keep,
            says: |_| true,
            cell: |cpu, _| cpu.time.map_or_else(|| Line::styled(UNKNOWN, DIM), |time| percent(time.$field)),
            order: |a, b| of(a, |time| time.$field).total_cmp(&of(b, |time| time.$field)),
            falling: true,
        }
    };
}

pub(super) const COLUMNS: &[Column<CpuRow>] = &[
    Column {
        name: "CPU",
        width: Width::Fixed(4),
        right: true,
        keep: 20,
        says: |_| true,
        cell: |cpu, _| Line::raw(cpu.cpu.to_string()),
        order: |a, b| a.cpu.cmp(&b.cpu),
        falling: false,
    },
    Column {
        name: "node",
        width: Width::Fixed(5),
        right: true,
        keep: 2,
        says: |cpu| cpu.node.is_some_and(|node| node > 0),
        cell: |cpu, _| Line::raw(cpu.node.map_or_else(|| columns::NONE.into(), |node| node.to_string())),
        order: |a, b| a.node.cmp(&b.node),
        falling: false,
    },
    Column {
        name: "busy",
        width: Width::Fixed(6),
        right: true,
        keep: 19,
        says: |_| true,
        cell: |cpu, _| {
            cpu.time.map_or_else(|| Line::styled(UNKNOWN, DIM), |time| percent((1.0 - time.idle).max(0.0)))
        },
        order: |a, b| of(a, busy).total_cmp(&of(b, busy)),
        falling: true,
    },
    Column {
        name: "time",
        width: Width::Between(14, 40),
        right: false,
        keep: 18,
        says: |_| true,
        cell: |cpu, width| cpu.time.map_or_else(Line::default, |time| bar(&time, width)),
        order: |a, b| of(a, network).total_cmp(&of(b, network)),
        falling: true,
    },
    share!("soft", 6, soft),
    share!("irq", 3, irq),
    share!("sys", 4, sys),
    share!("usr", 4, usr),
    share!("steal", 5, steal),
    Column {
        name: "packets/s",
        width: Width::Fixed(10),
        right: true,
        keep: 17,
        says: |_| true,
        cell: |cpu, _| columns::rate(cpu.packets),
        order: |a, b| a.packets.total_cmp(&b.packets),
        falling: true,
    },
    Column {
        name: "drops/s",
        width: Width::Fixed(8),
        right: true,
        keep: 16,
        says: |_| true,
        cell: |cpu, _| columns::loss(cpu.dropped),
        order: |a, b| a.dropped.total_cmp(&b.dropped),
        falling: true,
    },
    Column {
        name: "squeezed/s",
        width: Width::Fixed(11),
        right: true,
        keep: 15,
        says: |_| true,
        cell: |cpu, _| columns::rate(cpu.squeezed),
        order: |a, b| a.squeezed.total_cmp(&b.squeezed),
        falling: true,
    },
    Column {
        name: "by RPS/s",
        width: Width::Fixed(9),
        right: true,
        keep: 7,
        says: |cpu| cpu.by_rps.is_some(),
        cell: |cpu, _| columns::known_rate(cpu.by_rps),
        order: |a, b| a.by_rps.unwrap_or(0.0).total_cmp(&b.by_rps.unwrap_or(0.0)),
        falling: true,
    },
    Column {
        name: "queues",
        width: Width::Between(12, 60),
        right: false,
        keep: 14,
        says: |cpu| !cpu.queues.is_empty(),
        cell: |cpu, width| columns::list(&cpu.queues.join(" "), ' ', width),
        order: |a, b| a.queues.len().cmp(&b.queues.len()),
        falling: true,
    },
];

impl Row for CpuRow {
    fn contains(&self, text: &str) -> bool {
        let queue = |name: &String| name.to_lowercase().contains(text);
        format!("cpu{} node{}", self.cpu, self.node.unwrap_or(0)).contains(text)
            || self.queues.iter().chain(&self.rps_of).any(queue)
    }

    fn marked(&self) -> bool {
        self.marked
    }
}

fn of(cpu: &CpuRow, share: fn(&Shares) -> f64) -> f64 {
    cpu.time.as_ref().map_or(0.0, share)
}

fn busy(time: &Shares) -> f64 {
    1.0 - time.idle
}

/// The first part of the bar.
fn network(time: &Shares) -> f64 {
    time.irq + time.soft
}

fn percent(share: f64) -> Line<'static> {
    Line::raw(units::share(share))
}

/// `iisssskkuuuu······`: each kind's part of `width` characters. They add up to the total despite rounding.
fn bar(time: &Shares, width: usize) -> Line<'static> {
    let (mut spans, mut sum, mut drawn) = (Vec::with_capacity(KINDS.len() + 1), 0.0, 0);
    for (letter, colour, share) in KINDS {
        sum += share(time).max(0.0);
        let end = ((sum * width as f64).round() as usize).clamp(drawn, width);
        let style = colour.map_or_else(Style::new, |colour| Style::new().fg(colour));
        spans.push(Span::styled(String::from(letter).repeat(end - drawn), style));
        drawn = end;
    }
    spans.push(Span::styled("·".repeat(width - drawn), DIM));
    Line::from(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_the_time() {
        let time = Shares { usr: 0.3, sys: 0.1, irq: 0.04, soft: 0.36, steal: 0.1, idle: 0.1 };
        assert_eq!(bar(&time, 20).to_string(), "issssssskkuuuuuutt··");
        for width in 0..60 {
            assert_eq!(bar(&time, width).width(), width);
        }
        let wrong = Shares { usr: 7.0, soft: -1.0, ..Shares::default() };
        assert_eq!(bar(&wrong, 4).to_string(), "uuuu");
        assert_eq!(bar(&Shares::default(), 3).to_string(), "···");
    }
}
