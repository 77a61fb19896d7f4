//! CPU time over time: drawn by both the terminal and the page.
//!
//! ```text
//! profile.cpus[n].time_line ──▸ lanes: a CPU each ──▸ few enough slices ──▸ few enough lanes
//! ```
//! Slices are merged by their mean, CPUs by the busiest of neighbours: the main purpose of a time line is to show one
//! busy CPU among many idle ones.

use udpath_load::cpu::CpuUse;
use udpath_profile::context::Context;
use udpath_profile::profile::{CpuLine, Profile};

/// One CPU over time, or of several CPUs the busiest in each slice.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Lane {
    /// The first CPU and the last.
    pub(crate) cpus: (u32, u32),
    pub(crate) slices: Vec<CpuUse>,
}

impl Lane {
    /// `CPU 3`, `CPUs 4-7`.
    pub(crate) fn name(&self) -> String {
        match self.cpus {
            (first, last) if first == last => format!("CPU {first}"),
            (first, last) => format!("CPUs {first}-{last}"),
        }
    }
}

/// A lane for each CPU, by the samples; at most `most` slices. Empty if a profile has no time line.
pub(crate) fn lanes(profile: &Profile, most: usize) -> Vec<Lane> {
    let count = profile.cpus.iter().map(|line| line.time_line.len()).max().unwrap_or(0);
    if count == 0 || most == 0 {
        return Vec::new();
    }
    // The delay at the end of a recording is not a slice of its own.
    let count = count.min((profile.seconds - 0.1).ceil().max(1.0) as usize);
    let each = count.div_ceil(most);
    profile.cpus.iter().map(|line| lane(line, count, each, profile.seconds)).collect()
}

fn lane(line: &CpuLine, count: usize, each: usize, seconds: f64) -> Lane {
    let slices = (0..count).step_by(each).map(|first| {
        let end = (first + each).min(count);
        // Slices are a second each, but the last one ends with the recording.
        let length = if end == count { seconds - first as f64 } else { each as f64 };
        let length = if length.is_finite() { length.max(1e-3) } else { 1.0 };
        let share = |contexts: &[Context]| {
            let parts = line.time_line.iter().skip(first).take(if end == count { usize::MAX } else { each });
            let ns: u64 = parts
                .flat_map(|slice| contexts.iter().filter_map(|context| slice.get(context)))
                .fold(0, |sum, ns| sum.saturating_add(*ns));
            (ns as f64 / 1e9 / length).clamp(0.0, 1.0)
        };
        shares(line.cpu, length, share)
    });
    Lane { cpus: (line.cpu, line.cpu), slices: slices.collect() }
}

/// Maps contexts to the fields of /proc/stat. Samples do not show steal time, and a halted CPU counts no cycles: the
/// rest is idle.
pub(crate) fn shares(cpu: u32, seconds: f64, share: impl Fn(&[Context]) -> f64) -> CpuUse {
    let (usr, sys) = (share(&[Context::User, Context::Guest]), share(&[Context::Syscall, Context::Kernel]));
    let (soft, irq) = (share(&[Context::Softirq]), share(&[Context::HardIrq]));
    let idle = (1.0 - usr - sys - soft - irq).max(0.0);
    CpuUse { cpu, usr, sys, soft, irq, steal: 0.0, idle, seconds }
}

/// At most `most` lanes: the busiest of neighbours, in each slice.
pub(crate) fn folded(lanes: Vec<Lane>, most: usize) -> Vec<Lane> {
    let each = lanes.len().div_ceil(most.max(1));
    if each <= 1 {
        return lanes;
    }
    let fold = |group: &[Lane]| {
        let busiest = |at: usize| {
            let slices = group.iter().filter_map(|lane| lane.slices.get(at));
            slices.min_by(|a, b| a.idle.total_cmp(&b.idle)).copied().unwrap_or_default()
        };
        let length = group.iter().map(|lane| lane.slices.len()).max().unwrap_or(0);
        let (first, last) = (group.first(), group.last());
        Lane {
            cpus: (first.map_or(0, |lane| lane.cpus.0), last.map_or(0, |lane| lane.cpus.1)),
            slices: (0..length).map(busiest).collect(),
        }
    };
    lanes.chunks(each).map(fold).collect()
}

/// A share of busy time as one character; zero is a dot.
pub(crate) fn mark(used: &CpuUse) -> char {
    const EIGHTHS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let busy = 1.0 - used.idle;
    if busy > 0.0 { EIGHTHS[((busy * 8.0) as usize).min(7)] } else { '·' }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn line(cpu: u32, busy: &[u64]) -> CpuLine {
        let time_line = busy.iter().map(|ms| BTreeMap::from([(Context::Softirq, ms * 1_000_000)])).collect();
        CpuLine { cpu, until: None, sampled: BTreeMap::new(), accounted: None, time_line }
    }

    fn soft(lane: &Lane) -> Vec<f64> {
        lane.slices.iter().map(|used| used.soft).collect()
    }

    #[test]
    fn slices_are_shares_of_their_own_length() {
        // Two seconds and a half.
        assert_eq!(soft(&lane(&line(1, &[500, 1000, 500]), 3, 1, 2.5)), [0.5, 1.0, 1.0]);
        // Two and two; the last is alone.
        assert_eq!(soft(&lane(&line(1, &[500, 1000, 500]), 3, 2, 2.5)), [0.75, 1.0]);
        // Fewer than there are, and zero length.
        assert_eq!(soft(&lane(&line(1, &[500]), 2, 1, 2.0)), [0.5, 0.0]);
        assert!(soft(&lane(&line(1, &[500]), 1, 1, f64::NAN))[0] <= 1.0);
    }

    #[test]
    fn of_neighbours_the_busiest_is_shown() {
        let lanes = (0..5)
            .map(|cpu| lane(&line(cpu, &[u64::from(cpu) * 100, 900 - u64::from(cpu) * 200]), 2, 1, 2.0));
        let lanes = folded(lanes.collect(), 2);
        let names: Vec<String> = lanes.iter().map(Lane::name).collect();
        assert_eq!(names, ["CPUs 0-2", "CPUs 3-4"]);
        assert_eq!((soft(&lanes[0]), soft(&lanes[1])), (vec![0.2, 0.9], vec![0.4, 0.3]));
    }

    #[test]
    fn small_values_are_not_shown_as_zero() {
        let used = |idle| CpuUse { idle, ..CpuUse::default() };
        assert_eq!([1.0, 0.999, 0.5, 0.0, f64::NAN].map(|idle| mark(&used(idle))), ['·', '▁', '▅', '█', '·']);
    }
}
