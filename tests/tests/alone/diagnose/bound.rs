//! A reader that may run only on the CPU that softirqs take, beside one that is idle; and its twin under the same load,
//! which may run on both.

use rustix::process::Signal;
use serde_json::Value;
use udpath_lab::LinkSpec;
use udpath_rig::{Bed, program};

use super::{PORT, first_is, found_first, severe, silent};

const FOUND: &str = "readers-on-softirq-cpus";

/// What is found of a server on these CPUs. On a link of one queue a request is sent where the last reply came in, and
/// received there, so that all softirqs are on the CPU of the reader.
fn diagnosed(cpus: &str) -> (u32, Value) {
    let bed = Bed::new("bound", &LinkSpec::with_queues(1)).polled();
    let (program, bind) = (program().display().to_string(), format!("0.0.0.0:{PORT}"));
    let serve = ["serve", "echo", "--io", "shared", "--workers", "1", "--no-pin", "--rcvbuf", "8000000"];
    let mut server =
        bed.start("server", "taskset", &[&["-c", cpus, &*program], &serve[..], &["--bind", &bind]].concat());
    server.says("ready io=");
    let closed = ["--engine", "kernel", "--flows", "64", "--inflight", "2", "-d", "20s"];
    let load = bed.load(&[&["echo", &bed.target(PORT)], &closed[..]].concat());
    std::thread::sleep(std::time::Duration::from_millis(300));
    let ended = bed.diagnose(&[&PORT.to_string(), "-d", "2s", "--json"]);
    let pid = server.pid();
    for one in [load, server] {
        one.signal(Signal::TERM);
        drop(one);
    }
    bed.down();
    (pid, udpath_rig::json(&ended.out))
}

#[test]
fn a_reader_bound_to_the_cpu_of_softirqs_is_named_with_the_cpu_that_is_idle() {
    udpath_lab::needs_root!();
    udpath_rig::needs_cpus!(2);
    let _turn = udpath_rig::alone();
    let cause = "a reader bound to the CPU of softirqs";
    found_first(cause, || {
        let (pid, json) = diagnosed("0");
        let wrong = first_is(&json, Some(FOUND));
        if wrong.is_none() {
            let found = &json["findings"][0];
            let evidence = found["evidence"].as_str().unwrap();
            let begins = format!("the threads of udpath (pid {pid}) may run only on CPU 0, which spent ");
            assert!(evidence.starts_with(&begins) && evidence.contains("; CPU 1 was "), "{evidence}");
            let moved = found["remedies"][0]["changes"]["settings"][0].as_str().unwrap();
            assert!(
                moved.starts_with(&format!("thread:{pid}/")) && moved.ends_with(":affinity=1"),
                "{moved}"
            );
        }
        wrong
    });
    silent(cause, || {
        let (_, json) = diagnosed("0,1");
        severe(&json).contains(&FOUND).then(|| format!("{:#}", json["findings"]))
    });
}
