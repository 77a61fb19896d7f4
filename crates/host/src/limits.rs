//! Limits of a process, its CPUs, NUMA nodes, CPU time and memory: its own masks, and its control groups in either
//! version.
//!
//! ```text
//! /proc/PID/cgroup     0::/system.slice/nsd.service       which group
//! /proc/self/mountinfo /sys/fs/cgroup, its root           where the groups are
//! GROUP/cpu.max        and of every ancestor: all of them apply
//! GROUP/memory.max     the same: memory.rs
//! ```
//! In a container without a cgroup namespace the first is a path of the host, while the mount shows only a subtree; the
//! mount's root names the subtree, and is stripped.

mod memory;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use udpath_steer::CpuSet;

use crate::text::{Malformed, cpu_list, field, noted, of_process, optional, parsed};
use crate::{Absence, Missing, Source};

pub use memory::MemoryLimit;

/// Limits of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Limits {
    /// CPUs it may run on: its own mask within that of its cpuset.
    pub cpus: Option<CpuSet>,
    /// NUMA nodes it may allocate memory on.
    pub nodes: Option<CpuSet>,
    /// The CPUs of its cpuset, which bound its own mask.
    pub cpuset: Option<CpuSet>,
    /// CPU time limits, of its own control group first, then of the ancestors. All of them apply.
    pub quotas: Vec<Quota>,
    /// Memory limits in the same order. All of them apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<MemoryLimit>,
}

/// A CPU time limit.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Quota {
    /// Its control group, as a path below the mount point.
    pub group: String,
    /// CPU time that all its threads together may use per period, in microseconds.
    pub quota_us: u64,
    /// Length of the period in microseconds.
    pub period_us: u64,
    /// Number of periods in which it ran, since the group was created.
    #[serde(default)]
    pub periods: u64,
    /// Number of periods in which it was throttled.
    pub throttled: u64,
    /// Total time its threads were throttled, in microseconds, summed over the CPUs.
    pub throttled_us: u64,
}

impl Quota {
    /// The limit as a number of CPUs.
    #[must_use]
    pub fn cpus(&self) -> f64 {
        self.quota_us as f64 / self.period_us.max(1) as f64
    }
}

/// Mount points of the control group hierarchies. Read once, used for many processes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mounts {
    list: Vec<Mount>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Mount {
    /// The group visible at the mount point.
    root: String,
    point: String,
    /// Controllers of a version 1 hierarchy; `None` for version 2.
    controllers: Option<Vec<String>>,
}

/// Reads the mount points of the hierarchies; empty if there are none.
pub fn mounts(source: &dyn Source, missing: &mut Vec<Missing>) -> Mounts {
    let path = "/proc/self/mountinfo";
    let text = noted(missing, "where control groups are mounted", path, source.text(path));
    Mounts::parse(&text.unwrap_or_default())
}

/// Reads the limits of a process; `None`: of the calling process.
pub fn read(source: &dyn Source, mounts: &Mounts, pid: Option<u32>, missing: &mut Vec<Missing>) -> Limits {
    let process = pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    let what = format!("limits of process {process}");
    let status = format!("/proc/{process}/status");
    let groups = format!("/proc/{process}/cgroup");
    let text = match of_process(source, &status) {
        // A process that has just ended has no limits.
        Err(Absence::NotThere | Absence::NotSupported | Absence::NotCaptured) => None,
        text => noted(missing, &what, &status, text),
    };
    let text = text.unwrap_or_default();
    let set = |key: &str| cpu_list(field(&text, key)?).ok();
    let mut limits =
        Limits { cpus: set("Cpus_allowed_list"), nodes: set("Mems_allowed_list"), ..Limits::default() };
    let groups = optional(source, missing, &what, &groups, memberships).unwrap_or_default();
    for membership in &groups {
        if membership.has("cpu") {
            limits.quotas.extend(quotas(source, mounts, membership, missing));
        }
        if membership.has("memory") {
            limits.memory.extend(memory::limits(source, mounts, membership, missing));
        }
        if membership.has("cpuset") && limits.cpuset.is_none() {
            limits.cpuset = cpuset(source, mounts, membership);
        }
    }
    limits
}

/// One line of `/proc/PID/cgroup`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// Controllers of a version 1 hierarchy; `None` for version 2, where a file lists them.
    pub controllers: Option<Vec<String>>,
    /// The group.
    pub path: String,
}

impl Membership {
    /// Whether this hierarchy may have the controller.
    fn has(&self, controller: &str) -> bool {
        self.controllers.as_ref().is_none_or(|all| all.iter().any(|one| one == controller))
    }
}

/// `/proc/PID/cgroup`: `0::/system.slice/nsd.service`, `4:cpu,cpuacct:/docker/...`.
pub fn memberships(text: &str) -> Result<Vec<Membership>, Malformed> {
    let line = |(index, line): (usize, &str)| {
        let mut parts = line.splitn(3, ':');
        match (parts.next(), parts.next(), parts.next()) {
            (Some("0"), Some(""), Some(path)) => Ok(Membership { controllers: None, path: path.into() }),
            (Some(_), Some(names), Some(path)) => {
                let controllers = Some(names.split(',').map(str::to_owned).collect());
                Ok(Membership { controllers, path: path.into() })
            }
            _ => Err(Malformed::new(index, line, "not a control group")),
        }
    };
    text.lines().enumerate().filter(|(_, line)| !line.is_empty()).map(line).collect()
}

impl Mounts {
    /// Parses the control group lines of `/proc/PID/mountinfo` (proc(5)).
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let line = |line: &str| {
            let (place, kind) = line.split_once(" - ")?;
            let mut kind = kind.split(' ');
            let (name, _, options) = (kind.next()?, kind.next()?, kind.next()?);
            let controllers = match name {
                "cgroup2" => None,
                "cgroup" => Some(options.split(',').map(str::to_owned).collect()),
                _ => return None,
            };
            let mut place = place.split(' ').skip(3);
            let (root, point) = (unescaped(place.next()?), unescaped(place.next()?));
            Some(Mount { root, point, controllers })
        };
        Self { list: text.lines().filter_map(line).collect() }
    }

    /// Where the hierarchy of version 2 is mounted with its root.
    #[must_use]
    pub fn unified(&self) -> Option<&str> {
        let found = self.list.iter().find(|mount| mount.controllers.is_none() && mount.root == "/")?;
        Some(&found.point)
    }

    /// The directories of a group and its ancestors, and their names; the group's own first. None of a group outside of
    /// what is mounted, which the kernel shows as `/../other` to a namespace of groups (cgroup_namespaces(7)): nothing
    /// above is read.
    fn folders<'a>(&'a self, membership: &'a Membership) -> impl Iterator<Item = (String, String)> + 'a {
        let of_it = |mount: &&Mount| match (&mount.controllers, &membership.controllers) {
            (None, None) => true,
            (Some(mounted), Some(wanted)) => wanted.iter().all(|name| mounted.contains(name)),
            _ => false,
        };
        self.list.iter().find(of_it).into_iter().flat_map(move |mount| {
            let path = membership.path.as_str();
            let below = if mount.root == "/" { path } else { path.strip_prefix(&mount.root).unwrap_or(path) };
            let mut next =
                Some(below.trim_matches('/')).filter(|group| !group.split('/').any(|part| part == ".."));
            std::iter::from_fn(move || {
                let group = next?;
                next = (!group.is_empty()).then(|| group.rsplit_once('/').map_or("", |(around, _)| around));
                let slash = if group.is_empty() { "" } else { "/" };
                Some((format!("{}{slash}{group}", mount.point), format!("/{group}")))
            })
        })
    }
}

/// The CPU time limits of a group and its ancestors.
fn quotas(
    source: &dyn Source,
    mounts: &Mounts,
    membership: &Membership,
    missing: &mut Vec<Missing>,
) -> Vec<Quota> {
    let mut found = Vec::new();
    for (folder, group) in mounts.folders(membership) {
        let what = format!("limit of CPU time of {group}");
        let mut read = |file: &str, parse: fn(&str) -> Result<Limit, Malformed>| {
            optional(source, missing, &what, &format!("{folder}/{file}"), parse)
        };
        let limit = if membership.controllers.is_none() {
            read("cpu.max", cpu_max).and_then(Limit::both)
        } else {
            let quota = read("cpu.cfs_quota_us", single).and_then(|limit| limit.quota_us);
            quota.zip(read("cpu.cfs_period_us", single).and_then(|limit| limit.quota_us))
        };
        let Some((quota_us, period_us)) = limit else { continue };
        let stat = source.text(&format!("{folder}/cpu.stat")).unwrap_or_default();
        let count =
            |key: &str| stat.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(' ')?.parse().ok());
        // Version 1 counts nanoseconds.
        let waited = count("throttled_usec").or_else(|| count("throttled_time").map(|ns: u64| ns / 1000));
        found.push(Quota {
            group,
            quota_us,
            period_us,
            periods: count("nr_periods").unwrap_or(0),
            throttled: count("nr_throttled").unwrap_or(0),
            throttled_us: waited.unwrap_or(0),
        });
    }
    found
}

/// The CPUs of a group: of the nearest group that sets them.
fn cpuset(source: &dyn Source, mounts: &Mounts, membership: &Membership) -> Option<CpuSet> {
    let files = if membership.controllers.is_none() {
        ["cpuset.cpus.effective", "cpuset.cpus"]
    } else {
        ["cpuset.effective_cpus", "cpuset.cpus"]
    };
    mounts.folders(membership).find_map(|(folder, _)| {
        let read = |file: &&str| parsed(source, &format!("{folder}/{file}"), cpu_list).ok();
        files.iter().find_map(read).filter(|set| !set.is_empty())
    })
}

/// The values of one file.
#[derive(Debug, PartialEq)]
struct Limit {
    quota_us: Option<u64>,
    period_us: Option<u64>,
}

impl Limit {
    fn both(self) -> Option<(u64, u64)> {
        self.quota_us.zip(self.period_us)
    }
}

/// `max 100000`, `50000 100000`.
fn cpu_max(text: &str) -> Result<Limit, Malformed> {
    let wrong = || Malformed::new(0, text, "not a quota and a period");
    let (quota, period) = text.trim().split_once(' ').ok_or_else(wrong)?;
    let quota_us = if quota == "max" { None } else { Some(quota.parse().map_err(|_| wrong())?) };
    Ok(Limit { quota_us, period_us: Some(period.parse().map_err(|_| wrong())?) })
}

/// One value of version 1; -1 means unlimited.
fn single(text: &str) -> Result<Limit, Malformed> {
    let number: i64 = text.trim().parse().map_err(|_| Malformed::new(0, text, "no number"))?;
    Ok(Limit { quota_us: u64::try_from(number).ok(), period_us: None })
}

/// Spaces and similar characters in mountinfo paths are octal: `\040`.
fn unescaped(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('\\') {
        text.push_str(before);
        let code = after.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(u8::is_ascii);
        match code {
            Some(code) => {
                text.push(char::from(code));
                rest = &after[3..];
            }
            None => {
                text.push('\\');
                rest = after;
            }
        }
    }
    text + rest
}

#[cfg(test)]
mod tests;
