//! What was seen of a socket and its readers in the interval.

use udpath_host::map::{ProcessMap, SocketMap, ThreadMap};
use udpath_host::sockets::looks::QueueLooks;

use crate::diagnosis::busy_of;
use crate::rule::Observed;

/// Share of the interval below which a thread did not run. Lower: one that wakes up for a timer ran. Higher: a reader
/// of short bursts did not.
pub(super) const IDLE: f64 = 0.001;
/// Share of the interval from which on a reader has no time left.
pub(super) const BUSY: f64 = 0.9;
/// Looks from which on they decide: of twenty, the 95 % interval of a half is a quarter to three quarters.
const ENOUGH: u32 = 20;

/// What looks within the interval showed, if there were enough.
pub(crate) fn looks(socket: &SocketMap) -> Option<QueueLooks> {
    socket.looks.filter(|seen| seen.looks >= ENOUGH)
}

/// The processes that have it.
pub(super) fn owners<'a>(on: Observed<'a>, socket: &SocketMap) -> Vec<&'a ProcessMap> {
    on.map.processes.iter().filter(|process| socket.pids.contains(&process.pid)).collect()
}

/// Their busiest threads.
pub(super) fn threads<'a>(on: Observed<'a>, socket: &SocketMap) -> Vec<&'a ThreadMap> {
    owners(on, socket).into_iter().flat_map(|process| &process.busiest).collect()
}

/// How busy the busiest of these is, as a share of the interval.
pub(super) fn busiest(on: Observed<'_>, threads: &[&ThreadMap]) -> f64 {
    threads.iter().map(|thread| busy_of(on.map, thread)).fold(0.0, f64::max)
}
