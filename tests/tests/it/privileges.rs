//! serve and export give up their privileges: /proc shows it for every thread, and they go on serving. Needs root.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use udpath_rig::{Run, Running, TIMEOUT, awaited, client_and_server, one_sentence};

use crate::inside;

/// What the reader of an exporter keeps: `CAP_DAC_READ_SEARCH`, `CAP_NET_ADMIN`, `CAP_SYS_PTRACE` (linux/capability.h).
const READER: u64 = 1 << 2 | 1 << 12 | 1 << 19;

/// A field of each thread's status.
fn threads(pid: u32, name: &str) -> BTreeSet<String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let field = |status: String| {
        let value = status.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned();
        value.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    threads.map(|thread| field(fs::read_to_string(thread.unwrap().path().join("status")).unwrap())).collect()
}

/// All threads: neither root's, nor with capabilities, nor with all system calls.
fn gave_up(pid: u32) {
    let all = |name: &str, value: &str| {
        assert_eq!(threads(pid, name), BTreeSet::from([value.to_owned()]), "{name}");
    };
    for uid in threads(pid, "Uid:") {
        assert!(uid.split(' ').all(|uid| uid != "0"), "{uid}");
    }
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        all(set, "0000000000000000");
    }
    all("NoNewPrivs:", "1");
    all("Seccomp:", "2");
    all("Groups:", "");
}

fn bind_of(server: &mut Running) -> SocketAddr {
    let ready = server.says_line("ready io=");
    ready.split_whitespace().find_map(|word| word.strip_prefix("bind=")).unwrap().parse().unwrap()
}

fn is_echoed(to: SocketAddr) {
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    client.send_to(b"hello", to).unwrap();
    let mut reply = [0; 8];
    assert_eq!(client.recv(&mut reply).unwrap(), 5);
}

#[test]
fn a_server_gives_up_everything_over_every_io() {
    udpath_lab::needs_root!();
    for io in ["shared", "reuseport", "percpu"] {
        let mut server =
            Run::new(&["serve", "echo", "--io", io, "--workers", "2", "--tcp", "--bind", "127.0.0.1:0"])
                .start();
        let bind = bind_of(&mut server);
        gave_up(server.pid());
        is_echoed(bind);
        server.signal(Signal::TERM);
        assert_eq!(server.finish().code(), Some(0), "{io}");
    }
    let lab = client_and_server("privileges", 2);
    let server = inside::serve(&lab, "xdp", &["echo", "--bind", "0.0.0.0:7000"]);
    gave_up(server.pid());
    // An address that is served from now on is a new entry in the maps of its programs.
    let ip = lab
        .machine("server")
        .unwrap()
        .command("ip")
        .args(["address", "add", "10.0.0.77/24", "dev", "eth0"])
        .status();
    assert!(ip.unwrap().success());
    let client = inside::connected(&lab, "10.0.0.77:7000".parse().unwrap());
    for _ in 0..200 {
        client.send(b"hello").unwrap();
        assert_eq!(client.recv(&mut [0; 8]).unwrap(), 5);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let counts = inside::end(server);
    assert!(counts["xdp"]["answered"].as_u64().unwrap() > 50, "{counts}");
    let mut ip = lab.machine("server").unwrap().command("ip");
    let shown = ip.args(["link", "show", "eth0"]).output().unwrap();
    assert!(!String::from_utf8_lossy(&shown.stdout).contains("prog/xdp"), "the program is still attached");
    lab.down().unwrap();
}

#[test]
fn a_user_can_be_chosen_and_bad_ones_are_refused() {
    udpath_lab::needs_root!();
    let serve = ["serve", "echo", "--io", "shared", "--bind", "127.0.0.1:0", "--user"];
    for (user, uid) in [("daemon", "1 1 1 1"), ("12345", "12345 12345 12345 12345"), ("root", "0 0 0 0")] {
        let mut server = Run::new(&[&serve[..], &[user]].concat()).start();
        let bind = bind_of(&mut server);
        assert_eq!(threads(server.pid(), "Uid:"), BTreeSet::from([uid.to_owned()]));
        is_echoed(bind);
        server.signal(Signal::TERM);
        assert_eq!(server.finish().code(), Some(0));
    }
    let refused = Run::new(&[&serve[..], &["nosuchuser"]].concat()).finish();
    assert_eq!(refused.code(), Some(2), "{}", refused.err);
    one_sentence("no user `nosuchuser`", &refused.err);
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.path().join("udpath");
    udpath_rig::copy_program(&udpath_rig::program(), &copy);
    let refused = Run::unprivileged(&copy, &[&serve[..], &["root"]].concat()).finish();
    assert_eq!(refused.code(), Some(2), "{}", refused.err);
    one_sentence("cannot become user `root`", &refused.err);
}

/// Such as a container's root with few capabilities.
#[test]
fn root_that_cannot_become_another_user_drops_its_capabilities() {
    udpath_lab::needs_root!();
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-all,+net_admin,+sys_ptrace,+dac_read_search", "--inh-caps=-all"]);
    command.arg(udpath_rig::program()).args(["export", "--listen", "127.0.0.1:0"]);
    let mut exporter = Run::of(command, "export with three capabilities").start();
    let address = metrics_of(&mut exporter);
    let answer = scrape(&address);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let answering = children(exporter.pid())[0];
    assert_eq!(threads(answering, "CapEff:"), BTreeSet::from(["0000000000000000".to_owned()]));
    assert_eq!(threads(answering, "Seccomp:"), BTreeSet::from(["2".to_owned()]));
    exporter.signal(Signal::TERM);
    assert_eq!(exporter.finish().code(), Some(0));
}

/// The files of an unprivileged server are those that its user may read.
#[test]
fn a_reload_that_the_user_may_not_read_is_said_and_changes_nothing() {
    udpath_lab::needs_root!();
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let zone = folder.path().join("zone");
    let write = |serial: u32| {
        fs::write(
            &zone,
            format!("$ORIGIN x.test.\n@ 1 IN SOA ns a {serial} 1 1 1 1\n@ 1 IN NS ns\nns 1 IN A 192.0.2.1\n"),
        )
        .unwrap();
    };
    write(1);
    fs::set_permissions(&zone, fs::Permissions::from_mode(0o600)).unwrap();
    let mut server = Run::new(&[
        "serve",
        "dns",
        "--zone",
        zone.to_str().unwrap(),
        "--io",
        "shared",
        "--bind",
        "127.0.0.1:0",
    ])
    .start();
    let bind = bind_of(&mut server);
    let serial = || {
        let mut dig = Command::new("dig");
        dig.args(["+short", "+tries=1", "@127.0.0.1", "-p", &bind.port().to_string(), "x.test", "SOA"]);
        let said = String::from_utf8(dig.output().unwrap().stdout).unwrap();
        said.split_whitespace().nth(2).unwrap_or_default().to_owned()
    };
    assert_eq!(serial(), "1");
    write(2);
    server.signal(Signal::HUP);
    let said = server.says("not reloaded");
    assert!(said.contains("Permission denied") && said.contains("zone"), "{said}");
    assert_eq!(serial(), "1");
    fs::set_permissions(&zone, fs::Permissions::from_mode(0o644)).unwrap();
    server.signal(Signal::HUP);
    server.says("reloaded: ");
    assert_eq!(serial(), "2");
    server.signal(Signal::TERM);
    assert_eq!(server.finish().code(), Some(0));
}

/// The processes that `pid` has started.
fn children(pid: u32) -> Vec<u32> {
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    listed.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

fn metrics_of(exporter: &mut Running) -> String {
    let said = exporter.says("/metrics\n");
    let address = |line: &str| Some(line.strip_prefix("ready http://")?.strip_suffix("/metrics")?.to_owned());
    said.lines().find_map(address).unwrap()
}

fn scrape(address: &str) -> String {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn of_an_exporter_one_process_answers_and_the_other_keeps_what_reading_takes() {
    udpath_lab::needs_root!();
    // A socket of this process, which is root's.
    let _socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let own = format!("process=\"{}\"", fs::read_to_string("/proc/self/comm").unwrap().trim());
    for signal in [Signal::TERM, Signal::KILL] {
        let mut exporter = Run::new(&["export", "--listen", "127.0.0.1:0", "--sockets", "1000"]).start();
        let address = metrics_of(&mut exporter);
        // It has given up before it answers.
        let answer = scrape(&address);
        let answering = children(exporter.pid());
        assert_eq!(answering.len(), 1);
        gave_up(answering[0]);
        assert!(!threads(exporter.pid(), "Uid:").contains("0 0 0 0"));
        let kept = threads(exporter.pid(), "CapPrm:");
        assert!(kept.iter().all(|set| u64::from_str_radix(set, 16).unwrap() & !READER == 0), "{kept:?}");
        assert_eq!(threads(exporter.pid(), "NoNewPrivs:"), BTreeSet::from(["1".to_owned()]));
        assert!(answer.contains(&own), "{own}: {answer}");
        exporter.signal(signal);
        let ended = exporter.finish();
        assert_eq!(ended.code(), (signal == Signal::TERM).then_some(0), "{}", ended.err);
        let gone = || {
            kill_process(Pid::from_raw(i32::try_from(answering[0]).unwrap())?, Signal::CONT)
                .is_err()
                .then_some(())
        };
        awaited("the end of the process that answers", TIMEOUT, gone);
    }
}

/// Requests come all the time while the server starts: none is answered with root's privileges, and no connection
/// accepted.
#[test]
fn nothing_is_answered_before_privileges_are_given_up() {
    udpath_lab::needs_root!();
    let lab = client_and_server("privileges-start", 2);
    let folder = tempfile::tempdir().unwrap();
    for io in ["shared", "reuseport", "percpu"] {
        let trace = folder.path().join(io);
        let mut strace = lab.machine("server").unwrap().command("strace");
        strace.args([
            "-f",
            "-qq",
            "-e",
            "signal=none",
            "-e",
            "trace=sendto,sendmsg,sendmmsg,accept4,setresuid",
        ]);
        strace.arg("-o").arg(&trace).arg(udpath_rig::program());
        strace.args(["serve", "echo", "--io", io, "--workers", "2", "--tcp", "--bind", "0.0.0.0:7000"]);
        let [server, _] = inside::addresses(&lab);
        let client = inside::connected(&lab, SocketAddr::new(server, 7000));
        client.set_nonblocking(true).unwrap();
        let mut traced = inside::start(&lab, strace, "strace udpath serve");
        let mut stream = None;
        awaited("a reply", TIMEOUT * 2, || {
            // Refused until the socket is bound.
            let _ = client.send(b"hello");
            stream = stream.take().or_else(|| {
                lab.machine("client").unwrap().run(|| TcpStream::connect((server, 7000))).unwrap().ok()
            });
            client.recv(&mut [0; 8]).ok()
        });
        traced.says("ready io=");
        let mut stream = stream.unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        let server = i32::try_from(children(traced.pid())[0]).unwrap();
        kill_process(Pid::from_raw(server).unwrap(), Signal::TERM).unwrap();
        let ended = traced.finish();
        assert_eq!(ended.code(), Some(0), "{}", ended.err);

        let text = fs::read_to_string(&trace).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let gave_up = lines.iter().rposition(|line| line.contains("setresuid(")).unwrap();
        let answers = |line: &&&str| line.contains("\"hello\"") || line.contains("accept4(");
        let (before, after) = lines.split_at(gave_up);
        assert_eq!(before.iter().find(answers), None, "{io}: {text}");
        assert!(before.iter().any(|line| line.contains("udpath.probe")), "{io}: {text}");
        for call in ["\"hello\"", "accept4("] {
            assert!(after.iter().any(|line| line.contains(call)), "{io}: no {call} in {text}");
        }
    }
    lab.down().unwrap();
}

/// Runs a program under a filter that forbids the system calls of seccomp and Landlock.
fn without_measures(arguments: &[&str]) -> Run {
    let (seccomp, landlock) = (libc::SYS_seccomp, libc::SYS_landlock_create_ruleset);
    let program = udpath_rig::program().display().to_string();
    // linux/filter.h: load the call's number; jump if equal; return SECCOMP_RET_ALLOW, or SECCOMP_RET_ERRNO with EPERM.
    let script = format!(
        "import ctypes, os, struct, sys\n\
         code = [(0x20, 0, 0, 0), (0x15, 2, 0, {seccomp}), (0x15, 1, 0, {landlock}), (6, 0, 0, 0x7fff0000), (6, 0, 0, 0x50001)]\n\
         code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *one) for one in code))\n\
         program = ctypes.create_string_buffer(struct.pack('HxxxxxxP', 5, ctypes.addressof(code)))\n\
         libc = ctypes.CDLL(None)\n\
         assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0\n\
         os.execv(sys.argv[1], sys.argv[1:])"
    );
    let mut python = Command::new("python3");
    python.args(["-c", &script, &program]).args(arguments);
    Run::of(python, &format!("(without seccomp and Landlock) {}", arguments.join(" ")))
}

#[test]
fn measures_that_the_kernel_refuses_are_named_or_required() {
    udpath_lab::needs_root!();
    let serve = ["serve", "echo", "--io", "shared", "--bind", "127.0.0.1:0"];
    let mut server = without_measures(&serve).start();
    let bind = bind_of(&mut server);
    is_echoed(bind);
    for measure in ["Landlock", "seccomp"] {
        server.says(&format!("warning: the kernel refuses {measure} ("));
    }
    server.signal(Signal::TERM);
    assert_eq!(server.finish().code(), Some(0));
    for command in [&serve[..], &["export", "--listen", "127.0.0.1:0"]] {
        let refused = without_measures(&[command, &["--require-confinement"]].concat()).finish();
        assert_eq!(refused.code(), Some(3), "{command:?}: {}", refused.err);
        assert!(refused.err.contains("which --require-confinement needs"), "{}", refused.err);
    }
    // Where the kernel has both.
    let mut server = Run::new(&[&serve[..], &["--require-confinement"]].concat()).start();
    is_echoed(bind_of(&mut server));
    server.signal(Signal::TERM);
    let ended = server.finish();
    assert!(ended.code() == Some(0) && !ended.err.contains("refuses"), "{}", ended.err);
    let refused = Run::new(&[&serve[..], &["--require-confinement", "--user", "root"]].concat()).finish();
    assert_eq!(refused.code(), Some(2), "{}", refused.err);
}

/// Without a user `udpath` each server has a user that nobody else has.
#[test]
fn a_server_shares_its_user_with_nobody() {
    udpath_lab::needs_root!();
    let start = || {
        let mut server = Run::new(&["serve", "echo", "--io", "shared", "--bind", "127.0.0.1:0"]).start();
        is_echoed(bind_of(&mut server));
        server
    };
    let servers = [start(), start(), start()];
    let mut uids = BTreeSet::new();
    for server in servers {
        let uid: u32 =
            threads(server.pid(), "Uid:").first().unwrap().split(' ').next().unwrap().parse().unwrap();
        assert!((61184..=65519).contains(&uid), "{uid}: of systemd's range for such users");
        assert!(threads(server.pid(), "Gid:").contains(&[uid.to_string().as_str(); 4].join(" ")));
        assert!(uids.insert(uid), "{uid} twice");
        server.signal(Signal::TERM);
        assert_eq!(server.finish().code(), Some(0));
    }
}
