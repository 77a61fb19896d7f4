//! `udpath load` from the command line: output, exit codes, rejected arguments. Parts need root.

use std::net::UdpSocket;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

fn load(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_udpath"))
        .arg("load")
        .args(arguments.split_whitespace())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// The JSON document of a command that must succeed.
fn json(arguments: &str) -> Value {
    let output = load(&format!("{arguments} --json"));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments}: {stderr}");
    assert_eq!(stderr, "", "without a terminal there is no progress line");
    udpath_rig::json(&output.stdout)
}

/// An echo server that uses the standard library.
struct Echo {
    address: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let address = socket.local_addr().unwrap().to_string();
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut buffer = vec![0; 65_536];
            while !flag.load(Ordering::Relaxed) {
                if let Ok((n, peer)) = socket.recv_from(&mut buffer) {
                    let _ = socket.send_to(&buffer[..n], peer);
                }
            }
        });
        Self { address, stop, thread: Some(thread) }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

#[test]
fn a_run_prints_its_result_as_text_and_as_json() {
    let echo = Echo::start();
    let output = load(&format!("echo {} -d 300ms --inflight 4 --flows 2", echo.address));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && output.stderr.is_empty());
    for words in
        ["transactions/s", "intended → answered", "wrong flow", "per busy CPU", "4 in flight per flow"]
    {
        assert!(text.contains(words), "{words} is missing in\n{text}");
    }
    let result = json(&format!("echo {} -d 300ms --rate 1k --arrivals poisson --seed 7", echo.address));
    assert_eq!(result["schema"], "udpath.load/1");
    assert_eq!(
        (&result["engine"], &result["mode"], &result["seed"]),
        (&"socket".into(), &"rr".into(), &7.into())
    );
    let sent = result["counts"]["sent"].as_u64().unwrap();
    let histogram = result["sent_latency"]["histogram"].as_array().unwrap();
    let counted: u64 = histogram.iter().map(|bucket| bucket[1].as_u64().unwrap()).sum();
    assert!(sent > 100 && counted == sent, "{sent} sent, {counted} in the histogram");
}

#[test]
fn a_search_lists_every_rate() {
    let echo = Echo::start();
    // Any server keeps 1 % of answers within a second at some rate; the rate depends on the machine.
    let command =
        format!("echo {} --find-max --loss 99% --p99 2s -d 50ms --timeout 100ms --rate 2M", echo.address);
    let output = load(&format!("{command} --json"));
    let found: Value = udpath_rig::json(&output.stdout);
    assert_eq!(found["schema"], "udpath.find-max/1");
    let probes = found["probes"].as_array().unwrap();
    assert!((2..=64).contains(&probes.len()), "{}", probes.len());
    for probe in probes {
        let verdict = probe["verdict"].as_str().unwrap();
        assert!(["held", "exceeded", "generator_limited"].contains(&verdict));
        assert!(probe["reason"].as_str().is_some_and(|r| !r.is_empty()));
    }
    if found["end"] == "server" {
        assert!(probes.iter().any(|p| p["verdict"] == "exceeded"), "a server's limit that nothing showed");
    }
}

#[test]
fn an_unanswered_run_fails_after_its_result() {
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = load(&format!("echo {nobody} -d 100ms --timeout 20ms"));
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8(output.stdout).unwrap().contains("lost"), "the result is still printed");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains(&format!("{nobody} answered none of")) && stderr.lines().count() == 1,
        "{stderr}"
    );
}

/// Invalid arguments and a part of the error of each; exit code 2, nothing on stdout.
#[test]
fn invalid_arguments_are_rejected_in_one_sentence() {
    let cases = [
        ("echo", "no target"),
        ("echo nowhere", "invalid target"),
        ("echo 127.0.0.1:0", "port 0"),
        ("echo 127.0.0.1:7 --rate 0", "invalid rate 0:"),
        ("echo 127.0.0.1:7 --rate -1", "invalid rate -1:"),
        ("echo 127.0.0.1:7 --rate NaN", "invalid rate `NaN`"),
        ("echo 127.0.0.1:7 --rate 10G", "invalid rate 10000000000:"),
        ("echo 127.0.0.1:7 --size 65508", "invalid payload size 65508"),
        ("echo 127.0.0.1:7 --size 17", "at least 18 bytes"),
        ("echo 127.0.0.1:7 --size 4G", "65507"),
        ("echo 127.0.0.1:7 -d 0s", "too short"),
        ("echo 127.0.0.1:7 -d 999999999999h", "too long"),
        ("echo 127.0.0.1:7 -d 99999999999999999999999s", "invalid time"),
        ("echo 127.0.0.1:7 --timeout 0s", "too short"),
        ("echo 127.0.0.1:7 --flows 0", "invalid number of flows 0"),
        ("echo 127.0.0.1:7 --inflight 0", "--inflight must be at least 1"),
        ("echo 127.0.0.1:7 --rate 1k --inflight 3", "closed loop"),
        ("echo 127.0.0.1:7 --rate 1k --ramp 1..2", "contradict"),
        ("echo 127.0.0.1:7 --ramp 1..2 --arrivals poisson", "--ramp does not support --arrivals"),
        ("echo 127.0.0.1:7 --arrivals poisson", "--arrivals needs --rate"),
        ("echo 127.0.0.1:7 --rate 1k --arrivals burst:0", "burst length must be at least 1"),
        ("echo 127.0.0.1:7 --rate 1k --arrivals often", "poisson"),
        ("echo 127.0.0.1:7 --mode flood", "or `udpath load sink --mode flood`"),
        ("echo 127.0.0.1:7 --mode stream", "or `udpath load sink --mode stream`"),
        ("echo 127.0.0.1:7 --mode stream --tcp", "or `udpath load sink --mode stream`"),
        ("echo 127.0.0.1:7 --mode stream --engine xdp", "or `udpath load sink --mode stream`"),
        ("echo 127.0.0.1:7 --mode stream --find-max", "or `udpath load sink --mode stream`"),
        ("echo --lab --mode flood", "or `udpath load sink --mode flood`"),
        ("sink 127.0.0.1:7 --mode rr", "sink does not support --mode rr: use stream or flood"),
        ("sink 127.0.0.1:7 --inflight 2", "--inflight needs --mode rr"),
        ("sink 127.0.0.1:7 --mode flood --tcp", "TCP"),
        ("echo 127.0.0.1:7 --tcp --transport udp", "contradict"),
        ("echo 127.0.0.1:7 --engine kernel --rate 5", "it has no rate"),
        ("echo 127.0.0.1:7 --engine kernel --tcp", "closed loop over UDP"),
        ("echo 127.0.0.1:7 --engine kernel --threads 1", "--engine socket"),
        ("echo 127.0.0.1:7 --loss 1%", "need --find-max"),
        ("echo 127.0.0.1:7 --find-max --loss 100%", "from 0 % to below 100 %"),
        ("echo 127.0.0.1:7 --find-max --inflight 3", "--find-max sets the rate"),
        ("sink 127.0.0.1:7 --find-max", "needs replies"),
        ("echo 127.0.0.1:7 --threads 2", "2 threads for 1 flow"),
        ("echo 127.0.0.1:7 --source ::1", "families"),
        ("echo 127.0.0.1:7 --source-ports 9-3", "invalid port range `9-3`"),
        ("echo 127.0.0.1:7 --flows 3 --source-ports 4000-4001", "3 flows need 3"),
        ("echo 127.0.0.1:7 --pattern incast", "need --lab"),
        ("echo 127.0.0.1:7 --mtu 9000", "need --lab"),
        ("echo 127.0.0.1:7 --rfs", "need --lab"),
        ("echo --lab --offloads lro", "invalid offloads `lro`: expected none, or some of tso, gso and gro"),
        ("echo --lab --offloads none,gro", "invalid offloads `none,gro`"),
        ("echo 127.0.0.1:7 --congestion bbr", "--congestion bbr needs TCP"),
        ("echo 127.0.0.1:7 --sndbuf 0", "invalid send buffer of 0 bytes: expected 1 to 1073741823"),
        ("echo 127.0.0.1:7 --rcvbuf 2GiB", "invalid receive buffer of 2147483648 bytes"),
        ("echo 192.0.2.1:7 --engine xdp --rcvbuf 1MiB", "use --engine socket"),
        ("echo 127.0.0.1:7 --lab", "remove 127.0.0.1:7"),
        ("echo --lab --pattern single --hosts 3", "--pattern single"),
        ("echo --lab --pattern incast --hosts 99", "1 to 32"),
        ("echo --lab --pattern incast --queues 0", "invalid number of queues 0"),
        ("sink --lab --warmup 1s", "remove --warmup"),
        ("echo 127.0.0.1:7 --segment 3/2 --start-at 2030-01-01T00:00:00Z", "invalid segment `3/2`"),
        ("echo 127.0.0.1:7 --segment 1/2", "--start-at"),
        ("echo 127.0.0.1:7 --start-at tomorrow", "RFC 3339"),
        ("echo 127.0.0.1:7 --segment 1/2 --start-at 2030-01-01T00:00:00Z", "use --flows 2 or more"),
        ("echo 127.0.0.1:7 --find-max --start-at 2030-01-01T00:00:00Z", "cannot be used with"),
        ("echo --lab --start-at 2030-01-01T00:00:00Z", "cannot be used with"),
        ("sink 127.0.0.1:7 --flows 2 --segment 1/2 --start-at 2030-01-01T00:00:00Z", "use --mode rr"),
    ];
    for (arguments, words) in cases {
        let output = load(arguments);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments}: {stderr}");
        assert!(stderr.contains(words), "{arguments}: {stderr:?} should contain {words:?}");
        assert!(output.stdout.is_empty(), "{arguments}");
    }
}

/// The number of flows and of targets of each pattern, with all requests answered.
#[test]
fn patterns_join_the_hosts_they_name() {
    for (pattern, flows, targets) in [
        ("single", 1, 1),
        ("one-to-one --hosts 2", 2, 2),
        ("incast --hosts 3", 3, 3),
        ("outcast --hosts 3", 3, 3),
        ("all-to-all --hosts 2", 4, 4),
    ] {
        let result = json(&format!("echo --lab --pattern {pattern} -d 200ms --inflight 2"));
        assert_eq!(result["flows"], flows, "{pattern}");
        assert_eq!(result["targets"].as_array().unwrap().len(), targets, "{pattern}");
        let counts = &result["counts"];
        assert!(counts["sent"].as_u64().unwrap() > 100, "{pattern}: {counts}");
        assert_eq!(
            counts["ok"].as_u64().unwrap() + counts["late"].as_u64().unwrap(),
            counts["sent"],
            "{pattern}"
        );
    }
}

/// The counters of a sink that clients share are read once, not once per client.
#[test]
fn a_shared_sink_is_counted_once() {
    let result = json("sink --lab --pattern incast --hosts 3 --mode flood --rate 1k -d 500ms");
    assert_eq!(result["counts"]["sent"], 1500);
    assert_eq!(result["delivered"]["datagrams"], 1500);
    let tcp = json("sink --lab --pattern one-to-one --tcp --size 1400 -d 200ms");
    let number = |value: &Value| value.as_u64().unwrap();
    let (sent, delivered) = (number(&tcp["counts"]["sent"]), &tcp["delivered"]);
    assert!(sent > 100 && tcp["warnings"].as_array().unwrap().is_empty(), "{}", tcp["warnings"]);
    // A message counts when its last byte is read; part of one more may be in flight.
    assert_eq!((number(&delivered["datagrams"]), number(&tcp["counts"]["lost"])), (sent, 0));
    let bytes = number(&delivered["bytes"]);
    assert!((sent * 1400..(sent + 2) * 1400).contains(&bytes), "{bytes} for {sent} messages");
}

/// A time soon enough to wait for, and late enough for a program to start: RFC 3339, by date(1).
#[test]
fn a_stream_in_a_lab_has_the_options_of_its_sockets_and_links() {
    udpath_lab::needs_root!();
    let options = "--congestion reno --sndbuf 400k --rcvbuf 800k --mtu 9000 --offloads gso,gro --rfs";
    let entries = || std::fs::read_to_string("/proc/sys/net/core/rps_sock_flow_entries").unwrap();
    let before = entries();
    let result = json(&format!("sink --lab --tcp --mode stream --size 5000 -d 300ms {options}"));
    let notes = result["generator"]["notes"].to_string();
    for wanted in ["congestion control reno", "send buffer 800000 bytes", "receive buffer 1600000 bytes"] {
        assert!(notes.contains(wanted), "{wanted}: {notes}");
    }
    let (sent, delivered) = (result["counts"]["sent"].as_u64().unwrap(), &result["delivered"]);
    assert_eq!(delivered["datagrams"].as_u64(), Some(sent), "every message arrives");
    let bytes = delivered["bytes"].as_u64().unwrap();
    // The last message may have been sent in part when the window ended.
    assert!((sent * 5000..(sent + 1) * 5000).contains(&bytes), "{bytes} bytes of {sent} messages");
    for end in ["sender", "receiver"] {
        assert!(result["per_core"][end]["mbits"].as_f64().unwrap() > 0.0, "{end}: {}", result["per_core"]);
    }
    assert_eq!(entries(), before, "the machine's RFS table is as before");
}

fn soon() -> String {
    let output =
        Command::new("date").args(["-u", "-d", "+4 seconds", "+%Y-%m-%dT%H:%M:%S.%NZ"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn merge(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_udpath"))
        .arg("merge")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn segments_are_merged_into_one_result() {
    let echo = Echo::start();
    let (folder, start) = (tempfile::tempdir().unwrap(), soon());
    let file = |index: u32| folder.path().join(format!("{index}.json")).display().to_string();
    std::thread::scope(|scope| {
        for index in 1..=3 {
            let (address, start, file) = (&echo.address, &start, file(index));
            scope.spawn(move || {
                let result = json(&format!(
                    "echo {address} --flows 3 --rate 600 --arrivals poisson -d 500ms --segment {index}/3 --start-at {start}"
                ));
                std::fs::write(file, result.to_string()).unwrap();
            });
        }
    });
    let (one, two, three) = (file(1), file(2), file(3));
    let read = |file: &String| serde_json::from_slice::<Value>(&std::fs::read(file).unwrap()).unwrap();
    let output = merge(&[&one, &two, &three, "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let sum: Value = udpath_rig::json(&output.stdout);
    for count in ["sent", "ok", "lost", "received"] {
        let of = |result: &Value| result["counts"][count].as_u64().unwrap();
        assert_eq!(of(&sum), [&one, &two, &three].map(|file| of(&read(file))).iter().sum::<u64>(), "{count}");
    }
    assert_eq!((&sum["schema"], &sum["flows"]), (&"udpath.load/1".into(), &3.into()));
    let rows = sum["segments"]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    for row in rows {
        assert!(row["start"]["skew_ns"].as_i64().unwrap() > -1_000_000, "{row}");
    }

    let text = String::from_utf8(merge(&[&three, &one]).stdout).unwrap();
    for words in
        ["warning: segment 2 of 3 missing", "segment", "1/3", "3/3", "2 of 3 segments; planned start"]
    {
        assert!(text.contains(words), "{words} is missing in\n{text}");
    }
    let page = folder.path().join("sum.html").display().to_string();
    assert!(merge(&[&one, &two, &three, "--report", &page]).status.success());
    assert!(std::fs::read_to_string(&page).unwrap().contains("Segments of the load"));

    let twice = merge(&[&one, &two, &one]);
    let stderr = String::from_utf8(twice.stderr).unwrap();
    assert_eq!(twice.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("both contain segment 1") && stderr.lines().count() == 1, "{stderr}");
}
