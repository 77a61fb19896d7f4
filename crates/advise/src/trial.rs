//! One measured run of the load against one server, and the sum of many.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use udpath_lab::{Lab, Rps, confined, online_cpus};
use udpath_load::cpu::CpuUse;
use udpath_load::plan::{Arrivals, Plan};
use udpath_load::result::{Counts, Latency, LoadResult};
use udpath_load::template::Protocol;
use udpath_load::{Engine, Progress};
use udpath_steer::CpuSet;

use crate::Error;
use crate::config::Config;
use crate::running::live::Seen;
use crate::server_under_test::{CLIENT, ServerUnderTest};
use crate::statistics::median;

/// Warm-up of a trial as a share of its length, and its bounds. Shorter: the first trial after a change of settings
/// measures the change. Longer: time that could go into more trials.
const WARMUP_SHARE: f64 = 0.2;
const WARMUP: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// When a request of a trial counts as lost. Far above any latency of a working server in a lab; long enough that a
/// scheduling pause on a shared machine is not a loss.
const TIMEOUT: Duration = Duration::from_millis(200);

/// Trials in a row whose flows drift before their rung is refused. Fewer: a program that has one of the CPUs for the
/// length of a trial fails the rung. More: a rung whose flows always drift is refused later.
const DRIFTING: u32 = 3;

/// The plan of every trial: the same for all rungs.
pub(crate) fn plan(config: &Config, target: std::net::SocketAddr) -> Plan {
    let threads = config.workers.min(config.flows as usize).max(1);
    Plan {
        flows: config.flows,
        arrivals: Arrivals::Closed { inflight: config.inflight },
        size: config.size,
        duration: config.trial,
        warmup: config.trial.mul_f64(WARMUP_SHARE).clamp(WARMUP.0, WARMUP.1),
        timeout: TIMEOUT,
        threads,
        ..Plan::new(target)
    }
}

/// Runs `plan` against `server`, once unless its flows drift. None if the server answered nothing, which is not an
/// error. `watch` gets the progress a few times a second.
pub(crate) fn run(
    lab: &Lab,
    engine: Engine,
    plan: &Plan,
    protocol: &dyn Protocol,
    server: &ServerUnderTest,
    watch: &mut (dyn FnMut(&Progress) + Send),
    stop: &AtomicBool,
) -> Result<Option<LoadResult>, Error> {
    set_receive_steering(lab, server)?;
    // The sides of a duet are measured at the same time: one of them alone would be another measurement.
    let trials = if server.cpus.is_some() { 1 } else { DRIFTING };
    until_flows_stay(trials, stop, || {
        let mut load = || udpath_load::run(plan, engine, protocol, watch, stop);
        let done = lab.machine(CLIENT)?.run(|| match &server.cpus {
            Some(cpus) => confined(cpus, load).map(|done| of_side(done, cpus)),
            None => Ok(load()),
        })?;
        let on = || server.cpus.as_ref().map_or_else(String::new, |cpus| format!(" on CPUs {cpus}"));
        let done =
            done.map_err(|cause| udpath_lab::Error::System { what: format!("run the load{}", on()), cause })?;
        match done {
            Ok(result) => measured(result, &server.name).map(Some),
            Err(udpath_load::Error::Cut { result, .. }) => measured(*result, &server.name).map(Some),
            Err(udpath_load::Error::NoAnswer { .. }) => Ok(None),
            Err(udpath_load::Error::Plan(error)) => Err(Error::Config(error.into())),
            Err(cause) => Err(Error::Load { rung: server.name.clone(), cause }),
        }
    })
}

/// Repeats a trial whose flows drift, unless the measurements shall end.
fn until_flows_stay<T>(
    trials: u32,
    stop: &AtomicBool,
    mut trial: impl FnMut() -> Result<T, Error>,
) -> Result<T, Error> {
    for _ in 1..trials {
        match trial() {
            Err(Error::Drifted { .. }) if !stop.load(Ordering::Relaxed) => {}
            done => return done,
        }
    }
    trial()
}

/// A trial's result, unless its flows drifted: then it is not that of the rung.
fn measured(result: LoadResult, rung: &str) -> Result<LoadResult, Error> {
    match result.drifted {
        Some(cpu) => Err(Error::Drifted { rung: rung.to_owned(), cpu, cpus: result.cpus.len() }),
        None => Ok(result),
    }
}

/// The CPU time of one side of a duet.
fn of_side(
    done: Result<LoadResult, udpath_load::Error>,
    cpus: &CpuSet,
) -> Result<LoadResult, udpath_load::Error> {
    done.map(|mut result| {
        result.cpus.retain(|used| cpus.contains(used.cpu));
        result
    })
}

/// Flows that each queue follows, with RFS: enough for every flow of a climb to have its own entry. Fewer: flows share
/// an entry and move between CPUs. More: memory, eight bytes each.
const RFS_FLOWS: u32 = 4096;

/// Sets RPS and RFS on the server's end of the link as its rung has them, where they differ.
pub(crate) fn set_receive_steering(lab: &Lab, server: &ServerUnderTest) -> Result<(), udpath_lab::Error> {
    let settings = &server.settings;
    let wanted = Rps {
        cpus: match (server.rps_cpus(), settings.rps) {
            (Some(cpus), true) => cpus.clone(),
            (None, true) => online_cpus()?,
            (_, false) => CpuSet::new(),
        },
        flows: if settings.rfs { RFS_FLOWS } else { 0 },
    };
    let interface = lab.machine(server.machine)?.towards(CLIENT)?;
    if interface.rps()?.iter().any(|found| *found != wanted) {
        interface.set_rps(&wanted)?;
    }
    lab.set_flow_table(settings.rfs)
}

/// All trials of one rung.
#[derive(Debug, Default)]
pub(crate) struct Trials {
    pub(crate) tps: Vec<f64>,
    pub(crate) counts: Counts,
    pub(crate) latency: Option<Latency>,
    pub(crate) warnings: Vec<String>,
    cpus: Vec<CpuUse>,
    completed: f64,
    busy_seconds: f64,
}

impl Trials {
    /// Adds one trial; none is one without a single transaction.
    pub(crate) fn add(&mut self, trial: Option<&LoadResult>) {
        let Some(trial) = trial else {
            self.tps.push(0.0);
            return;
        };
        self.tps.push(trial.tps);
        self.counts.add(&trial.counts);
        self.add_latency(trial.sent_latency.clone());
        self.completed += trial.tps * trial.seconds;
        self.busy_seconds += trial.cpus.iter().map(CpuUse::busy_seconds).sum::<f64>();
        add_cpus(&mut self.cpus, &trial.cpus);
        for warning in trial.warnings.iter().chain(&trial.generator.reasons) {
            self.warn(warning);
        }
    }

    /// Adds one trial of live traffic: its figure is datagrams per second of CPU time.
    pub(crate) fn add_seen(&mut self, seen: &Seen) {
        self.tps.push(seen.per_cpu_second());
        let arrived = seen.delivered + seen.dropped;
        let counts = Counts {
            sent: arrived,
            ok: seen.delivered,
            received: seen.delivered,
            lost: seen.dropped,
            ..Counts::default()
        };
        self.counts.add(&counts);
        self.add_latency(seen.latency());
        self.completed += seen.delivered as f64;
        self.busy_seconds += seen.cpu;
        add_cpus(&mut self.cpus, &seen.cpus);
    }

    /// Adds the trials of the same rung from another comparison.
    pub(crate) fn merge(&mut self, other: Self) {
        self.tps.extend(other.tps);
        self.counts.add(&other.counts);
        self.add_latency(other.latency);
        self.completed += other.completed;
        self.busy_seconds += other.busy_seconds;
        add_cpus(&mut self.cpus, &other.cpus);
        other.warnings.iter().for_each(|warning| self.warn(warning));
    }

    fn add_latency(&mut self, one: Option<Latency>) {
        self.latency = match (self.latency.take(), one) {
            (Some(sum), Some(one)) => Some(sum.merged(&one)),
            (sum, one) => sum.or(one),
        };
    }

    /// Notes a warning, unless one like it is there: the figures in a sentence differ from trial to trial.
    pub(crate) fn warn(&mut self, warning: &str) {
        let kind =
            |text: &str| text.rsplit(|c: char| c.is_ascii_digit()).next().unwrap_or_default().to_owned();
        if !self.warnings.iter().any(|known| kind(known) == kind(warning)) {
            self.warnings.push(warning.to_owned());
        }
    }

    /// Median of the trials' tps.
    pub(crate) fn median_tps(&self) -> f64 {
        median(self.tps.clone()).unwrap_or(0.0)
    }

    /// Busy CPU time of the machine per transaction, nanoseconds.
    pub(crate) fn cpu_ns_per_transaction(&self) -> f64 {
        if self.completed > 0.0 { self.busy_seconds / self.completed * 1e9 } else { 0.0 }
    }

    /// How each CPU spent the trials.
    pub(crate) fn cpus(&self) -> Vec<CpuUse> {
        let mut cpus = self.cpus.clone();
        // In duets the other side may come first.
        cpus.sort_by_key(|used| used.cpu);
        cpus
    }
}

/// Averages weighted by the length of the intervals.
fn add_cpus(sum: &mut Vec<CpuUse>, one: &[CpuUse]) {
    for new in one {
        let Some(old) = sum.iter_mut().find(|old| old.cpu == new.cpu) else {
            sum.push(*new);
            continue;
        };
        let seconds = old.seconds + new.seconds;
        if seconds <= 0.0 {
            continue;
        }
        let mean = |a: f64, b: f64| (a * old.seconds + b * new.seconds) / seconds;
        *old = CpuUse {
            cpu: old.cpu,
            usr: mean(old.usr, new.usr),
            sys: mean(old.sys, new.sys),
            soft: mean(old.soft, new.soft),
            irq: mean(old.irq, new.irq),
            steal: mean(old.steal, new.steal),
            idle: mean(old.idle, new.idle),
            seconds,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_between_the_middle_two() {
        let trials = |tps: &[f64]| Trials { tps: tps.to_vec(), ..Trials::default() };
        assert_eq!(trials(&[]).median_tps(), 0.0);
        assert_eq!(trials(&[3.0, 1.0, 2.0]).median_tps(), 2.0);
        assert_eq!(trials(&[4.0, 1.0, 3.0, 2.0]).median_tps(), 2.5);
    }

    #[test]
    fn cpu_shares_are_weighted_by_time() {
        let cpu = |idle, seconds| CpuUse { cpu: 0, idle, usr: 1.0 - idle, seconds, ..CpuUse::default() };
        let mut sum = vec![cpu(0.0, 1.0)];
        add_cpus(&mut sum, &[cpu(1.0, 3.0), CpuUse { cpu: 1, ..cpu(0.5, 1.0) }]);
        assert_eq!(sum.len(), 2);
        assert!((sum[0].idle - 0.75).abs() < 1e-12 && (sum[0].seconds - 4.0).abs() < 1e-12);
    }

    #[test]
    fn a_trial_whose_flows_drifted_fails_its_rung_alone() {
        let stayed = crate::comparison::tests::load(1e5);
        assert_eq!(measured(stayed.clone(), "rfs").unwrap(), stayed);
        let error = measured(LoadResult { drifted: Some(1), ..stayed }, "rfs").unwrap_err();
        assert!(
            error.to_string().starts_with("rfs was not measured: the flows drifted to CPU 1 of "),
            "{error}"
        );
        assert!(error.blames("rfs") && !error.blames("percpu"));
    }

    #[test]
    fn a_trial_whose_flows_drift_is_repeated() {
        let trials = |drifting: u32, stopped: bool| {
            let (mut made, stop) = (0, AtomicBool::new(stopped));
            let done = until_flows_stay(3, &stop, || {
                made += 1;
                let drifted = || Error::Drifted { rung: "rfs".to_owned(), cpu: 0, cpus: 2 };
                if made > drifting { Ok(made) } else { Err(drifted()) }
            });
            (done.ok(), made)
        };
        assert_eq!(trials(0, false), (Some(1), 1));
        assert_eq!(trials(2, false), (Some(3), 3));
        assert_eq!(trials(3, false), (None, 3));
        assert_eq!(trials(1, true), (None, 1));
    }

    #[test]
    fn silent_trials_count_as_nothing() {
        let mut trials = Trials::default();
        trials.add(None);
        assert_eq!((trials.tps.as_slice(), trials.cpu_ns_per_transaction()), (&[0.0][..], 0.0));
    }
}
