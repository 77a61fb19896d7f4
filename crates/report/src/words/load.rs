//! The sentences about a load that the terminal and the HTML share.

use udpath_load::result::{Core, Kind, LoadResult};

use crate::units;

/// The result of a load in one sentence, which starts with whether the generator was the limit.
pub(crate) fn conclusion(result: &LoadResult) -> String {
    let rate = units::tps(result.tps);
    let mut sentence = match (result.mode.as_str(), result.offered) {
        ("rr", Some(offered)) => format!("{rate} of {} offered transactions/s", units::tps(offered)),
        ("rr", None) => format!("{rate} transactions/s"),
        (_, _) if result.transport == "tcp" => format!("{rate} messages/s sent"),
        _ => format!("{rate} datagrams/s sent"),
    };
    if let Some(delivered) = result.delivered {
        sentence += &format!(", {}/s", units::tps(delivered.per_second));
        // Results of older versions do not have them.
        if delivered.mbits > 0.0 {
            sentence += &format!(" ({} Mbit/s)", units::mbits(delivered.mbits));
        }
        sentence += " received";
    } else if result.mode == "rr" {
        sentence += &match result.counts.loss() {
            lost if lost > 0.0 => format!(", {} not answered in time", units::loss(lost)),
            _ => ", none lost".to_owned(),
        };
    }
    if let Some(latency) = result.intended_latency.as_ref().or(result.sent_latency.as_ref()) {
        let (p50, p99) = (units::time(latency.p50 as f64), units::time(latency.p99 as f64));
        sentence += &format!("; half answered within {p50}, 99 % within {p99}");
    }
    sentence.push('.');
    if result.generator.limited {
        sentence.insert_str(0, "Limited by the generator, not the server: ");
    }
    sentence
}

/// Intact replies by what they say, most frequent first; none if they are all alike.
pub(crate) fn kinds(result: &LoadResult) -> Option<String> {
    let said = sorted_kinds(result).into_iter();
    let said = said.map(|kind| format!("{} {}", kind.name, units::count(kind.count))).collect::<Vec<_>>();
    let which = if is_sample(result) { "replies checked completely" } else { "replies, warm-up included" };
    (!said.is_empty()).then(|| format!("{which}: {}", said.join(", ")))
}

/// The same, for a table.
pub(crate) fn sorted_kinds(result: &LoadResult) -> Vec<&Kind> {
    let mut kinds: Vec<_> = result.kinds.iter().collect();
    kinds.sort_by_key(|kind| std::cmp::Reverse(kind.count));
    kinds
}

/// Whether only a sample of the replies was read: the kernel engine checks the others by a few fields.
pub(crate) fn is_sample(result: &LoadResult) -> bool {
    result.engine == "kernel"
}

/// Throughput per core of the sender and of the receiver.
pub(crate) fn per_core(result: &LoadResult) -> Vec<String> {
    let what = match (result.mode.as_str(), result.transport.as_str()) {
        ("rr", _) => "transactions/s",
        (_, "tcp") => "messages/s",
        _ => "datagrams/s",
    };
    let ends = [("sender", result.per_core.sender), ("receiver", result.per_core.receiver)];
    if ends.iter().all(|(_, core)| core.is_none()) {
        return Vec::new();
    }
    let line = |(end, core): (&str, Option<Core>)| match core {
        Some(Core { cpu_seconds, per_second, mbits }) => format!(
            "{end}: {} {what} and {} Mbit/s per core ({} of CPU time)",
            units::tps(per_second),
            units::mbits(mbits),
            units::duration(cpu_seconds),
        ),
        None => format!("{end}: CPU time unknown"),
    };
    ends.map(line).into()
}

/// Throughput per busy CPU of this machine, if its CPU time is known.
pub(crate) fn per_busy_cpu(result: &LoadResult) -> Option<String> {
    let busy = result.busy_cpus();
    (busy > 0.0).then(|| {
        format!(
            "per busy CPU ({busy:.2} were busy, generator included): {} tps, {} Mbit/s",
            units::tps(result.tps / busy),
            units::mbits(result.mbits / busy)
        )
    })
}

/// The load's plan, in words.
pub(crate) fn plan(result: &LoadResult) -> String {
    format!(
        "{} {} over {} to {}, {} engine, {}, {} {}, {} bytes, {} measured, seed {}",
        result.protocol,
        result.mode,
        result.transport.to_uppercase(),
        result.targets.join(", "),
        result.engine,
        result.arrivals,
        units::count(result.flows.into()),
        super::plural(result.flows, "flow"),
        units::count(result.size.into()),
        units::duration(result.seconds),
        result.seed
    )
}
