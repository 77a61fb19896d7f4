//! `udpath serve dns` against knotd and nsd: replies per second to the same queries, and memory.
//!
//! The zone has 100,000 names with an address each; half of the queries are for names in it, in random order, and half
//! for names that are not. With `xdp`, knotd listens by AF_XDP too; with sockets, the baseline is the better of knotd
//! and nsd. Each server has one worker. The beds are those of [`versus`].
//!
//! Memory is that of a zone of a million names after the start, all processes of a server together, shared pages
//! counted once.

pub(crate) mod servers;

use std::path::Path;

use anyhow::{Context, Result, ensure};
use udpath_lab::Lab;
use udpath_load::result::LoadResult;
use udpath_protocols::Options;
use udpath_protocols::dns::{DnsLoad, ENTRY};

use crate::claim::{Bound, Claim, Unit};
use crate::race::quantile;
use crate::results::Results;
use crate::versus::{self, compare};

use servers::{Kind, Served, target};

/// Relative to knotd with XDP, and to the better of knotd and nsd with sockets.
const AT_LEAST_XDP: f64 = 1.5;
const AT_LEAST_SOCKETS: f64 = 1.2;
/// Names in the zones of the comparisons of rates and of memory.
const NAMES: u32 = 100_000;
const MANY_NAMES: u32 = 1_000_000;
/// Runs of each peer that decide which is the better one.
const TRIES: usize = 3;
/// Share of replies with each of the two codes, at least: half of the names exist, and a server that gave one code for
/// all would be fast and wrong.
const SHARE: f64 = 0.45;

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot create a folder for the zone")?;
    servers::write_zone(folder.path(), NAMES)?;
    // All names of the zone; every second query is for a name below it that does not exist.
    let load = load(&[("name", "h{}.example.org"), ("names", &NAMES.to_string()), ("missing", "50")])?;
    // A lab for each: the XDP program of a knotd that is killed stays with its interface.
    in_lab(|lab| over_xdp(results, &load, lab, folder.path()))?;
    in_lab(|lab| over_sockets(results, &load, lab, folder.path()))?;
    servers::write_zone(folder.path(), MANY_NAMES)?;
    in_lab(|lab| memory(results, lab, folder.path()))
}

/// Runs `part` in a lab of its own.
fn in_lab(part: impl FnOnce(&Lab) -> Result<()>) -> Result<()> {
    let lab = versus::lab("bench-dns", &Kind::ALL.map(Kind::machine))?;
    let done = part(&lab);
    lab.down()?;
    done
}

/// The load with these options.
pub(crate) fn load(of: &[(&str, &str)]) -> Result<DnsLoad> {
    let mut options = Options::default();
    for (name, value) in of {
        let spec = ENTRY.load_options.iter().find(|spec| spec.name == *name);
        options.push(spec.with_context(|| format!("the load has no --{name}"))?, value);
    }
    Ok(DnsLoad::from_options(u64::from(std::process::id()), &options)?)
}

/// Rates over AF_XDP.
fn over_xdp(results: &mut Results, load: &DnsLoad, lab: &Lab, folder: &Path) -> Result<()> {
    let what = "serve dns --io xdp / knotd with XDP, one core";
    let servers =
        [Served::start(lab, Kind::Udpath, folder, true)?, Served::start(lab, Kind::Knot, folder, true)?];
    let compared = compare(what, Kind::Knot.machine(), |machine| rate(lab, machine, load))?;
    drop(servers);
    results.add(&compared.claim("dns.xdp", what, AT_LEAST_XDP));
    Ok(())
}

/// Rates over sockets.
fn over_sockets(results: &mut Results, load: &DnsLoad, lab: &Lab, folder: &Path) -> Result<()> {
    let servers = Kind::ALL.map(|kind| Served::start(lab, kind, folder, false));
    let servers = servers.into_iter().collect::<Result<Vec<_>>>()?;
    let mut better = (0.0, "");
    for machine in [Kind::Knot, Kind::Nsd].map(Kind::machine) {
        let rates = (0..TRIES).map(|_| rate(lab, machine, load)).collect::<Result<Vec<_>>>()?;
        let rate = quantile(rates, 0.5);
        eprintln!("  {machine}, sockets: {:.0} k/s", rate / 1e3);
        if rate > better.0 {
            better = (rate, machine);
        }
    }
    let what = format!("serve dns over sockets / {}, one core", better.1);
    let compared = compare(&what, better.1, |machine| rate(lab, machine, load))?;
    drop(servers);
    results.add(&compared.claim("dns.sockets", &what, AT_LEAST_SOCKETS));
    Ok(())
}

/// Valid transactions per second with the server on `machine`.
fn rate(lab: &Lab, machine: &str, load: &DnsLoad) -> Result<f64> {
    let result = versus::run(lab, target(lab, machine)?, load)?;
    let share = |code: &str| share(&result, code);
    ensure!(share("NOERROR") > SHARE && share("NXDOMAIN") > SHARE, "wrong codes: {:?}", result.kinds);
    Ok(result.tps)
}

/// The share of replies with this code.
fn share(result: &LoadResult, code: &str) -> f64 {
    let count = |wanted: Option<&str>| -> u64 {
        let kinds = result.kinds.iter().filter(|kind| wanted.is_none_or(|name| kind.name == name));
        kinds.map(|kind| kind.count).sum()
    };
    count(Some(code)) as f64 / count(None).max(1) as f64
}

/// Memory with a million names, one server after the other.
fn memory(results: &mut Results, lab: &Lab, folder: &Path) -> Result<()> {
    let used =
        |kind| -> Result<f64> { Ok(Served::start(lab, kind, folder, false)?.memory()? / f64::from(1 << 20)) };
    let (ours, nsd) = (used(Kind::Udpath)?, used(Kind::Nsd)?);
    let what = "memory of serve dns / nsd, a zone of a million names";
    let claim = Claim::new("dns.memory", what, ours / nsd, Unit::Ratio, Bound::Below(1.0));
    results.add(&claim.with(format!("{ours:.0} and {nsd:.0} MiB")));
    Ok(())
}
