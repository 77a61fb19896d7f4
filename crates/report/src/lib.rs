//! One result, three renderings: terminal, JSON, and one self-contained HTML file.
//!
//! ```text
//! BoostResult, LoadResult, ProfileResult  ->  json      to and from a file; the schema is checked first
//!                          ->  terminal  one screen: the conclusion, then aligned tables
//!                          ->  html      one file: charts (svg), their tables, how to read them
//! MapResult                ->  terminal, metrics, and top: live, on a whole screen
//!                                          |
//!                              units  every figure is formatted in one place
//!                              scale  axes and their ticks
//!                              flame  stacks that begin alike, as one tree
//!                              time_line  CPUs slice by slice
//!                              words, finding  the sentences both renderings share
//!                              file   whole or not at all
//! ```
//! The results are plain data from elsewhere, possibly from an edited file: this crate does not assume that they are
//! finite, ordered or short, and escapes all of their text for the terminal and the page. It measures nothing.

mod file;
mod finding;
mod flame;
mod hardware;
mod html;
mod json;
mod metrics;
mod scale;
mod svg;
mod terminal;
mod time_line;
pub mod top;
mod units;
mod words;

use std::path::Path;

use udpath_advise::result::BoostResult;
use udpath_advise::{MapResult, ProfileResult};
use udpath_load::result::LoadResult;
use udpath_profile::Profile;
use udpath_profile::difference::Difference;

pub use file::{WriteError, check_writable, write_whole};
pub use json::{Document, ReadError, parse, read, to_json};
pub use metrics::{Applied, MetricsFormat, MetricsOptions, map_metrics};
pub use terminal::Style;
pub use terminal::map::Extent;
pub use terminal::spread::SpreadTable;
pub use units::date;

/// The path of a datagram through a machine as text for a terminal: a line per hop, findings below.
#[must_use]
pub fn map_text(result: &MapResult, extent: Extent, style: &Style) -> String {
    terminal::map::text(result, extent, style)
}

/// The distribution of flows over queues, CPUs or sockets as text for a terminal: how concentrated it is, and a line
/// for each.
#[must_use]
pub fn spread_text(table: &SpreadTable<'_>, style: &Style) -> String {
    terminal::spread::text(table, *style)
}

/// A climb as text: a summary that fits on a screen of 40 lines, or all details.
#[must_use]
pub fn boost_text(result: &BoostResult, style: &Style, details: bool) -> String {
    terminal::boost::text(result, style, details)
}

/// A profile as text on at most this many lines, as far as its required parts fit. `None`: all of it.
#[must_use]
pub fn profile_text(result: &ProfileResult, style: &Style, lines: Option<usize>) -> String {
    terminal::profile::within(result, style, lines)
}

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

impl Render for Document {
    fn terminal(&self, style: &Style) -> String {
        match self {
            Self::Boost(result) => result.terminal(style),
            Self::Load(result) => result.terminal(style),
            Self::Profile(result) => result.terminal(style),
        }
    }

    fn html(&self) -> String {
        match self {
            Self::Boost(result) => result.html(),
            Self::Load(result) => result.html(),
            Self::Profile(result) => result.html(),
        }
    }

    fn json(&self) -> String {
        match self {
            Self::Boost(result) => result.json(),
            Self::Load(result) => result.json(),
            Self::Profile(result) => result.json(),
        }
    }
}

/// Writes the result's HTML to `path`, completely or not at all.
///
/// # Errors
/// See [`WriteError`]; an existing file at `path` is then unchanged.
pub fn write_html(path: &Path, result: &impl Render) -> Result<(), WriteError> {
    write_whole(path, result.html().as_bytes())
}
