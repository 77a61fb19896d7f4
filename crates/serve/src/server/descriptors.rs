//! The process's limit of open files (RLIMIT_NOFILE): raised as far as a server needs it, and what is left for
//! connections.
//!
//! ```text
//! soft limit ─▸ raised, at most to the hard one: sockets + listeners + connections + RESERVE
//!     after sockets are open:  (limit - open - RESERVE) / workers = TCP connections of each, at most as configured
//! ```
//! So descriptors do not run out: connections take each other's places before, and a service can still open its files.

use std::path::Path;

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::config::Config;
use crate::error::Error;

/// Descriptors that connections leave to others: a service's files that are loaded again, files of /proc, libraries.
/// Fewer: a reload may fail under attack; more: fewer connections where the limit is low.
const RESERVE: u64 = 64;
/// Descriptors of a worker besides sockets: its event sets, and the ring, maps and links of a queue of `xdp`.
const PER_WORKER: u64 = 16;
/// The descriptors of this process.
const OPEN: &str = "/proc/self/fd";
/// Most that are counted: the kernel's default for `fs.nr_open`.
const MAX_OPEN: usize = 1 << 20;

/// Raises the soft limit as far as a server of `workers` workers needs. Where the hard limit is lower, as far as that
/// allows: then fewer connections are accepted, or opening a socket fails and says why.
pub(super) fn raise(config: &Config, workers: usize, with_tcp: bool) {
    let (sockets, connections) = if with_tcp { (2, config.tcp.connections) } else { (1, 0) };
    let per_worker = (sockets * config.binds.len() + connections) as u64 + PER_WORKER;
    let needed = open().unwrap_or(0) + per_worker.saturating_mul(workers as u64) + RESERVE;
    let mut limit = getrlimit(Resource::Nofile);
    let Some(soft) = limit.current.filter(|soft| *soft < needed) else { return };
    limit.current = Some(limit.maximum.map_or(needed, |hard| needed.min(hard)).max(soft));
    // Forbidden by a filter around this process: what there is must do.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// The TCP connections that each of `workers` workers may have, once all sockets are open, and a warning if these are
/// fewer than configured.
///
/// # Errors
/// There is none left for each.
pub(super) fn connections(config: &Config, workers: usize) -> Result<(usize, Option<String>), Error> {
    let wanted = config.tcp.connections;
    // Without /proc, or without a limit, the configuration counts.
    let (Some(limit), Some(open)) = (getrlimit(Resource::Nofile).current, open()) else {
        return Ok((wanted, None));
    };
    let others = open + RESERVE + PER_WORKER * workers as u64;
    let left = limit.saturating_sub(others) / workers.max(1) as u64;
    match usize::try_from(left).unwrap_or(usize::MAX) {
        0 => Err(Error::Descriptors { limit, needed: others + workers as u64 }),
        left if left < wanted => {
            let warning = format!(
                "each worker has at most {left} TCP connections instead of {wanted}: the limit of open files is {limit} \
                 (RLIMIT_NOFILE; LimitNOFILE= of a unit, ulimit -Hn)"
            );
            Ok((left, Some(warning)))
        }
        _ => Ok((wanted, None)),
    }
}

/// How many descriptors this process has open.
fn open() -> Option<u64> {
    Some(udpath_files::names(Path::new(OPEN), MAX_OPEN).ok()?.len() as u64)
}
