//! `udpath export --otlp`: a stand-in for a collector decodes what is pushed, and compares it with the text of the same
//! machine.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, ResourceMetrics, metric, number_data_point,
};
use prost::Message;
use rustix::process::Signal;
use udpath_rig::{Run, Running, TIMEOUT, one_sentence};

/// Series by name and labels.
type Series = BTreeMap<(String, BTreeMap<String, String>), f64>;

fn captured() -> String {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/host/tests/fixtures/captured");
    fixtures.join("emulated-20-cpus.tar.gz").display().to_string()
}

/// A collector's socket, and its URL.
fn collector() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (listener, url)
}

/// The next connection.
fn accepted(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let begin = Instant::now();
    loop {
        match listener.accept() {
            Ok((client, _)) => {
                client.set_nonblocking(false).unwrap();
                client.set_read_timeout(Some(TIMEOUT)).unwrap();
                return client;
            }
            Err(error) => assert!(begin.elapsed() < TIMEOUT, "nothing is pushed: {error}"),
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// The next request: its head and its message. It is answered with `status` and `body`.
fn next(listener: &TcpListener, status: &str, body: &[u8]) -> (String, ExportMetricsServiceRequest) {
    let mut client = accepted(listener);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
    let mut message = vec![0; length.parse().unwrap()];
    client.read_exact(&mut message).unwrap();
    answer(&mut client, status, body);
    (head, ExportMetricsServiceRequest::decode(message.as_slice()).unwrap())
}

fn answer(client: &mut TcpStream, status: &str, body: &[u8]) {
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
    client.write_all(&[head.as_bytes(), body].concat()).unwrap();
}

fn export(url: &str, more: &[&str]) -> Running {
    Run::new(&[&["export", "--otlp", url, "-i", "1s", "--queues"], more].concat()).start()
}

/// Ends it, and returns what it said.
fn ended(running: Running) -> String {
    running.signal(Signal::TERM);
    let ended = running.finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    ended.err
}

fn labels(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |attribute: &KeyValue| match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(any_value::Value::StringValue(text)) => text.clone(),
        other => panic!("{}: {other:?}", attribute.key),
    };
    attributes.iter().map(|attribute| (attribute.key.clone(), text(attribute))).collect()
}

/// The one resource of a request.
fn resource(request: &ExportMetricsServiceRequest) -> &ResourceMetrics {
    let [resource] = &request.resource_metrics[..] else { panic!("{request:?}") };
    resource
}

/// The series of a request, named as in the text.
fn pushed(request: &ExportMetricsServiceRequest) -> Series {
    let mut series = Series::new();
    for metric in resource(request).scope_metrics.iter().flat_map(|scope| &scope.metrics) {
        assert!(!metric.description.is_empty(), "{}", metric.name);
        let unit = if metric.unit == "s" { "_seconds" } else { "" };
        let (suffix, points) = match metric.data.as_ref().unwrap() {
            metric::Data::Gauge(gauge) => ("", &gauge.data_points),
            metric::Data::Sum(sum) => {
                assert!(sum.is_monotonic);
                assert_eq!(sum.aggregation_temporality, AggregationTemporality::Cumulative as i32);
                ("_total", &sum.data_points)
            }
            other => panic!("{}: {other:?}", metric.name),
        };
        for point in points {
            let value = match point.value.unwrap() {
                number_data_point::Value::AsInt(count) => count as f64,
                number_data_point::Value::AsDouble(value) => value,
            };
            let name = format!("{}{unit}{suffix}", metric.name);
            assert!(
                series.insert((name, labels(&point.attributes)), value).is_none(),
                "{} twice",
                metric.name
            );
        }
    }
    series
}

/// The series of a text.
fn printed(text: &str) -> Series {
    let line = |line: &str| {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, rest) = series.split_once('{').unwrap_or((series, "}"));
        let pairs = rest.trim_end_matches('}').split(',').filter(|pair| !pair.is_empty());
        let label = |pair: &str| {
            let (key, value) = pair.split_once('=').unwrap();
            (key.to_owned(), value.trim_matches('"').to_owned())
        };
        ((name.to_owned(), pairs.map(label).collect()), value.parse().unwrap())
    };
    text.lines().filter(|line| !line.starts_with('#')).map(line).collect()
}

#[test]
fn a_collector_gets_what_the_text_has() {
    let (listener, url) = collector();
    let file = captured();
    let text = Run::new(&["export", "--once", "--queues", "--sysroot", &file]).finish();
    assert_eq!(text.code(), Some(0), "{}", text.err);
    let running = export(&url, &["--sysroot", &file]);
    let (head, request) = next(&listener, "200 OK", b"");
    assert!(head.starts_with("POST /v1/metrics HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("Content-Type: application/x-protobuf\r\n"), "{head}");
    let expected = printed(&text.out);
    // 20 CPUs with six kinds of time each, and 25 queues.
    assert!(expected.len() > 200, "{}", expected.len());
    assert_eq!(pushed(&request), expected);
    let of = labels(&resource(&request).resource.as_ref().unwrap().attributes);
    assert_eq!(of.get("service.name").map(String::as_str), Some("udpath"));
    assert!(!of.contains_key("host.name"), "the capture has no name: {of:?}");
    ended(running);
}

#[test]
fn this_machine_is_named_and_its_counters_begin_at_boot() {
    // There is one at both looks, whatever other tests have.
    let _socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let (listener, url) = collector();
    let running = export(&url, &[]);
    let (_, request) = next(&listener, "200 OK", b"");
    let of = labels(&resource(&request).resource.as_ref().unwrap().attributes);
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    for key in ["host.name", "service.instance.id"] {
        assert_eq!(of.get(key).map(String::as_str), Some(name.trim()), "{key}");
    }
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let booted: u64 = stat.lines().find_map(|line| line.strip_prefix("btime ")?.parse().ok()).unwrap();
    let metrics = resource(&request).scope_metrics.iter().flat_map(|scope| &scope.metrics);
    let mut sums = 0;
    for metric in metrics {
        let Some(metric::Data::Sum(sum)) = &metric.data else { continue };
        for point in &sum.data_points {
            // The kernel computes the time of boot from the clock, which may be set.
            assert!(point.start_time_unix_nano.abs_diff(booted * 1_000_000_000) <= 5_000_000_000);
            assert!(point.time_unix_nano > point.start_time_unix_nano);
            sums += 1;
        }
    }
    assert!(sums > 10, "{sums}");
    let names: BTreeSet<String> = pushed(&request).into_keys().map(|(name, _)| name).collect();
    let text = Run::new(&["export", "--once", "--queues"]).finish();
    let shown: BTreeSet<String> = printed(&text.out).into_keys().map(|(name, _)| name).collect();
    assert_eq!(names, shown);
    ended(running);
}

#[test]
fn a_collector_that_fails_is_reported_once_and_tried_again() {
    let (listener, url) = collector();
    let mut running = export(&url, &["--sysroot", &captured()]);
    next(&listener, "503 Service Unavailable", b"");
    // Cut off without an answer.
    drop(accepted(&listener));
    next(&listener, "200 OK", b"");
    running.says("again\n");
    let rejected = ExportMetricsServiceResponse {
        partial_success: Some(ExportMetricsPartialSuccess {
            rejected_data_points: 3,
            error_message: "too many\u{1b}[31m series".into(),
        }),
    };
    next(&listener, "200 OK", &rejected.encode_to_vec());
    running.says("rejects metrics");
    let said = ended(running);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 4, "{said}");
    assert!(lines[0].starts_with("pushing to http://127.0.0.1:"), "{said}");
    assert!(
        lines[1].contains("503 Service Unavailable") && lines[1].contains("trying again every 1 s"),
        "{said}"
    );
    assert!(lines[2].ends_with("again"), "{said}");
    assert!(lines[3].contains("3 data points: too many [31m series"), "{said}");
    assert!(!said.contains('\u{1b}'));
}

#[test]
fn an_endpoint_without_a_collector_does_not_end_it() {
    let (listener, url) = collector();
    drop(listener);
    let mut running = export(&url, &["--sysroot", &captured()]);
    running.says("Connection refused");
    thread::sleep(Duration::from_millis(100));
    assert!(!running.has_ended());
    ended(running);
}

#[test]
fn a_wrong_endpoint_is_one_sentence() {
    for (url, says) in [("https://collector:4318", "without TLS"), ("collector", "expected http://HOST")] {
        let ended = Run::new(&["export", "--otlp", url]).finish();
        assert_eq!(ended.code(), Some(2), "{}", ended.err);
        one_sentence(url, &ended.err);
        assert!(ended.err.contains(says), "{}", ended.err);
    }
}
