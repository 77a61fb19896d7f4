//! Labs built and used on this machine. Needs root.

#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

mod interface;
mod needs_root;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, UdpSocket};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use udpath_lab::{Error, Lab, LabBuilder, LinkSpec, Machine, State, online_cpus};

/// Long enough for anything here on a machine busy with other tests.
const TIMEOUT: Duration = Duration::from_secs(10);

fn pair(name: &str, spec: &LinkSpec) -> Lab {
    LabBuilder::new(name).machine("client").machine("server").link("client", "server", spec).up().unwrap()
}

/// The output of a program inside a machine.
fn printed(machine: &Machine, program: &str, arguments: &[&str]) -> String {
    let output = machine.command(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn names(path: &str) -> BTreeSet<String> {
    fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn received_packets(machine: &Machine, interface: &str) -> u64 {
    let path = format!("/sys/class/net/{interface}/statistics/rx_packets");
    machine.run(|| fs::read_to_string(path)).unwrap().unwrap().trim().parse().unwrap()
}

fn socket(machine: &Machine, ip: IpAddr) -> UdpSocket {
    let socket = machine.run(|| UdpSocket::bind((ip, 0))).unwrap().unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket
}

/// Sends `count` datagrams from one machine to another and back.
fn exchange(lab: &Lab, from: &str, to: &str, ip: IpAddr, own: IpAddr, count: u64) {
    let server = socket(lab.machine(to).unwrap(), ip);
    let client = socket(lab.machine(from).unwrap(), own);
    client.connect(server.local_addr().unwrap()).unwrap();
    let mut bytes = [0; 64];
    for number in 0..count {
        client.send(&number.to_be_bytes()).unwrap();
        let (length, peer) = server.recv_from(&mut bytes).unwrap();
        assert_eq!(peer, client.local_addr().unwrap());
        server.send_to(&bytes[..length], peer).unwrap();
        let length = client.recv(&mut bytes).unwrap();
        assert_eq!(bytes[..length], number.to_be_bytes());
    }
}

#[test]
fn a_link_carries_both_families_over_its_queues_and_nothing_else() {
    udpath_lab::needs_root!();
    let lab = pair("t-traffic", &LinkSpec::with_queues(3));
    let (client, server) = (lab.machine("client").unwrap(), lab.machine("server").unwrap());
    for machine in [client, server] {
        let queues = machine.run(|| names("/sys/class/net/eth0/queues")).unwrap();
        let wanted = ["rx-0", "rx-1", "rx-2", "tx-0", "tx-1", "tx-2"].map(str::to_owned);
        assert_eq!(queues, BTreeSet::from(wanted));
    }
    let there = lab.address_of("server", "client").unwrap();
    let here = lab.address_of("client", "server").unwrap();
    assert_eq!((there.ipv4.to_string(), here.ipv4.to_string()), ("10.0.0.2".into(), "10.0.0.1".into()));
    exchange(&lab, "client", "server", there.ipv4.into(), here.ipv4.into(), 10);
    exchange(&lab, "client", "server", there.ipv6.into(), here.ipv6.into(), 10);
    // Every frame on the link was sent by this test: no ARP, no neighbour discovery, no listener report, no
    // solicitation.
    assert_eq!(received_packets(server, "eth0"), 20);
    assert_eq!(received_packets(client, "eth0"), 20);
    for machine in [client, server] {
        let neighbours = printed(machine, "ip", &["neigh", "show"]);
        assert_eq!(neighbours.lines().count(), 2, "{neighbours}");
        assert!(neighbours.lines().all(|line| line.contains("PERMANENT")), "{neighbours}");
        assert!(neighbours.contains(&machine.interfaces()[0].peer().mac.to_string()), "{neighbours}");
        let addresses = printed(machine, "ip", &["-6", "address", "show", "dev", "eth0"]);
        assert!(!addresses.contains("fe80") && !addresses.contains("tentative"), "{addresses}");
        // The all-nodes groups are never reported; any other would be, a moment after the link came up.
        let groups = machine.run(|| fs::read_to_string("/proc/thread-self/net/igmp6")).unwrap().unwrap();
        let joined: Vec<&str> = groups
            .lines()
            .filter(|line| line.contains("eth0"))
            .filter_map(|line| line.split_whitespace().nth(2))
            .collect();
        assert!(
            joined.iter().all(|group| group.ends_with("000000000001") && group.starts_with("ff0")),
            "{groups}"
        );
        assert!(!joined.is_empty() && !groups.contains("ff02000000000000000000001ff"), "{groups}");
    }
    lab.down().unwrap();
}

#[test]
fn a_machine_sees_its_own_devices_and_settings() {
    udpath_lab::needs_root!();
    let host = names("/sys/class/net");
    let lab = pair("t-inside", &LinkSpec::default());
    let server = lab.machine("server").unwrap();
    let devices = BTreeSet::from(["eth0".to_owned(), "lo".to_owned()]);
    assert_eq!(server.run(|| names("/sys/class/net")).unwrap(), devices);
    // Threads started inside inherit it, and so do programs.
    let of_a_thread = server.run(|| std::thread::spawn(|| names("/sys/class/net")).join().unwrap()).unwrap();
    assert_eq!(of_a_thread, devices);
    assert_eq!(printed(server, "ls", &["/sys/class/net"]), "eth0\nlo\n");
    let (mac, ifindex) = server
        .run(|| {
            ["address", "ifindex"]
                .map(|name| fs::read_to_string(format!("/sys/class/net/eth0/{name}")).unwrap())
        })
        .unwrap()
        .into();
    let eth0 = server.interface("eth0").unwrap();
    assert_eq!(
        (mac.trim(), ifindex.trim()),
        (eth0.mac().to_string().as_str(), eth0.ifindex().to_string().as_str())
    );
    let accepts =
        server.run(|| fs::read_to_string("/proc/sys/net/ipv6/conf/eth0/accept_ra")).unwrap().unwrap();
    assert_eq!(accepts.trim(), "0");
    // The rest of /sys is unchanged, and so is the host's.
    let cpus = server.run(|| online_cpus().unwrap()).unwrap();
    assert_eq!(cpus, online_cpus().unwrap());
    assert_eq!(names("/sys/class/net"), host);
    let cgroups = "/sys/fs/cgroup";
    assert_eq!(server.run(|| names(cgroups)).unwrap(), names(cgroups));
    // The loopback is up.
    let echo = socket(server, "::1".parse().unwrap());
    echo.send_to(b"x", echo.local_addr().unwrap()).unwrap();
    assert_eq!(echo.recv(&mut [0; 4]).unwrap(), 1);
    assert!(printed(server, "ip", &["netns", "identify"]).contains(server.namespace()));
}

#[test]
fn a_panic_inside_propagates_and_the_lab_stays() {
    udpath_lab::needs_root!();
    let lab = pair("t-panic", &LinkSpec::default());
    let server = lab.machine("server").unwrap();
    let caught =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| server.run(|| panic!("on purpose"))));
    assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"on purpose"));
    assert_eq!(server.run(|| 7).unwrap(), 7);
}

#[test]
fn programs_keep_their_exit_code_and_directory_and_end_with_the_lab() {
    udpath_lab::needs_root!();
    let lab = pair("t-programs", &LinkSpec::default());
    let server = lab.machine("server").unwrap();
    assert_eq!(server.command("sh").args(["-c", "exit 7"]).status().unwrap().code(), Some(7));
    let directory = std::env::current_dir().unwrap();
    assert_eq!(Path::new(printed(server, "pwd", &[]).trim()), directory);
    assert!(matches!(lab.spawn(server.command("/no/such/program")), Err(Error::System { .. })));

    // Started from a thread that has ended: the lab keeps it alive.
    let start = || {
        let mut command = server.command("sh");
        // Its own child is not covered by the parent-death signal.
        command.args(["-c", "sleep 1000 & echo up; wait"]).stdout(Stdio::piped());
        lab.spawn(command).unwrap()
    };
    let mut child = std::thread::scope(|scope| scope.spawn(start).join().unwrap());
    let mut line = [0; 3];
    child.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
    assert_eq!(&line, b"up\n");
    assert!(child.try_wait().unwrap().is_none());
    lab.down().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    // The pipe closes only when the grandchild has ended too.
    let mut rest = String::new();
    child.stdout.take().unwrap().read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
}

#[test]
fn many_machines_with_many_links_reach_each_other() {
    udpath_lab::needs_root!();
    let spec = LinkSpec { addresses: 3, ..LinkSpec::default() };
    let lab = LabBuilder::new("t-mesh").machines("c", 3).machines("s", 2).mesh("c", "s", &spec).up().unwrap();
    let all: Vec<&str> = lab.machines().iter().map(Machine::name).collect();
    assert_eq!(all, ["c-1", "c-2", "c-3", "s-1", "s-2"]);
    for (client, server) in [("c-1", "s-1"), ("c-3", "s-1"), ("c-3", "s-2"), ("s-2", "c-2")] {
        let eth = lab.machine(client).unwrap().towards(server).unwrap();
        assert_eq!(lab.machine(server).unwrap().towards(client).unwrap().name(), eth.peer_interface());
        // From every address to every address.
        for (own, ip) in eth.end().ipv4.iter().zip(&eth.peer().ipv4) {
            exchange(&lab, client, server, (*ip).into(), (*own).into(), 1);
        }
        for (own, ip) in eth.end().ipv6.iter().zip(&eth.peer().ipv6) {
            exchange(&lab, client, server, (*ip).into(), (*own).into(), 1);
        }
    }
    assert!(matches!(lab.address_of("c-1", "c-2"), Err(Error::NotLinked { .. })));
    assert_eq!(
        lab.machine("x").unwrap_err().to_string(),
        "lab t-mesh has no machine \"x\"; it has c-1, c-2, c-3, s-1, s-2"
    );
}

#[test]
fn a_lab_is_gone_when_it_is_dropped() {
    udpath_lab::needs_root!();
    let (namespaces, record);
    {
        let lab = pair("t-gone", &LinkSpec::default());
        namespaces = lab.machines().iter().map(|machine| machine.namespace().to_owned()).collect::<Vec<_>>();
        record = format!("/run/udpath/lab/{}-t-gone.record", std::process::id());
        assert!(Path::new(&record).exists());
        let shown = String::from_utf8(std::process::Command::new("ip").arg("netns").output().unwrap().stdout)
            .unwrap();
        assert!(namespaces.iter().all(|name| shown.contains(name)), "{shown}");
        let listed = udpath_lab::list().unwrap();
        let listed = listed.iter().find(|listed| listed.blueprint == *lab.blueprint()).unwrap();
        assert_eq!(listed.state, State::Owned);
        let error = udpath_lab::down("t-gone").unwrap_err();
        assert!(matches!(error, Error::Owned { pid, .. } if pid == std::process::id()), "{error}");
    }
    assert!(!Path::new(&record).exists());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    for name in namespaces {
        assert!(!Path::new("/run/netns").join(&name).exists());
        assert!(!mounts.contains(&name));
    }
}

#[test]
fn a_lab_that_cannot_be_built_leaves_nothing() {
    udpath_lab::needs_root!();
    // The second machine's name is taken by something outside the lab.
    let name = format!("udpath-{}-t-taken-server", std::process::id());
    let foreign = Path::new("/run/netns").join(&name);
    fs::create_dir_all("/run/netns").unwrap();
    fs::File::create_new(&foreign).unwrap().write_all(b"mine").unwrap();
    let built = LabBuilder::new("t-taken").machine("client").machine("server").up();
    let still_there = fs::read(&foreign).unwrap();
    fs::remove_file(&foreign).unwrap();
    let error = built.unwrap_err();
    assert!(matches!(error, Error::Exists { .. }), "{error}");
    assert!(error.to_string().contains(&name), "{error}");
    assert_eq!(still_there, b"mine");
    assert!(!Path::new(&format!("/run/netns/udpath-{}-t-taken-client", std::process::id())).exists());
    assert!(!Path::new(&format!("/run/udpath/lab/{}-t-taken.record", std::process::id())).exists());

    // The same lab twice in one process.
    let first = pair("t-twice", &LinkSpec::default());
    let second = LabBuilder::new("t-twice").machine("client").up();
    assert!(matches!(second, Err(Error::Exists { .. })));
    exchange(&first, "client", "server", "10.0.0.2".parse().unwrap(), "10.0.0.1".parse().unwrap(), 1);
}

#[test]
fn labs_do_not_see_each_other() {
    udpath_lab::needs_root!();
    let (one, other) = (pair("t-both-1", &LinkSpec::default()), pair("t-both-2", &LinkSpec::default()));
    let (there, here) = ("10.0.0.2".parse().unwrap(), "10.0.0.1".parse().unwrap());
    // The same addresses, and each packet stays in its lab.
    exchange(&one, "client", "server", there, here, 4);
    exchange(&other, "client", "server", there, here, 2);
    assert_eq!(received_packets(one.machine("server").unwrap(), "eth0"), 4);
    assert_eq!(received_packets(other.machine("server").unwrap(), "eth0"), 2);
    drop(one);
    exchange(&other, "client", "server", there, here, 1);
}

#[test]
fn the_queue_limit_is_the_kernels() {
    udpath_lab::needs_root!();
    let lab = pair("t-queues", &LinkSpec::with_queues(udpath_lab::MAX_QUEUES));
    let client = lab.machine("client").unwrap();
    let queues = client.run(|| names("/sys/class/net/eth0/queues")).unwrap();
    assert_eq!(queues.len(), 2 * udpath_lab::MAX_QUEUES as usize);
    // One more is rejected by the kernel itself, so the limit is not too low.
    let more = (udpath_lab::MAX_QUEUES + 1).to_string();
    let arguments = ["link", "add", "more", "numtxqueues", &more, "type", "veth", "peer", "name", "peer"];
    let refused = client.command("ip").args(arguments).output().unwrap();
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("transmit queues"), "{refused:?}");
}

#[test]
fn namespaces_without_a_record_are_not_swept() {
    udpath_lab::needs_root!();
    // Created manually, with a name like a lab's.
    let name = format!("udpath-1-x-{}", std::process::id());
    let ip = |arguments: &[&str]| {
        assert!(std::process::Command::new("ip").args(arguments).status().unwrap().success());
    };
    ip(&["netns", "add", &name]);
    let swept = udpath_lab::sweep_stale();
    let there = Path::new("/run/netns").join(&name).exists();
    ip(&["netns", "del", &name]);
    swept.unwrap();
    assert!(there, "a namespace without a record was removed");
}
