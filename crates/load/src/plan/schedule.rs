//! The intended time and the flow of each transaction of a thread: a pure iterator.
//!
//! A plan is divided into `parts` (threads of one machine, or of several): part `i` of `n` yields its own share, and
//! all parts together have the plan's rate. Nothing here reads a clock, so a plan is the same on every engine, and
//! sending late cannot move an intended time.

use super::{Arrivals, Plan, Process};

/// Most consecutive transactions that go to the same flow, so that one `sendmmsg` carries several datagrams. Higher:
/// fewer system calls, but the traffic of one flow comes in bursts, and a server that chooses its worker by flow hash
/// is loaded unevenly for that long. Lower: a system call per datagram.
const MAX_RUN: u32 = 16;

/// Time in which transactions are sent together anyway (the shortest pause of an engine), seconds. A run is as long as
/// the part's transactions in it, so slow plans alternate between flows with every transaction.
const RUN_TIME: f64 = 20e-6;

/// One intended transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Intended {
    /// When it should be sent, nanoseconds since the start of the plan (of its warm-up).
    pub at: u64,
    /// Which of the part's flows carries it: 0..flows of the part.
    pub flow: u32,
}

/// The open-loop schedule of one part of a plan. Ends with the plan's window.
#[derive(Debug, Clone)]
pub struct Schedule {
    timing: Timing,
    /// End of the window, nanoseconds.
    end: u64,
    flows: u32,
    run: u32,
    /// Transactions yielded.
    count: u64,
    part: u64,
    parts: u64,
    random: Random,
}

#[derive(Debug, Clone)]
enum Timing {
    /// Transaction `k` of the whole plan at `k / rate`.
    Constant { rate: f64 },
    /// Time of the next one; rate of the part.
    Poisson { next: f64, rate: f64 },
    /// Burst `k` of the whole plan at `k * len / rate`.
    Burst { rate: f64, len: u64 },
    /// `from` during the warm-up, then evenly to `to`. Seconds and transactions per second.
    Ramp { from: f64, to: f64, warmup: f64, duration: f64 },
}

impl Schedule {
    /// The schedule of part `part` of `parts` with `flows` flows of its own; none for a closed loop.
    ///
    /// # Panics
    /// If `part` is not below `parts`, or `flows` is 0: errors of the caller, not of the user.
    #[must_use]
    pub fn new(plan: &Plan, part: usize, parts: usize, flows: u32) -> Option<Self> {
        assert!(part < parts && flows > 0, "part {part} of {parts} with {flows} flows");
        let random_seed = Random::mix(plan.seed ^ Random::mix(part as u64 + 1));
        let mut random = Random(random_seed);
        let timing = match plan.arrivals {
            Arrivals::Closed { .. } => return None,
            Arrivals::Open { rate, process: Process::Constant } => Timing::Constant { rate },
            Arrivals::Open { rate, process: Process::Burst { len } } => {
                Timing::Burst { rate, len: u64::from(len) }
            }
            Arrivals::Open { rate, process: Process::Poisson } => {
                let rate = rate / parts as f64;
                Timing::Poisson { next: random.exponential() / rate, rate }
            }
            Arrivals::Ramp { from, to } => Timing::Ramp {
                from,
                to,
                warmup: plan.warmup.as_secs_f64(),
                duration: plan.duration.as_secs_f64(),
            },
        };
        let part_rate = plan.peak_rate().unwrap_or(0.0) / parts as f64;
        Some(Self {
            timing,
            end: nanos((plan.warmup + plan.duration).as_secs_f64()),
            flows,
            run: ((part_rate * RUN_TIME) as u32).clamp(1, MAX_RUN),
            count: 0,
            part: part as u64,
            parts: parts as u64,
            random,
        })
    }

    /// Number of the part's transaction `own` in the whole plan, where parts take turns.
    fn global(&self, own: u64) -> f64 {
        (own * self.parts + self.part) as f64
    }

    /// Intended time of the next transaction, seconds.
    fn at(&mut self) -> f64 {
        match self.timing {
            Timing::Constant { rate } => self.global(self.count) / rate,
            Timing::Burst { rate, len } => self.global(self.count / len) * len as f64 / rate,
            Timing::Ramp { from, to, warmup, duration } => {
                ramp_time(self.global(self.count), from, to, warmup, duration)
            }
            Timing::Poisson { ref mut next, rate } => {
                let at = *next;
                *next += self.random.exponential() / rate;
                at
            }
        }
    }
}

impl Iterator for Schedule {
    type Item = Intended;

    fn next(&mut self) -> Option<Intended> {
        let at = nanos(self.at());
        if at >= self.end {
            return None;
        }
        let flow = (self.count / u64::from(self.run) % u64::from(self.flows)) as u32;
        self.count += 1;
        Some(Intended { at, flow })
    }
}

/// When a ramp reaches its `k`-th transaction: the root of `from t + (to - from) t^2 / (2 duration) = k` after the
/// warm-up, in a form that also works for equal rates (no square term).
fn ramp_time(k: f64, from: f64, to: f64, warmup: f64, duration: f64) -> f64 {
    let before = from * warmup;
    if k < before {
        return k / from;
    }
    let k = k - before;
    let slope = (to - from) / duration;
    let under = from * from + 2.0 * slope * k;
    if under < 0.0 {
        // A falling ramp never gets that far.
        return f64::INFINITY;
    }
    warmup + 2.0 * k / (from + under.sqrt())
}

/// Seconds as whole nanoseconds, saturating.
fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// SplitMix64 (Steele, Lea, Flood 2014). Not a library's generator, because those may change their stream between
/// versions, and a seed must always give the same plan.
#[derive(Debug, Clone)]
struct Random(u64);

impl Random {
    fn mix(mut z: u64) -> u64 {
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        Self::mix(self.0)
    }

    /// Exponential with mean 1, never infinite: the uniform part is in (0, 1].
    fn exponential(&mut self) -> f64 {
        let uniform = ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        -uniform.ln()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn plan(arrivals: Arrivals, seconds: u64) -> Plan {
        let mut p = Plan::new("192.0.2.1:7".parse().unwrap());
        p.arrivals = arrivals;
        p.duration = Duration::from_secs(seconds);
        p
    }

    fn all(p: &Plan, parts: usize) -> Vec<u64> {
        let mut at: Vec<u64> =
            (0..parts).flat_map(|i| Schedule::new(p, i, parts, 4).unwrap()).map(|t| t.at).collect();
        at.sort_unstable();
        at
    }

    #[test]
    fn constant_parts_interleave_to_equal_intervals() {
        let p = plan(Arrivals::Open { rate: 1000.0, process: Process::Constant }, 1);
        for parts in [1, 2, 3] {
            let at = all(&p, parts);
            assert_eq!(at.len(), 1000);
            assert!(at.windows(2).all(|w| (w[1] - w[0]).abs_diff(1_000_000) <= 1));
        }
    }

    #[test]
    fn bursts_come_together_and_keep_the_rate() {
        let p = plan(Arrivals::Open { rate: 1000.0, process: Process::Burst { len: 10 } }, 1);
        for parts in [1, 3] {
            let at = all(&p, parts);
            assert_eq!(at.len(), 1000);
            for (i, burst) in at.chunks(10).enumerate() {
                assert!(burst.iter().all(|t| t.abs_diff(i as u64 * 10_000_000) <= 1));
            }
        }
    }

    /// 200,000 exponential intervals: their mean and their variance are known within a few standard errors
    /// (mean: 1/sqrt(n) = 0.22 %, variance: sqrt(8/n) = 0.63 %). The seed is fixed, so this cannot flicker.
    #[test]
    fn poisson_has_the_mean_and_the_variance() {
        let p = plan(Arrivals::Open { rate: 20_000.0, process: Process::Poisson }, 10);
        for parts in [1, 2] {
            let at = all(&p, parts);
            let gaps: Vec<f64> = at.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
            assert!((mean / 50_000.0 - 1.0).abs() < 0.01, "mean {mean}");
            assert!((variance / mean.powi(2) - 1.0).abs() < 0.03, "variance {variance}");
        }
    }

    #[test]
    fn a_seed_is_a_plan() {
        let p = plan(Arrivals::Open { rate: 20_000.0, process: Process::Poisson }, 1);
        assert_eq!(all(&p, 2), all(&p, 2));
        let mut other = p.clone();
        other.seed = 2;
        assert_ne!(all(&p, 2), all(&other, 2));
        let parts: Vec<Vec<_>> = (0..2).map(|i| Schedule::new(&p, i, 2, 4).unwrap().collect()).collect();
        assert_ne!(parts[0], parts[1], "parts must not repeat each other");
    }

    #[test]
    fn a_ramp_sends_its_mean_rate_and_grows() {
        let mut p = plan(Arrivals::Ramp { from: 100.0, to: 900.0 }, 10);
        p.warmup = Duration::from_secs(1);
        let at = all(&p, 2);
        assert!(at.len().abs_diff(100 + 5000) <= 2, "{}", at.len());
        let in_second = |s: u64| at.iter().filter(|&&t| t / 1_000_000_000 == s).count();
        assert!(in_second(0).abs_diff(100) <= 1);
        assert!(in_second(1).abs_diff(140) <= 1);
        assert!(in_second(10).abs_diff(860) <= 1);
    }

    #[test]
    fn fast_plans_run_on_one_flow_and_slow_ones_alternate() {
        let flows = |rate| -> Vec<u32> {
            let p = plan(Arrivals::Open { rate, process: Process::Constant }, 1);
            Schedule::new(&p, 0, 1, 2).unwrap().take(32).map(|t| t.flow).collect()
        };
        assert_eq!(flows(100.0)[..4], [0, 1, 0, 1]);
        assert_eq!(flows(1e6)[..17], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    }

    proptest! {
        #[test]
        fn times_never_run_backwards_and_stay_in_the_window(
            rate in 0.1f64..1e6, to in 0.1f64..1e6, kind in 0u8..4, parts in 1usize..4, seed: u64
        ) {
            let arrivals = match kind {
                0 => Arrivals::Open { rate, process: Process::Constant },
                1 => Arrivals::Open { rate, process: Process::Poisson },
                2 => Arrivals::Open { rate, process: Process::Burst { len: 7 } },
                _ => Arrivals::Ramp { from: rate, to },
            };
            let mut p = plan(arrivals, 3);
            p.seed = seed;
            for part in 0..parts {
                let mut last = 0;
                for t in Schedule::new(&p, part, parts, 3).unwrap().take(5000) {
                    prop_assert!(t.at >= last && t.at < 3_000_000_000 && t.flow < 3);
                    last = t.at;
                }
            }
        }
    }
}
