//! Arguments of `udpath capacity`.

use std::path::PathBuf;
use std::str::FromStr;

use super::place::PlaceArgs;

/// Where `--calibrate` writes, and where costs are read if no file is given.
pub(crate) const COSTS: &str = "/var/lib/udpath/costs.json";

/// Arguments of `udpath capacity`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A description of a machine, its service and its load, as TOML [default: this machine, with the service that has
    /// the most sockets]
    #[arg(value_name = "FILE.toml", conflicts_with_all = ["sysroot", "netns", "pid", "interface"])]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// The interface that the packets arrive at [default: the one that received most]
    #[arg(long, value_name = "IFACE")]
    pub(crate) interface: Option<String>,
    /// Change a value of the description; may be repeated. --set help lists the keys
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Predict along a value of the description, such as cores=1..64 or batch=1,8,32
    #[arg(long, value_name = "KEY=RANGE")]
    pub(crate) sweep: Option<SweepRange>,
    /// Costs, as --calibrate writes them [default: /var/lib/udpath/costs.json if it exists, otherwise a calibration
    /// now]
    #[arg(long, value_name = "FILE.json")]
    pub(crate) costs: Option<PathBuf>,
    /// Take the costs of a transaction from this profile of the described machine under load (`udpath profile --json`)
    #[arg(long, value_name = "FILE.json", conflicts_with = "calibrate")]
    pub(crate) profile: Option<PathBuf>,
    /// Measure the costs of this machine in a lab, about a minute on an otherwise idle machine, and write them; needs
    /// root
    #[arg(long, conflicts_with_all = ["file", "sysroot", "set", "sweep", "extrapolate"])]
    pub(crate) calibrate: bool,
    /// Predict also beyond what the costs were calibrated on
    #[arg(long)]
    pub(crate) extrapolate: bool,
    /// Print one JSON document (udpath.capacity/1; with --calibrate udpath.costs/1)
    #[arg(long)]
    pub(crate) json: bool,
}

/// A key, and the values that it takes in turn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SweepRange {
    pub(crate) key: String,
    pub(crate) values: Vec<f64>,
}

/// Most points of a sweep. More: minutes of simulation, for a plot of some seventy columns.
const MOST_POINTS: usize = 33;

impl FromStr for SweepRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "invalid sweep {text:?}: expected KEY=FIRST..LAST with FIRST below LAST, or KEY=VALUE,VALUE,..."
            )
        };
        let (key, range) = text.split_once('=').ok_or_else(wrong)?;
        let number = |text: &str| {
            let value: f64 = text.trim().parse().map_err(|_| wrong())?;
            if value.is_finite() { Ok(value) } else { Err(wrong()) }
        };
        let values = match range.split_once("..") {
            Some((first, last)) => between(number(first)?, number(last)?).ok_or_else(wrong)?,
            None => range.split(',').map(number).collect::<Result<Vec<f64>, _>>()?,
        };
        match values.len() {
            2..=MOST_POINTS => Ok(Self { key: key.trim().to_owned(), values }),
            0 | 1 => Err(wrong()),
            many => Err(format!("a sweep of {many} values is too long: at most {MOST_POINTS}")),
        }
    }
}

/// Whole numbers from first to last, each, or as many as a sweep may have, evenly spaced. `None` if there are none.
fn between(first: f64, last: f64) -> Option<Vec<f64>> {
    let (first, last) = (first.ceil(), last.floor());
    if first >= last {
        return None;
    }
    let steps = (last - first).min((MOST_POINTS - 1) as f64);
    let mut values: Vec<f64> =
        (0..=steps as usize).map(|step| (first + (last - first) * step as f64 / steps).round()).collect();
    values.dedup();
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_lists() {
        let values = |text: &str| text.parse::<SweepRange>().map(|sweep| sweep.values);
        assert_eq!(values("cores=1..4"), Ok(vec![1.0, 2.0, 3.0, 4.0]));
        assert_eq!(values("batch=1,8,32"), Ok(vec![1.0, 8.0, 32.0]));
        let many = values("cores=1..64").unwrap();
        assert_eq!((many.len(), many[0], many[32]), (33, 1.0, 64.0));
        for wrong in ["cores", "cores=4..4", "cores=4..1", "cores=a..b", "cores=1", "cores=1..inf", "cores="]
        {
            assert!(values(wrong).unwrap_err().contains("expected KEY=FIRST..LAST"), "{wrong}");
        }
        let long = format!("rate={}", vec!["1"; 40].join(","));
        assert!(values(&long).unwrap_err().contains("a sweep of 40 values is too long"));
    }
}
