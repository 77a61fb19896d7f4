//! Was the generator the limit? From evidence to a verdict with reasons.
//!
//! A generator that cannot keep up measures itself. The rules are conservative: without a sign of a limit there is no
//! reason. One that sent what was offered, but late or with no time left, did not limit the rate: there, its reasons
//! only make the latencies doubtful.

use std::time::Duration;

use crate::result::{Generator, Latency};

/// Share of the window a sending thread may be busy (running, or waiting for a CPU) before it counts as saturated.
/// Higher: a thread without reserve passes. Lower: threads that are only busy are blamed.
const MAX_BUSY: f64 = 0.95;
/// The 99th percentile of lateness may be this long, or a tenth of the thread's mean interval if that is longer.
/// Below it, lateness comes from the scheduler; above it the arrivals are no longer those of the plan.
const MAX_LATENESS: Duration = Duration::from_millis(1);
/// Share of requests due that may stay unsent or be refused by a full queue.
const MAX_UNSENT: f64 = 0.01;
/// Share of replies that the generator's own receive buffers may lose before the loss counted is called its own.
const MAX_OWN_DROPS: f64 = 1e-4;

/// CPU time of one sending thread in the window.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ThreadTime {
    /// User and system time, seconds.
    pub ran: f64,
    /// Time it could have run but waited for a CPU, seconds. 0 where the kernel does not report it.
    pub waited: f64,
}

impl ThreadTime {
    /// The calling thread's CPU time so far.
    #[must_use]
    pub fn now() -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        // Fields: time on a CPU, time waiting on a run queue (ns), slices (kernel documentation, sched-stats).
        let waited = udpath_files::kernel::text("/proc/thread-self/schedstat")
            .ok()
            .and_then(|text| text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok())
            .unwrap_or(0);
        Self { ran: time.tv_sec as f64 + time.tv_nsec as f64 / 1e9, waited: waited as f64 / 1e9 }
    }

    /// The time since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self { ran: (self.ran - earlier.ran).max(0.0), waited: (self.waited - earlier.waited).max(0.0) }
    }
}

/// What an engine observed of itself in the window.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// Length of the window, seconds.
    pub seconds: f64,
    /// Each sending thread's CPU time. Empty if no thread in user space sends.
    pub threads: Vec<ThreadTime>,
    /// Whether the rate was the plan's (open loop), or as fast as possible.
    pub open_loop: bool,
    /// Requests sent.
    pub sent: u64,
    /// Requests that were due in the window and never tried.
    pub unsent: u64,
    /// Times a request had to wait because the kernel's send queue was full.
    pub queue_full: u64,
    /// Times a request had to wait because as many were pending as the plan allows for.
    pub held_back: u64,
    /// Replies that came back.
    pub received: u64,
    /// Replies that the generator's own sockets dropped.
    pub own_drops: u64,
    /// Mean interval between two requests of one thread, as planned. Open loop only.
    pub interval: Option<Duration>,
    /// How the engine sent, in sentences; copied to the result.
    pub notes: Vec<String>,
}

impl Evidence {
    /// The verdict, with its reasons as sentences.
    #[must_use]
    pub fn judge(&self, lateness: Option<&Latency>) -> Generator {
        // What lowers the rate, or the replies that are counted.
        let lost = [self.rate(), self.drops()];
        let slow = [self.cpu(), self.late(lateness), self.queue(), self.table()];
        let limits =
            lost.iter().any(Option::is_some) || (!self.open_loop && slow.iter().any(Option::is_some));
        let reasons: Vec<String> = lost.into_iter().chain(slow).flatten().collect();
        Generator {
            limited: limits,
            reasons,
            // Not `sum`, which is -0.0 for no threads.
            cpu_seconds: self.threads.iter().fold(0.0, |all, thread| all + thread.ran),
            notes: self.notes.clone(),
        }
    }

    fn cpu(&self) -> Option<String> {
        let busy = |t: &ThreadTime| (t.ran + t.waited) / self.seconds.max(f64::MIN_POSITIVE);
        let saturated = self.threads.iter().filter(|t| busy(t) >= MAX_BUSY).count();
        let worst = self.threads.iter().max_by(|a, b| busy(a).total_cmp(&busy(b)))?;
        (saturated > 0).then(|| {
            let percent = |s: f64| (s / self.seconds * 100.0).min(100.0);
            let waited = if worst.waited > 0.01 * self.seconds {
                format!(", {:.0} % waiting for a CPU in use by others", percent(worst.waited))
            } else {
                String::new()
            };
            format!(
                "{saturated} of {} sending thread(s) had no CPU time left: the busiest ran {:.0} % of the window{waited}",
                self.threads.len(),
                percent(worst.ran),
            )
        })
    }

    fn late(&self, lateness: Option<&Latency>) -> Option<String> {
        let (lateness, interval) = (lateness?, self.interval?);
        let bound = MAX_LATENESS.max(interval / 10);
        let p99 = Duration::from_nanos(lateness.p99);
        (p99 > bound)
            .then(|| format!("1 % of the requests were sent more than {p99:.1?} late (bound: {bound:.1?})"))
    }

    fn queue(&self) -> Option<String> {
        // Without a rate, sending until the queue is full is normal.
        let full = self.queue_full as f64 > MAX_UNSENT * self.sent as f64 && self.queue_full > 0;
        (self.open_loop && full).then(|| {
            format!("the send queue was full {} times for {} requests sent", self.queue_full, self.sent)
        })
    }

    fn rate(&self) -> Option<String> {
        let due = self.sent + self.unsent;
        (self.unsent as f64 > MAX_UNSENT * due as f64).then(|| {
            format!(
                "the rate was not reached: {} of {due} requests due were sent ({:.0} of {:.0} per second)",
                self.sent,
                self.sent as f64 / self.seconds,
                due as f64 / self.seconds,
            )
        })
    }

    fn table(&self) -> Option<String> {
        (self.held_back > 0).then(|| {
            format!(
                "requests waited {} times because too many were in flight for the plan's rate and timeout",
                self.held_back
            )
        })
    }

    fn drops(&self) -> Option<String> {
        (self.own_drops as f64 > MAX_OWN_DROPS * self.received as f64).then(|| {
            format!(
                "{} replies were lost in the generator's own receive buffers (and count as lost)",
                self.own_drops
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fine() -> Evidence {
        Evidence {
            seconds: 10.0,
            threads: vec![ThreadTime { ran: 3.0, waited: 0.0 }, ThreadTime { ran: 4.0, waited: 1.0 }],
            open_loop: true,
            sent: 100_000,
            received: 100_000,
            interval: Some(Duration::from_micros(100)),
            ..Evidence::default()
        }
    }

    fn lateness(p99: u64) -> Option<Latency> {
        Latency::from_buckets(vec![(p99, 100)], p99, p99, p99 as f64)
    }

    #[test]
    fn nothing_speaks_against_a_generator_with_reserve() {
        let verdict = fine().judge(lateness(50_000).as_ref());
        assert_eq!((verdict.limited, verdict.reasons.len()), (false, 0));
        assert!((verdict.cpu_seconds - 7.0).abs() < 1e-9);
        let none = Evidence { threads: Vec::new(), ..fine() }.judge(None);
        assert_eq!(none.cpu_seconds.to_bits(), 0.0_f64.to_bits());
    }

    #[test]
    fn each_sign_is_a_reason_with_its_figure() {
        type Spoil = fn(&mut Evidence);
        // Whether it limits a load with a rate, all of which was sent unless it says otherwise.
        let signs: &[(Spoil, &str, bool)] = &[
            (|e| e.threads[1].ran = 9.9, "ran 99 % of the window", false),
            (|e| e.threads[1].waited = 6.0, "60 % waiting", false),
            (|e| e.queue_full = 2000, "full 2000 times", false),
            (|e| e.unsent = 10_000, "100000 of 110000", true),
            (|e| e.held_back = 1, "waited 1 times", false),
            (|e| e.own_drops = 11, "11 replies", true),
        ];
        for (spoil, figure, limits) in signs {
            let mut e = fine();
            spoil(&mut e);
            let verdict = e.judge(None);
            assert_eq!(verdict.limited, *limits, "{figure}");
            assert!(verdict.reasons[0].contains(figure), "{:?} should contain {figure}", verdict.reasons);
            // Without a rate, whatever slows it down lowers it. A full queue is normal then.
            e.open_loop = false;
            assert_eq!(e.judge(None).limited, !figure.starts_with("full"), "{figure}");
        }
    }

    #[test]
    fn a_load_that_was_sent_but_late_is_not_limited() {
        let verdict = fine().judge(lateness(1_100_000).as_ref());
        assert!(!verdict.limited && verdict.reasons[0].contains("1.1ms late"), "{:?}", verdict.reasons);
        // A hundredth may be missing.
        let late = Evidence { unsent: 1000, ..fine() }.judge(lateness(1_100_000).as_ref());
        assert!(!late.limited, "{:?}", late.reasons);
        let short = Evidence { unsent: 2000, ..fine() }.judge(lateness(1_100_000).as_ref());
        assert!(
            short.limited && short.reasons[0].starts_with("the rate was not reached"),
            "{:?}",
            short.reasons
        );
    }

    #[test]
    fn slow_plans_may_be_later() {
        let e = Evidence { interval: Some(Duration::from_millis(100)), ..fine() };
        assert!(e.judge(lateness(5_000_000).as_ref()).reasons.is_empty());
        assert_eq!(e.judge(lateness(11_000_000).as_ref()).reasons.len(), 1);
    }
}
