//! Frequency and idle states of the processors: cpufreq and cpuidle, by groups of CPUs with equal values.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use udpath_steer::CpuSet;

use crate::text::{Malformed, cpu_list, one, optional, wanted, words};
use crate::{Missing, Source};

const CPU: &str = "/sys/devices/system/cpu";

/// Frequency policy of a group of CPUs (`cpufreq`). A virtual machine has none.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct FrequencyPolicy {
    /// The group.
    pub cpus: CpuSet,
    /// The driver that sets the frequency: `intel_pstate`, `acpi-cpufreq`, ...
    pub driver: Option<String>,
    /// The governor: `performance`, `powersave`, `schedutil`, ...
    pub governor: Option<String>,
    /// The energy preference passed to the hardware: `performance`, `balance_performance`, ... If present, it matters
    /// more than the governor.
    pub preference: Option<String>,
    /// The highest frequency currently allowed, in kHz.
    pub limit_khz: Option<u32>,
    /// The highest frequency supported, in kHz.
    pub max_khz: Option<u32>,
}

/// Idle states of a group of CPUs (`cpuidle`).
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct IdlePolicy {
    /// The group.
    pub cpus: CpuSet,
    /// The states, the lightest first.
    pub states: Vec<IdleState>,
}

/// An idle state.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct IdleState {
    /// `POLL`, `C1`, `C6`, ...
    pub name: String,
    /// Wakeup latency in microseconds: the delay of the first packet after a pause.
    pub latency_us: u32,
    /// Whether it is disabled.
    pub disabled: bool,
}

/// Reads the frequency policies.
pub(super) fn frequencies(source: &dyn Source, missing: &mut Vec<Missing>) -> Vec<FrequencyPolicy> {
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

/// Reads the idle states of the CPUs that are online.
pub(super) fn idle(source: &dyn Source, online: &CpuSet, missing: &mut Vec<Missing>) -> Vec<IdlePolicy> {
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
pub(super) fn spaced(text: &str) -> Result<CpuSet, Malformed> {
    cpu_list(&text.split_ascii_whitespace().collect::<Vec<_>>().join(","))
}
