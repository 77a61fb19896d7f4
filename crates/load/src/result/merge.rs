//! Merges the results of loads that ran at the same time on parts of one plan.
//!
//! Counts and histograms add up without loss; percentiles are computed from the sum of the histograms, never averaged.

use crate::record::Arrived;
use crate::template::Received;

use super::{Core, Counts, Delivered, Kind, Latency, LoadResult};

impl Latency {
    /// A distribution from its buckets: (highest value of the bucket, count), values ascending.
    /// `min`, `max` and `mean` are exact values where the caller knows them. None if nothing was recorded.
    #[must_use]
    pub fn from_buckets(histogram: Vec<(u64, u64)>, min: u64, max: u64, mean: f64) -> Option<Self> {
        let count: u64 = histogram.iter().map(|(_, n)| n).sum();
        if count == 0 {
            return None;
        }
        let at = |share: f64| -> u64 {
            let rank = ((share * count as f64).ceil() as u64).clamp(1, count);
            let mut seen = 0;
            for (value, n) in &histogram {
                seen += n;
                if seen >= rank {
                    return (*value).clamp(min, max);
                }
            }
            max
        };
        let (p50, p90, p99, p99_9, p99_99) = (at(0.5), at(0.9), at(0.99), at(0.999), at(0.9999));
        Some(Self { count, min, mean, p50, p90, p99, p99_9, p99_99, max, histogram })
    }

    /// Both distributions as one.
    #[must_use]
    pub fn merged(&self, other: &Self) -> Self {
        let mut histogram = Vec::with_capacity(self.histogram.len() + other.histogram.len());
        let (mut a, mut b) = (self.histogram.iter().peekable(), other.histogram.iter().peekable());
        loop {
            let next = match (a.peek(), b.peek()) {
                (Some(&&(va, na)), Some(&&(vb, nb))) => match va.cmp(&vb) {
                    std::cmp::Ordering::Less => (a.next(), (va, na)).1,
                    std::cmp::Ordering::Greater => (b.next(), (vb, nb)).1,
                    std::cmp::Ordering::Equal => (a.next().and(b.next()), (va, na + nb)).1,
                },
                (Some(&&left), None) => (a.next(), left).1,
                (None, Some(&&left)) => (b.next(), left).1,
                (None, None) => break,
            };
            histogram.push(next);
        }
        let count = (self.count + other.count).max(1);
        let mean = (self.mean * self.count as f64 + other.mean * other.count as f64) / count as f64;
        // Neither side is empty, unless built by hand; then the other one is the result.
        Self::from_buckets(histogram, self.min.min(other.min), self.max.max(other.max), mean)
            .unwrap_or_else(|| self.clone())
    }
}

fn merged(a: Option<&Latency>, b: Option<&Latency>) -> Option<Latency> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.merged(b)),
        (one, other) => one.or(other).cloned(),
    }
}

impl LoadResult {
    /// Merges results of the same time: rates, counts and histograms add up; targets, warnings and reasons are joined.
    /// The CPUs are those of the first result that has any (one machine). None if there is nothing to merge.
    #[must_use]
    pub fn merge(results: &[Self]) -> Option<Self> {
        let (first, rest) = results.split_first()?;
        let mut all = first.clone();
        for one in rest {
            for target in &one.targets {
                if !all.targets.contains(target) {
                    all.targets.push(target.clone());
                }
            }
            all.flows = all.flows.saturating_add(one.flows);
            all.seconds = all.seconds.max(one.seconds);
            all.counts.add(&one.counts);
            Kind::add(&mut all.kinds, one.kinds.clone());
            all.offered = match (all.offered, one.offered) {
                (Some(a), Some(b)) => Some(a + b),
                _ => None,
            };
            all.tps += one.tps;
            all.series = all.series.zip(one.series.as_ref()).and_then(|(all, one)| all.merged(one));
            all.mbits += one.mbits;
            all.delivered = match (all.delivered, one.delivered) {
                (Some(a), Some(b)) => Some(Delivered {
                    datagrams: a.datagrams + b.datagrams,
                    bytes: a.bytes + b.bytes,
                    per_second: a.per_second + b.per_second,
                    mbits: a.mbits + b.mbits,
                }),
                _ => None,
            };
            all.intended_latency = merged(all.intended_latency.as_ref(), one.intended_latency.as_ref());
            all.sent_latency = merged(all.sent_latency.as_ref(), one.sent_latency.as_ref());
            all.lateness = merged(all.lateness.as_ref(), one.lateness.as_ref());
            all.generator.limited |= one.generator.limited;
            join(&mut all.generator.reasons, &one.generator.reasons);
            join(&mut all.generator.notes, &one.generator.notes);
            all.generator.cpu_seconds += one.generator.cpu_seconds;
            let both = |a: Option<Core>, b: Option<Core>| a.zip(b).and_then(|(a, b)| a.merged(b));
            all.per_core.sender = both(all.per_core.sender, one.per_core.sender);
            all.per_core.receiver = both(all.per_core.receiver, one.per_core.receiver);
            if all.cpus.is_empty() {
                all.cpus.clone_from(&one.cpus);
            }
            join(&mut all.warnings, &one.warnings);
        }
        Some(all)
    }

    /// One-way modes: adds the receiver's report of the whole run.
    pub fn deliver(&mut self, arrived: Arrived) {
        let (size, seconds) = (u64::from(self.size.max(1)), self.seconds.max(f64::MIN_POSITIVE));
        let Received { bytes, cpu, .. } = arrived.all;
        // A stream has no datagrams: its bytes make whole messages. Each connection ends within one, and those parts,
        // which do not count as sent, may add up to more.
        let (datagrams, in_window) = match self.transport.as_str() {
            "tcp" => ((bytes / size).min(self.counts.sent), arrived.in_window as f64 / size as f64),
            _ => (arrived.all.datagrams, arrived.all.datagrams as f64),
        };
        self.counts.deliver(datagrams);
        self.delivered = Some(Delivered {
            datagrams,
            bytes,
            per_second: in_window / seconds,
            mbits: arrived.in_window as f64 * 8.0 / 1e6 / seconds,
        });
        self.per_core.receiver =
            cpu.and_then(|cpu| Core::new(cpu.as_secs_f64(), datagrams as f64, bytes as f64));
    }

    /// Share of requests without a valid reply in time, 0..=1; none if unknown (one way, no report from the
    /// receiver).
    #[must_use]
    pub fn loss(&self) -> Option<f64> {
        (self.mode == "rr" || self.delivered.is_some()).then(|| self.counts.loss())
    }

    /// True if requests were sent and no reply arrived: there is no server.
    #[must_use]
    pub fn unanswered(&self) -> bool {
        let Counts { sent, received, .. } = self.counts;
        self.mode == "rr" && sent > 0 && received == 0
    }

    /// Busy CPU time of the whole machine, in CPUs: the divisor of throughput per core.
    #[must_use]
    pub fn busy_cpus(&self) -> f64 {
        self.cpus.iter().map(|c| 1.0 - c.idle.clamp(0.0, 1.0)).sum()
    }
}

fn join(all: &mut Vec<String>, more: &[String]) {
    for one in more {
        if !all.contains(one) {
            all.push(one.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[u64]) -> Option<Latency> {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        let mut buckets: Vec<(u64, u64)> = Vec::new();
        for v in &sorted {
            match buckets.last_mut() {
                Some((value, n)) if value == v => *n += 1,
                _ => buckets.push((*v, 1)),
            }
        }
        let mean = values.iter().sum::<u64>() as f64 / values.len().max(1) as f64;
        Latency::from_buckets(buckets, *sorted.first()?, *sorted.last()?, mean)
    }

    #[test]
    fn percentiles_are_ranks() {
        let values: Vec<u64> = (1..=1000).collect();
        let l = of(&values).unwrap();
        assert_eq!(
            (l.count, l.min, l.p50, l.p90, l.p99, l.p99_9, l.p99_99, l.max),
            (1000, 1, 500, 900, 990, 999, 1000, 1000)
        );
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn cores_add_their_work_and_their_time() {
        let core = |cpu, count, bytes| Core::new(cpu, count, bytes).unwrap();
        let merged = core(1.0, 1000.0, 1e6).merged(core(3.0, 1000.0, 1e6)).unwrap();
        assert_eq!(merged, core(4.0, 2000.0, 2e6));
        assert_eq!((merged.per_second, merged.mbits), (500.0, 4.0));
        assert_eq!(Core::new(0.0, 5.0, 5.0), None);
    }

    proptest! {
        /// Merging two distributions gives the distribution of all their values.
        #[test]
        fn merging_loses_nothing(a in prop::collection::vec(0u64..50, 1..40), b in prop::collection::vec(0u64..50, 1..40)) {
            let both: Vec<u64> = a.iter().chain(&b).copied().collect();
            let (merged, direct) = (of(&a).unwrap().merged(&of(&b).unwrap()), of(&both).unwrap());
            prop_assert!((merged.mean - direct.mean).abs() < 1e-9);
            prop_assert_eq!(Latency { mean: 0.0, ..merged }, Latency { mean: 0.0, ..direct });
        }
    }
}
