//! The map live: rates of one interval, in four views.
//!
//! ```text
//!  Map of two looks ─▸ model: Top, rates per second ─▸ overview, cpus, queues, sockets ─▸ screen: a Frame
//!                                                        columns: what fits, in order   └▸ text: all at once
//!                                                           state: view, order, filter, place
//! ```
//! Drawing is a function of a [`Top`] and a [`State`]: no clock, no terminal, no memory of earlier frames. Colours are
//! from the basic sixteen, and only repeat what letters and marks show.

mod columns;
mod cpus;
mod model;
mod overview;
mod queues;
mod screen;
mod sockets;
mod state;

use std::fmt::Write as _;

use crate::terminal::Style;
use columns::Order;
use state::first_order;

pub use model::{CpuRow, InterfaceRow, QueueRow, SCHEMA, SocketRow, Top, UdpRow};
pub use screen::{Extent, draw};
pub use state::{State, View};

/// Rows of a table in text. All of them are in the JSON form.
const LINES: usize = 24;
/// Most unknown items that the text lists.
const UNKNOWN: usize = 4;

/// All views of one interval as text, one after the other.
#[must_use]
pub fn text(top: &Top, style: &Style) -> String {
    let width = style.width;
    let mut out = screen::headline(top) + "\n\n";
    for line in overview::lines(top, "", UNKNOWN, width) {
        out += line.to_string().trim_end();
        out.push('\n');
    }
    let mut table = |view: View, (head, rows, all): (String, Vec<String>, usize)| {
        if all == 0 {
            return;
        }
        let legend = if view == View::Cpus { format!(": {}", cpus::LEGEND) } else { String::new() };
        let _ = write!(out, "\n{}{legend}\n{}\n", view.name(), head.trim_end());
        for row in &rows {
            out += row.trim_end();
            out.push('\n');
        }
        if all > rows.len() {
            let _ = writeln!(out, "  and {} more: --json has them", all - rows.len());
        }
    };
    table(View::Cpus, lines(cpus::COLUMNS, &top.cpus, first_order(View::Cpus), width));
    table(View::Queues, lines(queues::COLUMNS, &top.queues, first_order(View::Queues), width));
    table(View::Sockets, lines(sockets::COLUMNS, &top.sockets, first_order(View::Sockets), width));
    out
}

/// Headings and rows of a table, and the total number of rows.
fn lines<R: columns::Row>(
    table: &[columns::Column<R>],
    rows: &[R],
    order: Order,
    width: usize,
) -> (String, Vec<String>, usize) {
    let layout = columns::Layout::new(table, rows, width);
    let rows = columns::chosen(table, rows, order, "");
    let shown = rows.iter().take(LINES).map(|row| layout.row(row).to_string()).collect();
    (layout.headings(None).to_string(), shown, rows.len())
}
