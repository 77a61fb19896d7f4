//! Which rate to try next: doubling until a rate fails, then halving the gap, each answer by two of three runs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum number of runs of a search. Doubling from 1 to 10^9 takes 30, narrowing three per step; the search must
/// also end if a server's runs contradict each other.
const MAX_RUNS: usize = 64;
/// The search ends when the lowest failed rate is at most this much above the highest held one. Higher: together with
/// the error of a run ([`super::KEPT_UP`]) the answer is more than 3 % off. Lower: more runs than the noise of a run
/// justifies.
const PRECISION: f64 = 1.02;
/// Lowest rate tried, per second.
const FLOOR: f64 = 1.0;

/// The verdict on one run's rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateVerdict {
    /// The limits were held.
    Held,
    /// They were exceeded, and the generator had reserve.
    Exceeded,
    /// They were exceeded, or the rate was not reached, and the generator had no reserve.
    GeneratorLimited,
}

/// Why a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The server did not hold the rate above.
    Server,
    /// The generator's limit.
    Generator,
    /// Every rate that can be tried was held.
    Ceiling,
    /// Out of runs.
    Steps,
}

#[derive(Debug, Clone, Copy, Default)]
struct Votes {
    rate: f64,
    held: u32,
    exceeded: u32,
    limited: u32,
}

enum Decision {
    Open,
    Holds,
    Fails,
}

impl Votes {
    fn decision(&self) -> Decision {
        let against = self.exceeded + self.limited;
        match (self.held, against) {
            (2.., _) if self.held > against => Decision::Holds,
            (_, 2..) if against > self.held => Decision::Fails,
            _ => Decision::Open,
        }
    }

    /// One run, and it held: enough to continue upwards, not enough for the answer.
    fn promising(&self) -> bool {
        self.held > 0 && self.exceeded + self.limited == 0
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// Doubling, or halving, until one rate holds and one fails.
    Bracket(f64),
    /// Between the two.
    Between(f64),
    /// The best rate so far needs its second run.
    Verify,
    Done,
}

/// The search's state. Use: `while let Some(rate) = search.next() { search.record(run(rate)) }`.
#[derive(Debug, Clone)]
pub struct Search {
    phase: Phase,
    low: Option<f64>,
    high: Option<f64>,
    ceiling: f64,
    votes: Vec<Votes>,
    asked: Option<f64>,
    runs: usize,
}

impl Search {
    /// From `start` upwards, never above `ceiling` (both per second).
    #[must_use]
    pub fn new(start: f64, ceiling: f64) -> Self {
        let ceiling = ceiling.max(FLOOR);
        let start = start.clamp(FLOOR, ceiling);
        Self {
            phase: Phase::Bracket(start),
            low: None,
            high: None,
            ceiling,
            votes: Vec::new(),
            asked: None,
            runs: 0,
        }
    }

    /// The rate to run next; none when the search is over. Not an iterator: [`Search::record`] must be called in
    /// between.
    #[must_use]
    #[expect(clippy::should_implement_trait, reason = "an iterator would allow to go on without an answer")]
    pub fn next(&mut self) -> Option<f64> {
        if self.runs >= MAX_RUNS {
            return None;
        }
        // Each turn returns a rate, narrows the gap, or ends; the gap bounds how often it can be narrowed
        // without a run.
        for _ in 0..4 * MAX_RUNS {
            if let Some(rate) = self.step() {
                self.asked = Some(rate);
                return Some(rate);
            }
            if self.phase == Phase::Done {
                break;
            }
        }
        None
    }

    /// Records the verdict on the last rate.
    pub fn record(&mut self, verdict: RateVerdict) {
        let Some(rate) = self.asked.take() else { return };
        self.runs += 1;
        let votes = match self.votes.iter_mut().find(|v| v.rate == rate) {
            Some(votes) => votes,
            None => {
                self.votes.push(Votes { rate, ..Votes::default() });
                // Just pushed.
                self.votes.last_mut().unwrap_or_else(|| unreachable!("one was pushed"))
            }
        };
        match verdict {
            RateVerdict::Held => votes.held += 1,
            RateVerdict::Exceeded => votes.exceeded += 1,
            RateVerdict::GeneratorLimited => votes.limited += 1,
        }
    }

    /// The highest rate that two runs held, below any that failed.
    #[must_use]
    pub fn highest_held(&self) -> Option<f64> {
        let below = |v: &&Votes| self.high.is_none_or(|high| v.rate < high);
        let held = |v: &&Votes| matches!(v.decision(), Decision::Holds);
        self.votes.iter().filter(held).filter(below).map(|v| v.rate).max_by(f64::total_cmp)
    }

    /// The lowest rate that failed.
    #[must_use]
    pub fn lowest_failed(&self) -> Option<f64> {
        self.high
    }

    /// Why the search ended.
    #[must_use]
    pub fn end(&self) -> End {
        if self.phase != Phase::Done {
            return End::Steps;
        }
        let Some(high) = self.high else { return End::Ceiling };
        let votes = self.votes_of(high);
        if votes.exceeded > votes.limited { End::Server } else { End::Generator }
    }

    fn votes_of(&self, rate: f64) -> Votes {
        self.votes.iter().find(|v| v.rate == rate).copied().unwrap_or(Votes { rate, ..Votes::default() })
    }

    /// One turn: a rate to run, or a change of state.
    fn step(&mut self) -> Option<f64> {
        match self.phase {
            Phase::Done => None,
            Phase::Bracket(rate) => {
                let votes = self.votes_of(rate);
                match votes.decision() {
                    Decision::Fails => self.fail_in_bracket(rate),
                    Decision::Open if !votes.promising() => return Some(rate),
                    Decision::Open | Decision::Holds => self.hold_in_bracket(rate),
                }
                None
            }
            Phase::Between(rate) => {
                match self.votes_of(rate).decision() {
                    Decision::Open => return Some(rate),
                    Decision::Holds => self.low = Some(rate),
                    Decision::Fails => self.high = Some(rate),
                }
                self.narrow();
                None
            }
            Phase::Verify => self.verify(),
        }
    }

    fn hold_in_bracket(&mut self, rate: f64) {
        self.low = Some(rate);
        self.phase = match self.high {
            Some(_) => return self.narrow(),
            None if rate >= self.ceiling => Phase::Verify,
            None => Phase::Bracket((rate * 2.0).min(self.ceiling)),
        };
    }

    fn fail_in_bracket(&mut self, rate: f64) {
        self.high = Some(rate);
        self.phase = match self.low {
            Some(_) => return self.narrow(),
            None if rate <= FLOOR => Phase::Done,
            None => Phase::Bracket((rate / 2.0).max(FLOOR)),
        };
    }

    fn narrow(&mut self) {
        self.phase = match (self.low, self.high) {
            (Some(low), Some(high)) if high > low * PRECISION => Phase::Between((low * high).sqrt()),
            _ => Phase::Verify,
        };
    }

    fn verify(&mut self) -> Option<f64> {
        let Some(low) = self.low else {
            self.phase = Phase::Done;
            return None;
        };
        match self.votes_of(low).decision() {
            Decision::Open => return Some(low),
            Decision::Holds => self.phase = Phase::Done,
            Decision::Fails => {
                // The first run was a fluke: back to the next rate that held.
                self.high = Some(low);
                self.low = self
                    .votes
                    .iter()
                    .filter(|v| v.rate < low && v.held > v.exceeded + v.limited)
                    .map(|v| v.rate)
                    .max_by(f64::total_cmp);
                match self.low {
                    Some(_) => self.narrow(),
                    None if low <= FLOOR => self.phase = Phase::Done,
                    None => self.phase = Phase::Bracket((low / 2.0).max(FLOOR)),
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Runs a search against a server; returns the number of runs.
    fn run(search: &mut Search, server: &mut dyn FnMut(f64) -> RateVerdict) -> usize {
        let mut runs = 0;
        while let Some(rate) = search.next() {
            runs += 1;
            assert!(runs <= MAX_RUNS, "a search must end");
            search.record(server(rate));
        }
        runs
    }

    fn up_to(limit: f64) -> impl FnMut(f64) -> RateVerdict {
        move |rate| if rate <= limit { RateVerdict::Held } else { RateVerdict::Exceeded }
    }

    #[test]
    fn a_server_that_sustains_no_rate_has_none() {
        let mut s = Search::new(1000.0, 1e9);
        run(&mut s, &mut |_| RateVerdict::Exceeded);
        assert_eq!((s.highest_held(), s.end()), (None, End::Server));
    }

    #[test]
    fn a_server_without_limit_reaches_the_ceiling() {
        let mut s = Search::new(1000.0, 1e6);
        run(&mut s, &mut |_| RateVerdict::Held);
        assert_eq!((s.highest_held(), s.end()), (Some(1e6), End::Ceiling));
    }

    #[test]
    fn the_generators_limit_is_not_called_the_servers() {
        let mut s = Search::new(1000.0, 1e9);
        run(&mut s, &mut |rate| {
            if rate < 50_000.0 { RateVerdict::Held } else { RateVerdict::GeneratorLimited }
        });
        assert_eq!(s.end(), End::Generator);
        let held = s.highest_held().unwrap();
        assert!((50_000.0 / 1.06..50_000.0).contains(&held), "{held}");
    }

    /// The ladder's collapse: good, bad, then good again at twice the rate. The rate found was held, and the
    /// rate above it failed.
    #[test]
    fn a_server_that_recovers_is_still_judged_by_what_was_seen() {
        let mut s = Search::new(1000.0, 1e6);
        run(&mut s, &mut |rate| {
            if (40_000.0..90_000.0).contains(&rate) || rate > 300_000.0 {
                RateVerdict::Exceeded
            } else {
                RateVerdict::Held
            }
        });
        let held = s.highest_held().unwrap();
        assert!(held < s.lowest_failed().unwrap());
        assert!(held < 40_000.0 || (90_000.0..=300_000.0).contains(&held), "{held}");
    }

    proptest! {
        #[test]
        fn a_plain_limit_is_found_within_the_precision(limit in 2.0f64..5e8, start in 1.0f64..1e9) {
            let mut s = Search::new(start, 1e9);
            run(&mut s, &mut up_to(limit));
            let held = s.highest_held().unwrap();
            prop_assert!(held <= limit && held >= limit / PRECISION * 0.999, "{held} for {limit}");
            prop_assert_eq!(s.end(), End::Server);
            prop_assert!(s.lowest_failed().unwrap() > limit);
        }

        /// One wrong answer in ten: the search ends, and nearly always stays near the limit (with one run in ten
        /// wrong, three runs give the wrong answer in 2.8 % of the steps), so only gross errors are asserted.
        #[test]
        fn noise_does_not_lead_it_far_astray(limit in 1e4f64..1e7, noise in prop::collection::vec(0u32..10, 64)) {
            let mut s = Search::new(1000.0, 1e9);
            let (mut clear, mut i) = (up_to(limit), 0);
            run(&mut s, &mut |rate| {
                i += 1;
                // Far from the limit a server is not ambiguous.
                let near = rate > limit / 1.3 && rate < limit * 1.3;
                match clear(rate) {
                    RateVerdict::Held if near && noise[i - 1] == 0 => RateVerdict::Exceeded,
                    RateVerdict::Exceeded if near && noise[i - 1] == 0 => RateVerdict::Held,
                    verdict => verdict,
                }
            });
            let held = s.highest_held().unwrap();
            prop_assert!(held > limit / 1.4 && held < limit * 1.3, "{held} for {limit}");
        }

        /// With arbitrary answers it ends, and the rate it reports as held was held by two runs and is below
        /// those that failed.
        #[test]
        fn chaos_ends(answers in prop::collection::vec(0u8..3, 64), start in 1.0f64..1e9, ceiling in 1.0f64..1e9) {
            let mut s = Search::new(start, ceiling);
            let mut given: Vec<(f64, RateVerdict)> = Vec::new();
            run(&mut s, &mut |rate| {
                let verdict = match answers[given.len()] {
                    0 => RateVerdict::Held,
                    1 => RateVerdict::Exceeded,
                    _ => RateVerdict::GeneratorLimited,
                };
                given.push((rate, verdict));
                verdict
            });
            prop_assert!(given.iter().all(|(r, _)| *r >= FLOOR && *r <= ceiling.max(FLOOR)));
            if let Some(held) = s.highest_held() {
                let times = given.iter().filter(|g| **g == (held, RateVerdict::Held)).count();
                prop_assert!(times >= 2);
                prop_assert!(s.lowest_failed().is_none_or(|f| held < f));
            }
            if s.end() == End::Server {
                let high = s.lowest_failed().unwrap();
                let at = |v| given.iter().filter(|g| **g == (high, v)).count();
                prop_assert!(at(RateVerdict::Exceeded) > at(RateVerdict::GeneratorLimited));
            }
        }
    }
}
