//! The machine-wide part of a snapshot of this machine: sockets with their owners, limits of control groups, and what
//! an unprivileged user cannot see.

use std::fs;
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use udpath_host::sockets::Owner;
use udpath_host::source::Folder;
use udpath_host::{Absence, Provenance, Snapshot};
use udpath_lab::LabBuilder;

/// Sockets that share one port of a lab's machine, by `SO_REUSEPORT`. `flags`: whether they survive an exec.
fn group(sockets: usize, flags: SocketFlags) -> Vec<OwnedFd> {
    let open = |_| {
        let open = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None).unwrap();
        sockopt::set_socket_reuseport(&open, true).unwrap();
        bind(&open, &"127.0.0.1:5353".parse::<std::net::SocketAddr>().unwrap()).unwrap();
        open
    };
    (0..sockets).map(open).collect()
}

#[test]
fn a_group_of_this_process_is_found_with_owner_threads_and_order() {
    udpath_lab::needs_root!();
    // A child of another test has the same sockets open between its fork and its exec.
    let _turn = udpath_rig::alone();
    use std::os::fd::AsRawFd;
    let lab = LabBuilder::new("t-host-group").machine("server").up().unwrap();
    let server = lab.machine("server").unwrap();
    let (sockets, snapshot) =
        server.run(|| (group(4, SocketFlags::CLOEXEC), Snapshot::read(&Folder::live()))).unwrap();
    let seen = &snapshot.sockets;
    assert_eq!(seen.from, Some(Provenance::SockDiag));
    let [group] = &seen.groups[..] else { panic!("{:?}", seen.groups) };
    assert_eq!((group.port, group.members.len()), (5353, 4));
    let pid = std::process::id();
    let owners: Vec<_> = group.members.iter().map(|&at| seen.list[at].owners.clone()).collect();
    let wanted: Vec<_> =
        sockets.iter().map(|socket| vec![Owner { pid, fd: socket.as_raw_fd() as u32 }]).collect();
    assert_eq!(owners, wanted, "in the order in which they were bound");
    let own = seen.process(pid).unwrap();
    assert_eq!(own.executable.as_deref().map(Path::new), std::env::current_exe().ok().as_deref());
    assert_eq!(own.threads[0].tid, pid);
    assert!(own.threads.iter().all(|thread| thread.cpus.as_ref().is_some_and(|cpus| !cpus.is_empty())));
    // The sockets of the machine that runs the lab belong to another namespace.
    let outside = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert!(seen.list.iter().all(|socket| socket.local != outside));
    lab.down().unwrap();
}

/// A control group, removed on drop after its process is ended.
struct Group {
    path: PathBuf,
    sleeper: Child,
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.sleeper.kill();
        let _ = self.sleeper.wait();
        // The kernel releases the process a moment after it is gone.
        for _ in 0..100 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// For either version: the directory, and the files that limit CPU time to 1.5 CPUs.
fn limited() -> Group {
    let (folder, limits): (_, &[(&str, &str)]) = if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        ("/sys/fs/cgroup", &[("cpu.max", "150000 100000")])
    } else {
        ("/sys/fs/cgroup/cpu", &[("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "150000")])
    };
    let path = Path::new(folder).join(format!("udpath-test-{}", std::process::id()));
    fs::create_dir(&path).unwrap();
    let sleeper = Command::new("sleep").arg("60").spawn().unwrap();
    let group = Group { path, sleeper };
    for (file, text) in limits {
        fs::write(group.path.join(file), text).unwrap();
    }
    fs::write(group.path.join("cgroup.procs"), group.sleeper.id().to_string()).unwrap();
    group
}

#[test]
fn a_limit_of_cpu_time_is_found() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let group = limited();
    let mut missing = Vec::new();
    let live = Folder::live();
    let mounts = udpath_host::limits::mounts(&live, &mut missing);
    let limits = udpath_host::limits::read(&live, &mounts, Some(group.sleeper.id()), &mut missing);
    let quota = &limits.quotas[0];
    assert!(quota.group.ends_with(&format!("udpath-test-{}", std::process::id())), "{quota:?}");
    assert_eq!((quota.quota_us, quota.period_us), (150_000, 100_000));
    assert!(limits.cpus.is_some_and(|cpus| !cpus.is_empty()));
    assert_eq!(missing, []);
}

#[test]
fn hidden_parts_are_reported_to_unprivileged_users() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    use rustix::thread::{Gid, Uid};
    let lab = LabBuilder::new("t-host-hidden").machine("server").up().unwrap();
    let server = lab.machine("server").unwrap();
    // Owned by another process: a thread may inspect its own process, whatever its user.
    let (mut sleeper, nobody) = server
        .run(|| {
            let sockets = group(2, SocketFlags::empty());
            let sleeper = Command::new("sleep").arg("60").spawn().unwrap();
            drop(sockets);
            let (user, users) = (Uid::from_raw(65534), Gid::from_raw(65534));
            rustix::thread::set_thread_groups(&[]).unwrap();
            rustix::thread::set_thread_res_gid(users, users, users).unwrap();
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            (sleeper, Snapshot::read(&Folder::live()))
        })
        .unwrap();
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert_eq!(nobody.sockets.list.len(), 2);
    assert!(nobody.sockets.list.iter().all(|socket| socket.owners.is_empty() && socket.memory.is_some()));
    let hidden =
        nobody.missing.iter().find(|missing| missing.what.starts_with("owners of 2 of 2 UDP sockets"));
    let why = Absence::NotPermitted { needs: "root, or CAP_SYS_PTRACE".into() };
    assert_eq!(hidden.map(|missing| &missing.why), Some(&why), "{:?}", nobody.missing);
    // What needs no privilege is complete.
    assert_eq!(nobody.cpus.online, Snapshot::read(&Folder::live()).cpus.online);
    assert!(!nobody.irqs.is_empty() && !nobody.softnet.cpus.is_empty() && nobody.udp.v4.is_some());
    lab.down().unwrap();
}

/// Rules as an operator writes them: some before connection tracking, some that filter, and a chain that only jumps
/// reach.
const RULES: &str = "table inet filter {
    chain input { type filter hook input priority 0; udp dport 53 accept; ct state invalid drop; }
    chain early { type filter hook prerouting priority -300; udp dport 53 notrack; }
    chain helper { counter; }
}";

#[test]
fn chains_of_rules_are_seen_where_packets_meet_them() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let lab = LabBuilder::new("t-host-rules").machine("server").up().unwrap();
    let server = lab.machine("server").unwrap();
    let chains = || server.run(|| Snapshot::read(&Folder::live()).netfilter.nftables).unwrap().unwrap().value;
    assert_eq!(chains(), []);
    let status = server.command("nft").arg(RULES).status().unwrap();
    assert!(status.success());
    let told: Vec<String> = chains()
        .iter()
        .map(|chain| {
            let [family, table, name] = [&chain.family, &chain.table, &chain.name];
            format!(
                "{family} {table} {name}: {} at {} {}, {}",
                chain.kind, chain.hook, chain.priority, chain.rules
            )
        })
        .collect();
    assert_eq!(
        told,
        ["inet filter input: filter at input 0, 2", "inet filter early: filter at prerouting -300, 1"]
    );
    lab.down().unwrap();
}
