//! A load whose link goes away. Needs root.
//!
//! ```text
//!   machine client                machine server
//!   udpath load --engine E  ----  udpath serve echo
//!            ^ taken down, or deleted, once transactions flow
//! ```

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use udpath_lab::Lab;
use udpath_rig::{Host, Run, Running, TIMEOUT, awaited, client_and_server, one_sentence, program};

/// Duration of a load that is not expected to finish.
const LONG: &str = "600s";
/// Duration of a load whose end is awaited, if nothing ends it earlier.
const LOAD: &str = "3s";

/// Faults of the client's end of the link, as arguments of `ip link`.
const FAULTS: [&[&str]; 2] = [&["set", "eth0", "down"], &["delete", "eth0"]];

fn start(lab: &Lab, machine: &str, arguments: &[&str]) -> Running {
    let mut inside = lab.machine(machine).unwrap().command(program());
    inside.args(arguments);
    Run::of(inside, &arguments.join(" ")).start_with(|command| lab.spawn(command))
}

fn ip_link(lab: &Lab, arguments: &[&str]) {
    let mut ip = lab.machine("client").unwrap().command("ip");
    assert!(ip.arg("link").args(arguments).status().unwrap().success(), "ip link {arguments:?}");
}

/// Datagrams the client's end has received so far.
fn received(lab: &Lab) -> u64 {
    let read = || std::fs::read_to_string("/sys/class/net/eth0/statistics/rx_packets");
    lab.machine("client").unwrap().run(read).unwrap().unwrap().trim().parse().unwrap()
}

#[test]
fn a_link_that_goes_under_load_ends_it_in_time() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    for engine in ["socket", "kernel", "xdp"] {
        for fault in FAULTS {
            let case = format!("{engine}, link {fault:?}");
            let host = Host::now();
            let lab = client_and_server("cut", 2);
            let napi = lab.machine("server").unwrap().towards("client").unwrap().ensure_napi().unwrap();
            let mut server =
                start(&lab, "server", &["serve", "echo", "--io", "reuseport", "--bind", "10.0.0.2:7"]);
            server.says("ready");
            let load = ["load", "echo", "10.0.0.2:7", "--json", "--engine", engine, "--flows", "4"];
            let load = start(&lab, "client", &[&load[..], &["-d", LOAD, "--timeout", "200ms"]].concat());
            // The driver sees the kernel engine's replies, and counts them too.
            awaited("transactions to flow", TIMEOUT, || (received(&lab) > 1000).then_some(()));
            ip_link(&lab, fault);
            let since = Instant::now();
            let ended = load.finish();
            assert!(since.elapsed() < Duration::from_secs(15), "{case}: {:?}", since.elapsed());

            // Either partial results, or the reason why there are none; an early end must be reported.
            assert!(matches!(ended.code(), Some(0 | 3)), "{case}: {:?} {}", ended.status, ended.err);
            if ended.code() == Some(3) {
                one_sentence(&case, &ended.err);
            } else {
                assert_eq!(ended.err, "", "{case}");
            }
            let result: Value = serde_json::from_str(&ended.out)
                .unwrap_or_else(|error| panic!("{case}: {error}: {} {}", ended.out, ended.err));
            let count = |what: &str| result["counts"][what].as_u64().unwrap();
            assert!(count("ok") > 500, "{case}: {}", result["counts"]);
            assert_eq!(count("ok") + count("late") + count("lost"), count("sent"), "{case}");
            assert_eq!((count("corrupt"), count("wrong_flow")), (0, 0), "{case}");
            // The reader must learn that conditions changed before the end.
            let lost = count("lost") > 0 || count("send_errors") > 0;
            assert!(ended.code() == Some(3) || lost, "{case}: a link is gone, and nothing says so: {result}");

            server.signal(Signal::TERM);
            assert_eq!(server.finish().code(), Some(0), "{case}");
            drop(napi);
            // After a link was deleted, the lab finds less than it created; that is not a failure.
            lab.down().unwrap_or_else(|error| panic!("{case}: {error:?}"));
            host.is_as_before(&[]);
        }
    }
}

/// A load is signalled while its link is gone: its measurements so far are kept.
#[test]
fn a_signal_ends_a_load_whose_server_is_gone() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    for engine in ["socket", "kernel", "xdp"] {
        let lab = client_and_server("told", 2);
        let _napi = lab.machine("server").unwrap().towards("client").unwrap().ensure_napi().unwrap();
        let mut server = start(&lab, "server", &["serve", "echo", "--bind", "10.0.0.2:7"]);
        server.says("ready");
        let load = ["load", "echo", "10.0.0.2:7", "--json", "--engine", engine, "-d", LONG];
        let load = start(&lab, "client", &load);
        awaited("transactions to flow", TIMEOUT, || (received(&lab) > 1000).then_some(()));
        server.signal(Signal::KILL);
        assert_eq!(server.finish().code(), None);
        load.signal(Signal::TERM);
        let ended = load.finish();
        let result: Value = serde_json::from_str(&ended.out)
            .unwrap_or_else(|error| panic!("{engine}: {error}: {} {}", ended.out, ended.err));
        assert!(result["counts"]["ok"].as_u64().unwrap() > 500, "{engine}: {}", result["counts"]);
        assert!(!ended.err.contains("panicked"), "{engine}: {}", ended.err);
    }
}

/// However a load over AF_XDP ends, its program is detached, and the kernel's sockets receive their datagrams again.
#[test]
fn a_killed_load_leaves_nothing_attached() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let host = Host::now();
    let lab = client_and_server("killed", 2);
    let mut server = start(&lab, "server", &["serve", "echo", "--bind", "10.0.0.2:7"]);
    server.says("ready");
    let ports = ["--source-ports", "5000-5003", "--flows", "4"];
    let load = |engine, time| {
        let load = ["load", "echo", "10.0.0.2:7", "--json", "--engine", engine, "-d", time];
        start(&lab, "client", &[&load[..], &ports].concat())
    };
    let killed = load("xdp", LONG);
    awaited("transactions to flow", TIMEOUT, || (received(&lab) > 1000).then_some(()));
    killed.signal(Signal::KILL);
    let killed = killed.finish();
    assert_eq!((killed.code(), killed.out.as_str(), killed.err.as_str()), (None, "", ""));
    host.is_as_before(&[]);
    let mut ip = lab.machine("client").unwrap().command("ip");
    let shown = ip.args(["-d", "link", "show", "eth0"]).output().unwrap().stdout;
    assert!(!String::from_utf8(shown).unwrap().contains("prog/xdp"));
    let ended = load("socket", "300ms").finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    let result: Value = serde_json::from_str(&ended.out).unwrap();
    assert!(result["counts"]["ok"].as_u64().unwrap() > 10 && result["counts"]["lost"] == 0, "{result}");
    server.signal(Signal::TERM);
    assert_eq!(server.finish().code(), Some(0));
    lab.down().unwrap();
}
