//! A real Prometheus scrapes, and every alert of `deploy/prometheus` fires once and clears.
//!
//! ```text
//!   a machine of a lab, on its loopback
//!   stand-in exporter A ◀── scrapes ──┐
//!   stand-in exporter B ◀─────────────┤ prometheus ◀── HTTP API ── this test
//!                                     └─ a copy of the rules, with less time
//! ```
//! A serves what `udpath export` prints here; only the metrics that the rules name are replaced by those of
//! [`METRICS`]. B does not answer while something is wrong. The phases end when Prometheus shows what the next one
//! needs: a history longer than a day, then every alert, then none.
//!
//! The rules are those that are delivered, but for their times: see [`scaled`].

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;
use udpath_lab::Machine;
use udpath_rig::{Run, client_and_server};

/// Where `scripts/setup.sh` puts it.
const PROMETHEUS: &str = "/var/cache/udpath/prometheus";
/// Port of Prometheus.
const API: u16 = 9090;
/// Ports of the exporters A and B.
const EXPORTERS: [u16; 2] = [9453, 9454];
/// Longest wait for a phase to end. The longest takes some 20 s.
const PHASE: Duration = Duration::from_secs(120);
/// Between two scrapes, and between two evaluations.
const INTERVAL: &str = "200ms";
/// A gap in the samples of an alert up to this long is no gap: a busy machine evaluates late.
const GAP: f64 = 1.5;

/// Phases of the exporters.
const WELL: u8 = 0;
const WRONG: u8 = 1;

/// A sample that the rules look at: the series; its value, or its rate if it is a counter, while all is well and while
/// something is wrong. A gauge that is not a number is absent.
type Sample = (&'static str, f64, f64);
const METRICS: &[Sample] = &[
    ("udpath_socket_drops_total{address=\"0.0.0.0\",port=\"53\",process=\"nsd\"}", 0.0, 20.0),
    ("udpath_udp_errors_total{ip=\"4\",reason=\"receive_buffer\"}", 0.0, 20.0),
    ("udpath_udp_errors_total{ip=\"6\",reason=\"memory\"}", 0.0, 2.0),
    ("udpath_softnet_dropped_total{cpu=\"3\"}", 0.0, 20.0),
    ("udpath_softnet_squeezed_total{cpu=\"3\"}", 1.0, 40.0),
    ("udpath_device_receive_missed_total{device=\"eth0\"}", 0.0, 20.0),
    ("udpath_cpu_seconds_total{cpu=\"0\",mode=\"softirq\"}", 0.2, 0.99),
    ("udpath_cpu_seconds_total{cpu=\"0\",mode=\"idle\"}", 0.7, 0.0),
    ("udpath_cpu_seconds_total{cpu=\"1\",mode=\"idle\"}", 0.9, 0.95),
    ("udpath_cpu_seconds_total{cpu=\"2\",mode=\"idle\"}", 0.9, 0.95),
    ("udpath_cpu_seconds_total{cpu=\"3\",mode=\"idle\"}", 0.9, 0.95),
    ("udpath_findings{id=\"one-queue\",severity=\"limit\"}", 1.0, 1.0),
    ("udpath_findings{id=\"rss-table-short\",severity=\"limit\"}", f64::NAN, 1.0),
    ("udpath_build_info{version=\"0.1.0\"}", 1.0, 1.0),
    ("udpath_settings{state=\"drifted\"}", 0.0, 1.0),
    ("udpath_applies{state=\"unfinished\"}", 0.0, 1.0),
    ("udpath_applies{state=\"unattended\"}", 0.0, 1.0),
    ("udpath_applies{state=\"unreadable\"}", 0.0, 0.0),
    ("udpath_reverted_applies{outcome=\"partial\"}", 0.0, 1.0),
    ("udpath_journal_readable", 1.0, 0.0),
];

/// The rules with less time: the windows of rates are 5 s instead of 5 min, a minute of waiting (`for`) is 200 ms, a
/// day 15 s. Windows are shortened least, so that a late scrape leaves them enough samples.
fn scaled(rules: &str) -> String {
    let line = |line: &str| {
        let line = line.replace("[5m]", "[5s]").replace("offset 1d", "offset 15s");
        match line.trim().strip_prefix("for: ").and_then(|time| time.strip_suffix('m')) {
            Some(minutes) => {
                let minutes: u32 = minutes.parse().unwrap();
                format!("{}for: {}ms\n", " ".repeat(line.len() - line.trim_start().len()), minutes * 200)
            }
            None => line + "\n",
        }
    };
    rules.lines().map(line).collect()
}

/// Names of udpath's metrics in a text.
fn metrics(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("udpath_")).collect()
}

fn name(sample: &str) -> &str {
    sample.split(['{', ' ']).next().unwrap_or_default()
}

/// What the exporter A serves, from its start on.
struct Page {
    /// What `udpath export` printed, without the metrics of the rules.
    rest: String,
    values: Vec<f64>,
    last: Instant,
}

impl Page {
    fn new(exported: &str) -> Self {
        let replaced: BTreeSet<&str> = METRICS.iter().map(|(series, ..)| name(series)).collect();
        let keeps = |line: &&str| {
            let of = line.strip_prefix("# HELP ").or_else(|| line.strip_prefix("# TYPE ")).unwrap_or(line);
            !replaced.contains(name(of))
        };
        let rest = exported.lines().filter(keeps).map(|line| format!("{line}\n")).collect();
        // Counters of a machine that has been up for a while.
        Self { rest, values: vec![1000.0; METRICS.len()], last: Instant::now() }
    }

    /// The page now; counters have grown since the last one.
    fn text(&mut self, phase: u8) -> String {
        let seconds = self.last.elapsed().as_secs_f64();
        self.last = Instant::now();
        let mut text = self.rest.clone();
        for ((series, well, wrong), value) in METRICS.iter().zip(&mut self.values) {
            let now = if phase == WRONG { *wrong } else { *well };
            if name(series).ends_with("_total") {
                *value += now * seconds;
            } else {
                *value = now;
            }
            if value.is_finite() {
                text += &format!("{series} {value}\n");
            }
        }
        text
    }
}

/// Answers scrapes until `stop`.
fn exporter(listener: &TcpListener, stop: &AtomicBool, mut answer: impl FnMut() -> Option<String>) {
    listener.set_nonblocking(true).unwrap();
    while !stop.load(Ordering::Relaxed) {
        let Ok((mut client, _)) = listener.accept() else {
            thread::sleep(Duration::from_millis(5));
            continue;
        };
        client.set_nonblocking(false).unwrap();
        client.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        // The request fits one segment; what it asks for is known.
        let asked = client.read(&mut [0; 4096]).is_ok_and(|bytes| bytes > 0);
        if let Some(text) = answer().filter(|_| asked) {
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                text.len()
            );
            // A client that has gone away loses its answer.
            let _ = client.write_all(&[head.as_bytes(), text.as_bytes()].concat());
        }
    }
}

/// Asks Prometheus' HTTP API, from within the machine; `None` while it does not answer.
fn ask(machine: &Machine, path: &str, parameters: &[(&str, &str)]) -> Option<Value> {
    let encoded = |text: &str| -> String {
        let byte = |byte: u8| match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'.' | b'_' => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        };
        text.bytes().map(byte).collect()
    };
    let query: Vec<String> =
        parameters.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    let request = format!("GET /api/v1/{path}?{} HTTP/1.0\r\n\r\n", query.join("&"));
    let mut answer = String::new();
    let mut client = machine.run(|| TcpStream::connect(("127.0.0.1", API))).unwrap().ok()?;
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    client.write_all(request.as_bytes()).ok()?;
    client.read_to_string(&mut answer).ok()?;
    let json: Value = serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()?;
    (json["status"] == "success").then(|| json["data"]["result"].clone())
}

/// Values of a label in the result of a query; empty while there is no answer.
fn labels(machine: &Machine, query: &str, label: &str) -> BTreeSet<String> {
    let result = ask(machine, "query", &[("query", query)]).unwrap_or_default();
    let series = result.as_array().cloned().unwrap_or_default();
    series.iter().filter_map(|one| Some(one["metric"][label].as_str()?.to_owned())).collect()
}

/// Waits until `done`; panics with what `state` says when it takes too long.
fn wait(what: &str, mut done: impl FnMut() -> bool, state: impl Fn() -> String) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < PHASE, "{what}: not within {} s: {}", PHASE.as_secs(), state());
        thread::sleep(Duration::from_millis(100));
    }
}

/// How often each alert was in a state, by its name: runs of samples without a gap, over all its series.
fn runs(machine: &Machine, state: &str, from: SystemTime) -> BTreeMap<String, usize> {
    let seconds = |time: SystemTime| {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        format!("{:.3}", since.as_secs_f64())
    };
    let query = format!("ALERTS{{alertstate=\"{state}\"}}");
    let (start, end) = (seconds(from), seconds(SystemTime::now()));
    let parameters = [("query", query.as_str()), ("start", &start), ("end", &end), ("step", "0.1")];
    let result = ask(machine, "query_range", &parameters).unwrap();
    let mut runs = BTreeMap::new();
    for series in result.as_array().unwrap() {
        let times = series["values"].as_array().unwrap().iter().map(|pair| pair[0].as_f64().unwrap());
        let times: Vec<f64> = times.collect();
        let gaps = times.windows(2).filter(|pair| pair[1] - pair[0] > GAP).count();
        *runs.entry(series["metric"]["alertname"].as_str().unwrap().to_owned()).or_default() += 1 + gaps;
    }
    runs
}

#[test]
fn every_alert_fires_once_and_clears() {
    udpath_lab::needs_root!();
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/prometheus/udpath.rules.yml");
    let rules = fs::read_to_string(rules).unwrap();
    let alerts: BTreeSet<String> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).map(str::to_owned).collect();
    assert!(alerts.len() >= 14, "{alerts:?}");
    let known: BTreeSet<&str> = METRICS.iter().map(|(series, ..)| name(series)).collect();
    // Annotations name none.
    assert_eq!(metrics(&rules), known, "METRICS has what the rules look at");

    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::write(at("rules.yml"), scaled(&rules)).unwrap();
    let [a, b] = EXPORTERS;
    let config = format!(
        "global: {{scrape_interval: {INTERVAL}, scrape_timeout: {INTERVAL}, evaluation_interval: {INTERVAL}}}\n\
         rule_files: [rules.yml]\n\
         scrape_configs:\n  - job_name: udpath\n    static_configs:\n      - targets: ['127.0.0.1:{a}', '127.0.0.1:{b}']\n"
    );
    fs::write(at("prometheus.yml"), config).unwrap();

    let exported = Run::new(&["export", "--once", "--queues"]).finish();
    assert_eq!(exported.code(), Some(0), "{}", exported.err);
    let mut page = Page::new(&exported.out);
    assert!(page.rest.lines().count() > 20, "{}", page.rest);

    let lab = client_and_server("alerts", 1);
    let machine = lab.machine("server").unwrap();
    let [to_a, to_b] =
        EXPORTERS.map(|port| machine.run(|| TcpListener::bind(("127.0.0.1", port))).unwrap().unwrap());
    let (phase, stop) = (AtomicU8::new(WELL), AtomicBool::new(false));
    let begin = SystemTime::now();
    let mut prometheus = machine.command(PROMETHEUS);
    prometheus.args([
        format!("--config.file={}", at("prometheus.yml")),
        format!("--storage.tsdb.path={}", at("data")),
        format!("--web.listen-address=127.0.0.1:{API}"),
        "--query.lookback-delta=2s".into(),
        "--log.level=error".into(),
    ]);
    let prometheus = Run::of(prometheus, "prometheus").within(4 * PHASE);
    let prometheus = prometheus.start_with(|command| lab.spawn(command));
    thread::scope(|scope| {
        // Ends the exporters also when an assertion fails.
        let ending = Ending(&stop);
        scope.spawn(|| {
            exporter(&to_a, &stop, || Some(page.text(phase.load(Ordering::Relaxed))));
        });
        scope.spawn(|| {
            exporter(&to_b, &stop, || (phase.load(Ordering::Relaxed) == WELL).then(String::new));
        });
        let state = || format!("{:?}", ask(machine, "query", &[("query", "up")]));
        // Two seconds more than a day, so that each evaluation of the next phase has a day before it.
        let day = "udpath_build_info offset 17s";
        wait("a day of samples", || !labels(machine, day, "instance").is_empty(), state);
        assert_eq!(labels(machine, "ALERTS", "alertname"), BTreeSet::new(), "while all is well");
        assert_eq!(labels(machine, "up == 1", "instance").len(), 2);

        phase.store(WRONG, Ordering::Relaxed);
        let mut fired = BTreeSet::new();
        let mut all = || {
            fired.extend(labels(machine, "ALERTS{alertstate=\"firing\"}", "alertname"));
            fired == alerts
        };
        let firing = || format!("{:?}", ask(machine, "query", &[("query", "ALERTS")]));
        wait("every alert fires", &mut all, firing);

        phase.store(WELL, Ordering::Relaxed);
        wait("every alert clears", || labels(machine, "ALERTS", "alertname").is_empty(), firing);
        // One that would come back does so within the longest window.
        thread::sleep(Duration::from_secs(6));
        assert_eq!(labels(machine, "ALERTS", "alertname"), BTreeSet::new(), "after it was well again");
        let once = |names: &BTreeSet<String>| names.iter().map(|name| (name.clone(), 1)).collect();
        let expected: BTreeMap<String, usize> = once(&alerts);
        assert_eq!(runs(machine, "firing", begin), expected, "each fires once");
        // Without `for` it is not pending first.
        let mut waits = alerts.clone();
        waits.remove("RevertIncomplete");
        assert_eq!(runs(machine, "pending", begin), once(&waits), "each is pending once");
        drop(ending);
    });
    prometheus.signal(rustix::process::Signal::TERM);
    let ended = prometheus.finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
}

/// Stops the exporters when it is dropped.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
