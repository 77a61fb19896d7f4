//! `fleet report` of a thousand captures: time of the whole process, and its memory.
//!
//! ```text
//!   two captures of real and emulated machines ─▸ unpacked ─▸ 25 variants of each ─▸ 20 copies of each variant
//!                                                             another buffer limit, other CPUs for RPS
//! ```
//! Half of the captures have 20 CPUs and 25 queues, the other half 2 CPUs and a queue. The process waits for the reader
//! of its JSON, of which a pipe holds only 64 KiB: its peak memory is read then.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::bed::udpath;
use crate::claim::{Bound, Claim, Unit};
use crate::memory::peak_of;
use crate::results::Results;

/// Captures of a report.
const CAPTURES: usize = 1000;
/// Variants of each captured machine.
const VARIANTS: usize = 25;
/// Runs; the slowest counts, and the one that takes most memory.
const RUNS: usize = 3;
/// Most seconds, and most MiB.
const TIME: f64 = 10.0;
const MEMORY: f64 = 256.0;
/// More JSON than a pipe holds, bytes: with less, the program may end before its memory is read.
const LONG: usize = 65_536 + 4096;
/// The captured machines.
const MACHINES: [&str; 2] = ["emulated-20-cpus.tar.gz", "firecracker-2-cpus.tar.gz"];

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let udpath = udpath()?;
    let folder = tempfile::tempdir()?;
    let captures = folder.path().join("captures");
    fs::create_dir(&captures)?;
    let bytes = generate(folder.path(), &captures)?;
    let (mut slowest, mut most) = (0.0_f64, 0.0_f64);
    for _ in 0..RUNS {
        let (seconds, memory) = report(&udpath, &captures)?;
        (slowest, most) = (slowest.max(seconds), most.max(memory));
    }
    let detail = format!("{:.1} MiB of archives", bytes as f64 / f64::from(1 << 20));
    for (id, what, value, unit, bound) in [
        ("fleet.time", "fleet report of 1,000 captures", slowest, Unit::Seconds, TIME),
        ("fleet.memory", "memory of it", most, Unit::MebiBytes, MEMORY),
    ] {
        results.add(&Claim::new(id, what, value, unit, Bound::Below(bound)).with(detail.clone()));
    }
    Ok(())
}

/// Writes the captures, and returns their size.
fn generate(work: &Path, captures: &Path) -> Result<u64> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/host/tests/fixtures/captured");
    let copies = CAPTURES / (MACHINES.len() * VARIANTS);
    let mut bytes = 0;
    for (machine, name) in MACHINES.iter().enumerate() {
        let unpacked = work.join(name);
        fs::create_dir(&unpacked)?;
        tar(&["-xzf", &text(&fixtures.join(name))], &unpacked)?;
        for variant in 0..VARIANTS {
            vary(&unpacked, variant)?;
            let first = captures.join(format!("m{machine}-v{variant:02}-c00.tar.gz"));
            tar(&["-czf", &text(&first), "."], &unpacked)?;
            bytes += fs::metadata(&first)?.len() * copies as u64;
            for copy in 1..copies {
                fs::copy(&first, captures.join(format!("m{machine}-v{variant:02}-c{copy:02}.tar.gz")))?;
            }
        }
    }
    Ok(bytes)
}

/// Gives one variant in five another limit of buffers, and one in seven RPS.
fn vary(unpacked: &Path, variant: usize) -> Result<()> {
    let limit = if variant.is_multiple_of(5) { "8388608\n" } else { "212992\n" };
    fs::write(unpacked.join("now/proc/sys/net/core/rmem_max"), limit)?;
    let cpus = if variant.is_multiple_of(7) { "3\n" } else { "0\n" };
    let mut queues = 0;
    for interface in fs::read_dir(unpacked.join("now/sys/class/net"))? {
        let path = interface?.path().join("queues/rx-0/rps_cpus");
        if path.exists() {
            fs::write(path, cpus)?;
            queues += 1;
        }
    }
    ensure!(queues > 0, "{} has no queue with RPS", unpacked.display());
    Ok(())
}

fn tar(arguments: &[&str], folder: &Path) -> Result<()> {
    let status =
        Command::new("tar").args(arguments).current_dir(folder).status().context("cannot start tar")?;
    ensure!(status.success(), "tar {arguments:?}: {status}");
    Ok(())
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Seconds of a report, and its peak memory, MiB.
fn report(udpath: &str, captures: &Path) -> Result<(f64, f64)> {
    let begin = Instant::now();
    let mut child = Command::new(udpath)
        .args(["fleet", "report", &text(captures), "--json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start udpath fleet report")?;
    let mut stdout = child.stdout.take().context("stdout is piped")?;
    let mut json = vec![0];
    stdout.read_exact(&mut json).context("fleet report said nothing")?;
    let memory = peak_of(child.id());
    stdout.read_to_end(&mut json)?;
    let status = child.wait()?;
    let seconds = begin.elapsed().as_secs_f64();
    ensure!(status.success() && json.len() > LONG, "{status}, {} bytes", json.len());
    let result: Value = serde_json::from_slice(&json).context("fleet report printed no JSON")?;
    let machines = result["machines"].as_array().map_or(0, Vec::len);
    ensure!(machines == CAPTURES, "{machines} of {CAPTURES} captures were read");
    Ok((seconds, memory?))
}
