//! What an experiment is to the runner: its description, and the function that measures it here.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use udpath_advise::result::Ratio;

use crate::description::Description;
use crate::outcome::{Measured, Modelled, Sweep, Table};

/// One line of the list of experiments.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Its description, as TOML.
    pub text: &'static str,
    /// Measures its cases on this machine.
    pub measure: fn(&Description, &Context<'_>, &mut Watch<'_>) -> Result<Found, Error>,
}

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// As much as a published page needs: all experiments together in less than 20 minutes on two cores.
    Full,
    /// As little as shows that everything runs, for tests: intervals are wide, and verdicts mean nothing.
    Least,
}

/// What every experiment gets.
pub struct Context<'a> {
    /// The program whose `serve` and `load` run servers and clients: this one.
    pub program: PathBuf,
    /// How much to measure.
    pub effort: Effort,
    /// The figure that the model gives for a case of a published machine; none if it has none.
    pub modelled: &'a dyn Fn(&str) -> Option<Modelled>,
    /// Set when the run shall end.
    pub stop: &'a AtomicBool,
}

impl Context<'_> {
    /// # Errors
    /// The run was interrupted.
    pub fn check(&self) -> Result<(), Error> {
        if self.stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }
}

/// Progress of an experiment: what is measured now, and how far it is.
pub type Watch<'a> = dyn FnMut(&Progress<'_>) + 'a;

/// One step of progress.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// The case or the comparison.
    pub what: &'a str,
    /// The step, from 1.
    pub step: usize,
    /// Number of steps.
    pub steps: usize,
}

/// What was measured of an experiment. Cases and pairs that are missing were not measured.
#[derive(Debug, Default)]
pub struct Found {
    /// By case id.
    pub cases: BTreeMap<String, CaseFound>,
    /// By the ids of both cases: `of`, `to`.
    pub ratios: BTreeMap<(String, String), RatioFound>,
    /// Figures over a quantity.
    pub sweeps: Vec<Sweep>,
    /// Counts and shares.
    pub tables: Vec<Table>,
    /// Why a case could not be measured, by case id.
    pub missing: BTreeMap<String, String>,
    /// Caveats, each a sentence.
    pub notes: Vec<String>,
}

/// A case that was measured.
#[derive(Debug)]
pub struct CaseFound {
    /// Its figure.
    pub measured: Measured,
    /// Share of the machine's CPU time that was busy, 0..=1.
    pub cpu: Option<f64>,
    /// What limited it, in the profile's words.
    pub limited_by: Option<String>,
}

/// A ratio that was measured.
#[derive(Debug)]
pub struct RatioFound {
    /// With its interval, from interleaved trials.
    pub ratio: Ratio,
    /// The measured cause, should it differ from what was published.
    pub cause: Option<String>,
}

impl Error {
    /// Of a step that failed: `what` was measured.
    pub fn measuring(
        description: &Description,
        what: &str,
        cause: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self::Measure { experiment: description.name.clone(), what: what.to_owned(), cause: Box::new(cause) }
    }
}

/// Why an experiment ended without an outcome.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Ctrl-C or SIGTERM.
    #[error("interrupted; the labs have been removed")]
    Interrupted,
    /// A description that ships with the program is wrong.
    #[error("the description of an experiment is wrong")]
    Description(#[from] crate::description::DescriptionError),
    /// The lab, a server or the load failed.
    #[error("experiment {experiment}: cannot measure {what}")]
    Measure {
        /// The experiment.
        experiment: String,
        /// The case or the comparison.
        what: String,
        /// The cause.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}
