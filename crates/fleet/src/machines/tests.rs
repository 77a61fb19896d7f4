//! Machines that were captured, and machines made up for one difference each.

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};

use udpath_advise::{Finding, MapResult, Severity};
use udpath_host::Snapshot;
use udpath_host::map::{Map, Selection};
use udpath_support::Capture;
use udpath_tune::Setting;

use super::compact::Machines;
use super::compare::compare;
use super::facts::{self, Fact, Facts};
use super::files::Entry;
use super::input::Seen;
use super::*;

fn captured(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../host/tests/fixtures/captured").join(name)
}

const CAPTURES: [&str; 2] = ["emulated-20-cpus.tar.gz", "firecracker-2-cpus.tar.gz"];

fn facts_of(name: &str) -> Facts {
    let capture = Capture::open(&captured(name)).unwrap();
    let now = Snapshot::read(&*capture.now());
    let mut facts = facts::of_map(&Map::whole(&now, None));
    facts.add_snapshot(&now);
    facts
}

/// Facts that are not settings.
const PROPERTIES: [&str; 11] = [
    "kind",
    "driver",
    "driver-version",
    "firmware",
    "speed",
    "mtu",
    "rx-queues",
    "tx-queues",
    "rss-queues",
    "xdp",
    "link",
];

#[test]
fn facts_have_the_names_and_values_of_settings() {
    let mut settings = 0;
    for name in CAPTURES {
        for Fact { interface, name, value } in facts_of(name).list {
            let of_interface = name.strip_prefix("@:");
            if of_interface.is_some_and(|name| PROPERTIES.contains(&name)) || !name.contains(':') {
                continue;
            }
            let interface = interface.as_deref().unwrap_or("eth0");
            let queues = name.ends_with("-*");
            let name = name.replace('@', interface).replace('*', "0");
            let setting: Setting = name.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
            let values = if queues { value.split(' ').collect() } else { vec![value.as_str()] };
            for value in values.into_iter().filter(|value| !value.contains(" of ")) {
                let read = setting.value(value).unwrap_or_else(|error| panic!("{name}={value}: {error}"));
                assert_eq!(format!("{read:#}"), value, "{name}");
            }
            settings += 1;
        }
    }
    // 40 sysctls of each machine, and dozens of each interface.
    assert!(settings > 200, "{settings}");
}

#[test]
fn a_captured_machine_has_the_facts_of_its_own_files() {
    let facts = facts_of("emulated-20-cpus.tar.gz");
    let value = |interface: Option<&str>, name: &str| {
        let is = |fact: &&Fact| fact.interface.as_deref() == interface && fact.name == name;
        facts.list.iter().find(is).map(|fact| fact.value.as_str())
    };
    assert_eq!(value(None, "cpus"), Some("20"));
    assert_eq!(value(None, "numa-nodes"), Some("2"));
    let virtio =
        facts.interfaces.iter().find(|(name, _)| value(Some(name), "@:driver") == Some("virtio_net"));
    let (name, device) = virtio.expect("a virtio interface");
    assert!(device);
    assert_eq!(value(Some(name), "@:rx-queues"), Some("16"));
    assert_eq!(value(Some(name), "@:channels/combined"), Some("16"));
    assert!(value(Some(name), "@:irq/rx-*").is_some_and(|value| value.split(' ').count() > 1));
    assert!(facts.interfaces.iter().all(|(name, _)| name != "lo"));
}

#[test]
fn no_fact_differs_between_two_moments_of_a_machine() {
    let capture = Capture::open(&captured(CAPTURES[1])).unwrap();
    let then = Snapshot::read(&*capture.now());
    let mut now = then.clone();
    now.taken += 3_600_000;
    now.kernel.booted = now.kernel.booted.map(|booted| booted + 86_400);
    now.udp = udpath_host::udp::Udp::default();
    now.sockets.list.clear();
    now.sockets.processes.clear();
    for interface in &mut now.interfaces {
        interface.address = Some("02:00:00:00:00:01".into());
        interface.index += 7;
        interface.statistics.values_mut().for_each(|count| *count += 1000);
        for queue in &mut interface.rx {
            queue.napi = queue.napi.map(|napi| napi + 1);
        }
    }
    let facts = |snapshot: &Snapshot| {
        let mut facts = facts::of_map(&Map::whole(snapshot, None));
        facts.add_snapshot(snapshot);
        facts
    };
    assert_eq!(facts(&now), facts(&then));
}

/// A machine with a device `eth0`, and these facts of it.
fn machine(name: &str, device: &str, of: &[(&'static str, &str)]) -> (Entry, Seen) {
    let fact = |(name, value): &(&'static str, &str)| Fact {
        interface: name.contains('@').then(|| device.to_owned()),
        name: Cow::Borrowed(name),
        value: (*value).to_owned(),
    };
    let facts = Facts { interfaces: vec![(device.to_owned(), true)], list: of.iter().map(fact).collect() };
    let shown = format!("{name}.tar.gz");
    let entry = Entry { path: PathBuf::from(&shown), shown, machine: name.to_owned() };
    (entry, Seen { taken: 1000, source: Source::Capture, facts, findings: Vec::new() })
}

fn compared(all: impl IntoIterator<Item = (Entry, Seen)>) -> FleetReport {
    let mut machines = Machines::default();
    all.into_iter().for_each(|(entry, seen)| machines.add(&entry, seen));
    compare(machines, Vec::new())
}

#[test]
fn those_that_differ_are_grouped_by_how() {
    let report = compared((0..400).map(|number| {
        let rps = if (10..17).contains(&number) { "none" } else { "0-3" };
        let firmware = if [20, 21].contains(&number) { "8.30" } else { "8.50" };
        let kernel = if (10..17).contains(&number) { "6.1" } else { "6.12" };
        let facts = [("@:rps/rx-*", rps), ("@:firmware", firmware), ("kernel", kernel), ("cpus", "8")];
        machine(&format!("dns{number:03}"), "eth0", &facts)
    }));
    assert_eq!((report.machines.len(), report.alike), (400, 391));
    let [seven, two] = &report.groups[..] else { panic!("{:?}", report.groups) };
    assert_eq!(seven.machines.len(), 7);
    assert_eq!(seven.machines[0], "dns010");
    let what: Vec<&str> = seven.variations.iter().map(|variation| variation.what.as_str()).collect();
    assert_eq!(what, ["eth0:rps/rx-*", "kernel"]);
    assert_eq!(two.machines, ["dns020", "dns021"]);
    let firmware = &two.variations[0];
    assert_eq!((firmware.value.as_str(), firmware.norm.as_str()), ("8.30", "8.50"));
    assert_eq!((firmware.norm_machines, firmware.reported), (398, 400));
    let common: Vec<&str> = report.common.iter().map(|common| common.what.as_str()).collect();
    assert_eq!(common, ["cpus", "eth0:link"]);
    assert_eq!(report.machines[10].differences, 2);
    assert!(report.mixed.is_empty());
}

#[test]
fn without_a_value_of_most_machines_none_differs() {
    let report = compared((0..4).map(|number| {
        let affinity = ["0 1", "1 0", "0 1", "2 3"][number];
        machine(&format!("m{number}"), "eth0", &[("@:irq/rx-*", affinity)])
    }));
    assert_eq!((report.alike, report.groups.len()), (4, 0));
    let [mixed] = &report.mixed[..] else { panic!("{:?}", report.mixed) };
    assert_eq!(mixed.what, "eth0:irq/rx-*");
    assert_eq!(
        mixed.values[0],
        VariationValue { value: "0 1".into(), machines: vec!["m0".into(), "m2".into()] }
    );
    assert_eq!(mixed.values.len(), 3);
}

#[test]
fn a_machine_that_does_not_report_a_fact_does_not_differ() {
    let report = compared([
        machine("a", "eth0", &[("@:mtu", "1500")]),
        machine("b", "eth0", &[("@:mtu", "1500")]),
        machine("c", "eth0", &[]),
    ]);
    assert_eq!(report.alike, 3);
    assert!(report.common.contains(&Common { what: "eth0:mtu".into(), value: "1500".into(), machines: 2 }));
}

#[test]
fn another_name_of_the_interface_is_no_difference() {
    let facts = [("@:mtu", "1500"), ("@:driver", "virtio_net")];
    let other = [("@:mtu", "9000"), ("@:driver", "virtio_net")];
    let mut all: Vec<_> = (0..3).map(|number| machine(&format!("a{number}"), "eth0", &facts)).collect();
    all.push(machine("b", "ens5", &other));
    let report = compared(all);
    let [group] = &report.groups[..] else { panic!("{:?}", report.groups) };
    assert_eq!(group.machines, ["b"]);
    assert_eq!(group.variations.len(), 1, "{group:?}");
    assert_eq!(group.variations[0].what, "eth0:mtu");
    assert_eq!(report.machines[3].compared_as.get("ens5").map(String::as_str), Some("eth0"));
    // With both, it is one more interface.
    let mut all: Vec<_> = (0..3).map(|number| machine(&format!("a{number}"), "eth0", &facts)).collect();
    let (entry, mut seen) = machine("b", "eth0", &facts);
    seen.facts.interfaces.push(("ens5".into(), true));
    all.push((entry, seen));
    let report = compared(all);
    assert_eq!(report.groups[0].variations[0].what, "ens5:link");
    assert_eq!(report.groups[0].variations[0].value, "up");
}

#[test]
fn virtual_interfaces_of_few_machines_are_their_own() {
    let facts = [("@:mtu", "1500")];
    let with = |name: &str, own: &str| {
        let (entry, mut seen) = machine(name, "eth0", &facts);
        seen.facts.interfaces.extend([(own.to_owned(), false), ("bond0".to_owned(), false)]);
        seen.facts.list.push(Fact {
            interface: Some(own.into()),
            name: "@:mtu".into(),
            value: own.len().to_string(),
        });
        (entry, seen)
    };
    let (entry, seen) = machine("d", "eth0", &facts);
    let report = compared([with("a", "veth1"), with("b", "veth22"), with("c", "veth333"), (entry, seen)]);
    let [group] = &report.groups[..] else { panic!("{:?}", report.groups) };
    assert_eq!((group.machines[0].as_str(), group.variations[0].what.as_str()), ("d", "bond0:link"));
    assert!(report.mixed.is_empty(), "{:?}", report.mixed);
}

fn finding(id: &str, severity: Severity, share: f64) -> Finding {
    Finding {
        id: id.into(),
        severity,
        locations: Vec::new(),
        share: Some(share),
        rate: None,
        evidence: format!("{id} {share}"),
        cause: "because".into(),
        remedies: Vec::new(),
    }
}

#[test]
fn findings_are_counted_by_machines_and_the_worst_is_shown() {
    let with = |name: &str, findings: Vec<Finding>| {
        let (entry, seen) = machine(name, "eth0", &[]);
        (entry, Seen { findings, ..seen })
    };
    let report = compared([
        with("a", vec![finding("rss", Severity::Limit, 0.2), finding("rss", Severity::Limit, 0.1)]),
        with("b", vec![finding("drops", Severity::Loss, 0.5), finding("rss", Severity::Limit, 0.9)]),
        with("c", vec![finding("note", Severity::Note, 0.0)]),
    ]);
    let found: Vec<(&str, usize, &str)> = report
        .findings
        .iter()
        .map(|found| (found.finding.id.as_str(), found.machines.len(), found.example.as_str()))
        .collect();
    assert_eq!(found, [("rss", 2, "b"), ("drops", 1, "b"), ("note", 1, "c")]);
    assert_eq!(report.machines[0].findings, 1);
}

#[test]
fn of_two_files_of_a_machine_the_newer_counts() {
    let (entry, seen) = machine("a", "eth0", &[("kernel", "6.1")]);
    let newer = Entry { shown: "a-2026-11-24.json".into(), ..entry.clone() };
    let then = Seen { taken: 2000, facts: Facts::default(), findings: Vec::new(), source: Source::Map };
    let report = compared([(entry, seen), (newer, then)]);
    assert_eq!(report.machines.len(), 1);
    assert_eq!(report.machines[0].source, Source::Map);
    assert_eq!(
        report.older,
        [Older { machine: "a".into(), file: "a.tar.gz".into(), newer: "a-2026-11-24.json".into() }]
    );
}

#[test]
fn a_folder_is_read_and_what_is_foreign_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["a.tar.gz", "b.tar.gz", "c-2026-11-24.tar.gz"] {
        fs::copy(captured(CAPTURES[1]), at(name)).unwrap();
    }
    fs::copy(captured(CAPTURES[0]), at("d.tar.gz")).unwrap();
    let whole = fs::read(captured(CAPTURES[0])).unwrap();
    fs::write(at("cut.tar.gz"), &whole[..whole.len() / 2]).unwrap();
    fs::write(at("empty.json"), " \n").unwrap();
    fs::write(at("half.json"), "{\"schema\": \"udpath.map/2\", \"taken\": 1").unwrap();
    fs::write(at("load.json"), "{\"schema\": \"udpath.load/1\"}").unwrap();
    fs::write(at("other.json"), "{}").unwrap();
    fs::write(at("list.json"), "[]").unwrap();
    fs::write(at("notes.txt"), "hello").unwrap();
    let (read, all) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let report = report(folder.path(), &|done, of| {
        read.fetch_max(done, Ordering::Relaxed);
        all.store(of, Ordering::Relaxed);
    });
    let report = report.unwrap();
    assert_eq!((read.into_inner(), all.into_inner()), (11, 11));
    let names: Vec<&str> = report.machines.iter().map(|machine| machine.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c", "d"]);
    assert_eq!(report.alike, 3);
    assert_eq!(report.groups[0].machines, ["d"]);
    assert!(report.groups[0].variations.iter().any(|variation| variation.what == "cpus"
        && (variation.value.as_str(), variation.norm.as_str()) == ("20", "2")));
    let unread: Vec<String> =
        report.unread.iter().map(|unread| format!("{}: {}", unread.file, unread.why)).collect();
    for (line, says) in unread.iter().zip([
        "cut.tar.gz: cannot read it",
        "empty.json: it is empty",
        "half.json: it is not whole JSON of `udpath show --json`: EOF while parsing",
        "list.json: it is neither a capture (.tar.gz) nor JSON",
        "load.json: it has the schema \"udpath.load/1\": expected udpath.map/2",
        "notes.txt: it is neither a capture",
        "other.json: it has no \"schema\" field: expected udpath.map/2",
    ]) {
        assert!(line.starts_with(says), "{line}: expected {says}");
    }
    assert_eq!(unread.len(), 7);
}

#[test]
fn a_folder_without_a_machine_says_what_its_files_are() {
    let folder = tempfile::tempdir().unwrap();
    let said = |folder: &Path| report(folder, &|_, _| {}).unwrap_err().to_string();
    let empty = said(folder.path());
    assert!(
        empty.ends_with("contains no capture: expected files of `udpath support` or `udpath show --json`")
    );
    fs::write(folder.path().join("x"), "x").unwrap();
    assert!(said(folder.path()).contains("; x: it is neither a capture"));
    // Sparse: it takes no space.
    let huge = fs::File::create(folder.path().join("huge.json")).unwrap();
    huge.set_len(1 << 40).unwrap();
    assert!(said(folder.path()).contains("huge.json: it is neither"));
    fs::write(folder.path().join("huge.json"), "{").unwrap();
    let huge = fs::OpenOptions::new().write(true).open(folder.path().join("huge.json")).unwrap();
    huge.set_len(1 << 40).unwrap();
    assert!(said(folder.path()).contains("huge.json: it has more than 32 MiB"));
}

#[test]
fn of_a_fact_that_a_file_has_twice_the_first_counts() {
    let twice = [("@:mtu", "1500"), ("@:mtu", "9000")];
    let report = compared([machine("a", "eth0", &twice), machine("b", "eth0", &twice)]);
    assert_eq!(report.alike, 2);
    assert!(report.mixed.is_empty(), "{:?}", report.mixed);
    assert!(report.common.contains(&Common { what: "eth0:mtu".into(), value: "1500".into(), machines: 2 }));
}

#[test]
fn documents_are_compared_without_files() {
    let document = |cpus: u32| {
        let capture = Capture::open(&captured(CAPTURES[1])).unwrap();
        let now = Snapshot::read(&*capture.now());
        let mut result = MapResult::new(&now, None, &Selection::All).unwrap();
        result.map.cpus_online = cpus as usize;
        serde_json::to_vec(&result).unwrap()
    };
    let (two, four) = (document(2), document(4));
    // As Ansible writes it.
    let gathered = [
        &br#"{"ansible_facts":{"udpath":{"version":"0.1.0","map":"#[..],
        &two,
        &br#"}},"changed":false}"#[..],
    ]
    .concat();
    let all: [(&str, &[u8]); 4] = [("a", &two), ("b", &gathered), ("c", &four), ("d", b"{}")];
    let report = of_json(&all).unwrap();
    assert_eq!((report.machines.len(), report.alike, report.unread.len()), (3, 2, 1));
    assert_eq!(report.groups[0].machines, ["c"]);
    assert_eq!(report.groups[0].variations[0].what, "cpus");
    assert_eq!(of_json(&[("d", b"{}")]), None);
}
