//! The page of two profiles compared.

use askama::Template;
use udpath_profile::Profile;
use udpath_profile::difference::Difference;

use super::flame::{SCRIPT, SCRIPT_HASH};
use super::rendered;
use crate::flame::Tree;
use crate::svg::flame::{self, Kind};
use crate::terminal::difference::Costs;
use crate::{units, words};

#[derive(Template)]
#[template(path = "difference.html")]
struct Page {
    version: &'static str,
    script: &'static str,
    script_hash: &'static str,
    unit: &'static str,
    headline: String,
    sentence: String,
    a: String,
    b: String,
    graph: String,
    gone: Vec<Gone>,
    gone_more: usize,
    tables: Vec<(&'static str, Vec<Row>)>,
}

/// What only the first has.
struct Gone {
    name: String,
    cost: String,
    path: String,
}

struct Row {
    look: &'static str,
    name: String,
    figures: [String; 4],
}

/// Lines of what is gone; the smallest are counted.
const GONE: usize = 25;
/// Callers told of each.
const CALLERS: usize = 5;

pub(crate) fn page(a: &Profile, b: &Profile) -> String {
    let difference = Difference::new(a, b);
    let unit = difference.unit.title();
    let tree = Tree::difference(a, b, difference.unit);
    let graph = flame::draw(&tree, &Kind::Change { unit }, &format!("B: {}", words::sampled(b)));
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
    let classes = difference.classes.iter().map(|pair| row(pair.of.title().to_owned(), pair.into()));
    let classes = std::iter::once(row("all busy time".to_owned(), (&difference.busy).into())).chain(classes);
    let mut tables = vec![("class", classes.collect())];
    if !difference.locks.is_empty() {
        let locks = difference.locks.iter().map(|pair| row(pair.of.replace('-', " "), pair.into()));
        tables.push(("lock of", locks.collect()));
    }
    rendered(&Page {
        version: env!("CARGO_PKG_VERSION"),
        script: SCRIPT,
        script_hash: SCRIPT_HASH,
        unit,
        headline: headline(&difference),
        sentence: difference.sentence(),
        a: about(a),
        b: about(b),
        graph,
        gone: gone.collect(),
        gone_more: all.len().saturating_sub(GONE),
        tables,
    })
}

fn headline(difference: &Difference) -> String {
    difference.busy.ratio().map_or_else(
        || "Nothing ran in A".to_owned(),
        |ratio| format!("{}× the CPU time {}", units::ratio(ratio), difference.unit.title()),
    )
}

fn about(profile: &Profile) -> String {
    let counted = words::datagrams(profile);
    [vec![words::sampled(profile)], counted].concat().join("; ")
}

fn row(name: String, costs: Costs) -> Row {
    let look = match costs.b - costs.a {
        more if more > 0.0 => "more",
        more if more < 0.0 => "less",
        _ => "same",
    };
    Row { look, name, figures: costs.figures() }
}
