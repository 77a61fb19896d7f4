//! The processors: which there are, how they are joined, how fast they run and sleep, and what their flaws cost.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use udpath_steer::CpuSet;

/// The processors of the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpus {
    /// As the processor calls itself.
    pub model: Option<String>,
    /// CPUs that may ever come.
    pub possible: CpuSet,
    /// CPUs that are plugged in.
    pub present: CpuSet,
    /// CPUs that run.
    pub online: CpuSet,
    /// CPUs that the scheduler leaves alone (`isolcpus`, or a cpuset partition).
    pub isolated: CpuSet,
    /// CPUs without a tick while one task runs on them.
    pub nohz_full: CpuSet,
    /// Whether several threads share a core.
    pub smt: Option<Smt>,
    /// Every present CPU, in ascending order.
    pub list: Vec<Cpu>,
    /// CPUs that share their last-level cache; each CPU is in one set at most.
    pub caches: Vec<CpuSet>,
    /// How fast CPUs may run, by groups that are alike.
    pub frequencies: Vec<FrequencyPolicy>,
    /// How deep CPUs may sleep, by groups that are alike.
    pub idle: Vec<IdlePolicy>,
    /// What the kernel does about the processor's flaws.
    pub mitigations: Vec<Mitigation>,
}

impl Cpus {
    /// The CPU of that number, if it is present.
    #[must_use]
    pub fn cpu(&self, number: u32) -> Option<&Cpu> {
        self.list.binary_search_by_key(&number, |cpu| cpu.number).ok().map(|at| &self.list[at])
    }
}

/// Simultaneous multithreading, as `/sys/devices/system/cpu/smt` says it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Smt {
    /// `on`, `off`, `forceoff`, `notsupported`, `notimplemented`, or how many threads of a core.
    pub control: String,
    /// Some core runs several threads now.
    pub active: bool,
}

/// One CPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// Its number.
    pub number: u32,
    /// Does it run?
    pub online: bool,
    /// Its memory node; none on a kernel without nodes.
    pub node: Option<u32>,
    /// Its core, a number within the package.
    pub core: Option<u32>,
    /// Its package.
    pub package: Option<u32>,
    /// The CPUs of its core, itself included. Empty when not known, as of an offline CPU.
    pub siblings: CpuSet,
    /// How fast it ran when it was last looked at, kHz.
    pub khz: Option<u32>,
    /// What it did since boot.
    pub ticks: Option<CpuTicks>,
}

/// What a CPU did since boot, in ticks of the kernel's accounting (`USER_HZ`, 100 a second everywhere).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTicks {
    /// User mode, guests included.
    pub user: u64,
    /// User mode at low priority.
    pub nice: u64,
    /// System calls and kernel threads.
    pub system: u64,
    /// Nothing.
    pub idle: u64,
    /// Nothing, while a task that last ran here waits for a disk.
    pub iowait: u64,
    /// Hard interrupts.
    pub irq: u64,
    /// Softirqs.
    pub softirq: u64,
    /// Ready to run, while the hypervisor ran others.
    pub steal: u64,
}

impl CpuTicks {
    /// Ticks in a second, whatever the kernel's own clock is (`USER_HZ`).
    pub const PER_SECOND: u64 = 100;

    /// All of them.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.user + self.nice + self.system + self.idle + self.iowait + self.irq + self.softirq + self.steal
    }

    /// What it did since an earlier snapshot of the same boot. Idle and iowait may run backwards by a tick or two
    /// (they are estimates); that counts as nothing.
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

/// How fast a group of CPUs may run (`cpufreq`). A virtual machine has none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrequencyPolicy {
    /// The group.
    pub cpus: CpuSet,
    /// Who sets the frequency: `intel_pstate`, `acpi-cpufreq`, ...
    pub driver: Option<String>,
    /// By which rule: `performance`, `powersave`, `schedutil`, ...
    pub governor: Option<String>,
    /// What the driver passes to the hardware: `performance`, `balance_performance`, ... Where it exists, it counts for
    /// more than the governor.
    pub preference: Option<String>,
    /// The fastest that is allowed now, kHz.
    pub limit_khz: Option<u32>,
    /// The fastest there is, kHz.
    pub max_khz: Option<u32>,
}

/// How deep a group of CPUs may sleep (`cpuidle`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdlePolicy {
    /// The group.
    pub cpus: CpuSet,
    /// The states, the lightest first.
    pub states: Vec<IdleState>,
}

/// One way to sleep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleState {
    /// `POLL`, `C1`, `C6`, ...
    pub name: String,
    /// How long it takes to wake up, microseconds: what the first packet after a pause waits.
    pub latency_us: u32,
    /// Not to be used.
    pub disabled: bool,
}

/// What the kernel does about one flaw of the processor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mitigation {
    /// The flaw, as the kernel names it: `spectre_v2`, `meltdown`, ...
    pub flaw: String,
    /// Where things stand.
    pub state: MitigationState,
    /// The kernel's own words.
    pub words: String,
    /// What each datagram pays for it, where that is worth a word.
    pub cost: Option<String>,
}

/// Where things stand with a flaw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MitigationState {
    /// The processor does not have it.
    NotAffected,
    /// The kernel works around it.
    Mitigated,
    /// The processor has it, and nothing is done, or not enough.
    Vulnerable,
    /// The kernel cannot tell, as under a hypervisor.
    Unknown,
}

/// A memory node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its number.
    pub number: u32,
    /// Its CPUs; none where it is memory alone.
    pub cpus: CpuSet,
    /// Its memory, bytes.
    pub memory: Option<u64>,
    /// How far it is to each node, by the firmware's table: 10 is here.
    pub distance: BTreeMap<u32, u32>,
}
