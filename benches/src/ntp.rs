//! `udpath serve ntp` against chronyd: transactions per second of clients that check every reply.
//!
//! udpath serves with one worker over AF_XDP, which auto selects there, and over kernel sockets; chronyd, with `local`
//! and `allow`, has one thread. Neither limits its clients' rate. The beds are those of [`versus`]. Both are loaded by
//! the same engine, once by each: the xdp engine, at 0.6 M/s, is slower than udpath's server over AF_XDP, and who
//! serves over sockets answers fewer frames of the kernel engine, which its CPU takes from the driver as XDP frames.

use std::path::Path;

use anyhow::{Result, ensure};
use udpath_lab::Lab;
use udpath_load::Engine;
use udpath_protocols::ntp::NtpLoad;

use crate::bed::{Running, serve, udpath};
use crate::results::Results;
use crate::versus::{self, SERVER_CPU, SOCKETS, UDPATH, address, compare_on};

/// Relative to chronyd's rate.
const AT_LEAST: f64 = 3.0;
/// NTP's port.
const PORT: u16 = 123;
const CHRONYD: &str = "chronyd";
/// Extracted by scripts/setup.sh: the package would replace the machine's own time daemon.
const PROGRAM: &str = "/var/cache/udpath/chronyd";

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let lab = versus::lab("bench-ntp", &[UDPATH, SOCKETS, CHRONYD])?;
    let ours = |machine: &str, io: &str| -> Result<Running> {
        let bind = address(&lab, machine, PORT)?.to_string();
        let arguments = ["serve", "ntp", "--local", "--bind", &bind, "--io", io, "--workers", "1"];
        serve(&lab, machine, &udpath()?, &[&arguments[..], &["--cpus", SERVER_CPU]].concat())
    };
    let servers = [ours(UDPATH, "xdp")?, ours(SOCKETS, "shared")?, chronyd(&lab)?];
    let protocol = NtpLoad::new(u64::from(std::process::id()));
    for (own, of) in [(UDPATH, "serve ntp"), (SOCKETS, "serve ntp over kernel sockets")] {
        for engine in [Engine::Kernel, Engine::Xdp] {
            let what = format!("{of} / chronyd, one server thread, {engine} engine");
            let compared = compare_on(own, &what, CHRONYD, |machine| {
                // udpath's end of the link has a program of its own with xdp.
                let polled = machine != UDPATH && engine == Engine::Kernel;
                let napi = || lab.machine(machine)?.towards("client")?.ensure_napi();
                let _napi = polled.then(napi).transpose()?;
                Ok(versus::run_by(engine, &lab, address(&lab, machine, PORT)?, &protocol)?.tps)
            })?;
            results.add(&compared.claim(&format!("ntp.{own}.{engine}_engine"), &what, AT_LEAST));
        }
    }
    drop(servers);
    lab.down()?;
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
