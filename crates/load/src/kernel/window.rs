//! The measured window: the difference of two readings of the loop's shared memory and of the machine's CPU times.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use udpath_bpf::{BUCKETS, Memory, bucket_value};

use super::interface::Interface;
use super::launcher::Account;
use crate::cpu::CpuUse;
use crate::plan::Plan;
use crate::record::{Evidence, Outcome, Stopwatch};
use crate::result::{Latency, LoadResult};

/// Idle share of the CPUs above which a closed loop was too small to saturate the server. Lower: the idle time of any
/// machine counts against the generator. Higher: a starved server looks like a slow one.
const STARVED_IDLE: f64 = 0.15;
/// Share of all transactions on one CPU above which the load did not spread over the CPUs it was started on.
const ONE_CPU: f64 = 0.95;
/// Share of time stolen by the hypervisor above which the figures are not reliable.
const STEAL: f64 = 0.02;

/// Time between two reports of latency while the window is open.
const INTERVAL: Duration = Duration::from_secs(1);

/// The readings when the window opened.
#[derive(Debug)]
pub(super) struct Window {
    watch: Stopwatch,
    /// Valid replies by CPU.
    ok: Vec<u64>,
    homes: BTreeMap<usize, u64>,
    latency: Vec<u64>,
}

/// The changes until it closed.
#[derive(Debug)]
pub(super) struct Measured {
    seconds: f64,
    ok: Vec<u64>,
    /// Requests by the CPU that is their flow's home; empty if flows have no homes.
    homes: BTreeMap<usize, u64>,
    latency: Vec<u64>,
    cpus: Vec<CpuUse>,
}

impl Window {
    pub(super) fn open(in_kernel: &[Memory]) -> Self {
        let (ok, latency) = read(in_kernel);
        Self { watch: Stopwatch::start(), ok, homes: by_home(in_kernel), latency }
    }

    pub(super) fn close(self, in_kernel: &[Memory]) -> Measured {
        let (seconds, cpus) = self.watch.stop();
        let (ok, latency) = read(in_kernel);
        let less = |now: Vec<u64>, then: &[u64]| now.iter().zip(then).map(|(n, t)| n - t).collect();
        Measured {
            seconds: seconds.as_secs_f64(),
            ok: less(ok, &self.ok),
            homes: by_home(in_kernel).into_iter().map(|(cpu, now)| (cpu, now - self.homes[&cpu])).collect(),
            latency: less(latency, &self.latency),
            cpus,
        }
    }
}

/// The sums of all loops.
fn read(in_kernel: &[Memory]) -> (Vec<u64>, Vec<u64>) {
    let cpus = in_kernel.iter().map(Memory::cpus).max().unwrap_or(0);
    let ok_on = |cpu| in_kernel.iter().map(|memory| memory.counters(cpu).ok).sum();
    ((0..cpus).map(ok_on).collect(), latencies(in_kernel))
}

/// Requests of all loops by home.
fn by_home(in_kernel: &[Memory]) -> BTreeMap<usize, u64> {
    let mut sum = BTreeMap::new();
    for (cpu, sent) in in_kernel.iter().flat_map(Memory::by_home) {
        *sum.entry(cpu).or_default() += sent;
    }
    sum
}

/// Replies by bucket of latency, of all loops.
fn latencies(in_kernel: &[Memory]) -> Vec<u64> {
    let mut latency = vec![0; BUCKETS];
    in_kernel.iter().for_each(|memory| memory.add_latency(&mut latency));
    latency
}

/// Latency of each second of the window.
#[derive(Debug)]
pub(super) struct Seconds {
    begun: Instant,
    before: Vec<u64>,
}

impl Seconds {
    pub(super) fn begin(in_kernel: &[Memory]) -> Self {
        Self { begun: Instant::now(), before: latencies(in_kernel) }
    }

    /// Of the replies since the last report, if it is time for one and there are any.
    pub(super) fn report(&mut self, in_kernel: &[Memory]) -> Option<Latency> {
        if self.begun.elapsed() < INTERVAL {
            return None;
        }
        self.begun += INTERVAL;
        let now = latencies(in_kernel);
        let new: Vec<u64> = now.iter().zip(&self.before).map(|(now, before)| now - before).collect();
        self.before = now;
        latency(&new)
    }
}

/// The distribution in the buckets. Smallest, largest and mean are as exact as the buckets: within 1 %.
fn latency(buckets: &[u64]) -> Option<Latency> {
    let filled: Vec<(u64, u64)> =
        buckets.iter().enumerate().filter(|(_, n)| **n > 0).map(|(b, n)| (bucket_value(b), *n)).collect();
    let total: u64 = filled.iter().map(|(_, n)| n).sum();
    let sum: f64 = filled.iter().map(|(value, n)| *value as f64 * *n as f64).sum();
    let (min, max) = (filled.first()?.0, filled.last()?.0);
    Latency::from_buckets(filled, min, max, sum / total as f64)
}

/// The CPU that nearly all requests left from, of several, and their share: the home of their flows, or, without homes,
/// the CPU that their replies came back on, which is one of at most `others`.
fn drifted(homes: &BTreeMap<usize, u64>, ok: &[u64], others: usize) -> Option<(usize, f64)> {
    let replies: Vec<_> = ok.iter().copied().enumerate().collect();
    let (from, several) = match homes.is_empty() {
        true => (replies, others > 1),
        false => (homes.iter().map(|(cpu, sent)| (*cpu, *sent)).collect(), homes.len() > 1),
    };
    let sum: u64 = from.iter().map(|(_, n)| n).sum();
    let (cpu, most) = from.into_iter().max_by_key(|(_, n)| *n)?;
    let share = most as f64 / sum.max(1) as f64;
    (several && share > ONE_CPU).then_some((cpu, share))
}

impl Measured {
    /// The whole result. Latency and tps cover the window; the counts cover the whole run, because only those add up.
    pub(super) fn into_result(
        self,
        plan: &Plan,
        protocol: &'static str,
        inflight: u32,
        interface: &Interface,
        account: &Account,
        start_skew: Option<i64>,
    ) -> LoadResult {
        let completed: u64 = self.ok.iter().sum();
        let latency = latency(&self.latency);
        let several = self.cpus.len().min(interface.queues).min(plan.own_flows() as usize);
        let drifted = drifted(&self.homes, &self.ok, several);
        let mut warnings = self.warnings(inflight, drifted, account, plan);
        if let Err(mismatch) = account.counts.check() {
            warnings.push(format!("the account does not balance: {mismatch}"));
        }
        let starved = self.starved(inflight, plan);
        let outcome = Outcome {
            engine: "kernel",
            protocol,
            seconds: self.seconds,
            counts: account.counts,
            kinds: Vec::new(),
            completed,
            // In a closed loop a request is intended when the one before it is answered, and sent at that moment.
            intended_latency: latency.clone(),
            sent_latency: latency,
            lateness: None,
            delivered: None,
            evidence: Evidence::default(),
            cpus: self.cpus,
            warnings,
            start_skew,
        };
        let mut result = outcome.into_result(plan);
        result.drifted = drifted.map(|(cpu, _)| cpu as u32);
        result.arrivals = format!("{}, XDP on {}", result.arrivals, interface.name);
        if let Some(reason) = starved {
            result.generator.limited = true;
            result.generator.reasons.push(reason);
        }
        result
    }

    /// A loop that leaves CPUs idle was too small; it cannot be too slow.
    fn starved(&self, inflight: u32, plan: &Plan) -> Option<String> {
        let idle = self.cpus.iter().map(|c| c.idle).sum::<f64>() / self.cpus.len().max(1) as f64;
        (idle > STARVED_IDLE).then(|| {
            format!(
                "the CPUs were idle for {:.0} % of the time with {} requests in flight: the server may be able to do \
                 more; raise --inflight or --flows",
                idle * 100.0,
                u64::from(inflight) * u64::from(plan.own_flows())
            )
        })
    }

    fn warnings(
        &self,
        inflight: u32,
        drifted: Option<(usize, f64)>,
        account: &Account,
        plan: &Plan,
    ) -> Vec<String> {
        let mut warnings = Vec::new();
        let slots = u64::from(inflight) * u64::from(plan.own_flows());
        let counts = &account.counts;
        if counts.ok > 0 && counts.ok <= 4 * slots && counts.lost > counts.ok / 2 {
            warnings.push(
                "the first requests were answered, but not those sent by the driver: the other end of the veth does not \
                 accept XDP frames; attach an XDP program there (`udpath lab up --xdp MACHINE` does)"
                    .into(),
            );
        }
        if let Some((cpu, share)) = drifted {
            let share = share * 100.0;
            warnings.push(match self.homes.is_empty() {
                true => format!(
                    "{share:.0} % of the replies came back on CPU {cpu}: the flows did not spread over the {} CPUs; without a \
                     transmit mapping (XPS) they drift to one",
                    self.cpus.len()
                ),
                false => format!(
                    "{share:.0} % of the requests were sent from CPU {cpu}: the server hardly answered those of the other CPUs"
                ),
            });
        }
        if account.unsent > 0 {
            warnings.push(format!(
                "{} requests waited for user space: they are longer than the reply before them, and the driver left no room in \
                 its frame; requests of one length avoid that",
                account.unsent
            ));
        }
        let steal = self.cpus.iter().map(|c| c.steal).sum::<f64>() / self.cpus.len().max(1) as f64;
        if steal > STEAL {
            warnings.push(format!(
                "the hypervisor stole {:.0} % of the CPU time: the figures are too low",
                steal * 100.0
            ));
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_have_drifted_if_one_of_several_cpus_sends_nearly_all() {
        let homes = |sent: &[(usize, u64)]| sent.iter().copied().collect::<BTreeMap<_, _>>();
        let cpu = |homes: &BTreeMap<_, _>, ok: &[u64], others| drifted(homes, ok, others).map(|(cpu, _)| cpu);
        // By home, wherever the replies came back.
        assert_eq!(cpu(&homes(&[(0, 500), (1, 500)]), &[0, 1000], 2), None);
        assert_eq!(cpu(&homes(&[(0, 960), (1, 40)]), &[500, 500], 2), Some(0));
        assert_eq!(cpu(&homes(&[(2, 0), (3, 1000)]), &[500, 500], 2), Some(3));
        // All flows of a side that has one CPU are at home there.
        assert_eq!(cpu(&homes(&[(1, 1000)]), &[0, 1000], 2), None);
        // Without homes, by the replies; of one queue or one flow they are on one CPU.
        assert_eq!(cpu(&homes(&[]), &[40, 960], 2), Some(1));
        assert_eq!(cpu(&homes(&[]), &[60, 940], 2), None);
        assert_eq!(cpu(&homes(&[]), &[0, 1000], 1), None);
        assert_eq!(cpu(&homes(&[(0, 0), (1, 0)]), &[0, 0], 2), None);
    }
}
