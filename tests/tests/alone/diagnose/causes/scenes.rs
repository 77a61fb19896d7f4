//! How the scene of a cause is arranged.

use std::fs;
use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};
use udpath_rig::{Accounting, TIMEOUT, awaited};

use super::super::{PORT, Scene};
use super::Load;

pub(super) fn nothing(_: &mut Scene) {}

/// The PIDs that `server.py` prints: its own, then the workers'.
fn workers(scene: &mut Scene) -> Vec<i32> {
    let line = scene.server.says_line("ready");
    line.split_whitespace().skip(1).map(|pid| pid.parse().unwrap()).collect()
}

pub(super) fn stop_one(scene: &mut Scene) {
    let pid = workers(scene)[2];
    kill_process(Pid::from_raw(pid).unwrap(), Signal::STOP).unwrap();
    // Until its queue is full.
    std::thread::sleep(std::time::Duration::from_secs(1));
}

/// 400 requests/s from 100 addresses on the server's link for which the client's machine answers no ARP, until they
/// fill the send buffer: the kernel keeps each reply for up to 3 s.
pub(super) fn ask_from_dead_addresses(scene: &mut Scene) {
    scene.run("ip", &["route", "add", "198.18.0.0/24", "dev", "eth0"]);
    let dead = "for i in $(seq 100 199); do ip address add 198.18.0.$i dev lo || exit 1; done; \
                echo 8 > /proc/sys/net/ipv4/conf/eth0/arp_ignore";
    assert!(scene.bed.command("client", "sh").args(["-c", dead]).status().unwrap().success());
    scene.load(&Load::Python(&["ADDRESS", "7000", "100", "100", "250", "100", "dead"]));
    scene.others.extend(scene.load.take());
    std::thread::sleep(std::time::Duration::from_secs(2));
}

/// The control group of a limited server.
pub(in super::super) fn group() -> PathBuf {
    PathBuf::from(format!("/sys/fs/cgroup/cpu/udpath-test-{}", std::process::id()))
}

/// Puts the server into a control group with a tenth of a CPU, which is removed with the scene.
pub(super) fn limit_cpu(scene: &mut Scene) {
    let folder = group();
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("cpu.cfs_quota_us"), "10000").unwrap();
    for pid in workers(scene) {
        fs::write(folder.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

pub(super) fn limit_rate(scene: &mut Scene) {
    let limit =
        ["qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "1mbit", "burst", "5k", "limit", "10k"];
    scene.run("tc", &limit);
}

pub(super) fn tap(scene: &mut Scene) {
    // Takes everything, and reads nothing: the copies are made all the same.
    let script = "import socket, sys, time; s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)); \
                  print('ready', file=sys.stderr, flush=True); time.sleep(60)";
    let mut tap = scene.bed.start("server", "python3", &["-c", script]);
    tap.says("ready");
    scene.others.push(tap);
}

pub(super) fn track(scene: &mut Scene) {
    // Rules for both directions, as firewalls have them: with a single rule the share is sometimes below the finding's bound.
    let chain = |hook: &str| {
        format!(
            "add chain inet t {hook} {{ type filter hook {hook} priority 0; }}; \
             add rule inet t {hook} ct state invalid drop; add rule inet t {hook} ct state new,established accept"
        )
    };
    let rules = format!("add table inet t; {}; {}; {}", chain("prerouting"), chain("input"), chain("output"));
    scene.run("nft", &[&rules]);
}

pub(super) fn drop_some(scene: &mut Scene) {
    let rules = "add table inet t; add chain inet t c { type filter hook input priority 0; }; \
                 add rule inet t c udp dport 7000 numgen random mod 10 == 0 drop";
    scene.run("nft", &[rules]);
}

/// Of a datagram that is not whole, the fragments are kept for as long.
pub(super) fn give_fragments_up_soon(scene: &mut Scene) {
    scene.run("sysctl", &["-qw", "net.ipv4.ipfrag_time=1"]);
}

/// Until the table has no room for one more.
pub(super) fn fill_the_table(scene: &mut Scene) {
    let number = |name: &str| {
        let file = format!("/proc/sys/net/netfilter/nf_conntrack_{name}");
        let read = scene.bed.command("server", "cat").arg(file).output().unwrap();
        String::from_utf8(read.stdout).unwrap().trim().parse::<u64>().unwrap()
    };
    awaited("a full table of connections", TIMEOUT, || (number("count") >= number("max")).then_some(()));
}

pub(super) fn queue_together(scene: &mut Scene) {
    scene.run("tc", &["qdisc", "replace", "dev", "eth0", "root", "pfifo", "limit", "10000"]);
}

/// Sockets belong to the group that made them, whenever that gets its filters.
pub(super) fn account(scene: &mut Scene) {
    scene.accounting = Some(Accounting::attach().unwrap());
}

/// With the rules of a machine that routes by source: each lookup walks them. Without any, validation takes two per
/// cent of the CPU time, which is the rule's bound.
pub(super) fn validate_sources(scene: &mut Scene) {
    scene.run("sysctl", &["-qw", "net.ipv4.conf.all.rp_filter=1"]);
    for network in 0..16 {
        let from = format!("203.0.113.{}/28", network * 16);
        scene.run("ip", &["rule", "add", "from", &from, "table", "100"]);
    }
}

pub(super) fn steer_to_one(scene: &mut Scene) {
    for queue in ["rx-0", "rx-1"] {
        scene.run("sh", &["-c", &format!("echo 1 > /sys/class/net/eth0/queues/{queue}/rps_cpus")]);
    }
}

pub(super) fn merge(scene: &mut Scene) {
    scene.run("ethtool", &["-K", "eth0", "gro", "on"]);
}

/// The port is part of the scripts' arguments.
#[test]
fn the_loads_use_the_port() {
    assert_eq!(PORT, 7000);
}
