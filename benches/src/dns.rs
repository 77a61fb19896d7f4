//! `udpath serve dns` against knotd and nsd: replies per second to the same queries, and memory.
//!
//! ```text
//!   client ══ veth, one queue ══▸ machine udpath:  udpath serve dns, one worker on CPU 1
//!      ├───── veth, one queue ══▸ machine knot:    knotd, one worker on CPU 1
//!      └───── veth, one queue ══▸ machine nsd:     nsd, one server on CPU 1       (sockets only)
//! ```
//! The zone has 100,000 names with an address each; half of the queries are for names in it, at random, and half for names that
//! are not. The load is a closed loop with the xdp engine on CPU 0, the same for all, which checks that each reply repeats its
//! question and has the right code. With `xdp`, knotd listens by AF_XDP too; with sockets, the baseline is the better of knotd and
//! nsd.
//!
//! Memory is that of a zone of a million names after the start, all processes of a server together, shared pages counted once.

mod asker;
mod servers;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use udpath_lab::{Lab, LabBuilder, LinkSpec};
use udpath_load::Engine;
use udpath_load::plan::{Arrivals, Plan};

use crate::bed::FLOWS;
use crate::claim::{Bound, Claim, Unit};
use crate::race::{pin, quantile, race};
use crate::results::Results;

use asker::Asker;
use servers::{Kind, Served, target};

/// Relative to knotd with XDP, and to the better of knotd and nsd with sockets.
const AT_LEAST_XDP: f64 = 1.5;
const AT_LEAST_SOCKETS: f64 = 1.2;
/// Names in the zones of the races and of the memory's comparison.
const NAMES: u32 = 100_000;
const MANY_NAMES: u32 = 1_000_000;
/// CPU of the generator.
const CLIENT_CPU: usize = 0;
/// Requests in flight per flow: 128 together. Lower: servers wait for requests. Higher: at 256 the default receive buffer of a socket
/// overflows.
const INFLIGHT: u32 = 2;
/// Length of one run.
const RUN: Duration = Duration::from_secs(1);
/// Highest share of lost replies.
const LOST: f64 = 0.001;
/// Longest time to load a zone of a million names.
const LOAD_TIME: Duration = Duration::from_secs(120);

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot create a folder for the zone")?;
    servers::write_zone(folder.path(), NAMES)?;
    // A lab for each: the XDP program of a knotd that is killed stays with its interface.
    in_lab(|lab| over_xdp(results, lab, folder.path()))?;
    in_lab(|lab| over_sockets(results, lab, folder.path()))?;
    servers::write_zone(folder.path(), MANY_NAMES)?;
    in_lab(|lab| memory(results, lab, folder.path()))
}

/// Runs `part` in a lab of its own.
fn in_lab(part: impl FnOnce(&Lab) -> Result<()>) -> Result<()> {
    let one = LinkSpec::default();
    let mut lab = LabBuilder::new("bench-dns").machine("client");
    for kind in Kind::ALL {
        lab = lab.machine(kind.machine()).link("client", kind.machine(), &one);
    }
    let lab = lab.up()?;
    let done = part(&lab);
    lab.down()?;
    done
}

/// Rates over AF_XDP.
fn over_xdp(results: &mut Results, lab: &Lab, folder: &Path) -> Result<()> {
    let what = "serve dns --io xdp / knotd with XDP, one core";
    let servers =
        [Served::start(lab, Kind::Udpath, folder, true)?, Served::start(lab, Kind::Knot, folder, true)?];
    let ratio = compare(lab, what, Kind::Knot)?;
    drop(servers);
    results.add(&ratio.claim("dns.xdp", what, AT_LEAST_XDP));
    Ok(())
}

/// Rates over sockets.
fn over_sockets(results: &mut Results, lab: &Lab, folder: &Path) -> Result<()> {
    let servers = Kind::ALL.map(|kind| Served::start(lab, kind, folder, false));
    let servers = servers.into_iter().collect::<Result<Vec<_>>>()?;
    let mut best = (0.0, Kind::Knot);
    for kind in [Kind::Knot, Kind::Nsd] {
        let rates = (0..3).map(|_| rate(lab, kind)).collect::<Result<Vec<_>>>()?;
        let rate = quantile(rates, 0.5);
        eprintln!("  {}, sockets: {:.0} k/s", kind.machine(), rate / 1e3);
        if rate > best.0 {
            best = (rate, kind);
        }
    }
    let what = format!("serve dns over sockets / {}, one core", best.1.machine());
    let ratio = compare(lab, &what, best.1)?;
    drop(servers);
    results.add(&ratio.claim("dns.sockets", &what, AT_LEAST_SOCKETS));
    Ok(())
}

/// A race that was run, and the median rates of both.
struct Compared {
    ratio: udpath_advise::result::Ratio,
    ours: f64,
    theirs: f64,
}

impl Compared {
    fn claim(&self, id: &str, what: &str, at_least: f64) -> Claim {
        let rates = format!("{:.0} and {:.0} k/s", self.ours / 1e3, self.theirs / 1e3);
        Claim::ratio(id, what, &self.ratio, Bound::AtLeast(at_least)).with(rates)
    }
}

fn compare(lab: &Lab, what: &str, baseline: Kind) -> Result<Compared> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let measured = |kind: Kind, rates: &mut Vec<f64>| -> Result<f64> {
        let rate = rate(lab, kind).with_context(|| format!("against {}", kind.machine()))?;
        rates.push(rate);
        Ok(rate)
    };
    let ratio =
        race(what, 0.03, 12, || measured(baseline, &mut theirs), || measured(Kind::Udpath, &mut ours))?;
    Ok(Compared { ratio, ours: quantile(ours, 0.5), theirs: quantile(theirs, 0.5) })
}

/// Valid transactions per second with one of the servers.
fn rate(lab: &Lab, kind: Kind) -> Result<f64> {
    let asker = Asker::new(NAMES);
    let plan = Plan {
        flows: FLOWS,
        arrivals: Arrivals::Closed { inflight: INFLIGHT },
        size: asker::SIZE,
        duration: RUN,
        warmup: Duration::from_millis(200),
        timeout: Duration::from_millis(200),
        ..Plan::new(target(lab, kind)?)
    };
    let never = std::sync::atomic::AtomicBool::new(false);
    let result = lab.machine("client")?.run(|| {
        pin(CLIENT_CPU)?;
        udpath_load::run(&plan, Engine::Xdp, &asker, &mut |_| (), &never).context("the load")
    })??;
    let counts = &result.counts;
    ensure!(counts.ok > 0, "nothing was answered");
    ensure!(counts.corrupt + counts.wrong_flow + counts.duplicate == 0, "wrong replies: {counts:?}");
    ensure!((counts.lost as f64) < LOST * counts.ok as f64, "too many were lost: {counts:?}");
    Ok(result.tps)
}

/// Memory with a million names, one server after the other.
fn memory(results: &mut Results, lab: &Lab, folder: &Path) -> Result<()> {
    let mut used = Vec::new();
    for kind in [Kind::Udpath, Kind::Nsd] {
        let begun = Instant::now();
        let server = Served::start(lab, kind, folder, false)?;
        ensure!(begun.elapsed() < LOAD_TIME, "{} took too long to load", kind.machine());
        used.push(server.memory()? / f64::from(1 << 20));
    }
    let [ours, theirs] = used[..] else { unreachable!("two servers were started") };
    let what = "memory of serve dns / nsd, a zone of a million names";
    let claim = Claim::new("dns.memory", what, ours / theirs, Unit::Ratio, Bound::Below(1.0));
    results.add(&claim.with(format!("{ours:.0} and {theirs:.0} MiB")));
    Ok(())
}
