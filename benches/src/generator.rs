//! The engine `xdp` compared with kxdpgun (Knot DNS): requests sent by one core.
//!
//! ```text
//!   client: kxdpgun, or `udpath load --engine xdp`, on CPU 0  -- veth, one queue -->  server: AF_XDP port, never read
//! ```
//! udpath is measured in two modes: its own choice, which at such a rate is live frames, and with AF_XDP rings only, as
//! kxdpgun sends. All are given a rate above what they can send. Once the sink's rings are full, it drops every request
//! right after the driver; on a veth, the sender's CPU does that, for all alike. A live frame is also cheaper for the
//! veth's other end: it arrives without an skb, from which the sink would have to extract the frame. That share of the
//! gain is specific to a veth and does not apply to a NIC. udpath's requests are as long as kxdpgun's queries, and
//! every one of them has its own contents, checksums, intended time and entry in the table of open requests.

use std::net::{IpAddr, SocketAddr};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use udpath_lab::{Lab, LabBuilder, LinkSpec};
use udpath_stack::port::xdp::{Config, XdpDevice};

use crate::Claim;
use crate::bed::udpath;
use crate::race::{race, words};

/// How much more the engine must send; also with rings only, which uses the same system calls and the same work in the
/// kernel as kxdpgun.
const AT_LEAST: [(&str, f64); 2] = [("xdp", 1.3), ("xdp-rings", 0.95)];
/// Seconds of one run of either generator.
const SECONDS: &str = "2";
/// Requested rate per second: more than either can send on any machine that runs this.
const RATE: &str = "20000000";
/// kxdpgun's batch size: its default. Larger batches were slower here.
const BATCH: &str = "10";
/// Size of udpath's requests, bytes: that of kxdpgun's query for `a.example`.
const SIZE: &str = "27";
const PORT: u16 = 5300;

pub(crate) fn run() -> Result<Vec<Claim>> {
    let lab = LabBuilder::new("bench-generator").machine("client").machine("server");
    let lab = lab.link("client", "server", &LinkSpec::default()).up()?;
    let target = SocketAddr::new(IpAddr::V4(lab.address_of("server", "client")?.ipv4), PORT);
    let interface = lab.machine("server")?.towards("client")?.name().to_owned();
    let sink = lab.machine("server")?.run(|| -> Result<_> {
        let mut device = XdpDevice::open(&interface, Config::default())?;
        let ports = device.ports()?;
        device.bind(target)?;
        Ok((device, ports))
    })??;
    let queries = std::env::temp_dir().join(format!("udpath-bench-kxdpgun-{}.txt", std::process::id()));
    std::fs::write(&queries, "a.example A\n")
        .with_context(|| format!("cannot write {}", queries.display()))?;
    let (ip, port, file) = (target.ip().to_string(), PORT.to_string(), queries.display().to_string());
    let kxdpgun = || -> Result<f64> {
        let arguments =
            ["-t", SECONDS, "-Q", RATE, "-b", BATCH, "-F", "0", "-r", "-i", &file, "-p", &port, &ip];
        let text = on_client(&lab, "kxdpgun", &arguments);
        // kxdpgun leaves its program attached.
        on_client(&lab, "ip", &["link", "set", "dev", "eth0", "xdp", "off"])?;
        let text = text?;
        let rate = text.lines().find_map(|line| {
            let (_, rate) = line.strip_prefix("total queries:")?.split_once('(')?;
            rate.split(' ').next()?.parse().ok()
        });
        rate.with_context(|| format!("kxdpgun told no rate: {text}"))
    };
    let (udpath, target) = (udpath()?, target.to_string());
    let ours = |engine: &str| -> Result<f64> {
        let seconds = format!("{SECONDS}s");
        let load = ["-c", "0", &udpath, "load", "echo", &target, "--engine", engine, "--threads", "1"];
        // Nothing is answered: a short timeout keeps the table of open requests as small as in real use.
        let plan =
            ["--flows", "16", "--size", SIZE, "--rate", RATE, "--timeout", "1ms", "-d", &seconds, "--json"];
        let text = on_client_whatever(&lab, "taskset", &[&load[..], &plan].concat())?;
        let result: serde_json::Value = serde_json::from_str(&text)?;
        let sent = result["counts"]["sent"].as_f64().context("load told no count")?;
        Ok(sent / result["seconds"].as_f64().context("load told no time")?)
    };
    let claims = AT_LEAST.iter().map(|&(engine, at_least)| {
        let ratio = race(0.03, 6, kxdpgun, || ours(engine))?;
        Ok(Claim {
            what: format!("{engine} engine / kxdpgun, requests sent by one core"),
            measured: words(&ratio),
            bound: format!(">= {at_least}"),
            holds: ratio.ratio >= at_least,
        })
    });
    let claims = claims.collect();
    std::fs::remove_file(&queries)?;
    drop(sink);
    lab.down()?;
    claims
}

/// The output of a program that must succeed on the client.
fn on_client(lab: &Lab, program: &str, arguments: &[&str]) -> Result<String> {
    let mut command = lab.machine("client")?.command(program);
    let done = command.args(arguments).stdin(Stdio::null()).output();
    let done = done.with_context(|| format!("cannot run {program}; scripts/setup.sh installs it"))?;
    if !done.status.success() {
        bail!("{program} {} failed: {}", arguments.join(" "), String::from_utf8_lossy(&done.stderr));
    }
    Ok(String::from_utf8(done.stdout)?)
}

/// As [`on_client`], for a load without replies: it exits with an error code, but prints its result.
fn on_client_whatever(lab: &Lab, program: &str, arguments: &[&str]) -> Result<String> {
    let mut command = lab.machine("client")?.command(program);
    let done = command.args(arguments).stdin(Stdio::null()).output()?;
    if done.stdout.is_empty() {
        bail!("{program} {} failed: {}", arguments.join(" "), String::from_utf8_lossy(&done.stderr));
    }
    Ok(String::from_utf8(done.stdout)?)
}
