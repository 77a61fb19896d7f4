//! The engine `xdp` compared with kxdpgun (Knot DNS): requests sent by one core.
//!
//! ```text
//!   client: kxdpgun, or `udpath load --engine xdp`, on CPU 0  == veth, one queue ==  server: Io xdp, one worker, CPU 1
//! ```
//! The server answers: kxdpgun's queries with the query and the response bit, udpath's requests with themselves. Both
//! generators receive and count every reply, so the core sends and receives; the figure is what it sends.
//!
//! udpath is measured in two modes: its own choice, which at such a rate is live frames, and with AF_XDP's own rings
//! only, as kxdpgun sends. Both have the same bound. All are given a rate above what they can send; what the server
//! cannot take is lost for all alike. The baseline is the best of kxdpgun's batch sizes. A live frame is also cheaper
//! for the veth's other end: it arrives without an skb. That share of the gain is specific to a veth and does not apply
//! to a NIC. udpath's requests are as long as kxdpgun's queries, and every one of them has its own contents, checksums,
//! intended time and entry in the table of open requests.

use std::net::{IpAddr, SocketAddr};
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use udpath_lab::{Lab, LabBuilder, LinkSpec};
use udpath_serve::{Config, Io, IoChoice, Outcome, Reply, Request, Server, Service};

use crate::bed::{DnsAnswerer, udpath};
use crate::claim::{Bound, Claim, Unit};
use crate::race::{quantile, race};
use crate::results::Results;

/// How much more the engine must send, with live frames and on AF_XDP's own rings.
const AT_LEAST: f64 = 1.3;
const ENGINES: [(&str, &str); 2] = [("xdp", "xdp engine"), ("xdp-rings", "xdp engine on AF_XDP's own rings")];
/// Seconds of one run of either generator.
const SECONDS: &str = "2";
/// Requested rate per second: more than either can send on any machine that runs this.
const RATE: &str = "20000000";
/// kxdpgun's batch sizes: its default, and up to the most that its ring takes at once.
const BATCHES: [&str; 5] = ["1", "10", "20", "32", "64"];
/// Size of udpath's requests, bytes: that of kxdpgun's query for `a.example`.
const SIZE: &str = "27";
/// Ports of the server: of DNS and of the echo.
const DNS: u16 = 5300;
const ECHO: u16 = 5301;

/// Answers a DNS query with the query and the response bit, and echoes on the other port.
struct Answerer;

impl Service for Answerer {
    fn serve(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Outcome {
        match request.local().port() {
            DNS => DnsAnswerer.serve(request, reply),
            _ => reply.write(request.payload()),
        }
    }
}

/// What a generator sent and got, per second.
#[derive(Clone, Copy)]
struct Rates {
    sent: f64,
    answered: f64,
}

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let lab = LabBuilder::new("bench-generator").machine("client").machine("server");
    let lab = lab.link("client", "server", &LinkSpec::default()).up()?;
    let ip = IpAddr::V4(lab.address_of("server", "client")?.ipv4);
    let mut config = Config::new([SocketAddr::new(ip, DNS), SocketAddr::new(ip, ECHO)]);
    config.workers = Some(1);
    config.cpus = Some([1].into_iter().collect());
    config.pin = true;
    config.io = IoChoice::Only(Io::Xdp);
    let server = lab.machine("server")?.run(|| Server::start(&config, |_| Answerer))??;
    let queries = tempfile::NamedTempFile::new().context("cannot create a file for the queries")?;
    std::fs::write(&queries, "a.example A\n").context("cannot write the queries")?;
    let file = queries.path().display().to_string();
    let kxdpgun = |batch: &str| kxdpgun(&lab, &ip.to_string(), &file, batch);
    let mut best: Option<(f64, &str)> = None;
    for batch in BATCHES {
        let runs = (0..3).map(|_| kxdpgun(batch)).collect::<Result<Vec<_>>>();
        let runs = runs.with_context(|| format!("batch {batch}"))?;
        let rate = quantile(runs.iter().map(|run| run.sent).collect(), 0.5);
        eprintln!("  kxdpgun, batch {batch}: {:.2} M/s", rate / 1e6);
        if best.is_none_or(|(most, _)| rate > most) {
            best = Some((rate, batch));
        }
    }
    let (_, batch) = best.context("five were tried")?;
    let (udpath, target) = (udpath()?, SocketAddr::new(ip, ECHO).to_string());
    for (engine, name) in ENGINES {
        let what = format!("{name} / kxdpgun (batch {batch}), requests sent by one core");
        let (mut of_theirs, mut of_ours) = (Vec::new(), Vec::new());
        let ratio = race(
            &what,
            0.03,
            6,
            || kxdpgun(batch).inspect(|run| of_theirs.push(run.answered)).map(|run| run.sent),
            || {
                ours(&lab, &udpath, &target, engine)
                    .inspect(|run| of_ours.push(run.answered))
                    .map(|run| run.sent)
            },
        )?;
        let (theirs, answered) = (quantile(of_theirs, 0.5), quantile(of_ours, 0.5));
        ensure!(theirs > 0.0 && answered > 0.0, "the server answered nothing");
        results.add(&Claim::ratio(&format!("generator.{engine}"), what, &ratio, Bound::AtLeast(AT_LEAST)));
        let what = format!("{name}, replies received by that core");
        let claim =
            Claim::new(&format!("generator.{engine}.replies"), what, answered, Unit::Rate, Bound::Shown);
        results.add(&claim.with(format!("kxdpgun {:.2} M/s", theirs / 1e6)));
    }
    drop(server);
    lab.down()?;
    Ok(())
}

fn kxdpgun(lab: &Lab, ip: &str, queries: &str, batch: &str) -> Result<Rates> {
    let port = DNS.to_string();
    let arguments = ["-t", SECONDS, "-Q", RATE, "-b", batch, "-F", "0", "-i", queries, "-p", &port, ip];
    let text = on_client(lab, "kxdpgun", &arguments);
    // kxdpgun leaves its program attached.
    on_client(lab, "ip", &["link", "set", "dev", "eth0", "xdp", "off"])?;
    let text = text?;
    let rate = |name: &str| {
        text.lines().find_map(|line| {
            let (_, rate) = line.strip_prefix(name)?.split_once('(')?;
            rate.split(' ').next()?.parse().ok()
        })
    };
    let rates = rate("total queries:").zip(rate("total replies:"));
    let (sent, answered) = rates.with_context(|| format!("kxdpgun printed no rates: {text}"))?;
    Ok(Rates { sent, answered })
}

fn ours(lab: &Lab, udpath: &str, target: &str, engine: &str) -> Result<Rates> {
    let seconds = format!("{SECONDS}s");
    let load = ["-c", "0", udpath, "load", "echo", target, "--engine", engine, "--threads", "1"];
    // Most are not answered: a short timeout keeps the table of open requests as small as in real use.
    let plan =
        ["--flows", "16", "--size", SIZE, "--rate", RATE, "--timeout", "1ms", "-d", &seconds, "--json"];
    let text = on_client_whatever(lab, "taskset", &[&load[..], &plan].concat())?;
    let result: serde_json::Value = serde_json::from_str(&text)?;
    let took = result["seconds"].as_f64().context("load printed no time")?;
    let count = |name: &str| {
        result["counts"][name].as_f64().with_context(|| format!("load printed no count '{name}'"))
    };
    Ok(Rates { sent: count("sent")? / took, answered: (count("ok")? + count("late")?) / took })
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

/// As [`on_client`], for a load whose requests are mostly lost: it exits with an error code, but prints its result.
fn on_client_whatever(lab: &Lab, program: &str, arguments: &[&str]) -> Result<String> {
    let mut command = lab.machine("client")?.command(program);
    let done = command.args(arguments).stdin(Stdio::null()).output()?;
    if done.stdout.is_empty() {
        bail!("{program} {} failed: {}", arguments.join(" "), String::from_utf8_lossy(&done.stderr));
    }
    Ok(String::from_utf8(done.stdout)?)
}
