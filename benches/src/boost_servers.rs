//! `udpath boost` of six unmodified servers in Debian's default configuration: what it gains by changes around them, and what with
//! their own configuration.
//!
//! ```text
//!   client: the load, mostly from the driver (engine kernel)  == veth, two queues ==  server: nsd, knotd, unbound, named, ...
//! ```
//! Both machines share two CPUs: a server with two workers competes with its load. The gains are those that boost measures last,
//! from trials that chose nothing.

mod daemons;

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use udpath_lab::LabBuilder;
use udpath_lab::LinkSpec;

use crate::bed::udpath;
use crate::claim::{Bound, Claim, Unit};
use crate::race::quantile;
use crate::results::Results;
use daemons::{Daemon, Kind};

/// The median gain over the six that is required, with their configuration; and how many gain without.
const MEDIAN_AT_LEAST: f64 = 1.3;
const GAINS_AT_LEAST: f64 = 2.0;
/// The time for one server's search, without and with its configuration.
const BUDGETS: [&str; 2] = ["20s", "25s"];
/// Boost's own options: trials of 0.2 s, an interval of ±2 %, 10 blocks at most. A search takes half a minute.
const TRIALS: [&str; 6] = ["--duration", "200ms", "--bound", "2", "--blocks", "10"];

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
    ratio: f64,
    low: f64,
    high: f64,
    with: String,
}

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let mut gains = [Vec::new(), Vec::new()];
    for kind in Kind::ALL {
        for (at, allowed) in [Allowed::Around, Allowed::Configuration].into_iter().enumerate() {
            let gain = boosted(kind, allowed).with_context(|| format!("{} {allowed:?}", kind.name()))?;
            let (id, words) = match allowed {
                Allowed::Around => ("around", "changes around it"),
                Allowed::Configuration => ("configured", "its configuration too"),
            };
            let what = format!("boost of {}, {words} / as found", kind.name());
            let claim = Claim::new(
                &format!("boost_servers.{}_{id}", kind.name()),
                what,
                gain.ratio,
                Unit::Ratio,
                Bound::Shown,
            );
            results.add(&claim.within(gain.low, gain.high).with(gain.with.clone()));
            gains[at].push(gain);
        }
    }
    let [around, configured] = gains;
    let proven = around.iter().filter(|gain| gain.low > 1.0).count();
    let what = "servers of six with a proven gain by changes around them";
    results.add(&Claim::new(
        "boost_servers.around",
        what,
        proven as f64,
        Unit::Ratio,
        Bound::AtLeast(GAINS_AT_LEAST),
    ));
    let worse = configured.iter().filter(|gain| gain.high < 1.0).count();
    let median = quantile(configured.iter().map(|gain| gain.ratio).collect(), 0.5);
    let what = "median gain of six servers, their configuration too";
    let claim =
        Claim::new("boost_servers.median", what, median, Unit::Ratio, Bound::AtLeast(MEDIAN_AT_LEAST));
    results.add(&claim.with(format!("{worse} are slower than found")));
    Ok(())
}

/// One server, boosted in a lab of its own.
fn boosted(kind: Kind, allowed: Allowed) -> Result<Gain> {
    let link = LinkSpec::with_queues(2);
    let lab = LabBuilder::new("bench-boost").machine("client").machine("server");
    let lab = lab.link("client", "server", &link).up()?;
    let napi = lab.machine("server")?.towards("client")?.ensure_napi()?;
    let daemon = Daemon::start(&lab, kind)?;
    let machine = |name: &str| -> Result<String> { Ok(lab.machine(name)?.namespace().to_owned()) };
    let mut boost = std::process::Command::new(udpath()?);
    boost.args(["boost", "--json", "--no-profile", "--port", &kind.port().to_string()]);
    boost
        .args(["--netns", &machine("server")?, "--from", &machine("client")?, "--state"])
        .arg(daemon.path("journal"));
    boost.args(TRIALS);
    match allowed {
        Allowed::Around => boost.args(["--budget", BUDGETS[0]]),
        Allowed::Configuration => boost
            .args(["--budget", BUDGETS[1], "--allow", "config,restart", "--restart"])
            .arg(daemon.path("restart")),
    };
    boost.arg("--load").args(daemon.load(&lab)?);
    let output = boost.stdin(Stdio::null()).output().context("cannot start udpath boost")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "udpath boost failed: {said}");
    eprintln!("{}", said.trim_end());
    let result: Value = serde_json::from_slice(&output.stdout).context("boost printed no JSON")?;
    drop(daemon);
    drop(napi);
    lab.down()?;
    gain(&result).context("boost printed no gain")
}

fn gain(result: &Value) -> Option<Gain> {
    let kept = result["running"]["kept"].as_array()?;
    let names: Vec<&str> = kept.iter().filter_map(|helps| helps["name"].as_str()).collect();
    let figure = |name: &str| result["gain"][name].as_f64();
    let with = if names.is_empty() { "nothing shown to help".to_owned() } else { names.join(", ") };
    Some(Gain { ratio: figure("ratio")?, low: figure("low")?, high: figure("high")?, with })
}
