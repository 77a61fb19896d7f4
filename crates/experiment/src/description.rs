//! An experiment as data: what was asked, on which machine, what was published, and what is compared.
//!
//! ```text
//! name, title, question, topology      what the page says first
//! [source]                             the document, and the machine it describes
//! [[case]]                             a configuration: published figure, what this machine runs, what the model runs
//! [[comparison]]                       two cases; the published ratio is that of their figures unless it is given
//! ```

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An experiment.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Description {
    /// Short name, as `udpath experiment NAME` accepts it.
    pub name: String,
    /// Heading of its page.
    pub title: String,
    /// What it answers, as a question.
    pub question: String,
    /// What is run here, in a few sentences.
    pub topology: String,
    /// Where it was published.
    pub source: Source,
    /// Its configurations, in the order in which they are shown.
    #[serde(rename = "case")]
    pub cases: Vec<Case>,
    /// What is compared.
    #[serde(rename = "comparison", default)]
    pub comparisons: Vec<Comparison>,
}

/// A document.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Source {
    /// Its title.
    pub title: String,
    /// Who published it, where and when.
    pub by: String,
    /// The machine and the kernel that it describes.
    pub machine: String,
}

/// One configuration.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Case {
    /// Unique in the experiment, such as `spread`.
    pub id: String,
    /// What it is, in a few words.
    pub label: String,
    /// What it has in common with other cases, such as a load or a published machine. Figures are shown as ratios to
    /// the first case of their group.
    pub group: Option<String>,
    /// What its figures are.
    pub unit: Unit,
    /// The published figure, in `unit`.
    pub published: Option<f64>,
    /// The published share of the machine's CPU time that it took, 0..=1.
    pub published_cpu: Option<f64>,
    /// Where in the document the figure is, such as "slide 24".
    pub place: Option<String>,
    /// What the model calls it; none if it has no model.
    pub model: Option<String>,
    /// Why this machine cannot measure it; none if it can.
    pub not_here: Option<String>,
}

/// What a figure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Transactions per second.
    Tps,
    /// Packets per second.
    Pps,
    /// Gbit/s for each core that the receiver uses.
    GbitPerCore,
    /// Nanoseconds per packet.
    NsPerPacket,
    /// A share of CPU time, 0..=1.
    CpuShare,
    /// A ratio to another case, without a figure of its own.
    Ratio,
}

/// Two cases compared.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Comparison {
    /// The case that is compared.
    pub of: String,
    /// The case that it is compared with.
    pub to: String,
    /// `of` over `to` as published, where the document gives the ratio rather than two figures.
    pub published: Option<f64>,
    /// Which of the two is faster as published, where the document says so without a figure.
    pub published_order: Option<Order>,
    /// Where the document says so, and what else is worth knowing.
    pub note: Option<String>,
}

/// How the first of two cases is, compared with the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Slower.
    Slower,
    /// Neither: within [`ORDER`](crate::verdict::ORDER).
    Equal,
    /// Faster.
    Faster,
}

/// Why a description is refused.
#[derive(Debug, thiserror::Error)]
pub enum DescriptionError {
    /// It is not TOML of this form.
    #[error("cannot read the description of an experiment")]
    Toml(#[from] toml::de::Error),
    /// Two cases have one id.
    #[error("experiment {experiment}: two cases are called `{id}`")]
    Twice {
        /// The experiment.
        experiment: String,
        /// The id.
        id: String,
    },
    /// A comparison of a case that does not exist.
    #[error("experiment {experiment}: a comparison names the case `{id}`, which does not exist")]
    NoCase {
        /// The experiment.
        experiment: String,
        /// The id.
        id: String,
    },
    /// A comparison of a case with itself.
    #[error("experiment {experiment}: a comparison names the case `{id}` twice")]
    Itself {
        /// The experiment.
        experiment: String,
        /// The id.
        id: String,
    },
    /// A comparison whose published order is not that of its published ratio.
    #[error(
        "experiment {experiment}: the published order of `{of}` and `{to}` contradicts their published ratio; give one of both"
    )]
    TwoOrders {
        /// The experiment.
        experiment: String,
        /// The first case.
        of: String,
        /// The second case.
        to: String,
    },
    /// A figure that cannot be one.
    #[error(
        "experiment {experiment}, case {id}: {value} is not a published figure; expected a number above 0"
    )]
    Figure {
        /// The experiment.
        experiment: String,
        /// The case.
        id: String,
        /// What stands there.
        value: f64,
    },
}

impl Description {
    /// Reads a description and checks it.
    ///
    /// # Errors
    /// It is not of this form, names a case twice, compares cases that do not exist or a case with itself, publishes
    /// both a ratio and an order of two cases, or has figures that are not above 0.
    pub fn parse(text: &str) -> Result<Self, DescriptionError> {
        let read: Self = toml::from_str(text)?;
        let experiment = || read.name.clone();
        let mut ids = BTreeSet::new();
        for case in &read.cases {
            if !ids.insert(case.id.as_str()) {
                return Err(DescriptionError::Twice { experiment: experiment(), id: case.id.clone() });
            }
        }
        for id in read.comparisons.iter().flat_map(|comparison| [&comparison.of, &comparison.to]) {
            if !ids.contains(id.as_str()) {
                return Err(DescriptionError::NoCase { experiment: experiment(), id: id.clone() });
            }
        }
        for pair in &read.comparisons {
            if pair.of == pair.to {
                return Err(DescriptionError::Itself { experiment: experiment(), id: pair.of.clone() });
            }
            if pair.published_order.is_some() && read.published(pair).is_some() {
                let (of, to) = (pair.of.clone(), pair.to.clone());
                return Err(DescriptionError::TwoOrders { experiment: experiment(), of, to });
            }
        }
        let of_cases = read.cases.iter().filter_map(|case| Some((&case.id, case.published?)));
        let of_pairs = read.comparisons.iter().filter_map(|pair| Some((&pair.of, pair.published?)));
        let of_cpus = read.cases.iter().filter_map(|case| Some((&case.id, case.published_cpu?)));
        for (id, value) in of_cases.chain(of_pairs).chain(of_cpus) {
            if !(value.is_finite() && value > 0.0) {
                let id = id.clone();
                return Err(DescriptionError::Figure { experiment: experiment(), id, value });
            }
        }
        Ok(read)
    }

    /// The case with this id.
    #[must_use]
    pub fn case(&self, id: &str) -> Option<&Case> {
        self.cases.iter().find(|case| case.id == id)
    }

    /// `of` over `to` as published, if it was.
    #[must_use]
    pub fn published(&self, comparison: &Comparison) -> Option<f64> {
        let figure = |id: &str| self.case(id)?.published;
        comparison.published.or_else(|| Some(figure(&comparison.of)? / figure(&comparison.to)?))
    }
}
