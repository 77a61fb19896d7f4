//! `udpath serve radius` against FreeRADIUS: transactions per second of clients that check every reply.
//!
//! ```text
//!   client ══ veth, one queue ══▸ machine udpath:      udpath serve radius, the Io that auto selects, one worker on CPU 1
//!      └───── veth, one queue ══▸ machine freeradius:  freeradius with two threads, on CPU 1
//! ```
//! The load is `udpath load radius` with PAP in a closed loop with the xdp engine on CPU 0, the same for both: signed
//! requests of the users in the file that both servers read. Both keep their replies for 5 seconds.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use udpath_lab::{Lab, LabBuilder, LinkSpec};
use udpath_load::Engine;
use udpath_load::plan::{Arrivals, Plan};
use udpath_load::template::Protocol;
use udpath_protocols::radius::{Auth, LoadConfig, RadiusLoad, Secret, Users};
use udpath_rig::{FREERADIUS_READY, freeradius};

use crate::bed::{FLOWS, Running, lines_of, serve, udpath};
use crate::claim::{Bound, Claim};
use crate::race::{pin, quantile, race};
use crate::results::Results;

/// Relative to FreeRADIUS's rate.
const AT_LEAST: f64 = 5.0;
/// CPUs of the generator and of the servers.
const CLIENT_CPU: usize = 0;
const SERVER_CPU: &str = "1";
/// Requests in flight per flow: 128 together. Lower: servers wait for requests. Higher: FreeRADIUS's queue grows.
const INFLIGHT: u32 = 2;
/// Length of one run.
const RUN: Duration = Duration::from_secs(1);
/// Highest share of lost replies.
const LOST: f64 = 0.001;
const PORT: u16 = 1812;
const SECRET: &str = "a secret of the lab";
/// Users in the file: each run asks for all of them.
const USERS: usize = 1000;

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot create a folder for the servers' files")?;
    let file = |name: &str| folder.path().join(name);
    let users =
        (0..USERS).map(|n| format!("user{n}  Cleartext-Password := \"password {n}\"\n")).collect::<String>();
    std::fs::write(file("users"), &users).context("cannot write the file of users")?;
    let clients = format!("0.0.0.0/0 \"{SECRET}\"\n");
    std::fs::write(file("clients"), clients).context("cannot write the file of clients")?;
    let users = Users::parse(users.as_bytes()).map_err(anyhow::Error::msg)?;
    let secret = Secret::new(SECRET.as_bytes());
    let config = LoadConfig { secret, users, auth: Auth::Pap, accounting: false };

    let one = LinkSpec::default();
    let lab = LabBuilder::new("bench-radius").machine("client").machine("udpath").machine("freeradius");
    let lab = lab.link("client", "udpath", &one).link("client", "freeradius", &one).up()?;
    let bind = target(&lab, "udpath")?.to_string();
    let [clients, users] = ["clients", "users"].map(|name| file(name).display().to_string());
    let files = ["--clients", &clients, "--users", &users];
    let arguments = ["serve", "radius", "--bind", &bind, "--workers", "1", "--cpus", SERVER_CPU];
    let ours = serve(&lab, "udpath", &udpath()?, &[&arguments[..], &files].concat())?;
    let theirs = theirs(&lab, folder.path(), &file("users"))?;
    let (mut our_rates, mut their_rates) = (Vec::new(), Vec::new());
    // Each run has its own number, so that no request is a repetition.
    let number = Cell::new(u64::from(std::process::id()) << 32);
    let measured = |machine: &str, rates: &mut Vec<f64>| -> Result<f64> {
        number.set(number.get() + 1);
        let protocol = RadiusLoad::new(number.get(), config.clone());
        let rate = rate(&lab, machine, &protocol).with_context(|| format!("against {machine}"))?;
        rates.push(rate);
        Ok(rate)
    };
    let what = "serve radius / FreeRADIUS, PAP, one server core";
    let ratio = race(
        what,
        0.03,
        12,
        || measured("freeradius", &mut their_rates),
        || measured("udpath", &mut our_rates),
    );
    drop((ours, theirs));
    lab.down()?;
    let ratio = ratio?;
    let [ours, theirs] = [our_rates, their_rates].map(|rates| quantile(rates, 0.5) / 1e3);
    let claim = Claim::ratio("radius.freeradius", what, &ratio, Bound::AtLeast(AT_LEAST));
    results.add(&claim.with(format!("{ours:.0} and {theirs:.0} k/s")));
    Ok(())
}

fn target(lab: &Lab, machine: &str) -> Result<SocketAddr> {
    Ok(SocketAddr::new(IpAddr::V4(lab.address_of(machine, "client")?.ipv4), PORT))
}

/// FreeRADIUS on its machine.
fn theirs(lab: &Lab, folder: &Path, users: &Path) -> Result<Running> {
    let arguments = freeradius(folder, SECRET, users).context("cannot write FreeRADIUS's configuration")?;
    let mut command = lab.machine("freeradius")?.command("taskset");
    command.args(["-c", SERVER_CPU]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = lab.spawn(command).context("cannot start FreeRADIUS")?;
    let lines = lines_of(&mut child);
    let running = Running::new(child);
    while !lines
        .recv_timeout(Duration::from_secs(20))
        .context("FreeRADIUS did not start")?
        .contains(FREERADIUS_READY)
    {}
    std::thread::spawn(move || lines.into_iter().for_each(drop));
    Ok(running)
}

/// Valid transactions per second with the server on `machine`.
fn rate(lab: &Lab, machine: &str, protocol: &RadiusLoad) -> Result<f64> {
    let plan = Plan {
        flows: FLOWS,
        arrivals: Arrivals::Closed { inflight: INFLIGHT },
        size: protocol.min_size(),
        duration: RUN,
        warmup: Duration::from_millis(200),
        timeout: Duration::from_millis(200),
        ..Plan::new(target(lab, machine)?)
    };
    let never = AtomicBool::new(false);
    let result = lab.machine("client")?.run(|| {
        pin(CLIENT_CPU)?;
        udpath_load::run(&plan, Engine::Xdp, protocol, &mut |_| (), &never).context("the load")
    })??;
    let counts = &result.counts;
    ensure!(counts.ok > 0, "nothing was answered");
    let wrong = counts.corrupt + counts.wrong_flow + counts.duplicate + counts.refused;
    ensure!(wrong == 0, "wrong replies: {counts:?}");
    ensure!((counts.lost as f64) < LOST * counts.ok as f64, "too many were lost: {counts:?}");
    Ok(result.tps)
}
