use super::numa::{distances, memory};
use super::power::spaced;
use super::*;

/// This machine's, 6.18.
const STAT: &str = "cpu  2048077 241582 732875 1462104 21700 0 460150 3583 0 0
cpu0 1006301 129555 358107 758983 5800 0 223161 1700 0 0
cpu1 1041776 112027 374768 703120 15900 0 236989 1883 0 0
intr 79637239 0 0
ctxt 73197893
btime 1795251165
softirq 1236282029 0 1441663 11157
";

#[test]
fn cpu_times_add_up_to_the_total_line() {
    let cpus = ticks(STAT).unwrap();
    assert_eq!(cpus.keys().copied().collect::<Vec<_>>(), [0, 1]);
    assert_eq!(cpus[&1].softirq, 236_989);
    assert_eq!(cpus[&1].steal, 1_883);
    assert_eq!(cpus[&0].steal + cpus[&1].steal, 3_583);
    assert_eq!(cpus[&0].total(), 1_006_301 + 129_555 + 358_107 + 758_983 + 5_800 + 223_161 + 1_700);
}

#[test]
fn offline_cpus_leave_holes_and_old_kernels_have_fewer_columns() {
    let cpus = ticks("cpu  9 9 9 9\ncpu0 1 2 3 4\ncpu3 5 6 7 8 9 10 11\n").unwrap();
    assert_eq!(cpus.keys().copied().collect::<Vec<_>>(), [0, 3]);
    assert_eq!((cpus[&3].softirq, cpus[&3].steal, cpus[&0].iowait), (11, 0, 0));
    let error = ticks("cpu0 1 x 3\n").unwrap_err();
    assert_eq!(error.to_string(), "line 1: not the times of a CPU: 'cpu0 1 x 3'");
    assert!(ticks("cpu4294967295 1 2 3\n").is_err());
}

#[test]
fn idle_time_that_goes_backwards_is_zero() {
    let then = CpuTicks { idle: 100, softirq: 5, ..CpuTicks::default() };
    let now = CpuTicks { idle: 99, softirq: 25, ..CpuTicks::default() };
    assert_eq!(now.since(&then), CpuTicks { softirq: 20, ..CpuTicks::default() });
}

#[test]
fn speeds_of_a_processor() {
    // AMD EPYC under a hypervisor, 6.18; the second CPU's line is from an idle one on a desktop.
    let text = "processor\t: 0\nmodel name\t: AMD EPYC\ncpu MHz\t\t: 2596.132\n\nprocessor\t: 1\ncpu MHz\t\t: 800.000\n";
    let info = Info::parse(text);
    assert_eq!(info.model.as_deref(), Some("AMD EPYC"));
    assert_eq!(info.khz, BTreeMap::from([(0, 2_596_132), (1, 800_000)]));
    // A Neoverse N1, 5.15: numbers only.
    let arm = "processor\t: 0\nBogoMIPS\t: 243.75\nCPU implementer\t: 0x41\n";
    assert_eq!(Info::parse(arm), Info::default());
}

#[test]
fn files_of_nodes() {
    // Two sockets of Xeon E5, 3.10 to 6.12.
    let meminfo = "\nNode 1 MemTotal:       66061460 kB\nNode 1 MemFree:        63015296 kB\n";
    assert_eq!(memory(meminfo), Ok(66_061_460 * 1024));
    assert!(memory("Node 0 MemFree: 1 kB\n").is_err());
    let online: CpuSet = "0,2".parse().unwrap();
    assert_eq!(distances("10 21\n", &online), Ok(BTreeMap::from([(0, 10), (2, 21)])));
    assert!(distances("10\n", &online).is_err());
    assert_eq!(spaced("0 1 2 12\n"), Ok("0-2,12".parse().unwrap()));
}
