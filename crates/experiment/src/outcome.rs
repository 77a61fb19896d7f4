//! The outcome of experiments: published, measured and modelled figures side by side.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use udpath_advise::result::{Machine, Ratio};
use udpath_advise::statistics::median;

use crate::description::{Order, Source, Unit};
use crate::verdict::Verdict;

/// Version of the JSON form of [`ExperimentResult`].
pub const SCHEMA: &str = "udpath.experiment/1";

/// All experiments of one run.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct ExperimentResult {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Version of the program.
    pub version: String,
    /// When the run began, seconds since 1970-01-01 UTC.
    pub started: u64,
    /// Duration, seconds.
    pub seconds: f64,
    /// Where it was measured.
    pub machine: Machine,
    /// The experiments in their order.
    pub experiments: Vec<Outcome>,
    /// The command line that repeats it, if there is one.
    #[serde(default)]
    pub command: Option<String>,
}

/// One experiment.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Outcome {
    /// Its short name.
    pub name: String,
    /// Heading of its page.
    pub title: String,
    /// What it answers.
    pub question: String,
    /// What was run here.
    pub topology: String,
    /// Where it was published.
    pub source: Source,
    /// Duration, seconds.
    pub seconds: f64,
    /// Its configurations.
    pub cases: Vec<CaseOutcome>,
    /// What was compared.
    pub comparisons: Vec<ComparisonOutcome>,
    /// Figures over a quantity, such as rates over receive queues.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sweeps: Vec<Sweep>,
    /// Figures that are counted or shown without a published counterpart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<Table>,
    /// Caveats, each a sentence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Outcome {
    /// Does it have a figure of the model?
    #[must_use]
    pub fn has_modelled(&self) -> bool {
        self.cases.iter().any(|case| case.modelled.is_some())
    }
}

/// One configuration.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct CaseOutcome {
    /// Its id in the description.
    pub id: String,
    /// What it is.
    pub label: String,
    /// What it has in common with other cases; their first one is what they are shown relative to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// What its figures are.
    pub unit: Unit,
    /// The published figure.
    pub published: Option<f64>,
    /// Where in the document the figure is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The figure measured here.
    pub measured: Option<Measured>,
    /// The figure that the model gives for the published machine.
    pub modelled: Option<Modelled>,
    /// The published share of the machine's CPU time that it took, 0..=1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_cpu: Option<f64>,
    /// The share that was busy here, generator included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_cpu: Option<f64>,
    /// Why nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_measured: Option<String>,
    /// What limited it here, in the profile's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_by: Option<String>,
}

/// A figure measured here, over its trials.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Measured {
    /// Median of the trials.
    pub median: f64,
    /// Lowest quartile.
    pub low: f64,
    /// Highest quartile.
    pub high: f64,
    /// Number of trials.
    pub trials: usize,
}

impl Measured {
    /// Of the figures of its trials; none of none.
    #[must_use]
    pub fn of(mut figures: Vec<f64>) -> Option<Self> {
        figures.sort_by(f64::total_cmp);
        let last = figures.len().checked_sub(1)?;
        let at = |share: f64| figures[(last as f64 * share).round() as usize];
        let (low, high) = (at(0.25), at(0.75));
        Some(Self { low, high, trials: figures.len(), median: median(figures)? })
    }
}

/// A figure of the model.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Modelled {
    /// The figure.
    pub value: f64,
    /// Lower end of its band.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Two cases compared.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct ComparisonOutcome {
    /// The case that is compared.
    pub of: String,
    /// The case that it is compared with.
    pub to: String,
    /// `of` over `to` as published.
    pub published: Option<f64>,
    /// Which of the two is faster as published, where the document gives no figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_order: Option<Order>,
    /// `of` over `to` measured here in interleaved trials, with the 95 % interval.
    pub measured: Option<Ratio>,
    /// `of` over `to` of the model.
    pub modelled: Option<f64>,
    /// Measured against published; of the model against published where nothing could be measured.
    pub verdict: Verdict,
    /// Where it differs: the measured cause. Else what is worth knowing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Figures over a quantity.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Sweep {
    /// Heading.
    pub title: String,
    /// What the horizontal axis is.
    pub x: String,
    /// What the figures are.
    pub unit: Unit,
    /// The lines.
    pub lines: Vec<Line>,
}

/// One line of a sweep.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Where its figures come from.
    pub origin: FigureOrigin,
    /// Its points, by ascending x.
    pub points: Vec<Point>,
}

/// Where figures come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FigureOrigin {
    /// The document.
    Published,
    /// This machine.
    Measured,
    /// The model.
    Modelled,
}

/// A point of a line.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Point {
    /// The quantity.
    pub x: f64,
    /// The figure.
    pub y: f64,
    /// Lower end of its interval; equal to `y` if it has none.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// A table of text and figures.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Table {
    /// Heading.
    pub title: String,
    /// Its columns.
    pub columns: Vec<String>,
    /// Its rows, each as long as `columns`.
    pub rows: Vec<Vec<String>>,
}
