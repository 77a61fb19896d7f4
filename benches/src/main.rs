//! Measures every performance claim of udpath again on this machine.
//!
//! A claim is a ratio against a baseline in alternating runs (A B B A), or an amount of memory. `make bench` runs all;
//! `make bench BENCH=runtime` those whose name starts with that word. Exit code 1 if a claim does not hold here.
//!
//! | name | claim |
//! |---|---|
//! | `engine` | the in-kernel loop costs under 100 ns of CPU per transaction |
//! | `runtime` | `udpath serve` is within 3 % of a bare C loop that does the same system calls |
//! | `socket` | the socket engine sends at least 1.2 x what dnsperf sends per core |
//! | `generator` | the xdp engine sends at least 1.3 x what kxdpgun sends by one core |
//! | `memory` | `serve` stays under 32 MiB, `load` under 64 MiB, and neither grows |
//! | `snapshot` | 128 CPUs, 128 queues and 10,000 sockets are read in 500 ms and 64 MiB, this machine in 50 ms |
//! | `profile` | sampling every CPU costs under 1 % of a server's rate; a million samples are classed in a second |
//! | `profile_size` | a profile of 5 s shows its first screen within 6 s and stays under 64 MiB, also with what 128 CPUs write |
//! | `looking` | `top` and `export` take under 1 % of a CPU at a look each second, and under 5 % with 10,000 sockets |
//! | `steering` | serving a frame on another core costs under 60 ns of both cores; a given hash is cheaper than a computed one |
//! | `ladder_kernel` | the best kernel-socket rung is at least 1.45 x the first |
//! | `ladder_xdp` | over AF_XDP it is 3.5 x the first rung, and 2.5 x the best of kernel sockets |
//! | `epoch` | an epoch adds under 1.5 ns to a lookup; 8 x a read lock, 4 x a reference count, and beats crossbeam's |
//! | `two_queue` | two queues and bulk accounting deliver 3 x what one locked queue does under flood |
//! | `tracing` | tracing locks and drops leaves 0.97 of the transactions, all sources 0.88 |
//! | `testpmd_null` | one core serves 14.88 million 64-byte transactions a second, and 0.45 of what testpmd forwards unread |
//! | `testpmd_xdp` | `serve --io xdp` serves 1.05 x what testpmd answers on the same queue and core |

mod bed;
mod engine;
mod epoch;
mod generator;
mod ladder;
mod looking;
mod looped;
mod memory;
mod profile;
mod profile_size;
mod race;
mod runtime;
mod snapshot;
mod socket;
mod steady;
mod steering;
mod testpmd;
mod testpmd_null;
mod testpmd_xdp;
mod tracing;
mod two_queue;

use std::process::ExitCode;

use anyhow::Result;

/// One claim, measured.
pub(crate) struct Claim {
    /// The claim.
    pub(crate) what: String,
    /// The measured value, with its interval if it has one.
    pub(crate) measured: String,
    /// The required bound.
    pub(crate) bound: String,
    /// Does it hold?
    pub(crate) holds: bool,
}

type Bench = fn() -> Result<Vec<Claim>>;

const BENCHES: [(&str, Bench); 17] = [
    ("engine", engine::run),
    ("runtime", runtime::run),
    ("socket", socket::run),
    ("generator", generator::run),
    ("memory", memory::run),
    ("profile", profile::run),
    ("profile_size", profile_size::run),
    ("snapshot", snapshot::run),
    ("looking", looking::run),
    ("ladder_kernel", ladder::kernel),
    ("ladder_xdp", ladder::xdp),
    ("epoch", epoch::run),
    ("two_queue", two_queue::run),
    ("steering", steering::run),
    ("tracing", tracing::run),
    ("testpmd_null", testpmd_null::run),
    ("testpmd_xdp", testpmd_xdp::run),
];

fn main() -> ExitCode {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let mut all_hold = true;
    let mut ran = 0;
    for (name, bench) in BENCHES.iter().filter(|(name, _)| name.starts_with(wanted.as_str())) {
        ran += 1;
        eprintln!("{name} ...");
        match bench() {
            Ok(claims) => {
                for claim in claims {
                    all_hold &= claim.holds;
                    let verdict = if claim.holds { "holds" } else { "DOES NOT HOLD" };
                    println!("{:<58} {:<30} {:<14} {verdict}", claim.what, claim.measured, claim.bound);
                }
            }
            Err(error) => {
                eprintln!("{name}: {error:#}");
                return ExitCode::from(3);
            }
        }
    }
    if ran == 0 {
        let known: Vec<_> = BENCHES.iter().map(|(name, _)| *name).collect();
        eprintln!("no benchmark begins with '{wanted}'; known are {}", known.join(", "));
        return ExitCode::from(2);
    }
    if all_hold { ExitCode::SUCCESS } else { ExitCode::from(1) }
}
