//! Two climbs: their best rungs decide; every rung that both tried is compared too.

use std::collections::BTreeMap;

use super::{
    Better, CompareResult, Figure, Kind, Pair, Pairs, Unit, allowance, check, latency, origins,
    origins_or_note,
};
use crate::result::{BoostResult, RungResult, Verdict};
use crate::statistics::unpaired::{self, Allowance};

/// Compares `b` with `a`.
#[must_use]
pub fn boosts(a: &BoostResult, b: &BoostResult) -> CompareResult {
    let (mut figures, mut differs, mut notes) = (Vec::new(), Pairs::default(), Vec::new());
    match (best(a), best(b)) {
        (Some(best_a), Some(best_b)) => {
            of_best(&mut figures, best_a, best_b, &mut notes);
            differs.add("best rung", &best_a.name, &best_b.name);
            differs.add_maps(&settings(best_a), &settings(best_b));
            check("A", &best_a.counts, &mut notes);
            check("B", &best_b.counts, &mut notes);
        }
        (None, _) => notes.push("A has no rung that ran: there is nothing to compare".to_owned()),
        (_, None) => notes.push("B has no rung that ran: there is nothing to compare".to_owned()),
    }
    for rung in a.rungs.iter().filter(|rung| ran(rung)) {
        if let Some(other) = b.rungs.iter().find(|other| other.name == rung.name && ran(other)) {
            let allowance = allowance([trials(rung), trials(other)], &mut Vec::new());
            figures.push(rate("rung", &rung.name, rung, other, allowance));
        }
    }
    let mut differs = differs.0;
    differs.extend(machines(a, b, &mut notes));
    CompareResult::new(Kind::Boost, unlike(a, b), figures, differs, notes)
}

fn ran(rung: &RungResult) -> bool {
    rung.verdict != Verdict::Failed
}

fn best(result: &BoostResult) -> Option<&RungResult> {
    result.rungs.iter().rev().find(|rung| rung.name == result.best && ran(rung))
}

/// The settings of a rung by name, as they are shown beside the machine's.
fn settings(rung: &RungResult) -> BTreeMap<String, String> {
    let named = |(key, value): &(String, String)| (format!("best rung: {key}"), value.clone());
    rung.settings.iter().map(named).collect()
}

/// What differs in the loads and in the link that carries them.
fn unlike(a: &BoostResult, b: &BoostResult) -> Vec<Pair> {
    let mut pairs = Pairs::default();
    if ![a, b].iter().any(|result| result.load.protocol.is_empty()) {
        pairs.add("protocol", &a.load.protocol, &b.load.protocol);
    }
    pairs.add("engine", &a.load.engine, &b.load.engine);
    pairs.add("flows", a.load.flows, b.load.flows);
    pairs.add("in flight", a.load.inflight, b.load.inflight);
    pairs.add("size", a.load.size, b.load.size);
    pairs.add("size on the wire", a.load.wire_bytes, b.load.wire_bytes);
    pairs.add_duration("length of a trial", a.load.trial_seconds, b.load.trial_seconds);
    pairs.add("queues", a.machine.queues, b.machine.queues);
    pairs.add("link", &a.machine.link, &b.machine.link);
    pairs.0
}

/// What differs in the machines: by their origins, or by what a climb always says.
fn machines(a: &BoostResult, b: &BoostResult, notes: &mut Vec<String>) -> Vec<Pair> {
    if let (Some(a), Some(b)) = (&a.origin, &b.origin) {
        return origins(a, b);
    }
    let mut pairs = Pairs::default();
    pairs.add("host", &a.machine.hostname, &b.machine.hostname);
    pairs.add("CPU model", &a.machine.cpu_model, &b.machine.cpu_model);
    pairs.add("CPUs", a.machine.cpus, b.machine.cpus);
    pairs.add("memory", a.machine.memory, b.machine.memory);
    pairs.add("kernel", &a.machine.kernel, &b.machine.kernel);
    pairs.add("version of udpath", &a.version, &b.version);
    pairs.0.extend(origins_or_note(a.origin.as_ref(), b.origin.as_ref(), notes));
    pairs.0
}

/// The rate of a rung by its trials.
fn trials(rung: &RungResult) -> Option<unpaired::Figure> {
    unpaired::Figure::of_samples(&rung.trials)
}

fn rate(group: &str, name: &str, a: &RungResult, b: &RungResult, allowance: Allowance) -> Figure {
    let figure = Figure::new(group, name, Unit::Rate, Some(a.tps), Some(b.tps));
    figure.judged(trials(a), trials(b), allowance, Better::Higher)
}

fn of_best(figures: &mut Vec<Figure>, a: &RungResult, b: &RungResult, notes: &mut Vec<String>) {
    let rates = [trials(a), trials(b)];
    let allowance = allowance(rates, notes);
    figures.push(rate("best rung", "transactions", a, b, allowance).decisive());
    let cpu = |rung: &RungResult| Some(rung.cpu_ns_per_transaction).filter(|ns| *ns > 0.0);
    figures.push(Figure::new("CPU time", "of the whole machine, each", Unit::Nanoseconds, cpu(a), cpu(b)));
    figures.push(Figure::loss("loss", &a.counts, &b.counts).decisive());
    let latencies = [a, b].map(|rung| rung.latency.as_ref());
    latency::add(figures, "latency, sent to answered", latencies, rates);
}
