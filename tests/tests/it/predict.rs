//! `udpath predict` as its users run it: known vectors, JSON in and out, reverse lookup and back, bad input.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;
use udpath_rig::{Ended, Run, one_sentence, program};

/// The first of Microsoft's verification vectors; its hash with ports is 0x51ccc178.
const FROM: &str = "66.9.149.187:2794";
const TO: &str = "161.142.100.80:1766";

fn predict(arguments: &[&str]) -> Ended {
    Run::new(&[&["predict"], arguments].concat()).finish()
}

fn fine(arguments: &[&str]) -> String {
    let ended = predict(arguments);
    assert_eq!(ended.code(), Some(0), "{}: {}", ended.shown, ended.err);
    ended.out
}

fn json(arguments: &[&str]) -> Value {
    let document: Value = serde_json::from_str(&fine(&[arguments, &["--json"]].concat())).unwrap();
    assert_eq!(document["schema"], "udpath.predict/2");
    document
}

#[test]
fn every_step_with_its_reason() {
    let known = ["--driver", "ixgbe", "--key", "microsoft", "--fields", "sdfn", "--table", "equal:8"];
    let cpus = ["--irq-cpus", "0-3", "--rps-cpus", "4-7", "--sockets", "8", "--by", "cpu"];
    let text = fine(&[&[FROM, TO], &known[..], &cpus[..]].concat());
    // Entry 0x78 of 128 is queue 0, IRQ on CPU 0; 0x51ccc178 * 4 / 2^32 is place 1 of the RPS map.
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "flow     66.9.149.187:2794 -> 161.142.100.80:1766");
    assert_eq!(lines[1], "hash     0x51ccc178  Toeplitz over addresses and ports");
    assert_eq!(lines[2], "queue    0           entry 120 of 128 in the indirection table");
    assert_eq!(lines[3], "IRQ      unknown     no IRQ given for the queue");
    assert_eq!(lines[4], "IRQ CPU  0           the CPU of the queue's IRQ");
    assert_eq!(lines[5], "RPS CPU  5           entry 1 of 4 in the RPS map");
    assert_eq!(lines[6], "socket   5           the only socket with that SO_INCOMING_CPU");
    let document = json(&[&[FROM, TO], &known[..], &cpus[..]].concat());
    assert_eq!(document["path"]["hash"]["value"], 0x51cc_c178);
    assert_eq!(document["path"]["rps"]["value"], 5);
    assert_eq!(document["path"]["irq"]["value"], Value::Null);
    assert_eq!(document["flow"]["source"], FROM);
}

#[test]
fn ipv6_and_nothing_known() {
    let (from, to) = ("[3ffe:2501:200:1fff::7]:2794", "[3ffe:2501:200:3::1]:1766");
    let text = fine(&[from, to, "--key", "microsoft"]);
    assert!(text.contains("0x40207d3d"), "{text}");
    assert!(fine(&[from, to, "--key", "microsoft", "--fields", "sd"]).contains("0x2cc18cd5"));
    let nothing = fine(&[from, to]);
    assert_eq!(nothing.matches("unknown").count(), 6, "{nothing}");
    let driver = fine(&[from, to, "--driver", "i40e"]);
    assert!(driver.contains("i40e generates a random key"), "{driver}");
}

#[test]
fn tables_come_from_a_file_or_standard_input_and_options_on_top() {
    let tables = r#"{"schema": "udpath.tables/1", "key": "microsoft", "udp4": "sdfn", "passed_on": true,
        "queues": 4, "table": [3, 3, 3, 2, 1, 1, 0, 0],
        "receive": [{"queue": 3, "irq": 77, "irq_cpus": "9"}], "sockets": {"by": "rxhash", "cpus": [null, null]}}"#;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tables.json");
    fs::write(&path, tables).unwrap();
    let file = json(&[FROM, TO, "--tables", path.to_str().unwrap()]);
    // 0x51ccc178: entry 0 of 8, and the lower half of the hashes.
    let values = |document: &Value| {
        ["queue", "irq", "cpu", "rps", "socket"].map(|step| document["path"][step]["value"].as_u64())
    };
    assert_eq!(values(&file), [Some(3), Some(77), Some(9), Some(9), Some(0)]);
    let mut child = Command::new(program())
        .args(["predict", FROM, TO, "--tables", "-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(tables.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success());
    assert_eq!(udpath_rig::json(&out.stdout), file);
    let what_if =
        json(&[FROM, TO, "--tables", path.to_str().unwrap(), "--rps-cpus", "5", "--table", "equal:2"]);
    assert_eq!(values(&what_if), [Some(0), None, None, Some(5), Some(0)]);
    let entries = folder.path().join("table.json");
    fs::write(&entries, "[1, 0, 1, 0]").unwrap();
    let text = fine(&[FROM, TO, "--key", "microsoft", "--table", entries.to_str().unwrap()]);
    assert!(text.contains("queue    1           entry 0 of 4"), "{text}");
}

#[test]
fn a_rule_is_named_by_its_location() {
    let tables = |action: &str| {
        format!(
            r#"{{"schema": "udpath.tables/1", "key": "microsoft", "udp4": "sdfn", "queues": 8, "table": [0, 1],
                "contexts": {{"1": {{"table": [6, 4]}}}},
                "rules": [{{"location": 1023, "flow": "udp4", "destination_port": {{"value": 1766, "mask": 65535}},
                           "action": {action}}}]}}"#
        )
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tables.json");
    let line = |action: &str| {
        fs::write(&path, tables(action)).unwrap();
        let text = fine(&[FROM, TO, "--tables", path.to_str().unwrap()]);
        text.lines().nth(2).unwrap().to_owned()
    };
    assert_eq!(line(r#"{"queue": {"queue": 7, "vf": 0}}"#), "queue    7           ntuple rule 1023");
    assert_eq!(line(r#""drop""#), "queue    unknown     ntuple rule 1023 drops it");
    assert_eq!(
        line(r#"{"context": {"context": 1, "queue": 0}}"#),
        "queue    6           ntuple rule 1023: entry 0 of 2 in RSS context 1"
    );
    // Another port uses the table.
    let text = fine(&[FROM, "161.142.100.80:53", "--tables", path.to_str().unwrap()]);
    assert!(text.contains("of 2 in the indirection table"), "{text}");
}

#[test]
fn ports_found_in_reverse_lead_there() {
    let known = ["--key", "symmetric", "--table", "weight:5,2,1", "--queues", "3"];
    let cpus = ["--irq-cpus", "0-2", "--sockets", "3", "--by", "cpu"];
    let asked = ["--reverse", "1", "--reverse-socket", "1", "--ports", "2000-2999", "--count", "7"];
    let out = fine(&[&["192.0.2.7", "192.0.2.1:53"], &known[..], &cpus, &asked].concat());
    let ports: Vec<u16> = out.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(ports.len(), 7);
    for port in ports {
        assert!((2000..=2999).contains(&port));
        let from = format!("192.0.2.7:{port}");
        let path = &json(&[&[from.as_str(), "192.0.2.1:53"], &known[..], &cpus].concat())["path"];
        assert_eq!((&path["queue"]["value"], &path["socket"]["value"]), (&1.into(), &1.into()));
    }
    let document = json(&[&["192.0.2.7", "192.0.2.1:53"], &known[..], &cpus, &asked].concat());
    assert_eq!((&document["tried"], &document["wanted"]["queue"]), (&1000.into(), &1.into()));
    assert_eq!(document["ports"].as_array().unwrap().len(), 7);
    // A queue and a CPU that exclude each other.
    let never = ["--reverse", "1", "--reverse-cpu", "2", "--ports", "2000-2999"];
    let ended = predict(&[&["192.0.2.7", "192.0.2.1:53"], &known[..], &cpus, &never].concat());
    assert_eq!((ended.code(), ended.out.as_str()), (Some(1), ""), "{}", ended.err);
    assert!(ended.err.contains("none of the source ports 2000-2999 reaches it"), "{}", ended.err);
}

#[test]
fn bad_input_gives_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let file = |name: &str, text: &str| fs::write(path(name), text).unwrap();
    file("cut", r#"{"schema": "udpath.tables/1", "key"#);
    file("newer", r#"{"schema": "udpath.tables/9"}"#);
    file("field", "{\"schema\": \"udpath.tables/1\", \"\\u001b[31m\": 1}");
    file("misfit", r#"{"schema": "udpath.tables/1", "queues": 1, "table": [0, 1]}"#);
    file("three", "[0, 1, 2]");
    let rule = r#"{"location": 7, "flow": "udp4", "action": "drop"}"#;
    file("twice", &format!(r#"{{"schema": "udpath.tables/1", "rules": [{rule}, {rule}]}}"#));
    let cases: &[(&[&str], i32, &str)] = &[
        (&["192.0.2.7", TO], 2, "expected ADDR:PORT"),
        (&["host:7", TO], 2, "expected ADDR:PORT"),
        (&[FROM, "192.0.2.1:99999"], 2, "expected ADDR:PORT"),
        (&[FROM, "[::1]:53"], 2, "two addresses of one family"),
        (&[FROM, TO, "--key", "6d:5a"], 2, "40 to 256"),
        (&[FROM, TO, "--key", "6d:5x"], 2, "character 5 of the key"),
        (&[FROM, TO, "--driver", "e100"], 2, "known drivers: bnxt_en, "),
        (&[FROM, TO, "--fields", "sdf"], 2, "possible values: sd, sdfn"),
        (&[FROM, TO, "--table", "equal:0"], 2, "at least 1 queue"),
        (&[FROM, TO, "--table", "equal:x"], 2, "such as equal:8"),
        (&[FROM, TO, "--table", "weight:0,0"], 2, "all weights"),
        (&[FROM, TO, "--table", "equal:4", "--table-size", "100"], 2, "a power of two"),
        (
            &[FROM, TO, "--table", "equal:4", "--queues", "2"],
            2,
            "entry 2 of the indirection table is queue 2",
        ),
        (&[FROM, TO, "--queues", "0"], 2, "invalid number of queues 0"),
        (&[FROM, TO, "--queues", "4294967295"], 2, "invalid number of queues 4294967295"),
        (&[FROM, TO, "--rps-cpus", "0-"], 2, "is not a CPU number or range (character 3)"),
        (&[FROM, TO, "--rps-cpus", "0-1"], 2, "add --queues N"),
        (&[FROM, TO, "--by", "cpu"], 2, "--sockets"),
        (&[FROM, TO, "--sockets", "0"], 2, "invalid number of sockets 0"),
        (&[FROM, TO, "--sockets", "99999999999"], 2, "invalid number of sockets"),
        (
            &[FROM, TO, "--sockets", "2", "--by", "magic"],
            2,
            "possible values: hash, cpu, cpu-modulo, cpu-index, rxhash",
        ),
        (&[FROM, TO, "--ports", "1-2"], 2, "add --reverse QUEUE"),
        (&[FROM, TO, "--reverse", "0", "--ports", "2-1"], 2, "1 <= LOW <= HIGH"),
        (&[FROM, TO, "--reverse", "0", "--count", "0"], 2, "--count must be at least 1"),
        (&[FROM, TO, "--reverse", "8", "--queues", "8", "--key", "microsoft"], 2, "no queue 8"),
        (
            &[FROM, TO, "--reverse", "0"],
            3,
            "the queue of a flow cannot be predicted: no indirection table given",
        ),
        (&[FROM, TO, "--tables", "-", "--table", "-"], 2, "both read standard input"),
        (&[FROM, TO, "--tables", &path("none")], 3, "No such file or directory"),
        (&[FROM, TO, "--tables", "/proc"], 3, "Is a directory"),
        (&[FROM, TO, "--tables", "/dev/zero"], 3, "too large"),
        (&[FROM, TO, "--tables", &path("cut")], 3, "EOF while parsing"),
        (&[FROM, TO, "--tables", &path("newer")], 3, "udpath.tables/1"),
        (&[FROM, TO, "--tables", &path("field")], 3, "unknown field `?[31m`"),
        (&[FROM, TO, "--tables", &path("misfit")], 3, "entry 1 of the indirection table is queue 1"),
        (&[FROM, TO, "--tables", &path("twice")], 3, "two flow rules at location 7"),
        (&[FROM, TO, "--table", &path("three")], 3, "a power of two"),
        (&[FROM], 2, "<DST:PORT>"),
    ];
    for (arguments, code, part) in cases {
        let ended = predict(arguments);
        assert_eq!(ended.code(), Some(*code), "{}: {}{}", ended.shown, ended.out, ended.err);
        // The assumptions are printed first.
        let said = ended.err.lines().last().unwrap();
        one_sentence(&ended.shown, &format!("{said}\n"));
        assert!(said.contains(part), "{}: {part:?} is not in {said}", ended.shown);
        assert_eq!(ended.out, "", "{}", ended.shown);
    }
}
