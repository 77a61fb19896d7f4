//! Measures every performance claim of udpath again on this machine.
//!
//! A claim is a ratio against a baseline in alternating runs (A B B A), an amount of memory or a rate, with the bound
//! that was promised. `make bench` runs those of the headline's claims and writes `benches/results/MACHINE-DATE.json`
//! after each; `make bench-all` runs all. Both go on where they were interrupted: what this machine has measured at
//! this commit is not measured again. `make bench BENCH=runtime` measures that one, or those whose name starts with
//! that word, in any case. The last line counts the bounds that held, were missed, and are not decided, and the file's
//! figures that are stale.
//!
//! Exit codes: 0 every bound held; 1 some did not, which is a result; 2 no such benchmark; 3 some could not run.
//!
//! | name | claim |
//! |---|---|
//! | `engine` | the in-kernel loop costs under 100 ns of CPU per transaction (130 ns with prebuilt requests of NTP and DNS), 128 and 256 in flight |
//! | `runtime` | `udpath serve` is within 3 % of a bare C loop that does the same system calls |
//! | `confine` | giving up privileges costs a server under 2 % of its rate |
//! | `socket` | the socket engine sends at least 1.2 x what dnsperf sends per core |
//! | `generator` | the xdp engine sends at least 1.3 x what kxdpgun sends by one core; on AF_XDP's own rings as well |
//! | `latency` | latencies of 20 us to 40 ms are within 1 % or 2 us of the truth on the wire, of kernel sockets within 1 % or 20 us |
//! | `memory` | at a million transactions/s `serve` stays under 32 MiB, `load` under 64 MiB, and neither grows |
//! | `snapshot` | 128 CPUs, 128 queues and 10,000 sockets are read in 500 ms and 64 MiB, this machine in 50 ms |
//! | `profile` | each of the processes `udpath profile` and `udpath diagnose` costs a server under 1 % of its rate; a million samples are classed in a second |
//! | `profile_size` | a profile of 5 s shows its first screen within 6 s and stays under 64 MiB, also with what 128 CPUs write |
//! | `fleet` | `fleet report` reads 1,000 captures in 10 s and 256 MiB |
//! | `fleet_load` | a fleet's load has 0.99 of the rate of the same load without one; 64 agents start within a millisecond |
//! | `looking` | `top` and `export` take under 1 % of a CPU at a look each second, also with 10,000 sockets |
//! | `processes` | `show`, `top` and `export`: from start to last byte, and CPU time per look |
//! | `steering` | serving a frame on another core costs under 60 ns of both cores; a given hash is cheaper than a computed one |
//! | `start` | `udpath --version` takes under 20 ms from its start to its exit |
//! | `ladder` | best kernel-socket rung >= 1.45 x shared; AF_XDP >= 3.5 x shared and >= 2.5 x the best kernel-socket rung |
//! | `duet` | how much narrower the interval of two servers measured at once is than in turn; no bound |
//! | `exhaustive` | `boost` finds 0.97 of the best of 200 combinations, by a third of the trials |
//! | `capacity` | the model is within 8 % of rungs that it was not calibrated on, and within 20 % of published factors |
//! | `epoch` | an epoch adds under 1.5 ns to a lookup; 8 x a read lock, 4 x a reference count, and beats crossbeam's |
//! | `two_queue` | two queues and bulk accounting deliver 3 x what one locked queue does under a flood of two producers |
//! | `agreement` | the rates of `load` are within 5 % of sockperf's ping-pong and of iperf3's streams |
//! | `tracing` | tracing locks and drops leaves 0.97 of the transactions, all sources 0.8 |
//! | `dns_load` | `load dns` completes 2 x what dnsperf does on one core over sockets, 3 x over xdp, and finds 1.3 x its highest rate |
//! | `ntp` | `serve ntp` answers at least 3 x what chronyd does, over AF_XDP and over kernel sockets |
//! | `dns` | `serve dns` answers at least 1.5 x what knotd does over XDP, 1.2 x the better of knotd and nsd over sockets, in less memory than nsd |
//! | `radius` | `serve radius` answers at least 5 x what FreeRADIUS does, over AF_XDP and over kernel sockets |
//! | `reload` | no request is lost while `serve dns` reads a million names anew, and `serve radius` 100,000 users, at 100,000 requests/s |
//! | `boost_servers` | `boost` shows a gain for two of six servers of Debian by changes around them, and a median of 1.3 x with their configuration |
//! | `multiply` | two instances of chronyd, FreeRADIUS, a Python echo and nfcapd serve at least 1.8 x what one does; none is lost when one comes or goes |
//! | `policy` | a socket policy adds nothing to a datagram: an interval around 0, narrower than 1 % of its cost |
//! | `safeguards` | the rate limit of `serve dns` and `--check-neighbours` cost a server under 2 % of its rate each |
//! | `sink` | what receiving costs by recvfrom, recvmsg and recvmmsg; no bound |
//! | `spread` | four sockets get 25 % +- 2 of one flow each, lose nothing at 3 x the limit of one; least loaded has 0.7 of round robin's p99 if a reader slows |
//! | `testpmd_null` | one core serves 14.88 million 64-byte transactions a second, and 0.45 of what testpmd forwards unread |
//! | `testpmd_xdp` | `serve --io xdp` serves 1.05 x what testpmd answers on the same queue and core |

#![allow(clippy::disallowed_methods, reason = "a program of measurements")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program of measurements")]

mod agreement;
mod bed;
mod boost_servers;
mod capacity;
mod claim;
mod confine;
mod dns;
mod dns_load;
mod duet;
mod engine;
mod epoch;
mod exhaustive;
mod fleet;
mod fleet_load;
mod generator;
mod ladder;
mod latency;
mod looking;
mod looped;
mod memory;
mod multiply;
mod ntp;
mod policy;
mod processes;
mod profile;
mod profile_size;
mod race;
mod radius;
mod reload;
mod results;
mod runtime;
mod safeguards;
mod sink;
mod snapshot;
mod socket;
mod sources;
mod spread;
mod start;
mod steady;
mod steering;
mod testpmd;
mod testpmd_null;
mod testpmd_xdp;
mod tracing;
mod two_queue;
mod versus;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::results::Results;
use crate::sources::Sources;

/// Measures its claims and adds each as soon as it is known.
type Measure = fn(&mut Results) -> Result<()>;

/// A benchmark.
struct Bench {
    name: &'static str,
    run: Measure,
    /// Groups of what it measures: crates, or files. Its figures are stale once these have changed (sources.rs). What
    /// it only uses, such as the lab's links, is left out.
    measures: &'static [&'static [&'static str]],
    /// Part of `make bench`, which takes an hour at most; `make bench-all` runs the others as well.
    headline: bool,
}

const fn bench(name: &'static str, run: Measure, measures: &'static [&'static [&'static str]]) -> Bench {
    Bench { name, run, measures, headline: true }
}

impl Bench {
    /// It takes minutes, for a claim that the first pages do not make.
    const fn long(self) -> Self {
        Self { headline: false, ..self }
    }

    fn sources(&self) -> Result<Sources> {
        Sources::new(self.name, self.measures.iter().copied().flatten().copied())
    }
}

/// The datapath of servers, and that of loads.
const SERVE: &[&str] = &["serve", "protocols", "stack", "steer", "bpf"];
const LOAD: &[&str] = &["load", "protocols", "stack", "steer", "bpf"];
/// What looks at a machine again and again.
const WATCHERS: &[&str] = &["host", "netlink", "files", "report"];

const BENCHES: &[Bench] = &[
    bench("engine", engine::run, &[LOAD]),
    bench("runtime", runtime::run, &[SERVE, &["benches/bare_echo.c"]]),
    bench("confine", confine::run, &[SERVE, &["crates/cli/src/confine.rs", "crates/cli/src/confine"]]),
    bench("safeguards", safeguards::run, &[SERVE, LOAD]),
    bench("socket", socket::run, &[LOAD]),
    bench("generator", generator::run, &[LOAD]),
    bench("latency", latency::run, &[LOAD]),
    bench("memory", memory::run, &[SERVE, LOAD]),
    bench("profile", profile::run, &[WATCHERS, &["profile", "bpf", "advise"]]).long(),
    bench("profile_size", profile_size::run, &[&["profile", "bpf", "report"]]),
    bench("snapshot", snapshot::run, &[&["host", "files"]]),
    bench("fleet", fleet::run, &[&["fleet", "host", "advise", "report"]]),
    bench("fleet_load", fleet_load::run, &[LOAD, &["fleet"]]).long(),
    bench("looking", looking::run, &[WATCHERS]),
    bench("processes", processes::run, &[WATCHERS]),
    bench("start", start::run, &[&["cli"]]),
    bench("ladder", ladder::run, &[SERVE, LOAD, &["lab"]]),
    bench("duet", duet::run, &[SERVE, LOAD, &["lab"]]).long(),
    bench("exhaustive", exhaustive::run, &[SERVE, LOAD, &["advise"]]).long(),
    bench("capacity", capacity::run, &[SERVE, LOAD, &["model"]]).long(),
    bench("epoch", epoch::run, &[&["stack"]]),
    bench("two_queue", two_queue::run, &[&["stack", "experiment"]]),
    bench("steering", steering::run, &[&["stack", "steer"]]),
    bench("tracing", tracing::run, &[&["profile", "bpf"]]).long(),
    bench("ntp", ntp::run, &[SERVE, LOAD]),
    bench("dns", dns::run, &[SERVE, LOAD]),
    bench("radius", radius::run, &[SERVE, LOAD]),
    bench("reload", reload::run, &[SERVE]).long(),
    bench("agreement", agreement::run, &[LOAD]).long(),
    bench("dns_load", dns_load::run, &[LOAD]),
    bench("boost_servers", boost_servers::run, &[&["advise", "tune", "load"]]).long(),
    bench("multiply", multiply::run, &[&["multiply"]]),
    bench("policy", policy::run, &[&["tune", "bpf"]]).long(),
    bench("sink", sink::run, &[SERVE]).long(),
    bench("spread", spread::run, &[&["bpf"]]),
    bench("testpmd_null", testpmd_null::run, &[SERVE]),
    bench("testpmd_xdp", testpmd_xdp::run, &[SERVE]),
];

/// What the arguments ask for.
struct Wanted {
    /// All benchmarks, not the headline's alone.
    all: bool,
    /// A benchmark, or the beginning of the names of some.
    name: Option<String>,
}

impl Wanted {
    fn read(arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut wanted = Self { all: false, name: None };
        for argument in arguments {
            match argument.as_str() {
                "--all" => wanted.all = true,
                option if option.starts_with('-') => {
                    bail!("unknown option '{option}'; expected --all or a name")
                }
                _ if wanted.name.is_some() => bail!("'{argument}' is a second name; expected one"),
                _ => wanted.name = Some(argument),
            }
        }
        Ok(wanted)
    }

    fn chosen(&self) -> Result<Vec<&'static Bench>> {
        let Some(name) = &self.name else {
            return Ok(BENCHES.iter().filter(|bench| self.all || bench.headline).collect());
        };
        let exact = BENCHES.iter().any(|bench| bench.name == name);
        let matches = |bench: &&Bench| if exact { bench.name == name } else { bench.name.starts_with(name) };
        let chosen: Vec<_> = BENCHES.iter().filter(matches).collect();
        if chosen.is_empty() {
            let known: Vec<_> = BENCHES.iter().map(|bench| bench.name).collect();
            bail!("no benchmark begins with '{name}'; known are {}", known.join(", "));
        }
        Ok(chosen)
    }
}

fn main() -> ExitCode {
    let wanted = Wanted::read(std::env::args().skip(1)).and_then(|wanted| Ok((wanted.chosen()?, wanted)));
    let (chosen, wanted) = match wanted {
        Ok(wanted) => wanted,
        Err(error) => {
            eprintln!("{error:#}");
            return ExitCode::from(2);
        }
    };
    match measure(&chosen, wanted.name.is_some()) {
        Ok(results) => {
            println!("{}", results.summary());
            match (results.any_failed(), results.all_held()) {
                (true, _) => ExitCode::from(3),
                (false, false) => ExitCode::from(1),
                (false, true) => ExitCode::SUCCESS,
            }
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(3)
        }
    }
}

/// Runs those that have no figures of this commit yet, or all of them, and writes the file after each: a run that is
/// interrupted goes on where it was.
fn measure(chosen: &[&Bench], again: bool) -> Result<Results> {
    let order: Vec<_> = BENCHES.iter().map(|bench| bench.name).collect();
    let mut results = Results::new(&order)?;
    for bench in chosen {
        // Before it runs: what is measured is what was there then.
        let sources = bench.sources()?;
        if !again && results.has(bench.name, &sources) {
            eprintln!("{}: measured at this commit", bench.name);
            continue;
        }
        results.run(bench.name, sources, bench.run);
        let path = results.write()?;
        eprintln!("wrote {}; scripts/figures.sh copies it into README and docs", path.display());
    }
    Ok(results)
}
