//! A server of udpath against a peer that does the same job: each on a machine and a link of its own, one thread on CPU
//! 1.
//!
//! ```text
//!   client, CPU 0 ══ veth, one queue ══▸ machine udpath:   udpath serve
//!        ├────────── veth, one queue ══▸ machine sockets:  udpath serve, over kernel sockets
//!        └────────── veth, one queue ══▸ machine PEER:     the peer
//! ```
//! The load is the same for both: a closed loop with the xdp engine, which checks every reply completely, or with the
//! kernel engine, which costs less. A run in which a reply was wrong, or more than [`LOST`] were lost, is an error and
//! not a result.

use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use udpath_advise::result::Ratio;
use udpath_lab::{Lab, LabBuilder, LinkSpec};
use udpath_load::Engine;
use udpath_load::plan::{Arrivals, Plan};
use udpath_load::result::LoadResult;
use udpath_load::template::Protocol;

use crate::bed::{FLOWS, Running, lines_of};
use crate::claim::{Bound, Claim};
use crate::race::{pin, quantile, race};

/// The machine of udpath's server.
pub(crate) const UDPATH: &str = "udpath";
/// That of udpath's server over kernel sockets.
pub(crate) const SOCKETS: &str = "sockets";
/// CPU of the servers.
pub(crate) const SERVER_CPU: &str = "1";
/// CPU of the generator.
const CLIENT_CPU: usize = 0;
/// Requests in flight per flow: 128 together. Lower: servers wait for requests. Higher: at 256, the default receive
/// buffer of chronyd's socket overflows.
const INFLIGHT: u32 = 2;
/// Length of one run, and of the load before it.
const RUN: Duration = Duration::from_secs(1);
const WARMUP: Duration = Duration::from_millis(200);
/// Highest share of lost replies.
const LOST: f64 = 0.001;
/// Longest time until a peer is ready.
const START: Duration = Duration::from_secs(20);
/// Sufficient half-width of a comparison's interval, and most blocks of it.
const WIDTH: f64 = 0.03;
const BLOCKS: usize = 12;

/// A lab with the client and these servers.
pub(crate) fn lab(name: &str, servers: &[&str]) -> Result<Lab> {
    let one = LinkSpec::default();
    let lab = LabBuilder::new(name).machine("client");
    let lab = servers.iter().fold(lab, |lab, server| lab.machine(*server).link("client", *server, &one));
    Ok(lab.up()?)
}

/// The address of a server.
pub(crate) fn address(lab: &Lab, machine: &str, port: u16) -> Result<SocketAddr> {
    Ok(SocketAddr::new(IpAddr::V4(lab.address_of(machine, "client")?.ipv4), port))
}

/// Starts a peer, pinned, and waits for a line of its output that contains `ready`.
pub(crate) fn start(
    lab: &Lab,
    machine: &str,
    words: impl IntoIterator<Item = impl AsRef<std::ffi::OsStr>>,
    ready: &str,
) -> Result<Running> {
    let mut command: Command = lab.machine(machine)?.command("taskset");
    command.args(["-c", SERVER_CPU]).args(words);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = lab.spawn(command).with_context(|| format!("cannot start {machine}"))?;
    let lines = lines_of(&mut child);
    let running = Running::new(child);
    while !lines
        .recv_timeout(START)
        .with_context(|| format!("{machine} did not print '{ready}'"))?
        .contains(ready)
    {}
    std::thread::spawn(move || lines.into_iter().for_each(drop));
    Ok(running)
}

/// A run of the xdp engine against `target` in which every reply was right.
pub(crate) fn run(lab: &Lab, target: SocketAddr, protocol: &dyn Protocol) -> Result<LoadResult> {
    run_by(Engine::Xdp, lab, target, protocol)
}

/// The same with another engine.
pub(crate) fn run_by(
    engine: Engine,
    lab: &Lab,
    target: SocketAddr,
    protocol: &dyn Protocol,
) -> Result<LoadResult> {
    let plan = Plan {
        flows: FLOWS,
        arrivals: Arrivals::Closed { inflight: INFLIGHT },
        size: protocol.min_size(),
        duration: RUN,
        warmup: WARMUP,
        timeout: WARMUP,
        ..Plan::new(target)
    };
    let never = AtomicBool::new(false);
    let result = lab.machine("client")?.run(|| {
        pin(CLIENT_CPU)?;
        udpath_load::run(&plan, engine, protocol, &mut |_| (), &never).context("the load")
    })??;
    let counts = &result.counts;
    ensure!(counts.ok > 0, "nothing was answered");
    let wrong = counts.corrupt + counts.wrong_flow + counts.duplicate + counts.refused;
    ensure!(wrong == 0, "wrong replies: {counts:?}");
    ensure!((counts.lost as f64) < LOST * counts.ok as f64, "too many were lost: {counts:?}");
    Ok(result)
}

/// A comparison with the median rates of both.
pub(crate) struct Compared {
    ratio: Ratio,
    ours: f64,
    peers: f64,
}

impl Compared {
    /// The claim that udpath answers `at_least` times as much.
    pub(crate) fn claim(&self, id: &str, what: &str, at_least: f64) -> Claim {
        let rates = format!("{:.0} and {:.0} k/s", self.ours / 1e3, self.peers / 1e3);
        Claim::ratio(id, what, &self.ratio, Bound::AtLeast(at_least)).with(rates)
    }
}

/// Transactions per second of udpath's server over those of the one on machine `peer`; `rate` measures one of them
/// once.
pub(crate) fn compare(what: &str, peer: &str, rate: impl Fn(&str) -> Result<f64>) -> Result<Compared> {
    compare_on(UDPATH, what, peer, rate)
}

/// The same of udpath's server on the machine `own`.
pub(crate) fn compare_on(
    own: &str,
    what: &str,
    peer: &str,
    rate: impl Fn(&str) -> Result<f64>,
) -> Result<Compared> {
    let (mut ours, mut peers) = (Vec::new(), Vec::new());
    let measured = |machine: &str, rates: &mut Vec<f64>| -> Result<f64> {
        let rate = rate(machine).with_context(|| format!("against {machine}"))?;
        rates.push(rate);
        Ok(rate)
    };
    let ratio = race(what, WIDTH, BLOCKS, || measured(peer, &mut peers), || measured(own, &mut ours))?;
    Ok(Compared { ratio, ours: quantile(ours, 0.5), peers: quantile(peers, 0.5) })
}
