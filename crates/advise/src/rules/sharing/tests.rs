//! Ports that several programs share, each beside a server that only looks like that.

use udpath_host::processes::Process;
use udpath_host::sockets::looks::QueueLooks;
use udpath_host::sockets::{Socket, SocketOptions};

use crate::finding::{Finding, Location};
use crate::rules::testing::{Host, Twin, only, thread};

fn process(pid: u32, parent: u32, executable: &str) -> Process {
    let name = executable.rsplit('/').next().unwrap().to_owned();
    Process { pid, name, parent: Some(parent), executable: Some(executable.to_owned()), ..Process::default() }
}

/// A machine on which each of these processes has a socket of 0.0.0.0:53.
fn host(processes: Vec<Process>) -> Host {
    let mut host = Host::with_queues(1);
    host.map.seconds = Some(10.0);
    host.serve(1, 0);
    let socket = host.map.sockets.remove(0);
    host.map.processes.clear();
    for (at, process) in (0..).zip(&processes) {
        let read: Socket = serde_json::from_value(serde_json::json!({
            "local": "0.0.0.0:53", "inode": 9 + at, "cookie": 9 + at, "uid": 0, "receive_queue": 0, "send_queue": 0,
            "drops": 0, "owners": [{"pid": process.pid, "fd": 3}], "group": 0,
        }))
        .unwrap();
        host.snapshot.sockets.list.push(read);
        let mut socket = socket.clone();
        (socket.inode, socket.pids, socket.group) = (9 + at, vec![process.pid], processes.len());
        (socket.queued, socket.queued_before) = (0, Some(0));
        host.map.sockets.push(socket);
        host.map.processes.push(udpath_host::map::ProcessMap {
            pid: process.pid,
            name: process.name.clone(),
            busiest: vec![thread(process.pid, 0.2)],
            ..Default::default()
        });
    }
    host.snapshot.sockets.processes = processes;
    host
}

fn found(host: &Host) -> Vec<Finding> {
    host.found("port-shared")
}

#[test]
fn another_program_on_the_port_is_named_with_its_part_of_the_flows() {
    let host = host(vec![
        process(812, 1, "/usr/sbin/nsd"),
        process(813, 812, "/usr/sbin/nsd"),
        process(900, 1, "/usr/sbin/unbound"),
    ]);
    let finding = only(&host, "port-shared");
    assert_eq!(
        finding.evidence,
        "0.0.0.0:53 is shared by nsd (pid 812; 2 sockets, about 67 % of the flows) and unbound (pid 900; 1 socket, about 33 % of the \
         flows), of which none started another"
    );
    assert_eq!(finding.locations, [Location::Process(812), Location::Process(900), Location::Socket(11)]);
}

#[test]
fn scripts_of_one_interpreter_are_different_programs() {
    let script = |pid, command: &str| Process {
        command: Some(command.to_owned()),
        ..process(pid, 700, "/usr/bin/python3.11")
    };
    let two = host(vec![script(812, "python3 -u /srv/echo.py 53"), script(813, "python3 probe.py 53")]);
    let evidence = only(&two, "port-shared").evidence;
    assert!(evidence.contains("python3.11 echo.py (pid 812;"), "{evidence}");
    let one = host(vec![script(812, "python3 /srv/echo.py 53"), script(813, "python3 /srv/echo.py 53")]);
    assert_eq!(found(&one), [], "instances that one shell started");
}

#[test]
fn an_instance_that_was_left_running_is_known_by_its_file_or_its_lack_of_a_unit() {
    let old = host(vec![process(812, 1, "/usr/sbin/nsd (deleted)"), process(900, 1, "/usr/sbin/nsd")]);
    let finding = only(&old, "port-shared");
    assert!(
        finding.evidence.contains("nsd (pid 812, of a file that was replaced; 1 socket"),
        "{}",
        finding.evidence
    );
    assert!(finding.cause.starts_with("an instance from before"), "{}", finding.cause);
    let both =
        host(vec![process(812, 1, "/usr/sbin/nsd (deleted)"), process(900, 1, "/usr/sbin/nsd (deleted)")]);
    assert_eq!(found(&both), []);
    let unit = Process {
        unit: serde_json::from_str("\"nsd.service\"").unwrap(),
        ..process(812, 1, "/usr/sbin/nsd")
    };
    let beside = host(vec![unit.clone(), process(900, 650, "/usr/sbin/nsd")]);
    assert!(only(&beside, "port-shared").cause.starts_with("an instance that no unit started"));
    let twice = Process {
        unit: serde_json::from_str("\"nsd@2.service\"").unwrap(),
        ..process(900, 1, "/usr/sbin/nsd")
    };
    assert_eq!(found(&host(vec![unit, twice])), [], "an instance of a template each");
}

#[test]
fn an_instance_that_does_not_read_is_named_beside_one_that_does() {
    let mut host = host(vec![process(812, 1, "/usr/sbin/nsd"), process(900, 1, "/usr/sbin/nsd")]);
    assert_eq!(found(&host), [], "both read");
    let stood =
        QueueLooks { looks: 200, full: 200, still: Some(200), shrank: Some(0), ..QueueLooks::default() };
    let socket = &mut host.map.sockets[1];
    (socket.drops, socket.queued, socket.queued_before, socket.looks) =
        (900, 200_000, Some(200_000), Some(stood));
    host.map.processes[1].busiest[0].ran = 0.0;
    let finding = only(&host, "port-shared");
    assert!(
        finding.evidence.contains("nsd (pid 900; 1 socket, about 50 % of the flows, which it does not read)")
    );
    only(&host, "reader-blocked");
}

#[test]
fn what_is_one_server_or_gets_copies_is_not_named() {
    let master = |host: &mut Host| host.snapshot.sockets.processes[1].parent = Some(812);
    let inherited = |host: &mut Host| host.map.sockets[0].pids.push(813);
    let everyones = |host: &mut Host| {
        for socket in &mut host.map.sockets {
            socket.local.set_port(5353);
        }
    };
    let of_a_device = |host: &mut Host| host.snapshot.sockets.list[1].interface = Some(3);
    let connected = |host: &mut Host| host.map.sockets[1].peer = Some("192.0.2.1:53".parse().unwrap());
    let twins: [Twin; 5] = [
        ("a helper that it started", master),
        ("a socket that both have", inherited),
        ("multicast", everyones),
        ("an interface each", of_a_device),
        ("connected", connected),
    ];
    for (what, twin) in twins {
        let mut host = host(vec![process(812, 1, "/usr/sbin/nsd"), process(813, 1, "/usr/sbin/helper")]);
        assert_eq!(found(&host).len(), 1);
        twin(&mut host);
        assert_eq!(found(&host), [], "{what}");
    }
}

#[test]
fn with_reuseaddr_alone_the_last_one_gets_all() {
    let mut host = host(vec![process(812, 1, "/usr/sbin/nsd"), process(900, 1, "/usr/sbin/unbound")]);
    for socket in &mut host.map.sockets {
        socket.options = Some(SocketOptions { reuseaddr: true, ..SocketOptions::default() });
    }
    let finding = only(&host, "port-shared");
    assert!(finding.cause.starts_with("with SO_REUSEADDR alone"), "{}", finding.cause);
    assert!(!finding.evidence.contains("of the flows"), "{}", finding.evidence);
}
