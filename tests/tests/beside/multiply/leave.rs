//! Instances that leave: what they have taken is answered, and what belongs to others reaches them.

use std::os::linux::fs::MetadataExt;
use std::time::Duration;

use super::servers::kill;
use super::*;

/// How long each reply waits, as for a database. While it does, the queue may be empty and the process asleep.
const WAITS: Duration = Duration::from_millis(200);

/// Two instances of a server whose replies wait.
fn slow(scene: &Scene) -> Running {
    let text = SERVER
        .replace("import os,", "import time, os,")
        .replace("    s.sendto", &format!("    time.sleep({})\n    s.sendto", WAITS.as_secs_f64()));
    fs::write(scene.path("slow.py"), text).unwrap();
    let (file, port) = (scene.text("slow.py"), scene.port.to_string());
    let mut running = scene.run(&["-n", "2"], &["python3", &file, &port, "pid"]).start();
    running.says("ready: ");
    running
}

/// The process that answers.
fn answered_by(client: &UdpSocket) -> u32 {
    let mut room = [0; 100];
    let len = client.recv(&mut room).unwrap();
    std::str::from_utf8(&room[..len]).unwrap().rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[test]
fn a_reply_that_waits_is_sent_before_its_instance_ends() {
    udpath_lab::needs_root!();
    udpath_rig::needs_cpus!(2);
    let _alone = udpath_rig::alone();
    let scene = Scene::new("waits");
    let running = slow(&scene);
    let pids = scene.pids();
    let clients: Vec<UdpSocket> = (0..24).map(|_| scene.client()).collect();
    clients.iter().for_each(|client| assert_eq!(client.send(b"one").unwrap(), 3));
    scene.ask(&["-n", "1"]);
    let by: Vec<u32> = clients.iter().map(answered_by).collect();
    assert!(pids.iter().all(|pid| by.contains(pid)), "{by:?}");
    assert_eq!(scene.pids(), pids[..1]);
    scene.end(running);
}

/// It has taken a datagram, and gets no CPU for longer than any quiet time.
#[test]
fn an_instance_that_cannot_run_is_not_taken_for_idle() {
    udpath_lab::needs_root!();
    udpath_rig::needs_cpus!(2);
    let _alone = udpath_rig::alone();
    let scene = Scene::new("stopped");
    let running = slow(&scene);
    let second = scene.pids()[1];
    let client = (0..64)
        .map(|_| scene.client())
        .find(|client| client.send(b"whose").is_ok() && answered_by(client) == second)
        .expect("one of 64 flows is the second's");
    client.send(b"another").unwrap();
    std::thread::sleep(WAITS / 4);
    kill(second, Signal::STOP);
    let asked = Run::new(&["multiply", &scene.name, "-n", "1"]).start();
    std::thread::sleep(Duration::from_millis(1500));
    kill(second, Signal::CONT);
    assert_eq!(answered_by(&client), second);
    assert_eq!(asked.finish().code(), Some(0));
    scene.end(running);
}

/// The UDP sockets at the port, by inode, and which of them the supervisor has.
fn sockets(scene: &Scene, supervisor: u32) -> (usize, usize) {
    let port = format!(":{:04X}", scene.port);
    let table = fs::read_to_string("/proc/net/udp").unwrap();
    let columns = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let bound = columns.filter(|columns| columns[1].ends_with(&port) && columns[3] == "07");
    let inodes: Vec<u64> = bound.map(|columns| columns[9].parse().unwrap()).collect();
    let held = fs::read_dir(format!("/proc/{supervisor}/fd")).unwrap().flatten();
    let held: Vec<u64> = held.filter_map(|fd| Some(fs::metadata(fd.path()).ok()?.st_ino())).collect();
    (inodes.len(), inodes.iter().filter(|inode| held.contains(inode)).count())
}

/// The kernel gives a socket that it closes datagrams of others while that one is the first of its port.
#[test]
fn the_socket_bound_last_is_closed_once_another_one_is() {
    udpath_lab::needs_root!();
    udpath_rig::needs_cpus!(2);
    let _alone = udpath_rig::alone();
    let scene = Scene::new("kept");
    let running = scene.python(&["-n", "2"], "pid");
    assert_eq!(sockets(&scene, running.pid()), (2, 0));
    for _ in 0..2 {
        scene.ask(&["-n", "1"]);
        assert_eq!(sockets(&scene, running.pid()), (2, 1), "its process has ended");
        assert_eq!(scene.answered(32, 1).len(), 1);
        scene.ask(&["-n", "2"]);
        assert_eq!(sockets(&scene, running.pid()), (2, 0), "another one is first");
        assert_eq!(scene.answered(32, 1).len(), 2);
    }
    scene.ask(&["-n", "1"]);
    // Without any instance that gets datagrams, the kernel would give some to it.
    kill(scene.pids()[0], Signal::KILL);
    udpath_rig::awaited("the kept socket's end", TIMEOUT, || {
        (sockets(&scene, running.pid()).1 == 0).then_some(())
    });
    scene.end(running);
}
