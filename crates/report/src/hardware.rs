//! Hardware counters as a table, for the terminal and the page.

use udpath_profile::Profile;
use udpath_profile::perf::Counter;
use udpath_profile::profile::{Hardware, HardwareCounts};

use crate::units;

/// A table of text.
pub(crate) struct Counters {
    /// The divisor of the counts.
    pub(crate) unit: &'static str,
    /// Headings of the columns.
    pub(crate) headings: Vec<&'static str>,
    /// A name and its figures; the first row is the total of all classes.
    pub(crate) rows: Vec<(&'static str, Vec<String>)>,
}

/// The counters of a profile; `None` if the machine has none.
pub(crate) fn counters(profile: &Profile) -> Option<Counters> {
    let hardware = profile.hardware.as_ref().filter(|hardware| !hardware.all.0.is_empty())?;
    let per_datagram = profile.per_datagram(1);
    let unit = if per_datagram.is_some() { "per datagram" } else { "per second" };
    let scale = per_datagram.unwrap_or_else(|| 1.0 / profile.seconds.max(1e-9));
    let columns: Vec<Column> = COLUMNS.into_iter().filter(|column| (column.there)(hardware)).collect();
    let figures = |counts: &HardwareCounts| -> Vec<String> {
        let figure =
            |column: &Column| (column.figure)(counts, scale).unwrap_or_else(|| units::NONE.to_owned());
        columns.iter().map(figure).collect()
    };
    let mut rows = vec![("all", figures(&hardware.all))];
    rows.extend(hardware.classes.iter().map(|class| (class.of.title(), figures(&class.counts))));
    Some(Counters { unit, headings: columns.iter().map(|column| column.heading).collect(), rows })
}

struct Column {
    heading: &'static str,
    /// Does the machine have the counters needed?
    there: fn(&Hardware) -> bool,
    /// The figure for some counts, each multiplied by the scale.
    figure: fn(&HardwareCounts, f64) -> Option<String>,
}

/// A counter as it is, with three digits like a rate: a datagram costs thousands of cycles, and tenths of a cache miss.
macro_rules! counted {
    ($heading:literal, $counter:ident) => {
        Column {
            heading: $heading,
            there: |hardware| has(hardware, Counter::$counter),
            figure: |counts, scale| Some(units::tps(counts.of(Counter::$counter)? as f64 * scale)),
        }
    };
}

const COLUMNS: [Column; 5] = [
    counted!("cycles", Cycles),
    counted!("instructions", Instructions),
    Column {
        heading: "IPC",
        there: |hardware| has(hardware, Counter::Instructions) && has(hardware, Counter::Cycles),
        figure: |counts, _| counts.ipc().map(|ipc| format!("{ipc:.2}")),
    },
    counted!("cache misses", CacheMisses),
    Column {
        heading: "remote loads",
        there: |hardware| has(hardware, Counter::RemoteLoads) && has(hardware, Counter::LoadMisses),
        figure: |counts, _| counts.remote().map(units::share_in_column),
    },
];

fn has(hardware: &Hardware, counter: Counter) -> bool {
    hardware.all.of(counter).is_some()
}
