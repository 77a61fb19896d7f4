//! `serve` under clients that take what they can and give nothing back, and with files and limits that are not what
//! they should be: others are served on. Needs root.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Resource, Signal, getrlimit, setrlimit};
use serde_json::Value;
use tempfile::TempDir;
use udpath_rig::{Run, Running, TIMEOUT, program};

/// Puts something else in the place of a zone's file.
type Replacement<'a> = &'a dyn Fn(&Path);

/// A zone that any user may read.
struct Zone(TempDir);

impl Zone {
    fn new() -> Self {
        let zone = Self(tempfile::tempdir().unwrap());
        fs::set_permissions(zone.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
        zone.write(1);
        zone
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("zone")
    }

    fn write(&self, serial: u32) {
        let text =
            format!("$ORIGIN x.test.\n@ 1 IN SOA ns a {serial} 1 1 1 1\n@ 1 IN NS ns\nns 1 IN A 192.0.2.1\n");
        let new = self.0.path().join("new");
        fs::write(&new, text).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o644)).unwrap();
        fs::rename(new, self.path()).unwrap();
    }
}

/// A server of DNS over UDP and TCP with one worker, started by `prefix` and with `more` arguments, and its address.
fn serve(zone: &Path, prefix: &[&str], more: &[&str]) -> (Running, SocketAddr) {
    let mut words = prefix.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    words.push(program().display().to_string());
    words.extend(["serve", "dns", "--tcp", "--workers", "1", "--io", "shared", "--json"].map(str::to_owned));
    words.extend(["--bind", "127.0.0.1:0", "--zone"].map(str::to_owned));
    words.push(zone.display().to_string());
    words.extend(more.iter().map(|word| (*word).to_owned()));
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    let mut server = Run::of(command, &words.join(" ")).within(TIMEOUT * 3).start();
    let ready = server.says_line("ready io=");
    let bind = ready.split_whitespace().find_map(|word| word.strip_prefix("bind=")).unwrap().parse().unwrap();
    (server, bind)
}

/// The serial number that dig gets.
fn serial(server: SocketAddr, more: &[&str]) -> String {
    let mut dig = Command::new("dig");
    dig.args([
        "+short",
        "+tries=1",
        "+time=20",
        "@127.0.0.1",
        "-p",
        &server.port().to_string(),
        "x.test",
        "SOA",
    ]);
    let said = String::from_utf8(dig.args(more).output().unwrap().stdout).unwrap();
    said.split_whitespace().nth(2).unwrap_or_default().to_owned()
}

fn end(server: Running) -> Value {
    server.signal(Signal::TERM);
    let ended = server.finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    serde_json::from_str(&ended.out).unwrap()
}

/// Connections from one network that have sent half of a message's length.
fn half_messages(count: usize, server: SocketAddr) -> Vec<TcpStream> {
    let one = |_| {
        let socket =
            rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .unwrap();
        rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::new(127, 0, 9, 1), 0))).unwrap();
        rustix::net::connect(&socket, &server).unwrap();
        let mut stream = TcpStream::from(socket);
        stream.write_all(&[1]).unwrap();
        stream
    };
    (0..count).map(one).collect()
}

/// A query for the SOA record as TCP has it.
fn query() -> Vec<u8> {
    let message = b"\x12\x34\0\0\0\x01\0\0\0\0\0\0\x01x\x04test\0\0\x06\0\x01";
    [&(message.len() as u16).to_be_bytes()[..], message].concat()
}

/// Asks once over an open connection.
fn ask(stream: &mut TcpStream) {
    stream.write_all(&query()).unwrap();
    let mut length = [0; 2];
    stream.read_exact(&mut length).unwrap();
    stream.read_exact(&mut vec![0; u16::from_be_bytes(length).into()]).unwrap();
}

fn connected(server: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// More connections than a worker has places, each of which sends a byte now and then.
#[test]
fn a_thousand_slow_connections_keep_nobody_out() {
    const CONNECTIONS: usize = 1100;
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let zone = Zone::new();
    let (server, bind) = serve(&zone.path(), &[], &[]);
    let mut slow = half_messages(CONNECTIONS, bind);
    for _ in 0..3 {
        assert_eq!(serial(bind, &["+tcp"]), "1");
        for stream in &mut slow {
            // Those that gave way are closed.
            let _ = stream.write(&[1]);
        }
    }
    let counts = end(server);
    let tcp = &counts["tcp"];
    assert!(tcp["evicted"].as_u64().unwrap() >= 70 && tcp["refused"] == 0, "{tcp}");
    assert!(tcp["accepted"].as_u64().unwrap() >= CONNECTIONS as u64, "{tcp}");
}

/// The soft limit of open files is raised; where the hard one is low, there are fewer connections, and files can still
/// be opened.
#[test]
fn descriptors_last_for_connections_and_reloads() {
    udpath_lab::needs_root!();
    let zone = Zone::new();
    let soft = |server: &Running| -> u64 {
        let limits = fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap().to_owned();
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    let (server, _) = serve(&zone.path(), &["prlimit", "--nofile=200:4000"], &[]);
    assert!((1100..4000).contains(&soft(&server)), "{}", soft(&server));
    end(server);

    let (mut server, bind) = serve(&zone.path(), &["prlimit", "--nofile=120:200"], &[]);
    assert_eq!(soft(&server), 200);
    server.says("TCP connections instead of 1024: the limit of open files is 200");
    let slow = half_messages(300, bind);
    assert_eq!((serial(bind, &["+tcp"]), serial(bind, &[])), ("1".to_owned(), "1".to_owned()));
    zone.write(2);
    server.signal(Signal::HUP);
    server.says("reloaded: ");
    assert_eq!(serial(bind, &["+tcp"]), "2");
    drop(slow);
    let counts = end(server);
    assert_eq!(counts["tcp"]["accept_errors"], 0, "{counts}");

    let mut command = Command::new("prlimit");
    command.args(["--nofile=60:60"]).arg(program());
    command.args(["serve", "echo", "--tcp", "--workers", "1", "--io", "shared", "--bind", "127.0.0.1:0"]);
    let refused = Run::of(command, "serve with 60 descriptors").finish();
    assert_eq!(refused.code(), Some(3), "{}", refused.err);
    assert!(refused.err.contains("60 open files are too few to serve over TCP"), "{}", refused.err);
}

/// A connection that is being served does not wait while others cannot be accepted.
#[test]
fn without_descriptors_open_connections_are_served_at_once() {
    udpath_lab::needs_root!();
    const QUERIES: u32 = 500;
    /// What a pause of 20 ms before each query would take at least.
    const PAUSED: Duration = Duration::from_millis(20 * QUERIES as u64);
    let zone = Zone::new();
    // Its limits can be changed by root without CAP_SYS_RESOURCE.
    let (server, bind) = serve(&zone.path(), &[], &["--user", "root"]);
    let mut open = connected(bind);
    ask(&mut open);
    // None is left, from now on.
    let names = fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap();
    let open_now: BTreeSet<u32> =
        names.map(|name| name.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect();
    let used = (0..).find(|number| !open_now.contains(number)).unwrap();
    let lowered = Command::new("prlimit")
        .args(["--pid", &server.pid().to_string(), &format!("--nofile={used}:{used}")])
        .status();
    assert!(lowered.unwrap().success());
    let mut waiting = connected(bind);
    waiting.write_all(&query()).unwrap();
    let begun = Instant::now();
    for _ in 0..QUERIES {
        ask(&mut open);
    }
    let took = begun.elapsed();
    assert!(took < PAUSED, "{took:?}");
    // The one that waits takes the place of the one that no longer asks.
    let mut length = [0; 2];
    waiting.read_exact(&mut length).unwrap();
    drop(open);
    let counts = end(server);
    let tcp = &counts["tcp"];
    assert!(tcp["accept_errors"].as_u64().unwrap() > 0 && tcp["evicted"] == 1, "{tcp}");
}

/// What is no file does not hold up a reload, and the next one works.
#[test]
fn a_zone_that_is_no_file_is_refused_and_the_next_reload_works() {
    udpath_lab::needs_root!();
    let zone = Zone::new();
    let (mut server, bind) = serve(&zone.path(), &[], &[]);
    let replace = |make: &dyn Fn(&Path)| {
        fs::remove_file(zone.path()).unwrap();
        make(&zone.path());
    };
    let cases: [(Replacement<'_>, &str); 4] = [
        (
            &|path| {
                mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
                // The server's user may read it, and would wait for a writer.
                fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
            },
            "is a FIFO; only regular files are read here",
        ),
        (&|path| std::os::unix::fs::symlink("/dev/zero", path).unwrap(), "is a device"),
        (&|path| fs::File::create(path).unwrap().set_len(1 << 40).unwrap(), "longer than 1073741824 bytes"),
        (&|path| std::os::unix::fs::symlink("/proc/kmsg", path).unwrap(), "Permission denied"),
    ];
    for (serial_number, (make, why)) in (2..).zip(cases) {
        replace(make);
        server.signal(Signal::HUP);
        server.says(why);
        let old = (serial_number - 1).to_string();
        assert_eq!(serial(bind, &[]), old);
        zone.write(serial_number);
        server.signal(Signal::HUP);
        udpath_rig::awaited("the next reload", TIMEOUT, || {
            (serial(bind, &[]) == serial_number.to_string()).then_some(())
        });
    }
    end(server);
}

/// A reload takes a thread: where the user may not have one more, the old data stay and the server goes on.
#[test]
fn a_reload_without_a_thread_is_refused_and_the_server_goes_on() {
    udpath_lab::needs_root!();
    let zone = Zone::new();
    // Holds for other users than root, whose threads run by the time.
    let (mut server, bind) = serve(&zone.path(), &["prlimit", "--nproc=1"], &[]);
    zone.write(2);
    server.signal(Signal::HUP);
    let said = server.says("not reloaded");
    assert!(said.contains("cannot start a thread"), "{said}");
    assert_eq!(serial(bind, &[]), "1");
    end(server);
}

/// A request that seems to come from a port that answers would go round for ever.
#[test]
fn an_echo_does_not_answer_an_echo_over_any_io() {
    udpath_lab::needs_root!();
    let lab = udpath_rig::client_and_server("echo-loop", 2);
    for io in crate::inside::IOS {
        let binds = ["echo", "--bind", "0.0.0.0:7000", "--bind", "[::]:7000", "--bind", "0.0.0.0:7001"];
        let server = crate::inside::serve(&lab, io, &binds);
        let [v4, v6] = crate::inside::addresses(&lab);
        let mut refused = 0;
        for (from, to) in [
            ("0.0.0.0:7000", SocketAddr::new(v4, 7000)),
            ("0.0.0.0:7001", SocketAddr::new(v4, 7000)),
            ("0.0.0.0:7", SocketAddr::new(v4, 7001)),
            ("0.0.0.0:19", SocketAddr::new(v4, 7000)),
            ("[::]:7000", SocketAddr::new(v6, 7000)),
        ] {
            // A child that another test is starting may hold the previous round's sockets until its exec.
            let client = udpath_rig::awaited("the port to be free", TIMEOUT, || {
                lab.machine("client").unwrap().run(|| UdpSocket::bind(from)).unwrap().ok()
            });
            client.connect(to).unwrap();
            client.send(b"around").unwrap();
            refused += 1;
            // Answered after it, by a worker that has seen both or has them queued.
            let other = crate::inside::connected(&lab, to);
            other.send(b"hello").unwrap();
            assert_eq!(other.recv(&mut [0; 8]).unwrap(), 5, "{io} {to}");
            client.set_nonblocking(true).unwrap();
            assert!(client.recv(&mut [0; 8]).is_err(), "{io}: {from} was answered");
        }
        let total = &crate::inside::end(server)["total"];
        assert_eq!(total["dropped"]["loop"], refused, "{io}: {total}");
        assert_eq!(total["received"], 2 * refused, "{io}: {total}");
        assert_eq!(total["answered"], refused, "{io}: {total}");
    }
    lab.down().unwrap();
}
