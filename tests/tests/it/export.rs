//! `udpath export` as seen by a scraper and by node_exporter.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use udpath_rig::{Run, TIMEOUT, awaited, client_and_server, program};

use crate::inside::udpath;

/// The value of a series in the exported text.
fn value(text: &str, series: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
}

fn is_sound(text: &str) {
    assert!(text.ends_with('\n') && !text.contains("# EOF") && !text.contains(" info\n"), "{text}");
    has_series(text);
}

fn has_series(text: &str) {
    for series in [
        "udpath_udp_datagrams_total{ip=\"4\",direction=\"in\"}",
        "udpath_softnet_processed_total{cpu=\"0\"}",
        "udpath_device_receive_packets_total{device=\"lo\"}",
        "udpath_settings{state=\"drifted\"}",
    ] {
        assert!(value(text, series).is_some(), "{series}: {text}");
    }
    let typed = |line: &&str| line.starts_with("# TYPE ");
    let mut names: Vec<&str> = text.lines().filter(typed).collect();
    let all = names.len();
    names.dedup();
    assert_eq!(all, names.len(), "each metric stands together");
}

#[test]
fn once_is_on_stdout() {
    let ended = Run::new(&["export", "--once", "--queues"]).finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    is_sound(&ended.out);
}

fn get(address: &str, request: &str) -> String {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    client.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}

/// A running exporter. Killed when dropped.
struct Exporter {
    child: std::process::Child,
    address: String,
}

impl Exporter {
    fn start() -> Self {
        let mut child = std::process::Command::new(program())
            .args(["export", "--listen", "127.0.0.1:0"])
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
        let ready = lines.next().unwrap().unwrap();
        let address = ready.strip_prefix("ready http://").and_then(|rest| rest.strip_suffix("/metrics"));
        Self { child, address: address.unwrap().to_owned() }
    }

    fn end(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        // Both fail only if it has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_scraper_finds_the_metrics_and_other_requests_get_errors() {
    let server = Exporter::start();
    let address = server.address.as_str();
    let answer = get(address, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    is_sound(body);
    // As requested by Prometheus.
    let accept = "Accept: application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5";
    let newer = get(address, &format!("GET /metrics HTTP/1.1\r\n{accept}\r\n\r\n"));
    let (head, body) = newer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("application/openmetrics-text") && body.ends_with("# EOF\n"), "{newer}");
    has_series(body);
    assert!(get(address, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(get(address, "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 400"));
    server.end();
}

#[test]
fn nobody_else_reaches_an_exporter_unless_an_address_is_named() {
    udpath_lab::needs_root!();
    let lab = client_and_server("export-listen", 1);
    let named = lab.address_of("server", "client").unwrap().ipv4;
    for (more, at) in [(None, "127.0.0.1".to_owned()), (Some(format!("{named}:9410")), named.to_string())] {
        let listen = more.iter().flat_map(|address| ["--listen", address.as_str()]);
        let arguments: Vec<&str> = ["export"].into_iter().chain(listen).collect();
        let mut server = udpath(&lab, "server", &arguments);
        assert!(server.says("ready http://").contains(&format!("ready http://{at}:")));
        let listeners = lab.machine("server").unwrap().command("ss").args(["-Hltn"]).output().unwrap();
        let listeners = String::from_utf8(listeners.stdout).unwrap();
        let local: Vec<&str> = listeners
            .lines()
            .filter_map(|line| line.split_whitespace().nth(3)?.rsplit_once(':'))
            .map(|(ip, _)| ip)
            .collect();
        assert_eq!(local, [at.as_str()], "{listeners}");
        server.signal(Signal::TERM);
        assert_eq!(server.finish().code(), Some(0));
    }
}

/// Clients that send nothing, or one byte at a time, do not delay a scrape: served in turn, each would take its full
/// timeout.
#[test]
fn idle_and_slow_clients_do_not_delay_a_scrape_nor_the_end() {
    let server = Exporter::start();
    let address = server.address.as_str();
    let connect = || TcpStream::connect(address).unwrap();
    let began = Instant::now();
    let idle: Vec<TcpStream> = (0..200).map(|_| connect()).collect();
    let mut slow = connect();
    slow.write_all(b"GET /metr").unwrap();
    let scrapes: Vec<_> = std::thread::scope(|scope| {
        let scrape = || scope.spawn(|| get(address, "GET /metrics?x=1 HTTP/1.1\r\n\r\n"));
        (0..8).map(|_| scrape()).collect::<Vec<_>>().into_iter().map(|one| one.join().unwrap()).collect()
    });
    for answer in scrapes {
        is_sound(answer.split_once("\r\n\r\n").unwrap().1);
    }
    // Served in turn, they would take minutes.
    assert!(began.elapsed() < TIMEOUT, "{:?}", began.elapsed());
    // All of them are still connected.
    server.end();
    drop((idle, slow));
}

#[test]
fn the_file_of_node_exporter_is_whole_and_kept_fresh() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("udpath.prom");
    let arguments = ["export", "--textfile", file.to_str().unwrap(), "--interval", "1"];
    let mut writer = std::process::Command::new(program()).args(arguments).spawn().unwrap();
    let changed = || std::fs::metadata(&file).and_then(|metadata| metadata.modified()).ok();
    let first = awaited("the file", Duration::from_secs(30), changed);
    is_sound(&std::fs::read_to_string(&file).unwrap());
    awaited("the file anew", Duration::from_secs(30), || changed().filter(|now| *now != first));
    is_sound(&std::fs::read_to_string(&file).unwrap());
    let pid = rustix::process::Pid::from_child(&writer);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert!(writer.wait().unwrap().success());
}

#[test]
fn invalid_input_gives_one_sentence() {
    for (arguments, code) in [
        (&["export", "--listen", "nowhere"][..], 2),
        (&["export", "--once", "--textfile", "x"], 2),
        (&["export", "--interval", "0"], 2),
        (&["export", "--listen", "192.0.2.1:1"], 3),
        (&["export", "--textfile", "/no/such/folder/x.prom"], 3),
    ] {
        let ended = Run::new(arguments).finish();
        assert_eq!(ended.code(), Some(code), "{arguments:?}: {}", ended.err);
        assert_eq!(ended.err.trim_end().lines().count(), 1, "{}", ended.err);
    }
}
