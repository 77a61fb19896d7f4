//! The runs of a history by series, and where one metric of each changed.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use udpath_advise::comparison::{Pair, origins};
use udpath_advise::result::{Ratio, Verdict};
use udpath_advise::statistics::SMALLEST_EFFECT;
use udpath_advise::statistics::unpaired::{Figure, Unpaired};

use crate::changes::changes;
use crate::run::Run;

/// Version of the JSON form of [`Listing`].
pub const SCHEMA: &str = "udpath.history/1";

/// Most runs of a series that are searched for changes, the newest. Higher: the search, which takes time in the square
/// of it, takes seconds. Lower: changes of last year are forgotten.
pub const MAX_ANALYSED: usize = 200;

/// What is searched for changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// Transactions per second.
    Tps,
    /// 99th percentile of latency.
    P99,
    /// CPU time per transaction.
    Cpu,
}

impl Metric {
    /// All metrics.
    pub const ALL: [Self; 3] = [Self::Tps, Self::P99, Self::Cpu];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tps => "tps",
            Self::P99 => "p99",
            Self::Cpu => "cpu",
        }
    }

    /// Its value in a run; none if it has none, or 0.
    #[must_use]
    pub fn of(self, run: &Run) -> Option<f64> {
        let value = match self {
            Self::Tps => run.tps,
            Self::P99 => run.p99,
            Self::Cpu => run.cpu,
        };
        value.filter(|value| value.is_finite() && *value > 0.0)
    }

    /// Whether a ratio above 1 is better.
    const fn verdict(self, ratio: f64) -> Verdict {
        match (ratio > 1.0, self) {
            (true, Self::Tps) | (false, Self::P99 | Self::Cpu) => Verdict::Better,
            _ => Verdict::Worse,
        }
    }
}

/// The series of a history.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Listing {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// The metric whose changes are listed.
    pub metric: Metric,
    /// The series, the one with the newest run first.
    pub series: Vec<Series>,
}

/// Runs of one load on one machine.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Series {
    /// `boost`, `load` or `profile`.
    pub kind: String,
    /// The name that its runs were given.
    pub name: String,
    /// The load, in words.
    pub load: String,
    /// The machine's identity: see `Origin::machine`.
    pub machine: String,
    /// Its CPU model.
    pub cpu_model: String,
    /// Its online CPUs.
    pub cpus: u32,
    /// The runs, oldest first.
    pub runs: Vec<Run>,
    /// Where the metric changed, oldest first. Of a long series, only its newest [`MAX_ANALYSED`] runs are searched.
    pub shifts: Vec<Shift>,
}

/// A change of level between two runs.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Shift {
    /// The last run of the level before.
    pub before: i64,
    /// When that ended, seconds since 1970.
    pub from: u64,
    /// The first run of the new level.
    pub after: i64,
    /// When that ended.
    pub to: u64,
    /// The new level over the one before, with its 95 % interval.
    pub ratio: Ratio,
    /// Probability that chance alone orders the runs so.
    pub p: f64,
    /// Better or worse.
    pub verdict: Verdict,
    /// What changed in kernel, version and settings between the two runs.
    pub differs: Vec<Pair>,
}

impl Listing {
    /// Groups runs, oldest first, and searches each series.
    #[must_use]
    pub fn new(runs: Vec<Run>, metric: Metric) -> Self {
        let mut groups: BTreeMap<_, Vec<Run>> = BTreeMap::new();
        for run in runs {
            let origin = &run.origin;
            let machine = (origin.machine.clone(), origin.cpu_model.clone(), origin.cpus);
            groups
                .entry((run.kind.clone(), run.name.clone(), run.load.clone(), machine))
                .or_default()
                .push(run);
        }
        let mut series: Vec<Series> = groups
            .into_iter()
            .map(|((kind, name, load, (machine, cpu_model, cpus)), runs)| Series {
                shifts: shifts(&runs, metric),
                kind,
                name,
                load,
                machine,
                cpu_model,
                cpus,
                runs,
            })
            .collect();
        series.sort_by_key(|series| std::cmp::Reverse(series.runs.last().map(|run| (run.origin.at, run.id))));
        Self { schema: SCHEMA.into(), metric, series }
    }
}

/// Where a metric of these runs changed.
fn shifts(runs: &[Run], metric: Metric) -> Vec<Shift> {
    let measured: Vec<(&Run, f64)> = runs.iter().filter_map(|run| Some((run, metric.of(run)?))).collect();
    let measured = &measured[measured.len().saturating_sub(MAX_ANALYSED)..];
    // Levels are compared as ratios, so their distance is that of logarithms.
    let logs: Vec<f64> = measured.iter().map(|(_, value)| value.ln()).collect();
    let found = changes(&logs);
    let ends = found.iter().skip(1).map(|change| change.at).chain([measured.len()]);
    let starts = std::iter::once(0).chain(found.iter().map(|change| change.at));
    let level =
        |runs: &[(&Run, f64)]| Figure::of_samples(&runs.iter().map(|(_, value)| *value).collect::<Vec<_>>());
    found
        .iter()
        .zip(starts.zip(ends))
        .filter_map(|(change, (start, end))| {
            let (left, right) = (measured.get(start..change.at)?, measured.get(change.at..end)?);
            let ratio = Unpaired::new(level(left)?, level(right)?).interval();
            let ((before, _), (after, _)) = (left.last()?, right.first()?);
            Some(Shift {
                before: before.id,
                from: before.origin.at,
                after: after.id,
                to: after.origin.at,
                ratio,
                p: change.p,
                verdict: metric.verdict(ratio.ratio),
                differs: origins(&before.origin, &after.origin),
            })
        })
        // Two builds of the same code differ by as much.
        .filter(|shift| shift.ratio.ratio.ln().abs() >= SMALLEST_EFFECT)
        .collect()
}

#[cfg(test)]
mod tests {
    use udpath_load::origin::Origin;

    use super::*;

    fn run(id: i64, tps: f64, kernel: &str, machine: &str) -> Run {
        let origin = Origin {
            at: 1_000 * u64::try_from(id).unwrap(),
            kernel: kernel.into(),
            machine: machine.into(),
            ..Origin::default()
        };
        let load = "echo rr".to_owned();
        Run {
            id,
            kind: "load".into(),
            name: String::new(),
            load,
            origin,
            tps: Some(tps),
            p99: None,
            cpu: Some(1e9 / tps),
        }
    }

    fn wobble(id: i64) -> f64 {
        [1.0, 1.004, 0.997, 1.001, 0.995, 1.003][usize::try_from(id).unwrap() % 6]
    }

    #[test]
    fn a_change_is_listed_with_what_changed_beside_it() {
        let runs: Vec<Run> = (1..=20)
            .map(|id| match id {
                ..=10 => run(id, 1e5 * wobble(id), "6.1", "m"),
                _ => run(id, 0.9e5 * wobble(id), "6.2", "m"),
            })
            .collect();
        let listing = Listing::new(runs.clone(), Metric::Tps);
        let [series] = &listing.series[..] else { panic!("{listing:?}") };
        let [shift] = &series.shifts[..] else { panic!("{:?}", series.shifts) };
        assert_eq!((shift.before, shift.from, shift.after, shift.to), (10, 10_000, 11, 11_000));
        assert!(
            shift.ratio.low < 0.9 && shift.ratio.high > 0.9 && shift.ratio.high < 0.92,
            "{:?}",
            shift.ratio
        );
        assert_eq!((shift.verdict, shift.p), (Verdict::Worse, 0.001));
        assert_eq!(shift.differs, [Pair { what: "kernel".into(), a: "6.1".into(), b: "6.2".into() }]);
        // The same runs cost more CPU time each.
        let cpu = &Listing::new(runs.clone(), Metric::Cpu).series[0].shifts;
        assert_eq!((cpu.len(), cpu[0].verdict), (1, Verdict::Worse));
        assert_eq!(Listing::new(runs, Metric::P99).series[0].shifts, []);
    }

    #[test]
    fn machines_and_loads_are_series_of_their_own() {
        let mut runs = vec![run(1, 1e5, "6.1", "a"), run(2, 2e5, "6.1", "b"), run(3, 1e5, "6.2", "a")];
        runs.push(Run { name: "nsd".into(), ..run(4, 1e5, "6.1", "a") });
        let listing = Listing::new(runs, Metric::Tps);
        let ids = |series: &Series| series.runs.iter().map(|run| run.id).collect::<Vec<_>>();
        assert_eq!(listing.series.iter().map(ids).collect::<Vec<_>>(), [vec![4], vec![1, 3], vec![2]]);
    }

    #[test]
    fn differences_too_small_for_a_reader_are_left_out() {
        let level = |id: i64| if id <= 20 { 1e5 } else { 1.003e5 };
        let runs = (1..=40).map(|id| run(id, level(id) * (1.0 + 1e-5 * wobble(id)), "6.1", "m")).collect();
        assert_eq!(Listing::new(runs, Metric::Tps).series[0].shifts, []);
    }

    #[test]
    fn of_a_long_series_the_newest_runs_are_searched() {
        let level = |id: i64| if id <= 100 { 1e5 } else { 2e5 };
        let runs: Vec<Run> = (1..=350).map(|id| run(id, level(id) * wobble(id), "6.1", "m")).collect();
        assert_eq!(Listing::new(runs.clone(), Metric::Tps).series[0].shifts, []);
        assert_eq!(Listing::new(runs[..250].to_vec(), Metric::Tps).series[0].shifts[0].after, 101);
    }
}
