//! The search of a closed loop: how many requests in flight give the highest rate.
//!
//! ```text
//!   per flow   1 ─▸ 2 ─▸ 4 ─▸ 8 ...    3 runs each; until two in a row complete no more, or one exceeds the limits
//! ```
//! A closed loop has no rate to choose: it sends when a reply comes, so no queue can keep growing. With more in flight,
//! a server is never idle and works in larger bursts; beyond that, requests only wait longer.

use super::{End, FindMax, Limits, Probe, RateVerdict, SCHEMA};
use crate::Error;
use crate::plan::{Arrivals, Plan};
use crate::result::LoadResult;

/// Runs per number in flight: two of them decide. More: a longer search for little.
const RUNS: usize = 3;
/// How much more a larger number in flight must complete to be an improvement. Lower: noise prolongs the search.
/// Higher: a server that still gains slowly is left.
const MORE: f64 = 0.02;
/// Numbers in a row without improvement that end the search. One: a run that was disturbed ends it.
const IN_VAIN: usize = 2;
/// Largest number per flow.
const MOST: u32 = 1 << 16;

/// A number in flight per flow that was held, and its median rate.
struct Level {
    inflight: u32,
    rate: f64,
    last: LoadResult,
}

/// Searches from one request in flight per flow. `run` carries out one plan, `probed` receives every run.
pub(super) fn search(
    plan: &Plan,
    limits: &Limits,
    run: &mut dyn FnMut(&Plan) -> Result<LoadResult, Error>,
    probed: &mut dyn FnMut(&Probe),
) -> Result<FindMax, Error> {
    let (mut probes, mut best, mut in_vain) = (Vec::new(), None::<Level>, 0);
    let (mut inflight, mut end, mut not_held) = (1, End::Ceiling, None);
    while inflight <= MOST {
        let measured = match level(plan, limits, inflight, run, &mut |probe| {
            probed(&probe);
            probes.push(probe);
        }) {
            // More than the protocol or the engine can have in flight.
            Err(Error::Plan(_)) if inflight > 1 => break,
            measured => measured?,
        };
        match measured {
            Err(failed) => {
                not_held = Some(failed.rate);
                end = if failed.verdict == RateVerdict::Exceeded { End::Server } else { End::Generator };
                break;
            }
            Ok(level) if best.as_ref().is_none_or(|best| level.rate > best.rate * (1.0 + MORE)) => {
                (best, in_vain) = (Some(level), 0);
            }
            Ok(level) => {
                in_vain += 1;
                if in_vain == IN_VAIN {
                    not_held = Some(level.rate);
                    end = End::Server;
                    break;
                }
            }
        }
        inflight *= 2;
    }
    let (max_rate, inflight) = (best.as_ref().map(|best| best.rate), best.as_ref().map(|best| best.inflight));
    Ok(FindMax {
        schema: SCHEMA.into(),
        loss: limits.loss,
        p99: limits.p99.map(|p| p.as_nanos() as u64),
        max_rate,
        inflight,
        not_held: not_held.filter(|_| best.is_none()),
        end,
        probes,
        best: best.map(|best| best.last),
    })
}

/// Runs at one number in flight: the level if two runs held the limits, otherwise a run that did not.
fn level(
    plan: &Plan,
    limits: &Limits,
    inflight: u32,
    run: &mut dyn FnMut(&Plan) -> Result<LoadResult, Error>,
    probed: &mut dyn FnMut(Probe),
) -> Result<Result<Level, Probe>, Error> {
    let plan = Plan { arrivals: Arrivals::Closed { inflight }, ..plan.clone() };
    let (mut held, mut failed) = (Vec::new(), Vec::new());
    while held.len() + failed.len() < RUNS {
        let result = run(&plan)?;
        let (verdict, reason) = limits.judge_closed(&result);
        let probe = Probe {
            rate: result.tps,
            inflight: Some(inflight),
            tps: result.tps,
            loss: result.counts.loss(),
            p99: result.sent_latency.as_ref().map(|latency| latency.p99),
            verdict,
            reason,
        };
        probed(probe.clone());
        match verdict {
            RateVerdict::Held => held.push(result),
            RateVerdict::Exceeded | RateVerdict::GeneratorLimited => failed.push(probe),
        }
        if failed.len() * 2 > RUNS {
            break;
        }
    }
    held.sort_by(|one, other| one.tps.total_cmp(&other.tps));
    let middle = held.len() / 2;
    match held.into_iter().nth(middle).filter(|_| failed.len() * 2 < RUNS) {
        Some(last) => Ok(Ok(Level { inflight, rate: last.tps, last })),
        // Two or more failed.
        None => Ok(Err(failed.swap_remove(0))),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::search::tests::closed_run;

    /// A server that completes up to 1,000 per second and request in flight, 40,000 at most, and fewer of each than
    /// that beyond 64.
    fn served(inflight: u32) -> f64 {
        (f64::from(inflight) * 1e3).min(40e3) * if inflight > 64 { 0.9 } else { 1.0 }
    }

    fn found(limits: &Limits, most: u32, lost: impl Fn(u32) -> u64) -> FindMax {
        let plan =
            Plan { arrivals: Arrivals::Closed { inflight: 1 }, ..Plan::new(([127, 0, 0, 1], 7).into()) };
        let mut one = |plan: &Plan| {
            let Arrivals::Closed { inflight } = plan.arrivals else { panic!("{plan:?}") };
            if inflight > most {
                return Err(crate::plan::PlanError::EmptyBurst.into());
            }
            Ok(closed_run(served(inflight), Duration::from_micros(u64::from(inflight) * 10), lost(inflight)))
        };
        search(&plan, limits, &mut one, &mut |_| ()).unwrap()
    }

    #[test]
    fn the_number_that_completes_most_is_found() {
        let found = found(&Limits { loss: 0.001, p99: None }, u32::MAX, |_| 0);
        assert_eq!((found.inflight, found.max_rate, found.end), (Some(64), Some(40e3), End::Server));
        // 1 to 64, and two without improvement.
        assert_eq!(found.probes.len(), 9 * RUNS);
        assert!(found.sentence().contains("40000 per second held with 64 in flight"), "{}", found.sentence());
    }

    #[test]
    fn limits_end_it_sooner() {
        let all = Limits { loss: 0.001, p99: None };
        // Latency is 10 us per request in flight.
        let quick = found(&Limits { p99: Some(Duration::from_micros(100)), ..all }, u32::MAX, |_| 0);
        assert_eq!((quick.inflight, quick.max_rate, quick.end), (Some(8), Some(8e3), End::Server));
        let lossy = found(&all, u32::MAX, |inflight| if inflight > 16 { 500 } else { 0 });
        assert_eq!((lossy.inflight, lossy.end), (Some(16), End::Server));
        // Two runs decide.
        assert_eq!(lossy.probes.len(), 5 * RUNS + 2);
        let none = found(&all, u32::MAX, |_| 500);
        assert_eq!((none.inflight, none.max_rate, none.end), (None, None, End::Server));
    }

    #[test]
    fn more_than_can_be_in_flight_is_the_ceiling() {
        let found = found(&Limits { loss: 0.001, p99: None }, 16, |_| 0);
        assert_eq!((found.inflight, found.end), (Some(16), End::Ceiling));
    }
}
