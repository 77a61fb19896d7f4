//! Secrets around what changes in the configuration of every known server: none is in the lines that a verb prints.

use std::collections::BTreeMap;

use super::*;
use crate::services::{Profile, Service};

/// In every planted secret, and in no configuration.
const MARK: &str = "S3CR3T";
/// Of these at least one fits each kind of value, and is another one than is in effect.
const VALUES: [&str; 12] =
    ["2", "7", "4194304", "8388608", "yes", "no", "on", "off", "4m", "8m", "always", "batch"];

/// The configuration of each server in a form that sets some of its knobs, and how a comment begins.
const TEXTS: [(&str, &str, &str); 10] = [
    ("nsd", "#", "server:\n  server-count: 1\n  receive-buffer-size: 1048576\nkey:\n  name: k\n"),
    ("unbound", "#", "server:\n  num-threads: 1\n  so-rcvbuf: 1m\nremote-control:\n  control-enable: no\n"),
    ("knot", "#", "server:\n    udp-workers: 1\n    listen: 127.0.0.1@53\nkey:\n  - id: k\n"),
    ("bind9", "//", "options {\n  directory \"/var\";\n  udp-receive-buffer 1048576;\n};\n"),
    ("dnsdist", "--", "addLocal(\"127.0.0.1:53\", { reusePort=false })\nsetKey(\"k\")\n"),
    (
        "freeradius",
        "#",
        "listen {\n  type = auth\n  port = 1812\n  recv_buff = 65536\n}\nthread pool {\n  max_servers = 4\n}\n",
    ),
    ("chrony", "#", "pool 2.debian.pool.ntp.org iburst\nclientloglimit 1000\n"),
    (
        "rsyslog",
        "#",
        "module(load=\"imudp\" batchSize=\"16\" threads=\"1\")\ninput(type=\"imudp\" port=\"514\")\n",
    ),
    ("coturn", "#", "listening-port=3478\nrelay-threads=1\n"),
    ("nfcapd", "#", "options='-l /var/cache/nfdump'\n"),
];

/// Servers that take a comment behind a statement for a part of it.
const WHOLE_LINES: [&str; 2] = ["chrony", "coturn"];

/// The text with a secret in a comment before each line, behind it if the server allows that, and at the end, without a
/// newline.
fn planted(name: &str, text: &str, comment: &str) -> String {
    let mut planted = String::new();
    for (number, line) in text.lines().enumerate() {
        let _ = write!(planted, "{comment} key-{MARK}-{number}\n{line}");
        if !WHOLE_LINES.contains(&name) {
            let _ = write!(planted, " {comment} {MARK}-{number}");
        }
        planted.push('\n');
    }
    planted + comment + " " + MARK
}

#[test]
fn no_secret_around_a_knob_is_shown() {
    let mut changed = BTreeMap::<_, usize>::new();
    for name in Profile::names() {
        let (_, comment, text) =
            TEXTS.iter().find(|(server, ..)| *server == name).unwrap_or_else(|| panic!("no text of {name}"));
        let profile = Profile::named(name).unwrap();
        for old in [planted(name, text, comment), planted(name, "", comment)] {
            let service = Service::of_text(profile, &old);
            for knob in service.knobs() {
                let proposals = VALUES.iter().filter_map(|value| service.propose(knob.name, value).ok());
                for proposal in proposals {
                    for change in service.files(std::slice::from_ref(&proposal)).unwrap() {
                        // A file that is added has none.
                        let Some(old) = &change.old else { continue };
                        let texts = [
                            shown(old, &change.new),
                            shown(&change.new, old),
                            spliced("/etc/x", old, &change.new),
                            spliced("/etc/x", &change.new, old),
                        ];
                        for text in texts {
                            assert!(!text.contains(MARK), "{}: {text}", proposal.id());
                        }
                        *changed.entry(name).or_default() += 1;
                    }
                }
            }
        }
    }
    // The file of the one is a program, which is not changed; the knobs of the other are arguments.
    let without = ["dnsdist", "nfcapd"];
    for name in Profile::names() {
        assert_eq!(changed.contains_key(name), !without.contains(&name), "{name}: {changed:?}");
    }
}

/// Several knobs of one line at once: what stands between them is not shown, nor in a shell line.
#[test]
fn no_secret_between_two_knobs_of_a_line_is_shown() {
    for (name, text) in [
        (
            "bind9",
            "key \"k\" { secret \"S3CR3T\"; }; options { reuseport no; cookie-secret \"S3CR3T\"; udp-receive-buffer 1000; };\n",
        ),
        (
            "bind9",
            "key \"k\" { algorithm hmac-sha256; secret \"S3CR3T\"; }; options { directory \"/var\"; };\n",
        ),
        (
            "rsyslog",
            "module(load=\"imudp\" threads=\"1\") template(name=\"t\" type=\"string\" string=\"S3CR3T\") \
             input(type=\"imudp\" port=\"514\" rcvbufSize=\"1m\")\n",
        ),
        ("unbound", "server: num-threads: 1 control-key-file: \"S3CR3T\" so-rcvbuf: 1m\n"),
    ] {
        let service = Service::of_text(Profile::named(name).unwrap(), text);
        let one = |knob: crate::services::Knob| {
            let files =
                |proposal: &_| service.files(std::slice::from_ref(proposal)).is_ok_and(|all| !all.is_empty());
            VALUES.iter().filter_map(|value| service.propose(knob.name, value).ok()).find(files)
        };
        let all: Vec<_> = service.knobs().into_iter().filter_map(one).collect();
        assert!(all.len() > 1, "{name}: {}", all.len());
        let files = service.files(&all).unwrap();
        let change = files.iter().find(|change| change.old.is_some()).unwrap();
        let old = change.old.as_ref().unwrap();
        for (old, new) in [(old, &change.new), (&change.new, old)] {
            for said in [shown(old, new), spliced("/etc/x", old, new)] {
                assert!(!said.contains(MARK), "{name}: {said}");
            }
        }
        let rebuilt = pieces(old, &change.new).iter().rev().fold(old.clone(), |mut text, piece| {
            text.replace_range(piece.at.clone(), &piece.text);
            text
        });
        assert_eq!(rebuilt, change.new, "{name}");
    }
}
