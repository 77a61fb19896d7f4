//! Running servers changed from outside: nsd, with worker processes, and knotd, with worker threads. Each in a lab's
//! machine, as packaged by Debian. Requires root.
//!
//! Datagrams per socket are counted while the server is stopped: they stay in the socket that the kernel selected.

mod server;

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CapabilitySet, CapabilitySets};
use udpath_host::process::{
    Error, Selection, Server, Socket, SocketSetting, SocketValue, ThreadId, affinity, find, read,
};
use udpath_lab::online_cpus;
use udpath_steer::CpuSet;
use udpath_tune::process::{pin, write};

use server::{COUNT, Kind, QUERY, Running, TIMEOUT, WORKERS, ZONE, on_cpu};

fn one(cpu: u32) -> CpuSet {
    [cpu].into_iter().collect()
}

fn first_cpus() -> Vec<u32> {
    let cpus: Vec<u32> = online_cpus().unwrap().iter().take(WORKERS).collect();
    assert_eq!(cpus.len(), WORKERS, "two CPUs are needed to tell them apart");
    cpus
}

/// Writes a value, checks it, and returns the value that undoes it.
fn apply(socket: &Socket, value: SocketValue) -> SocketValue {
    let changed = write(socket.pid, socket.id, value).unwrap();
    let now = read(socket.pid, socket.id, value.setting()).unwrap();
    assert_eq!(now, changed.after);
    if value.setting().is_reported() {
        assert_eq!(now, Some(value));
        assert_eq!(changed.before, Some(changed.undo));
    }
    changed.undo
}

fn apply_all(values: impl IntoIterator<Item = (Socket, SocketValue)>) -> Vec<(Socket, SocketValue)> {
    values.into_iter().map(|(socket, value)| (socket.clone(), apply(&socket, value))).collect()
}

/// Every operation on one running server; then it is restarted.
fn changed_from_outside(kind: Kind, name: &str) {
    let mut running = Running::start(kind, name);
    is_found(&running);
    let before = running.found();
    options_are_set_and_undone(&running);
    a_larger_buffer_holds_more(&running);
    the_datagrams_of_a_cpu_go_to_one_socket(&running);
    threads_stay_where_they_are_put(&running);
    impossible_values_are_refused(&running);
    missing_rights_are_named(&running);
    // After undo the state is equal, except for what traffic changes.
    let plain = |mut server: Server| {
        server.sockets.iter_mut().for_each(|socket| (socket.queued, socket.drops) = (0, 0));
        server.threads.iter_mut().for_each(|thread| thread.last_cpu = 0);
        server
    };
    assert_eq!(plain(running.found()), plain(before));
    a_restart_forgets_all_and_loses_nothing(&mut running);
}

fn is_found(running: &Running) {
    let server = running.found();
    let name = match running.kind {
        Kind::Nsd => "nsd: xfrd",
        Kind::Knot => "knotd",
    };
    assert_eq!((server.name.as_str(), server.processes[0]), (name, running.pid()));
    assert_eq!(server.processes.len(), running.kind.processes(), "{server:?}");
    assert!(server.threads.len() > WORKERS, "{server:?}");
    let bound: Vec<SocketAddr> = running.sockets().iter().map(|socket| socket.local).collect();
    assert_eq!(bound, vec![running.address(); WORKERS]);
    // No duplicate is left: this process has none of the sockets open.
    let inodes: Vec<_> =
        server.sockets.iter().map(|socket| format!("socket:[{}]", socket.id.inode).into()).collect();
    let held = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let held = held.filter_map(|entry| fs::read_link(entry.path()).ok()).filter(|held| inodes.contains(held));
    assert_eq!(held.count(), 0);
}

fn options_are_set_and_undone(running: &Running) {
    let values = [
        SocketValue::ReceiveBuffer(3 << 20),
        SocketValue::BusyPoll(50),
        SocketValue::PreferBusyPoll(true),
        SocketValue::BusyPollBudget(16),
        SocketValue::IncomingCpu(Some(first_cpus()[1])),
    ];
    for socket in running.sockets() {
        let undo = apply_all(values.map(|value| (socket.clone(), value)));
        let now = running.sockets().into_iter().find(|now| now.id == socket.id).unwrap();
        let told = values.iter().filter(|value| value.setting().is_reported());
        assert!(
            told.clone().count() == 4 && told.copied().all(|value| now.values.contains(&value)),
            "{now:?}"
        );
        apply_all(undo);
    }
}

fn a_larger_buffer_holds_more(running: &Running) {
    let drops = || running.sockets().iter().map(|socket| socket.drops).sum::<u32>();
    let dropped = |bytes: u32| {
        let value = SocketValue::ReceiveBuffer(bytes);
        let undo = apply_all(running.sockets().into_iter().map(|socket| (socket, value)));
        let before = drops();
        running.stop();
        // One flow, so one socket.
        let client = &running.clients(1)[0];
        (0..COUNT).for_each(|_| assert!(client.send(QUERY).is_ok()));
        let dropped = drops() - before;
        running.signal(Signal::CONT);
        apply_all(undo);
        running.await_answer();
        dropped
    };
    let (small, large) = (dropped(8 << 10), dropped(1 << 20));
    assert!(small > 0 && large == 0, "dropped of {COUNT}: {small} with 8 KiB, {large} with 1 MiB");
}

fn the_datagrams_of_a_cpu_go_to_one_socket(running: &Running) {
    let (sockets, cpus) = (running.sockets(), first_cpus());
    let spread = || cpus.iter().map(|&cpu| running.counted(cpu)).collect::<Vec<_>>();
    let mixed = spread();
    assert!(mixed.iter().flatten().all(|count| *count > 0), "by flow, both sockets get some: {mixed:?}");
    // Each socket receives from one CPU, in both orders.
    for order in [[1, 0], [0, 1]] {
        let value = |at: usize| SocketValue::IncomingCpu(Some(cpus[at]));
        let undo = apply_all(sockets.iter().cloned().zip(order.map(value)));
        for (at, counts) in spread().into_iter().enumerate() {
            let wanted = order.map(|cpu| if cpu == at { COUNT } else { 0 });
            assert_eq!(counts, wanted, "CPU {} with the order {order:?}", cpus[at]);
        }
        apply_all(undo);
    }
    // The group's own selection takes precedence.
    let first = SocketValue::IncomingCpu(Some(cpus[0]));
    let undo_first = apply_all(sockets.iter().cloned().map(|socket| (socket, first)));
    let undo = apply(&sockets[1], SocketValue::Selection(Selection::ByCpu));
    assert_eq!(undo, SocketValue::Selection(Selection::ByFlow));
    for (&cpu, counts) in cpus.iter().zip(spread()) {
        let wanted = [0, 1].map(|at| if at == cpu as usize % WORKERS { COUNT } else { 0 });
        assert_eq!(counts, wanted, "member CPU mod members, CPU {cpu}");
    }
    apply_all(undo_first);
    // Any member represents the group, and a second undo changes nothing.
    apply(&sockets[0], undo);
    apply(&sockets[0], undo);
    let again = spread();
    assert!(again.iter().flatten().all(|count| *count > 0), "by flow again: {again:?}");
}

fn threads_stay_where_they_are_put(running: &Running) {
    let server = running.found();
    for cpu in first_cpus() {
        let put = |id: ThreadId| (id, pin(id, &one(cpu)).unwrap().undo);
        let undo: Vec<_> = server.threads.iter().map(|thread| put(thread.id)).collect();
        assert_eq!(running.answered(), COUNT as usize);
        let now = running.found().threads;
        assert!(now.iter().all(|thread| thread.affinity == one(cpu)), "{now:?}");
        // A sleeping thread still reports its last CPU; those that answered are here.
        let here = now.iter().filter(|thread| thread.last_cpu == cpu).count();
        assert!(here >= WORKERS, "on CPU {cpu} ran {here}: {now:?}");
        for (id, undo) in undo {
            pin(id, &undo).unwrap();
            assert_eq!(affinity(id).unwrap(), undo);
        }
    }
}

fn impossible_values_are_refused(running: &Running) {
    let socket = &running.sockets()[0];
    let said = |value| write(socket.pid, socket.id, value).unwrap_err().to_string();
    assert!(said(SocketValue::IncomingCpu(Some(60_000))).contains("CPU 60000 is not online; online CPUs: 0"));
    assert!(said(SocketValue::ReceiveBuffer(u32::MAX)).contains("use up to 2147483646 bytes"));
    assert!(said(SocketValue::BusyPoll(u32::MAX)).contains("invalid busy poll time 4294967295"));
    // The kernel stores a different value, so the old one is restored.
    let before = read(socket.pid, socket.id, SocketSetting::ReceiveBuffer).unwrap();
    assert!(said(SocketValue::ReceiveBuffer(2)).contains("after 2 bytes was written; it was restored to"));
    assert_eq!(read(socket.pid, socket.id, SocketSetting::ReceiveBuffer).unwrap(), before);
    let mut other = socket.id;
    other.cookie += 1 << 32;
    let gone = write(socket.pid, other, SocketValue::BusyPoll(0)).unwrap_err();
    assert!(matches!(gone, Error::SocketGone { .. }), "{gone}");
}

/// Capabilities belong to a thread.
fn missing_rights_are_named(running: &Running) {
    let with = |capabilities| {
        let sets = CapabilitySets {
            effective: capabilities,
            permitted: capabilities,
            inheritable: CapabilitySet::empty(),
        };
        rustix::thread::set_capabilities(None, sets).unwrap();
    };
    let (socket, first) = (&running.sockets()[0], &running.found().threads[0]);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            with(CapabilitySet::SYS_PTRACE | CapabilitySet::DAC_READ_SEARCH);
            let said =
                write(socket.pid, socket.id, SocketValue::ReceiveBuffer(3 << 20)).unwrap_err().to_string();
            assert!(said.contains("not permitted; it needs CAP_NET_ADMIN"), "{said}");
            with(CapabilitySet::empty());
            // The kernel compares the capabilities of both.
            match (running.kind, find(running.pid())) {
                (Kind::Nsd, Err(error @ Error::NotPermitted { needs: "CAP_SYS_PTRACE", .. })) => {
                    assert!(error.to_string().contains("cannot list the descriptors of process"), "{error}");
                }
                // knotd has dropped its own capabilities: its user needs none.
                (Kind::Knot, Ok(server)) => assert_eq!(server.sockets.len(), WORKERS),
                (_, found) => panic!("{found:?}"),
            };
            assert_eq!(affinity(first.id).unwrap(), first.affinity);
        });
    });
}

fn a_restart_forgets_all_and_loses_nothing(running: &mut Running) {
    let (old, cpus) = (running.sockets(), first_cpus());
    for (socket, &cpu) in old.iter().zip(&cpus) {
        apply(socket, SocketValue::IncomingCpu(Some(cpu)));
        apply(socket, SocketValue::ReceiveBuffer(3 << 20));
    }
    apply(&old[0], SocketValue::Selection(Selection::ByCpu));
    let pid = running.pid();
    running.restart();
    // No socket of the old server takes a share: every query is answered, whichever CPU sends it.
    for cpu in cpus {
        on_cpu(cpu, || assert_eq!(running.answered(), COUNT as usize, "from CPU {cpu}"));
    }
    for socket in running.sockets() {
        assert_eq!(socket.value(SocketSetting::IncomingCpu), Some(SocketValue::IncomingCpu(None)));
        assert_ne!(socket.value(SocketSetting::ReceiveBuffer), Some(SocketValue::ReceiveBuffer(3 << 20)));
        let gone = read(socket.pid, old[0].id, SocketSetting::BusyPoll).unwrap_err();
        assert!(matches!(gone, Error::SocketGone { .. }), "{gone}");
    }
    assert!(matches!(find(pid), Err(Error::NoProcess { .. })));
}

#[test]
fn nsd_is_changed_from_outside() {
    udpath_lab::needs_root!();
    changed_from_outside(Kind::Nsd, "nsd");
}

#[test]
fn knotd_is_changed_from_outside() {
    udpath_lab::needs_root!();
    changed_from_outside(Kind::Knot, "knot");
}

/// nsd's reload keeps the sockets and their settings; its workers are new processes.
#[test]
fn a_reload_of_nsd_keeps_sockets_and_forgets_threads() {
    udpath_lab::needs_root!();
    let running = Running::start(Kind::Nsd, "nsd-reload");
    let (socket, cpu) = (&running.sockets()[0], first_cpus()[0]);
    apply(socket, SocketValue::IncomingCpu(Some(cpu)));
    let workers = |server: Server| -> Vec<ThreadId> {
        let threads = server.threads.into_iter().filter(|thread| thread.name.starts_with("nsd: server"));
        threads.map(|thread| thread.id).collect()
    };
    let before = workers(running.found());
    assert_eq!(before.len(), WORKERS);
    before.iter().for_each(|worker| drop(pin(*worker, &one(cpu)).unwrap()));
    fs::write(running.folder.path().join("zone"), ZONE.replace("host 1", "host 2")).unwrap();
    kill_process(Pid::from_child(&running.child), Signal::HUP).unwrap();
    let deadline = Instant::now() + TIMEOUT;
    let after = loop {
        let now = workers(running.found());
        if now.len() == WORKERS && now.iter().all(|worker| !before.contains(worker)) {
            break now;
        }
        assert!(Instant::now() < deadline, "nsd starts no new workers: {:?}", running.found());
        std::thread::sleep(Duration::from_millis(20));
    };
    running.await_answer();
    let now = running.sockets().into_iter().find(|now| now.id == socket.id).expect("the socket is kept");
    assert_eq!(now.value(SocketSetting::IncomingCpu), Some(SocketValue::IncomingCpu(Some(cpu))));
    assert!(after.iter().all(|worker| affinity(*worker).unwrap() != one(cpu)));
    assert!(before.iter().all(|worker| matches!(pin(*worker, &one(cpu)), Err(Error::ThreadGone { .. }))));
}

#[test]
fn a_missing_process_or_socket_is_reported() {
    assert!(matches!(find(u32::MAX), Err(Error::NoProcess { .. })));
    assert!(matches!(find(0), Err(Error::NoProcess { .. })));
    let own = UdpSocket::bind("127.0.0.1:0").unwrap();
    let server = find(std::process::id()).unwrap();
    let found = server.sockets.iter().find(|socket| socket.local == own.local_addr().unwrap()).unwrap();
    assert_eq!(found.group, None);
    let alone = write(found.pid, found.id, SocketValue::Selection(Selection::ByCpu)).unwrap_err();
    assert!(matches!(alone, Error::NoGroup { .. }), "{alone}");
    own.connect("127.0.0.1:9").unwrap();
    let connected = write(found.pid, found.id, SocketValue::IncomingCpu(Some(0))).unwrap_err();
    assert!(matches!(connected, Error::Connected { .. }), "{connected}");
}
