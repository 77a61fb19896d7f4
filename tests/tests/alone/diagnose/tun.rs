//! A tun interface whose program does not read it in time, beside one whose program does.

use rustix::process::Signal;
use serde_json::Value;
use udpath_lab::LinkSpec;
use udpath_rig::{Bed, Running};

use super::{file, first_is, found_first, silent};

/// 20 datagrams every 2 ms to a host behind the interface, and a server's socket, as a machine under diagnosis has.
const SENDER: &str = "import socket, sys, time\n\
                      here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); here.bind(('0.0.0.0', 7000))\n\
                      out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                      print('ready', file=sys.stderr, flush=True)\n\
                      end = time.monotonic() + 30\n\
                      while time.monotonic() < end:\n\
                      \x20   [out.sendto(b'x' * 200, ('10.8.0.2', 9)) for _ in range(20)]\n\
                      \x20   time.sleep(.002)\n";

fn diagnosed(sleep_ms: &str) -> (u32, Value) {
    let bed = Bed::new("tun", &LinkSpec::with_queues(1));
    let started = |program: &str, arguments: &[&str]| -> Running {
        let mut running = bed.start("server", program, arguments);
        running.says("ready");
        running
    };
    let reader = started("python3", &[&file("tun.py"), sleep_ms]);
    let sender = started("python3", &["-c", SENDER]);
    let ended = bed.diagnose(&["-d", "2s", "--json"]);
    let pid = reader.pid();
    for one in [sender, reader] {
        one.signal(Signal::TERM);
        drop(one);
    }
    bed.down();
    (pid, udpath_rig::json(&ended.out))
}

#[test]
fn the_program_behind_a_tun_interface_is_named() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let cause = "a program that does not read its tun interface";
    found_first(cause, || {
        let (pid, slow) = diagnosed("1");
        let wrong = first_is(&slow, Some("tun-reader-slow"));
        if wrong.is_none() {
            let found = &slow["findings"][0];
            let evidence = found["evidence"].as_str().unwrap();
            assert!(
                evidence.starts_with("tun0 dropped ") && evidence.contains(&format!("(pid {pid})")),
                "{evidence}"
            );
            assert!(!found["remedies"].to_string().contains("faster interface"), "{found:#}");
        }
        wrong
    });
    silent(cause, || first_is(&diagnosed("0").1, None));
}
