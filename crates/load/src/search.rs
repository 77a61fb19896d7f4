//! `--find-max`: the highest rate within limits of loss and latency.
//!
//! ```text
//!   [`Search`]    which rate to try next, from the verdicts so far: pure, bounded, tested against simulated servers
//!   [`Limits`]    the verdict on one run: held, exceeded, or limited by the generator
//!   [`find_max`]  runs them together, and lists every rate tried
//! ```
//! A rate is held only if replies keep up with requests: otherwise the search could find a rate that fills a queue more
//! slowly than a run lasts. A rate counts as held, or as exceeded, if two of at most three runs agree. A run limited by
//! the generator says nothing about the server, so its rate bounds the search but is never the server's limit.
//!
//! A closed loop has no rate to choose: there the search is for the number of requests in flight that completes most.

mod bracket;
mod closed;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::plan::{Arrivals, Plan, PlanError, Process};
use crate::result::{Counts, LoadResult};

pub use bracket::{End, RateVerdict, Search};

/// Version of the JSON form of [`FindMax`].
pub const SCHEMA: &str = "udpath.find-max/1";

/// Share of the requests due that must have been sent for a run to count.
const REACHED: f64 = 0.99;

/// Share of the requests sent that may be unanswered at the end of a run, beyond those in flight because of the path's
/// own delay. More means a growing queue: at a rate just above the server's capacity, no run is long enough to fill a
/// large socket buffer, so nothing is lost. Higher: the rate found is that much above the capacity. Lower: a thread
/// that waits for a CPU at the end of a run looks like a growing queue.
const KEPT_UP: f64 = 0.01;

/// The limits that a rate must stay within.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Largest share of requests without a valid reply in time, 0..1.
    pub loss: f64,
    /// Largest 99th percentile from the intended sending to the reply.
    pub p99: Option<Duration>,
}

impl Limits {
    /// Checks the limits.
    ///
    /// # Errors
    /// A loss that is not a share.
    pub fn check(&self) -> Result<(), PlanError> {
        if (0.0..1.0).contains(&self.loss) { Ok(()) } else { Err(PlanError::Loss(self.loss)) }
    }

    /// The verdict on a run at `rate`, and its reason.
    #[must_use]
    pub fn judge(&self, rate: f64, result: &LoadResult) -> (RateVerdict, String) {
        let counts = &result.counts;
        let due = rate * result.seconds;
        // Three standard deviations: a Poisson plan need not have exactly that many.
        if (counts.sent as f64) < due * REACHED - 3.0 * due.sqrt() {
            return (
                RateVerdict::GeneratorLimited,
                format!("only {} of {due:.0} requests due were sent", counts.sent),
            );
        }
        let exceeded = |what: String| match result.generator.reasons.first() {
            Some(reason) => (RateVerdict::GeneratorLimited, format!("{what}, but {reason}")),
            None => (RateVerdict::Exceeded, what),
        };
        let loss = counts.loss();
        if loss > self.loss {
            return exceeded(missed(counts));
        }
        if let Some(waiting) = fell_behind(rate, result, self.loss) {
            return exceeded(format!("{waiting:.1} % unanswered at the end: replies did not keep up"));
        }
        let p99 = result.intended_latency.as_ref().map_or(Duration::MAX, |l| Duration::from_nanos(l.p99));
        match self.p99 {
            Some(limit) if p99 > limit => exceeded(format!("p99 {p99:.1?}")),
            _ => (RateVerdict::Held, format!("{}, p99 {p99:.1?}", missed(counts))),
        }
    }
}

impl Limits {
    /// The verdict on a run of a closed loop, and its reason.
    fn judge_closed(&self, result: &LoadResult) -> (RateVerdict, String) {
        let (loss, p99) = (result.counts.loss(), result.sent_latency.as_ref().map(|latency| latency.p99));
        // Without any reply there is no latency.
        let p99 = p99.map_or(Duration::MAX, Duration::from_nanos);
        let within = loss <= self.loss && self.p99.is_none_or(|limit| p99 <= limit);
        let seen = format!("{}, p99 {p99:.1?}", missed(&result.counts));
        match result.generator.reasons.first() {
            _ if within => (RateVerdict::Held, seen),
            Some(reason) => (RateVerdict::GeneratorLimited, format!("{seen}, but {reason}")),
            None => (RateVerdict::Exceeded, seen),
        }
    }
}

/// What share of the requests got no valid reply in time, and why.
fn missed(counts: &Counts) -> String {
    let mut said = format!("{:.3} % lost or late", counts.not_in_time() * 100.0);
    if counts.refused > 0 {
        said += &format!(", {:.3} % refused", counts.refusals() * 100.0);
    }
    said
}

/// The percentage of requests that waited in growing queues at the end of a run, if it is above the limit.
fn fell_behind(rate: f64, result: &LoadResult, loss: f64) -> Option<f64> {
    let sent = result.counts.sent as f64;
    // The fastest reply met no queue: its latency gives the requests in flight at any time.
    let on_the_way = result.intended_latency.as_ref().map_or(0.0, |l| rate * l.min as f64 / 1e9);
    let waiting = sent - result.tps * result.seconds - on_the_way;
    (sent > 0.0 && waiting > (KEPT_UP + loss) * sent).then(|| waiting / sent * 100.0)
}

/// One run of the search.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Probe {
    /// Rate offered, transactions per second; of a closed loop, that completed.
    pub rate: f64,
    /// Closed loop: requests in flight per flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inflight: Option<u32>,
    /// Rate completed.
    pub tps: f64,
    /// Share of requests without a valid reply in time, 0..=1.
    pub loss: f64,
    /// 99th percentile from intended sending to the reply, nanoseconds.
    pub p99: Option<u64>,
    /// The verdict on the rate.
    pub verdict: RateVerdict,
    /// Why.
    pub reason: String,
}

/// The result of the search.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct FindMax {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// The limit of loss, 0..1.
    pub loss: f64,
    /// The limit of p99, nanoseconds.
    pub p99: Option<u64>,
    /// Highest rate proven to hold the limits; of a closed loop, the median of its runs.
    pub max_rate: Option<f64>,
    /// Closed loop: requests in flight per flow that completed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inflight: Option<u32>,
    /// Lowest rate above it that did not.
    pub not_held: Option<f64>,
    /// Why the search ended.
    pub end: End,
    /// Every run, in order.
    pub probes: Vec<Probe>,
    /// The last run at the highest rate held.
    pub best: Option<LoadResult>,
}

impl FindMax {
    /// The finding in one sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let held = match self.max_rate {
            Some(rate) => format!("{rate:.0} per second held"),
            None => "no rate held".to_owned(),
        };
        if let Some(inflight) = self.inflight {
            let more = match self.end {
                End::Server => "more in flight complete no more, or exceed the limits",
                End::Generator => "with more, the GENERATOR is the limit, not the server",
                End::Ceiling | End::Steps => "more cannot be in flight",
            };
            return format!("{held} with {inflight} in flight per flow; {more}");
        }
        let above = self.not_held.map_or_else(String::new, |r| format!(" at {r:.0} per second"));
        match self.end {
            End::Server => format!("{held}; the server's limit was exceeded{above}"),
            End::Generator => format!("{held}; limited by the GENERATOR, not the server{above}"),
            End::Ceiling => format!("{held}, the highest rate that can be tried"),
            End::Steps => format!("{held}; the runs varied too much to narrow it further"),
        }
    }
}

/// Searches from the rate of `plan` (an open loop; its process is kept), or, of a closed loop, for the best number in
/// flight. `run` carries out one plan, `probed` receives every run.
///
/// # Errors
/// The plan or the limits are invalid, or a run failed.
pub fn find_max(
    plan: &Plan,
    limits: &Limits,
    run: &mut dyn FnMut(&Plan) -> Result<LoadResult, Error>,
    probed: &mut dyn FnMut(&Probe),
) -> Result<FindMax, Error> {
    plan.check()?;
    limits.check()?;
    let (start, process) = match plan.arrivals {
        Arrivals::Open { rate, process } => (rate, process),
        Arrivals::Closed { .. } => return closed::search(plan, limits, run, probed),
        Arrivals::Ramp { .. } => return Err(PlanError::SearchOfRamp.into()),
    };
    let mut search = Search::new(start, highest(plan, process));
    let (mut probes, mut results) = (Vec::new(), Vec::<(f64, LoadResult)>::new());
    while let Some(rate) = search.next() {
        let result = run(&Plan { arrivals: Arrivals::Open { rate, process }, ..plan.clone() })?;
        let (verdict, reason) = limits.judge(rate, &result);
        let probe = Probe {
            rate,
            inflight: None,
            tps: result.tps,
            loss: result.counts.loss(),
            p99: result.intended_latency.as_ref().map(|l| l.p99),
            verdict,
            reason,
        };
        probed(&probe);
        probes.push(probe);
        search.record(verdict);
        if verdict == RateVerdict::Held {
            results.retain(|(r, _)| *r != rate);
            results.push((rate, result));
        }
    }
    let max_rate = search.highest_held();
    Ok(FindMax {
        schema: SCHEMA.into(),
        loss: limits.loss,
        p99: limits.p99.map(|p| p.as_nanos() as u64),
        max_rate,
        inflight: None,
        not_held: search.lowest_failed(),
        end: search.end(),
        probes,
        best: results.into_iter().find(|(r, _)| Some(*r) == max_rate).map(|(_, result)| result),
    })
}

/// The highest rate whose plan is still within a plan's limits.
fn highest(plan: &Plan, process: Process) -> f64 {
    let mut rate = crate::plan::MAX_RATE;
    let fits = |rate| Plan { arrivals: Arrivals::Open { rate, process }, ..plan.clone() }.check().is_ok();
    while rate > 1.0 && !fits(rate) {
        rate /= 2.0;
    }
    rate
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Evidence, Outcome};
    use crate::result::{Counts, Latency};

    /// A run of a second at 2000 per second without loss, with `completed` replies before its end.
    fn run(completed: u64, quickest: Duration) -> LoadResult {
        let quickest = quickest.as_nanos() as u64;
        let counts = Counts { sent: 2000, ok: 2000, received: 2000, ..Counts::default() };
        let outcome = Outcome {
            engine: "socket",
            protocol: "echo",
            seconds: 1.0,
            counts,
            kinds: Vec::new(),
            completed,
            intended_latency: Latency::from_buckets(vec![(quickest, 2000)], quickest, quickest, 1.0),
            sent_latency: None,
            lateness: None,
            delivered: None,
            evidence: Evidence::default(),
            cpus: Vec::new(),
            warnings: Vec::new(),
            start_skew: None,
        };
        let arrivals = Arrivals::Open { rate: 2000.0, process: Process::Constant };
        outcome.into_result(&Plan { arrivals, ..Plan::new(([127, 0, 0, 1], 7).into()) })
    }

    /// A run of a closed loop, with `lost` of 10,000 requests lost.
    pub(super) fn closed_run(tps: f64, latency: Duration, lost: u64) -> LoadResult {
        let mut result = run(2000, latency);
        result.tps = tps;
        let ok = 10_000 - lost;
        result.counts = Counts { sent: 10_000, ok, lost, received: ok, ..Counts::default() };
        result.sent_latency = result.intended_latency.take();
        result
    }

    /// Requests in a queue count as unanswered, those in flight on the path do not.
    #[test]
    fn a_rate_is_held_if_replies_keep_up() {
        let (soon, far) = (Duration::from_micros(100), Duration::from_millis(100));
        let (strict, lenient) = (0.001, 0.1);
        for (completed, quickest, loss, verdict) in [
            (1990, soon, strict, RateVerdict::Held),
            (1950, soon, strict, RateVerdict::Exceeded),
            (1800, far, strict, RateVerdict::Held),
            (1700, far, strict, RateVerdict::Exceeded),
            (1850, soon, lenient, RateVerdict::Held),
        ] {
            let (judged, reason) = Limits { loss, p99: None }.judge(2000.0, &run(completed, quickest));
            assert_eq!(judged, verdict, "{completed} with {quickest:?}: {reason}");
        }
    }
}
