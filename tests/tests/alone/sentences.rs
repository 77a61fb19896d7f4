//! Findings of `udpath profile` on misconfigured machines with its default options, and their absence on a healthy
//! one. Needs root and two CPUs.
//!
//! | misconfigured | finding |
//! |---|---|
//! | twenty threads poll one socket and never sleep | its receive-queue lock, the socket, its readers |
//! | twenty threads sleep on one socket | their wakeups, the socket, its readers |
//! | connections are tracked | connection tracking, and the number of connections |
//! | a tcpdump runs | the packet socket, by name and pid |
//! | GRO inspects datagrams that never merge | that GRO has no effect |
//! | a slow handler | the program's own function |
//!
//! Each has a bed of its own, one at a time: a profile covers the whole machine. Other programs reduce every share;
//! so the programs in a bed get priority on their CPUs, and a finding counts as missing only after several profiles.

mod contended;
mod network;
mod program;

use serde_json::Value;
use udpath_lab::LinkSpec;
use udpath_rig::{Bed, Running, alone, judged};

/// Port of the servers.
const PORT: u16 = 53;
/// Duration of a profile: 1,000 samples of two busy CPUs.
const SECONDS: &str = "2500ms";
/// Profiles of one configuration. More: a sentence that appears by chance passes; fewer: other programs may spoil all
/// of them.
const TRIES: usize = 4;

/// The evidence of a rule's finding; if the rule has several, of the one that contains `part`.
fn found<'a>(profile: &'a Value, rule: &str, part: &str) -> Option<&'a str> {
    let findings = profile["findings"].as_array().expect("a profile has findings").iter();
    let texts =
        findings.filter(|finding| finding["id"] == rule).filter_map(|finding| finding["evidence"].as_str());
    texts.into_iter().find(|text| text.contains(part))
}

/// Profiles the server's port until a rule reports its finding, and returns the profile and the rest of the sentence:
/// its end, or its beginning, unless other programs on the machine add to it.
#[track_caller]
fn said(bed: &Bed, rule: &str, part: &str) -> (Value, String) {
    said_in(bed, rule, part, SECONDS)
}

/// The same of profiles of another length.
#[track_caller]
fn said_in(bed: &Bed, rule: &str, part: &str, seconds: &str) -> (Value, String) {
    let mut all = String::new();
    for _ in 0..TRIES {
        let profile = bed.profile_json(&["--port", &PORT.to_string(), "-d", seconds]);
        let sentence = profile["sentence"].as_str().expect("a sentence");
        println!("{sentence}");
        if let Some(text) = found(&profile, rule, part) {
            let words = text.split_once(" % of CPU time ").map_or(text, |(_, rest)| rest);
            if sentence.contains(words) || found(&profile, "others", "").is_some() {
                let text = text.to_owned();
                return (profile, text);
            }
        }
        all += &format!("\n{sentence} {}", profile["findings"]);
    }
    panic!("{rule}, {part:?}, is not said:{all}");
}

/// A healthy server: a socket per CPU, bursts, its load spread over both, and no packet socket.
fn healthy() -> Value {
    let bed = Bed::new("plain", &LinkSpec::with_queues(2)).polled().first("client");
    let _server = bed.serve(&["echo", "--io", "percpu", "--workers", "2", "--bind", &bind()]);
    let _load = in_the_kernel(&bed);
    bed.profile_json(&["--port", &PORT.to_string(), "-d", SECONDS])
}

fn bind() -> String {
    format!("0.0.0.0:{PORT}")
}

/// Starts the misconfigured server.
fn misconfigured(bed: &Bed, how: &[&str]) -> Running {
    let bind = bind();
    let arguments = [&[bind.as_str()], how].concat();
    let mut server = bed.start("server", env!("CARGO_BIN_EXE_misconfigured"), &arguments);
    server.says("ready");
    server
}

/// A closed loop that costs almost nothing itself: the samples are the server's.
fn in_the_kernel(bed: &Bed) -> Running {
    in_the_kernel_to(bed, &bed.target(PORT))
}

fn in_the_kernel_to(bed: &Bed, target: &str) -> Running {
    bed.load(&["echo", target, "--engine", "kernel", "--flows", "64", "--inflight", "8", "-d", "90s"])
}

/// Other programs on this machine may cause findings; a healthy server has none of these.
#[test]
fn a_healthy_server_has_none_of_these_findings() {
    udpath_lab::needs_root!();
    let _alone = alone();
    judged("the profile of a healthy server", || none_of_these(&healthy()));
}

fn none_of_these(profile: &Value) {
    for (rule, part) in [
        ("receive-queue-lock", ""),
        ("lock", "waits for"),
        ("lock", "waking the readers"),
        ("netfilter", ""),
        ("packet-sockets", ""),
        ("gro", ""),
        ("user", "udpath's own work"),
    ] {
        assert_eq!(found(profile, rule, part), None, "{rule}: {}", profile["sentence"]);
    }
    // It was busy enough for all of them to appear.
    assert!(profile["datagrams"]["received"].as_u64().unwrap() > 10_000, "{}", profile["datagrams"]);
}
