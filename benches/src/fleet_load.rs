//! A load by a fleet: what it costs beside the same load without one, and how exactly 64 agents start.
//!
//! ```text
//!   client   agents, caller   ── NATS ──▸ server   nats-server
//!            load             ── UDP ───▸          serve echo
//! ```
//! Cost: one agent and `udpath load` send the same closed loop in turn; a caller that watches and an interval per
//! second are what the fleet adds. Start: every agent sleeps until the same moment of one clock, on two CPUs that all
//! of them share.

use std::process::{Child, Stdio};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use udpath_lab::Lab;

use crate::bed::{self, Running, lines_of, udpath};
use crate::claim::{Bound, Claim, Unit};
use crate::race::{quantile, race};
use crate::results::Results;

/// Rate by a fleet over rate without one, at least.
const AT_LEAST: f64 = 0.99;
/// Sufficient half-width of its interval, and most blocks of four loads. Fewer: the interval is wider than what is
/// asked.
const WIDTH: f64 = 0.004;
const BLOCKS: usize = 16;
/// The compared load. The kernel engine's rate varies least, and every interruption of the CPUs lowers it.
const LOAD: [&str; 8] = ["--engine", "kernel", "--flows", "64", "--inflight", "4", "-d", "2s"];
/// Agents that start together, how often, and how late the last may start, milliseconds.
const AGENTS: usize = 64;
const STARTS: usize = 3;
const LATEST: f64 = 1.0;
/// How long a program may take to say that it is ready.
const READY: Duration = Duration::from_secs(20);

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let bed = Bed::new()?;
    let alone = [&["load", "echo", &bed.target], &LOAD[..], &["--json"]].concat();
    let announced = ["--fleet", &bed.nats, "--agents", "1"];
    let by_fleet = [&alone[..], &announced[..]].concat();
    {
        let _agent = bed.agent(0, true)?;
        let rate = |arguments: &[&str]| {
            let result = bed.result(arguments)?;
            result["tps"].as_f64().context("the load has no rate")
        };
        let ratio = race("fleet_load", WIDTH, BLOCKS, || rate(&alone), || rate(&by_fleet))?;
        let what = "load by a fleet of one / without a fleet, transactions per second";
        results.add(&Claim::ratio("fleet_load.rate", what, &ratio, Bound::AtLeast(AT_LEAST)));
    }
    let _agents: Vec<_> = (0..AGENTS).map(|number| bed.agent(number, false)).collect::<Result<_>>()?;
    let count = AGENTS.to_string();
    let together =
        ["load", "echo", &bed.target, "--flows", &count, "--rate", "6400", "-d", "500ms", "--json"];
    let together = [&together[..], &["--fleet", &bed.nats, "--agents", &count]].concat();
    let mut skews = Vec::new();
    for _ in 0..STARTS {
        let result = bed.result(&together)?;
        let rows = result["segments"]["rows"].as_array().context("the load has no segments")?;
        ensure!(rows.len() == AGENTS, "{} of {AGENTS} agents sent", rows.len());
        for row in rows {
            let skew = row["start"]["skew_ns"].as_f64().context("a segment has no start")?;
            skews.push(skew.abs() / 1e6);
        }
    }
    let median = quantile(skews.clone(), 0.5);
    let latest = skews.into_iter().fold(0.0, f64::max);
    let what = "start of 64 agents on two CPUs, farthest from its time";
    let claim = Claim::new("fleet_load.start", what, latest, Unit::Milliseconds, Bound::Below(LATEST));
    results.add(&claim.with(format!("{STARTS} starts, median {median:.2} ms")));
    Ok(())
}

/// The lab with a server of the load, and one of NATS.
struct Bed {
    bed: bed::Bed,
    program: String,
    target: String,
    nats: String,
    _servers: [Running; 2],
}

impl Bed {
    fn new() -> Result<Self> {
        let bed = bed::Bed::new(true)?;
        let (program, ip) = (udpath()?, bed.server(0)?.ip().to_string());
        let (target, nats) = (format!("{ip}:7"), format!("nats://{ip}:4222"));
        let echo = bed.serve(&program, &["serve", "echo", "--bind", &target])?;
        let (mut server, lines) = started(&bed.lab, "server", "nats-server", &["-a", &ip, "-p", "4222"])?;
        awaited(&mut server, &lines, "Server is ready")?;
        Ok(Self { bed, program, target, nats, _servers: [echo, Running::new(server)] })
    }

    /// `root`: it may use the kernel engine.
    fn agent(&self, number: usize, root: bool) -> Result<Running> {
        let name = format!("a{number:02}");
        let arguments =
            ["agent", "--nats", &self.nats, "--name", &name, "--allow", &self.target, "--max-rate", "none"];
        let user: &[&str] = if root { &["--user", "root"] } else { &[] };
        let arguments = [&arguments[..], user].concat();
        let (mut agent, lines) = started(&self.bed.lab, "client", &self.program, &arguments)?;
        awaited(&mut agent, &lines, "ready for loads")?;
        Ok(Running::new(agent))
    }

    /// The result of a load.
    fn result(&self, arguments: &[&str]) -> Result<Value> {
        let mut command = self.bed.lab.machine("client")?.command(&self.program);
        let output = command.args(arguments).stdin(Stdio::null()).output().context("cannot run the load")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "udpath {}: {}", arguments.join(" "), said.trim());
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

fn started(lab: &Lab, machine: &str, program: &str, arguments: &[&str]) -> Result<(Child, Receiver<String>)> {
    let mut command = lab.machine(machine)?.command(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = lab.spawn(command).with_context(|| format!("cannot start {program}"))?;
    let lines = lines_of(&mut child);
    Ok((child, lines))
}

/// Waits for a line with `part`.
fn awaited(child: &mut Child, lines: &Receiver<String>, part: &str) -> Result<()> {
    let mut said = Vec::new();
    loop {
        match lines.recv_timeout(READY) {
            Ok(line) if line.contains(part) => return Ok(()),
            Ok(line) => said.push(line),
            Err(_) => {
                let _ = child.kill();
                bail!("'{part}' was not printed, but: {}", said.join("; "));
            }
        }
    }
}
