//! Two profiles on one screen: the total difference, then classes and locks by largest change.

use udpath_profile::difference::{Difference, Pair};

use super::table::{Cell, Table};
use super::{Paint, Style};
use crate::units;

/// Lines of classes and of locks.
const CLASSES: usize = 16;
const LOCKS: usize = 5;
/// Names of the two profiles if they have none of their own.
const NAMES: [&str; 2] = ["A", "B"];

pub(crate) fn text(difference: &Difference, style: &Style) -> String {
    let style = *style;
    let mut out = style.wrapped(Paint::Bold, &difference.sentence(), 0);
    out.push('\n');
    out += &classes(difference, NAMES, CLASSES).text(style);
    let locks = difference.locks.iter().map(|pair| (pair.of.replace('-', " "), pair.into()));
    if !difference.locks.is_empty() {
        out.push('\n');
        out += &table("lock of", difference, NAMES, locks.take(LOCKS)).text(style);
    }
    out
}

/// The largest changes between two profiles with these names: the total, then at most `most` classes.
pub(super) fn classes(difference: &Difference, names: [&str; 2], most: usize) -> Table {
    let busy = (whole(difference).to_owned(), (&difference.busy).into());
    let classes = difference.classes.iter().map(|pair| (pair.of.title().to_owned(), pair.into()));
    table("class", difference, names, std::iter::once(busy).chain(classes).take(most + 1))
}

/// The label of the total of all classes.
pub(crate) const fn whole(difference: &Difference) -> &'static str {
    if difference.charged { "all but other programs" } else { "all busy time" }
}

/// The figures of a pair.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Costs {
    pub(crate) a: f64,
    pub(crate) b: f64,
    pub(crate) ratio: Option<f64>,
}

impl<T> From<&Pair<T>> for Costs {
    fn from(pair: &Pair<T>) -> Self {
        Self { a: pair.a, b: pair.b, ratio: pair.ratio() }
    }
}

impl Costs {
    /// A, B, difference and ratio as text.
    pub(crate) fn figures(self) -> [String; 4] {
        let more = self.b - self.a;
        let size = units::time(more.abs());
        let sign = match size.as_str() {
            "0 ns" | units::NONE => "",
            _ if more > 0.0 => "+",
            _ => "-",
        };
        let ratio = self.ratio.map_or_else(|| "new".to_owned(), |ratio| format!("{}×", units::ratio(ratio)));
        [units::time(self.a), units::time(self.b), format!("{sign}{size}"), ratio]
    }
}

fn table(
    first: &str,
    difference: &Difference,
    names: [&str; 2],
    rows: impl Iterator<Item = (String, Costs)>,
) -> Table {
    let unit = difference.unit.title();
    let mut headings = vec![Cell::new(format!("{first}, {unit}"))];
    headings.extend([names[0], names[1], "difference", "ratio"].map(Cell::right));
    let mut table = Table::with(headings);
    for (name, costs) in rows {
        let more = costs.b - costs.a;
        let paint = match more {
            more if more > 0.0 => Paint::Bad,
            more if more < 0.0 => Paint::Good,
            _ => Paint::Plain,
        };
        let [a, b, more, ratio] = costs.figures();
        let cells = vec![Cell::new(name), Cell::right(a), Cell::right(b), Cell::right(more).painted(paint)];
        table.row(cells.into_iter().chain([Cell::right(ratio).painted(paint)]).collect());
    }
    table
}
