//! Measures every performance claim of udpath again on this machine.
//!
//! A claim is a ratio against a baseline in alternating runs (A B B A), an amount of memory or a rate, with the bound that was
//! promised. `make bench` runs all and writes `benches/results/MACHINE-DATE.json`; `make bench BENCH=runtime` runs that one,
//! or those whose name starts with that word, and replaces their figures in the machine's newest file. The last line counts the
//! bounds that held and those that were missed.
//!
//! Exit codes: 0 every bound held; 1 some were missed, which is a result; 2 no such benchmark; 3 some could not run.
//!
//! | name | claim |
//! |---|---|
//! | `engine` | the in-kernel loop costs under 100 ns of CPU per transaction (130 ns with prebuilt requests), 128 and 256 in flight |
//! | `runtime` | `udpath serve` is within 3 % of a bare C loop that does the same system calls |
//! | `confine` | giving up privileges costs a server under 2 % of its rate |
//! | `socket` | the socket engine sends at least 1.2 x what dnsperf sends per core |
//! | `generator` | the xdp engine sends at least 1.3 x what kxdpgun sends by one core; on AF_XDP's own rings as well |
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
//! | `dns_load` | `load dns` sends 2 x what dnsperf does on one core over sockets (with `--gso`), 3 x over xdp, and finds 1.3 x its highest rate |
//! | `ntp` | `serve ntp` answers at least 3 x what chronyd does |
//! | `dns` | `serve dns` answers at least 1.5 x what knotd does over XDP, 1.2 x the better of knotd and nsd over sockets, in less memory than nsd |
//! | `radius` | `serve radius` answers at least 5 x what FreeRADIUS does |
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
mod results;
mod runtime;
mod safeguards;
mod sink;
mod snapshot;
mod socket;
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

use anyhow::Result;

use crate::results::Results;

/// Measures its claims and adds each as soon as it is known.
type Bench = fn(&mut Results) -> Result<()>;

const BENCHES: &[(&str, Bench)] = &[
    ("engine", engine::run),
    ("runtime", runtime::run),
    ("confine", confine::run),
    ("safeguards", safeguards::run),
    ("socket", socket::run),
    ("generator", generator::run),
    ("memory", memory::run),
    ("profile", profile::run),
    ("profile_size", profile_size::run),
    ("snapshot", snapshot::run),
    ("fleet", fleet::run),
    ("fleet_load", fleet_load::run),
    ("looking", looking::run),
    ("processes", processes::run),
    ("start", start::run),
    ("ladder", ladder::run),
    ("duet", duet::run),
    ("exhaustive", exhaustive::run),
    ("capacity", capacity::run),
    ("epoch", epoch::run),
    ("two_queue", two_queue::run),
    ("steering", steering::run),
    ("tracing", tracing::run),
    ("ntp", ntp::run),
    ("dns", dns::run),
    ("radius", radius::run),
    ("agreement", agreement::run),
    ("dns_load", dns_load::run),
    ("boost_servers", boost_servers::run),
    ("multiply", multiply::run),
    ("policy", policy::run),
    ("sink", sink::run),
    ("spread", spread::run),
    ("testpmd_null", testpmd_null::run),
    ("testpmd_xdp", testpmd_xdp::run),
];

fn main() -> ExitCode {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let is_name = BENCHES.iter().any(|(name, _)| *name == wanted);
    let matches = |name: &str| if is_name { name == wanted } else { name.starts_with(&wanted) };
    let chosen: Vec<_> = BENCHES.iter().filter(|(name, _)| matches(name)).collect();
    if chosen.is_empty() {
        let known: Vec<_> = BENCHES.iter().map(|(name, _)| *name).collect();
        eprintln!("no benchmark begins with '{wanted}'; known are {}", known.join(", "));
        return ExitCode::from(2);
    }
    let mut results = Results::new();
    for (name, bench) in &chosen {
        results.run(name, bench);
    }
    match results.write(&BENCHES.iter().map(|(name, _)| *name).collect::<Vec<_>>()) {
        Ok(path) => eprintln!("wrote {}; scripts/figures.sh copies it into README and docs", path.display()),
        Err(error) => {
            eprintln!("{error:#}");
            return ExitCode::from(3);
        }
    }
    println!("{}", results.summary());
    match (results.any_failed(), results.any_missed()) {
        (true, _) => ExitCode::from(3),
        (false, true) => ExitCode::from(1),
        (false, false) => ExitCode::SUCCESS,
    }
}
