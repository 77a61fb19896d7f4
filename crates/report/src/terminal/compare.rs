//! Two results compared, on one screen: the conclusion, every figure of both, what else differs.

use udpath_advise::comparison::{CompareResult, Figure, Pair};
use udpath_advise::result::Verdict;

use super::table::{Cell, Table};
use super::{Paint, Style};
use crate::words::{self, compare};

/// Most lines of what else differs: two machines may have hundreds of different settings; `--json` has them all.
const DIFFERENCES: usize = 24;
/// Most figures of a group: a profile has dozens of classes and locks, the largest differences first.
const ROWS: usize = 16;

pub(crate) fn text(result: &CompareResult, names: [&str; 2], style: &Style) -> String {
    let style = *style;
    let paint = match result.verdict {
        _ if !result.unlike.is_empty() => Paint::Warn,
        Verdict::Worse => Paint::Bad,
        Verdict::Better => Paint::Good,
        _ => Paint::Bold,
    };
    let mut out = style.wrapped(paint, &compare::conclusion(result), 0);
    for (side, name) in ["A", "B"].iter().zip(names) {
        out += &style.wrapped(Paint::Dim, &format!("{side}: {name}"), 5);
    }
    out.push('\n');
    out += &figures(result).text(style);
    if !result.differs.is_empty() {
        out.push('\n');
        out += &differences("also different", &result.differs).text(style);
        if result.differs.len() > DIFFERENCES {
            let more = result.differs.len() - DIFFERENCES;
            out += &style.wrapped(Paint::Dim, &format!("and {more} more; --json has them all"), 0);
        }
    }
    if !result.notes.is_empty() {
        out.push('\n');
    }
    for note in &result.notes {
        out += &style.wrapped(Paint::Dim, &format!("note: {note}"), 2);
    }
    out
}

/// What differs, with the value on both sides.
pub(super) fn differences(title: &str, pairs: &[Pair]) -> Table {
    let mut table = Table::with([title, "A", "B"].map(Cell::new).into());
    for pair in pairs.iter().take(DIFFERENCES) {
        table.row(
            [words::one_line(&pair.what), compare::value(&pair.a), compare::value(&pair.b)]
                .map(Cell::new)
                .into(),
        );
    }
    table
}

fn figures(result: &CompareResult) -> Table {
    let headings = vec![Cell::new(""), Cell::right("A"), Cell::right("B"), Cell::new("B / A"), Cell::new("")];
    let mut table = Table::with(headings);
    for group in result.figures.chunk_by(|one, next| one.group == next.group) {
        let title = group.first().map_or("", |figure| figure.group.as_str());
        table.row(vec![Cell::whole(title)]);
        for figure in group.iter().take(ROWS) {
            table.row(row(figure));
        }
        if group.len() > ROWS {
            table.row(vec![Cell::new(format!("  and {} more", group.len() - ROWS)).painted(Paint::Dim)]);
        }
    }
    table
}

fn row(figure: &Figure) -> Vec<Cell> {
    let paint = match figure.verdict {
        Some(Verdict::Worse) => Paint::Bad,
        Some(Verdict::Better) => Paint::Good,
        _ => Paint::Plain,
    };
    let side = |value| Cell::right(compare::amount(figure.unit, value));
    vec![
        Cell::new(format!("  {}", figure.name)),
        side(figure.a),
        side(figure.b),
        Cell::new(compare::ratio(figure)).painted(paint),
        Cell::new(compare::verdict(figure)).painted(paint),
    ]
}
