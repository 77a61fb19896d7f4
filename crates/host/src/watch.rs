//! Repeated snapshots of one machine, at negligible cost.
//!
//! ```text
//!  look ─▸ are links, interrupts and CPUs unchanged? ──no──────▸ read everything in a Snapshot
//!                │ yes                        or too old ──▸
//!                ▼
//!          recount: counters, backlogs, the list of sockets; everything else stays as read before
//! ```
//! Configuration rarely changes and makes up most of what there is to read: it is reread at intervals that keep the
//! cost within a share of one CPU (`SHARE`). So a small machine shows a changed setting within seconds, and a big one
//! is not kept busy by the reads. Owners of new sockets are looked up under the same limit.

mod acquisition;
mod recount;

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

pub use acquisition::Acquisition;

use crate::client::route::Link;
use crate::{Snapshot, Source};

/// Share of one CPU for reading everything, and likewise for finding socket owners. Lower: changed settings and new
/// owners appear later. Higher: watching costs more than 1 % of a CPU in total.
const SHARE: f64 = 0.002;

/// The last two snapshots of a machine, for [`Map`](crate::Map)s of the interval between them.
#[derive(Debug, Default)]
pub struct Watch {
    earlier: Option<Snapshot>,
    now: Option<Snapshot>,
    /// When they were taken.
    acquired: [Option<Acquisition>; 2],
    /// The links of the last snapshot, without their counters.
    links: Vec<Link>,
    whole: Effort,
    owners: Effort,
    /// There are new sockets whose owners have not been looked up yet.
    strangers: bool,
}

impl Watch {
    /// Takes a snapshot and returns it. Parts that change only on reconfiguration may be some seconds old.
    pub fn look(&mut self, source: &dyn Source) -> &Snapshot {
        let (now, acquired) = Acquisition::of(|| self.taken(source));
        self.acquired = [self.acquired[1], Some(acquired)];
        self.now.insert(now)
    }

    fn taken(&mut self, source: &dyn Source) -> Snapshot {
        let mut earlier = self.now.take();
        let recounted = match &mut earlier {
            Some(earlier) if !self.whole.is_due() => {
                // The sockets are listed anew: a copy of ten thousand would only be thrown away.
                let known = std::mem::take(&mut earlier.sockets.list);
                let mut now = earlier.clone();
                let is_same = self.recount(source, &known, &mut now);
                earlier.sockets.list = known;
                is_same.then_some(now)
            }
            _ => None,
        };
        self.earlier = earlier;
        match recounted {
            Some(now) => now,
            None => self.read(source),
        }
    }

    /// The last snapshot.
    #[must_use]
    pub const fn now(&self) -> Option<&Snapshot> {
        self.now.as_ref()
    }

    /// The snapshot before the last.
    #[must_use]
    pub const fn earlier(&self) -> Option<&Snapshot> {
        self.earlier.as_ref()
    }

    /// How long the last look took.
    #[must_use]
    pub fn took(&self) -> Option<Duration> {
        self.acquired[1].map(|look| look.took())
    }

    /// The most by which a rate between the last two may be off, as a part of it; `None` before the second.
    #[must_use]
    pub fn rate_error(&self) -> Option<f64> {
        let [earlier, now] = self.acquired;
        Some(earlier?.rate_error(&now?))
    }

    /// Makes the next call read everything.
    pub const fn expire(&mut self) {
        self.whole = Effort { done: None };
    }

    /// Reads everything.
    fn read(&mut self, source: &dyn Source) -> Snapshot {
        let (snapshot, whole) = Effort::of(|| Snapshot::read(source));
        self.links = recount::links(source).unwrap_or_default().into_iter().map(without_counters).collect();
        self.whole = whole;
        self.strangers = false;
        snapshot
    }
}

/// The link's configuration.
fn without_counters(link: Link) -> Link {
    Link { statistics: Default::default(), ..link }
}

/// Time and cost of the last run of an operation.
#[derive(Debug, Clone, Copy, Default)]
struct Effort {
    done: Option<(Instant, Duration)>,
}

impl Effort {
    /// Runs the operation, and records its time and cost.
    fn of<T>(work: impl FnOnce() -> T) -> (T, Self) {
        let begin = cpu_time();
        let result = work();
        let cost = cpu_time().saturating_sub(begin);
        (result, Self { done: Some((Instant::now(), cost)) })
    }

    /// Whether running it now, and at this interval from now on, stays within its share.
    fn is_due(&self) -> bool {
        self.done.is_none_or(|(at, cost)| at.elapsed() >= cost.div_f64(SHARE))
    }
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expensive_work_runs_rarely() {
        let done = |ago, cost| {
            let at = Instant::now().checked_sub(Duration::from_millis(ago)).unwrap();
            Effort { done: Some((at, Duration::from_micros(cost))) }
        };
        assert!(Effort::default().is_due());
        // 10 ms of CPU time allow one run every five seconds.
        assert!(!done(4_000, 10_000).is_due());
        assert!(done(6_000, 10_000).is_due());
        assert!(done(100, 100).is_due());
    }
}
