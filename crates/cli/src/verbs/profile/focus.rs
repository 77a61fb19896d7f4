//! What to sample, where, and the profile's focus.

use std::path::Path;

use udpath_host::Snapshot;
use udpath_host::namespace::Place;
use udpath_profile::facts::Focus;
use udpath_steer::CpuSet;

use crate::args::profile::Args;
use crate::exit::Failure;

/// The namespace whose sockets and counters are read: the requested one, or that of the process.
pub(super) fn place(args: &Args) -> Result<Place, Failure> {
    if let Some(pid) = args.pid
        && !Path::new(&format!("/proc/{pid}")).is_dir()
    {
        return Err(Failure::Usage(format!("--pid {pid}: no such process")));
    }
    Ok(match (&args.netns.netns, args.pid) {
        (Some(name), _) => Place::Named(name.clone()),
        // Entering needs privileges, so it is done only for another namespace.
        (None, Some(pid)) if !is_here(pid) => Place::Process(pid),
        _ => Place::Here,
    })
}

/// Is a process in this network namespace, or is its namespace unknown?
fn is_here(pid: u32) -> bool {
    let namespace = |whose: &str| std::fs::read_link(format!("/proc/{whose}/ns/net")).ok();
    namespace(&pid.to_string()).is_none_or(|its| Some(its) == namespace("self"))
}

/// The profile's focus.
pub(super) fn focus(args: &Args, now: &Snapshot) -> Result<Focus, Failure> {
    let Some(port) = args.port.map(std::num::NonZeroU16::get) else {
        return Ok(Focus { port: None, pids: args.pid.into_iter().collect() });
    };
    let sockets: Vec<_> = now.sockets.list.iter().filter(|socket| socket.local.port() == port).collect();
    if sockets.is_empty() {
        return Err(Failure::Usage(format!(
            "--port {port}: no UDP socket is bound to this port; `udpath show` lists all UDP sockets"
        )));
    }
    let mut pids: Vec<u32> =
        sockets.iter().flat_map(|socket| &socket.owners).map(|owner| owner.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    Ok(Focus { port: Some(port), pids })
}

/// The CPUs to sample.
pub(super) fn cpus(args: &Args, now: &Snapshot) -> Result<CpuSet, Failure> {
    let online = &now.cpus.online;
    let Some(wanted) = &args.cpus else { return Ok(online.clone()) };
    let missing = wanted.difference(online);
    if wanted.is_empty() || !missing.is_empty() {
        return Err(Failure::Usage(format!("--cpus {wanted}: the online CPUs are {online}")));
    }
    Ok(wanted.clone())
}
