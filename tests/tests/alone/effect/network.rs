//! Settings of interfaces and network namespaces.

use std::fs;
use std::process::Command;

use udpath_host::interfaces::Interface;
use udpath_rig::{TIMEOUT, awaited, program};

use super::place::{CLIENTS, Kind, PORT, Place, QUERIES, WORKERS};

/// Of [`QUERIES`]: a count that is all of them except for stray packets, and a count that is only stray packets.
const ALL: u64 = QUERIES as u64 * 9 / 10;
const NONE: u64 = QUERIES as u64 / 10;

/// Enables NAPI on a veth, and UDP from local senders through it.
const NAPI: [&str; 2] = ["eth0:feature/rx-gro=on", "eth0:feature/rx-udp-gro-forwarding=on"];

impl Place {
    fn eth0(&self, machine: &str) -> Interface {
        let all = self.snapshot(machine).interfaces;
        all.into_iter().find(|interface| interface.name == "eth0").unwrap()
    }

    /// How much a count grows while something happens.
    fn grown(&self, count: impl Fn() -> u64, happens: impl FnOnce()) -> u64 {
        let before = count();
        happens();
        count() - before
    }

    /// How often RPS passed packets to CPU 1, one or several at a time.
    fn steered(&self) -> u64 {
        self.snapshot("server").softnet.cpus[&1].received_rps.unwrap().into()
    }

    /// Packets processed by each receive queue's NAPI, as the driver counts them.
    fn taken(&self) -> Vec<u64> {
        let counters = self.eth0("server").driver_counters.unwrap().value;
        (0..WORKERS)
            .filter_map(|queue| counters.get(&format!("rx_queue_{queue}_xdp_packets")).copied())
            .collect()
    }

    /// Packets of the qdisc of each transmit queue.
    fn sent(&self) -> Vec<u64> {
        let qdiscs = self.eth0("server").qdiscs.unwrap().value;
        let mut leaves: Vec<_> = qdiscs.iter().filter(|qdisc| qdisc.parent != "root").collect();
        leaves.sort_by(|one, other| one.parent.cmp(&other.parent));
        leaves.into_iter().map(|qdisc| qdisc.packets).collect()
    }
}

/// Element-wise difference.
fn less(after: &[u64], before: &[u64]) -> Vec<u64> {
    after.iter().zip(before).map(|(after, before)| after - before).collect()
}

#[test]
fn rps_hands_packets_to_the_cpu_that_is_set() {
    udpath_lab::needs_root!();
    let place = Place::new("rps", Kind::Knot);
    // One query at a time, each of which CPU 0 passes on by itself.
    let clients = place.clients(CLIENTS);
    let [before, during, after] = place.proven("server", &["eth0:rps/rx-*=1"], |place| {
        place.grown(|| place.steered(), || place.asked(0, &clients, QUERIES / CLIENTS))
    });
    assert!(before < NONE && during > ALL && after < NONE, "{before} {during} {after}");
}

#[test]
fn rfs_takes_packets_to_the_cpu_that_reads() {
    udpath_lab::needs_root!();
    let place = Place::new("rfs", Kind::Knot);
    // The kernel's table of where flows are read is the host's, not the namespace's.
    let (state, table) = (tempfile::tempdir().unwrap(), "/proc/sys/net/core/rps_sock_flow_entries");
    let host = fs::read_to_string(table).unwrap();
    // A change in any case, also of a host that uses RFS itself.
    let entries = if host.trim() == "32768" { 65536 } else { 32768 };
    let udpath = |arguments: &[&str]| {
        let output = Command::new(program())
            .args(arguments)
            .args(["--state", state.path().to_str().unwrap()])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    // Replies are received where the server sends them, on CPU 0; RFS needs connected sockets.
    place.apply("server", &[&format!("port:{PORT}:threads=0")]).fine();
    let clients = place.clients(16);
    let requests = ["eth0:rps/rx-*=0-1", "eth0:rfs/rx-*=1024"];
    let followed = |reader: u32| {
        udpath(&["apply", "--set", &format!("sysctl:net.core.rps_sock_flow_entries={entries}")]);
        let counts = place.proven("client", &requests, |place| {
            let count = || place.snapshot("client").softnet.cpus[&1].received_rps.unwrap().into();
            // The first query of each records where it is read.
            place.asked(reader, &clients, 1);
            place.grown(count, || place.asked(reader, &clients, 50))
        });
        udpath(&["undo"]);
        assert_eq!(fs::read_to_string(table).unwrap(), host);
        counts
    };
    let all = 16 * 50;
    let [before, during, after] = followed(1);
    assert!(before < all / 10 && during >= all * 9 / 10 && after < all / 10, "{before} {during} {after}");
    // The same flows, read on the other CPU.
    let [_, during, _] = followed(0);
    assert!(during < all / 10, "{during}");
    place.udpath("server", &["undo"]).fine();
}

#[test]
fn xps_and_a_qdisc_for_each_queue_send_where_the_cpu_says() {
    udpath_lab::needs_root!();
    let place = Place::new("xps", Kind::Knot);
    // Transmission follows the CPU its threads run on.
    for cpu in [0, 1] {
        place.apply("server", &[&format!("port:{PORT}:threads={cpu}")]).fine();
        let requests = ["eth0:qdisc=mq", "eth0:xps/tx-0=0", "eth0:xps/tx-1=1"];
        let [before, during, after] = place.proven("server", &requests, |place| {
            let before = place.sent();
            place.dnsperf(0);
            less(&place.sent(), &before)
        });
        assert!(before.is_empty() && after.is_empty(), "{before:?} {after:?}");
        let (here, there) = (during[cpu], during[1 - cpu]);
        assert!(here >= ALL && there < NONE, "CPU {cpu}: {during:?}");
        place.udpath("server", &["undo"]).fine();
    }
}

#[test]
fn a_qdisc_counts_what_is_sent_through_it() {
    udpath_lab::needs_root!();
    let place = Place::new("qdisc", Kind::Nsd);
    let root = |place: &Place| {
        let qdiscs = place.eth0("server").qdiscs.unwrap().value;
        let root = qdiscs.into_iter().find(|qdisc| qdisc.parent == "root").unwrap();
        (root.kind, root.packets)
    };
    let [before, during, after] = place.proven("server", &["eth0:qdisc=pfifo"], |place| {
        let (kind, packets) = root(place);
        place.dnsperf(0);
        (kind, root(place).1 - packets)
    });
    assert_eq!((before, after), (("noqueue".to_owned(), 0), ("noqueue".to_owned(), 0)));
    assert!(during.0 == "pfifo" && during.1 >= ALL, "{during:?}");
}

#[test]
fn gro_brings_napi_and_fewer_channels_bring_fewer_queues() {
    udpath_lab::needs_root!();
    let place = Place::new("channels", Kind::Nsd);
    let taken = |place: &Place| {
        let before = place.taken();
        place.dnsperf(0);
        place.dnsperf(1);
        less(&place.taken(), &before)
    };
    let [before, during, after] = place.proven("server", &NAPI, taken);
    assert_eq!((before.iter().sum::<u64>(), after.iter().sum::<u64>()), (0, 0));
    assert!(during.len() == 2 && during.iter().sum::<u64>() >= 2 * ALL, "{during:?}");
    assert!(during.iter().all(|count| *count > NONE), "both queues get some: {during:?}");
    // With one channel, the other queue's NAPI is gone until undo.
    place.apply("server", &NAPI).fine();
    let [two, one, again] = place.proven("server", &["eth0:channels/rx=1"], |place| {
        let queues = place.eth0("server").rx.len();
        (queues, taken(place))
    });
    assert_eq!((two.0, one.0, again.0), (2, 1, 2));
    // Packets the other end sends on its second queue have no matching receive queue any more, and bypass NAPI.
    assert!(one.1.len() == 1 && one.1[0] > NONE && one.1[0] < 2 * ALL, "{one:?}");
    assert!(again.1.iter().all(|count| *count > NONE), "{again:?}");
    place.udpath("server", &["undo"]).fine();
}

#[test]
fn napi_threads_do_the_work_and_go_with_the_setting() {
    udpath_lab::needs_root!();
    let place = Place::new("threaded", Kind::Knot);
    // Run time of the existing NAPI threads, nanoseconds.
    let threads = |place: &Place| -> Vec<u32> {
        let napis = place.eth0("server").napis.map_or(Vec::new(), |napis| napis.value);
        napis.iter().filter_map(|napi| napi.thread).collect()
    };
    let ran = |tids: &[u32]| -> u64 {
        let text = |tid: &u32| fs::read_to_string(format!("/proc/{tid}/schedstat")).unwrap();
        tids.iter().map(|tid| text(tid).split(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    };
    let mut seen = Vec::new();
    let requests = [NAPI[0], NAPI[1], "eth0:napi/threaded=on"];
    let [before, during, after] = place.proven("server", &requests, |place| {
        let tids = threads(place);
        let grown = place.grown(|| ran(&tids), || place.dnsperf(0));
        seen.extend(tids.clone());
        (tids.len(), grown)
    });
    assert_eq!((before, after), ((0, 0), (0, 0)));
    // A packet takes about a microsecond; a thread that only sleeps takes none.
    assert!(during.0 == 2 && during.1 > u64::from(QUERIES) * 100, "{during:?}");
    awaited("the threads of NAPI to end", TIMEOUT, || {
        let name = |tid: &u32| fs::read_to_string(format!("/proc/{tid}/comm")).unwrap_or_default();
        seen.iter().all(|tid| !name(tid).starts_with("napi/eth0")).then_some(())
    });
}

#[test]
fn sysctls_hold_for_the_sockets_that_come_after() {
    udpath_lab::needs_root!();
    let place = Place::new("sysctls", Kind::Knot);
    // More ports, since fewer need consent; none of the new ones is in use without it.
    let (new, last) = (10_000, 60_999);
    let request = format!("sysctl:net.ipv4.ip_local_port_range={new} {last}");
    let [before, during, after] = place.proven("client", &[&request], |place| {
        let clients = place.clients(64);
        place.asked(0, &clients, 2);
        let ports = clients.iter().map(|client| client.local_addr().unwrap().port());
        ports.filter(|port| (new..32_768).contains(port)).count()
    });
    // 22,768 of 51,000: one of 64 has such a port, but for once in 10^16.
    assert!(before == 0 && during > 0 && after == 0, "{before} {during} {after}");
}
