//! The load, run where it is sent from.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use udpath_host::namespace::{Place, inside};
use udpath_load::Progress;
use udpath_load::plan::Plan;
use udpath_load::result::LoadResult;
use udpath_profile::facts::Focus;

use super::evidence::{self, Evidence};
use super::truth::{Counters, Packets, Places};
use super::{LoadConfig, RunningError};
use crate::search::Under;

/// Load before a trial that follows a change, as a share of the trial's length, and its bounds. Shorter: the trial
/// measures the change itself. Longer: time that could go into more trials.
pub(super) const WARMUP_SHARE: f64 = 0.2;
pub(super) const WARMUP: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// A request of a trial is lost after so many times the 99.9th percentile of what answers took as found, but not before
/// the shortest and not after the load's own timeout. A trial of a server that loses waits for it at its end, and each
/// lost request holds back the next one of its slot: with the usual second, a trial of 0.3 s took 2.5. Fewer: answers
/// that a change delays count as lost. More: the budget goes into waiting.
const TIMEOUT_FACTOR: u32 = 10;
const TIMEOUT: Duration = Duration::from_millis(20);
/// Answers from which on a percentile of theirs says something.
const ENOUGH: u64 = 200;
/// Limit of the load during which evidence is collected; it normally ends with the sampling. Shorter: on a large
/// machine reading the kernel's symbols takes seconds.
const EVIDENCE: Duration = Duration::from_secs(30);

/// The load, run where it is sent from.
pub(super) struct Load<'a> {
    pub(super) config: &'a LoadConfig,
    /// That of every trial.
    pub(super) plan: Plan,
    /// Another load of the server: half as many flows, each as before, or twice as many if there cannot be fewer.
    pub(super) other: Plan,
    pub(super) from: Place,
    pub(super) stop: &'a AtomicBool,
}

/// See [`Load::other`]. Half as many requests in flight, from half as many clients: batches and queues are shorter, and
/// what waits for more datagrams waits longer. Fewer: a server that idles looks slow. Rates stay.
pub(super) fn other(plan: &Plan) -> Plan {
    let half = plan.flows / 2;
    // Every target has a flow.
    let flows = if half as usize >= plan.targets.len().max(1) { half } else { plan.flows.saturating_mul(2) };
    Plan { flows, ..plan.clone() }
}

impl Load<'_> {
    /// One trial's load, refused if the counts of the places do not agree.
    pub(super) fn checked(
        &self,
        interfaces: &(String, String),
        under: Under,
    ) -> Result<Result<LoadResult, String>, RunningError> {
        let (out, there) = interfaces;
        let (before, sender) = (Counters::read(), inside(&self.from, Counters::read)?);
        let plan = match under {
            Under::Load => &self.plan,
            Under::OtherLoad => &self.other,
        };
        let result = self.run_until(plan, &mut |_| (), self.stop)?;
        let (after, sent) = (Counters::read(), inside(&self.from, Counters::read)?);
        let places = Places {
            generator: Packets { received: result.counts.received, sent: result.counts.sent },
            sender: (out.clone(), sent.since(&sender, out)),
            server: (there.clone(), after.since(&before, there)),
        };
        let said = &result.warnings;
        let checked = places.check().map_err(|why| with_causes(why, said));
        Ok(checked.map(|()| result))
    }

    /// The load before a trial that follows a change.
    pub(super) fn warm(&self) -> Result<LoadResult, RunningError> {
        let duration = self.plan.duration.mul_f64(WARMUP_SHARE).clamp(WARMUP.0, WARMUP.1);
        self.run_until(&Plan { duration, ..self.plan.clone() }, &mut |_| (), self.stop)
    }

    /// The interfaces that it leaves by and arrives on; `None` if it arrives nowhere. What answers take here is what
    /// later ones are waited for.
    pub(super) fn interfaces(&mut self) -> Result<Option<(String, String)>, RunningError> {
        let (there, here) = (Counters::read(), inside(&self.from, Counters::read)?);
        let seen = self.warm()?;
        let took = seen.sent_latency.as_ref().map(|took| (took.count, took.p99_9));
        let timeout = timeout(self.config.plan.timeout, took);
        (self.plan.timeout, self.other.timeout) = (timeout, timeout);
        let (there_now, here_now) = (Counters::read(), inside(&self.from, Counters::read)?);
        let out = here_now.busiest(&here, |packets| packets.sent);
        Ok(out.zip(there_now.busiest(&there, |packets| packets.received)))
    }

    /// What is seen of the server under it.
    pub(super) fn evidence(&self, focus: Focus) -> Result<Evidence, RunningError> {
        let plan = Plan { duration: EVIDENCE, ..self.plan.clone() };
        evidence::under_load(focus, self.stop, |watch, over| self.run_until(&plan, watch, over).map(drop))
    }

    fn run_until(
        &self,
        plan: &Plan,
        watch: &mut (dyn FnMut(&Progress) + Send),
        stop: &AtomicBool,
    ) -> Result<LoadResult, RunningError> {
        let engine = self.config.engine;
        match inside(&self.from, || udpath_load::run(plan, engine, &*self.config.protocol, watch, stop))? {
            Ok(result) if result.unanswered() => Err(RunningError::Silent(result.targets.join(", "))),
            Ok(result) => Ok(result),
            Err(udpath_load::Error::Cut { result, .. }) => Ok(*result),
            Err(udpath_load::Error::NoAnswer { .. }) => {
                let targets = plan.targets.iter().map(ToString::to_string).collect::<Vec<_>>();
                Err(RunningError::Silent(targets.join(", ")))
            }
            Err(error) => Err(RunningError::Load(error)),
        }
    }
}

/// Why a trial is refused, with what the load itself says of it, which is the cause more often than not.
fn with_causes(why: String, said: &[String]) -> String {
    if said.is_empty() { why } else { format!("{}; {why}", said.join("; ")) }
}

/// See [`TIMEOUT_FACTOR`]. `took`: how many answers came, and the 99.9th percentile of what they took, nanoseconds.
fn timeout(asked: Duration, took: Option<(u64, u64)>) -> Duration {
    let slowest = took.filter(|(answers, _)| *answers >= ENOUGH).map(|(_, ns)| Duration::from_nanos(ns));
    slowest.map_or(asked, |slowest| slowest.saturating_mul(TIMEOUT_FACTOR).max(TIMEOUT).min(asked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_trial_has_the_causes_that_the_load_names() {
        assert_eq!(with_causes("they differ".into(), &[]), "they differ");
        let said = ["no XDP program is there".to_owned(), "2 packets were strange".to_owned()];
        let why = with_causes("they differ".into(), &said);
        assert_eq!(why, "no XDP program is there; 2 packets were strange; they differ");
    }

    #[test]
    fn lost_requests_are_given_up_soon_where_answers_are_quick() {
        let second = Duration::from_secs(1);
        let of = |answers: u64, ns: u64| timeout(second, Some((answers, ns))).as_millis();
        assert_eq!(of(10_000, 1_000_000), 20);
        assert_eq!(of(10_000, 5_000_000), 50);
        assert_eq!(of(10_000, 400_000_000), 1000);
        assert_eq!(of(100, 1_000_000), 1000, "too few");
        assert_eq!(timeout(second, None), second);
        let shorter = Duration::from_millis(5);
        assert_eq!(timeout(shorter, Some((900, 1_000_000))), shorter);
    }
}
