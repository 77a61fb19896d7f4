//! Processes with UDP sockets.

use std::fmt::Write as _;

use serde_json::json;

use super::{Machine, Server, Tree};

pub(super) fn write(machine: &Machine, tree: &Tree) {
    let all = udpath_steer::CpuSet::first_n(machine.cpus);
    let status = |name: &str, uid: u32| {
        format!(
            "Name:\t{name}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nCpus_allowed_list:\t{all}\nMems_allowed_list:\t0\n"
        )
    };
    tree.file("proc/self/status", status("udpath", 0));
    tree.file("proc/self/cgroup", "0::/user.slice\n");
    tree.file(
        "proc/self/mountinfo",
        "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
    );
    let mut table = String::from(
        "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n",
    );
    let mut diag = Vec::new();
    for server in &machine.servers {
        process(server, tree, &status(server.name, server.uid));
        for inode in server.inodes.clone() {
            let Server { port, uid, drops, .. } = server;
            let _ = writeln!(
                table,
                "{:>5}: 00000000:{port:04X} 00000000:0000 07 00000000:00000000 00:00000000 00000000 {uid:>5}        0 {inode} 2 0000000000000000 {drops}",
                port % 4096
            );
            diag.push(json!({
                "local": format!("0.0.0.0:{port}"), "inode": inode, "cookie": inode, "uid": uid,
                "receive_queue": 0, "send_queue": 0, "drops": drops,
                "memory": {"receive_buffer": 212_992, "send_buffer": 212_992, "reserved": 0, "options": 0, "backlog": 0},
            }));
        }
    }
    tree.file("proc/net/udp", table);
    // Kernels before 3.3 have no sock_diag.
    if machine.version() >= (3, 3) {
        tree.answer("udp-sockets", &json!(diag), &json!("sock-diag"));
    }
}

fn process(server: &Server, tree: &Tree, status: &str) {
    let at = |file: &str| format!("proc/{}/{file}", server.pid);
    tree.link(at("exe"), server.executable);
    tree.file(at("comm"), server.name);
    tree.file(at("cmdline"), format!("{}\0-d\0", server.executable));
    tree.file(at("status"), status);
    tree.file(at("cgroup"), format!("0::{}\n", server.group));
    for (fd, inode) in (3..).zip(server.inodes.clone()) {
        tree.link(at(&format!("fd/{fd}")), format!("socket:[{inode}]"));
    }
    for (number, tid) in (server.pid..).take(server.threads as usize).enumerate() {
        let rest = "S 1 1 1 0 -1 4194560 10 0 0 0 1 2 0 0 20 0 4 0 33 2990080 446 18446744073709551615 1 2 3 4 5 0 0 0 0 0 0 0 17";
        tree.file(
            at(&format!("task/{tid}/stat")),
            format!("{tid} ({}) {rest} {number} 0 0 0\n", server.name),
        );
        tree.file(at(&format!("task/{tid}/status")), status);
    }
}
