//! The question of `udpath capacity`: what a description would carry, in this and in the other configurations, what
//! would help next, and how that changes along one of its values.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use udpath_steer::CpuSet;

use crate::costs::Costs;
use crate::description::{Description, Io, Transport};
use crate::outcome::{Effort, Outcome, PredictError, predict};

/// Version of the JSON form.
pub const CAPACITY_SCHEMA: &str = "udpath.capacity/1";

/// The whole answer.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct CapacityResult {
    /// [`CAPACITY_SCHEMA`].
    pub schema: String,
    /// Where the description comes from, in words.
    pub source: String,
    /// Where the costs come from, in words.
    pub costs: String,
    /// What was asked about.
    pub description: Description,
    /// What it would carry.
    pub outcome: Outcome,
    /// The same with each Io and steering, the described one among them.
    pub configurations: Vec<Configuration>,
    /// Single changes that would carry more, the best first.
    pub helps: Vec<Help>,
    /// Along one value, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sweep: Option<Sweep>,
}

/// A configuration of the described machine.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Configuration {
    /// The name of its rung.
    pub name: String,
    /// It is the described one.
    pub described: bool,
    /// What it would carry.
    pub outcome: Outcome,
}

/// A change that would help.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Help {
    /// The change, as an imperative.
    pub change: String,
    /// Transactions per second with it.
    pub tps: f64,
    /// That over what is carried without.
    pub ratio: f64,
}

/// Outcomes along one value.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Sweep {
    /// The key of the description.
    pub key: String,
    /// Each value, and the outcome.
    pub points: Vec<Point>,
}

/// A point of a sweep.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Point {
    /// The value.
    pub value: f64,
    /// What would be carried.
    pub outcome: Outcome,
}

/// Least gain of a change that helps. Less is within what the model can tell.
const HELPS: f64 = 1.05;
/// Most changes that are shown.
const MOST_HELPS: usize = 5;
/// Datagrams per call of a batch, as the ladder's rung has them.
const BATCH: usize = 32;

/// Answers for a description.
///
/// # Errors
/// The description or the costs are invalid.
pub fn capacity(
    source: &str,
    description: &Description,
    costs: &Costs,
    effort: &Effort,
) -> Result<CapacityResult, PredictError> {
    let outcome = predict(description, costs, effort)?;
    let mut configurations = Vec::new();
    for (name, other) in alternatives(description) {
        let described = other == *description;
        // What cannot be on such a machine is left out, as SO_REUSEPORT on an old kernel.
        let of_it = if described { Ok(outcome.clone()) } else { predict(&other, costs, effort) };
        if let Ok(outcome) = of_it {
            configurations.push(Configuration { name, described, outcome });
        }
    }
    let mut helps: Vec<Help> = changes(description)
        .into_iter()
        .filter_map(|(change, other)| {
            let tps = predict(&other, costs, effort).ok()?.tps;
            Some(Help { change, tps, ratio: tps / outcome.tps.max(1.0) })
        })
        .filter(|help| help.ratio >= HELPS)
        .collect();
    helps.sort_by(|a, b| b.tps.total_cmp(&a.tps));
    helps.truncate(MOST_HELPS);
    Ok(CapacityResult {
        schema: CAPACITY_SCHEMA.to_owned(),
        source: source.to_owned(),
        costs: costs.machine.clone(),
        description: description.clone(),
        outcome,
        configurations,
        helps,
        sweep: None,
    })
}

/// Outcomes along a value of the description: each point is `description` with that value.
///
/// # Errors
/// A point's description is invalid: its value, and why.
pub fn sweep(
    key: &str,
    points: &[(f64, Description)],
    costs: &Costs,
    effort: &Effort,
) -> Result<Sweep, (f64, PredictError)> {
    let points = points.iter().map(|(value, description)| {
        let outcome = predict(description, costs, effort).map_err(|error| (*value, error))?;
        Ok(Point { value: *value, outcome })
    });
    Ok(Sweep { key: key.to_owned(), points: points.collect::<Result<_, _>>()? })
}

/// The machine with each Io and steering.
fn alternatives(description: &Description) -> Vec<(String, Description)> {
    if description.transport == Transport::Tcp {
        return vec![("as described".to_owned(), description.clone())];
    }
    let steering = if description.rps.is_empty() { all_cpus(description) } else { description.rps.clone() };
    let mut alternatives = Vec::new();
    for io in Io::ALL {
        for rps in [Vec::new(), steering.clone()] {
            // By CPU means by the CPU that the card chose.
            if io == Io::Percpu && !rps.is_empty() && description.rps.is_empty() {
                continue;
            }
            let name = match (io, rps.is_empty()) {
                (io, true) => io.name().to_owned(),
                (Io::Shared, false) => "rps".to_owned(),
                (io, false) => format!("rps+{}", io.name()),
            };
            let pin = description.pin || io == Io::Percpu;
            alternatives.push((name, Description { io, rps, pin, ..description.clone() }));
        }
    }
    if alternatives.iter().all(|(_, other)| other != description) {
        alternatives.push(("as described".to_owned(), description.clone()));
    }
    if description.batch == 1 {
        let best = Description { io: Io::Reuseport, rps: Vec::new(), batch: BATCH, ..description.clone() };
        alternatives.push(("reuseport, batched".to_owned(), best));
    }
    alternatives
}

fn all_cpus(description: &Description) -> Vec<CpuSet> {
    vec![CpuSet::first_n(description.cpus() as u32)]
}

/// Single changes, with what each brings along.
fn changes(description: &Description) -> Vec<(String, Description)> {
    let base = || description.clone();
    let cpus = description.cpus();
    let udp = description.transport == Transport::Udp;
    let mut changes = Vec::new();
    let mut add = |change: &str, other: Description| changes.push((change.to_owned(), other));
    if udp && description.io == Io::Shared {
        add("give each worker a socket (SO_REUSEPORT)", Description { io: Io::Reuseport, ..base() });
    }
    if udp && description.io != Io::Percpu {
        let other = Description { io: Io::Percpu, pin: true, ..base() };
        add("choose the socket by the CPU that receives", other);
    }
    if !description.irqs.is_empty() {
        let mut other = Description { irqs: CpuSet::new(), ..base() };
        add("spread the queues' interrupts over all CPUs", other.clone());
        if udp && description.io == Io::Shared {
            other.io = Io::Reuseport;
            add("spread the queues' interrupts over all CPUs, and give each worker a socket", other);
        }
    }
    if description.queues < cpus {
        let queues = (description.queues * 2).min(cpus);
        add(&format!("use {queues} receive queues"), Description { queues, irqs: CpuSet::new(), ..base() });
    }
    if description.rps.is_empty() {
        add("turn RPS on for all CPUs", Description { rps: all_cpus(description), ..base() });
    } else {
        add("turn RPS off", Description { rps: Vec::new(), ..base() });
    }
    if !description.xps {
        let transmit_queues = description.transmit_queues();
        add(
            "map each CPU to its own transmit queue (XPS)",
            Description { xps: true, transmit_queues, ..base() },
        );
    }
    if udp && description.batch == 1 {
        add(&format!("move {BATCH} datagrams per system call"), Description { batch: BATCH, ..base() });
    }
    if udp && description.workers < cpus {
        add(&format!("run {cpus} workers, one per CPU"), Description { workers: cpus, ..base() });
    }
    if udp && !description.pin {
        add("pin each worker to a CPU", Description { pin: true, ..base() });
    }
    changes
}

impl Description {
    /// This machine with another number of cores: queues, workers and lists that are for all CPUs stay that, and
    /// nothing names a CPU that is gone.
    #[must_use]
    pub fn with_cores(&self, cores: usize) -> Self {
        let (before, now) = (self.cpus(), cores.saturating_mul(self.threads_per_core).max(1));
        let scaled = |count: usize| if count == before { now } else { count };
        let list = |set: &CpuSet| -> CpuSet {
            if set.len() == before {
                CpuSet::first_n(now as u32)
            } else {
                set.iter().filter(|cpu| (*cpu as usize) < now).collect()
            }
        };
        Self {
            cores,
            nodes: if cores.is_multiple_of(self.nodes) { self.nodes } else { 1 },
            queues: scaled(self.queues).min(now),
            workers: scaled(self.workers),
            irqs: list(&self.irqs),
            rps: self.rps.iter().map(list).take(if self.rps.len() > 1 { now } else { 1 }).collect(),
            worker_cpus: list(&self.worker_cpus),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Effort = Effort { seed: 1, runs: 1, warm_up_ms: 4, window_ms: 10 };

    #[test]
    fn every_configuration_is_compared_and_one_is_the_described() {
        let description =
            Description { cores: 4, queues: 4, workers: 4, io: Io::Shared, ..Description::default() };
        let answer = capacity("a test", &description, &Costs::default(), &QUICK).unwrap();
        let names: Vec<&str> = answer.configurations.iter().map(|other| other.name.as_str()).collect();
        assert_eq!(names, ["shared", "rps", "reuseport", "rps+reuseport", "percpu", "reuseport, batched"]);
        assert_eq!(answer.configurations.iter().filter(|other| other.described).count(), 1);
        // Four CPUs contend for one socket: a socket for each is the first thing to do, and helps.
        let best = &answer.helps[0];
        assert!(
            best.ratio > 1.2 && best.change.contains("worker a socket")
                || best.change.contains("CPU that receives"),
            "{best:?}"
        );
        assert!(answer.helps.windows(2).all(|pair| pair[0].tps >= pair[1].tps));
    }

    #[test]
    fn fewer_cores_take_queues_and_workers_along() {
        let all = Description {
            cores: 8,
            queues: 8,
            workers: 8,
            rps: vec![CpuSet::first_n(8)],
            irqs: "0,7".parse().unwrap(),
            ..Description::default()
        };
        let two = all.with_cores(2);
        assert_eq!((two.queues, two.workers, two.rps[0].len(), two.irqs.len()), (2, 2, 2, 1));
        assert_eq!(two.check(), Ok(()));
        let sixteen = all.with_cores(16);
        assert_eq!((sixteen.queues, sixteen.workers), (16, 16));
        let fixed = Description { workers: 3, ..all }.with_cores(16);
        assert_eq!(fixed.workers, 3);
    }

    #[test]
    fn a_sweep_names_the_value_that_cannot_be() {
        let base = Description::default();
        let points = [(1.0, base.clone()), (300.0, base.with_cores(300))];
        let (value, error) = sweep("cores", &points, &Costs::default(), &QUICK).unwrap_err();
        assert_eq!((value, error.to_string().as_str()), (300.0, "cores is 300: expected 1 to 128"));
    }
}
