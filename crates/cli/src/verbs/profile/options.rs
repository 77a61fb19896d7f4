//! From the arguments to what is sampled, and whom it is about.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use udpath_host::Snapshot;
use udpath_host::namespace::Place;
use udpath_profile::facts::Focus;
use udpath_profile::trace::Source;
use udpath_steer::CpuSet;

use super::Args;
use crate::exit::Failure;
use crate::verbs::load::units;

/// Shortest and longest time. Shorter: a few hundred samples say nothing; longer: slices of the time line fill memory.
const LENGTH: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3600));
/// Highest rate of samples. Higher: sampling is what is measured.
const FASTEST: u32 = 20_000;

/// A length of time.
pub(super) fn length(text: &str) -> Result<Duration, String> {
    let length = units::time(text)?;
    if (LENGTH.0..=LENGTH.1).contains(&length) { Ok(length) } else { Err("give 100ms to 1h".to_owned()) }
}

/// A rate of samples.
pub(super) fn rate(text: &str) -> Result<u32, String> {
    let rate = text.parse().ok().filter(|rate| (1..=FASTEST).contains(rate));
    rate.ok_or_else(|| format!("give 1 to {FASTEST} samples a second of each CPU"))
}

/// What is traced beside the samples.
#[derive(Debug, Clone, Default)]
pub(super) struct Traced(pub(super) BTreeSet<Source>);

/// `all`, `none`, or names between commas.
pub(super) fn traced(text: &str) -> Result<Traced, String> {
    match text {
        "all" => Ok(Traced(Source::ALL.into())),
        "none" => Ok(Traced::default()),
        list => list.split(',').map(|name| name.trim().parse()).collect::<Result<_, _>>().map(Traced),
    }
}

/// The namespace whose sockets and counters are read: as told, or that of the process it is about.
pub(super) fn place(args: &Args) -> Result<Place, Failure> {
    if let Some(pid) = args.pid
        && !Path::new(&format!("/proc/{pid}")).is_dir()
    {
        return Err(Failure::Usage(format!("--pid {pid}: there is no such process")));
    }
    Ok(match (&args.netns, args.pid) {
        (Some(name), _) => Place::Named(name.clone()),
        // Entering takes rights, and is only worth them where it is another one.
        (None, Some(pid)) if !is_here(pid) => Place::Process(pid),
        _ => Place::Here,
    })
}

/// Is a process in this network namespace, or may that not be seen?
fn is_here(pid: u32) -> bool {
    let namespace = |whose: &str| std::fs::read_link(format!("/proc/{whose}/ns/net")).ok();
    namespace(&pid.to_string()).is_none_or(|its| Some(its) == namespace("self"))
}

/// Whom the profile is about.
pub(super) fn focus(args: &Args, now: &Snapshot) -> Result<Focus, Failure> {
    let Some(port) = args.port.map(std::num::NonZeroU16::get) else {
        return Ok(Focus { port: None, pids: args.pid.into_iter().collect() });
    };
    let sockets: Vec<_> = now.sockets.list.iter().filter(|socket| socket.local.port() == port).collect();
    if sockets.is_empty() {
        return Err(Failure::Usage(format!(
            "--port {port}: no UDP socket is bound to it; `udpath show` lists those there are"
        )));
    }
    let mut pids: Vec<u32> =
        sockets.iter().flat_map(|socket| &socket.owners).map(|owner| owner.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    Ok(Focus { port: Some(port), pids })
}

/// The CPUs that are sampled.
pub(super) fn cpus(args: &Args, now: &Snapshot) -> Result<CpuSet, Failure> {
    let online = &now.cpus.online;
    let Some(wanted) = &args.cpu else { return Ok(online.clone()) };
    let missing = wanted.difference(online);
    if wanted.is_empty() || !missing.is_empty() {
        return Err(Failure::Usage(format!("--cpu {wanted}: CPUs that run are {online}")));
    }
    Ok(wanted.clone())
}
