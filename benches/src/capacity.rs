//! The model against what it did not see: rungs of this machine that it was not calibrated on, and published factors.
//!
//! ```text
//!   calibrate: five rungs, single operations ─▸ Costs ─┬▸ every other rung at 1 and 2 CPUs, 1, 2 and 4 queues, measured now
//!                                                      └▸ descriptions of the published machines: factors between steps
//! ```
//! The published figures stand here and nowhere else: no cost and no description knows them. A factor that is missed
//! names the term that is most likely wrong.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::{Result, ensure};
use udpath_advise::calibration::{CalibrationConfig, LabRung, Measurer, calibrate, calibration_rungs};
use udpath_model::{Costs, Effort, Outcome, ids, outcome, predict, published};
use udpath_protocols::echo::EchoLoad;
use udpath_serve::Io;

use crate::bed::udpath;
use crate::claim::{Bound, Claim, Unit};
use crate::results::Results;

/// How far a rung may be off, per cent.
const RUNG: f64 = 8.0;
/// How far a published factor may be off, per cent.
const FACTOR: f64 = 20.0;
/// Least speed of the simulation, events per second.
const SPEED: f64 = 1e6;
/// CPUs and queues of the rungs.
const PLACES: [(usize, u32); 6] = [(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (2, 4)];
/// Datagrams per call of the batched rung.
const BATCH: usize = 32;
/// Simulated for a rung.
const EFFORT: Effort = Effort { seed: 11, runs: 2, warm_up_ms: 10, window_ms: 60 };

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let config = CalibrationConfig::new(PathBuf::from(udpath()?));
    let (load, never) = (EchoLoad::new(0), AtomicBool::new(false));
    let found = calibrate(&config, &load, &mut |step| eprintln!("calibrating: {step}"), &never)?;
    for check in &found.checks {
        eprintln!(
            "calibrated on {}: measured {:.0}, modelled {:.0} ({:+.1} %)",
            check.measured.rung.name(),
            check.measured.tps,
            check.modelled,
            check.off() * 100.0
        );
    }
    let costs = &found.costs;
    eprintln!("{}", serde_json::to_string(costs)?);
    speed(results, costs)?;
    hold_out(results, &config, &load, costs)?;
    factors(results, costs)
}

/// Rungs that were not calibrated on.
fn hold_out(results: &mut Results, config: &CalibrationConfig, load: &EchoLoad, costs: &Costs) -> Result<()> {
    let used = calibration_rungs(2);
    let never = AtomicBool::new(false);
    for (cpus, queues) in PLACES {
        let measurer = Measurer::new(config, load, cpus, queues)?;
        let unseen: Vec<(&str, LabRung)> =
            rungs(cpus, queues).into_iter().filter(|(_, rung)| !used.contains(rung)).collect();
        let alone: Vec<LabRung> = unseen.iter().map(|(_, rung)| *rung).collect();
        let all = measurer.measure(&alone, &mut |_| (), &never)?;
        for ((id, rung), measured) in unseen.into_iter().zip(all) {
            let description = rung.description();
            let modelled = match &description {
                Some(description) => predict(description, costs, &EFFORT)?,
                None => continue,
            };
            let off = (modelled.tps / measured.tps.max(1.0) - 1.0) * 100.0;
            let what = format!("modelled against measured, {}: deviation", rung.name());
            let detail = format!(
                "{off:+.1} %: modelled {:.0} k, measured {:.0} k{}",
                modelled.tps / 1e3,
                measured.tps / 1e3,
                if off.abs() < RUNG {
                    String::new()
                } else {
                    format!("; most likely {}", suspect(&rung, &modelled))
                }
            );
            let id = format!("capacity.{id}.{cpus}c{queues}q");
            let claim = Claim::new(&id, what, off.abs(), Unit::PerCent, Bound::Below(RUNG));
            results.add(&claim.with(detail));
        }
    }
    Ok(())
}

/// The kernel's rungs on so many CPUs and queues.
fn rungs(cpus: usize, queues: u32) -> [(&'static str, LabRung); 6] {
    let base = LabRung { io: Io::Shared, cpus, queues, rps: false, batch: 1 };
    let reuseport = LabRung { io: Io::Reuseport, ..base };
    [
        ("shared", base),
        ("reuseport", reuseport),
        ("percpu", LabRung { io: Io::Percpu, ..base }),
        ("rps", LabRung { rps: true, ..base }),
        ("rps_reuseport", LabRung { rps: true, ..reuseport }),
        ("batched", LabRung { batch: BATCH, ..reuseport }),
    ]
}

/// The term that a rung depends on most, beyond those of the rung that work was fitted to.
fn suspect(rung: &LabRung, modelled: &Outcome) -> &'static str {
    match (rung.rps && rung.cpus > 1, rung.batch > 1, modelled.cpu.spinning > 0.1) {
        (true, ..) => "virtual_ipi: how often a CPU is interrupted, and how long until it runs",
        (_, true, _) => "call: what a batch saves beyond calls, in the caches",
        (.., true) => "line and handover: how often CPUs meet at the socket",
        _ if rung.cpus > rung.queues as usize => "the queue that both CPUs poll: who gets its packets",
        _ => "the fitted work: trials of this rung and of reuseport differ by more than the model knows",
    }
}

/// A published factor, between two modelled steps.
struct Factor {
    id: &'static str,
    what: &'static str,
    over: [&'static str; 2],
    published: f64,
    suspect: &'static str,
}

const FACTORS: &[Factor] = &[
    Factor {
        id: "ladder_spread",
        what: "ladder, one socket: softirqs on all CPUs over RSS on one node",
        over: ["ladder.spread", "ladder.rss"],
        published: 17.0 / 270.0,
        suspect: "wake-ups under the socket's lock, which limit the rate before the spread",
    },
    Factor {
        id: "ladder_reuseport",
        what: "ladder: a socket per worker over one socket, softirqs on all CPUs",
        over: ["ladder.reuseport", "ladder.spread"],
        published: 2540.0 / 17.0,
        suspect: "line: how long the reader waits for lines that twenty CPUs write",
    },
    Factor {
        id: "ladder_whole",
        what: "ladder: a socket per worker over RSS on one node",
        over: ["ladder.reuseport", "ladder.rss"],
        published: 2540.0 / 270.0,
        suspect: "wake-ups under the socket's lock, which limit the rate of one socket",
    },
    Factor {
        id: "rps_e1000e",
        what: "RPS on an e1000e, 8 cores: tps with over without",
        over: ["rps.e1000e.on", "rps.e1000e.off"],
        published: 311.0 / 108.0,
        suspect: "tcp_receive and wake, against device_receive: what RPS takes off the interrupted CPU",
    },
    Factor {
        id: "rps_forcedeth",
        what: "RPS on a forcedeth, 16 cores: tps with over without",
        over: ["rps.forcedeth.on", "rps.forcedeth.off"],
        published: 404.0 / 156.0,
        suspect: "tcp_receive and wake, against device_receive: what RPS takes off the interrupted CPU",
    },
    Factor {
        id: "rps_bnx2x_8q",
        what: "bnx2x, 16 cores: 8 queues over 4",
        over: ["rps.bnx2x.8q", "rps.bnx2x.4q"],
        published: 738.0 / 567.0,
        suspect: "threads that are woken on interrupted CPUs: the scheduler of 2010 moved them less well than the model's",
    },
    Factor {
        id: "rps_bnx2x_rps",
        what: "bnx2x, 16 cores: 4 queues with RPS over 8 queues without",
        over: ["rps.bnx2x.4q-rps", "rps.bnx2x.8q"],
        published: 854.0 / 738.0,
        suspect: "wake on another CPU: RPS lets the softirq run where the thread does, and saves more than modelled",
    },
    Factor {
        id: "receive_queue_lock",
        what: "UDP flood, most queues: one lock over two",
        over: ["receive.queue-lock", "receive.socket-lock"],
        published: 6.0,
        suspect: "line: turns of the socket's lock among eleven producers",
    },
    Factor {
        id: "receive_one_queue",
        what: "UDP flood, one queue: one lock over two",
        over: ["receive.queue-lock.1", "receive.socket-lock.1"],
        published: 1.1,
        suspect: "lock: what the second lock costs uncontended",
    },
    Factor {
        id: "receive_bulk",
        what: "UDP flood, most queues: bulk accounting over a release per datagram",
        over: ["receive.bulk", "receive.queue-lock"],
        published: 2.5,
        suspect: "line: how often the reader loses the line of the charged memory; freeing pages of other CPUs is missing",
    },
    Factor {
        id: "receive_two_queues",
        what: "UDP flood, most queues: two queues over one",
        over: ["receive.two-queues", "receive.bulk"],
        published: 1.3,
        suspect: "handover: turns of the queue's lock between the reader and one producer",
    },
    Factor {
        id: "overheads",
        what: "throughput per core, 24 one-to-one flows over one",
        over: ["overheads.one-to-one.24", "overheads.one-to-one.1"],
        published: 1.0 - 0.64,
        suspect: "copy_memory against copy_cached, and what a wake-up costs per byte",
    },
];

/// The published factors: each within a fifth, and in the published order.
fn factors(results: &mut Results, costs: &Costs) -> Result<()> {
    for id in ids() {
        let modelled = published(&id, costs).unwrap_or(f64::NAN);
        ensure!(modelled.is_finite(), "no figure for {id}");
    }
    let mut in_order = 0;
    for factor in FACTORS {
        let [above, below] = factor.over.map(|id| published(id, costs).unwrap_or(f64::NAN));
        let modelled = above / below;
        let off = (modelled / factor.published - 1.0) * 100.0;
        let same = (modelled > 1.0) == (factor.published > 1.0);
        in_order += usize::from(same);
        let detail = format!(
            "modelled {modelled:.3}, published {:.3}, order {}{}",
            factor.published,
            if same { "as published" } else { "DIFFERS" },
            if off.abs() < FACTOR { String::new() } else { format!("; most likely {}", factor.suspect) }
        );
        let id = format!("capacity.published.{}", factor.id);
        let claim = Claim::new(&id, factor.what, off.abs(), Unit::PerCent, Bound::Below(FACTOR));
        results.add(&claim.with(detail));
    }
    let what = "published steps whose direction the model has";
    let all = FACTORS.len() as f64;
    let share = in_order as f64 / all;
    let claim = Claim::new("capacity.published.order", what, share, Unit::Ratio, Bound::AtLeast(1.0));
    results.add(&claim.with(format!("{in_order} of {}", FACTORS.len())));
    Ok(())
}

/// Events simulated per second, on the published scenario that has most.
fn speed(results: &mut Results, costs: &Costs) -> Result<()> {
    let begin = Instant::now();
    let events = outcome("ladder.reuseport", costs).map_or(0, |outcome| outcome.events);
    ensure!(events > 0, "nothing was simulated");
    let rate = events as f64 / begin.elapsed().as_secs_f64();
    let what = "events simulated per second, 20 CPUs";
    results.add(&Claim::new("capacity.speed", what, rate, Unit::Rate, Bound::AtLeast(SPEED)));
    Ok(())
}
