//! Columns of a table that is drawn again and again: of fixed widths, so that nothing jumps when a figure grows; those
//! that matter least are left out where there is no room.

use std::cmp::Ordering;

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use crate::{units, words};

/// Blanks between two columns.
const GAP: usize = 2;
/// What is not known.
pub(super) const UNKNOWN: &str = "?";
/// What is not there, or off.
pub(super) const NONE: &str = "-";

/// What a table is made of.
pub(super) trait Row {
    /// Is this text, in small letters, in what the row shows?
    fn contains(&self, text: &str) -> bool;
    /// Has it a finding?
    fn marked(&self) -> bool;
}

/// How wide a column is, characters.
#[derive(Debug, Clone, Copy)]
pub(super) enum Width {
    /// Always so.
    Fixed(usize),
    /// As the room allows: from, and to.
    Between(usize, usize),
}

impl Width {
    const fn least(self) -> usize {
        match self {
            Self::Fixed(width) | Self::Between(width, _) => width,
        }
    }

    const fn most(self) -> usize {
        match self {
            Self::Fixed(width) | Self::Between(_, width) => width,
        }
    }
}

/// A column of a table of `R`s.
pub(super) struct Column<R> {
    /// Its heading. One character shorter than the column, which leaves room for the mark of the order.
    pub(super) name: &'static str,
    pub(super) width: Width,
    /// Figures keep to the right.
    pub(super) right: bool,
    /// Where there is no room, columns of the lowest number go first.
    pub(super) keep: u8,
    /// Does it say anything of this row? A column that says nothing of any row is left out.
    pub(super) says: fn(&R) -> bool,
    /// The text, for a column of that width.
    pub(super) cell: fn(&R, usize) -> Line<'static>,
    /// Ascending.
    pub(super) order: fn(&R, &R) -> Ordering,
    /// The largest comes first unless it is turned round.
    pub(super) falling: bool,
}

/// By which column a view's rows are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) column: usize,
    pub(super) reversed: bool,
}

/// The column of an order: its name, and whether the largest comes first.
pub(super) fn named<R>(table: &[Column<R>], order: Order) -> Option<(&'static str, bool)> {
    table.get(order.column).map(|column| (column.name, column.falling))
}

/// Where an order leads.
pub(super) const fn arrow(falling: bool) -> &'static str {
    if falling { "▼" } else { "▲" }
}

/// The rows that contain `filter`, in order. Equal ones stay as they came.
pub(super) fn chosen<'a, R: Row>(
    table: &[Column<R>],
    rows: &'a [R],
    order: Order,
    filter: &str,
) -> Vec<&'a R> {
    let filter = filter.to_lowercase();
    let mut rows: Vec<&R> = rows.iter().filter(|row| filter.is_empty() || row.contains(&filter)).collect();
    if let Some(column) = table.get(order.column) {
        let falling = column.falling != order.reversed;
        rows.sort_by(|a, b| {
            let ascending = (column.order)(a, b);
            if falling { ascending.reverse() } else { ascending }
        });
    }
    rows
}

/// Columns with the widths that a screen has for them.
pub(super) struct Layout<'a, R> {
    /// Each with its place in the whole table, and its width.
    columns: Vec<(usize, &'a Column<R>, usize)>,
}

impl<'a, R: Row> Layout<'a, R> {
    /// What of `table` says something of `rows` and fits `width` characters, a mark in front included.
    pub(super) fn new(table: &'a [Column<R>], rows: &[R], width: usize) -> Self {
        let any = |column: &Column<R>| rows.is_empty() || rows.iter().any(column.says);
        let mut columns: Vec<(usize, &Column<R>, usize)> = table
            .iter()
            .enumerate()
            .filter(|(_, column)| any(column))
            .map(|(at, column)| (at, column, column.width.least()))
            .collect();
        let taken = |columns: &[(usize, &Column<R>, usize)]| -> usize {
            1 + columns.iter().map(|(_, _, width)| GAP + width).sum::<usize>()
        };
        while columns.len() > 1 && taken(&columns) > width {
            let least = columns.iter().enumerate().min_by_key(|(_, (_, column, _))| column.keep);
            let Some((at, _)) = least else { break };
            columns.remove(at);
        }
        for at in 0..columns.len() {
            let free = width.saturating_sub(taken(&columns));
            let (_, column, own) = &mut columns[at];
            *own = (*own + free).min(column.width.most()).max(*own);
        }
        Self { columns }
    }

    /// The line above the rows; the column of the order has a mark.
    pub(super) fn headings(&self, order: Option<Order>) -> Line<'static> {
        let style = Style::new().add_modifier(Modifier::BOLD);
        let mut spans = vec![Span::raw(" ")];
        for (at, column, width) in &self.columns {
            let mark = match order {
                Some(order) if order.column == *at => arrow(column.falling != order.reversed),
                _ => "",
            };
            // A mark is always in the column's last blank, so that a heading does not move when it gets one.
            let text = if column.right && mark.is_empty() && order.is_some() {
                format!("{} ", column.name)
            } else {
                format!("{}{mark}", column.name)
            };
            placed(&mut spans, Line::styled(text, style), *width, column.right);
        }
        Line::from(spans)
    }

    /// One row: `!` in front of what is marked.
    pub(super) fn row(&self, row: &R) -> Line<'static> {
        let mut spans = vec![if row.marked() { Span::styled("!", BAD) } else { Span::raw(" ") }];
        for (_, column, width) in &self.columns {
            placed(&mut spans, (column.cell)(row, *width), *width, column.right);
        }
        Line::from(spans)
    }
}

/// Puts a cell behind what is there, a gap and its padding around it.
fn placed(spans: &mut Vec<Span<'static>>, cell: Line<'static>, width: usize, right: bool) {
    let pad = " ".repeat(width.saturating_sub(cell.width()));
    let style = cell.style;
    let cell = cell.spans.into_iter().map(|span| span.patch_style(style));
    spans.push(Span::raw(" ".repeat(GAP)));
    if right {
        spans.push(Span::raw(pad));
        spans.extend(cell);
    } else {
        spans.extend(cell);
        spans.push(Span::raw(pad));
    }
}

/// Losses.
pub(super) const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
/// What may limit.
pub(super) const WARN: Style = Style::new().fg(Color::Yellow);
/// What is good to know.
pub(super) const DIM: Style = Style::new().add_modifier(Modifier::DIM);

/// Something per second: three digits and a prefix.
pub(super) fn rate(value: f64) -> Line<'static> {
    // One in many seconds is not nothing.
    Line::raw(if value > 0.0 && value < 0.05 { "<0.1".to_owned() } else { units::tps(value) })
}

/// The same where it may be unknown.
pub(super) fn known_rate(value: Option<f64>) -> Line<'static> {
    value.map_or_else(|| Line::styled(UNKNOWN, DIM), rate)
}

/// Something lost per second.
pub(super) fn loss(value: f64) -> Line<'static> {
    if value > 0.0 { rate(value).style(BAD) } else { rate(value) }
}

/// The same where it may be unknown.
pub(super) fn known_loss(value: Option<f64>) -> Line<'static> {
    value.map_or_else(|| Line::styled(UNKNOWN, DIM), loss)
}

/// A name from outside, cut to the column.
pub(super) fn name(text: &str, width: usize) -> Line<'static> {
    Line::raw(words::shortened(&words::one_line(text), width))
}

/// Parts of a list, as many as fit whole, and an ellipsis where some are left out.
pub(super) fn list(text: &str, between: char, width: usize) -> Line<'static> {
    if text.is_empty() {
        return Line::raw(NONE);
    }
    if text.chars().count() <= width {
        return Line::raw(text.to_owned());
    }
    let room: String = text.chars().take(width.saturating_sub(1)).collect();
    match room.rfind(between) {
        // The separator goes into the ellipsis, which says that there is more.
        Some(at) => Line::raw(format!("{}…", &room[..at])),
        None => Line::raw(words::shortened(text, width)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Pair(f64, f64);

    impl Row for Pair {
        fn contains(&self, text: &str) -> bool {
            self.0.to_string().contains(text)
        }

        fn marked(&self) -> bool {
            self.1 > 1.0
        }
    }

    const PAIRS: &[Column<Pair>] = &[
        Column {
            name: "first",
            width: Width::Between(6, 9),
            right: false,
            keep: 9,
            says: |_| true,
            cell: |pair, _| Line::raw(pair.0.to_string()),
            order: |a, b| a.0.total_cmp(&b.0),
            falling: false,
        },
        Column {
            name: "second",
            width: Width::Fixed(7),
            right: true,
            keep: 1,
            says: |_| true,
            cell: |pair, _| rate(pair.1),
            order: |a, b| a.1.total_cmp(&b.1),
            falling: true,
        },
    ];

    #[test]
    fn what_does_not_fit_is_left_out_and_what_may_grow_grows() {
        let lines = |width| {
            let layout = Layout::new(PAIRS, &[], width);
            let order = Some(Order { column: 1, reversed: false });
            (layout.headings(order).to_string(), layout.row(&Pair(1.0, 2.0)).to_string())
        };
        assert_eq!(lines(17).0, "   first    ");
        assert_eq!(lines(18), ("   first   second▼".into(), "!  1             2".into()));
        assert_eq!(lines(20).0, "   first     second▼");
        assert_eq!(lines(99).0, "   first      second▼");
    }

    #[test]
    fn rows_are_ordered_filtered_and_equal_ones_stay() {
        let rows = [Pair(1.0, 5.0), Pair(2.0, 7.0), Pair(21.0, 5.0)];
        let chosen = |column, reversed, filter| -> Vec<f64> {
            let rows = chosen(PAIRS, &rows, Order { column, reversed }, filter);
            rows.iter().map(|row| row.0).collect()
        };
        assert_eq!(chosen(0, false, ""), [1.0, 2.0, 21.0]);
        assert_eq!(chosen(0, true, ""), [21.0, 2.0, 1.0]);
        assert_eq!(chosen(1, false, ""), [2.0, 1.0, 21.0]);
        assert_eq!(chosen(1, true, ""), [1.0, 21.0, 2.0]);
        assert_eq!(chosen(0, false, "2"), [2.0, 21.0]);
    }

    #[test]
    fn lists_are_cut_between_their_parts() {
        let cut = |text, width| list(text, ',', width).to_string();
        assert_eq!(cut("0-3,8-11,32", 11), "0-3,8-11,32");
        assert_eq!(cut("0-3,8-11,32", 10), "0-3,8-11…");
        assert_eq!(cut("0-3,8-11,32", 6), "0-3…");
        assert_eq!(cut("", 6), "-");
        assert_eq!(cut("100-200", 4), "100…");
    }

    #[test]
    fn rare_is_not_never() {
        assert_eq!(rate(0.01).to_string(), "<0.1");
        assert_eq!(rate(0.0).to_string(), "0");
        assert_eq!(rate(1234.0).to_string(), "1.23 k");
    }
}
