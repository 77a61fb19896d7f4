//! Memory of `serve` and `load` at a million transactions per second.
//!
//! The claim is about that rate, so a run that does not complete it misses its bounds, whatever its memory. Frames past
//! the kernel's stack reach it on two cores that also send the load; kernel sockets do not, and are shown at the rate
//! that they reach.

use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::bed::{Bed, udpath};
use crate::claim::{Bound, Claim, Unit};
use crate::results::Results;

/// Length of a run, and the time after which nothing may grow any more.
const RUN: Duration = Duration::from_secs(60);
const SETTLED: Duration = Duration::from_secs(20);
/// Transactions per second that must complete, and the rate that is requested: slightly above, so that the last
/// requests of the run, which are still open, do not count against it.
const RATE: f64 = 1e6;
const REQUESTED: &str = "1050k";
/// Most memory, MiB.
const SERVE: f64 = 32.0;
const LOAD: f64 = 64.0;
/// Growth that is reported once memory has settled, MiB: less is rounding in the allocator and the kernel.
const GROWTH: f64 = 1.0;

/// Memory of one process during a run, MiB.
#[derive(Default, Clone, Copy)]
struct Memory {
    settled: f64,
    most: f64,
}

impl Memory {
    fn note(&mut self, now: f64, settled: bool) {
        if !settled {
            self.settled = now;
        }
        self.most = self.most.max(now);
    }

    fn grown(self) -> f64 {
        self.most - self.settled
    }
}

pub(crate) fn run(results: &mut Results) -> Result<()> {
    for (io, engine, judged) in [("xdp", "xdp", true), ("reuseport", "socket", false)] {
        let (serve, load, tps) = loaded(io, engine)?;
        let rate = format!("{:.2} M transactions/s", tps / 1e6);
        for (who, mode, memory, most) in [("serve", io, serve, SERVE), ("load", engine, load, LOAD)] {
            let bound = if judged { Bound::Below(most) } else { Bound::Shown };
            let option = if who == "serve" { "io" } else { "engine" };
            let what = format!("memory of {who} --{option} {mode} at a million transactions/s");
            let claim =
                Claim::new(&format!("memory.{who}.{mode}"), what, memory.most, Unit::MebiBytes, bound)
                    .with(format!("grew {:.1} MiB at {rate}", memory.grown()));
            let ran = tps >= RATE;
            results.add(&claim.only_if(ran && memory.grown() < GROWTH, || match ran {
                false => "fewer than a million ran".to_owned(),
                true => format!("it grew by {GROWTH} MiB or more"),
            }));
        }
    }
    Ok(())
}

/// Memory of the server and of the load, and the transactions completed per second.
fn loaded(io: &str, engine: &str) -> Result<(Memory, Memory, f64)> {
    let bed = Bed::new(false)?;
    let udpath = udpath()?;
    let target = bed.server(7300)?.to_string();
    let server = bed.serve(&udpath, &["serve", "echo", "--io", io, "--bind", &target, "--workers", "2"])?;
    let mut command = bed.lab.machine("client")?.command(&udpath);
    let run = format!("{}s", RUN.as_secs());
    let load = ["load", "echo", &target, "--engine", engine, "--flows", "64", "--threads", "2"];
    command
        .args(load)
        .args(["--rate", REQUESTED, "-d", &run, "--json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let load = bed.lab.spawn(command)?;
    let (mut of_serve, mut of_load) = (Memory::default(), Memory::default());
    let begin = Instant::now();
    let mut reported = begin;
    // When the load ends, it writes its result; the memory for that does not count.
    while begin.elapsed() < RUN - Duration::from_secs(1) {
        thread::sleep(Duration::from_millis(500));
        let settled = begin.elapsed() >= SETTLED;
        of_serve.note(resident(server.pid())?, settled);
        of_load.note(resident(load.id())?, settled);
        if reported.elapsed() > Duration::from_secs(10) {
            eprintln!(
                "  {io}: {:.0} s of {}: serve {:.1} MiB, load {:.1} MiB",
                begin.elapsed().as_secs_f64(),
                RUN.as_secs(),
                of_serve.most,
                of_load.most
            );
            reported = Instant::now();
        }
    }
    // It also exits with an error if some requests were lost; then it prints its result, too.
    let done = load.wait_with_output()?;
    let result: serde_json::Value =
        serde_json::from_slice(&done.stdout).context("the load printed no result")?;
    Ok((of_serve, of_load, result["tps"].as_f64().context("load printed no rate")?))
}

/// Resident memory, MiB.
fn resident(pid: u32) -> Result<f64> {
    status(&pid.to_string(), "VmRSS:")
}

/// Resident memory of this process, MiB.
pub(crate) fn now() -> Result<f64> {
    status("self", "VmRSS:")
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
