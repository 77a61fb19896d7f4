//! A diagnosis in one sentence: the first saturated link, or that none is.

use super::links::{Link, Stage};
use crate::rule::percent;

/// The sentence, with its full stop.
pub(super) fn of(links: &[Link], used: Option<f64>, seconds: Option<f64>) -> String {
    if seconds.is_none() {
        return "One snapshot shows no rates: these are the counts since boot and what is set now.".into();
    }
    let Some(at) = links.iter().position(|link| link.saturated) else { return nothing(links, used) };
    let first = &links[at];
    let lead = format!("The first saturated link is {}: {}", named(first), first.evidence);
    // A full queue says that what empties it is too slow: name that, if it is saturated as well.
    let server = links[at + 1..].iter().find(|link| link.saturated && !link.stage.is_queue());
    match server.filter(|_| first.stage.is_queue()) {
        Some(server) => format!("{lead}; behind it, {} is saturated: {}.", named(server), server.evidence),
        None => format!("{lead}."),
    }
}

fn nothing(links: &[Link], used: Option<f64>) -> String {
    let used = used
        .map_or_else(|| "CPU time unknown".into(), |used| format!("{} of the CPU time used", percent(used)));
    // Of equal ones the outermost.
    let busiest = links.iter().rev().max_by(|a, b| a.busy.total_cmp(&b.busy));
    match busiest {
        Some(link) => format!(
            "Nothing saturated: {used}; the busiest link is {} at {}.",
            named(link),
            percent(link.busy)
        ),
        None => format!("Nothing saturated: {used}."),
    }
}

fn named(link: &Link) -> String {
    match (link.stage, link.place.as_str()) {
        (_, "") => format!("the {}", link.stage.title()),
        (Stage::Softirq | Stage::Backlog, place) => format!("the {} of {place}", link.stage.title()),
        (stage, place) => format!("the {} {place}", stage.title()),
    }
}
