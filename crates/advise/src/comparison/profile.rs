//! Two profiles: CPU time per datagram, as a whole, by class and by lock.
//!
//! A sampler's figures have the error of chance: of N samples, one over the square root of N. It contains nothing of
//! how the load varied, which the allowance has to cover.

use udpath_profile::Profile;
use udpath_profile::difference::{Difference, Pair as Costs, Unit as Per};

use super::{Better, COST, CompareResult, Figure, Kind, Pair, Pairs, Unit, origins_or_note};
use crate::ProfileResult;
use crate::statistics::unpaired;

/// Compares `b` with `a`.
#[must_use]
pub fn profiles(a: &ProfileResult, b: &ProfileResult) -> CompareResult {
    let difference = Difference::new(&a.profile, &b.profile);
    let mut notes = Vec::new();
    if difference.unit == Per::Second {
        notes.push(
            "without datagrams counted in both, CPU time is per second: more of it is neither better nor worse"
                .to_owned(),
        );
    }
    let rows = Rows { a: &a.profile, b: &b.profile, per: difference.unit };
    let whole = if difference.charged { "all but other programs" } else { "all busy time" };
    let mut figures = vec![rows.figure("CPU time", whole, &difference.busy).decisive()];
    figures.extend(difference.classes.iter().map(|pair| rows.figure("class", pair.of.title(), pair)));
    figures.extend(difference.locks.iter().map(|pair| rows.figure("lock", &pair.of, pair)));
    if let (Some(counted_a), Some(counted_b)) = (a.profile.datagrams, b.profile.datagrams) {
        let rate = |handled: u64, seconds: f64| Some(handled as f64 / seconds.max(1e-9));
        let (rate_a, rate_b) =
            (rate(counted_a.handled(), a.profile.seconds), rate(counted_b.handled(), b.profile.seconds));
        figures.push(Figure::new("datagrams", "received and sent", Unit::Rate, rate_a, rate_b));
        let (loss_a, loss_b) = (Some(counted_a.loss()), Some(counted_b.loss()));
        figures.push(Figure::new("datagrams", "dropped", Unit::Share, loss_a, loss_b));
    }
    let mut differs = Pairs::default();
    differs.add("kernel", &a.profile.facts.kernel, &b.profile.facts.kernel);
    let mut differs = differs.0;
    for pair in origins_or_note(a.origin.as_ref(), b.origin.as_ref(), &mut notes) {
        if !differs.contains(&pair) {
            differs.push(pair);
        }
    }
    CompareResult::new(Kind::Profile, unlike(&a.profile, &b.profile), figures, differs, notes)
}

/// What differs in what was sampled. Not the rate of datagrams: costs are per datagram, and a faster server has more.
fn unlike(a: &Profile, b: &Profile) -> Vec<Pair> {
    let mut pairs = Pairs::default();
    let port = |profile: &Profile| match profile.facts.focus.port {
        Some(port) => format!("the server of port {port}"),
        None if profile.facts.focus.pids.is_empty() => "the whole machine".to_owned(),
        None => "one process".to_owned(),
    };
    pairs.add("subject", port(a), port(b));
    let cpus = |profile: &Profile| match profile.whole() {
        true => "all CPUs".to_owned(),
        false => format!("{} of {} CPUs", profile.cpus.len(), profile.facts.online),
    };
    pairs.add("sampled", cpus(a), cpus(b));
    pairs.add("clock", a.clock.name(), b.clock.name());
    pairs.0
}

struct Rows<'a> {
    a: &'a Profile,
    b: &'a Profile,
    per: Per,
}

impl Rows<'_> {
    fn figure<T>(&self, group: &str, name: &str, pair: &Costs<T>) -> Figure {
        let figure = Figure::new(group, name, Unit::Nanoseconds, Some(pair.a), Some(pair.b));
        if self.per == Per::Second {
            return figure;
        }
        let (a, b) = (events(self.a, pair.a), events(self.b, pair.b));
        figure.judged(a, b, COST, Better::Lower)
    }
}

/// A cost per datagram, as exact as the number of samples that show it.
fn events(profile: &Profile, cost: f64) -> Option<unpaired::Figure> {
    let handled = profile.datagrams?.handled() as f64;
    let sampled = profile.contexts.values().fold(0_u64, |sum, ns| sum.saturating_add(*ns)) as f64;
    let samples = cost * handled / sampled * profile.samples.taken as f64;
    // Fewer than ten, and the square root is no error of anything.
    (samples >= 10.0).then(|| unpaired::Figure::of_events(cost, samples))?
}
