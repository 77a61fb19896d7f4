//! Servers of Debian, each with a configuration derived for every instance.

use std::net::UdpSocket;
use std::path::Path;
use std::time::Duration;

use udpath_rig::{Flows, Run, TIMEOUT, collected, freeradius, netflow, nfcapd};

use super::*;

/// Extracted by scripts/setup.sh.
const CHRONYD: &str = "/var/cache/udpath/chronyd";
const SECRET: &str = "a secret";

/// chronyd's configuration, as an administrator has it: with a pid file and a command port, which only one can have.
fn chrony(scene: &Scene) -> String {
    assert!(Path::new(CHRONYD).exists(), "no {CHRONYD}: scripts/setup.sh extracts it");
    let path = scene.text("server.conf");
    let text = format!(
        "local stratum 10\nallow\nport {}\npidfile {}\ncmdport 20323\nbindcmdaddress /\n",
        scene.port,
        scene.text("chronyd.pid")
    );
    fs::write(&path, text).unwrap();
    path
}

fn ntp_answers(scene: &Scene, clients: usize) {
    for _ in 0..clients {
        let client = scene.client();
        let mut request = [0; 48];
        request[0] = 0x23;
        request[47] = 1;
        client.send(&request).unwrap();
        let mut reply = [0; 100];
        let len = client.recv(&mut reply).unwrap();
        assert!(len == 48 && reply[0] & 7 == 4, "{:02x?}", &reply[..len]);
        client.set_nonblocking(true).unwrap();
        assert!(client.recv(&mut reply).is_err(), "a second reply");
    }
}

#[test]
fn chronyd_serves_from_two_instances_and_one_that_hangs_is_replaced() {
    udpath_lab::needs_root!();
    udpath_rig::needs_cpus!(2);
    let _alone = udpath_rig::alone();
    let scene = Scene::new("chrony");
    let config = chrony(&scene);
    let before = fs::read_to_string(&config).unwrap();
    let mut running =
        scene.run(&["-n", "2", "--json"], &[CHRONYD, "-u", "root", "-x", "-d", "-f", &config]).start();
    running.says("ready: 2 instances");
    ntp_answers(&scene, 64);
    for number in ["1", "2"] {
        let own = Path::new(FOLDERS).join(&scene.name).join(number);
        assert!(own.join("chronyd.pid").exists() && own.join("server.conf").exists(), "{}", own.display());
    }
    assert!(!scene.path("chronyd.pid").exists());
    assert_eq!(fs::read_to_string(&config).unwrap(), before);

    // Stopped, it has its sockets and answers nothing.
    let (first, hung) = (scene.pids()[0], scene.pids()[1]);
    kill(hung, Signal::STOP);
    running.says("instance 2: did not answer 4 queries; it was killed");
    ntp_answers(&scene, 64);
    udpath_rig::awaited("another instance 2", TIMEOUT, || (scene.pids().len() == 2).then_some(()));
    let now = scene.pids();
    assert!(now[0] == first && now[1] != hung, "{now:?}");
    ntp_answers(&scene, 64);
    let ended = scene.end(running);
    let last: Value = serde_json::from_str(&ended.out).unwrap();
    let given = |at: usize| last["instances"][at]["datagrams"].as_u64().unwrap();
    assert!(given(0) > 0 && given(1) > 0 && given(0) + given(1) == 3 * 64, "{last}");
    assert_eq!(last["instances"][1]["restarts"], 1);
}

pub(super) fn kill(pid: u32, signal: Signal) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

#[test]
fn chronyd_that_denies_this_machine_does_not_start_and_is_not_asked_with_probe_none() {
    udpath_lab::needs_root!();
    let _alone = udpath_rig::alone();
    let scene = Scene::new("deny");
    let config = chrony(&scene);
    let text = fs::read_to_string(&config).unwrap().replace("allow\n", "allow 192.0.2.0/24\n");
    fs::write(&config, text).unwrap();
    let command = [CHRONYD, "-u", "root", "-x", "-d", "-f", &config];
    let ended = scene.run(&["-n", "1", "--start-limit", "2s"], &command).finish();
    let last = ended.err.lines().last().unwrap();
    assert!(
        ended.code() == Some(3) && last.contains("instance 1 did not answer a query from this machine"),
        "{last}"
    );
    scene.nothing_is_left();
    let mut running = scene.run(&["-n", "1", "--probe", "none"], &command).start();
    running.says("ready: 1 instance");
    scene.end(running);
}

#[test]
fn freeradius_shares_both_ports() {
    udpath_lab::needs_root!();
    udpath_rig::needs_cpus!(2);
    let _alone = udpath_rig::alone();
    let scene = Scene::new("radius");
    fs::write(scene.path("users"), "bob  Cleartext-Password := \"hello\"\n").unwrap();
    fs::write(scene.path("secret"), SECRET).unwrap();
    let raddb = scene.path("raddb");
    fs::create_dir(&raddb).unwrap();
    // Without the shell that redirects its output.
    let words = freeradius(&raddb, SECRET, &scene.path("users")).unwrap().split_off(4);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut running = scene.run(&["-n", "2", "--json"], &words).start();
    running.says("ready: 2 instances");
    let status = scene.ask(&[]);
    assert_eq!(
        status["addresses"],
        serde_json::json!(["0.0.0.0:1812", "0.0.0.0:1813", "[::]:1812", "[::]:1813"])
    );
    let files = [scene.text("secret"), scene.text("users")];
    for (target, more) in
        [("127.0.0.1:1812", &[][..]), ("127.0.0.1:1813", &["--accounting"]), ("[::1]:1812", &[])]
    {
        let load = ["load", "radius", target, "--secret-file", &files[0], "--users", &files[1]];
        let load = [&load[..], &["--rate", "500", "--flows", "32", "-d", "1s", "--json"], more].concat();
        let ended = Run::new(&load).finish();
        let result: Value = serde_json::from_str(&ended.out).unwrap_or_else(|_| panic!("{}", ended.err));
        let counts = &result["counts"];
        assert!(
            counts["sent"].as_u64().unwrap() > 300 && counts["sent"] == counts["ok"],
            "{target}: {counts}"
        );
        assert_eq!(counts["duplicate"], 0, "{target}: {counts}");
    }
    let ended = scene.end(running);
    let last: Value = serde_json::from_str(&ended.out).unwrap();
    for at in 0..2 {
        assert!(last["instances"][at]["datagrams"].as_u64().unwrap() > 100, "{last}");
    }
}

/// rsyslog writes what it gets to a file; each message is there once.
#[test]
fn rsyslog_writes_each_message_once() {
    udpath_lab::needs_root!();
    udpath_rig::needs_cpus!(2);
    let _alone = udpath_rig::alone();
    let scene = Scene::new("rsyslog");
    let config = scene.text("udp.conf");
    let text = format!(
        "module(load=\"imudp\")\ninput(type=\"imudp\" address=\"127.0.0.1\" port=\"{}\")\n\
         template(name=\"raw\" type=\"string\" string=\"%msg%\\n\")\n\
         action(type=\"omfile\" file=\"{}\" template=\"raw\")\n",
        scene.port,
        scene.text("messages")
    );
    fs::write(&config, text).unwrap();
    let port = scene.port.to_string();
    let mut running =
        scene.run(&["-n", "2", "--port", &port], &["/usr/sbin/rsyslogd", "-n", "-f", &config]).start();
    running.says("ready: 2 instances");
    let clients: Vec<UdpSocket> = (0..32).map(|_| scene.client()).collect();
    for number in 0..10 {
        for (flow, client) in clients.iter().enumerate() {
            client.send(format!("<13>Nov 23 12:00:00 host tag: m{flow}-{number}.").as_bytes()).unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let lines = || {
        let text = fs::read_to_string(scene.path("messages")).unwrap_or_default();
        let mut lines: Vec<String> = text.lines().map(|line| line.trim().to_owned()).collect();
        lines.sort();
        lines
    };
    udpath_rig::awaited("all messages", TIMEOUT, || (lines().len() >= 320).then_some(()));
    let mut expected: Vec<String> =
        (0..32).flat_map(|flow| (0..10).map(move |number| format!("m{flow}-{number}."))).collect();
    expected.sort();
    assert_eq!(lines(), expected);
    scene.end(running);
}

/// nfcapd answers nothing: each record is in the files of one instance.
#[test]
fn nfcapd_writes_each_record_once() {
    udpath_lab::needs_root!();
    udpath_rig::needs_cpus!(2);
    let _alone = udpath_rig::alone();
    let scene = Scene::new("nfcapd");
    let flows = [1, 2].map(|number| scene.path("flows").join(number.to_string()));
    flows.iter().for_each(|folder| fs::create_dir_all(folder).unwrap());
    let (program, port) = (nfcapd(), scene.port.to_string());
    let same = scene.run(&["-n", "2"], &[&program, "-p", &port, "-w", &scene.text("flows")]).finish();
    assert!(same.code() == Some(3) && same.err.contains("as in -w /var/cache/nfdump/{n}"), "{}", same.err);
    scene.nothing_is_left();

    let folder = scene.text("flows/{n}");
    let mut running = scene.run(&["-n", "2"], &[&program, "-p", &port, "-w", &folder]).start();
    running.says("ready: 2 instances");
    let clients: Vec<UdpSocket> = (0..32).map(|_| scene.client()).collect();
    let mut sent = Flows::default();
    let mut send = || {
        for client in &clients {
            sent = Flows { flows: sent.flows + 1, bytes: sent.bytes + sent.flows + 1 };
            client.send(&netflow(sent.flows as u32)).unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    (0..10).for_each(|_| send());
    scene.ask(&["-n", "1"]);
    (0..10).for_each(|_| send());
    scene.ask(&["-n", "2"]);
    (0..10).for_each(|_| send());
    scene.end(running);
    let [one, two] = flows.each_ref().map(|folder| collected(folder));
    assert!(one.flows > 0 && two.flows > 0, "{one:?} {two:?}");
    assert_eq!(Flows { flows: one.flows + two.flows, bytes: one.bytes + two.bytes }, sent);
}
