//! `udpath serve` from the command line: the ready line, signals, memory, the summary, errors for invalid input.

mod signals;

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Longest wait for anything that must come.
const TIMEOUT: Duration = Duration::from_secs(10);
const IOS: [&str; 3] = ["shared", "reuseport", "percpu"];

/// A running `udpath serve`. Killed when dropped.
struct Serve {
    child: Child,
    stderr: BufReader<std::process::ChildStderr>,
    /// Its stderr up to and including the ready line.
    said: Vec<String>,
    binds: Vec<SocketAddr>,
}

impl Serve {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_udpath"));
        command.arg("serve").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self::of(command.spawn().unwrap())
    }

    /// A server that was started, once it is ready.
    fn of(mut child: Child) -> Self {
        let stderr = BufReader::new(child.stderr.take().unwrap());
        // From here on, dropping it kills the process.
        let mut serve = Self { child, stderr, said: Vec::new(), binds: Vec::new() };
        while serve.binds.is_empty() {
            let mut line = String::new();
            // stderr closes when the process ends, so this cannot wait for ever.
            assert!(
                serve.stderr.read_line(&mut line).unwrap() > 0,
                "ended before it was ready: {:?}",
                serve.said
            );
            if let Some(ready) = line.strip_prefix("ready ") {
                let binds = ready.split_whitespace().find_map(|word| word.strip_prefix("bind=")).unwrap();
                serve.binds = binds.split(',').map(|bind| bind.parse().unwrap()).collect();
            }
            serve.said.push(line);
        }
        serve
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn client(&self, index: usize) -> UdpSocket {
        let to = self.binds[index];
        let client = UdpSocket::bind(if to.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" }).unwrap();
        client.connect(to).unwrap();
        client.set_read_timeout(Some(TIMEOUT)).unwrap();
        client
    }

    /// Ends it with a signal; returns its exit code, stdout, and stderr after the ready line.
    fn end(mut self, signal: Signal) -> (Option<i32>, String, String) {
        kill_process(self.pid(), signal).unwrap();
        self.wait()
    }

    fn wait(&mut self) -> (Option<i32>, String, String) {
        let (mut out, mut err) = (String::new(), String::new());
        self.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        self.stderr.read_to_string(&mut err).unwrap();
        (self.child.wait().unwrap().code(), out, err)
    }

    fn status_of_process(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.trim_start_matches(':').split_whitespace().next().unwrap().parse().unwrap()
    }
}

impl Serve {
    /// The numbers of the system calls in which its threads wait.
    fn waits_in(&self) -> Vec<i64> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let call = |thread: std::fs::DirEntry| {
            let text = std::fs::read_to_string(thread.path().join("syscall")).ok()?;
            // The number and the arguments; or `running`.
            text.split(' ').next()?.parse().ok()
        };
        threads.flatten().filter_map(call).collect()
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        // Both fail only if it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs `udpath serve`, which must exit without a signal.
fn refused(arguments: &[&str]) -> (i32, String) {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_udpath")).arg("serve").args(arguments).output().unwrap();
    assert!(stdout.is_empty(), "{arguments:?}");
    (status.code().unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn a_signal_ends_it_with_everything_answered() {
    const QUEUED: usize = 150;
    for io in IOS {
        for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
            let serve = Serve::start(&["echo", "--io", io, "--bind", "127.0.0.1:0", "--json"]);
            let client = serve.client(0);
            // While it is stopped, it receives nothing: all of this is queued when the signal arrives.
            kill_process(serve.pid(), Signal::STOP).unwrap();
            for number in 0..QUEUED {
                client.send(&number.to_le_bytes()).unwrap();
            }
            kill_process(serve.pid(), signal).unwrap();
            let (code, out, err) = serve.end(Signal::CONT);
            assert_eq!((code, err.as_str()), (Some(0), ""), "{io}");
            let result: Value = udpath_rig::json(&out);
            assert_eq!(result["total"]["answered"], QUEUED, "{io}: {result}");
            let mut numbers: Vec<usize> = (0..QUEUED)
                .map(|_| {
                    let mut number = [0; size_of::<usize>()];
                    client.recv(&mut number).unwrap();
                    usize::from_le_bytes(number)
                })
                .collect();
            numbers.sort_unstable();
            assert!(numbers.into_iter().eq(0..QUEUED));
        }
    }
}

#[test]
fn the_summary_in_json_has_workers_and_sockets() {
    for io in IOS {
        let binds = ["--bind", "127.0.0.1:0", "--bind", "[::1]:0"];
        let mut arguments = vec!["echo", "--io", io, "--workers", "2", "--batch", "8", "--json", "--tcp"];
        arguments.extend(binds);
        if io != "percpu" {
            arguments.push("--no-pin");
        }
        let serve = Serve::start(&arguments);
        let pin = if io == "percpu" { "pin=0,1" } else { "pin=off" };
        let ready = format!(
            "ready io={io} workers=2 batch=8 bind=127.0.0.1:{},[::1]:{} {pin}\n",
            serve.binds[0].port(),
            serve.binds[1].port()
        );
        assert_eq!(serve.said, [ready]);
        for index in [0, 1, 1] {
            let client = serve.client(index);
            client.send(b"12345").unwrap();
            assert_eq!(client.recv(&mut [0; 8]).unwrap(), 5);
        }
        let binds = serve.binds.clone();
        let (code, out, _) = serve.end(Signal::TERM);
        assert_eq!(code, Some(0));
        let result: Value = udpath_rig::json(&out);
        assert_eq!(result["schema"], "udpath.serve/1");
        assert_eq!((&result["service"], &result["io"]), (&"echo".into(), &io.into()));
        assert_eq!(result["total"]["answered_bytes"], 15);
        assert_eq!(result["total"]["dropped"]["consumed"], 0);
        assert_eq!(result["workers"].as_array().unwrap().len(), 2);
        assert_eq!(result["tcp"]["accepted"], 0);
        let sockets = result["sockets"].as_array().unwrap();
        assert_eq!(sockets.len(), if io == "shared" { 2 } else { 4 });
        let on_second = sockets.iter().filter(|socket| socket["bind"] == binds[1].to_string());
        assert_eq!(on_second.map(|socket| socket["received"].as_u64().unwrap()).sum::<u64>(), 2);
        assert!(sockets[0]["receive_buffer_bytes"].as_u64().unwrap() > 0);
        assert!(result["warnings"].as_array().unwrap().is_empty());
    }
}

#[test]
fn the_text_summary_reports_drops() {
    let serve = Serve::start(&["sink", "--io", "shared", "--bind", "127.0.0.1:0"]);
    let client = serve.client(0);
    for _ in 0..3 {
        client.send(b"xyz").unwrap();
    }
    // The report comes from any free worker, so it may overtake datagrams that another one is still counting.
    let mut question = [0; 48];
    question[..16].copy_from_slice(b"udpath.sink/2 ??");
    let mut report = [0; 64];
    let deadline = Instant::now() + TIMEOUT;
    while report[16] != 3 {
        assert!(Instant::now() < deadline, "not all were counted");
        client.send(&question).unwrap();
        assert_eq!(client.recv(&mut report).unwrap(), 48);
    }
    assert_eq!((&report[..16], report[24]), (&b"udpath.sink/2 =="[..], 9));
    let (code, out, err) = serve.end(Signal::INT);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.contains("dropped as consumed: 3\n"), "{out}");
}

/// Which call is used shows in the worker: it waits in it.
#[test]
fn a_sink_receives_by_the_call_asked_for() {
    for (call, batch) in [("recvfrom", "1"), ("recvmsg", "1"), ("recvmmsg", "8")] {
        let arguments = [
            "sink",
            "--io",
            "shared",
            "--workers",
            "1",
            "--bind",
            "127.0.0.1:0",
            "--receive",
            call,
            "--batch",
            batch,
        ];
        let serve = Serve::start(&arguments);
        let deadline = Instant::now() + TIMEOUT;
        let expected = match call {
            "recvfrom" => libc::SYS_recvfrom,
            "recvmsg" => libc::SYS_recvmsg,
            _ => libc::SYS_recvmmsg,
        };
        while !serve.waits_in().contains(&expected) {
            assert!(Instant::now() < deadline, "{call}: {:?}", serve.waits_in());
            std::thread::sleep(Duration::from_millis(5));
        }
        let client = serve.client(0);
        client.send(b"xyz").unwrap();
        let (code, out, err) = serve.end(Signal::TERM);
        assert_eq!((code, err.as_str()), (Some(0), ""));
        assert!(out.contains(" datagrams/s, ") && out.contains(" of CPU time each\n"), "{call}: {out}");
    }
}

#[test]
fn memory_stays_small_even_after_the_largest_datagrams() {
    /// KiB.
    const BOUND: u64 = 32 << 10;
    // Without file-backed pages: how many of them are mapped depends on what the page cache holds.
    let own = |serve: &Serve, total: &str| {
        serve.status_of_process(total).saturating_sub(serve.status_of_process("RssFile"))
    };
    for io in IOS {
        // Enough room in the sockets for everything queued below; the kernel's memory is not charged to the process.
        let room = (16 << 20).to_string();
        let arguments = ["echo", "--io", io, "--workers", "2", "--bind", "127.0.0.1:0", "--rcvbuf", &room];
        let serve = Serve::start(&arguments);
        let at_rest = own(&serve, "VmRSS");
        assert!(at_rest < BOUND / 2, "{io}: {at_rest} KiB before any traffic");
        let clients: Vec<_> = (0..80).map(|_| serve.client(0)).collect();
        let large = vec![7; 65_507];
        for _ in 0..3 {
            // Queued together while it is stopped, they arrive in the largest bursts.
            kill_process(serve.pid(), Signal::STOP).unwrap();
            for client in &clients {
                client.send(&large).unwrap();
            }
            kill_process(serve.pid(), Signal::CONT).unwrap();
            for client in &clients {
                assert_eq!(client.recv(&mut vec![0; 65_536]).unwrap(), large.len());
            }
        }
        let most = own(&serve, "VmHWM");
        assert!(most < BOUND, "{io}: {most} KiB");
    }
}

#[test]
fn bad_input_is_answered_with_one_sentence() {
    let busy = UdpSocket::bind("127.0.0.1:0").unwrap();
    let busy = busy.local_addr().unwrap().to_string();
    let cases: &[(&[&str], i32, &str)] = &[
        (&["echo", "--bind", "127.0.0.1:0", "--batch", "0"], 2, "invalid batch 0: expected 1 to 1024"),
        (&["echo", "--bind", "127.0.0.1:0", "--batch", "1025"], 2, "invalid batch 1025"),
        (
            &["echo", "--bind", "127.0.0.1:0", "--workers", "0"],
            2,
            "invalid number of workers 0: expected 1 to 1024",
        ),
        (&["echo", "--bind", "127.0.0.1:0", "--workers", "99999"], 2, "invalid number of workers 99999"),
        (&["echo", "--bind", "127.0.0.1:0", "--rcvbuf", "0"], 2, "invalid receive buffer size 0"),
        (
            &["echo", "--bind", "127.0.0.1:0", "--io", "magic"],
            2,
            "possible values: auto, shared, reuseport, percpu, xdp",
        ),
        (&["echo", "--bind", "127.0.0.1"], 2, "invalid address `127.0.0.1`: expected ADDR:PORT"),
        (&["echo", "--bind", "127.0.0.1:0", "--cpus", "3-1"], 2, "runs backwards"),
        (&["echo", "--bind", "224.0.0.1:7"], 2, "cannot serve 224.0.0.1:7"),
        (&["echo"], 2, "--bind"),
        (
            &["echo", "--bind", "127.0.0.1:0", "--receive", "recvmsg"],
            2,
            "--receive is an option of sink, not of echo",
        ),
        (
            &["sink", "--bind", "127.0.0.1:0", "--receive", "read"],
            2,
            "invalid --receive read: expected recvfrom, recvmsg or recvmmsg",
        ),
        (
            &["sink", "--bind", "127.0.0.1:0", "--receive", "recvmmsg"],
            2,
            "recvmmsg is a call of kernel sockets, and xdp receives frames: use --io shared",
        ),
        (
            &["sink", "--io", "shared", "--bind", "127.0.0.1:0", "--receive", "recvmsg"],
            2,
            "recvmsg receives one datagram per call, not 32: use --batch 1",
        ),
        (
            &["sink", "--io", "shared", "--bind", "[::]:0", "--receive", "recvfrom", "--batch", "1"],
            2,
            "recvfrom does not return the address that a reply must come from on [::]:0",
        ),
        (&["chess", "--bind", "127.0.0.1:0"], 2, "chess"),
        (
            &["echo", "--bind", "192.0.2.1:7"],
            3,
            "cannot bind UDP 192.0.2.1:7 (`ip address` lists the addresses of this host): ",
        ),
        (&["echo", "--bind", "127.0.0.1:0", "--cpus", "1000"], 3, "CPU 1000 is not among those"),
        (
            &["echo", "--bind", "127.0.0.1:0", "--io", "percpu", "--workers", "1000"],
            3,
            "1000 workers do not fit",
        ),
    ];
    for (arguments, code, sentence) in cases {
        let (got, said) = refused(arguments);
        assert!(got == *code && said.contains(sentence), "{arguments:?}: {got} {said}");
    }
    for io in ["shared", "reuseport", "percpu", "auto"] {
        let (code, said) = refused(&["echo", "--bind", &busy, "--io", io]);
        let sentence = format!(
            "udpath: cannot bind UDP {busy} (stop the other server or choose another port): Address already in \
             use (os error 98)\n"
        );
        assert_eq!((code, said), (3, sentence), "{io}");
    }
    // A second udpath must not silently share the port of the first.
    let first = Serve::start(&["echo", "--bind", "127.0.0.1:0", "--io", "reuseport"]);
    let (code, said) = refused(&["echo", "--bind", &first.binds[0].to_string(), "--io", "reuseport"]);
    assert!(code == 3 && said.contains("Address already in use"), "{said}");
}

#[test]
fn a_low_port_without_privilege_is_explained() {
    udpath_lab::needs_root!();
    // As another user, without capabilities, in a network namespace of its own: the machine's may let any user bind low
    // ports.
    let script = "mount -t sysfs sysfs /sys && ip link set lo up && echo 1024 > /proc/sys/net/ipv4/ip_unprivileged_port_start && exec \"$@\"";
    let output = Command::new("unshare")
        .args(["--net", "--mount", "sh", "-c", script, "sh", "setpriv"])
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all"])
        .arg(env!("CARGO_BIN_EXE_udpath"))
        .args(["serve", "echo", "--bind", "127.0.0.1:9"])
        .output()
        .expect("unshare and setpriv of util-linux");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains(
            "cannot bind UDP 127.0.0.1:9 (ports below 1024 need root or CAP_NET_BIND_SERVICE): Permission denied"
        ),
        "{said}"
    );
}
