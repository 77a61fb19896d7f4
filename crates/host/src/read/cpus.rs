//! Reads [`Cpus`] and the [`Node`]s.
//!
//! A CPU's frequency is taken from `/proc/cpuinfo` if it is there: the files of cpufreq query each CPU in turn, and
//! before 5.18 each may wait for ten milliseconds.

use std::collections::BTreeMap;

use udpath_steer::CpuSet;

use super::text::{Malformed, cpu_list, field, one, optional, parsed, wanted, words};
use crate::snapshot::cpus::{Cpu, CpuTicks, Cpus, FrequencyPolicy, IdlePolicy, IdleState, Node, Smt};
use crate::{Missing, Source};

mod mitigations;

const CPU: &str = "/sys/devices/system/cpu";
const NODE: &str = "/sys/devices/system/node";

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
        frequencies: frequencies(source, missing),
        idle: idle(source, &online, missing),
        mitigations: mitigations::read(source, missing),
        present,
        online,
    };
    fill_in_frequencies(source, &mut cpus);
    cpus
}

/// Reads the NUMA nodes. None is normal: a kernel built without NUMA.
pub fn nodes(source: &dyn Source, missing: &mut Vec<Missing>) -> Vec<Node> {
    let list = optional(source, missing, "memory nodes", &format!("{NODE}/online"), cpu_list);
    let online = list.unwrap_or_default();
    online
        .iter()
        .map(|number| {
            let of = |what: &str| format!("{what} of node {number}");
            let at = |name: &str| format!("{NODE}/node{number}/{name}");
            let cpus = wanted(source, missing, &of("CPUs"), &at("cpulist"), cpu_list);
            let memory = optional(source, missing, &of("memory"), &at("meminfo"), memory);
            let distance =
                optional(source, missing, &of("distances"), &at("distance"), |text| distances(text, &online));
            Node { number, cpus: cpus.unwrap_or_default(), memory, distance: distance.unwrap_or_default() }
        })
        .collect()
}

/// `/proc/stat`: the CPU time of each CPU. Kernels before 2.6.11 had fewer columns; missing ones are 0.
pub fn ticks(text: &str) -> Result<BTreeMap<u32, CpuTicks>, Malformed> {
    let mut cpus = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        // "cpu" without a number, followed by spaces, is the sum of all.
        let Some((number, counts)) = line.strip_prefix("cpu").and_then(|rest| rest.split_once(' ')) else {
            continue;
        };
        if number.is_empty() {
            continue;
        }
        let wrong = || Malformed::new(index, line, "not the times of a CPU");
        let number: u32 = number.parse().map_err(|_| wrong())?;
        if number > CpuSet::MAX_CPU {
            return Err(wrong());
        }
        let mut counts = counts.split_ascii_whitespace().map(|word| word.parse::<u64>().map_err(|_| wrong()));
        let mut next = || counts.next().unwrap_or(Ok(0));
        let ticks = CpuTicks {
            user: next()?,
            nice: next()?,
            system: next()?,
            idle: next()?,
            iowait: next()?,
            irq: next()?,
            softirq: next()?,
            steal: next()?,
        };
        cpus.insert(number, ticks);
    }
    Ok(cpus)
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

fn frequencies(source: &dyn Source, missing: &mut Vec<Missing>) -> Vec<FrequencyPolicy> {
    let names = source.names(&format!("{CPU}/cpufreq")).unwrap_or_default();
    let mut policies: Vec<FrequencyPolicy> = Vec::new();
    for name in names.iter().filter(|name| name.starts_with("policy")) {
        let at = |file: &str| format!("{CPU}/cpufreq/{name}/{file}");
        let what = format!("frequency of {name}");
        let mut word = |file: &str| optional(source, missing, &what, &at(file), words);
        let (driver, governor) = (word("scaling_driver"), word("scaling_governor"));
        let preference = word("energy_performance_preference");
        let limit_khz = optional(source, missing, &what, &at("scaling_max_freq"), one);
        let max_khz = optional(source, missing, &what, &at("cpuinfo_max_freq"), one);
        let cpus = optional(source, missing, &what, &at("affected_cpus"), spaced).unwrap_or_default();
        let policy = FrequencyPolicy { cpus, driver, governor, preference, limit_khz, max_khz };
        let alike = policies.iter_mut().find(|other| {
            FrequencyPolicy { cpus: CpuSet::new(), ..(*other).clone() }
                == FrequencyPolicy { cpus: CpuSet::new(), ..policy.clone() }
        });
        match alike {
            Some(other) => other.cpus = other.cpus.union(&policy.cpus),
            None => policies.push(policy),
        }
    }
    policies
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

fn idle(source: &dyn Source, online: &CpuSet, missing: &mut Vec<Missing>) -> Vec<IdlePolicy> {
    let mut policies: Vec<IdlePolicy> = Vec::new();
    for cpu in online.iter() {
        let folder = format!("{CPU}/cpu{cpu}/cpuidle");
        let names = source.names(&folder).unwrap_or_default();
        let what = format!("idle states of CPU {cpu}");
        let mut state = |name: &String| {
            let at = |file: &str| format!("{folder}/{name}/{file}");
            Some(IdleState {
                name: wanted(source, missing, &what, &at("name"), words)?,
                latency_us: wanted(source, missing, &what, &at("latency"), one)?,
                disabled: optional(source, missing, &what, &at("disable"), words)? != "0",
            })
        };
        let states: Vec<_> =
            names.iter().filter(|name| name.starts_with("state")).filter_map(&mut state).collect();
        if states.is_empty() {
            continue;
        }
        match policies.iter_mut().find(|policy| policy.states == states) {
            Some(policy) => {
                policy.cpus.insert(cpu);
            }
            None => policies.push(IdlePolicy { cpus: [cpu].into_iter().collect(), states }),
        }
    }
    policies
}

/// Numbers separated by spaces, as in cpufreq's CPU lists.
fn spaced(text: &str) -> Result<CpuSet, Malformed> {
    cpu_list(&text.split_ascii_whitespace().collect::<Vec<_>>().join(","))
}

/// `Node 0 MemTotal:       16384 kB`, in bytes.
fn memory(text: &str) -> Result<u64, Malformed> {
    let kib = text.lines().find_map(|line| line.split_once("MemTotal:")?.1.trim().strip_suffix("kB"));
    let bytes = kib.and_then(|kib| kib.trim().parse::<u64>().ok()?.checked_mul(1024));
    bytes.ok_or_else(|| Malformed::new(0, text, "no MemTotal in kB"))
}

/// `10 21`: one number per online node.
fn distances(text: &str, online: &CpuSet) -> Result<BTreeMap<u32, u32>, Malformed> {
    let numbers: Result<Vec<u32>, _> = text.split_ascii_whitespace().map(str::parse).collect();
    match numbers {
        Ok(numbers) if numbers.len() == online.len() => Ok(online.iter().zip(numbers).collect()),
        _ => Err(Malformed::new(0, text, format!("not {} distances", online.len()))),
    }
}

#[cfg(test)]
mod tests;
