//! The machine on one screen: UDP, interfaces, CPUs in a line, and the findings.

use ratatui::text::Line;
use udpath_advise::{Finding, Severity};

use super::columns::{self, BAD, Column, DIM, Layout, NONE, Row, WARN, Width};
use super::model::{InterfaceRow, Top, UdpRow};
use crate::terminal::{Paint, Style};
use crate::{finding, units};

/// A column of a rate per second.
macro_rules! per_second {
    ($name:literal, $width:literal, $keep:literal, $field:ident, $show:path) => {
        Column {
            name: $name,
            width: Width::Fixed($width),
            right: true,
            keep: $keep,
            says: |_| true,
            cell: |row, _| $show(row.$field),
            order: |_, _| std::cmp::Ordering::Equal,
            falling: false,
        }
    };
}

/// A text column.
macro_rules! text_column {
    ($name:literal, $width:expr, $keep:literal, $right:literal, $cell:expr) => {
        Column {
            name: $name,
            width: $width,
            right: $right,
            keep: $keep,
            says: |_| true,
            cell: $cell,
            order: |_, _| std::cmp::Ordering::Equal,
            falling: false,
        }
    };
}

const UDP: &[Column<UdpRow>] = &[
    text_column!("UDP/s", Width::Fixed(5), 20, false, |udp, _| Line::raw(udp.family.clone())),
    per_second!("received", 8, 19, received, columns::rate),
    per_second!("no port", 7, 15, no_port, columns::rate),
    per_second!("full buffer", 11, 18, full_buffer, columns::loss),
    per_second!("no memory", 9, 16, no_memory, columns::known_loss),
    per_second!("checksum", 8, 14, checksum, columns::known_loss),
    per_second!("sent", 6, 17, sent, columns::rate),
    per_second!("not sent", 8, 13, not_sent, columns::loss),
];

const INTERFACES: &[Column<InterfaceRow>] = &[
    text_column!("interface", Width::Between(15, 22), 20, false, |row, width| columns::name(
        &row.name, width
    )),
    text_column!("driver", Width::Between(10, 16), 12, false, |row, width| columns::name(&row.driver, width)),
    text_column!("Mbit/s", Width::Fixed(6), 10, true, |row, _| Line::raw(
        row.speed.map_or_else(|| NONE.into(), |speed| speed.to_string())
    )),
    per_second!("packets/s", 9, 19, packets, columns::known_rate),
    per_second!("bytes/s", 7, 15, bytes, columns::known_rate),
    per_second!("missed/s", 8, 18, missed, columns::loss),
    per_second!("dropped/s", 9, 17, dropped, columns::loss),
    text_column!("queues", Width::Fixed(6), 11, true, |row, _| Line::raw(row.queues.to_string())),
    text_column!("XDP", Width::Fixed(3), 9, false, |row, _| Line::raw(if row.xdp { "yes" } else { NONE })),
];

impl Row for UdpRow {
    fn contains(&self, text: &str) -> bool {
        self.family.to_lowercase().contains(text)
    }

    fn marked(&self) -> bool {
        false
    }
}

impl Row for InterfaceRow {
    fn contains(&self, text: &str) -> bool {
        self.name.to_lowercase().contains(text) || self.driver.to_lowercase().contains(text)
    }

    fn marked(&self) -> bool {
        self.marked
    }
}

/// The whole overview. `filter`, in lower case, selects interfaces and findings; `unknown`: how many unknown items are
/// listed at most.
pub(super) fn lines(top: &Top, filter: &str, unknown: usize, width: usize) -> Vec<Line<'static>> {
    let mut out = Vec::new();
    let layout = Layout::new(UDP, &top.udp, width);
    out.push(layout.headings(None));
    out.extend(top.udp.iter().map(|udp| layout.row(udp)));
    out.push(Line::default());
    let layout = Layout::new(INTERFACES, &top.interfaces, width);
    out.push(layout.headings(None));
    let wanted = top.interfaces.iter().filter(|row| filter.is_empty() || row.contains(filter));
    out.extend(wanted.map(|interface| layout.row(interface)));
    if let Some(text) = cpus(top) {
        out.push(Line::default());
        out.extend(wrapped(&text, ratatui::style::Style::new(), 3, width));
    }
    out.push(Line::default());
    let said = |finding: &Finding| format!("{} [{}]", finding::text(finding), finding.id);
    let wanted = |finding: &&Finding| filter.is_empty() || said(finding).to_lowercase().contains(filter);
    let before = out.len();
    for finding in top.findings.iter().filter(wanted) {
        let style = match finding.severity {
            Severity::Loss => BAD,
            Severity::Limit => WARN,
            Severity::Note => DIM,
        };
        let text = format!("{:<6} {}", finding.severity.name(), said(finding));
        out.extend(wrapped(&text, style, 8, width));
    }
    if out.len() == before {
        out.extend(wrapped("no findings in this interval", DIM, 3, width));
    }
    for missing in top.missing.iter().take(unknown) {
        out.extend(wrapped(&format!("unknown: {missing}"), DIM, 3, width));
    }
    if top.missing.len() > unknown {
        out.push(Line::raw(format!("  and {} more: --json has them", top.missing.len() - unknown)));
    }
    out
}

/// `2 CPUs: 34 % busy, 12 % in softirqs, 1.0 % stolen; the busiest is 1, 98 %`.
fn cpus(top: &Top) -> Option<String> {
    let times = || top.cpus.iter().filter_map(|cpu| Some((cpu.cpu, cpu.time?)));
    let count = times().count();
    let (number, busiest) = times().min_by(|(_, a), (_, b)| a.idle.total_cmp(&b.idle))?;
    let mean = |of: fn(&udpath_host::map::Shares) -> f64| {
        units::share(times().map(|(_, time)| of(&time)).sum::<f64>() / count as f64)
    };
    let stolen = mean(|time| time.steal);
    let plural = if count == 1 { "" } else { "s" };
    Some(format!(
        "{count} CPU{plural}: {} busy, {} in softirqs, {stolen} stolen by the hypervisor; the busiest is CPU {number}, {}",
        mean(|time| 1.0 - time.idle),
        mean(|time| time.soft),
        units::share(1.0 - busiest.idle)
    ))
}

/// Wrapped text: the first line is indented by one space, the others by `indent`.
fn wrapped(
    text: &str,
    style: ratatui::style::Style,
    indent: usize,
    width: usize,
) -> impl Iterator<Item = Line<'static>> + use<> {
    let text =
        Style { colour: false, width: width.saturating_sub(1) }.wrapped(Paint::Plain, text, indent - 1);
    let lines: Vec<Line<'static>> =
        text.lines().map(|line| Line::styled(format!(" {line}"), style)).collect();
    lines.into_iter()
}
