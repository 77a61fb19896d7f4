//! The page of two profiles compared.

use askama::Template;
use udpath_profile::Profile;
use udpath_profile::difference::Difference;

use super::change::Change;
use super::{Head, rendered};
use crate::svg::flame::Graph;
use crate::{units, words};

#[derive(Template)]
#[template(path = "difference.html")]
struct Page<'a> {
    head: Head<'a>,
    a: String,
    b: String,
    changed: Change<'a>,
}

pub(crate) fn page(a: &Profile, b: &Profile) -> String {
    let difference = Difference::new(a, b);
    rendered(&Page {
        head: Head {
            version: env!("CARGO_PKG_VERSION"),
            title: "udpath profile: two compared".to_owned(),
            kind: format!("udpath profile --diff · B against A, {}", difference.unit.title()),
            headline: headline(&difference),
            lead: difference.sentence(),
            figures: Vec::new(),
            flames: true,
        },
        a: about(a),
        b: about(b),
        changed: Change::new(&difference, a, b, ["A", "B"], &Graph::ONLY),
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
