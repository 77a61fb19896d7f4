//! Two runs of a load.

use udpath_load::result::{Core, Counts, LoadResult};

use super::{
    Better, CompareResult, Figure, Kind, Pair, Pairs, Unit, allowance, check, latency, origins_or_note,
};
use crate::statistics::unpaired;

/// Compares `b` with `a`.
#[must_use]
pub fn loads(a: &LoadResult, b: &LoadResult) -> CompareResult {
    let mut notes = Vec::new();
    for (side, result) in [("A", a), ("B", b)] {
        if result.generator.limited {
            notes.push(format!("{side} was limited by its generator: it shows no limit of its server"));
        } else if let Some(reason) = result.generator.reasons.first() {
            notes.push(format!("the latencies of {side} are doubtful: {reason}"));
        }
        if result.mode == "rr" {
            check(side, &result.counts, &mut notes);
        }
    }
    let figures = figures(a, b, &mut notes);
    let mut differs = Pairs::default();
    differs.add("targets", a.targets.join(", "), b.targets.join(", "));
    differs.add("seed", a.seed, b.seed);
    let mut differs = differs.0;
    differs.extend(origins_or_note(a.origin.as_ref(), b.origin.as_ref(), &mut notes));
    CompareResult::new(Kind::Load, unlike(a, b), figures, differs, notes)
}

/// What differs in the plans.
fn unlike(a: &LoadResult, b: &LoadResult) -> Vec<Pair> {
    let mut pairs = Pairs::default();
    pairs.add("protocol", &a.protocol, &b.protocol);
    pairs.add("transport", &a.transport, &b.transport);
    pairs.add("mode", &a.mode, &b.mode);
    pairs.add("engine", &a.engine, &b.engine);
    pairs.add("arrivals", arrivals(a), arrivals(b));
    pairs.add("flows", a.flows, b.flows);
    pairs.add("size", a.size, b.size);
    pairs.add_duration("duration", a.seconds, b.seconds);
    pairs.0
}

/// The arrival process, without the name of the interface that the kernel engine adds: labs make up new ones.
fn arrivals(result: &LoadResult) -> &str {
    result.arrivals.split_once(", XDP on ").map_or(result.arrivals.as_str(), |(process, _)| process)
}

fn figures(a: &LoadResult, b: &LoadResult, notes: &mut Vec<String>) -> Vec<Figure> {
    let one_way = a.mode != "rr";
    let name = if one_way { "sent" } else { "transactions" };
    let series = |result: &LoadResult| {
        let series = result.series.as_ref()?;
        unpaired::Figure::of_series(&series.tps, series.slice)
    };
    let (of_a, of_b) = (series(a), series(b));
    if of_a.is_none() || of_b.is_none() {
        let least = "a verdict on its rate needs three batches of a second or more each";
        let side = match (of_a, of_b) {
            (None, None) => "neither run shows",
            (None, _) => "A does not show",
            _ => "B does not show",
        };
        notes.push(format!("{side} how its rate varied ({least}): run the load for 5 s or longer"));
    }
    let rate = Figure::new("rate", name, Unit::Rate, Some(a.tps), Some(b.tps));
    let allowance = allowance([of_a, of_b], notes);
    let mut figures = vec![rate.judged(of_a, of_b, allowance, Better::Higher).decisive()];
    let received = |result: &LoadResult| result.delivered.map(|delivered| delivered.per_second);
    if received(a).is_some() || received(b).is_some() {
        figures.push(Figure::new("rate", "received", Unit::Rate, received(a), received(b)));
    }
    let per_core = |name: &str, a: Option<Core>, b: Option<Core>| {
        let of = |core: Option<Core>| core.map(|core| core.per_second);
        Figure::new("rate per core", name, Unit::Rate, of(a), of(b))
    };
    let ends = [
        per_core("sender", a.per_core.sender, b.per_core.sender),
        per_core("receiver", a.per_core.receiver, b.per_core.receiver),
    ];
    figures.extend(ends.into_iter().filter(|figure| figure.a.is_some() || figure.b.is_some()));
    let busy = |result: &LoadResult| {
        let busy = result.busy_cpus();
        (busy > 0.0 && result.tps > 0.0).then(|| busy * 1e9 / result.tps)
    };
    figures.push(Figure::new("CPU time", "of the whole machine, each", Unit::Nanoseconds, busy(a), busy(b)));
    // Of a one-way run, only a receiver that reports knows what arrived.
    let known = |result: &LoadResult| {
        if one_way && result.delivered.is_none() { Counts::default() } else { result.counts }
    };
    figures.push(Figure::loss("loss", &known(a), &known(b)).decisive());
    let intended = [a, b].map(|result| result.intended_latency.as_ref().or(result.sent_latency.as_ref()));
    // What a client sees decides. In an open loop, the path and the server alone explain it.
    latency::add(&mut figures, "latency, intended to answered", intended, [of_a, of_b]);
    if a.offered.is_some() || b.offered.is_some() {
        let sent = [a, b].map(|result| result.sent_latency.as_ref());
        latency::add(&mut figures, "latency, sent to answered", sent, [None; 2]);
    }
    figures
}
