//! CPUs that process packets: which queues send packets to them, how they spend their time, and their receive path
//! counters.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::interfaces::InterfaceMap;
use super::view::View;
use crate::cpus::CpuTicks;
use crate::softnet::SoftnetCpu;

/// A CPU on the path.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct CpuMap {
    /// Its number.
    pub cpu: u32,
    /// Its NUMA node.
    pub node: Option<u32>,
    /// Whether it is online.
    pub online: bool,
    /// Queues whose interrupts it handles: `eth0/rx-3`.
    pub queues: Vec<String>,
    /// Queues that steer packets to it with RPS.
    pub rps_of: Vec<String>,
    /// How it spent its time.
    pub time: Option<Shares>,
    /// The same since boot, in ticks.
    pub ticks: Option<CpuTicks>,
    /// Counters of its receive path.
    pub softnet: Option<SoftnetCpu>,
}

/// CPU time by category, as fractions of 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Shares {
    /// User mode.
    pub usr: f64,
    /// System calls and kernel threads.
    pub sys: f64,
    /// Hard interrupts.
    pub irq: f64,
    /// Softirqs: where packets are handled.
    pub soft: f64,
    /// Steal time.
    pub steal: f64,
    /// Idle.
    pub idle: f64,
}

impl From<CpuTicks> for Shares {
    fn from(ticks: CpuTicks) -> Self {
        let total = ticks.total().max(1) as f64;
        let share = |ticks: u64| ticks as f64 / total;
        Self {
            usr: share(ticks.user + ticks.nice),
            sys: share(ticks.system),
            irq: share(ticks.irq),
            soft: share(ticks.softirq),
            steal: share(ticks.steal),
            idle: share(ticks.idle + ticks.iowait),
        }
    }
}

pub(super) fn map(view: View<'_>, interfaces: &[InterfaceMap]) -> Vec<CpuMap> {
    let queues = || {
        interfaces.iter().flat_map(|interface| {
            interface
                .queues
                .iter()
                .map(move |queue| (format!("{}/rx-{}", interface.name, queue.queue), queue))
        })
    };
    let mut cpus: Vec<CpuMap> = view
        .now
        .cpus
        .list
        .iter()
        .map(|cpu| CpuMap {
            cpu: cpu.number,
            node: cpu.node,
            online: cpu.online,
            queues: Vec::new(),
            rps_of: Vec::new(),
            time: cpu.ticks.map(|now| {
                let then = view.earlier.and_then(|then| then.cpus.cpu(cpu.number)?.ticks);
                Shares::from(then.map_or(now, |then| now.since(&then)))
            }),
            ticks: cpu.ticks,
            softnet: softnet(view, cpu.number),
        })
        .collect();
    for (name, queue) in queues() {
        // If an interrupt may go to many CPUs, the actual one is unknown.
        let known = queue.cpus.len() == 1;
        for cpu in cpus.iter_mut().filter(|cpu| known && queue.cpus.contains(cpu.cpu)) {
            cpu.queues.push(name.clone());
        }
        for cpu in cpus.iter_mut().filter(|cpu| queue.rps.contains(cpu.cpu)) {
            cpu.rps_of.push(name.clone());
        }
    }
    cpus
}

fn softnet(view: View<'_>, cpu: u32) -> Option<SoftnetCpu> {
    let now = view.now.softnet.cpus.get(&cpu)?;
    let then = view.earlier.and_then(|then| then.softnet.cpus.get(&cpu));
    Some(then.map_or(*now, |then| now.since(then)))
}
