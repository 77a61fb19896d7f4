//! The cost of a lookup per packet in a table that may be replaced concurrently.
//!
//! Two readers, pinned to CPUs 0 and 1, look up bursts of 32 packets; a writer replaces the table periodically. Each
//! contender has its own protection: none, an epoch announced once per burst (udpath's and crossbeam-epoch's), a read
//! lock per packet, a reference count per packet. Under an epoch, the table is loaded again for each packet unless
//! stated otherwise, which is the more expensive way to use it.

mod sys;

use std::cell::RefCell;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use anyhow::Result;
use udpath_advise::result::Ratio;
use udpath_experiment::readers::{Burst, read};
use udpath_stack::epoch::{Domain, Table};

use crate::claim::{Bound, Claim, Unit};
use crate::race::{quantile, race, words};
use crate::results::Results;

/// Readers, each on its own CPU.
const READERS: usize = 2;
/// Length of one trial. Shorter: the start of the threads is significant. Longer: fewer blocks in the same time.
const TRIAL: Duration = Duration::from_millis(40);

/// Most that an epoch may add to a lookup, nanoseconds.
const MOST_ADDED: f64 = 1.5;
/// How much faster than a read lock per packet it must be.
const OVER_LOCK: f64 = 8.0;
/// How much faster than a reference count per packet it must be.
const OVER_COUNT: f64 = 4.0;

/// A minimal table of sockets by port: its own cost is the same for all.
pub(crate) struct Ports {
    sockets: Box<[u32; 65_536]>,
}

impl Ports {
    fn new(version: u32) -> Self {
        let mut sockets = Box::new([0; 65_536]);
        // A thousand ports are in use; the others stay out of the cache.
        for (port, socket) in sockets.iter_mut().take(1024).enumerate() {
            *socket = version.wrapping_add(port as u32);
        }
        Self { sockets }
    }

    #[inline]
    fn look_up(&self, port: u16) -> u32 {
        self.sockets[usize::from(port)]
    }
}

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let plain = Ports::new(0);
    let unprotected = || {
        rate(
            |_| {
                Box::new(|ports| {
                    let table = black_box(&plain);
                    ports.iter().map(|port| table.look_up(*port)).fold(0, u32::wrapping_add)
                })
            },
            |_| {},
        )
    };

    let domain = Domain::new(READERS, 64);
    let table = Table::new(&domain, Ports::new(0));
    let readers: Vec<_> =
        (0..READERS).map(|n| domain.register(format!("reader {n}"))).collect::<Result<_, _>>()?;
    let readers = RefCell::new(readers);
    let refused = AtomicU64::new(0);
    let ours = |once: bool| {
        let mut readers = readers.borrow_mut();
        let mut readers = readers.iter_mut();
        rate(
            |_| {
                let table = &table;
                let Some(reader) = readers.next() else { return Box::new(|_| 0) };
                Box::new(move |ports| {
                    let guard = reader.pin();
                    if once {
                        let table = table.load(&guard);
                        ports.iter().map(|port| table.look_up(*port)).fold(0, u32::wrapping_add)
                    } else {
                        ports.iter().map(|port| table.load(&guard).look_up(*port)).fold(0, u32::wrapping_add)
                    }
                })
            },
            |version| {
                if table.publish(Ports::new(version)).is_err() {
                    refused.fetch_add(1, Ordering::Relaxed);
                }
            },
        )
    };

    let crossbeam = sys::Crossbeam::new(Ports::new(0));
    let theirs = |once: bool| {
        rate(
            |_| {
                let reader = crossbeam.reader();
                Box::new(move |ports| {
                    let pinned = reader.pin();
                    if once {
                        let table = pinned.load();
                        ports.iter().map(|port| table.look_up(*port)).fold(0, u32::wrapping_add)
                    } else {
                        ports.iter().map(|port| pinned.load().look_up(*port)).fold(0, u32::wrapping_add)
                    }
                })
            },
            |version| crossbeam.publish(Ports::new(version)),
        )
    };

    let locked = RwLock::new(Ports::new(0));
    let lock = || {
        rate(
            |_| {
                Box::new(|ports| {
                    let each = ports.iter().map(|port| match locked.read() {
                        Ok(table) => table.look_up(*port),
                        Err(_) => 0,
                    });
                    each.fold(0, u32::wrapping_add)
                })
            },
            |version| {
                let next = Ports::new(version);
                if let Ok(mut table) = locked.write() {
                    *table = next;
                }
            },
        )
    };

    // Never replaced: a count that must also support replacement costs more.
    let counted = Arc::new(Ports::new(0));
    let count = || {
        rate(
            |_| {
                Box::new(|ports| {
                    let each = ports.iter().map(|port| Arc::clone(black_box(&counted)).look_up(*port));
                    each.fold(0, u32::wrapping_add)
                })
            },
            |_| {},
        )
    };

    let times = RefCell::new((Vec::new(), Vec::new()));
    let over_plain = race(
        "epoch / no protection",
        0.02,
        16,
        || unprotected().inspect(|rate| times.borrow_mut().0.push(1e9 / rate)),
        || ours(false).inspect(|rate| times.borrow_mut().1.push(1e9 / rate)),
    )?;
    let (without, with) = times.into_inner();
    let (without, with) = (quantile(without, 0.5), quantile(with, 0.5));
    let added = Claim::new(
        "epoch.added",
        "epoch: added to a lookup, per packet",
        with - without,
        Unit::Nanoseconds,
        Bound::Below(MOST_ADDED),
    );
    results.add(&added.with(format!("{without:.2} -> {with:.2} ns, x {}", words(&over_plain))));
    let mut claim = |id: &str, what: &str, bound: Bound, ratio: Ratio| {
        results.add(&Claim::ratio(&format!("epoch.{id}"), format!("epoch / {what}"), &ratio, bound));
    };
    // The difference is a few nanoseconds per burst.
    let loaded_once = race("epoch / crossbeam-epoch", 0.01, 24, || theirs(true), || ours(true))?;
    claim("crossbeam", "crossbeam-epoch, table loaded once per burst", Bound::AtLeast(1.0), loaded_once);
    let loaded_each = race("epoch / crossbeam-epoch per packet", 0.01, 24, || theirs(false), || ours(false))?;
    claim("crossbeam_each", "crossbeam-epoch, table loaded per packet", Bound::Shown, loaded_each);
    let over_lock = race("epoch / read lock", 0.05, 12, lock, || ours(false))?;
    claim("lock", "read lock per packet", Bound::AtLeast(OVER_LOCK), over_lock);
    let over_count = race("epoch / reference count", 0.05, 12, count, || ours(false))?;
    claim("count", "reference count per packet", Bound::AtLeast(OVER_COUNT), over_count);
    let refused = refused.into_inner();
    anyhow::ensure!(
        refused == 0,
        "{refused} tables were not published, so what was measured is not what it says"
    );
    Ok(())
}

/// Packets per second of a reader's CPU time, while all readers work and `publish` is called with new versions.
fn rate<'s>(reader: impl FnMut(usize) -> Burst<'s>, publish: impl Fn(u32)) -> Result<f64> {
    Ok(read(READERS, TRIAL, reader, publish)?.per_cpu_second)
}
