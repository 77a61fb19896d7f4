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
//! The results are plain data from elsewhere, perhaps from a file that somebody edited: nothing here trusts them to be
//! finite, ordered or short, and no text of theirs reaches a terminal or a page unescaped. Nothing here measures.

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

/// The path of a datagram through a machine as text for a terminal: a line per link, findings below.
#[must_use]
pub fn map_text(result: &MapResult, extent: Extent, style: &Style) -> String {
    terminal::map::text(result, extent, style)
}

/// How flows spread over queues, CPUs or sockets, as text for a terminal: how few take most, and a line for each.
#[must_use]
pub fn spread_text(table: &SpreadTable<'_>, style: &Style) -> String {
    terminal::spread::text(table, *style)
}

/// A climb as text: a summary that fits a screen of 40 lines, or with all details.
#[must_use]
pub fn boost_text(result: &BoostResult, style: &Style, details: bool) -> String {
    terminal::boost::text(result, style, details)
}

/// A profile as text on so many lines at the most, as far as what it has to say allows: a screen. None: all of it.
#[must_use]
pub fn profile_text(result: &ProfileResult, style: &Style, lines: Option<usize>) -> String {
    terminal::profile::within(result, style, lines)
}

/// A result that can be shown.
pub trait Render {
    /// Text for a terminal, each line ended, none wider than `style` says as far as the names in it allow.
    fn terminal(&self, style: &Style) -> String;

    /// One HTML document that needs nothing but itself.
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

/// Two profiles, to be shown as their difference.
#[derive(Debug, Clone, Copy)]
pub struct Compared<'a> {
    /// The first.
    pub a: &'a Profile,
    /// The second, which the picture shows.
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

/// Writes the result's HTML to `path`, whole or not at all.
///
/// # Errors
/// See [`WriteError`]; whatever stood at `path` before still does.
pub fn write_html(path: &Path, result: &impl Render) -> Result<(), WriteError> {
    write_whole(path, result.html().as_bytes())
}
