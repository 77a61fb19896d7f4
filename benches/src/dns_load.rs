//! `udpath load dns` against dnsperf: queries completed by one core, and the highest rate that each finds of knotd and
//! of NSD.
//!
//! ```text
//!   client: dnsperf, or `udpath load dns`  == veth, one queue ==  server: an answerer, knotd, NSD
//! ```
//! Both generators read the same file of 10,000 queries and check every reply: dnsperf its identifier and code, udpath
//! also the question. Three questions, each with the same server for both:
//! - What does one core complete over sockets? The server is the cheapest one: it returns the query with the response
//!   bit. Each generator has the number of queries in flight that suits it best, dnsperf also the number of threads;
//!   udpath with and without `--gso`.
//! - And through the xdp engine, to the same server over AF_XDP: queries that were answered, of both.
//! - Which rate does a real server hold? Its two workers share both CPUs with the generator, which leaves the more to
//!   them the less it takes itself; for the other questions the generator has CPU 0 and the server CPU 1. Both are
//!   closed loops, each with the number of queries in flight that completes most: udpath's kernel engine searches for
//!   it, dnsperf is tried with several and must lose no more than the search allows. The server's interface has NAPI,
//!   as that of a card.

use std::fmt::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use udpath_lab::{Lab, LabBuilder, LinkSpec};
use udpath_rig::{DnsProgram, DnsServer, DnsSpec};
use udpath_serve::{Config, Io, IoChoice, Server};

use crate::bed::{DnsAnswerer, udpath};
use crate::claim::{Bound, Claim};
use crate::race::{quantile, race};
use crate::results::Results;

/// How many more queries one core must complete, over sockets and over AF_XDP, and how much higher the rate found must
/// be.
const SOCKET_AT_LEAST: f64 = 2.0;
const XDP_AT_LEAST: f64 = 3.0;
const FOUND_AT_LEAST: f64 = 1.3;
/// Seconds of one run of either generator.
const SECONDS: &str = "2";
/// Largest share of queries without a reply at a rate that counts as held.
const LOSS: f64 = 0.001;
/// Names in the zone and queries in the file.
const NAMES: usize = 10_000;
/// dnsperf's clients (sockets), and the queries in flight that it is tried with.
const CLIENTS: &str = "16";
const IN_FLIGHT: [&str; 5] = ["32", "64", "128", "256", "512"];
/// Threads that dnsperf is tried with.
const THREADS: [&str; 2] = ["1", "2"];
/// udpath's flows, and the queries in flight per flow that it is tried with.
const FLOWS: &str = "16";
const PER_FLOW: [&str; 4] = ["4", "8", "16", "32"];
/// Port of the answerer.
const PORT: u16 = 5301;

/// The bed and the file of queries.
struct Race<'a> {
    lab: &'a Lab,
    /// CPUs of the generator.
    cpus: &'static str,
    udpath: String,
    queries: String,
}

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let lab = LabBuilder::new("bench-dns-load").machine("client").machine("server");
    let lab = lab.link("client", "server", &LinkSpec::default()).up()?;
    let file = tempfile::NamedTempFile::new().context("cannot create a file for the queries")?;
    let queries: String =
        (0..NAMES).map(|number| format!("h{}.example.test A\n", scattered(number))).collect();
    std::fs::write(&file, queries).context("cannot write the queries")?;
    let race = Race { lab: &lab, cpus: "0", udpath: udpath()?, queries: file.path().display().to_string() };
    race.completed_by_one_core(results, Io::Shared)?;
    race.completed_by_one_core(results, Io::Xdp)?;
    let race = Race { cpus: "0,1", ..race };
    for program in DnsProgram::ALL {
        race.highest_rate(results, program)?;
    }
    lab.down()?;
    Ok(())
}

/// The numbers below [`NAMES`] in an order that is not theirs: the factor has no divisor in common with 10,000.
fn scattered(number: usize) -> usize {
    number * 6_181 % NAMES
}

impl Race<'_> {
    /// Queries answered per second of what CPU 0 sends, with the answerer on `io`.
    fn completed_by_one_core(&self, results: &mut Results, io: Io) -> Result<()> {
        let at = SocketAddr::new(IpAddr::V4(self.lab.address_of("server", "client")?.ipv4), PORT);
        let mut config = Config::new([at]);
        config.workers = Some(1);
        config.cpus = Some([1].into_iter().collect());
        config.pin = true;
        config.io = IoChoice::Only(io);
        let server = self.lab.machine("server")?.run(|| Server::start(&config, |_| DnsAnswerer))??;
        let theirs = best("dnsperf", &self.dnsperfs(), |choice| Ok(self.dnsperf(at, choice)?.rate))?;
        let (socket, gso, xdp): (&[&str], &[&str], &[&str]) = (&[], &["--gso"], &["--engine", "xdp"]);
        let rows = match io {
            Io::Xdp => {
                vec![("dns_load.xdp_completed", "load dns (xdp engine)", xdp, Bound::AtLeast(XDP_AT_LEAST))]
            }
            _ => vec![
                ("dns_load.plain", "load dns (socket engine)", socket, Bound::AtLeast(SOCKET_AT_LEAST)),
                ("dns_load.gso", "load dns --gso (socket engine)", gso, Bound::Shown),
            ],
        };
        for (id, of, more, bound) in rows {
            let what = format!("{of} / dnsperf, queries completed by one core");
            let ours = best(of, &PER_FLOW, |per_flow| self.closed(at, per_flow, more))?;
            let dnsperf = || -> Result<f64> { Ok(self.dnsperf(at, theirs)?.rate) };
            let ratio = race(&what, 0.03, 6, dnsperf, || self.closed(at, ours, more))?;
            results.add(&Claim::ratio(id, what, &ratio, bound));
        }
        drop(server);
        Ok(())
    }

    /// What dnsperf is tried with.
    fn dnsperfs(&self) -> Vec<Dnsperf> {
        let all = |threads| IN_FLIGHT.map(|in_flight| Dnsperf { threads, in_flight });
        THREADS.into_iter().flat_map(all).collect()
    }

    /// The highest rate that a server of two workers holds, by `--find-max` and by dnsperf.
    fn highest_rate(&self, results: &mut Results, program: DnsProgram) -> Result<()> {
        let mut zone = String::from(
            "$ORIGIN example.test.\n$TTL 60\n@ SOA ns host 1 60 60 60 60\n@ NS ns\nns A 192.0.2.53\n",
        );
        for number in 0..NAMES {
            writeln!(zone, "h{number} A 198.18.{}.{}", number / 256, number % 256)?;
        }
        let (machine, asker, zones, cpus) = ("server", "client", &[("example.test", &zone[..])], None);
        let napi = self.lab.machine("server")?.towards("client")?.ensure_napi()?;
        let server =
            DnsServer::start(self.lab, &DnsSpec { program, machine, asker, zones, workers: 2, cpus });
        let (at, name) = (server.ipv4(), program.name());
        let held = |choice: Dnsperf| -> Result<f64> {
            let run = self.dnsperf(at, choice)?;
            Ok(if run.lost <= LOSS { run.rate } else { 0.0 })
        };
        let theirs = best("dnsperf", &self.dnsperfs(), held)?;
        let what = format!("load dns --find-max / the best of dnsperf, {name}");
        let (mut of_theirs, mut of_ours) = (Vec::new(), Vec::new());
        let ratio = race(
            &what,
            0.05,
            4,
            || held(theirs).inspect(|rate| of_theirs.push(*rate)),
            || self.found(at).inspect(|rate| of_ours.push(*rate)),
        )?;
        drop((server, napi));
        let [ours, theirs] = [of_ours, of_theirs].map(|rates| quantile(rates, 0.5) / 1e3);
        let claim =
            Claim::ratio(&format!("dns_load.find_max.{name}"), what, &ratio, Bound::AtLeast(FOUND_AT_LEAST));
        results.add(&claim.with(format!("{ours:.0} and {theirs:.0} k/s")));
        Ok(())
    }

    fn dnsperf(&self, at: SocketAddr, Dnsperf { threads, in_flight }: Dnsperf) -> Result<Run> {
        let (ip, port) = (at.ip().to_string(), at.port().to_string());
        let text = self.on_its_cpus(&[
            "dnsperf",
            "-s",
            &ip,
            "-p",
            &port,
            "-d",
            &self.queries,
            "-l",
            SECONDS,
            "-c",
            CLIENTS,
            "-T",
            threads,
            "-q",
            in_flight,
            "-t",
            "1",
        ])?;
        let figure = |name: &str| {
            let value =
                text.lines().find_map(|line| line.trim().strip_prefix(name)?.split_whitespace().next());
            let value = value.and_then(|value| value.parse::<f64>().ok());
            value.with_context(|| format!("dnsperf printed no `{name}`: {text}"))
        };
        let (sent, lost) = (figure("Queries sent:")?, figure("Queries lost:")?);
        Ok(Run { rate: figure("Queries per second:")?, lost: lost / sent.max(1.0) })
    }

    /// Transactions per second in a closed loop.
    fn closed(&self, at: SocketAddr, per_flow: &str, more: &[&str]) -> Result<f64> {
        let result = self.load(at, &[&["--inflight", per_flow], more].concat())?;
        result["tps"].as_f64().context("load printed no rate")
    }

    /// The highest rate that the search finds.
    fn found(&self, at: SocketAddr) -> Result<f64> {
        let loss = format!("{}%", LOSS * 100.0);
        let result = self.load(at, &["--engine", "kernel", "--find-max", "--loss", &loss])?;
        result["max_rate"].as_f64().context("the search found no rate")
    }

    /// The result of `udpath load dns`; an exit code that says that a server is overloaded is not an error.
    fn load(&self, at: SocketAddr, more: &[&str]) -> Result<serde_json::Value> {
        let (at, seconds) = (at.to_string(), format!("{SECONDS}s"));
        let load = [self.udpath.as_str(), "load", "dns", &at, "--queries", &self.queries, "--flows", FLOWS];
        // The kernel engine has no threads of its own.
        let threads: &[&str] = if more.contains(&"kernel") { &[] } else { &["--threads", "1"] };
        let text = self.on_its_cpus(&[&load[..], threads, &["-d", &seconds, "--json"], more].concat())?;
        let result: serde_json::Value = serde_json::from_str(&text)?;
        let counts = &result["counts"];
        let wrong =
            ["corrupt", "refused"].iter().find(|name| counts[**name].as_u64().is_some_and(|count| count > 0));
        ensure!(wrong.is_none(), "wrong replies: {counts}");
        Ok(result)
    }

    fn on_its_cpus(&self, arguments: &[&str]) -> Result<String> {
        let mut command = self.lab.machine("client")?.command("taskset");
        command.args(["-c", self.cpus]).args(arguments).stdin(Stdio::null());
        let done = command.output().with_context(|| format!("cannot run {}", arguments.join(" ")))?;
        if done.stdout.is_empty() {
            bail!("{} failed: {}", arguments.join(" "), String::from_utf8_lossy(&done.stderr));
        }
        Ok(String::from_utf8(done.stdout)?)
    }
}

/// A run of dnsperf.
struct Run {
    /// Answered queries per second.
    rate: f64,
    /// Share of queries without a reply.
    lost: f64,
}

/// Threads of dnsperf, and its queries in flight.
#[derive(Clone, Copy)]
struct Dnsperf {
    threads: &'static str,
    in_flight: &'static str,
}

impl fmt::Display for Dnsperf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with -T {}", self.in_flight, self.threads)
    }
}

/// The choice with the highest median rate of three runs.
fn best<C: Copy + fmt::Display>(of: &str, choices: &[C], rate: impl Fn(C) -> Result<f64>) -> Result<C> {
    let mut best: Option<(f64, C)> = None;
    for choice in choices {
        let runs = (0..3).map(|_| rate(*choice)).collect::<Result<Vec<_>>>();
        let median = quantile(runs.with_context(|| format!("{of}, {choice} in flight"))?, 0.5);
        eprintln!("  {of}, {choice} in flight: {:.0} k/s", median / 1e3);
        if best.is_none_or(|(most, _)| median > most) {
            best = Some((median, *choice));
        }
    }
    best.map(|(_, choice)| choice).context("one or more are tried")
}
