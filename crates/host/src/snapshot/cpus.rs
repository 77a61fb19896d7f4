//! The processors: number, topology, frequency, idle states, and the cost of mitigations.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use udpath_steer::CpuSet;

/// The processors of the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Smt {
    /// `on`, `off`, `forceoff`, `notsupported`, `notimplemented`, or the number of threads per core.
    pub control: String,
    /// Whether any core runs several threads now.
    pub active: bool,
}

/// One CPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// CPU time since boot, in ticks of the kernel's accounting (`USER_HZ`, 100 per second everywhere).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTicks {
    /// User mode, guests included.
    pub user: u64,
    /// User mode at low priority.
    pub nice: u64,
    /// System calls and kernel threads.
    pub system: u64,
    /// Idle.
    pub idle: u64,
    /// Idle while a task that last ran here waits for disk I/O.
    pub iowait: u64,
    /// Hard interrupts.
    pub irq: u64,
    /// Softirqs.
    pub softirq: u64,
    /// Steal: runnable while the hypervisor ran other guests.
    pub steal: u64,
}

impl CpuTicks {
    /// Ticks per second, independent of the kernel's own tick rate (`USER_HZ`).
    pub const PER_SECOND: u64 = 100;

    /// Sum of all categories.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.user + self.nice + self.system + self.idle + self.iowait + self.irq + self.softirq + self.steal
    }

    /// The increase since an earlier snapshot of the same boot. Idle and iowait may go backwards by a tick or two (they
    /// are estimates); this counts as zero.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            nice: self.nice.saturating_sub(earlier.nice),
            system: self.system.saturating_sub(earlier.system),
            idle: self.idle.saturating_sub(earlier.idle),
            iowait: self.iowait.saturating_sub(earlier.iowait),
            irq: self.irq.saturating_sub(earlier.irq),
            softirq: self.softirq.saturating_sub(earlier.softirq),
            steal: self.steal.saturating_sub(earlier.steal),
        }
    }
}

/// Frequency policy of a group of CPUs (`cpufreq`). A virtual machine has none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdlePolicy {
    /// The group.
    pub cpus: CpuSet,
    /// The states, the lightest first.
    pub states: Vec<IdleState>,
}

/// An idle state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleState {
    /// `POLL`, `C1`, `C6`, ...
    pub name: String,
    /// Wakeup latency in microseconds: the delay of the first packet after a pause.
    pub latency_us: u32,
    /// Whether it is disabled.
    pub disabled: bool,
}

/// The kernel's mitigation of one CPU vulnerability.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mitigation {
    /// The vulnerability, as the kernel names it: `spectre_v2`, `meltdown`, ...
    pub flaw: String,
    /// Its status.
    pub state: MitigationState,
    /// The kernel's text.
    pub words: String,
    /// The cost per datagram, if significant.
    pub cost: Option<String>,
}

/// Status of a vulnerability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MitigationState {
    /// The processor is not affected.
    NotAffected,
    /// The kernel mitigates it.
    Mitigated,
    /// The processor is affected, and the mitigation is missing or incomplete.
    Vulnerable,
    /// The kernel cannot determine it, as under a hypervisor.
    Unknown,
}

/// A NUMA node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its number.
    pub number: u32,
    /// Its CPUs; empty for a memory-only node.
    pub cpus: CpuSet,
    /// Its memory in bytes.
    pub memory: Option<u64>,
    /// Distance to each node, from the firmware's table: 10 is local.
    pub distance: BTreeMap<u32, u32>,
}
