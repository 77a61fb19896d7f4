//! One result, three renderings: terminal, JSON, and one self-contained HTML file.
//!
//! ```text
//! BoostResult, LoadResult, ProfileResult ─▸ json       to and from a file; the schema is checked first
//! ExperimentResult                           (each of the four)
//!                                        ─▸ terminal   one screen: the conclusion, then aligned tables
//!                                        ─▸ html       one file: charts (svg), their tables, how to read them
//! two of them, compared                  ─▸ the same three
//! Listing: the history of results        ─▸ terminal, with a plot
//! FleetReport: many machines             ─▸ the same three
//! MapResult                              ─▸ terminal, metrics, and top: live, on a whole screen
//! CapacityResult, a calibration          ─▸ terminal, with a plot
//! Diagnosis                              ─▸ terminal, and its changes line by line
//! what serve, lab, predict, support and the verbs of settings return ─▸ terminal
//!
//! units       every figure is formatted in one place        scale       axes and their ticks
//! words       sentences that both renderings share          flame       stacks that begin alike, as one tree
//! finding     findings as sentences                         time_line   CPUs slice by slice
//! docs        experiments as pages of the book
//! file        read up to a limit; written whole or not at all
//! ```
//! The results are plain data from elsewhere, possibly from an edited file: this crate does not assume that they are
//! finite, ordered or short, and escapes all of their text for the terminal and the page. It measures nothing.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open their own files"))]

mod docs;
mod file;
mod finding;
mod flame;
mod hardware;
mod html;
mod json;
mod metrics;
pub mod predict;
mod scale;
mod svg;
mod terminal;
mod time_line;
pub mod top;
mod unbroken;
mod units;
mod words;

use std::path::Path;

use udpath_advise::ProfileResult;
use udpath_advise::comparison::CompareResult;
use udpath_advise::result::BoostResult;
use udpath_experiment::ExperimentResult;
use udpath_fleet::machines::FleetReport;
use udpath_load::result::LoadResult;
use udpath_profile::Profile;
use udpath_profile::difference::Difference;

pub use docs::{DocsFile, experiment_docs};
pub use file::{InputError, WriteError, check_writable, read_input, write_whole};
pub use json::{Document, ReadError, parse, read, read_with_text, to_json, to_pretty_json};
pub use metrics::{Applied, MetricsFormat, MetricsOptions, map_metrics};
pub use terminal::Style;
pub use terminal::boost::text as boost_text;
pub use terminal::capacity::{calibration as calibration_text, text as capacity_text};
pub use terminal::changes::{
    applied as applied_text, applied_sentence, status as status_text, status_findings, undone_sentence,
};
pub use terminal::diagnosis::{CHANGE_SCHEMA, ChangeLine, change_json, change_text, text as diagnosis_text};
pub use terminal::experiment::list as experiments_text;
pub use terminal::fleet::text as fleet_text;
pub use terminal::history::text as history_text;
pub use terminal::lab::text as labs_text;
pub use terminal::map::{Extent, text as map_text};
pub use terminal::multiply::{event as multiply_event, text as instances_text};
pub use terminal::policy::text as policy_text;
pub use terminal::predict::{accuracy, compared, mismatch, path as path_text, spreads as spreads_text};
pub use terminal::profile::within as profile_text;
pub use terminal::progress::{load_line, probe_line, profiling_line, rung_line, server_line, trial_line};
pub use terminal::search::text as search_text;
pub use terminal::serve::{Started, started as started_text, summary as served_text};
pub use terminal::service::text as service_text;
pub use terminal::support::{contents as capture_text, redactions as redactions_text};
pub use units::{date, duration as seconds};
pub use words::compare::unlike as unlike_sentence;

/// A result that can be rendered.
pub trait Render {
    /// Text for a terminal, every line terminated, no line wider than `style` allows unless a name is.
    fn terminal(&self, style: &Style) -> String;

    /// One self-contained HTML document.
    fn html(&self) -> String;

    /// One line of JSON.
    fn json(&self) -> String;
}

impl Render for BoostResult {
    fn terminal(&self, style: &Style) -> String {
        terminal::boost::text(self, style, false)
    }

    fn html(&self) -> String {
        html::boost::page(self)
    }

    fn json(&self) -> String {
        to_json(self)
    }
}

impl Render for LoadResult {
    fn terminal(&self, style: &Style) -> String {
        terminal::load::text(self, style)
    }

    fn html(&self) -> String {
        html::load::page(self)
    }

    fn json(&self) -> String {
        to_json(self)
    }
}

impl Render for ProfileResult {
    fn terminal(&self, style: &Style) -> String {
        terminal::profile::text(self, style)
    }

    fn html(&self) -> String {
        html::profile::page(self)
    }

    fn json(&self) -> String {
        to_json(self)
    }
}

impl Render for ExperimentResult {
    fn terminal(&self, style: &Style) -> String {
        terminal::experiment::text(self, style)
    }

    fn html(&self) -> String {
        html::experiment::page(self)
    }

    fn json(&self) -> String {
        to_json(self)
    }
}

impl Render for FleetReport {
    fn terminal(&self, style: &Style) -> String {
        terminal::machines::text(self, style)
    }

    fn html(&self) -> String {
        html::machines::page(self)
    }

    fn json(&self) -> String {
        to_json(self)
    }
}

/// Two profiles, rendered as their difference.
#[derive(Debug, Clone, Copy)]
pub struct Compared<'a> {
    /// The first.
    pub a: &'a Profile,
    /// The second, which the graph shows.
    pub b: &'a Profile,
}

impl Render for Compared<'_> {
    fn terminal(&self, style: &Style) -> String {
        terminal::difference::text(&Difference::new(self.a, self.b), style)
    }

    fn html(&self) -> String {
        html::difference::page(self.a, self.b)
    }

    fn json(&self) -> String {
        to_json(&Difference::new(self.a, self.b))
    }
}

/// Two results of one kind, rendered as their comparison.
#[derive(Debug, Clone, Copy)]
pub struct Versus<'a> {
    /// Their comparison.
    pub result: &'a CompareResult,
    /// The names of both: their files.
    pub names: [&'a str; 2],
    /// The results, for the page's charts.
    pub documents: [&'a Document; 2],
}

impl Render for Versus<'_> {
    fn terminal(&self, style: &Style) -> String {
        terminal::compare::text(self.result, self.names, style)
    }

    fn html(&self) -> String {
        html::compare::page(self.result, self.names, self.documents)
    }

    fn json(&self) -> String {
        to_json(self.result)
    }
}

impl Document {
    fn result(&self) -> &dyn Render {
        match self {
            Self::Boost(result) => result,
            Self::Load(result) => result,
            Self::Profile(result) => result,
            Self::Experiment(result) => result,
        }
    }
}

impl Render for Document {
    fn terminal(&self, style: &Style) -> String {
        self.result().terminal(style)
    }

    fn html(&self) -> String {
        self.result().html()
    }

    fn json(&self) -> String {
        self.result().json()
    }
}

/// Writes the result's HTML to `path`, completely or not at all.
///
/// # Errors
/// See [`WriteError`]; an existing file at `path` is then unchanged.
pub fn write_html(path: &Path, result: &impl Render) -> Result<(), WriteError> {
    write_whole(path, result.html().as_bytes())
}
