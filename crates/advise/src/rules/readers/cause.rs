//! Why a socket drops, by what its readers did.

use udpath_host::map::{SocketMap, ThreadMap};
use udpath_host::sockets::looks::QueueLooks;

use super::seen::{BUSY, IDLE, busiest, looks, threads};
use super::unread::is_unread;
use crate::diagnosis::busy_of;
use crate::rule::Observed;

/// Fill of a receive queue, at both ends of the interval, from which on it did not drain in between, where nobody
/// looked in between.
const STAYS: f64 = 0.5;
/// Share of the looks that find datagrams waiting (a queue at least half full) from which on it is not bursts that fill
/// it. A steady load fills the queue of a reader that empties it at once and then sleeps for more than half of the
/// time, once any of it is lost. Lower: long bursts count as a steady load. Higher: a few short sleeps make a steady
/// loss a burst.
const WAITING: f64 = 0.5;
/// Part of what came to UDP that one socket dropped from which on, without looks, nothing says that it was a burst.
/// Lower: a burst on a quiet machine is not named. Higher: a reader that never keeps up is called one that does.
const LOST: f64 = 0.5;
/// Part of a group's drops at one socket from which on they are that socket's.
const MOST: f64 = 0.8;
/// In an uneven group, the other readers are on average at most this part as busy as the busiest, which has no time
/// left. Two readers of a dozen flows differ by a half. Lower: only a single flow is found.
const UNEVEN: f64 = 0.25;

/// Why a socket drops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::rules) enum Cause {
    Unread,
    Blocked,
    Uneven,
    Slow,
    Burst,
    Unknown,
}

/// Why a socket drops, by what its readers did.
pub(in crate::rules) fn cause(on: Observed<'_>, socket: &SocketMap) -> Cause {
    let threads = threads(on, socket);
    if threads.is_empty() || on.map.seconds.is_none() {
        Cause::Unknown
    } else if is_unread(on, socket) {
        Cause::Unread
    } else if is_blocked(&threads, socket) {
        Cause::Blocked
    } else if uneven_group(on, socket).is_some() {
        Cause::Uneven
    } else if busiest(on, &threads) >= BUSY || stays_full(socket) {
        Cause::Slow
    } else if looks(socket).is_none() && lost_share(on, socket).is_some_and(|share| share >= LOST) {
        Cause::Unknown
    } else {
        Cause::Burst
    }
}

/// The least share of what came to a socket that it dropped: everything else that UDP delivered may have come to
/// others.
pub(super) fn lost_share(on: Observed<'_>, socket: &SocketMap) -> Option<f64> {
    let counters = [on.map.udp.v4, on.map.udp.v6];
    let delivered: u64 = counters.iter().flatten().map(|udp| udp.in_datagrams).sum();
    let known = counters.iter().any(Option::is_some) && socket.drops > 0;
    known.then(|| socket.drops as f64 / (socket.drops.saturating_add(delivered)) as f64)
}

/// Are its threads stopped, or did they leave its queue full without running?
pub(super) fn is_blocked(threads: &[&ThreadMap], socket: &SocketMap) -> bool {
    let still = threads.iter().all(|thread| thread.stopped || thread.busy() < IDLE);
    still && (stays_full(socket) || threads.iter().any(|thread| thread.stopped))
}

/// Did datagrams wait all along? By the looks in between, else by the two ends of the interval.
pub(super) fn stays_full(socket: &SocketMap) -> bool {
    if let Some(QueueLooks { looks, full, .. }) = looks(socket) {
        return f64::from(full) >= WAITING * f64::from(looks);
    }
    let Some(size) = socket.buffer.filter(|size| *size > 0) else { return false };
    let full = |queued: u32| f64::from(queued) >= STAYS * f64::from(size);
    full(socket.queued) && socket.queued_before.is_some_and(full)
}

/// The group of a socket in which one reader has all the work: how busy it is, and the mean of the others.
pub(super) fn uneven_group(on: Observed<'_>, socket: &SocketMap) -> Option<(f64, f64)> {
    let mut members =
        on.map.sockets.iter().filter(|other| other.local == socket.local && other.peer.is_none());
    if socket.group < 2 || socket.peer.is_some() {
        return None;
    }
    let all: u64 = members.clone().map(|member| member.drops).sum();
    // Drops elsewhere in the group: it is overloaded as a whole.
    if all > 0 && (socket.drops as f64) < MOST * all as f64 {
        return None;
    }
    let mut pids: Vec<u32> = members.by_ref().flat_map(|member| member.pids.iter().copied()).collect();
    pids.sort_unstable();
    pids.dedup();
    let processes = on.map.processes.iter().filter(|process| pids.contains(&process.pid));
    let mut threads: Vec<&ThreadMap> = processes.flat_map(|process| &process.busiest).collect();
    let busy = |thread: &ThreadMap| if thread.stopped { 0.0 } else { thread.busy() };
    threads.sort_by(|a, b| busy(b).total_cmp(&busy(a)));
    // One reader per socket: further threads are helpers. Fewer threads than sockets: each reads several.
    let (first, others) = threads.get(..socket.group)?.split_first()?;
    let mean = others.iter().map(|thread| busy(thread)).sum::<f64>() / others.len().max(1) as f64;
    (busy_of(on.map, first) >= BUSY && mean <= UNEVEN * busy(first)).then(|| (busy_of(on.map, first), mean))
}
