//! Readers at their limit that lose nothing yet: a closed loop waits for them.

use std::collections::BTreeSet;

use udpath_host::map::{Map, ProcessMap, SocketMap};

use super::SHARES;
use super::cause::lost_share;
use super::seen::owners;
use crate::finding::Location;
use crate::rule::{Found, Observed, counted, percent};

/// Share of the interval that a thread runs or waits for a CPU from which on it takes no more; softirqs of its CPU are
/// part of it where the kernel counts them as the thread's. Lower: a thread that could take a tenth more is called
/// full. Higher: one that slept once is not.
const FULL: f64 = 0.93;
/// Share that it must run. Lower: a thread starved by other programs is advised to become two. Higher: one that another
/// program or the hypervisor interrupts now and then is not called full.
const RUNS: f64 = 0.75;
/// Share that it waits for a CPU from which on the evidence says so. Lower: every thread that an interrupt stopped once
/// waits. Higher: a reader seems to sleep that is held up.
const WAITS: f64 = 0.01;
/// Share of what came that is lost below which a reader at its limit is named for that, not for the loss. Lower: a few
/// datagrams lost at the start of a load hide what limits it. Higher: the loss that a user asks about is not the first
/// thing named.
const STRAY: f64 = 0.001;

/// Readers without time left, of a port that fewer threads read than there are CPUs, and where next to nothing is lost:
/// else that is what to begin with.
pub(super) fn reached(on: Observed<'_>) -> Vec<Found> {
    if on.map.seconds.is_none() {
        return Vec::new();
    }
    let mut ports = BTreeSet::new();
    let first =
        on.map.sockets.iter().filter(|socket| socket.peer.is_none() && ports.insert(socket.local.port()));
    let found = first.filter_map(|socket| {
        let of_port = on.map.sockets.iter().filter(|other| other.local.port() == socket.local.port());
        let lossy = |socket: &SocketMap| {
            socket.drops > 0 && lost_share(on, socket).is_none_or(|share| share >= STRAY)
        };
        if of_port.clone().any(lossy) {
            return None;
        }
        let mut processes: Vec<&ProcessMap> = of_port.flat_map(|socket| owners(on, socket)).collect();
        processes.sort_by_key(|process| process.pid);
        processes.dedup_by_key(|process| process.pid);
        let threads = || {
            processes.iter().flat_map(|process| process.busiest.iter().map(move |thread| (process, thread)))
        };
        let readers = threads().filter(|(_, thread)| thread.busy() >= SHARES).count();
        let full: Vec<_> =
            threads().filter(|(_, thread)| thread.busy() >= FULL && thread.ran >= RUNS).collect();
        let (process, thread) = full.iter().max_by(|a, b| a.1.ran.total_cmp(&b.1.ran))?;
        (readers < on.map.cpus_online).then(|| {
            let waited = match thread.waited {
                waited if waited >= WAITS => format!(" and waited for a CPU for {}", percent(waited)),
                _ => String::new(),
            };
            let evidence = format!(
                "{} of {} (pid {}), which {} {}, ran {} of the time{waited}; {} are online",
                if full.len() == 1 { "the thread".to_owned() } else { counted(full.len(), "thread") },
                process.name,
                process.pid,
                if full.len() == 1 { "reads" } else { "read" },
                socket.local,
                percent(thread.ran),
                counted(on.map.cpus_online, "CPU")
            );
            Found::new(evidence).at(Location::Process(process.pid)).at(Location::Socket(socket.inode))
        })
    });
    found.collect()
}

/// Why a thread that never slept is not named for being at its limit, where that is so: a sentence without its full
/// stop.
pub(crate) fn held_back(map: &Map) -> Option<String> {
    let _ = map.seconds?;
    let threads =
        map.processes.iter().flat_map(|process| process.busiest.iter().map(move |thread| (process, thread)));
    if threads.clone().any(|(_, thread)| thread.busy() >= FULL && thread.ran >= RUNS) {
        return None;
    }
    let (process, thread) = threads
        .filter(|(_, thread)| thread.busy() >= FULL && !thread.stopped)
        .max_by(|a, b| a.1.ran.total_cmp(&b.1.ran))?;
    Some(format!(
        "whether the reader is at its limit: the busiest thread of {} (pid {}) ran {} of the time, but waited for a CPU for {}, which \
         other programs had",
        process.name,
        process.pid,
        percent(thread.ran),
        percent(thread.waited)
    ))
}
