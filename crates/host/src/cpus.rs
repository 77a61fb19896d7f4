//! The processors: number, topology, frequency, idle states, CPU time, and the cost of mitigations; the NUMA nodes.
//!
//! A CPU's frequency is taken from `/proc/cpuinfo` if it is there: the files of cpufreq query each CPU in turn, and
//! before 5.18 each may wait for ten milliseconds.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use udpath_steer::CpuSet;

use crate::text::{cpu_list, field, one, optional, parsed, wanted, words};
use crate::{Missing, Source};

mod mitigations;
mod numa;
mod power;
mod time;

pub use mitigations::{Mitigation, MitigationState};
pub use numa::{Node, nodes};
pub use power::{FrequencyPolicy, IdlePolicy, IdleState};
pub use time::{CpuTicks, ticks};

/// The processors of the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Cpus {
    /// Model name.
    pub model: Option<String>,
    /// Possible CPUs.
    pub possible: CpuSet,
    /// Present CPUs.
    pub present: CpuSet,
    /// Online CPUs.
    pub online: CpuSet,
    /// CPUs isolated from the scheduler (`isolcpus`, or a cpuset partition).
    pub isolated: CpuSet,
    /// CPUs that stop the tick while they run a single task.
    pub nohz_full: CpuSet,
    /// Whether several threads share a core.
    pub smt: Option<Smt>,
    /// Every present CPU, in ascending order.
    pub list: Vec<Cpu>,
    /// CPUs that share their last-level cache; each CPU is in one set at most.
    pub caches: Vec<CpuSet>,
    /// Frequency settings, by groups of CPUs with equal values.
    pub frequencies: Vec<FrequencyPolicy>,
    /// Idle states, by groups of CPUs with equal values.
    pub idle: Vec<IdlePolicy>,
    /// Mitigations of CPU vulnerabilities.
    pub mitigations: Vec<Mitigation>,
}

impl Cpus {
    /// The CPU with that number, if it is present.
    #[must_use]
    pub fn cpu(&self, number: u32) -> Option<&Cpu> {
        self.list.binary_search_by_key(&number, |cpu| cpu.number).ok().map(|at| &self.list[at])
    }
}

/// Simultaneous multithreading, from `/sys/devices/system/cpu/smt`.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Smt {
    /// `on`, `off`, `forceoff`, `notsupported`, `notimplemented`, or the number of threads per core.
    pub control: String,
    /// Whether any core runs several threads now.
    pub active: bool,
}

/// One CPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Cpu {
    /// Its number.
    pub number: u32,
    /// Whether it is online.
    pub online: bool,
    /// Its NUMA node; `None` on a kernel without NUMA.
    pub node: Option<u32>,
    /// Its core, a number within the package.
    pub core: Option<u32>,
    /// Its package.
    pub package: Option<u32>,
    /// The CPUs of its core, itself included. Empty if unknown, as for an offline CPU.
    pub siblings: CpuSet,
    /// Its frequency at the last measurement, in kHz.
    pub khz: Option<u32>,
    /// CPU time since boot.
    pub ticks: Option<CpuTicks>,
}

const CPU: &str = "/sys/devices/system/cpu";

/// Reads the processors; `nodes`: the NUMA nodes, from [`nodes`].
pub fn read(source: &dyn Source, nodes: &[Node], missing: &mut Vec<Missing>) -> Cpus {
    let ticks = wanted(source, missing, "time spent by each CPU", "/proc/stat", ticks).unwrap_or_default();
    let path = format!("{CPU}/online");
    // If sysfs is not mounted, the CPUs with a line in `/proc/stat` are the online ones.
    let online = wanted(source, missing, "CPUs that are online", &path, cpu_list)
        .unwrap_or_else(|| ticks.keys().copied().collect());
    let set = |name: &str, missing: &mut Vec<Missing>| {
        optional(source, missing, &format!("CPUs that are {name}"), &format!("{CPU}/{name}"), cpu_list)
    };
    let present = set("present", missing).unwrap_or_else(|| online.clone());
    let info = wanted(source, missing, "processor", "/proc/cpuinfo", |text| Ok(Info::parse(text)));
    let Info { model, khz } = info.unwrap_or_default();
    let list = present
        .union(&online)
        .iter()
        .map(|number| {
            let node = nodes.iter().find(|node| node.cpus.contains(number));
            let khz = khz.get(&number).copied();
            Cpu {
                number,
                online: online.contains(number),
                node: node.map(|node| node.number),
                khz,
                ticks: ticks.get(&number).copied(),
                ..topology(source, number, missing)
            }
        })
        .collect();
    let mut cpus = Cpus {
        model,
        possible: set("possible", missing).unwrap_or_else(|| present.clone()),
        isolated: set("isolated", missing).unwrap_or_default(),
        nohz_full: set("nohz_full", missing).unwrap_or_default(),
        smt: smt(source, missing),
        list,
        caches: caches(source, &online, missing),
        frequencies: power::frequencies(source, missing),
        idle: power::idle(source, &online, missing),
        mitigations: mitigations::read(source, missing),
        present,
        online,
    };
    fill_in_frequencies(source, &mut cpus);
    cpus
}

/// The fields of `/proc/cpuinfo`.
#[derive(Debug, Default, PartialEq)]
struct Info {
    model: Option<String>,
    khz: BTreeMap<u32, u32>,
}

impl Info {
    fn parse(text: &str) -> Self {
        let mut khz = BTreeMap::new();
        let mut processor = None;
        for line in text.lines() {
            let Some((key, value)) = line.split_once(':') else { continue };
            match key.trim() {
                "processor" => processor = value.trim().parse().ok(),
                "cpu MHz" => {
                    let speed = value.trim().parse::<f64>().ok().filter(|mhz| (0.0..1e6).contains(mhz));
                    if let (Some(processor), Some(mhz)) = (processor, speed) {
                        khz.insert(processor, (mhz * 1000.0).round() as u32);
                    }
                }
                _ => {}
            }
        }
        // x86, arm64 (which has only numbers), s390 and POWER.
        let model = ["model name", "Model Name", "machine", "cpu"].iter().find_map(|key| field(text, key));
        Self { model: model.map(str::to_owned), khz }
    }
}

fn topology(source: &dyn Source, cpu: u32, missing: &mut Vec<Missing>) -> Cpu {
    let at = |name: &str| format!("{CPU}/cpu{cpu}/topology/{name}");
    let what = format!("place of CPU {cpu}");
    // An offline CPU has no topology, a virtual one may have package -1.
    let number = |text: &str| Ok(text.trim().parse::<u32>().ok());
    let core = optional(source, missing, &what, &at("core_id"), number).flatten();
    let package = optional(source, missing, &what, &at("physical_package_id"), number).flatten();
    let siblings = optional(source, missing, &what, &at("thread_siblings_list"), cpu_list);
    Cpu { core, package, siblings: siblings.unwrap_or_default(), ..Cpu::default() }
}

fn smt(source: &dyn Source, missing: &mut Vec<Missing>) -> Option<Smt> {
    let what = "simultaneous multithreading";
    let control = optional(source, missing, what, &format!("{CPU}/smt/control"), words)?;
    let active = optional(source, missing, what, &format!("{CPU}/smt/active"), words);
    Some(Smt { control, active: active.as_deref() == Some("1") })
}

/// The groups that share a last-level cache: one read per group, not per CPU.
fn caches(source: &dyn Source, online: &CpuSet, missing: &mut Vec<Missing>) -> Vec<CpuSet> {
    /// No processor has more cache indexes: two of the first level, then one per level.
    const MOST: u32 = 8;
    let mut groups: Vec<CpuSet> = Vec::new();
    for cpu in online.iter() {
        if groups.iter().any(|group| group.contains(cpu)) {
            continue;
        }
        let at = |index: u32, name: &str| format!("{CPU}/cpu{cpu}/cache/index{index}/{name}");
        let levels = (0..MOST).map_while(|index| {
            parsed(source, &at(index, "level"), one::<u32>).ok().map(|level| (level, index))
        });
        let Some((_, last)) = levels.max() else { continue };
        let what = format!("CPUs that share a cache with CPU {cpu}");
        let group = optional(source, missing, &what, &at(last, "shared_cpu_list"), cpu_list);
        groups.extend(group.filter(|group| !group.is_empty()));
    }
    groups
}

/// Processors whose `/proc/cpuinfo` has no frequency (all but x86) report it in cpufreq.
fn fill_in_frequencies(source: &dyn Source, cpus: &mut Cpus) {
    if cpus.frequencies.is_empty() {
        return;
    }
    for cpu in cpus.list.iter_mut().filter(|cpu| cpu.online && cpu.khz.is_none()) {
        let path = format!("{CPU}/cpu{}/cpufreq/scaling_cur_freq", cpu.number);
        cpu.khz = parsed(source, &path, one).ok();
    }
}

#[cfg(test)]
mod tests;
