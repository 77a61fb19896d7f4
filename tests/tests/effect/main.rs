//! Settings on real traffic: each is applied to a machine where a real nsd or knotd answers real queries, read back, seen
//! to do what it is for by the kernel's own counts, and undone until every setting is as before, byte by byte. Needs root
//! and two CPUs.
//!
//! | setting | what is counted |
//! |---|---|
//! | RPS | how often one CPU was handed packets by another (softnet) |
//! | RFS | the same, of one packet each: they follow the thread that reads |
//! | XPS | packets of each transmit queue (qdisc) |
//! | channels, features | packets of each receive queue's NAPI (the driver) |
//! | NAPI threads | the CPU time of the kernel's threads |
//! | qdisc | packets of the qdisc |
//! | sysctls | the ports that new sockets get |
//! | receive buffer | datagrams dropped of a burst |
//! | incoming CPU, selection | what waits at each socket |
//! | threads | the CPU they ran on |

mod place;
mod settled;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use udpath_host::process::waiting;
use udpath_host::snapshot::Interface;
use udpath_tests::{PATIENCE, awaited, one_sentence, program};

use place::{Kind, PORT, Place, QUERIES, WORKERS};

/// Of [`QUERIES`]: what is all of them but for a stray packet, and what is none but for one.
const ALL: u64 = QUERIES as u64 * 9 / 10;
const NONE: u64 = QUERIES as u64 / 10;

/// What brings NAPI to a veth, and UDP of local senders to that.
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

    /// How often CPU 1 was handed packets by RPS, one or several.
    fn steered(&self) -> u64 {
        self.snapshot("server").softnet.cpus[&1].received_rps.unwrap().into()
    }

    /// Packets that each receive queue's NAPI has taken, as the driver counts them.
    fn taken(&self) -> Vec<u64> {
        let counters = self.eth0("server").driver_counters.unwrap().value;
        (0..WORKERS)
            .filter_map(|queue| counters.get(&format!("rx_queue_{queue}_xdp_packets")).copied())
            .collect()
    }

    /// Packets of the qdisc below each transmit queue.
    fn sent(&self) -> Vec<u64> {
        let qdiscs = self.eth0("server").qdiscs.unwrap().value;
        let mut leaves: Vec<_> = qdiscs.iter().filter(|qdisc| qdisc.parent != "root").collect();
        leaves.sort_by(|one, other| one.parent.cmp(&other.parent));
        leaves.into_iter().map(|qdisc| qdisc.packets).collect()
    }
}

/// One by one.
fn less(after: &[u64], before: &[u64]) -> Vec<u64> {
    after.iter().zip(before).map(|(after, before)| after - before).collect()
}

#[test]
fn rps_hands_packets_to_the_cpu_that_is_set() {
    let place = Place::new("rps", Kind::Knot);
    let [before, during, after] = place
        .proven("server", &["eth0:rps/rx-*=1"], |place| place.grown(|| place.steered(), || place.dnsperf(0)));
    assert!(before < NONE && during > 2 * NONE && after < NONE, "{before} {during} {after}");
}

#[test]
fn rfs_takes_packets_to_the_cpu_that_reads() {
    let place = Place::new("rfs", Kind::Knot);
    // The kernel's table of where flows are read is the host's.
    let (state, table) = (tempfile::tempdir().unwrap(), "/proc/sys/net/core/rps_sock_flow_entries");
    let host = fs::read_to_string(table).unwrap();
    let udpath = |arguments: &[&str]| {
        let output = std::process::Command::new(program())
            .args(arguments)
            .args(["--state", state.path().to_str().unwrap()])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    // Replies come in where the server sends them, on CPU 0; connected sockets are what RFS knows.
    place.apply("server", &[&format!("port:{PORT}:threads=0")]).fine();
    let clients = place.clients(16);
    let wishes = ["eth0:rps/rx-*=0-1", "eth0:rfs/rx-*=1024"];
    let followed = |reader: u32| {
        udpath(&["apply", "--set", "sysctl:net.core.rps_sock_flow_entries=32768"]);
        let counts = place.proven("client", &wishes, |place| {
            let count = || place.snapshot("client").softnet.cpus[&1].received_rps.unwrap().into();
            // The first of each says where it is read.
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
    let place = Place::new("xps", Kind::Knot);
    // Where its threads run is where it sends.
    for cpu in [0, 1] {
        place.apply("server", &[&format!("port:{PORT}:threads={cpu}")]).fine();
        let wishes = ["eth0:qdisc=mq", "eth0:xps/tx-0=0", "eth0:xps/tx-1=1"];
        let [before, during, after] = place.proven("server", &wishes, |place| {
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
    // What the other end sends by its second queue has no counterpart any more, and goes without NAPI.
    assert!(one.1.len() == 1 && one.1[0] > NONE && one.1[0] < 2 * ALL, "{one:?}");
    assert!(again.1.iter().all(|count| *count > NONE), "{again:?}");
    place.udpath("server", &["undo"]).fine();
}

#[test]
fn napi_threads_do_the_work_and_go_with_the_setting() {
    let place = Place::new("threaded", Kind::Knot);
    // Nanoseconds that threads of NAPI have run, of those that there are.
    let threads = |place: &Place| -> Vec<u32> {
        let napis = place.eth0("server").napis.map_or(Vec::new(), |napis| napis.value);
        napis.iter().filter_map(|napi| napi.thread).collect()
    };
    let ran = |tids: &[u32]| -> u64 {
        let text = |tid: &u32| fs::read_to_string(format!("/proc/{tid}/schedstat")).unwrap();
        tids.iter().map(|tid| text(tid).split(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    };
    let mut seen = Vec::new();
    let wishes = [NAPI[0], NAPI[1], "eth0:napi/threaded=on"];
    let [before, during, after] = place.proven("server", &wishes, |place| {
        let tids = threads(place);
        let grown = place.grown(|| ran(&tids), || place.dnsperf(0));
        seen.extend(tids.clone());
        (tids.len(), grown)
    });
    assert_eq!((before, after), ((0, 0), (0, 0)));
    // A packet takes a microsecond or so; a thread that only sleeps takes none.
    assert!(during.0 == 2 && during.1 > u64::from(QUERIES) * 100, "{during:?}");
    awaited("the threads of NAPI to end", PATIENCE, || {
        let name = |tid: &u32| fs::read_to_string(format!("/proc/{tid}/comm")).unwrap_or_default();
        seen.iter().all(|tid| !name(tid).starts_with("napi/eth0")).then_some(())
    });
}

#[test]
fn sysctls_hold_for_the_sockets_that_come_after() {
    let place = Place::new("sysctls", Kind::Knot);
    let range = 45_000..=45_063;
    let wish = format!("sysctl:net.ipv4.ip_local_port_range={} {}", range.start(), range.end());
    let [before, during, after] = place.proven("client", &[&wish], |place| {
        let clients = place.clients(16);
        place.asked(0, &clients, 2);
        clients.iter().filter(|client| range.contains(&client.local_addr().unwrap().port())).count()
    });
    // 64 of 28,000 ports.
    assert!(before < 4 && during == 16 && after < 4, "{before} {during} {after}");
}

#[test]
fn a_larger_receive_buffer_takes_a_burst_that_overflowed_before() {
    for kind in [Kind::Nsd, Kind::Knot] {
        let place = Place::new("buffer", kind);
        // A query is charged some 800 bytes. One client is one flow, and that is one socket.
        let wish = format!("port:{PORT}:receive-buffer=16777216");
        let [before, during, after] =
            place.proven("server", &[&wish], |place| place.burst(0, 1, 5000).dropped);
        assert!(before > 0 && during == 0 && after > 0, "{kind:?}: {before} {during} {after}");
    }
}

#[test]
fn sockets_take_the_datagrams_of_their_cpu() {
    for kind in [Kind::Nsd, Kind::Knot] {
        let place = Place::new("percpu", kind);
        let queued = |place: &Place| [0, 1].map(|cpu| place.burst(cpu, 40, 1).queued);
        let by_flow = |queued: &[Vec<u32>; 2]| queued.iter().flatten().all(|bytes| *bytes > 0);
        let by_cpu = |queued: &[Vec<u32>; 2]| {
            (0..2).all(|cpu| (0..2).all(|socket| (queued[cpu][socket] > 0) == (cpu == socket)))
        };
        let wish = format!("port:{PORT}:incoming-cpu=one-per-cpu");
        let [before, during, after] = place.proven("server", &[&wish], queued);
        assert!(by_flow(&before) && by_cpu(&during) && by_flow(&after), "{before:?} {during:?} {after:?}");
        // By the group's own choice. The kernel does not tell it, so the buffer is what the snapshots differ in.
        let wish = format!("port:{PORT}:selection=by-cpu");
        let buffer = format!("port:{PORT}:receive-buffer=4000000");
        let [before, during, after] = place.proven("server", &[&wish, &buffer], queued);
        assert!(by_flow(&before) && by_cpu(&during) && by_flow(&after), "{before:?} {during:?} {after:?}");
    }
}

#[test]
fn threads_run_where_they_are_put_and_read_the_socket_of_their_cpu() {
    for kind in [Kind::Nsd, Kind::Knot] {
        let place = Place::new("threads", kind);
        for cpu in [0, 1] {
            let wish = format!("port:{PORT}:threads={cpu}");
            let ran = |place: &Place| {
                place.dnsperf(1 - cpu);
                let (server, waiting) = (place.server(), waiting(&place.server()).unwrap());
                let read = |tid| waiting.values().flatten().any(|thread| thread.tid == tid);
                let readers = server.threads.iter().filter(|thread| read(thread.id.tid));
                readers.map(|thread| (thread.last_cpu, thread.affinity.to_string())).collect::<Vec<_>>()
            };
            let [before, during, after] = place.proven("server", &[&wish], ran);
            assert_eq!(during, vec![(cpu, cpu.to_string()); WORKERS], "{kind:?}");
            let affinities =
                |of: &[(u32, String)]| of.iter().map(|(_, cpus)| cpus.clone()).collect::<Vec<_>>();
            assert_eq!(affinities(&before), affinities(&after));
        }
        // Sockets and threads in turn: who reads a socket is where its datagrams come in.
        let wishes = ["incoming-cpu", "threads"].map(|item| format!("port:{PORT}:{item}=one-per-cpu"));
        place.apply("server", &[&wishes[0], &wishes[1]]).fine();
        let (server, waiting) = (place.server(), waiting(&place.server()).unwrap());
        for (cpu, socket) in place.sockets().iter().enumerate() {
            let readers = &waiting[&socket.id.inode];
            assert_eq!(readers.len(), 1, "{kind:?}");
            let reader = server.threads.iter().find(|thread| readers.contains(&thread.id)).unwrap();
            assert_eq!(reader.affinity.to_string(), cpu.to_string(), "{kind:?}: {socket}");
            assert!(
                socket.values.contains(&udpath_host::process::SocketValue::IncomingCpu(Some(cpu as u32)))
            );
        }
        place.udpath("server", &["undo"]).fine();
    }
}

#[test]
fn what_a_restart_of_the_server_forgets_is_told_before_and_after() {
    for kind in [Kind::Nsd, Kind::Knot] {
        let mut place = Place::new("restart", kind);
        let wishes =
            ["receive-buffer=8388608", "busy-poll=50", "threads=1"].map(|item| format!("port:{PORT}:{item}"));
        let wishes: Vec<&str> = wishes.iter().map(String::as_str).collect();
        let plan = place.udpath("server", &["plan", "--set", wishes[0]]).fine();
        assert!(
            plan.err.contains("receive-buffer lasts until the socket is closed: a restart"),
            "{}",
            plan.err
        );
        assert!(plan.out.contains(&format!("10.0.0.2:{PORT} of ")), "{}", plan.out);
        let applied = place.apply("server", &wishes).fine();
        assert!(applied.err.contains("affinity lasts until the thread ends: a restart"), "{}", applied.err);
        assert_eq!(
            place.udpath("server", &["status"]).fine().out.matches("holds").count(),
            applied.out.lines().count()
        );
        place.restart();
        let status = place.udpath("server", &["status"]);
        assert_eq!(status.code, Some(1), "{}", status.out);
        assert!(
            status.out.contains("gone; perhaps by a restart of the server, which forgets it"),
            "{}",
            status.out
        );
        assert!(!status.out.contains("holds"), "{}", status.out);
        let settled = place.settled("server");
        let undone = place.udpath("server", &["undo"]).fine();
        assert!(undone.err.contains("nothing is left to put back"), "{}", undone.err);
        assert_eq!(place.settled("server"), settled);
        // And after its end for good.
        place.apply("server", &wishes).fine();
        place.end();
        place.udpath("server", &["undo"]).fine();
        let nobody = place.apply("server", &wishes);
        assert_eq!(nobody.code, Some(3), "{}", nobody.err);
        assert!(nobody.err.contains(&format!("no UDP socket is bound to port {PORT}")), "{}", nobody.err);
    }
}

#[test]
fn whose_server_may_not_be_touched_is_told_with_the_capability() {
    let place = Place::new("rights", Kind::Nsd);
    let open = tempfile::Builder::new().prefix("udpath-open").tempdir().unwrap();
    let copy = open.path().join("udpath");
    fs::copy(program(), &copy).unwrap();
    for path in [open.path(), &copy] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let (before, inode) = (place.settled("server"), place.sockets()[0].id.inode);
    for wish in
        [format!("port:{PORT}:receive-buffer=8388608"), format!("socket:{}/{inode}:busy-poll=1", place.pid())]
    {
        let mut command = place.command("server", "setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all"]);
        let output = command.arg(&copy).args(["plan", "--set", &wish]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{said}");
        one_sentence(&wish, &said);
        assert!(said.contains("CAP_SYS_PTRACE"), "{said}");
    }
    assert_eq!(place.settled("server"), before);
}
