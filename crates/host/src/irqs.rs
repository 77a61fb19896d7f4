//! Interrupts and softirqs: their device, where they were handled, and where they may go.
//!
//! `/proc/interrupts` has a column for each online CPU, named in its first line; a CPU hotplug event during the read
//! produces lines that do not fit their header, and the file is read again.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use udpath_steer::CpuSet;

use crate::text::{Malformed, cpu_list, cpu_mask, noted, optional, parsed, wanted};
use crate::{Absence, Missing, Source};

/// Counts by CPU number. A CPU that is not listed has a count of 0, or does not exist.
///
/// The kernel counts in 32 bits, which wrap; [`since`] handles this.
pub type PerCpu = BTreeMap<u32, u32>;

/// The increase per CPU since an earlier snapshot of the same boot; CPUs without an increase are left out.
#[must_use]
pub fn since(now: &PerCpu, earlier: &PerCpu) -> PerCpu {
    let grown =
        |(cpu, count): (&u32, &u32)| (*cpu, count.wrapping_sub(earlier.get(cpu).copied().unwrap_or(0)));
    now.iter().map(grown).filter(|(_, count)| *count > 0).collect()
}

/// An interrupt of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Irq {
    /// Its number. It may change when the driver is reloaded or its queues are reconfigured.
    pub number: u32,
    /// The driver's name for it: `ens1f0-TxRx-3`, `virtio3-input.0`, ... Several names if it is shared.
    pub name: String,
    /// Its controller: `PCI-MSIX-0000:3b:00.0`, `IO-APIC`, `GICv3`, ...
    pub chip: String,
    /// Number of interrupts since boot, by CPU.
    pub counts: PerCpu,
    /// CPUs it may be sent to, as configured (`smp_affinity`).
    pub affinity: Option<CpuSet>,
    /// The CPUs it is sent to. After a change, keeps the old value until the next interrupt arrives.
    pub effective: Option<CpuSet>,
    /// The CPUs its driver hints at; `None` without a hint.
    pub hint: Option<CpuSet>,
    /// The NUMA node of its device; `None` if no node is closer than another.
    pub node: Option<u32>,
}

/// An interrupt of the processor itself: timer, rescheduling, function call, ...
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct ProcessorInterrupt {
    /// Its short name: `CAL`, `RES`, `LOC`, `IPI0`.
    pub name: String,
    /// The kernel's description.
    pub what: String,
    /// Number of interrupts by CPU; empty for a machine-wide count.
    pub counts: PerCpu,
}

/// Softirqs of one kind.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Softirq {
    /// `NET_RX`, `NET_TX`, `TIMER`, ...
    pub name: String,
    /// Number of runs by CPU.
    pub counts: PerCpu,
}

const INTERRUPTS: &str = "/proc/interrupts";
/// Attempts to read a table while CPUs come and go. Too low: a CPU that goes offline hides all interrupts. Too high:
/// the read takes long on a machine with continuous CPU hotplug.
const TRIES: usize = 3;

/// The contents of `/proc/interrupts`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Interrupts {
    /// Device interrupts, by number.
    pub irqs: Vec<Irq>,
    /// Processor interrupts.
    pub processor: Vec<ProcessorInterrupt>,
}

/// Reads the interrupts, with their affinity.
pub fn read(source: &dyn Source, missing: &mut Vec<Missing>) -> Interrupts {
    let mut interrupts = noted(missing, "interrupts", INTERRUPTS, listed(source)).unwrap_or_default();
    for irq in &mut interrupts.irqs {
        let number = irq.number;
        let what = format!("where IRQ {number} ({}) may go", irq.name);
        let at = |name: &str| format!("/proc/irq/{number}/{name}");
        // Gone since the table was read, or a capture that contains only the table: not worth reporting.
        irq.affinity = optional(source, missing, &what, &at("smp_affinity_list"), cpu_list);
        if irq.affinity.is_none() {
            continue;
        }
        irq.effective = optional(source, missing, &what, &at("effective_affinity_list"), cpu_list);
        let hint = optional(source, missing, &what, &at("affinity_hint"), cpu_mask);
        irq.hint = hint.filter(|set| !set.is_empty());
        irq.node =
            optional(source, missing, &what, &at("node"), |text| Ok(text.trim().parse().ok())).flatten();
    }
    interrupts
}

/// The interrupts and their counts, without affinity.
///
/// # Errors
/// The reason they cannot be read.
pub fn listed(source: &dyn Source) -> Result<Interrupts, Absence> {
    let mut found = parsed(source, INTERRUPTS, interrupts);
    for _ in 1..TRIES {
        if !matches!(found, Err(Absence::NotUnderstood(_))) {
            break;
        }
        found = parsed(source, INTERRUPTS, interrupts);
    }
    found
}

/// Reads the softirqs.
pub fn softirqs(source: &dyn Source, missing: &mut Vec<Missing>) -> Vec<Softirq> {
    wanted(source, missing, "softirqs", "/proc/softirqs", softirq_table).unwrap_or_default()
}

/// The columns of a table whose first line is `CPU0 CPU2 ...`.
fn columns(text: &str) -> Result<Vec<u32>, Malformed> {
    let header = text.lines().next().unwrap_or_default();
    let cpu = |word: &str| word.strip_prefix("CPU")?.parse().ok().filter(|cpu| *cpu <= CpuSet::MAX_CPU);
    let all: Option<Vec<u32>> = header.split_ascii_whitespace().map(cpu).collect();
    all.filter(|cpus| !cpus.is_empty()).ok_or_else(|| Malformed::new(0, header, "no header of CPUs"))
}

/// `/proc/interrupts`.
///
/// # Errors
/// A line that does not fit the header.
pub fn interrupts(text: &str) -> Result<Interrupts, Malformed> {
    let cpus = columns(text)?;
    let mut found = Interrupts::default();
    for (index, line) in text.lines().enumerate().skip(1) {
        let wrong = |why: &str| Malformed::new(index, line, why);
        let (name, rest) = line.split_once(':').ok_or_else(|| wrong("no name of an interrupt"))?;
        let name = name.trim();
        let (counts, rest) = counts(&cpus, rest);
        match name.parse() {
            Ok(number) => {
                let counts = counts.ok_or_else(|| wrong("not a count for each CPU of the header"))?;
                if rest.is_empty() || rest.split(' ').next().is_some_and(|word| word.parse::<u64>().is_ok()) {
                    return Err(wrong("more counts than CPUs in the header, or no controller"));
                }
                let (chip, name) = chip_and_name(rest);
                found.irqs.push(Irq { number, chip, name, counts, ..Irq::default() });
            }
            // ERR and MIS are machine-wide counts; they have no description.
            Err(_) => found.processor.push(ProcessorInterrupt {
                name: name.to_owned(),
                what: if counts.is_some() { rest.to_owned() } else { String::new() },
                counts: counts.unwrap_or_default(),
            }),
        }
    }
    Ok(found)
}

/// One count per CPU, without zeros, and the text after them; [`None`] if there are fewer.
fn counts<'a>(cpus: &[u32], line: &'a str) -> (Option<PerCpu>, &'a str) {
    let mut rest = line.trim();
    let mut counts = PerCpu::new();
    for cpu in cpus {
        let (word, after) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        // Some processor counts are 64 bits wide; their lower half wraps like the others.
        let Ok(count) = word.parse::<u64>() else { return (None, rest) };
        if count as u32 > 0 {
            counts.insert(*cpu, count as u32);
        }
        rest = after.trim_start();
    }
    (Some(counts), rest)
}

/// Splits the text after the counts into controller and names.
///
/// ```text
/// PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0      6.x
/// IR-PCI-MSI 1572866-edge      ens1f0-TxRx-2                4.x, 5.x
/// PCI-MSI-edge      eth0-TxRx-0                             3.10: no number
/// GICv3  27 Level     arch_timer                            arm64
/// Hyper-V PCIe MSI 4194304-edge      mlx5_comp0@pci:...     a controller of several words
/// xen-dyn    -event     eth0-q0-rx                          Xen
/// ```
fn chip_and_name(rest: &str) -> (String, String) {
    let words: Vec<&str> = rest.split_ascii_whitespace().collect();
    let line = |word: &&str| {
        let digits = word.trim_start_matches(|c: char| c.is_ascii_digit());
        let numbered = digits.len() < word.len();
        let trigger = digits.strip_prefix('-');
        let plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphabetic());
        numbered && digits.is_empty() || trigger.is_some_and(plain)
    };
    // The controller has at least one word.
    let at = words.iter().skip(1).position(line).map(|at| at + 1);
    let chip = words[..at.unwrap_or(1.min(words.len()))].join(" ");
    let mut names = at.map_or_else(|| words.get(1..), |at| words.get(at + 1..)).unwrap_or_default();
    if let [trigger, after @ ..] = names
        && matches!(*trigger, "Level" | "Edge")
    {
        names = after;
    }
    (chip, names.join(" "))
}

/// `/proc/softirqs`.
///
/// # Errors
/// A line that does not fit the header.
pub fn softirq_table(text: &str) -> Result<Vec<Softirq>, Malformed> {
    let cpus = columns(text)?;
    let line = |(index, line): (usize, &str)| {
        let wrong = || Malformed::new(index, line, "not a softirq and a count for each CPU of the header");
        let (name, rest) = line.split_once(':').ok_or_else(wrong)?;
        match counts(&cpus, rest) {
            (Some(counts), "") => Ok(Softirq { name: name.trim().to_owned(), counts }),
            _ => Err(wrong()),
        }
    };
    text.lines().enumerate().skip(1).map(line).collect()
}

#[cfg(test)]
mod tests;
