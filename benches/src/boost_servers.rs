//! `udpath boost` of six unmodified servers in Debian's default configuration: what it gains by changes around them,
//! and what with their own configuration.
//!
//! ```text
//!   client: the load, mostly from the driver (engine kernel)  == veth, two queues ==  server: nsd, knotd, unbound, named, ...
//! ```
//! Both machines share two CPUs: a server with two workers competes with its load. The gains are those that boost
//! measures last, from trials that chose nothing. Beside each: what tuned's and perftune's settings do to the same
//! server, and whether what was kept holds after a restart and under another load.

mod daemons;
mod settings;

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use udpath_advise::result::{BoostResult, Ratio};
use udpath_lab::{Lab, LabBuilder, LinkSpec, Offloads};
use udpath_rig::DaemonProgram;

use crate::bed::udpath;
use crate::claim::{Bound, Claim, Unit};
use crate::race::median;
use crate::results::Results;
use daemons::{Daemon, Shape};
use settings::{PEERS, Place};

/// The servers.
const SERVERS: [DaemonProgram; 6] = [
    DaemonProgram::Nsd,
    DaemonProgram::Knotd,
    DaemonProgram::Unbound,
    DaemonProgram::Named,
    DaemonProgram::Freeradius,
    DaemonProgram::Chronyd,
];
/// The median gain over the six that is required, with their configuration; and how many gain without.
const MEDIAN_AT_LEAST: f64 = 1.3;
const GAINS_AT_LEAST: f64 = 2.0;
/// Share of kept configurations that may lose, and from which ratio on one does.
const LOST_BELOW: f64 = 0.05;
const LOST: f64 = 0.95;
/// The time for one server's search. Shorter: what comes last in the order of candidates is not tried.
const BUDGET: &str = "80s";
/// Boost's own options: trials of 0.2 s, an interval of ±2 %, 20 blocks at most. Fewer: a gain of a quarter is not
/// shown where a scheduler's choice moves single trials by a third.
const TRIALS: [&str; 6] = ["--duration", "200ms", "--bound", "2", "--blocks", "20"];

/// Which changes are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Allowed {
    /// Those around the server.
    Around,
    /// Its configuration too.
    Configuration,
}

/// A gain: the ratio with its interval, or 1 where nothing was shown to help; and what helps.
struct Gain {
    ratio: Ratio,
    with: String,
    /// What helps, as settings.
    settings: Vec<String>,
    /// What limited the server as found.
    limit: String,
}

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let mut gains = [Vec::new(), Vec::new()];
    let mut held = Vec::new();
    for kind in SERVERS {
        let lab = LabBuilder::new("bench-boost").machine("client").machine("server");
        let lab = lab.link("client", "server", &LinkSpec::with_queues(2)).up()?;
        let server = lab.machine("server")?.towards("client")?;
        let napi = match kind {
            // It may want the interface's one XDP program for itself. GRO gives NAPI as well, as every card has it.
            DaemonProgram::Knotd => {
                server.set_offloads(&Offloads { gro: true, ..server.offloads()? })?;
                None
            }
            _ => Some(server.ensure_napi()?),
        };
        let daemon = Daemon::start(&lab, kind)?;
        let name = kind.name();
        for (at, allowed) in [Allowed::Around, Allowed::Configuration].into_iter().enumerate() {
            let gain = boosted(&lab, &daemon, allowed).with_context(|| format!("{name} {allowed:?}"))?;
            let (id, words) = match allowed {
                Allowed::Around => ("around", "changes around it"),
                Allowed::Configuration => ("configured", "its configuration too"),
            };
            let what = format!("boost of {name}, {words} / as found");
            let id = format!("boost_servers.{name}_{id}");
            results.add(&Claim::ratio(&id, what, &gain.ratio, Bound::Shown).with(gain.with.clone()));
            if allowed == Allowed::Around {
                eprintln!("  {}", gain.limit);
            }
            gains[at].push(gain);
        }
        let place = Place { lab: &lab, daemon: &daemon };
        for peer in &PEERS {
            let ratio = place.with_peer(peer).with_context(|| format!("{name}, {}", peer.name))?;
            let id = format!("boost_servers.{name}_{}", peer.id);
            results.add(&Claim::ratio(
                &id,
                format!("{name} with {} / as found", peer.name),
                &ratio,
                Bound::Shown,
            ));
        }
        for (gains, id) in gains.iter().zip(["around", "configured"]) {
            let settings: Vec<&str> = gains
                .last()
                .map(|gain| gain.settings.iter().map(String::as_str).collect())
                .unwrap_or_default();
            if settings.is_empty() {
                continue;
            }
            let ratio = match place.under_another_load(&settings) {
                Ok(ratio) => ratio,
                Err(error) => {
                    eprintln!("  {name}: what was kept cannot be applied again: {error:#}");
                    held.push(false);
                    continue;
                }
            };
            let what =
                format!("{name}, what was kept ({id}), after a restart and under another load / as found");
            let id = format!("boost_servers.{name}_{id}_again");
            results.add(&Claim::ratio(&id, what, &ratio, Bound::Shown));
            held.push(ratio.ratio >= LOST);
        }
        drop(daemon);
        drop(napi);
        lab.down()?;
    }
    let [around, configured] = gains;
    let proven = around.iter().filter(|gain| gain.ratio.low > 1.0).count();
    let what = "servers of six with a proven gain by changes around them";
    results.add(&Claim::new(
        "boost_servers.around",
        what,
        proven as f64,
        Unit::Ratio,
        Bound::AtLeast(GAINS_AT_LEAST),
    ));
    let worse = configured.iter().filter(|gain| gain.ratio.high < 1.0).count();
    let median = median(configured.iter().map(|gain| gain.ratio.ratio).collect());
    let what = "median gain of six servers, their configuration too";
    let claim =
        Claim::new("boost_servers.median", what, median, Unit::Ratio, Bound::AtLeast(MEDIAN_AT_LEAST));
    results.add(&claim.with(format!("{worse} are slower than found")));
    if !held.is_empty() {
        let lost = held.iter().filter(|holds| !**holds).count();
        let what =
            "share of kept configurations that lose 5 % or more, after a restart and under another load";
        let share = lost as f64 / held.len() as f64;
        let claim = Claim::new("boost_servers.lost", what, share, Unit::Ratio, Bound::Below(LOST_BELOW));
        results.add(&claim.with(format!("{lost} of {}", held.len())));
    }
    Ok(())
}

/// One boost of a server.
fn boosted(lab: &Lab, daemon: &Daemon, allowed: Allowed) -> Result<Gain> {
    let machine = |name: &str| -> Result<String> { Ok(lab.machine(name)?.namespace().to_owned()) };
    let mut boost = std::process::Command::new(udpath()?);
    boost.args(["boost", "--json", "--no-profile", "--port", &daemon.port().to_string()]);
    boost
        .args(["--netns", &machine("server")?, "--from", &machine("client")?, "--state"])
        .arg(daemon.path("journal"));
    boost.args(TRIALS).args(["--budget", BUDGET]);
    if allowed == Allowed::Configuration {
        boost.args(["--allow", "config,restart", "--restart"]).arg(daemon.path("restart"));
    }
    boost.arg("--load").args(daemon.load(lab, Shape::Usual)?);
    let output = boost.stdin(Stdio::null()).output().context("cannot start udpath boost")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "udpath boost failed: {said}");
    eprintln!("{}", said.trim_end());
    let result: BoostResult = serde_json::from_slice(&output.stdout).context("boost printed no result")?;
    gain(&result).context("boost printed no gain")
}

fn gain(result: &BoostResult) -> Option<Gain> {
    let kept = &result.running.as_ref()?.kept;
    let names: Vec<&str> = kept.iter().map(|helps| helps.name.as_str()).collect();
    let with = if names.is_empty() { "nothing shown to help".to_owned() } else { names.join(", ") };
    let settings = kept.iter().flat_map(|helps| helps.settings.clone()).collect();
    let limit = result.diagnoses.first().map_or_else(String::new, |found| {
        let first = found.diagnosis.findings.first();
        let finding = first.map_or("no finding", |first| first.finding.id.as_str());
        format!("{} [{finding}]", found.diagnosis.headline)
    });
    Some(Gain { ratio: result.gain, with, settings, limit })
}
