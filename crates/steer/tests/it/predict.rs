//! Predictions from tables: what is certain is predicted, the rest is reported as unknown.

use std::net::SocketAddr;

use proptest::prelude::*;
use udpath_steer::Flow;
use udpath_steer::predict::{Predictor, ReverseError, Step, Tables, Wanted, Why};
use udpath_steer::rss::IndirectionTable;
use udpath_steer::toeplitz::{Fields, Key, Toeplitz, Transform};

fn flow() -> Flow {
    Flow::udp("66.9.149.187:2794".parse().unwrap(), "161.142.100.80:1766".parse().unwrap()).unwrap()
}

fn tables(json: &str) -> Tables {
    let text = format!(r#"{{"schema": "udpath.tables/1", {json}}}"#);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn predictor(json: &str) -> Predictor {
    Predictor::new(&tables(json)).unwrap()
}

const FULL: &str = r#"
    "function": "toeplitz", "key": "microsoft", "udp4": "sdfn", "udp6": "sd", "passed_on": true,
    "queues": 8, "table": [0, 1, 2, 3, 4, 5, 6, 7],
    "receive": [{"queue": 0, "irq": 45, "irq_cpus": "0", "rps_cpus": "0-3"}, {"queue": 1, "irq": 46, "irq_cpus": "0-1"}],
    "online": "0-2", "sockets": {"by": "cpu", "cpus": [0, 1, 1, 2]}"#;

#[test]
fn every_step_of_a_known_machine() {
    // The hash of this flow is 0x51ccc178: entry 0 of 8, place 0 of 3.
    let path = predictor(FULL).decide(&flow());
    assert_eq!(path.hash.value, Some(0x51cc_c178));
    assert_eq!(path.hash.why.to_string(), "Toeplitz over addresses and ports");
    assert_eq!(path.queue, Step { value: Some(0), why: Why::Entry { index: 0, of: 8 } });
    assert_eq!(path.irq.value, Some(45));
    assert_eq!(path.cpu.value, Some(0));
    // CPU 3 is offline, so three are left.
    assert_eq!(path.rps.value, Some(0));
    assert_eq!(path.rps.why.to_string(), "entry 0 of 3 in the RPS map");
    assert_eq!(path.socket, Step { value: Some(0), why: Why::IncomingCpu });
    let json = serde_json::to_value(path).unwrap();
    assert_eq!(json["queue"]["value"], 0);
    assert_eq!(json["queue"]["why"], "entry 0 of 8 in the indirection table");
}

#[test]
fn nothing_known_is_a_normal_answer() {
    let path = Predictor::new(&Tables::default()).unwrap().decide(&flow());
    for step in [path.hash, path.queue, path.irq, path.cpu, path.rps, path.socket] {
        assert_eq!(step.value, None);
        assert!(!step.why.to_string().is_empty());
    }
    assert_eq!(path.hash.why, Why::NoKey);
    assert_eq!(path.queue.why, Why::NoTable);
}

#[test]
fn what_needs_no_hash_is_known_without_a_key() {
    let path = predictor(r#""queues": 1, "receive": [{"queue": 0, "irq_cpus": "3", "rps_cpus": "5"}]"#)
        .decide(&flow());
    assert_eq!((path.queue.value, path.cpu.value, path.rps.value), (Some(0), Some(3), Some(5)));
    assert_eq!(predictor(r#""table": [2, 2]"#).decide(&flow()).queue.value, Some(2));
    let path = predictor(r#""driver": "ixgbe", "sockets": {"by": "hash", "cpus": [null]}"#).decide(&flow());
    assert_eq!((path.hash.why, path.socket.value), (Why::RandomKey { driver: "ixgbe" }, Some(0)));
}

#[test]
fn what_the_kernel_hashes_with_a_secret_stays_unknown() {
    let rps = r#""queues": 1, "receive": [{"queue": 0, "irq_cpus": "0", "rps_cpus": "0-1"}]"#;
    let of = |more: &str| predictor(&format!(r#"{rps}, "key": "microsoft", {more}"#)).decide(&flow()).rps;
    assert_eq!(of(r#""udp4": "sd", "passed_on": true"#), Step { value: None, why: Why::HashOfAddresses });
    assert_eq!(of(r#""udp4": "sdfn", "passed_on": false"#), Step { value: None, why: Why::HashNotPassedOn });
    assert_eq!(of(r#""udp4": "sdfn", "passed_on": true"#).value, Some(0));
    let assumed = of(r#""udp4": "sdfn""#);
    assert_eq!(assumed.value, Some(0));
    assert!(assumed.why.to_string().ends_with("if the driver passes the card's hash on"));
    // igb gives its hash as one over addresses, whatever it is over.
    assert_eq!(of(r#""udp4": "sdfn", "driver": "igb""#).why, Why::HashNotPassedOn);
    let group = r#""key": "microsoft", "udp4": "sdfn", "passed_on": true, "sockets": {"by": "#;
    let socket = |rest: &str| predictor(&format!("{group}{rest}}}")).decide(&flow()).socket;
    assert_eq!(socket(r#""hash", "cpus": [null, null]"#), Step { value: None, why: Why::SocketHash });
    assert_eq!(socket(r#""rxhash", "cpus": [null, null, null, null]"#).value, Some(1));
    assert_eq!(socket(r#""cpu", "cpus": [0, 1]"#).why, Why::CpuUnknown);
}

#[test]
fn drivers_fill_in_what_is_left_out() {
    let path = predictor(r#""driver": "mlx5_core", "key": "microsoft""#).decide(&flow());
    let expected =
        Toeplitz::new(Key::microsoft()).hash(&flow(), Fields::AddressesPorts, Transform::SymmetricOrXor);
    assert_eq!(path.hash.value, Some(expected));
    let path = predictor(r#""driver": "mlx5_core", "key": "microsoft", "transform": "none""#).decide(&flow());
    assert_eq!(path.hash.value, Some(0x51cc_c178));
    assert_eq!(
        predictor(r#""driver": "igc", "key": "microsoft""#).decide(&flow()).hash.value,
        Some(0x323e_8fc2)
    );
    assert!(matches!(
        predictor(r#""driver": "ena", "key": "microsoft""#).decide(&flow()).hash.why,
        Why::OtherToeplitz { .. }
    ));
    assert!(matches!(
        predictor(r#""driver": "virtio_net", "key": "microsoft""#).decide(&flow()).hash.why,
        Why::NoFields { family: "udp4" }
    ));
    let xor = predictor(r#""function": "xor", "key": "microsoft", "udp4": "sdfn""#).decide(&flow());
    assert_eq!(xor.hash.why.to_string(), "the hash function is xor, whose input is not documented");
}

#[test]
fn tables_that_do_not_fit_are_refused() {
    let refused = |json: &str| Predictor::new(&tables(json)).unwrap_err().to_string();
    assert!(refused(r#""driver": "e100""#).contains("known drivers: bnxt_en, "));
    assert!(refused(r#""queues": 0"#).contains("invalid number of queues 0"));
    assert!(
        refused(r#""queues": 2, "table": [0, 2]"#).contains("entry 1 of the indirection table is queue 2")
    );
    assert!(refused(r#""queues": 2, "receive": [{"queue": 2}]"#).contains("receive queue 2 is described"));
    assert!(refused(r#""receive": [{"queue": 2}, {"queue": 2}]"#).contains("described twice"));
    assert!(refused(r#""sockets": {"by": "cpu", "cpus": []}"#).contains("invalid number of sockets 0"));
    let unread = |text: &str| serde_json::from_str::<Tables>(text).unwrap_err().to_string();
    assert!(unread(r#"{"schema": "udpath.tables/9"}"#).contains("udpath.tables/1"));
    assert!(unread("{}").contains("schema"));
    assert!(unread(r#"{"schema": "udpath.tables/1", "tabel": []}"#).contains("tabel"));
    assert!(unread(r#"{"schema": "udpath.tables/1", "table": [1, 2, 3]}"#).contains("a power of two"));
    assert!(unread(r#"{"schema": "udpath.tables/1", "key": "6d"}"#).contains("40 to 256"));
}

#[test]
fn tables_are_read_back_as_they_were_written() {
    let full = tables(FULL);
    assert_eq!(serde_json::from_str::<Tables>(&serde_json::to_string(&full).unwrap()).unwrap(), full);
    assert_eq!(serde_json::to_string(&Tables::default()).unwrap(), r#"{"schema":"udpath.tables/1"}"#);
}

#[test]
fn reverse_reports_unpredictable_steps_as_errors() {
    let wanted = Wanted { queue: Some(1), ..Wanted::default() };
    let error =
        Predictor::new(&Tables::default()).unwrap().source_ports(&flow(), &wanted, 1..=9, 4).unwrap_err();
    assert_eq!(error, ReverseError::Unknown { step: "queue", why: Why::NoTable });
    let error = predictor(r#""queues": 1"#).source_ports(&flow(), &wanted, 1..=9, 4).unwrap_err();
    assert_eq!(error.to_string(), "no queue 1; there are 1, 0 to 0");
    // Of queue 0 the IRQ has one CPU, of the others not: ports of queue 0 can be named all the same.
    let cpu = Wanted { cpu: Some(0), ..Wanted::default() };
    let found = predictor(FULL).source_ports(&flow(), &cpu, 1024..=65535, 8).unwrap();
    assert_eq!(found.ports.len(), 8);
    #[allow(clippy::reversed_empty_ranges, reason = "what a caller may give")]
    let none = predictor(FULL).source_ports(&flow(), &cpu, 9..=1, 8).unwrap();
    assert_eq!((none.ports.len(), none.tried), (0, 0));
}

proptest! {
    #[test]
    fn ports_found_lead_where_they_should(
        key in prop::collection::vec(any::<u8>(), 40), bits in 0..8_u32, queues in 1..20_u32,
        first in any::<u16>(), more in 0..3000_u16, count in 0..40_usize, queue in 0..20_u32,
        destination in any::<u32>(),
    ) {
        let table = IndirectionTable::spread(1 << bits, queues).unwrap();
        let tables = Tables {
            key: Some(Key::new(&key).unwrap()),
            udp4: Some(Fields::AddressesPorts),
            queues: Some(queues),
            table: Some(table),
            ..Tables::default()
        };
        let destination = SocketAddr::new(std::net::Ipv4Addr::from(destination).into(), 53);
        let flow = Flow::udp(flow().source(), destination).unwrap();
        let predictor = Predictor::new(&tables).unwrap();
        let range = first..=first.saturating_add(more);
        let wanted = Wanted { queue: Some(queue), ..Wanted::default() };
        let result = predictor.source_ports(&flow, &wanted, range.clone(), count);
        if queue >= queues {
            let refused = matches!(result, Err(ReverseError::NoSuchQueue { .. }));
            prop_assert!(refused);
            return Ok(());
        }
        let found = result.unwrap();
        let reaches = |port: &u16| predictor.decide(&flow.with_source_port(*port)).queue.value == Some(queue);
        let all: Vec<u16> = range.clone().filter(reaches).collect();
        prop_assert_eq!((found.matching, found.tried), (all.len(), range.count()));
        prop_assert_eq!(found.ports.len(), count.min(all.len()));
        prop_assert!(found.ports.iter().all(|port| all.contains(port)));
        prop_assert!(found.ports.is_sorted_by(|one, next| one < next));
        // Even: no two gaps, counted in ports that match, differ by more than one.
        let places: Vec<usize> = found.ports.iter().map(|port| all.iter().position(|p| p == port).unwrap()).collect();
        let gaps: Vec<usize> = places.windows(2).map(|pair| pair[1] - pair[0]).collect();
        if let (Some(most), Some(least)) = (gaps.iter().max(), gaps.iter().min()) {
            prop_assert!(most - least <= 1, "{gaps:?}");
        }
    }
}
