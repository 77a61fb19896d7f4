//! Interoperability with Debian's tools for the same job: `socat` as a server, `socat` and `nc` as clients.

use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;
use udpath_rig::{Run, Running, TIMEOUT};

const LOOPBACKS: [&str; 2] = ["127.0.0.1", "[::1]"];

/// Starts `udpath serve echo`; returns its address too.
fn serve(io: &str, host: &str) -> (Running, SocketAddr) {
    let mut server = Run::new(&["serve", "echo", "--io", io, "--bind", &format!("{host}:0")]).start();
    let said = server.says_line("ready io=");
    let bind = said.split_whitespace().find_map(|word| word.strip_prefix("bind=")).unwrap();
    let address = bind.parse().unwrap();
    (server, address)
}

fn payload(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at * 31 + size) as u8).collect()
}

/// Passes `input` to a client and returns its output.
fn ask(program: &str, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut client = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot run {program}: {error}; scripts/setup.sh installs it"));
    client.stdin.take().unwrap().write_all(input).unwrap();
    client.wait_with_output().unwrap().stdout
}

/// Other clients talk to every Io, over both families, from the smallest to the largest datagram.
#[test]
fn nc_and_socat_are_answered_on_every_io() {
    for io in ["shared", "reuseport", "percpu"] {
        for host in LOOPBACKS {
            let (server, address) = serve(io, host);
            let (ip, port) = (address.ip().to_string(), address.port().to_string());
            // nc sends each read of up to 16 KiB as a datagram. -W 1: exit after one reply.
            for size in [1, 1_473, 16_384] {
                let answer = ask("nc", &["-u", "-W", "1", "-w", "5", &ip, &port], &payload(size));
                assert!(answer == payload(size), "nc, {io} {host}: {} of {size} bytes", answer.len());
            }
            let family = if address.is_ipv6() { 6 } else { 4 };
            for size in [1, 1_472, 1_473, 65_507] {
                // -t: how long to wait for the reply after the input has ended.
                let to = format!("UDP{family}:{host}:{port}");
                let answer = ask("socat", &["-b", "65536", "-t", "0.3", "-", &to], &payload(size));
                assert!(answer == payload(size), "socat, {io} {host}: {} of {size} bytes", answer.len());
            }
            server.signal(Signal::TERM);
            let ended = server.finish();
            assert_eq!(ended.code(), Some(0), "{}", ended.err);
            // Seven were answered, and the server counted them.
            let all = ended.out.lines().find(|line| line.trim_start().starts_with("all ")).unwrap();
            let numbers: Vec<&str> = all.split_whitespace().collect();
            assert_eq!(numbers[1..4], ["7", "7", "0"], "{io} {host}: {}", ended.out);
        }
    }
}

/// A foreign echo server. One flow and one request in flight: socat's pipe joins datagrams that arrive
/// together, and the first datagrams of two flows may reach the same socat process.
#[test]
fn load_works_against_a_foreign_echo_server() {
    for (host, family) in LOOPBACKS.into_iter().zip([4, 6]) {
        // socat forks a process per client; -T ends those whose client is idle.
        let port = UdpSocket::bind(format!("{host}:0")).unwrap().local_addr().unwrap().port();
        let mut socat = Command::new("socat");
        socat.args(["-b", "65536", "-T", "2"]);
        socat.arg(format!("UDP{family}-LISTEN:{port},bind={host},fork,reuseaddr")).arg("PIPE");
        let socat = Run::of(socat, "socat").within(TIMEOUT * 2).start();
        let target = format!("{host}:{port}");
        for size in ["18", "1473", "65507"] {
            let load = ["load", "echo", &target, "--size", size, "-d", "500ms", "--json"];
            // Until socat listens, there are no replies.
            let result = udpath_rig::awaited("socat to answer", TIMEOUT, || {
                let ended = Run::new(&load).finish();
                (ended.code() == Some(0)).then(|| serde_json::from_str::<Value>(&ended.out).unwrap())
            });
            let count = |what: &str| result["counts"][what].as_u64().unwrap();
            assert!(count("ok") > 10, "{target}, {size} bytes: {}", result["counts"]);
            assert_eq!(count("ok") + count("late") + count("lost"), count("sent"));
            assert_eq!((count("corrupt"), count("duplicate"), count("wrong_flow")), (0, 0, 0));
        }
        socat.signal(Signal::TERM);
        // Waits for its child processes, too.
        let _ = socat.finish();
    }
}
