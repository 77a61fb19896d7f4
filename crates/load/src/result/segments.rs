//! Results of the segments of one plan, and their sum.
//!
//! ```text
//!   1.json  segment 1/3 ─┐
//!   2.json  segment 2/3 ─┼─▸ same plan? no segment twice? ─▸ LoadResult::merge ─▸ the plan's result, with a row per segment
//!   3.json  segment 3/3 ─┘                                                         and the numbers of missing segments
//! ```
//! A sum can be merged with further segments: it counts as the segments in it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Counts, Kind, Latency, LoadResult};
use crate::plan::{Plan, Segment};
use crate::start::clock_error;

/// Largest count in a file that is merged: sums of all segments fit 64 bits.
const MAX_COUNT: u64 = u64::MAX / crate::plan::MAX_SEGMENTS as u64;

/// When a run started that had a time for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Start {
    /// The plan's time, nanoseconds since 1970-01-01 UTC.
    pub at_ns: u64,
    /// How much later the sender started by its machine's clock, nanoseconds; of several threads, the one that was most
    /// off.
    pub skew_ns: i64,
    /// How far that clock is off at most, as the kernel knows from the program that synchronises it, nanoseconds; none
    /// if nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_error_ns: Option<u64>,
    /// How far that clock is ahead of the clock of the machine that announced the plan, nanoseconds, as measured
    /// between the two. The start is corrected by it. None if it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset_ns: Option<i64>,
}

impl Start {
    /// A start planned for `at`, `skew_ns` nanoseconds late.
    pub(crate) fn measured(at: SystemTime, skew_ns: i64) -> Self {
        let nanos = |time: u128| u64::try_from(time).unwrap_or(u64::MAX);
        Self {
            at_ns: nanos(at.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()),
            skew_ns,
            clock_error_ns: clock_error().map(|error| nanos(error.as_nanos())),
            offset_ns: None,
        }
    }
}

/// Which segment of which plan a result is of.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Share {
    /// The segment.
    #[serde(flatten)]
    pub segment: Segment,
    /// Identity of the plan, the same for all its segments: [`Plan::identity`].
    pub plan: String,
}

impl Share {
    pub(crate) fn of(plan: &Plan, protocol: &str) -> Self {
        Self { segment: plan.segment, plan: plan.identity(protocol) }
    }
}

/// The segments that a merged result is the sum of.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Segments {
    /// How many the plan has.
    pub of: u32,
    /// Identity of the plan.
    pub plan: String,
    /// Those in the sum, by number.
    pub rows: Vec<SegmentResult>,
    /// Numbers of those that are missing.
    pub missing: Vec<u32>,
}

/// One segment in a sum.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct SegmentResult {
    /// Its number, from 1.
    pub segment: u32,
    /// Its machine or file.
    pub name: String,
    /// Its measured window, seconds.
    pub seconds: f64,
    /// Valid transactions completed per second.
    pub tps: f64,
    /// Its outcomes.
    pub counts: Counts,
    /// Median and 99th percentile from intended to answered, nanoseconds.
    pub p50_p99: Option<(u64, u64)>,
    /// When it started.
    pub start: Option<Start>,
    /// Why its generator was the limit; empty if it was not.
    pub limits: Vec<String>,
}

impl SegmentResult {
    fn new(segment: Segment, name: &str, result: &LoadResult) -> Self {
        let latency = result.intended_latency.as_ref().or(result.sent_latency.as_ref());
        Self {
            segment: segment.index(),
            name: name.to_owned(),
            seconds: result.seconds,
            tps: result.tps,
            counts: result.counts,
            p50_p99: latency.map(|latency| (latency.p50, latency.p99)),
            start: result.start,
            limits: if result.generator.limited { result.generator.reasons.clone() } else { Vec::new() },
        }
    }
}

/// Why results cannot be merged. Each message names the file, and what would be right.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError {
    /// There is no result.
    #[error("nothing to merge: name the results of the segments")]
    Nothing,
    /// A result of a whole load.
    #[error("{0} is not the result of a segment: run each machine's load with --segment and --start-at")]
    NotASegment(String),
    /// Results of different plans.
    #[error("{first} and {other} are of different loads: {what}; merge segments of one load")]
    Unlike {
        /// The first file.
        first: String,
        /// The one that differs.
        other: String,
        /// What differs.
        what: String,
    },
    /// The same segment in two files.
    #[error("{first} and {other} both contain segment {segment}: remove one of them")]
    Twice {
        /// The segment's number.
        segment: u32,
        /// A file that contains it.
        first: String,
        /// Another one.
        other: String,
    },
    /// A file that was changed, or is not what a run writes.
    #[error("{name} is damaged: {what}; use the file that the load wrote")]
    Damaged {
        /// The file.
        name: String,
        /// What is wrong.
        what: String,
    },
}

impl LoadResult {
    /// The sum of results of segments of one plan, each with the name of its machine or file. Counts and histograms add
    /// up without loss; reasons and warnings name their segments. CPU times are kept only if all ran on one machine.
    ///
    /// # Errors
    /// See [`MergeError`].
    pub fn merge_segments(named: Vec<(String, Self)>) -> Result<Self, MergeError> {
        let (first_name, first) = named.first().ok_or(MergeError::Nothing)?;
        let (of, plan) = belongs_to(first_name, first)?;
        let mut seen = BTreeMap::<u32, &String>::new();
        let mut rows = Vec::new();
        for (name, result) in &named {
            check(name, result)?;
            let same = belongs_to(name, result)? == (of, plan.clone());
            if let Some(what) = difference(first, result, same) {
                return Err(MergeError::Unlike { first: first_name.clone(), other: name.clone(), what });
            }
            for row in rows_of(name, result) {
                if let Some(first) = seen.insert(row.segment, name) {
                    let (segment, first) = (row.segment, first.clone());
                    return Err(MergeError::Twice { segment, first, other: name.clone() });
                }
                rows.push(row);
            }
        }
        rows.sort_by_key(|row| row.segment);
        let missing: Vec<u32> = (1..=of).filter(|segment| !seen.contains_key(segment)).collect();
        let machine = |result: &Self| result.origin.as_ref().map(|origin| origin.machine.clone());
        let one_machine = named.iter().all(|(_, result)| machine(result) == machine(first));

        let reasons = by_segment(&named, |result| &result.generator.reasons);
        let mut warnings = by_segment(&named, |result| &result.warnings);
        if !missing.is_empty() {
            let present = of as usize - missing.len();
            warnings.insert(
                0,
                format!(
                    "{} of {of} missing: the sums are those of the other {present}",
                    named_segments(&missing)
                ),
            );
        }
        let results: Vec<Self> = named.into_iter().map(|(_, result)| result).collect();
        let mut all = Self::merge(&results).ok_or(MergeError::Nothing)?;
        (all.generator.reasons, all.warnings) = (reasons, warnings);
        all.segment = None;
        all.start = None;
        all.segments = Some(Segments { of, plan, rows, missing });
        if !one_machine {
            (all.cpus, all.origin) = (Vec::new(), None);
        }
        Ok(all)
    }

    /// Adds to every row how far its machine's clock was ahead of the caller's, nanoseconds, by the row's name.
    pub fn set_offsets(&mut self, offset: impl Fn(&str) -> Option<i64>) {
        for row in self.segments.iter_mut().flat_map(|segments| &mut segments.rows) {
            if let Some(start) = &mut row.start {
                start.offset_ns = offset(&row.name);
            }
        }
    }
}

/// The number of segments and the identity of the plan that a result belongs to.
fn belongs_to(name: &str, result: &LoadResult) -> Result<(u32, String), MergeError> {
    match (&result.segment, &result.segments) {
        (Some(share), None) => Ok((share.segment.of(), share.plan.clone())),
        (None, Some(segments)) => Ok((segments.of, segments.plan.clone())),
        _ => Err(MergeError::NotASegment(name.to_owned())),
    }
}

fn rows_of(name: &str, result: &LoadResult) -> Vec<SegmentResult> {
    match (&result.segment, &result.segments) {
        (Some(share), _) => vec![SegmentResult::new(share.segment, name, result)],
        (None, Some(segments)) => segments.rows.clone(),
        (None, None) => Vec::new(),
    }
}

/// What differs in two loads; `same`: they are of one plan.
fn difference(a: &LoadResult, b: &LoadResult, same: bool) -> Option<String> {
    let of = |result: &LoadResult| belongs_to("", result).map_or(0, |(of, _)| of).to_string();
    let pairs = [
        ("protocol", a.protocol.clone(), b.protocol.clone()),
        ("transport", a.transport.clone(), b.transport.clone()),
        ("mode", a.mode.clone(), b.mode.clone()),
        ("engine", a.engine.clone(), b.engine.clone()),
        ("arrivals", arrivals(a), arrivals(b)),
        ("size", a.size.to_string(), b.size.to_string()),
        ("seed", a.seed.to_string(), b.seed.to_string()),
        ("segments", of(a), of(b)),
    ];
    let visible =
        pairs.into_iter().find(|(_, a, b)| a != b).map(|(what, a, b)| format!("{what} {a} and {b}"));
    visible.or_else(|| {
        (!same).then(|| {
            "start, duration, warm-up, timeout, flows, threads, source ports or targets differ".into()
        })
    })
}

/// Without the name of the interface, which is each machine's own.
fn arrivals(result: &LoadResult) -> String {
    result.arrivals.split(", XDP on ").next().unwrap_or_default().to_owned()
}

/// Rejects what no run writes and sums could not hold.
fn check(name: &str, result: &LoadResult) -> Result<(), MergeError> {
    let damaged = |what: &str| Err(MergeError::Damaged { name: name.to_owned(), what: what.to_owned() });
    let Counts {
        sent,
        ok,
        late,
        refused,
        lost,
        duplicate,
        reordered,
        corrupt,
        wrong_flow,
        send_errors,
        received,
    } = result.counts;
    let counts =
        [sent, ok, late, refused, lost, duplicate, reordered, corrupt, wrong_flow, send_errors, received];
    let kinds = result.kinds.iter().flat_map(|Kind { count, refused, .. }| [*count, *refused]);
    if counts.into_iter().chain(kinds).any(|count| count > MAX_COUNT) {
        return damaged("a count is too large");
    }
    if let Some(segments) = &result.segments {
        let numbers: BTreeSet<u32> = segments.rows.iter().map(|row| row.segment).collect();
        let within = numbers.iter().all(|number| (1..=segments.of).contains(number));
        if !within || Segment::new(1, segments.of).is_none() {
            return damaged("it names segments that its plan does not have");
        }
    }
    let all = [&result.intended_latency, &result.sent_latency, &result.lateness];
    if all.into_iter().flatten().all(is_histogram) {
        Ok(())
    } else {
        damaged("a histogram's values do not ascend, or its counts do not add up")
    }
}

fn is_histogram(latency: &Latency) -> bool {
    let total: u128 = latency.histogram.iter().map(|(_, count)| u128::from(*count)).sum();
    let ascends = latency.histogram.is_sorted_by(|(a, _), (b, _)| a < b);
    ascends && total == u128::from(latency.count) && latency.count <= MAX_COUNT && latency.min <= latency.max
}

/// The sentences of all results, each once, after the segments it is about. Sums already name theirs.
fn by_segment(named: &[(String, LoadResult)], of: impl Fn(&LoadResult) -> &Vec<String>) -> Vec<String> {
    let mut sentences: Vec<(&String, Vec<u32>)> = Vec::new();
    for (_, result) in named {
        let number = result.segment.as_ref().map(|share| share.segment.index());
        for sentence in of(result) {
            match sentences.iter_mut().find(|(known, _)| *known == sentence) {
                Some((_, segments)) => segments.extend(number),
                None => sentences.push((sentence, Vec::from_iter(number))),
            }
        }
    }
    let said = |(sentence, mut segments): (&String, Vec<u32>)| {
        segments.sort_unstable();
        if segments.is_empty() {
            sentence.clone()
        } else {
            format!("{}: {sentence}", named_segments(&segments))
        }
    };
    sentences.into_iter().map(said).collect()
}

/// `segment 3`, `segments 1, 4-6`. Ascending.
fn named_segments(numbers: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let range = |(first, last): &(u32, u32)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    };
    let word = if numbers.len() == 1 { "segment" } else { "segments" };
    format!("{word} {}", ranges.iter().map(range).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests;
