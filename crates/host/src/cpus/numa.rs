//! NUMA nodes: their CPUs, memory and distances.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use udpath_steer::CpuSet;

use crate::text::{Malformed, cpu_list, optional, wanted};
use crate::{Missing, Source};

const NODE: &str = "/sys/devices/system/node";

/// A NUMA node.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
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

/// `Node 0 MemTotal:       16384 kB`, in bytes.
pub(super) fn memory(text: &str) -> Result<u64, Malformed> {
    let kib = text.lines().find_map(|line| line.split_once("MemTotal:")?.1.trim().strip_suffix("kB"));
    let bytes = kib.and_then(|kib| kib.trim().parse::<u64>().ok()?.checked_mul(1024));
    bytes.ok_or_else(|| Malformed::new(0, text, "no MemTotal in kB"))
}

/// `10 21`: one number per online node.
pub(super) fn distances(text: &str, online: &CpuSet) -> Result<BTreeMap<u32, u32>, Malformed> {
    let numbers: Result<Vec<u32>, _> = text.split_ascii_whitespace().map(str::parse).collect();
    match numbers {
        Ok(numbers) if numbers.len() == online.len() => Ok(online.iter().zip(numbers).collect()),
        _ => Err(Malformed::new(0, text, format!("not {} distances", online.len()))),
    }
}
