//! `udpath capacity`: what a machine would carry, in each configuration; what limits it, and what would help.
//!
//! ```text
//!  description: this machine, a capture, a file ─┐  --set
//!  costs: a file, a profile, a calibration now ──┴▸ within the calibration, or --extrapolate? ─▸ predictions ─▸ text or JSON
//! ```
//! It changes nothing. A calibration runs in a lab, which is gone afterwards; only `--calibrate` writes a file.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use udpath_advise::calibration::{Calibrated, CalibrationConfig, calibrate};
use udpath_advise::{costs_of, describe};
use udpath_host::Snapshot;
use udpath_model::description::{MAX_TOML_LEN, keys};
use udpath_model::{Costs, Description, Effort, PredictError, beyond, capacity, sweep};
use udpath_protocols::echo::EchoLoad;
use udpath_report::{
    Document, calibration_text, capacity_text, read_input, read_with_text, to_json, to_pretty_json,
    write_whole,
};

use super::machine;
use crate::args::capacity::{Args, COSTS, SweepRange};
use crate::exit::{Done, Failure};
use crate::signals::{self, Left};
use crate::terminal::{self, StatusLine};

/// Largest file of costs, bytes: it has some thirty numbers.
const LARGEST_COSTS: u64 = 64 * 1024;
/// Simulated for each configuration, and for each point of a sweep, which there are many of.
const EFFORT: Effort = Effort { seed: 1, runs: 2, warm_up_ms: 10, window_ms: 30 };
const SWEEP_EFFORT: Effort = Effort { seed: 1, runs: 1, warm_up_ms: 10, window_ms: 20 };

/// Predicts, or calibrates.
pub(crate) fn run(args: &Args) -> Done {
    if args.set.iter().any(|set| set == "help") {
        return terminal::print(&(keys().join("\n") + "\n"));
    }
    if args.calibrate {
        return calibrated(args);
    }
    let (source, described) = described(args)?;
    let description = args.set.iter().try_fold(described, |description, set| {
        description.with(set).map_err(|error| Failure::Usage(format!("--set: {error}")))
    })?;
    description.check().map_err(|error| wrong(&source, error.into()))?;
    let points = args.sweep.as_ref().map(|range| points(&description, range)).transpose()?;
    let costs = costs(args, &description)?;
    if !args.extrapolate {
        within(&description, points.as_deref(), &costs)?;
    }
    let mut answer =
        capacity(&source, &description, &costs, &EFFORT).map_err(|error| wrong(&source, error))?;
    if let (Some(range), Some(points)) = (&args.sweep, &points) {
        let swept = sweep(&range.key, points, &costs, &SWEEP_EFFORT);
        answer.sweep = Some(swept.map_err(|(value, error)| {
            Failure::Usage(format!("--sweep {}: at {value}: {error}", range.key))
        })?);
    }
    let text = if args.json { to_json(&answer) } else { capacity_text(&answer, &terminal::style()) };
    terminal::print(&text)
}

/// An error of the model: the user's, in a file or an argument.
fn wrong(source: &str, error: PredictError) -> Failure {
    Failure::Usage(format!("{source}: {error}"))
}

/// The description, and where it comes from.
fn described(args: &Args) -> Result<(String, Description), Failure> {
    if let Some(path) = &args.file {
        let (name, bytes) = read_input(path, MAX_TOML_LEN as u64)?;
        let text = String::from_utf8(bytes).map_err(|_| Failure::Usage(format!("{name} is not text")))?;
        let read =
            Description::from_toml(&text).map_err(|error| Failure::Usage(format!("{name}: {error}")))?;
        return Ok((name, read));
    }
    if args.place.is_captured() && args.profile.is_none() && args.costs.is_none() {
        return Err(Failure::Usage(
            "a capture has no profile, so what a transaction costs there is unknown: add --profile FILE.json (udpath \
             profile --json on that machine under load), or --costs FILE.json (udpath capacity --calibrate there)"
                .into(),
        ));
    }
    let interface = args.interface.as_deref();
    let described = machine::look(&args.place, |source| describe(&Snapshot::read(source), interface))?;
    let source = match &args.place.sysroot {
        Some(path) => format!("the machine captured in {}", path.display()),
        None => "this machine".to_owned(),
    };
    described.map(|description| (source, description)).map_err(Failure::usage)
}

/// The description at each point of a sweep. Cores take along what is there for each of them.
fn points(description: &Description, range: &SweepRange) -> Result<Vec<(f64, Description)>, Failure> {
    let point = |value: &f64| {
        let there = match range.key.as_str() {
            "cores" => Ok(description.with_cores(*value as usize)),
            key => description.with(&format!("{key}={value}")),
        };
        let there = there.map_err(|error| Failure::Usage(format!("--sweep: {error}")))?;
        let checked = there.check();
        checked.map_err(|error| Failure::Usage(format!("--sweep {}: at {value}: {error}", range.key)))?;
        Ok((*value, there))
    };
    range.values.iter().map(point).collect()
}

/// Refuses what goes beyond the calibration.
fn within(description: &Description, points: Option<&[(f64, Description)]>, costs: &Costs) -> Done {
    let all = points.unwrap_or_default().iter().map(|(_, point)| point).chain([description]);
    // The farthest point says it for all.
    let farthest = all.max_by_key(|point| beyond(point, costs).len());
    let beyond = farthest.map(|point| beyond(point, costs)).unwrap_or_default();
    let refused: Vec<String> =
        beyond.iter().filter(|it| it.must_be_asked_for()).map(ToString::to_string).collect();
    if refused.is_empty() {
        return Ok(());
    }
    Err(anyhow!(
        "this goes beyond the calibration ({}): {}; add --extrapolate for an estimate, or use --costs of a machine like it",
        costs.machine,
        refused.join("; ")
    )
    .into())
}

/// The costs: of a profile, of a file, or measured now.
fn costs(args: &Args, description: &Description) -> Result<Costs, Failure> {
    let base = costs_in(args.costs.as_deref())?;
    if let Some(path) = &args.profile {
        let (document, _) = read_with_text(path)?;
        let Document::Profile(result) = document else {
            let what = format!("{} is a result of udpath {}", path.display(), document.verb());
            return Err(Failure::Usage(format!("--profile: {what}: expected one of udpath profile --json")));
        };
        return costs_of(&result.profile, description, &base.unwrap_or_default())
            .map_err(|error| Failure::Usage(format!("--profile {}: {error}", path.display())));
    }
    if let Some(costs) = base {
        return Ok(costs);
    }
    if udpath_lab::missing().is_empty() {
        return measured_costs();
    }
    stderrln!(
        "not root, so this machine cannot be calibrated: costs of {}; use --costs FILE.json",
        Costs::default().machine
    );
    Ok(Costs::default())
}

/// The costs in a file: this one, or the one that `--calibrate` writes if it exists.
pub(super) fn costs_in(file: Option<&Path>) -> Result<Option<Costs>, Failure> {
    let saved = || Some(Path::new(COSTS)).filter(|path| path.is_file());
    file.or_else(saved).map(read_costs).transpose()
}

/// This machine's costs, measured now.
pub(super) fn measured_costs() -> Result<Costs, Failure> {
    Ok(measured()?.costs)
}

fn read_costs(path: &Path) -> Result<Costs, Failure> {
    let (name, bytes) = read_input(path, LARGEST_COSTS)?;
    let read: Costs = serde_json::from_slice(&bytes).map_err(|error| {
        Failure::Usage(format!(
            "{name} has no costs (expected {{\"schema\":\"udpath.costs/1\"...}}): {error}"
        ))
    })?;
    read.check().map_err(|error| Failure::Usage(format!("{name}: {error}")))?;
    Ok(read)
}

/// The costs that a calibration of this machine has left, if they can be read.
pub(super) fn saved_costs() -> Option<Costs> {
    costs_in(None).ok().flatten()
}

/// Measures this machine's costs.
fn measured() -> Result<Calibrated, Failure> {
    let stop = signals::watch(Left::Labs)?.flag();
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut line = StatusLine::new();
    let done = calibrate(
        &CalibrationConfig::new(program),
        &EchoLoad::new(0),
        &mut |step| line.show(&format!("calibrating: {step}")),
        stop,
    );
    line.clear();
    Ok(done?)
}

/// Measures and writes this machine's costs.
fn calibrated(args: &Args) -> Done {
    let path = args.costs.clone().unwrap_or_else(|| PathBuf::from(COSTS));
    if let Some(folder) = path.parent().filter(|folder| args.costs.is_none() && !folder.exists()) {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    udpath_report::check_writable(&path)?;
    let found = measured()?;
    write_whole(&path, to_pretty_json(&found.costs).as_bytes())?;
    if args.json {
        return terminal::print(&to_json(&found.costs));
    }
    terminal::print(&calibration_text(&found, &terminal::style()))?;
    stderrln!("wrote {}", path.display());
    Ok(())
}
