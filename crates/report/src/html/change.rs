//! The change from one profile to another, on a page: tables, the flame graph of the difference, and removed functions.

use udpath_profile::Profile;
use udpath_profile::difference::Difference;

use crate::flame::Tree;
use crate::svg::flame::{self, Graph, Kind};
use crate::terminal::difference::{Costs, whole};
use crate::{units, words};

/// See the module.
pub(super) struct Change<'a> {
    /// `per datagram`.
    pub(super) unit: &'static str,
    /// Other programs' time is left out.
    pub(super) charged: bool,
    pub(super) names: [&'a str; 2],
    pub(super) sentence: String,
    pub(super) graph: String,
    pub(super) gone: Vec<Gone>,
    pub(super) gone_more: usize,
    /// Title and rows of each table.
    pub(super) tables: Vec<(&'static str, Vec<Row>)>,
}

/// Functions only in the first profile.
pub(super) struct Gone {
    pub(super) name: String,
    pub(super) cost: String,
    pub(super) path: String,
}

pub(super) struct Row {
    pub(super) look: &'static str,
    pub(super) name: String,
    pub(super) figures: [String; 4],
}

/// Rows of removed functions; the smallest are only counted.
const GONE: usize = 25;
/// Callers listed for each.
const CALLERS: usize = 5;

impl<'a> Change<'a> {
    /// Compares `b` with `a`, under these names; the graph is called `graph`.
    pub(super) fn new(
        difference: &Difference,
        a: &Profile,
        b: &Profile,
        names: [&'a str; 2],
        graph: &Graph<'_>,
    ) -> Self {
        let unit = difference.unit.title();
        let tree = Tree::difference(a, b, difference.unit);
        let about = format!("{}: {}", words::one_line(names[1]), words::sampled(b));
        let all = tree.gone();
        let gone = all.iter().take(GONE).map(|node| {
            let path = tree.path(node);
            let callers: Vec<&str> = path[..path.len() - 1].iter().rev().take(CALLERS).copied().collect();
            Gone {
                name: words::shortened(&node.name, 56),
                cost: units::time(node.costs[0]),
                path: callers.join(" ◂ "),
            }
        });
        let busy = row(whole(difference).to_owned(), (&difference.busy).into());
        let classes = difference.classes.iter().map(|pair| row(pair.of.title().to_owned(), pair.into()));
        let mut tables = vec![("class", std::iter::once(busy).chain(classes).collect())];
        if !difference.locks.is_empty() {
            let locks = difference.locks.iter().map(|pair| row(pair.of.replace('-', " "), pair.into()));
            tables.push(("lock of", locks.collect()));
        }
        Self {
            unit,
            charged: difference.charged,
            names,
            sentence: difference.sentence(),
            gone: gone.collect(),
            gone_more: all.len().saturating_sub(GONE),
            graph: flame::draw(&tree, &Kind::Change { unit }, &about, graph),
            tables,
        }
    }
}

fn row(name: String, costs: Costs) -> Row {
    let look = match costs.b - costs.a {
        more if more > 0.0 => "more",
        more if more < 0.0 => "less",
        _ => "same",
    };
    Row { look, name, figures: costs.figures() }
}
