//! Columns of a live table: fixed widths, so that the layout does not move when a figure grows; the least important
//! ones are left out if there is no room.

use std::cmp::Ordering;

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use crate::{units, words};

/// Spaces between two columns.
const GAP: usize = 2;
/// An unknown value.
pub(super) const UNKNOWN: &str = "?";
/// Absent, or off.
pub(super) const NONE: &str = "-";

/// A row of a table.
pub(super) trait Row {
    /// Does the row contain this text (in lower case)?
    fn contains(&self, text: &str) -> bool;
    /// Does it have a finding?
    fn marked(&self) -> bool;
}

/// The width of a column, characters.
#[derive(Debug, Clone, Copy)]
pub(super) enum Width {
    /// Always the same.
    Fixed(usize),
    /// Depends on the room: minimum and maximum.
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
    /// Its heading. One character shorter than the column, which leaves room for the sort mark.
    pub(super) name: &'static str,
    pub(super) width: Width,
    /// Right-aligned, for figures.
    pub(super) right: bool,
    /// If there is no room, columns with the lowest number are left out first.
    pub(super) keep: u8,
    /// Does it have a value for this row? A column without a value in any row is left out.
    pub(super) says: fn(&R) -> bool,
    /// The text, for a column of this width.
    pub(super) cell: fn(&R, usize) -> Line<'static>,
    /// Ascending.
    pub(super) order: fn(&R, &R) -> Ordering,
    /// Descending by default.
    pub(super) falling: bool,
}

/// The sort column of a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) column: usize,
    pub(super) reversed: bool,
}

/// The column of an order: its name, and whether the largest comes first.
pub(super) fn named<R>(table: &[Column<R>], order: Order) -> Option<(&'static str, bool)> {
    table.get(order.column).map(|column| (column.name, column.falling))
}

/// The arrow of a sort direction.
pub(super) const fn arrow(falling: bool) -> &'static str {
    if falling { "▼" } else { "▲" }
}

/// The rows that contain `filter`, sorted. The sort is stable.
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

/// Columns with their widths on a screen.
pub(super) struct Layout<'a, R> {
    /// Each with its index in the whole table, and its width.
    columns: Vec<(usize, &'a Column<R>, usize)>,
}

impl<'a, R: Row> Layout<'a, R> {
    /// The columns of `table` that have values in `rows` and fit in `width` characters, including a mark at the left.
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

    /// The line above the rows; the sort column has a mark.
    pub(super) fn headings(&self, order: Option<Order>) -> Line<'static> {
        let style = Style::new().add_modifier(Modifier::BOLD);
        let mut spans = vec![Span::raw(" ")];
        for (at, column, width) in &self.columns {
            let mark = match order {
                Some(order) if order.column == *at => arrow(column.falling != order.reversed),
                _ => "",
            };
            // A mark always uses the column's last space, so that it does not move the heading.
            let text = if column.right && mark.is_empty() && order.is_some() {
                format!("{} ", column.name)
            } else {
                format!("{}{mark}", column.name)
            };
            placed(&mut spans, Line::styled(text, style), *width, column.right);
        }
        Line::from(spans)
    }

    /// One row, with `!` at the left if it is marked.
    pub(super) fn row(&self, row: &R) -> Line<'static> {
        let mut spans = vec![if row.marked() { Span::styled("!", BAD) } else { Span::raw(" ") }];
        for (_, column, width) in &self.columns {
            placed(&mut spans, (column.cell)(row, *width), *width, column.right);
        }
        Line::from(spans)
    }
}

/// Appends a cell, with a gap and its padding.
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
/// Possible limits.
pub(super) const WARN: Style = Style::new().fg(Color::Yellow);
/// Notes.
pub(super) const DIM: Style = Style::new().add_modifier(Modifier::DIM);

/// A rate per second: three digits and a prefix.
pub(super) fn rate(value: f64) -> Line<'static> {
    // A few events in many seconds are not zero.
    Line::raw(if value > 0.0 && value < 0.05 { "<0.1".to_owned() } else { units::tps(value) })
}

/// The same for a rate that may be unknown.
pub(super) fn known_rate(value: Option<f64>) -> Line<'static> {
    value.map_or_else(|| Line::styled(UNKNOWN, DIM), rate)
}

/// A loss per second.
pub(super) fn loss(value: f64) -> Line<'static> {
    if value > 0.0 { rate(value).style(BAD) } else { rate(value) }
}

/// The same for a loss that may be unknown.
pub(super) fn known_loss(value: Option<f64>) -> Line<'static> {
    value.map_or_else(|| Line::styled(UNKNOWN, DIM), loss)
}

/// A name from outside, cut to the column.
pub(super) fn name(text: &str, width: usize) -> Line<'static> {
    Line::raw(words::shortened(&words::one_line(text), width))
}

/// As many whole parts of a list as fit, and an ellipsis if some are left out.
pub(super) fn list(text: &str, between: char, width: usize) -> Line<'static> {
    if text.is_empty() {
        return Line::raw(NONE);
    }
    if text.chars().count() <= width {
        return Line::raw(text.to_owned());
    }
    let room: String = text.chars().take(width.saturating_sub(1)).collect();
    match room.rfind(between) {
        // The ellipsis replaces the separator.
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
    fn columns_that_do_not_fit_are_left_out_and_flexible_ones_grow() {
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
    fn small_rates_are_not_shown_as_zero() {
        assert_eq!(rate(0.01).to_string(), "<0.1");
        assert_eq!(rate(0.0).to_string(), "0");
        assert_eq!(rate(1234.0).to_string(), "1.23 k");
    }
}
