//! What only looks does only that, and what changes a running server touches only its sockets of that port: by the
//! system calls that they make (strace). Needs root for the lab.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use udpath_lab::Lab;
use udpath_rig::{Running, client_and_server, program};

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

/// A process in the namespace of the server with two sockets of one port, one of another, and a file. The descriptors
/// of the sockets.
fn held(lab: &Lab) -> (Running, [u32; 3]) {
    let serves = "import socket, select, sys\ndef bound(family, *to): s = socket.socket(family, socket.SOCK_DGRAM); s.bind(to); return s\n\
                  all = [bound(socket.AF_INET, '127.0.0.1', 5353), bound(socket.AF_INET, '127.0.0.2', 5353), bound(socket.AF_INET6, '::1', 5354)]\n\
                  file = open('/etc/passwd')\n\
                  print('ready', *[s.fileno() for s in all], file=sys.stderr, flush=True)\nselect.select(all, [], [])";
    let mut python = lab.machine("server").unwrap().command("/usr/bin/python3");
    python.args(["-c", serves]);
    let mut held = start(lab, python, "sockets");
    let ready = held.says_line("ready");
    let sockets: Vec<u32> = ready.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    (held, sockets.try_into().unwrap())
}

#[test]
fn what_only_looks_sends_nothing_and_duplicates_what_was_asked_for_once() {
    udpath_lab::needs_root!();
    let lab = client_and_server("looking", 1);
    let (held, _) = held(&lab);
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

#[test]
fn what_changes_a_running_server_touches_its_udp_sockets_and_changes_those_of_the_port() {
    udpath_lab::needs_root!();
    let lab = client_and_server("touching", 1);
    let (held, sockets) = held(&lab);
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state").display().to_string();
    let apply = ["apply", "--set", "port:5353:receive-buffer=100000", "--state", &state];
    for arguments in [&apply[..], &["undo", "--state", &state]] {
        let (mut touched, mut changed) = (BTreeSet::new(), BTreeSet::new());
        let mut last = 0;
        for call in calls(&lab, arguments) {
            // pidfd_getfd(PIDFD, DESCRIPTOR, 0): what is set next is set on that duplicate.
            if let Some((_, duplicated)) = call.split_once("pidfd_getfd(") {
                last = duplicated.split(", ").nth(1).unwrap().parse::<u32>().unwrap();
                touched.insert(last);
            } else if call.contains("SO_RCVBUFFORCE") {
                changed.insert(last);
            }
            assert!(!call.contains("kill("), "{arguments:?}: {call}");
        }
        assert!(touched.is_subset(&sockets.into()), "{arguments:?}: {touched:?} of {sockets:?}");
        assert_eq!(changed, sockets[..2].iter().copied().collect(), "{arguments:?}");
    }
    drop(held);
}
