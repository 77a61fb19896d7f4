//! Measures what a description compares: each comparison in interleaved trials, then every arm once more under the
//! profiler.
//!
//! ```text
//!  comparison (of, to) ──▸ the arms of both ──▸ A B B A, until the interval is narrow enough    once for each pair of arms
//!                                         └──▸ profile of each arm ──▸ what limited it; why two differ
//! ```
//! An **arm** is a configuration that can be measured here. Cases of several published machines may share one: their
//! figures here are the same, and what was published differs.

use std::cell::RefCell;
use std::collections::BTreeMap;

use udpath_advise::interleave::interleave;
use udpath_advise::result::Ratio;
use udpath_advise::statistics::{BlockError, Bound, BoundError, median};
use udpath_advise::test_bed::Profiled;

use crate::description::Description;
use crate::entry::{CaseFound, Context, Effort, Error, Found, Progress, RatioFound, Watch};
use crate::evidence;
use crate::outcome::Measured;

/// Configurations that can be measured.
pub trait Arms {
    /// The arm that stands for a case; none if the case cannot be measured.
    fn arm_of(&self, case: &str) -> Option<&'static str>;

    /// One trial of an arm.
    ///
    /// # Errors
    /// It cannot be measured, or the run was interrupted.
    fn trial(&mut self, arm: &'static str) -> Result<Trial, Error>;

    /// An extra run of an arm under the profiler; the inner error is why there is no profile.
    ///
    /// # Errors
    /// The run was interrupted.
    fn profile(&mut self, arm: &'static str) -> Result<Result<Profiled, String>, Error>;
}

/// What one trial gave.
#[derive(Debug, Clone, Copy)]
pub struct Trial {
    /// In the unit of its cases.
    pub figure: f64,
    /// Share of the machine's CPU time that was busy, 0..=1.
    pub cpu: Option<f64>,
}

/// When a comparison ends: the half-width of its interval, and the most blocks of four trials.
#[derive(Debug, Clone, Copy)]
pub struct Precision {
    /// As a share.
    pub half_width: f64,
    /// Blocks.
    pub blocks: usize,
}

impl Precision {
    /// Of [`Effort::Least`]: the fewest blocks that have an interval.
    const LEAST: Self = Self { half_width: 0.5, blocks: 3 };

    /// This, or the least.
    fn bound(self, effort: Effort) -> Result<Bound, BoundError> {
        let wanted = if effort == Effort::Least { Self::LEAST } else { self };
        Bound::new(wanted.half_width, wanted.blocks)
    }
}

/// Trials of an arm that no comparison names: as many as a comparison has at least on each side.
const ALONE: usize = 6;

/// An error of a trial, or of what it reported.
enum TrialError {
    Trial(Error),
    Block(BlockError),
}

impl From<BlockError> for TrialError {
    fn from(error: BlockError) -> Self {
        Self::Block(error)
    }
}

/// All trials of an arm.
#[derive(Default)]
struct Trials {
    figures: Vec<f64>,
    cpu: Vec<f64>,
}

/// Measures every case that has an arm, and every comparison of two such cases.
///
/// # Errors
/// An arm cannot be measured, or the run was interrupted.
pub fn measure(
    description: &Description,
    context: &Context<'_>,
    watch: &mut Watch<'_>,
    precision: Precision,
    arms: &mut dyn Arms,
) -> Result<Found, Error> {
    let failed = |cause: BoundError| Error::measuring(description, "the comparisons", cause);
    let bound = precision.bound(context.effort).map_err(failed)?;
    let cases: Vec<(&str, &'static str)> = description
        .cases
        .iter()
        .filter_map(|case| Some((case.id.as_str(), arms.arm_of(&case.id)?)))
        .collect();
    let arm_of = |case: &str| cases.iter().find(|(id, _)| *id == case).map(|(_, arm)| *arm);
    let pairs: Vec<(&str, &str, [&'static str; 2])> = description
        .comparisons
        .iter()
        .filter_map(|pair| Some((&*pair.of, &*pair.to, [arm_of(&pair.of)?, arm_of(&pair.to)?])))
        .collect();
    let mut distinct = Vec::new();
    for (_, _, arms) in &pairs {
        if !distinct.contains(arms) {
            distinct.push(*arms);
        }
    }
    let mut order: Vec<&'static str> = Vec::new();
    for (_, arm) in &cases {
        if !order.contains(arm) {
            order.push(arm);
        }
    }
    let profiled = context.effort == Effort::Full;
    let steps = distinct.len() + if profiled { order.len() } else { 0 };
    let mut step = 0;
    let mut say = |what: &str| {
        step += 1;
        watch(&Progress { what, step, steps });
    };

    let mut trials: BTreeMap<&str, Trials> = BTreeMap::new();
    let mut ratios: BTreeMap<[&str; 2], Ratio> = BTreeMap::new();
    for [of, to] in distinct {
        context.check()?;
        say(&format!("{of} against {to}"));
        if let Some(ratio) = race(description, bound, arms, [of, to], &mut trials)? {
            ratios.insert([of, to], ratio);
        }
    }
    for arm in &order {
        if !trials.contains_key(arm) {
            let of_arm = trials.entry(*arm).or_default();
            for _ in 0..if profiled { ALONE } else { 1 } {
                of_arm.add(arms.trial(arm)?);
            }
        }
    }
    let mut profiles: BTreeMap<&str, Profiled> = BTreeMap::new();
    let mut found = Found::default();
    for arm in order.iter().filter(|_| profiled) {
        context.check()?;
        say(&format!("{arm}: profile"));
        match arms.profile(arm)? {
            Ok(profile) => drop(profiles.insert(arm, profile)),
            Err(reason) => found.notes.push(format!("{arm} could not be profiled: {reason}")),
        }
    }

    for (case, arm) in &cases {
        if let Some(measured) = trials.get(arm).and_then(Trials::measured) {
            let limited_by = profiles.get(arm).map(evidence::limited_by);
            let cpu = trials.get(arm).and_then(|trials| median(trials.cpu.clone()));
            found.cases.insert((*case).to_owned(), CaseFound { measured, cpu, limited_by });
        }
    }
    for (of, to, arms) in pairs {
        if let Some(ratio) = ratios.get(&arms) {
            let both = profiles.get(arms[0]).zip(profiles.get(arms[1]));
            let cause = both.and_then(|(of, to)| evidence::cause(of, to));
            found.ratios.insert((of.to_owned(), to.to_owned()), RatioFound { ratio: *ratio, cause });
        }
    }
    Ok(found)
}

/// Two arms in turn; `of` over `to`.
fn race(
    description: &Description,
    bound: Bound,
    arms: &mut dyn Arms,
    [of, to]: [&'static str; 2],
    trials: &mut BTreeMap<&str, Trials>,
) -> Result<Option<Ratio>, Error> {
    let shared = RefCell::new((arms, trials));
    let turn = |arm: &'static str| {
        let (arms, trials) = &mut *shared.borrow_mut();
        let trial = arms.trial(arm).map_err(TrialError::Trial)?;
        trials.entry(arm).or_default().add(trial);
        Ok([trial.figure])
    };
    match interleave(bound, || turn(to), || turn(of), |_| ()) {
        Ok(done) => Ok(done.ratios[0]),
        Err(TrialError::Trial(error)) => Err(error),
        Err(TrialError::Block(cause)) => {
            Err(Error::measuring(description, &format!("{of} against {to}"), cause))
        }
    }
}

impl Trials {
    fn add(&mut self, trial: Trial) {
        self.figures.push(trial.figure);
        self.cpu.extend(trial.cpu);
    }

    fn measured(&self) -> Option<Measured> {
        Measured::of(self.figures.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::atomic::AtomicBool;

    use super::*;

    const TEXT: &str = r#"
        name = "made-up"
        title = "Sockets"
        question = "Are two faster than one?"
        topology = "None."
        case = [
          { id = "a-one", label = "one, on machine a", unit = "tps", published = 100.0 },
          { id = "a-two", label = "two, on machine a", unit = "tps", published = 150.0 },
          { id = "b-one", label = "one, on machine b", unit = "tps", published = 200.0 },
          { id = "b-two", label = "two, on machine b", unit = "tps", published = 500.0 },
          { id = "ten", label = "ten", unit = "tps" },
        ]
        comparison = [ { of = "a-two", to = "a-one" }, { of = "b-two", to = "b-one" }, { of = "ten", to = "a-one" } ]
        [source]
        title = "A document"
        by = "Somebody"
        machine = "Two machines"
    "#;

    /// Two arms with fixed rates.
    struct Fixed {
        trials: usize,
        stop_after: usize,
    }

    impl Arms for Fixed {
        fn arm_of(&self, case: &str) -> Option<&'static str> {
            ["one", "two"].into_iter().find(|arm| case.ends_with(arm))
        }

        fn trial(&mut self, arm: &'static str) -> Result<Trial, Error> {
            self.trials += 1;
            if self.trials > self.stop_after {
                return Err(Error::Interrupted);
            }
            Ok(Trial { figure: if arm == "two" { 30.0 } else { 20.0 }, cpu: Some(0.5) })
        }

        fn profile(&mut self, _: &'static str) -> Result<Result<Profiled, String>, Error> {
            Ok(Err("there is none".to_owned()))
        }
    }

    fn measured(arms: &mut Fixed, effort: Effort) -> (Result<Found, Error>, Vec<(usize, usize)>) {
        let description = Description::parse(TEXT).unwrap();
        let stop = AtomicBool::new(false);
        let context = Context { program: PathBuf::new(), effort, modelled: &|_| None, stop: &stop };
        let precision = Precision { half_width: 0.02, blocks: 8 };
        let mut steps = Vec::new();
        let mut watch = |progress: &Progress<'_>| steps.push((progress.step, progress.steps));
        (measure(&description, &context, &mut watch, precision, arms), steps)
    }

    #[test]
    fn cases_that_share_an_arm_are_measured_once() {
        let mut arms = Fixed { trials: 0, stop_after: usize::MAX };
        let (found, steps) = measured(&mut arms, Effort::Least);
        let found = found.unwrap();
        assert_eq!(arms.trials, 12);
        assert_eq!(steps, [(1, 1)]);
        assert_eq!(found.cases.len(), 4);
        for of in ["a", "b"] {
            let ratio = &found.ratios[&(format!("{of}-two"), format!("{of}-one"))].ratio;
            assert!((ratio.ratio - 1.5).abs() < 1e-9, "{ratio:?}");
            assert_eq!(found.cases[&format!("{of}-two")].cpu, Some(0.5));
        }
    }

    #[test]
    fn a_profile_that_is_missing_is_a_note() {
        let mut arms = Fixed { trials: 0, stop_after: usize::MAX };
        let (found, steps) = measured(&mut arms, Effort::Full);
        assert_eq!(
            found.unwrap().notes,
            ["one could not be profiled: there is none", "two could not be profiled: there is none"]
        );
        assert_eq!(steps.last(), Some(&(3, 3)));
    }

    #[test]
    fn an_interrupt_ends_the_measurement() {
        let (found, _) = measured(&mut Fixed { trials: 0, stop_after: 3 }, Effort::Full);
        assert!(matches!(found, Err(Error::Interrupted)));
    }
}
