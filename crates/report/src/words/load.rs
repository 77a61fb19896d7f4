//! The sentences about a load that the terminal and the HTML share.

use udpath_load::result::{Core, Kind, LoadResult, SegmentResult, Segments, Start};

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
        sentence += &outcome(result);
    }
    if let Some(latency) = result.intended_latency.as_ref().or(result.sent_latency.as_ref()) {
        let (p50, p99) = (units::time(latency.p50 as f64), units::time(latency.p99 as f64));
        sentence += &format!("; half answered within {p50}, 99 % within {p99}");
    }
    sentence.push('.');
    if result.generator.limited {
        sentence.insert_str(0, "Limited by the generator, not the server: ");
    } else if let Some(doubt) = doubt(result) {
        sentence += &format!(" {doubt}");
    }
    sentence
}

/// That a load was sent, but not as planned: nothing if it was.
pub(crate) fn doubt(result: &LoadResult) -> Option<&'static str> {
    let sent_otherwise = !result.generator.limited && !result.generator.reasons.is_empty();
    sent_otherwise.then_some(
        "All that was offered was sent, but the generator was late or had no time to spare: the latencies are doubtful.",
    )
}

/// What became of the requests that were not answered: those that the server refused have an answer, in time.
fn outcome(result: &LoadResult) -> String {
    let counts = &result.counts;
    let mut said = String::new();
    if counts.refused > 0 {
        said += &format!(", {} refused", units::loss(counts.refusals()));
        said += &refusals(result).map_or_else(String::new, |kinds| format!(" ({kinds})"));
    }
    said += &match counts.not_in_time() {
        share if share > 0.0 => format!(", {} not answered in time", units::loss(share)),
        _ => ", none lost".to_owned(),
    };
    // They came, but are no answers.
    if counts.corrupt > 0 && counts.corrupt >= counts.lost / 2 {
        said += &format!(", though {} corrupt replies came", units::count(counts.corrupt));
    }
    said
}

/// What the replies said by which the server refused requests, each with its share of the requests unless it is the
/// only one.
fn refusals(result: &LoadResult) -> Option<String> {
    let counts = &result.counts;
    let mut kinds = sorted_kinds(result);
    // In 64 bits the sum may not fit: a file may claim anything.
    let all: f64 = kinds.iter().map(|kind| kind.refused as f64).sum();
    if all == 0.0 {
        // A result of an older version: with valid replies among them, which kinds refuse is the protocol's matter.
        let names: Vec<_> = kinds.iter().map(|kind| kind.name.as_str()).collect();
        return (counts.ok == 0 && counts.late == 0 && !names.is_empty()).then(|| names.join(", "));
    }
    kinds.retain(|kind| kind.refused > 0);
    kinds.sort_by_key(|kind| std::cmp::Reverse(kind.refused));
    if let [only] = kinds[..] {
        return Some(only.name.clone());
    }
    // Of the warm-up, too, and perhaps of a sample: their proportions count.
    let share = |kind: &Kind| units::loss(counts.refusals() * kind.refused as f64 / all);
    Some(kinds.iter().map(|kind| format!("{} {}", kind.name, share(kind))).collect::<Vec<_>>().join(", "))
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

/// When a run or a segment started, by its clock, and how far that clock may be off.
pub(crate) fn start(start: &Start) -> String {
    let skew = signed(start.skew_ns);
    let clock = match (start.offset_ns, start.clock_error_ns) {
        (Some(offset), _) => format!("{} by the caller's clock", signed(offset)),
        (None, Some(error)) => format!("synchronised, at most {} off", units::time(error as f64)),
        (None, None) => "not synchronised".to_owned(),
    };
    format!("started {skew} after {}, clock {clock}", moment(start.at_ns))
}

/// A time with its sign: `+52.1 µs`.
pub(crate) fn signed(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { '-' } else { '+' };
    format!("{sign}{}", units::time(nanoseconds.unsigned_abs() as f64))
}

/// `2026-11-23 22:30:00.25 UTC`.
fn moment(nanoseconds: u64) -> String {
    let (seconds, rest) = (nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
    let date = units::date(seconds);
    let fraction = if rest == 0 { String::new() } else { format!(".{rest:09}") };
    let minute = date.strip_suffix(" UTC").unwrap_or(&date);
    format!("{minute}:{:02}{} UTC", seconds % 60, fraction.trim_end_matches('0'))
}

/// One segment of a sum, cell by cell, under [`SEGMENT_HEADINGS`].
pub(crate) fn segment(row: &SegmentResult, of: u32) -> [String; 8] {
    let none = || units::NONE.to_owned();
    let percentile = |value: Option<u64>| value.map_or_else(none, |value| units::time(value as f64));
    let clock = |start: Start| match (start.offset_ns, start.clock_error_ns) {
        (Some(offset), _) => signed(offset),
        (None, Some(error)) => format!("± {}", units::time(error as f64)),
        (None, None) => "unsynchronised".to_owned(),
    };
    [
        format!("{}/{of}", row.segment),
        super::one_line(&row.name),
        units::tps(row.tps),
        units::loss(row.counts.not_in_time()),
        percentile(row.p50_p99.map(|(p50, _)| p50)),
        percentile(row.p50_p99.map(|(_, p99)| p99)),
        row.start.map_or_else(none, |start| signed(start.skew_ns)),
        row.start.map_or_else(none, clock),
    ]
}

/// The headings of a table of segments. *start*: how much later than planned, by the segment's clock. *clock*: how far
/// that clock is ahead of the caller's, or may be off.
pub(crate) const SEGMENT_HEADINGS: [&str; 8] =
    ["segment", "from", "tps", "unanswered", "p50", "p99", "start", "clock"];

/// The segments of a sum in one sentence: when they started, and how far apart.
pub(crate) fn segments(segments: &Segments) -> Option<String> {
    let starts = || segments.rows.iter().filter_map(|row| row.start);
    let (first, last) = (starts().map(|s| s.skew_ns).min()?, starts().map(|s| s.skew_ns).max()?);
    let at = starts().next()?.at_ns;
    let mut sentence = format!(
        "{} of {} segments; planned start {}, each started {} to {} later by its own clock",
        segments.rows.len(),
        segments.of,
        moment(at),
        signed(first),
        signed(last)
    );
    let off = starts().filter(|start| start.offset_ns.is_none() && start.clock_error_ns.is_none()).count();
    if off > 0 {
        sentence += &format!("; {off} of the clocks are not known to be synchronised");
    }
    Some(sentence)
}
