//! `udpath serve ntp` against chronyd: transactions per second of clients that check every reply.
//!
//! udpath serves over the Io that auto selects, with one worker; chronyd, with `local` and `allow`, has one thread. Neither limits
//! its clients' rate. The beds are those of [`versus`]. Each is loaded by the engine of which it answers more: the xdp engine, at
//! 0.6 M/s, is slower than udpath's server, and chronyd answers fewer frames of the kernel engine, which its CPU takes from the
//! driver as XDP frames.

use std::path::Path;

use anyhow::{Result, ensure};
use udpath_lab::Lab;
use udpath_load::Engine;
use udpath_protocols::ntp::NtpLoad;

use crate::bed::{Running, serve, udpath};
use crate::race::quantile;
use crate::results::Results;
use crate::versus::{self, SERVER_CPU, UDPATH, address, compare};

/// Relative to chronyd's rate.
const AT_LEAST: f64 = 3.0;
/// Runs of each engine that choose one.
const TRIES: usize = 3;
/// NTP's port.
const PORT: u16 = 123;
const CHRONYD: &str = "chronyd";
/// Extracted by scripts/setup.sh: the package would replace the machine's own time daemon.
const PROGRAM: &str = "/var/cache/udpath/chronyd";

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let lab = versus::lab("bench-ntp", &[UDPATH, CHRONYD])?;
    let bind = address(&lab, UDPATH, PORT)?.to_string();
    let arguments = ["serve", "ntp", "--local", "--bind", &bind, "--workers", "1", "--cpus", SERVER_CPU];
    let servers = (serve(&lab, UDPATH, &udpath()?, &arguments)?, chronyd(&lab)?);
    let protocol = NtpLoad::new(u64::from(std::process::id()));
    let what = "serve ntp / chronyd, one server thread";
    let rate = |machine: &str, engine: Engine| -> Result<f64> {
        // udpath's end of the link has a program of its own.
        let foreign = machine == CHRONYD && engine == Engine::Kernel;
        let _napi =
            if foreign { Some(lab.machine(machine)?.towards("client")?.ensure_napi()?) } else { None };
        Ok(versus::run_by(engine, &lab, address(&lab, machine, PORT)?, &protocol)?.tps)
    };
    let best = |machine: &str| -> Result<Engine> {
        let median = |engine| -> Result<f64> {
            let rates = (0..TRIES).map(|_| rate(machine, engine)).collect::<Result<Vec<_>>>()?;
            let median = quantile(rates, 0.5);
            eprintln!("  {machine}, {engine} engine: {:.0} k/s", median / 1e3);
            Ok(median)
        };
        let (xdp, kernel) = (median(Engine::Xdp)?, median(Engine::Kernel)?);
        Ok(if kernel > xdp { Engine::Kernel } else { Engine::Xdp })
    };
    let (ours, theirs) = (best(UDPATH)?, best(CHRONYD)?);
    let compared =
        compare(what, CHRONYD, |machine| rate(machine, if machine == CHRONYD { theirs } else { ours }));
    drop(servers);
    lab.down()?;
    results.add(&compared?.claim("ntp.chronyd", what, AT_LEAST));
    Ok(())
}

/// chronyd as a server that does not touch the machine's clock.
fn chronyd(lab: &Lab) -> Result<Running> {
    ensure!(Path::new(PROGRAM).exists(), "no {PROGRAM}: `scripts/setup.sh test` extracts it");
    let pid_file = std::env::temp_dir().join(format!("udpath-bench-chronyd-{}.pid", std::process::id()));
    let pid_file = format!("pidfile {}", pid_file.display());
    let words = [PROGRAM, "-u", "root", "-x", "-d", "local stratum 10", "allow"];
    let words = [&words[..], &["cmdport 0", "bindcmdaddress /", &pid_file]].concat();
    // Its sockets are open once it has given up control of the clock.
    versus::start(lab, CHRONYD, words, "Running with root privileges")
}
