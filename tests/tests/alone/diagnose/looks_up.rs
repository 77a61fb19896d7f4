//! A server that waits for a name server with each datagram, beside one that waits for something else as long.

use serde_json::Value;
use udpath_lab::LinkSpec;
use udpath_rig::Bed;

use super::{PORT, diagnosed_under, file, first_is, found_first, severe, silent};

const FOUND: &str = "reader-waits-for-dns";

/// What is found of a server with these arguments, `SERVER` being a host that answers no query.
fn diagnosed(arguments: &[&str]) -> Value {
    let bed = Bed::new("names", &LinkSpec::with_queues(1));
    // The client's machine drops queries, and says nothing.
    let silent = "add table inet t; add chain inet t c { type filter hook input priority 0; }; \
                  add rule inet t c udp dport 53 drop";
    assert!(bed.command("client", "nft").arg(silent).status().unwrap().success());
    let ours = bed.command("client", "sh").args(["-c", "ip -4 -o address show dev eth0"]).output().unwrap();
    let ours = String::from_utf8(ours.stdout).unwrap();
    let ours = ours.split_whitespace().nth(3).and_then(|address| address.split('/').next()).unwrap();
    let arguments: Vec<&str> =
        arguments.iter().map(|argument| if *argument == "SERVER" { ours } else { argument }).collect();
    let mut server = bed.start("server", "python3", &arguments);
    server.says("ready");
    // Not all of them answer.
    let target = bed.target(PORT);
    diagnosed_under(
        bed,
        server,
        "client",
        &["load", "echo", &target, "--rate", "1k", "--flows", "8", "-d", "20s"],
    )
}

#[test]
fn a_reader_that_waits_for_a_name_server_is_named_and_one_that_sleeps_is_not() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let port = PORT.to_string();
    let (cause, asks) = ("a server that waits for a name server", [&*file("looks_up.py"), &port, "SERVER"]);
    found_first(cause, || first_is(&diagnosed(&asks), Some(FOUND)));
    let sleeps = "import socket, sys, time; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('0.0.0.0', 7000)); \
                  print('ready', file=sys.stderr, flush=True)\nwhile True: s.recv(4096); time.sleep(.5)";
    silent(cause, || {
        let json = diagnosed(&["-c", sleeps]);
        let found = severe(&json);
        let right = !found.is_empty() && !found.contains(&FOUND);
        (!right).then(|| format!("{:#}", json["findings"]))
    });
}
