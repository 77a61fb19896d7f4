//! `udpath serve ntp` against chronyd: transactions per second of clients that check every reply.
//!
//! ```text
//!   client ══ veth, one queue ══▸ machine udpath:   udpath serve ntp, the Io that auto selects, one worker on CPU 1
//!      └───── veth, one queue ══▸ machine chronyd:  chronyd with `local` and `allow`, on CPU 1
//! ```
//! The load is `udpath load ntp` in a closed loop with the xdp engine on CPU 0, the same for both. chronyd has one thread, so
//! one worker is compared with it. Neither limits its clients' rate.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use udpath_lab::{Lab, LabBuilder, LinkSpec};
use udpath_load::Engine;
use udpath_load::plan::{Arrivals, Plan};
use udpath_protocols::ntp::{Header, NtpLoad};

use crate::bed::{FLOWS, Running, lines_of, serve, udpath};
use crate::claim::{Bound, Claim};
use crate::race::{pin, quantile, race};
use crate::results::Results;

/// Relative to chronyd's rate.
const AT_LEAST: f64 = 3.0;
/// CPUs of the generator and of the servers.
const CLIENT_CPU: usize = 0;
const SERVER_CPU: &str = "1";
/// Requests in flight per flow: 128 together. Lower: servers wait for requests. Higher: at 256 the default receive buffer of
/// chronyd's socket overflows.
const INFLIGHT: u32 = 2;
/// Length of one run.
const RUN: Duration = Duration::from_secs(1);
/// Highest share of lost replies.
const LOST: f64 = 0.001;
/// NTP's port.
const PORT: u16 = 123;
/// Extracted by scripts/setup.sh: the package would replace the machine's own time daemon.
const CHRONYD: &str = "/var/cache/udpath/chronyd";

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let one = LinkSpec::default();
    let lab = LabBuilder::new("bench-ntp").machine("client").machine("udpath").machine("chronyd");
    let lab = lab.link("client", "udpath", &one).link("client", "chronyd", &one).up()?;
    let bind = target(&lab, "udpath")?.to_string();
    let arguments = ["serve", "ntp", "--local", "--bind", &bind, "--workers", "1", "--cpus", SERVER_CPU];
    let ours = serve(&lab, "udpath", &udpath()?, &arguments)?;
    let theirs = chronyd(&lab)?;
    let (mut our_rates, mut their_rates) = (Vec::new(), Vec::new());
    let measured = |machine: &str, rates: &mut Vec<f64>| -> Result<f64> {
        let rate = rate(&lab, machine).with_context(|| format!("against {machine}"))?;
        rates.push(rate);
        Ok(rate)
    };
    let what = "serve ntp / chronyd, one server thread";
    let ratio =
        race(what, 0.03, 12, || measured("chronyd", &mut their_rates), || measured("udpath", &mut our_rates));
    drop((ours, theirs));
    lab.down()?;
    let ratio = ratio?;
    let [ours, theirs] = [our_rates, their_rates].map(|rates| quantile(rates, 0.5) / 1e3);
    let claim = Claim::ratio("ntp.chronyd", what, &ratio, Bound::AtLeast(AT_LEAST));
    results.add(&claim.with(format!("{ours:.0} and {theirs:.0} k/s")));
    Ok(())
}

fn target(lab: &Lab, machine: &str) -> Result<SocketAddr> {
    Ok(SocketAddr::new(IpAddr::V4(lab.address_of(machine, "client")?.ipv4), PORT))
}

/// chronyd as a server that does not touch the machine's clock.
fn chronyd(lab: &Lab) -> Result<Running> {
    ensure!(Path::new(CHRONYD).exists(), "no {CHRONYD}: `scripts/setup.sh test` extracts it");
    let pid_file = std::env::temp_dir().join(format!("udpath-bench-chronyd-{}.pid", std::process::id()));
    let mut command = lab.machine("chronyd")?.command("taskset");
    command.args(["-c", SERVER_CPU, CHRONYD, "-u", "root", "-x", "-d", "local stratum 10", "allow"]);
    command.args(["cmdport 0", "bindcmdaddress /", &format!("pidfile {}", pid_file.display())]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = lab.spawn(command).context("cannot start chronyd")?;
    let lines = lines_of(&mut child);
    let running = Running::new(child);
    // Its sockets are open once it has given up control of the clock.
    while !lines
        .recv_timeout(Duration::from_secs(20))
        .context("chronyd did not start")?
        .contains("Running with root privileges")
    {}
    std::thread::spawn(move || lines.into_iter().for_each(drop));
    Ok(running)
}

/// Valid transactions per second with the server on `machine`.
fn rate(lab: &Lab, machine: &str) -> Result<f64> {
    let plan = Plan {
        flows: FLOWS,
        arrivals: Arrivals::Closed { inflight: INFLIGHT },
        size: Header::LEN,
        duration: RUN,
        warmup: Duration::from_millis(200),
        timeout: Duration::from_millis(200),
        ..Plan::new(target(lab, machine)?)
    };
    let protocol = NtpLoad::new(u64::from(std::process::id()));
    let never = AtomicBool::new(false);
    let result = lab.machine("client")?.run(|| {
        pin(CLIENT_CPU)?;
        udpath_load::run(&plan, Engine::Xdp, &protocol, &mut |_| (), &never).context("the load")
    })??;
    let counts = &result.counts;
    ensure!(counts.ok > 0, "nothing was answered");
    ensure!(counts.corrupt + counts.wrong_flow + counts.duplicate == 0, "wrong replies: {counts:?}");
    ensure!((counts.lost as f64) < LOST * counts.ok as f64, "too many were lost: {counts:?}");
    Ok(result.tps)
}
