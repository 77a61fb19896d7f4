//! What `udpath profile` finds on misconfigured machines with its default options, and does not find on a healthy one. Needs
//! root and two CPUs.
//!
//! | misconfigured | finding |
//! |---|---|
//! | twenty threads ask one socket and never sleep | its receive-queue lock, the socket, who reads it |
//! | twenty threads sleep at one socket | waking them, the socket, who reads it |
//! | connections are tracked | connection tracking, and how many |
//! | a tcpdump runs | the packet socket, by name and pid |
//! | GRO looks at datagrams that never merge | that it looks in vain |
//! | a handler that is slow | the program's own function |
//!
//! Each is a bed of its own, one at a time: a profile is of the whole machine. What other programs of it do takes from every
//! share; so what is in a bed comes first on its CPUs, and is profiled a few times before a sentence counts as not said.

mod contended;
mod network;
mod program;

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use serde_json::Value;
use udpath_lab::LinkSpec;
use udpath_rig::{Bed, Running};

/// Where servers listen.
const PORT: u16 = 53;
/// Length of a profile: 1,000 samples of two busy CPUs.
const SECONDS: &str = "2500ms";
/// Profiles of one arrangement. More: a sentence that is said by chance passes; fewer: other programs spoil all of them.
const TRIES: usize = 4;

/// One bed at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    // A test that failed has left nothing behind either.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The evidence of a rule's finding; of several of its findings, those that have a part in them.
fn found<'a>(profile: &'a Value, rule: &str, part: &str) -> Option<&'a str> {
    let findings = profile["findings"].as_array().expect("a profile has findings").iter();
    let texts =
        findings.filter(|finding| finding["id"] == rule).filter_map(|finding| finding["evidence"].as_str());
    texts.into_iter().find(|text| text.contains(part))
}

/// Profiles the server's port until it says what a rule has found, and gives the profile and the words. They are the end of
/// the sentence, or its beginning, unless there is more to say of other programs of the machine.
#[track_caller]
fn said(bed: &Bed, rule: &str, part: &str) -> (Value, String) {
    let mut all = String::new();
    for _ in 0..TRIES {
        let profile = bed.profile_json(&["--port", &PORT.to_string(), "-d", SECONDS]);
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

/// A healthy server: a socket for each CPU, bursts, its load spread over both, and no packet socket.
fn healthy() -> &'static Value {
    static ONE: OnceLock<Value> = OnceLock::new();
    ONE.get_or_init(|| {
        let _alone = alone();
        let bed = Bed::new("plain", &LinkSpec::with_queues(2)).polled().first("client");
        let _server = bed.serve(&["echo", "--io", "percpu", "--workers", "2", "--bind", &bind()]);
        let _load = in_the_kernel(&bed);
        bed.profile_json(&["--port", &PORT.to_string(), "-d", SECONDS])
    })
}

fn bind() -> String {
    format!("0.0.0.0:{PORT}")
}

/// Starts the server that does it wrong.
fn misarranged(bed: &Bed, how: &[&str]) -> Running {
    let bind = bind();
    let arguments = [&[bind.as_str()], how].concat();
    let mut server = bed.start("server", env!("CARGO_BIN_EXE_misarranged"), &arguments);
    server.says("ready");
    server
}

/// A closed loop that costs next to nothing itself: what is sampled is the server's.
fn in_the_kernel(bed: &Bed) -> Running {
    bed.load(&[
        "echo",
        &bed.target(PORT),
        "--engine",
        "kernel",
        "--flows",
        "64",
        "--inflight",
        "8",
        "-d",
        "90s",
    ])
}

/// Other programs of this machine may have findings; a healthy server has none of these.
#[test]
fn a_healthy_server_has_none_of_these_findings() {
    udpath_lab::needs_root!();
    let profile = healthy();
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
    // It was busy enough for all of them to show.
    assert!(profile["datagrams"]["received"].as_u64().unwrap() > 10_000, "{}", profile["datagrams"]);
}
