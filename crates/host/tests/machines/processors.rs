//! CPUs and nodes.

use std::fmt::Write as _;

use udpath_steer::CpuSet;

use super::{Machine, Tree};

pub(super) fn write(machine: &Machine, tree: &Tree) {
    let (all, online) = (CpuSet::first_n(machine.cpus), machine.online());
    let cpu = "sys/devices/system/cpu";
    tree.file(format!("{cpu}/possible"), all.to_string());
    tree.file(format!("{cpu}/present"), all.to_string());
    tree.file(format!("{cpu}/online"), online.to_string());
    tree.file(format!("{cpu}/isolated"), "\n");
    tree.file(format!("{cpu}/smt/control"), if machine.threads > 1 { "on" } else { "notsupported" });
    tree.file(format!("{cpu}/smt/active"), if machine.threads > 1 { "1" } else { "0" });
    tree.file(format!("{cpu}/vulnerabilities/spectre_v2"), "Mitigation: Retpolines; RSB filling");
    tree.file(format!("{cpu}/vulnerabilities/l1tf"), "Not affected");
    let cores = machine.cpus / machine.threads;
    // A node is a package here, as on most two-socket machines.
    let packages = u32::try_from(machine.nodes.len().max(1)).unwrap();
    let package = |cpu: u32| machine.nodes.iter().position(|node| node.contains(cpu)).unwrap_or(0);
    let (mut stat, mut cpuinfo) = (String::from("cpu  100 0 200 300 0 0 400 0 0 0\n"), String::new());
    for number in online.iter() {
        let at = |file: &str| format!("{cpu}/cpu{number}/{file}");
        let core = number % cores;
        let siblings: CpuSet = (0..machine.threads).map(|thread| core + thread * cores).collect();
        tree.file(at("topology/core_id"), (core % (cores / packages).max(1)).to_string());
        tree.file(at("topology/physical_package_id"), package(number).to_string());
        tree.file(at("topology/thread_siblings_list"), siblings.intersection(&online).to_string());
        for (index, level) in [1, 1, 2, 3].into_iter().enumerate() {
            let shared = match (level, machine.nodes.get(package(number))) {
                (3, Some(node)) => node.intersection(&online),
                (3, None) => online.clone(),
                _ => siblings.clone(),
            };
            tree.file(at(&format!("cache/index{index}/level")), level.to_string());
            tree.file(at(&format!("cache/index{index}/shared_cpu_list")), shared.to_string());
        }
        for (state, (name, latency)) in [("POLL", 0), ("C1", 2), ("C6", 133)].into_iter().enumerate() {
            tree.file(at(&format!("cpuidle/state{state}/name")), name);
            tree.file(at(&format!("cpuidle/state{state}/latency")), latency.to_string());
            tree.file(at(&format!("cpuidle/state{state}/disable")), "0");
        }
        let policy = |file: &str| format!("{cpu}/cpufreq/policy{number}/{file}");
        tree.file(policy("affected_cpus"), number.to_string());
        tree.file(policy("scaling_driver"), "intel_pstate");
        tree.file(policy("scaling_governor"), "powersave");
        tree.file(policy("scaling_max_freq"), "3000000");
        tree.file(policy("cpuinfo_max_freq"), "3000000");
        // Softirqs only on the first node, as on the 20-core server of Makita (LinuxCon Japan 2016).
        let softirq = if package(number) == 0 { 900_000 } else { 100 };
        let _ = writeln!(stat, "cpu{number} 1000 0 20000 {} 0 0 {softirq} 0 0 0", 1_000_000 - softirq);
        let _ = writeln!(
            cpuinfo,
            "processor\t: {number}\nmodel name\t: {}\ncpu MHz\t\t: 2300.000\nflags\t\t: fpu tsc{}\n",
            machine.model,
            if machine.platform.1.contains("PowerEdge") { "" } else { " hypervisor" }
        );
    }
    tree.file("proc/stat", stat + "intr 1 2\nctxt 3\nbtime 1700000000\nprocesses 4\n");
    tree.file("proc/cpuinfo", cpuinfo);
    tree.file("proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro quiet");
    nodes(machine, tree);
}

fn nodes(machine: &Machine, tree: &Tree) {
    if machine.nodes.is_empty() {
        return;
    }
    let count = u32::try_from(machine.nodes.len()).unwrap();
    tree.file("sys/devices/system/node/online", CpuSet::first_n(count).to_string());
    for (number, cpus) in (0..).zip(&machine.nodes) {
        let at = |file: &str| format!("sys/devices/system/node/node{number}/{file}");
        tree.file(at("cpulist"), cpus.intersection(&machine.online()).to_string());
        let distances = (0..count).map(|other| if other == number { "10" } else { "21" });
        tree.file(at("distance"), distances.collect::<Vec<_>>().join(" "));
        tree.file(
            at("meminfo"),
            format!("\nNode {number} MemTotal:       66061460 kB\nNode {number} MemFree: 1 kB\n"),
        );
    }
}
