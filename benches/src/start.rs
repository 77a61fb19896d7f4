//! What starting the program costs: `udpath --version`, from its start to its exit, beside a program that does nothing
//! (`true`), started in turn with it. Everything that uses the program from a script pays this once per call.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::bed::udpath;
use crate::claim::{Bound, Claim, Unit};
use crate::race::quantile;
use crate::results::Results;

/// Starts of each; the median counts. Fewer: one wake-up of something else moves it; more take longer and change
/// nothing.
const RUNS: usize = 101;
/// Longest start, milliseconds.
const MOST: f64 = 20.0;

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let udpath = udpath()?;
    let (mut ours, mut nothing) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        ours.push(start(&udpath, &["--version"])?);
        nothing.push(start("true", &[])?);
    }
    let at = |share| quantile(ours.clone(), share);
    let what = "udpath --version, from its start to its exit";
    let claim = Claim::new("start.version", what, at(0.5), Unit::Milliseconds, Bound::Below(MOST));
    let detail = format!("true takes {:.2} ms", quantile(nothing, 0.5));
    results.add(&claim.within(at(0.1), at(0.9)).with(detail));
    Ok(())
}

/// Milliseconds from the start of a program to its exit.
fn start(program: &str, arguments: &[&str]) -> Result<f64> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
    let begin = Instant::now();
    let status = command.status().with_context(|| format!("cannot start {program}"))?;
    let took = begin.elapsed().as_secs_f64() * 1e3;
    ensure!(status.success(), "{program} {} failed: {status}", arguments.join(" "));
    Ok(took)
}
