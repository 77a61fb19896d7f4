//! What a comparison says: a ratio with its interval, and the verdict.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A ratio and its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Ratio {
    /// Point estimate.
    pub ratio: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Better, worse, or not shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The first rung: nothing to compare with.
    Base,
    /// Shown to be faster than the best so far.
    Better,
    /// Shown to be slower than the best so far.
    Worse,
    /// Neither is shown.
    NotShown,
    /// It could not be run; see `note`.
    Failed,
}
