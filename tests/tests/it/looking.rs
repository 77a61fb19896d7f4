//! What only looks does only that: by the system calls that it makes (strace). Needs root for the lab.

use std::fs;
use std::process::Command;

use udpath_lab::Lab;
use udpath_rig::{client_and_server, program};

use crate::inside::start;

const PORT: &str = "5353";

/// The system calls of these kinds that udpath made in the namespace of the server, a line each.
fn calls(lab: &Lab, arguments: &[&str]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut strace: Command = lab.machine("server").unwrap().command("strace");
    // %network has none of the calls that duplicate a descriptor.
    strace
        .args(["-f", "-qq", "-e", "trace=%network,pidfd_getfd,kill,tgkill,write", "-e", "signal=none", "-o"])
        .arg(&log);
    strace.arg(program()).args(arguments);
    let ended = start(lab, strace, &arguments.join(" ")).finish();
    assert!(matches!(ended.code(), Some(0 | 1)), "{arguments:?}: {:?} {}", ended.code(), ended.err);
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("AF_NETLINK"), "{arguments:?}: it asks the kernel: {log}");
    log.lines().map(str::to_owned).collect()
}

#[test]
fn what_only_looks_sends_nothing_and_duplicates_what_was_asked_for_once() {
    udpath_lab::needs_root!();
    let lab = client_and_server("looking", 1);
    // Two sockets of one port, and one of another; a process of that namespace, which waits for them.
    let serves = "import socket, select, sys\ndef bound(family, *to): s = socket.socket(family, socket.SOCK_DGRAM); s.bind(to); return s\n\
                  all = [bound(socket.AF_INET, '127.0.0.1', 5353), bound(socket.AF_INET, '127.0.0.2', 5353), bound(socket.AF_INET6, '::1', 5354)]\n\
                  print('ready', file=sys.stderr, flush=True)\nselect.select(all, [], [])";
    let mut python = lab.machine("server").unwrap().command("/usr/bin/python3");
    python.args(["-c", serves]);
    let mut held = start(&lab, python, "sockets");
    held.says("ready");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("capture.tar.gz").display().to_string();
    let cases: [(&[&str], usize); 6] = [
        (&["show"], 0),
        (&["show", PORT], 2),
        (&["show", "--all"], 3),
        (&["top", "--once"], 0),
        (&["support", "-o", &file], usize::MAX),
        (&["plan", "--set", "port:5353:receive-buffer=100000"], usize::MAX),
    ];
    for (arguments, duplicated) in cases {
        let calls = calls(&lab, arguments);
        let sent: Vec<_> = calls
            .iter()
            .filter(|call| {
                ["sendto(", "sendmsg(", "sendmmsg(", "connect("].iter().any(|name| call.contains(name))
            })
            .filter(|call| call.contains("sa_family=AF_INET"))
            .collect();
        assert!(sent.is_empty(), "{arguments:?}: {sent:?}");
        let set: Vec<_> = calls
            .iter()
            .filter(|call| call.contains("setsockopt(") && !call.contains("SOL_NETLINK"))
            .collect();
        // Buffers and times of its own netlink sockets.
        assert!(
            set.iter().all(|call| call.contains("SO_RCVBUF")
                || call.contains("SO_SNDBUF")
                || call.contains("SO_RCVTIMEO")),
            "{arguments:?}: {set:?}"
        );
        let signals = calls.iter().filter(|call| call.contains("kill(")).count();
        assert_eq!(signals, 0, "{arguments:?}");
        let got = calls.iter().filter(|call| call.contains("pidfd_getfd(")).count();
        assert!(
            duplicated == usize::MAX || got == duplicated,
            "{arguments:?}: {got} descriptors, not {duplicated}"
        );
    }
    drop(held);
}
