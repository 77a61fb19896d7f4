//! Aligned columns: each as wide as its widest cell, two spaces apart.

use super::style::{Paint, Style};
use crate::words;

/// Longest text of one cell; a longer one is cut, so that one name cannot push every column off the screen.
const MAX_WIDTH: usize = 44;

/// One cell: text, alignment, colour.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    text: String,
    right: bool,
    paint: Paint,
}

impl Cell {
    /// Text, left-aligned.
    pub(crate) fn new(text: impl AsRef<str>) -> Self {
        let text = words::shortened(&words::one_line(text.as_ref()), MAX_WIDTH);
        Self { text, right: false, paint: Paint::Plain }
    }

    /// Text, left-aligned, not cut: for a name that is to be typed, or a last column.
    pub(crate) fn whole(text: impl AsRef<str>) -> Self {
        Self { text: words::one_line(text.as_ref()), right: false, paint: Paint::Plain }
    }

    /// A figure, right-aligned.
    pub(crate) fn right(text: impl AsRef<str>) -> Self {
        Self { right: true, ..Self::new(text) }
    }

    pub(crate) fn painted(self, paint: Paint) -> Self {
        Self { paint, ..self }
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }
}

/// Rows under headings.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table with dimmed headings, aligned like their cells.
    pub(crate) fn with(headings: Vec<Cell>) -> Self {
        Self { rows: vec![headings.into_iter().map(|cell| cell.painted(Paint::Dim)).collect()] }
    }

    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// Columns the table takes, without anything after its last one.
    pub(crate) fn width(&self) -> usize {
        let widths = self.widths();
        widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1)
    }

    fn widths(&self) -> Vec<usize> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column| self.rows.iter().filter_map(|row| row.get(column)).map(Cell::width).max();
        (0..columns).map(|column| width(column).unwrap_or(0)).collect()
    }

    /// The lines, each terminated, without trailing spaces.
    pub(crate) fn text(&self, style: Style) -> String {
        let widths = self.widths();
        let mut out = String::new();
        for row in &self.rows {
            let mut gap = 0;
            for (cell, width) in row.iter().zip(&widths) {
                let pad = width - cell.width();
                let (before, after) = if cell.right { (pad, 0) } else { (0, pad) };
                if cell.text.is_empty() {
                    gap += width;
                } else {
                    out += &" ".repeat(gap + before);
                    out += &style.paint(cell.paint, &cell.text);
                    gap = after;
                }
                gap += 2;
            }
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_nothing_trails() {
        let mut table = Table::with(vec![Cell::new("name"), Cell::right("tps"), Cell::new("note")]);
        table.row(vec![Cell::new("a"), Cell::right("1"), Cell::new("")]);
        table.row(vec![Cell::new("longer"), Cell::right("12345"), Cell::new("x")]);
        assert_eq!(table.text(Style::default()), "name      tps  note\na           1\nlonger  12345  x\n");
        assert_eq!(table.width(), 19);
    }

    #[test]
    fn colours_do_not_count_as_width() {
        let mut table = Table::with(vec![Cell::new("a"), Cell::new("b")]);
        table.row(vec![Cell::new("xx").painted(Paint::Good), Cell::new("y")]);
        let text = table.text(Style { colour: true, width: 80 });
        assert_eq!(text.lines().nth(1), Some("\x1b[32mxx\x1b[0m  y"));
    }

    #[test]
    fn a_cell_is_one_short_line() {
        let cell = Cell::new("a\nb".repeat(40));
        assert_eq!(cell.width(), MAX_WIDTH);
        assert!(!cell.text.contains('\n'));
    }
}
