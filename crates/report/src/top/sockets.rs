//! A line for each UDP socket: its owner, how full its buffer is, its drops.

use std::cmp::Ordering;
use std::net::SocketAddr;

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::columns::{self, BAD, Column, DIM, NONE, Row, UNKNOWN, WARN, Width};
use super::model::SocketRow;
use crate::terminal::bar;
use crate::{units, words};

/// Index of the column of drops.
pub(super) const DROPPED: usize = 3;
/// Characters after a bar: ` 100 %`.
const PERCENT: usize = 6;
/// Share of a buffer from which on it is nearly full: a burst may no longer fit.
const NEARLY: f64 = 0.8;

pub(super) const COLUMNS: &[Column<SocketRow>] = &[
    Column {
        name: "socket",
        width: Width::Between(21, 44),
        right: false,
        keep: 20,
        says: |_| true,
        cell: |socket, width| Line::raw(name(socket, width)),
        order: |a, b| (a.local.port(), a.local.ip()).cmp(&(b.local.port(), b.local.ip())),
        falling: false,
    },
    Column {
        name: "group",
        width: Width::Fixed(6),
        right: true,
        keep: 14,
        says: |socket| socket.group > 1,
        cell: |socket, _| Line::raw(if socket.group > 1 { socket.group.to_string() } else { NONE.into() }),
        order: |a, b| a.group.cmp(&b.group),
        falling: true,
    },
    Column {
        name: "queue full",
        width: Width::Between(13, 24),
        right: false,
        keep: 17,
        says: |socket| socket.full.is_some(),
        cell: |socket, width| full(socket, width),
        order: |a, b| a.full.unwrap_or(-1.0).total_cmp(&b.full.unwrap_or(-1.0)),
        falling: true,
    },
    Column {
        name: "drops/s",
        width: Width::Fixed(8),
        right: true,
        keep: 19,
        says: |_| true,
        cell: |socket, _| columns::loss(socket.dropped),
        order: |a, b| a.dropped.total_cmp(&b.dropped).then(a.queued.cmp(&b.queued)),
        falling: true,
    },
    Column {
        name: "queued",
        width: Width::Fixed(9),
        right: true,
        keep: 12,
        says: |_| true,
        cell: |socket, _| Line::raw(size(socket.queued)),
        order: |a, b| a.queued.cmp(&b.queued),
        falling: true,
    },
    Column {
        name: "buffer",
        width: Width::Fixed(9),
        right: true,
        keep: 13,
        says: |socket| socket.buffer.is_some(),
        cell: |socket, _| {
            socket.buffer.map_or_else(|| Line::styled(UNKNOWN, DIM), |all| Line::raw(size(all)))
        },
        order: |a, b| a.buffer.cmp(&b.buffer),
        falling: true,
    },
    Column {
        name: "process",
        width: Width::Between(15, 32),
        right: false,
        keep: 18,
        says: |_| true,
        cell: |socket, width| Line::raw(process(socket, width)),
        order: |a, b| process_order(a, b),
        falling: false,
    },
    Column {
        name: "thr",
        width: Width::Fixed(4),
        right: true,
        keep: 15,
        says: |_| true,
        cell: |socket, _| Line::raw(socket.threads.map_or_else(|| NONE.into(), |n| n.to_string())),
        order: |a, b| a.threads.cmp(&b.threads),
        falling: true,
    },
];

impl Row for SocketRow {
    fn contains(&self, text: &str) -> bool {
        let peer = self.peer.map_or_else(String::new, |peer| peer.to_string());
        let process = self.process.as_deref().unwrap_or_default().to_lowercase();
        let pid = self.pid.map_or_else(String::new, |pid| pid.to_string());
        self.local.to_string().contains(text) || [peer, process, pid].iter().any(|shown| shown.contains(text))
    }

    fn marked(&self) -> bool {
        self.marked
    }
}

/// Its local address, and its peer if there is room for both.
fn name(socket: &SocketRow, width: usize) -> String {
    let local = socket.local.to_string();
    let Some(peer) = socket.peer else { return address(socket.local, width) };
    let both = format!("{local} to {peer}");
    if both.chars().count() <= width { both } else { address(socket.local, width) }
}

/// An address and its port; a long address is cut in the middle, the port never.
fn address(address: SocketAddr, width: usize) -> String {
    let text = address.to_string();
    if text.len() <= width {
        return text;
    }
    let port = text.rfind("]:").map_or("", |at| &text[at..]);
    format!("{}…{port}", &text[..width.saturating_sub(port.len() + 1)])
}

/// The buffer as a bar, and in per cent.
fn full(socket: &SocketRow, width: usize) -> Line<'static> {
    let Some(share) = socket.full else { return Line::styled(UNKNOWN, DIM) };
    let style = match share {
        share if share >= NEARLY => BAD,
        share if share >= NEARLY / 2.0 => WARN,
        _ => Style::new(),
    };
    let room = width.saturating_sub(PERCENT);
    let bar = bar(share, room);
    let pad = " ".repeat(room.saturating_sub(bar.chars().count()));
    let percent = units::share(share);
    Line::from(vec![Span::styled(bar, style), Span::raw(pad), Span::raw(format!("{percent:>PERCENT$}"))])
}

fn size(bytes: u32) -> String {
    match bytes {
        0 => "0".into(),
        bytes if bytes < 1024 => format!("{bytes} B"),
        bytes => units::memory(bytes.into()),
    }
}

/// `nsd 900 +3`: the name, the pid, and how many more processes have it open.
fn process(socket: &SocketRow, width: usize) -> String {
    let Some(pid) = socket.pid else { return UNKNOWN.into() };
    let more = if socket.others > 0 { format!(" +{}", socket.others) } else { String::new() };
    let behind = format!(" {pid}{more}");
    let name = words::one_line(socket.process.as_deref().unwrap_or(UNKNOWN));
    format!("{}{behind}", words::shortened(&name, width.saturating_sub(behind.len())))
}

fn process_order(a: &SocketRow, b: &SocketRow) -> Ordering {
    (&a.process, a.pid).cmp(&(&b.process, b.pid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_addresses_keep_their_port() {
        let long = "[2001:db8:1234:5678:9abc:def0:1234:5678]:5353".parse().unwrap();
        assert_eq!(address(long, 21), "[2001:db8:1234…]:5353");
        assert_eq!(address(long, 45), "[2001:db8:1234:5678:9abc:def0:1234:5678]:5353");
        assert_eq!(address("0.0.0.0:53".parse().unwrap(), 21), "0.0.0.0:53");
    }
}
