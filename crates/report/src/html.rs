//! One self-contained page: no external scripts, fonts or images. Pages with a flame graph have one script of their
//! own, and are complete without it. The templates are checked at compile time and escape every text; the charts, drawn
//! in [`crate::svg`], escape theirs.
//!
//! ```text
//! page.html   head, policy, style, what it comes to, figures     filled from Head
//!    └─ boost.html  load.html  profile.html  difference.html  compare.html  machines.html  experiment.html     a struct each, in the file of that name
//!         parts: tables, notice, flame, change, traces           macros; what fills them stands in the file of that name
//! ```

pub(crate) mod boost;
mod change;
pub(crate) mod compare;
pub(crate) mod difference;
pub(crate) mod experiment;
mod flame;
pub(crate) mod load;
pub(crate) mod machines;
pub(crate) mod profile;
mod profiles;
mod traces;

use udpath_host::visible;
use udpath_load::cpu::CpuUse;
use udpath_load::result::Latency;

use crate::svg::cpus::shares;
use crate::units;

/// The beginning of every page.
struct Head<'a> {
    /// The version that rendered it.
    version: &'a str,
    title: String,
    /// The line above the headline: the verb, the subject, the time.
    kind: String,
    headline: String,
    lead: String,
    figures: Vec<Figure>,
    /// The page has flame graphs: their style and script are included, and the policy allows that script.
    flames: bool,
}

impl Head<'_> {
    const fn script(&self) -> &'static str {
        flame::SCRIPT
    }

    const fn script_hash(&self) -> &'static str {
        flame::SCRIPT_HASH
    }
}

/// A figure in a box of its own.
struct Figure {
    what: &'static str,
    value: String,
    note: String,
}

/// A row of the table of CPU time.
struct CpuRow {
    /// Starts a new rung.
    begins: bool,
    name: String,
    cpu: u32,
    shares: [String; 6],
}

fn cpu_rows<'a>(groups: impl Iterator<Item = (&'a str, &'a [CpuUse])>) -> Vec<CpuRow> {
    groups
        .flat_map(|(name, cpus)| {
            cpus.iter().enumerate().map(move |(i, used)| CpuRow {
                begins: i == 0,
                name: name.to_owned(),
                cpu: used.cpu,
                shares: shares(used).map(units::share_in_column),
            })
        })
        .collect()
}

/// A row of the table of latencies.
struct LatencyRow {
    best: bool,
    name: String,
    figures: Vec<String>,
}

fn latency_row(name: &str, best: bool, l: &Latency) -> LatencyRow {
    let times = [l.min as f64, l.mean, l.p50 as f64, l.p90 as f64, l.p99 as f64, l.p99_9 as f64]
        .into_iter()
        .chain([l.p99_99 as f64, l.max as f64]);
    let figures = [units::count(l.count)].into_iter().chain(times.map(units::time)).collect();
    LatencyRow { best, name: name.to_owned(), figures }
}

/// Renders a template. Writing to a string cannot fail, and neither can the filters in use; if rendering ever fails,
/// the page contains the error instead of being empty.
fn rendered(template: &impl askama::Template) -> String {
    let mut page = template.render().unwrap_or_else(|e| {
        format!("<!DOCTYPE html>\n<html><title>udpath</title><p>cannot render the report: {e}</p></html>\n")
    });
    if !page.ends_with('\n') {
        page.push('\n');
    }
    // The templates escape HTML; characters that reorder text are removed here.
    if page.contains(|c| c != '\n' && visible::drives(c)) {
        return page.chars().filter(|c| *c == '\n' || !visible::drives(*c)).collect();
    }
    page
}
