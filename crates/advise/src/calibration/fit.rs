//! From trials to costs: what the trials measured stays as it is; a few factors are found so that the model carries
//! what the rungs carried.
//!
//! ```text
//!   reuseport              k   all work of a transaction, in the profile's proportions
//!   batched                    the cost of a call: what two calls per transaction less save
//!   shared                 f   lines and hand-overs, as they are under a load with more in the caches than two threads that
//!                              play with one line
//!   rps+reuseport          v   interrupts between CPUs
//!   reuseport, one CPU         is predicted: the error
//! ```
//! Each factor has one rung, so the fit has no freedom to hide a wrong term: what the model has wrong, the rungs that
//! were not used for it show.

use udpath_model::costs::{COSTS_SCHEMA, Range, Terms};
use udpath_model::{Costs, Effort, predict};
use udpath_serve::Io;

use super::micro::Micro;
use super::shares::Shares;
use super::{Calibrated, Check, Measured};

/// Simulated for each step of the fit: some ten thousand transactions.
const EFFORT: Effort = Effort { seed: 1, runs: 1, warm_up_ms: 5, window_ms: 30 };
/// Steps of each factor. Each halves the interval, or squares the remaining deviation.
const STEPS: usize = 12;
/// Rounds over all factors: each changes the rungs of the others a little.
const ROUNDS: usize = 3;
/// Bounds of the factors of moves and of interrupts between CPUs. Beyond them a rung shows something else.
const MOVES: (f64, f64) = (0.1, 10.0);
const INTERRUPTS: (f64, f64) = (0.02, 10.0);
/// Least error of costs: half of what trials of one rung differ by on a quiet machine.
const LEAST_ERROR: f64 = 0.02;
/// A hard interrupt, in calls; an interrupt sent on hardware, in calls; and its way, in lines. See
/// [`udpath_model::costs::TERMS`].
const INTERRUPT: f64 = 8.0;
const IPI: f64 = 2.0;
const IPI_DELAY: f64 = 10.0;
/// Part of the sending side's memory work that completing a packet later takes.
const SENT: f64 = 0.15;

/// Costs from trials, shares and rungs, the first of which is the profiled one.
pub(super) fn fit(micro: &Micro, shares: &Shares, measured: &[Measured]) -> Calibrated {
    let find = |wanted: fn(&Measured) -> bool| measured.iter().find(|rung| wanted(rung));
    let cpus = measured.iter().map(|rung| rung.rung.cpus).max().unwrap_or(1);
    let all_cpus = |rung: &Measured| rung.rung.cpus > 1;
    let profiled = &measured[0];
    let mut costs = Costs {
        schema: COSTS_SCHEMA.to_owned(),
        machine: machine(),
        range: Range {
            cpus,
            queues: measured.iter().map(|rung| rung.rung.queues as usize).max().unwrap_or(1),
            nodes: 1,
            threads_per_core: 1,
            kernel: profiled.rung.description().map_or_else(String::new, |it| it.kernel.to_string()),
            virtual_link: true,
        },
        error: 0.0,
        terms: terms(micro, shares, profiled, find(|rung| rung.rung.batch > 1)),
    };
    let shared = find(|rung| rung.rung.io == Io::Shared).filter(|rung| all_cpus(rung));
    let steered = find(|rung| rung.rung.rps).filter(|rung| all_cpus(rung));
    for _ in 0..ROUNDS {
        fit_work(&mut costs, profiled);
        if let Some(rung) = shared {
            bisect(&mut costs, rung, MOVES, |terms, factor| {
                terms.line *= factor;
                terms.handover *= factor;
            });
        }
        if let Some(rung) = steered {
            bisect(&mut costs, rung, INTERRUPTS, |terms, factor| {
                terms.virtual_ipi *= factor;
                terms.virtual_ipi_delay *= factor;
                terms.steer *= factor.min(2.0);
            });
        }
    }
    let checks: Vec<Check> = measured
        .iter()
        .map(|measured| Check { modelled: modelled(&costs, measured), measured: measured.clone() })
        .collect();
    costs.error = checks.iter().map(|check| check.off().abs()).fold(LEAST_ERROR, f64::max).min(1.0);
    Calibrated { costs, checks }
}

/// The costs before any factor: the profile's shares of the CPU time that a transaction takes, and the trials' figures.
fn terms(micro: &Micro, shares: &Shares, profiled: &Measured, batched: Option<&Measured>) -> Terms {
    let each = |rung: &Measured| rung.rung.cpus as f64 * 1e9 / rung.tps.max(1.0);
    let whole = each(profiled);
    let defaults = Costs::default().terms;
    // Two calls, of which a batch of n leaves 1/n.
    let call = batched.map_or(micro.call, |rung| {
        let saved = 1.0 - 1.0 / rung.rung.batch as f64;
        ((whole - each(rung)) / (2.0 * saved)).max(micro.call)
    });
    // What the samples count as calls beyond that, or below it, is in the reading and sending of the same calls.
    let rest = (shares.calls * whole - 2.0 * call) / 2.0;
    let [read, send] = [shares.read, shares.send].map(|share| (share * whole + rest).max(0.0));
    let enqueue = shares.enqueue * whole;
    let (between, two) = (micro.between, |value: Option<f64>, default| value.unwrap_or(default));
    Terms {
        poll: shares.poll * whole,
        device_receive: shares.device_receive * whole,
        protocol_receive: shares.protocol_receive * whole,
        enqueue,
        discard: (enqueue - micro.enqueue_over_discard).clamp(micro.lock, whole),
        call,
        read,
        service: shares.service * whole,
        send,
        device_send: shares.device_send * whole,
        sent: SENT * send,
        interrupt: INTERRUPT * micro.call,
        steer: defaults.steer,
        ipi: IPI * micro.call,
        ipi_delay: IPI_DELAY * two(between.map(|between| between.line), defaults.line),
        virtual_ipi: two(between.map(|between| between.ipi), defaults.virtual_ipi),
        virtual_ipi_delay: two(between.map(|between| between.ipi_delay), defaults.virtual_ipi_delay),
        wake: micro.wake,
        switch: micro.switch,
        lock: micro.lock,
        handover: two(between.map(|between| between.handover), defaults.handover),
        line: two(between.map(|between| between.line), defaults.line),
        remote: defaults.remote,
        siblings: defaults.siblings,
        tcp_receive: micro.tcp,
        tcp_send: micro.tcp,
        copy_cached: micro.copy_cached,
        copy_memory: micro.copy_memory,
        generate: shares.generate * whole,
    }
}

/// What the model carries on a rung.
fn modelled(costs: &Costs, measured: &Measured) -> f64 {
    let outcome = measured.rung.description().and_then(|it| predict(&it, costs, &EFFORT).ok());
    outcome.map_or(0.0, |outcome| outcome.tps)
}

/// Scales all work of a transaction until the model carries what the profiled rung carried.
fn fit_work(costs: &mut Costs, profiled: &Measured) {
    for _ in 0..STEPS / 2 {
        let factor = modelled(costs, profiled) / profiled.tps.max(1.0);
        if !(factor.is_finite() && factor > 0.0) {
            return;
        }
        let terms = &mut costs.terms;
        for work in [
            &mut terms.poll,
            &mut terms.device_receive,
            &mut terms.protocol_receive,
            &mut terms.enqueue,
            &mut terms.call,
            &mut terms.read,
            &mut terms.service,
            &mut terms.send,
            &mut terms.device_send,
            &mut terms.generate,
        ] {
            *work *= factor;
        }
    }
}

/// Finds the factor by which costs change so that the model carries what a rung carried: the more they cost, the less.
fn bisect(costs: &mut Costs, rung: &Measured, bounds: (f64, f64), change: impl Fn(&mut Terms, f64)) {
    let with = |factor: f64| {
        let mut changed = costs.clone();
        change(&mut changed.terms, factor);
        changed
    };
    let (mut low, mut high) = bounds;
    for _ in 0..STEPS {
        let middle = (low * high).sqrt();
        if modelled(&with(middle), rung) > rung.tps {
            low = middle;
        } else {
            high = middle;
        }
    }
    *costs = with((low * high).sqrt());
}

/// This machine in a few words.
fn machine() -> String {
    let facts = crate::machine::facts(0, String::new());
    let cpus = if facts.cpus == 1 { "CPU" } else { "CPUs" };
    format!("{} {cpus} ({}), Linux {}", facts.cpus, facts.cpu_model, facts.kernel)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibration::calibration_rungs;
    use crate::calibration::micro::Between;

    /// Rungs as a machine with known costs would carry them.
    fn carried(truth: &Costs) -> Vec<Measured> {
        let rungs = calibration_rungs(2).into_iter();
        rungs
            .map(|rung| {
                let tps = predict(&rung.description().unwrap(), truth, &EFFORT).unwrap().tps;
                Measured { rung, tps, trials: vec![tps] }
            })
            .collect()
    }

    #[test]
    fn a_fit_finds_the_machine_that_the_rungs_ran_on() {
        let mut truth = Costs::default();
        let terms = &mut truth.terms;
        (terms.line, terms.handover, terms.virtual_ipi) = (90.0, 310.0, 4000.0);
        terms.virtual_ipi_delay = 26_000.0;
        let measured = carried(&truth);
        let whole = 2.0e9 / measured[0].tps;
        let share = |term: f64| term / whole;
        let terms = truth.terms;
        let shares = Shares {
            poll: share(terms.poll),
            device_receive: share(terms.device_receive),
            protocol_receive: share(terms.protocol_receive),
            enqueue: share(terms.enqueue),
            read: share(terms.read),
            send: share(terms.send),
            device_send: share(terms.device_send),
            service: share(terms.service),
            generate: share(terms.generate),
            calls: share(2.0 * terms.call),
            ..Shares::default()
        };
        let between = Between { line: 60.0, handover: 200.0, ipi: 10_000.0, ipi_delay: 65_000.0 };
        let micro = Micro {
            call: terms.call,
            wake: terms.wake,
            switch: terms.switch,
            lock: terms.lock,
            copy_cached: 12.0,
            copy_memory: 70.0,
            tcp: 175.0,
            enqueue_over_discard: 30.0,
            between: Some(between),
        };
        let found = fit(&micro, &shares, &measured);
        for check in &found.checks {
            assert!(check.off().abs() < 0.04, "{}: {:+.3}", check.measured.rung.name(), check.off());
        }
        let line = found.costs.terms.line / 90.0;
        assert!((0.7..1.4).contains(&line), "line {}", found.costs.terms.line);
        assert_eq!(found.costs.check(), Ok(()));
    }
}
