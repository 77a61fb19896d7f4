//! The socket engine against dnsperf: transactions per core of the generator.
//!
//! Both generators are pinned to CPU 0 and their servers to CPU 1. On a veth, the server's receive path runs on the
//! sender's CPU, for both alike. dnsperf's server does as little as an echo: it sets the response bit.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use udpath_protocols::echo::Echo;
use udpath_serve::{Config, IoChoice, Server};

use crate::bed::{Bed, DnsAnswerer, udpath};
use crate::claim::{Bound, Claim};
use crate::race::race;
use crate::results::Results;

/// How much more the socket engine must send per core.
const AT_LEAST: f64 = 1.2;
/// Seconds of one run of either generator.
const SECONDS: &str = "2";
/// Size of udpath's requests, bytes: that of dnsperf's query for `a.example` with its header, type and class.
const SIZE: &str = "32";

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let bed = Bed::new(false)?;
    let (echo_at, dns_at) = (bed.server(7200)?, bed.server(7201)?);
    let config = |at| {
        let mut config = Config::new([at]);
        config.workers = Some(1);
        config.cpus = Some([1].into_iter().collect());
        config.pin = true;
        config.io = IoChoice::Only(udpath_serve::Io::Shared);
        config
    };
    let server = bed.lab.machine("server")?;
    let echo = server.run(|| Server::start(&config(echo_at), |_| Echo::default()))??;
    let dns = server.run(|| Server::start(&config(dns_at), |_| DnsAnswerer))??;

    let mut queries = tempfile()?;
    for _ in 0..1000 {
        writeln!(queries.1, "a.example A")?;
    }
    let udpath = udpath()?;
    let on_cpu_0 = |arguments: &[&str]| -> Result<String> {
        let mut command: Command = bed.lab.machine("client")?.command("taskset");
        command.args(["-c", "0"]).args(arguments).stdin(Stdio::null()).stderr(Stdio::piped());
        let done = command.output().with_context(|| format!("cannot run {}", arguments.join(" ")))?;
        if !done.status.success() {
            bail!("{} failed: {}", arguments.join(" "), String::from_utf8_lossy(&done.stderr));
        }
        Ok(String::from_utf8(done.stdout)?)
    };
    let dnsperf = || -> Result<f64> {
        let (ip, port) = (dns_at.ip().to_string(), dns_at.port().to_string());
        let text = on_cpu_0(&[
            "dnsperf", "-s", &ip, "-p", &port, "-d", &queries.0, "-l", SECONDS, "-c", "16", "-T", "1", "-q",
            "128",
        ])?;
        text.lines()
            .find_map(|line| line.trim().strip_prefix("Queries per second:")?.trim().parse().ok())
            .with_context(|| format!("dnsperf told no rate: {text}"))
    };
    let ours = || -> Result<f64> {
        let target = echo_at.to_string();
        let text = on_cpu_0(&[
            &udpath,
            "load",
            "echo",
            &target,
            "--flows",
            "16",
            "--inflight",
            "8",
            "--threads",
            "1",
            "--size",
            SIZE,
            "-d",
            "2s",
            "--json",
        ])?;
        let result: serde_json::Value = serde_json::from_str(&text)?;
        result["tps"].as_f64().context("load told no rate")
    };
    let what = "socket engine / dnsperf, transactions on one core";
    let ratio = race(what, 0.03, 6, dnsperf, ours)?;
    std::fs::remove_file(&queries.0)?;
    drop((echo, dns));
    std::thread::sleep(Duration::from_millis(10));
    results.add(&Claim::ratio("socket.dnsperf", what, &ratio, Bound::AtLeast(AT_LEAST)));
    Ok(())
}

/// A temporary file for dnsperf's queries.
fn tempfile() -> Result<(String, std::fs::File)> {
    let path = std::env::temp_dir().join(format!("udpath-bench-{}.txt", std::process::id()));
    let file =
        std::fs::File::create_new(&path).with_context(|| format!("cannot create {}", path.display()))?;
    Ok((path.display().to_string(), file))
}
