//! One machine looked at again and again, at a cost that nobody has to think of.
//!
//! ```text
//!  look ─▸ are links, interrupts and CPUs those that are known? ──no──▸ whole: all that a Snapshot holds
//!                │ yes                                    or too old ──▸
//!                ▼
//!          recount: counters, backlogs, the list of sockets; all else stays as it was read
//! ```
//! What was set up changes seldom and is most of what there is to read: it is read again after a while, as long as the
//! reading's own share of a CPU asks for (`SHARE`). So a small machine shows a changed setting within seconds, and a
//! big one is not kept busy by being looked at. Owners of new sockets are sought on the same terms.

mod recount;

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::snapshot::Link;
use crate::{Snapshot, Source};

/// Share of one CPU that reading everything may take, and that seeking owners of sockets may take. Lower: changed
/// settings and new owners are seen later. Higher: looking costs more than 1 % of a CPU in all.
const SHARE: f64 = 0.002;

/// The last two looks at a machine, for [`Map`](crate::Map)s of the time between them.
#[derive(Debug, Default)]
pub struct Watch {
    earlier: Option<Snapshot>,
    now: Option<Snapshot>,
    /// The links of the last look, without their counters.
    links: Vec<Link>,
    whole: Effort,
    owners: Effort,
    /// Sockets came whose owners have not been sought yet.
    strangers: bool,
}

impl Watch {
    /// Looks, and gives what it saw. The parts of it that stay while nothing is set up anew may be some seconds old.
    pub fn look(&mut self, source: &dyn Source) -> &Snapshot {
        self.earlier = self.now.take();
        let recounted = match &self.earlier {
            Some(earlier) if !self.whole.is_due() => {
                let mut now = earlier.clone();
                self.recount(source, &mut now).then_some(now)
            }
            _ => None,
        };
        let now = match recounted {
            Some(now) => now,
            None => self.read(source),
        };
        self.now.insert(now)
    }

    /// What the last look saw.
    #[must_use]
    pub const fn now(&self) -> Option<&Snapshot> {
        self.now.as_ref()
    }

    /// What the look before saw.
    #[must_use]
    pub const fn earlier(&self) -> Option<&Snapshot> {
        self.earlier.as_ref()
    }

    /// Lets the next look read everything.
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

/// What the link was set up as.
fn without_counters(link: Link) -> Link {
    Link { statistics: Default::default(), ..link }
}

/// When something was done last, and what it cost.
#[derive(Debug, Clone, Copy, Default)]
struct Effort {
    done: Option<(Instant, Duration)>,
}

impl Effort {
    /// Does it, and notes when and at what cost.
    fn of<T>(work: impl FnOnce() -> T) -> (T, Self) {
        let begin = cpu_time();
        let result = work();
        let cost = cpu_time().saturating_sub(begin);
        (result, Self { done: Some((Instant::now(), cost)) })
    }

    /// Would doing it again now, and as often from now on, keep within its share?
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
    fn what_costs_much_is_done_seldom() {
        let done = |ago, cost| {
            let at = Instant::now().checked_sub(Duration::from_millis(ago)).unwrap();
            Effort { done: Some((at, Duration::from_micros(cost))) }
        };
        assert!(Effort::default().is_due());
        // 10 ms of CPU time: every five seconds.
        assert!(!done(4_000, 10_000).is_due());
        assert!(done(6_000, 10_000).is_due());
        assert!(done(100, 100).is_due());
    }
}
