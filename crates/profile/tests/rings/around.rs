//! The machine around the samples: its snapshots at the beginning and the end, built from the few files that a profile
//! needs.

#![allow(dead_code, reason = "each test program uses its own part of this")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use udpath_host::Snapshot;
use udpath_host::source::Folder;

/// Ticks of one CPU in the interval: user, nice, system, idle, iowait, irq, softirq, steal.
pub(crate) type Ticks = [u64; 8];

/// Snapshots of a machine with `cpus` CPUs. `ticks`: a CPU's ticks between them, `None` for one that is gone at the
/// end. `datagrams`: received and sent.
pub(crate) fn snapshots(
    cpus: u32,
    ticks: impl Fn(u32) -> Option<Ticks>,
    datagrams: [u64; 2],
) -> (Snapshot, Snapshot) {
    let before = snapshot(cpus, |_| Some([1000; 8]), [77, 77]);
    let after = |cpu| ticks(cpu).map(|ticks| ticks.map(|ticks| 1000 + ticks));
    (before, snapshot(cpus, after, datagrams.map(|count| 77 + count)))
}

/// A machine without any information: a capture that does not exist.
pub(crate) fn nothing() -> Snapshot {
    Snapshot::read(&Folder::captured(Path::new("/nowhere")))
}

fn snapshot(cpus: u32, ticks: impl Fn(u32) -> Option<Ticks>, [received, sent]: [u64; 2]) -> Snapshot {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).expect("a folder");
        fs::write(path, text).expect("a file");
    };
    let mut stat = String::from("cpu  0 0 0 0 0 0 0 0 0 0\n");
    let online: Vec<u32> = (0..cpus).filter(|cpu| ticks(*cpu).is_some()).collect();
    for cpu in &online {
        let ticks = ticks(*cpu).unwrap_or_default().map(|ticks| ticks.to_string());
        let _ = writeln!(stat, "cpu{cpu} {} 0 0", ticks.join(" "));
    }
    let list: Vec<String> = online.iter().map(ToString::to_string).collect();
    write("proc/stat", &stat);
    write("sys/devices/system/cpu/online", &(list.join(",") + "\n"));
    write("sys/devices/system/cpu/present", &format!("0-{}\n", cpus - 1));
    let snmp = format!(
        "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors\n\
         Udp: {received} 0 0 {sent} 0 0 0 0 0\n"
    );
    write("proc/net/snmp", &snmp);
    Snapshot::read(&Folder::captured(folder.path()))
}
