//! Memory of `serve` and `load` at a requested rate of a million transactions per second.

use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::Claim;
use crate::bed::{Bed, udpath};

/// Length of the run, and the time after which nothing may grow any more.
const RUN: Duration = Duration::from_secs(60);
const SETTLED: Duration = Duration::from_secs(20);
/// Most memory, MiB.
const SERVE: f64 = 32.0;
const LOAD: f64 = 64.0;
/// Growth that is reported once memory has settled, MiB: less is rounding in the allocator and the kernel.
const GROWTH: f64 = 1.0;

pub(crate) fn run() -> Result<Vec<Claim>> {
    let bed = Bed::new(false)?;
    let udpath = udpath()?;
    let target = bed.server(7300)?.to_string();
    let server =
        bed.serve(&udpath, &["serve", "echo", "--io", "reuseport", "--bind", &target, "--workers", "2"])?;
    let mut command = bed.lab.machine("client")?.command(&udpath);
    let run = format!("{}s", RUN.as_secs());
    command
        .args([
            "load",
            "echo",
            &target,
            "--flows",
            "64",
            "--threads",
            "2",
            "--rate",
            "1M",
            "-d",
            &run,
            "--json",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut load = bed.lab.spawn(command)?;
    let begin = Instant::now();
    let (mut serve_then, mut load_then) = (0.0, 0.0);
    let (mut serve_most, mut load_most) = (0.0_f64, 0.0_f64);
    // When the load ends, it writes its result; the memory for that does not count.
    while begin.elapsed() < RUN - Duration::from_secs(1) {
        thread::sleep(Duration::from_millis(500));
        let (of_serve, of_load) = (resident(server.pid())?, resident(load.id())?);
        if begin.elapsed() < SETTLED {
            (serve_then, load_then) = (of_serve, of_load);
        }
        serve_most = serve_most.max(of_serve);
        load_most = load_most.max(of_load);
    }
    let _ = load.wait();
    let claim = |who: &str, most: f64, then: f64, bound: f64| Claim {
        what: format!("memory of {who} at a million transactions/s asked for"),
        measured: format!("{most:.1} MiB, grew {:.1} MiB", most - then),
        bound: format!("< {bound} MiB"),
        holds: most < bound && most - then < GROWTH,
    };
    Ok(vec![claim("serve", serve_most, serve_then, SERVE), claim("load", load_most, load_then, LOAD)])
}

/// Resident memory, MiB.
fn resident(pid: u32) -> Result<f64> {
    status(&pid.to_string(), "VmRSS:")
}

/// Peak resident memory of this process, MiB.
pub(crate) fn peak() -> Result<f64> {
    status("self", "VmHWM:")
}

/// The same of another process.
pub(crate) fn peak_of(pid: u32) -> Result<f64> {
    status(&pid.to_string(), "VmHWM:")
}

fn status(pid: &str, key: &str) -> Result<f64> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}: did it end?"))?;
    let kib: f64 = status
        .lines()
        .find_map(|line| line.strip_prefix(key)?.trim().strip_suffix(" kB")?.parse().ok())
        .with_context(|| format!("{path} has no {key}"))?;
    Ok(kib / 1024.0)
}
