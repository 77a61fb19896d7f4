use udpath_host::processes::{Process, Thread};
use udpath_host::sockets::{GroupOrder, Owner, Place, ReuseportGroup, Selector, Socket};

use crate::finding::Location;
use crate::rules::testing::{Host, fact, only, set, settings};

/// A server of so many processes on port 53, each with a socket and a thread bound to the CPU of its number. `order`:
/// the sockets by their index in the group.
fn host(selector: Selector, order: &[usize]) -> Host {
    let mut host = Host::with_queues(2);
    host.cpus(4, 1);
    host.snapshot.kernel.release = "6.12.0".to_owned();
    let sockets = &mut host.snapshot.sockets;
    sockets.list = (0..order.len() as u32).map(socket).collect();
    sockets.processes = (0..order.len() as u32).map(process).collect();
    let places = order.iter().map(|&socket| Place { socket, incoming_cpu: None }).collect();
    sockets.groups = vec![ReuseportGroup {
        address: "0.0.0.0".parse().unwrap(),
        port: 53,
        interface: None,
        uid: 0,
        members: (0..order.len()).collect(),
        order: Some(fact(GroupOrder { selector, sockets: places })),
        selection: None,
    }];
    host.serve(1, 1);
    host
}

fn socket(number: u32) -> Socket {
    serde_json::from_value(serde_json::json!({
        "local": "0.0.0.0:53", "inode": 9 + number, "cookie": 9 + number, "uid": 0, "receive_queue": 0, "send_queue": 0,
        "drops": 0, "owners": [{"pid": 812 + number, "fd": 3}], "group": 0,
    }))
    .unwrap()
}

fn process(number: u32) -> Process {
    let thread = Thread {
        tid: 812 + number,
        name: "knotd".into(),
        cpus: Some([number].into_iter().collect()),
        last_cpu: None,
        state: None,
        time: None,
    };
    Process { pid: 812 + number, name: "knotd".into(), threads: vec![thread], ..Process::default() }
}

fn order(host: &mut Host) -> &mut GroupOrder {
    &mut host.snapshot.sockets.groups[0].order.as_mut().unwrap().value
}

const CPU: Selector = Selector::Cpu { modulus: None };

#[test]
fn a_restarted_worker_came_back_last() {
    // The second of four closed and was bound again.
    let found = only(&host(CPU, &[0, 3, 2, 1]), "group-order");
    assert_eq!(
        found.evidence,
        "of the 4 sockets of 0.0.0.0:53 (knotd, pid 812), selected by CPU, the one at index 1 is read on CPU 3, the one at \
         index 3 is read on CPU 1"
    );
    assert_eq!(found.locations, [Location::Socket(12), Location::Socket(10)]);
    assert_eq!(
        settings(&found),
        [
            "socket:812/9:incoming-cpu=0",
            "socket:815/12:incoming-cpu=3",
            "socket:814/11:incoming-cpu=2",
            "socket:813/10:incoming-cpu=1",
            "port:53:selection=by-flow"
        ]
    );
    let modulo = only(&host(Selector::Cpu { modulus: Some(2) }, &[1, 0]), "group-order");
    assert!(modulo.evidence.contains("selected by CPU modulo 2, the one at index 0 is read on CPU 1"));
}

#[test]
fn only_a_known_and_changed_order_is_found() {
    let changed = || host(CPU, &[1, 0]);
    only(&changed(), "group-order");
    let spoils: [fn(&mut Host); 9] = [
        |host| order(host).sockets.reverse(),
        |host| order(host).selector = Selector::Kernel,
        |host| order(host).selector = Selector::Extended { id: 7 },
        |host| host.snapshot.sockets.groups[0].order = None,
        // Another thread, on any CPU; a process that is not visible; one that shares the socket.
        |host| host.snapshot.sockets.processes[0].threads[0].cpus = Some(set("0-1")),
        |host| drop(host.snapshot.sockets.processes.remove(0)),
        |host| host.snapshot.sockets.list[0].owners.push(Owner { pid: 813, fd: 4 }),
        // Readers on CPUs away from those that receive: not an order that changed.
        |host| host.snapshot.sockets.processes[0].threads[0].cpus = Some(set("3")),
        // Another port was asked for.
        |host| host.map.sockets[0].inode = 99,
    ];
    for (at, spoil) in spoils.iter().enumerate() {
        let mut host = changed();
        spoil(&mut host);
        assert_eq!(host.found("group-order"), [], "{at}");
    }
}

#[test]
fn an_incoming_cpu_says_who_reads_too() {
    let mut host = host(CPU, &[0, 1]);
    for process in &mut host.snapshot.sockets.processes {
        process.threads[0].cpus = Some(set("0-3"));
    }
    assert_eq!(host.found("group-order"), []);
    let places = &mut order(&mut host).sockets;
    (places[0].incoming_cpu, places[1].incoming_cpu) = (Some(1), Some(0));
    host.snapshot.kernel.release = "6.1.0".to_owned();
    let found = only(&host, "group-order");
    assert!(
        found.evidence.ends_with("the one at index 0 is read on CPU 1, the one at index 1 is read on CPU 0")
    );
    assert_eq!(settings(&found), Vec::<String>::new(), "such a kernel does not use it");
    host.snapshot.sockets.list[0].peer = Some("192.0.2.7:9".parse().unwrap());
    assert_eq!(host.found("group-order"), [], "the kernel has written it");
}

#[test]
fn fewer_sockets_than_cpus() {
    let mut host = host(CPU, &[0, 1]);
    let found = only(&host, "cpu-without-socket");
    assert_eq!(
        found.evidence,
        "CPUs 2-3 receive packets, but of the 2 sockets of 0.0.0.0:53 (knotd, pid 812), selected by CPU, the program selects \
         none for them"
    );
    assert_eq!(found.locations[..2], [Location::Cpu(2), Location::Cpu(3)]);
    assert_eq!(settings(&found), ["port:53:selection=by-cpu"]);
    // A modulus left over from when there were four.
    order(&mut host).selector = Selector::Cpu { modulus: Some(4) };
    assert!(only(&host, "cpu-without-socket").evidence.contains("selected by CPU modulo 4"));
    for selector in [Selector::Cpu { modulus: Some(2) }, Selector::Kernel, Selector::Classic { length: 3 }] {
        order(&mut host).selector = selector;
        assert_eq!(host.found("cpu-without-socket"), [], "{selector:?}");
    }
    assert_eq!(self::host(CPU, &[0, 1, 2, 3]).found("cpu-without-socket"), []);
    assert_eq!(self::host(CPU, &[0]).found("cpu-without-socket"), []);
}

#[test]
fn only_cpus_that_receive_count() {
    let mut host = host(CPU, &[0, 1]);
    let on = |host: &mut Host, cpus: [&str; 2]| {
        for (queue, cpu) in host.map.interfaces[0].queues.iter_mut().zip(cpus) {
            (queue.cpus, queue.affinity) = (set(cpu), Some(set(cpu)));
        }
    };
    on(&mut host, ["0", "1"]);
    assert_eq!(host.found("cpu-without-socket"), []);
    on(&mut host, ["0", "2"]);
    assert_eq!(only(&host, "cpu-without-socket").locations[0], Location::Cpu(2));
    assert!(only(&host, "cpu-without-socket").evidence.starts_with("CPU 2 receives packets, but"));
    // The interrupt's CPU passes them on, or wakes a thread.
    host.map.interfaces[0].queues[1].rps = set("0-1");
    assert_eq!(host.found("cpu-without-socket"), []);
    host.map.interfaces[0].queues[1].rps = set("3");
    assert_eq!(only(&host, "cpu-without-socket").locations[0], Location::Cpu(3));
    // The hash prefers a socket that names the CPU.
    order(&mut host).sockets[1].incoming_cpu = Some(3);
    assert_eq!(host.found("cpu-without-socket"), []);
    host.snapshot.kernel.release = "6.1.0".to_owned();
    only(&host, "cpu-without-socket");
}
