//! What receiving a datagram costs by system call: CPU time of `serve sink` for recvfrom, recvmsg and recvmmsg.
//!
//! ```text
//!   client, CPU 0: load sink --mode flood  ══ veth, one queue ══▸  server, CPU 1: a sink per call, one at a time is loaded
//! ```
//! Runs take turns, forwards and backwards. All are at the same rate, in bursts of 32, below what the slowest receives:
//! next to nothing may be lost. The figure is the CPU time of the server's process per datagram that it received,
//! wake-ups included; the softirqs run on CPU 0.

use std::net::{IpAddr, SocketAddr};
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use udpath_lab::{Lab, LabBuilder, LinkSpec};

use crate::bed::{Running, serve, udpath};
use crate::claim::{Bound, Claim, Unit};
use crate::race::quantile;
use crate::results::Results;

/// Calls, with the batch that each is measured with.
const CALLS: [(&str, &str); 4] = [("recvfrom", "1"), ("recvmsg", "1"), ("recvmmsg", "1"), ("recvmmsg", "32")];
/// Datagrams per second: a quarter of what the slowest call receives on one core of 2020. Higher: slow machines lose
/// some. Lower: every datagram is a wake-up, whichever the call.
const RATE: &str = "100k";
/// Datagrams sent at once. Fewer: the wake-up of the worker costs more than any call, and hides their difference.
const BURST: &str = "burst:32";
const SECONDS: &str = "1s";
/// Rounds of all calls. Fewer: the quartiles are those of chance.
const ROUNDS: usize = 8;
/// Most datagrams lost, as a share: [`BUFFER`] holds a twentieth of a second of them.
const LOST: f64 = 0.001;
/// Receive buffer of a server, as far as net.core.rmem_max allows. Smaller: another program on the CPU shows as loss.
const BUFFER: &str = "4MiB";
/// The first server's port.
const PORT: u16 = 9000;

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let lab = LabBuilder::new("bench-sink").machine("client").machine("server");
    let lab = lab.link("client", "server", &LinkSpec::default()).up()?;
    let ip = IpAddr::V4(lab.address_of("server", "client")?.ipv4);
    let program = udpath()?;
    let mut servers: Vec<(SocketAddr, Running, Vec<f64>)> = Vec::new();
    for (place, (call, batch)) in CALLS.iter().enumerate() {
        let at = SocketAddr::new(ip, PORT + place as u16);
        let bind = at.to_string();
        let sink = [
            "serve",
            "sink",
            "--bind",
            &bind,
            "--io",
            "shared",
            "--workers",
            "1",
            "--cpus",
            "1",
            "--rcvbuf",
            BUFFER,
        ];
        let server =
            serve(&lab, "server", &program, &[&sink[..], &["--receive", call, "--batch", batch]].concat())?;
        servers.push((at, server, Vec::new()));
    }
    for round in 0..ROUNDS {
        for place in 0..CALLS.len() {
            let place = if round % 2 == 0 { place } else { CALLS.len() - 1 - place };
            let (at, _, costs) = &mut servers[place];
            costs.push(nanoseconds(&lab, &program, *at).with_context(|| format!("{:?}", CALLS[place]))?);
        }
    }
    for ((call, batch), (_, server, costs)) in CALLS.iter().zip(servers) {
        drop(server);
        let [low, median, high] = [0.25, 0.5, 0.75].map(|at| quantile(costs.clone(), at));
        let what =
            format!("serve sink by {call}, batch {batch}: CPU per datagram at {RATE}/s in bursts of 32");
        let id = format!("sink.{call}_{batch}");
        results.add(&Claim::new(&id, what, median, Unit::Nanoseconds, Bound::Shown).within(low, high));
    }
    lab.down()?;
    Ok(())
}

/// CPU time of the receiver per datagram in one run.
fn nanoseconds(lab: &Lab, program: &str, at: SocketAddr) -> Result<f64> {
    let at = at.to_string();
    let mut command = lab.machine("client")?.command("taskset");
    command.args([
        "-c",
        "0",
        program,
        "load",
        "sink",
        &at,
        "--mode",
        "flood",
        "--rate",
        RATE,
        "--arrivals",
        BURST,
        "-d",
        SECONDS,
        "--json",
    ]);
    let done = command.stdin(Stdio::null()).output().context("cannot run the load")?;
    if !done.status.success() {
        bail!("the load failed: {}", String::from_utf8_lossy(&done.stderr));
    }
    let result: serde_json::Value = serde_json::from_slice(&done.stdout)?;
    let sent = result["counts"]["sent"].as_f64().context("the load printed no counts")?;
    let received = result["delivered"]["datagrams"].as_f64().context("the sink reported no datagrams")?;
    ensure!(
        sent - received <= LOST * sent,
        "{received} of {sent} datagrams were received: this machine is too slow or busy"
    );
    let per_second = result["per_core"]["receiver"]["per_second"].as_f64();
    Ok(1e9 / per_second.context("the sink used too little CPU time to be exact")?)
}
