//! What two safeguards of a server cost its rate, each against the same server without it: the rate limit of
//! `serve dns`, with queries that it lets through, and the look at the neighbour table for each reply of `--io xdp`.
//! The beds are those of [`versus`].

use anyhow::{Context, Result};
use udpath_load::template::Protocol;
use udpath_protocols::Options;
use udpath_protocols::dns::{DnsLoad, ENTRY};
use udpath_protocols::echo::EchoLoad;

use crate::bed::{serve, udpath};
use crate::results::Results;
use crate::versus::{self, SERVER_CPU, UDPATH, address, compare};

/// Lowest acceptable rate relative to the same server without the safeguard.
const WITHIN: f64 = 0.98;
/// The machine of the server without it.
const WITHOUT: &str = "without";
/// Names, each with an answer of its own: so many that none is asked for often enough to be limited.
const NAMES: u32 = 100_000;
const PORT: u16 = 53;

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot create a folder for the zone")?;
    let zone = folder.path().join("example.org.zone");
    let records = (0..NAMES).map(|number| {
        let [_, b, c, d] = number.to_be_bytes();
        format!("h{number} A 10.{b}.{c}.{d}\n")
    });
    let head = "$ORIGIN example.org.\n$TTL 300\n@ SOA ns admin 1 2 3 4 60\n@ NS ns\nns A 192.0.2.53\n";
    std::fs::write(&zone, head.to_owned() + &records.collect::<String>()).context("cannot write the zone")?;
    let zone = zone.display().to_string();

    let dns = ["dns", "--io", "shared", "--zone", &zone];
    let off = ["--responses-per-second", "off"];
    raced(results, "rate-limit", "serve dns with its rate limit / without", &dns, [&[], &off], &queries()?)?;
    let xdp = ["echo", "--io", "xdp"];
    let what = "serve echo --io xdp with --check-neighbours / without";
    let neighbours = [&["--check-neighbours"][..], &["--no-check-neighbours"]];
    raced(results, "neighbours", what, &xdp, neighbours, &EchoLoad::new(0))
}

/// Queries for all names of the zone.
fn queries() -> Result<DnsLoad> {
    let mut options = Options::default();
    for (name, value) in [("name", "h{}.example.org"), ("names", &NAMES.to_string())] {
        let spec = ENTRY.load_options.iter().find(|spec| spec.name == name);
        options.push(spec.with_context(|| format!("the load has no --{name}"))?, value);
    }
    Ok(DnsLoad::from_options(u64::from(std::process::id()), &options)?)
}

/// The rate of a server with a safeguard over that of one without.
fn raced(
    results: &mut Results,
    id: &str,
    what: &str,
    arguments: &[&str],
    [with, without]: [&[&str]; 2],
    protocol: &dyn Protocol,
) -> Result<()> {
    let lab = versus::lab(&format!("bench-{id}"), &[UDPATH, WITHOUT])?;
    let start = |machine: &str, more: &[&str]| {
        let bind = address(&lab, machine, PORT)?.to_string();
        let fixed = ["--workers", "1", "--cpus", SERVER_CPU, "--bind", &bind];
        serve(&lab, machine, &udpath()?, &[&["serve"], arguments, &fixed, more].concat())
    };
    let servers = (start(UDPATH, with)?, start(WITHOUT, without)?);
    let compared =
        compare(what, WITHOUT, |machine| Ok(versus::run(&lab, address(&lab, machine, PORT)?, protocol)?.tps));
    drop(servers);
    lab.down()?;
    results.add(&compared?.claim(&format!("safeguards.{id}"), what, WITHIN));
    Ok(())
}
