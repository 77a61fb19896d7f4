//! CPU time of a climb's first and best rung, on the climb's page.

use udpath_advise::ProfileResult;
use udpath_advise::result::BoostResult;
use udpath_profile::Profile;
use udpath_profile::difference::Difference;

use super::change::Change;
use crate::flame::Tree;
use crate::svg::flame::{self, Graph, Kind};
use crate::words;

/// See the module.
pub(super) struct Section<'a> {
    pub(super) about: String,
    /// Why a profile is missing.
    pub(super) absent: Option<String>,
    /// Rung, and the sentence of its profile.
    pub(super) sentences: Vec<(&'a str, &'a str)>,
    pub(super) change: Option<Change<'a>>,
    /// Title and picture.
    pub(super) graphs: Vec<(String, String)>,
    pub(super) notes: Vec<&'a str>,
}

impl<'a> Section<'a> {
    /// `None` if no profiles were requested.
    pub(super) fn of(result: &'a BoostResult) -> Option<Self> {
        let profiles = result.profiles.as_ref()?;
        let taken = words::profiled(result);
        let change = match taken.as_slice() {
            [(first, a), (best, b)] => {
                let graph =
                    Graph { id: "change", title: "Flame graph of the difference", name: "difference" };
                let (a, b) = (&a.profile, &b.profile);
                Some(Change::new(&Difference::new(a, b), a, b, [*first, *best], &graph))
            }
            _ => None,
        };
        let mut graphs: Vec<(String, String)> = taken
            .iter()
            .zip(["first", "best"])
            .map(|((name, result), id)| plain(name, &result.profile, id))
            .collect();
        if let Some(change) = &change {
            let title = format!(
                "{}, {}: red is more than in {}, blue less",
                change.names[1], change.unit, change.names[0]
            );
            graphs.push((title, change.graph.clone()));
        }
        let notes = taken.iter().flat_map(|(_, result)| &result.profile.notes);
        Some(Self {
            about: about(&taken),
            absent: words::not_profiled(profiles),
            sentences: taken.iter().map(|(name, result)| (*name, result.sentence.as_str())).collect(),
            change,
            graphs,
            notes: words::distinct(notes.map(String::as_str)),
        })
    }

    /// Does the section have flame graphs?
    pub(super) const fn flames(&self) -> bool {
        !self.graphs.is_empty()
    }
}

fn plain(name: &str, profile: &Profile, id: &str) -> (String, String) {
    let title = format!("Flame graph of {name}");
    let each = |ns: f64| profile.per_datagram(ns as u64);
    let graph = Graph { id, title: &title, name };
    let drawn = flame::draw(
        &Tree::charged(profile),
        &Kind::Classes { each: &each },
        &words::sampled(profile),
        &graph,
    );
    (name.to_owned(), drawn)
}

fn about(taken: &[(&str, &ProfileResult)]) -> String {
    let how = "When the race was decided, the first and the best rung ran once more under the same load, with every CPU \
               sampled; those runs are in no figure above.";
    match taken {
        [] => how.to_owned(),
        _ => format!(
            "{how} Costs are of each datagram that the server received or sent: its own time, and that of softirqs, which \
             server and generator share in a lab. Other programs are left out."
        ),
    }
}
