//! A port that two programs share, or an instance from before an update with the new one; beside a server of two
//! processes, and two instances of one file, under the same load.

use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;
use udpath_lab::LinkSpec;
use udpath_rig::{Bed, Running, copy_program};

use super::{PORT, file, first_is, found_first, silent};

/// What is found while these run: programs with `server.py`, or a copy of it by another name, and so many workers.
fn diagnosed(servers: &[(&str, u32)]) -> (Vec<u32>, Value) {
    let bed = Bed::new("shared", &LinkSpec::with_queues(1));
    let started = |(script, workers): &(&str, u32)| -> Running {
        let arguments = [*script, &PORT.to_string(), "0", "0", &workers.to_string()];
        let mut server = bed.start("server", "python3", &arguments);
        server.says("ready");
        server
    };
    let servers: Vec<Running> = servers.iter().map(started).collect();
    let load = bed.load(&["echo", &bed.target(PORT), "--rate", "1k", "--flows", "32", "-d", "20s"]);
    std::thread::sleep(std::time::Duration::from_millis(300));
    let ended = bed.diagnose(&[&PORT.to_string(), "-d", "2s", "--json"]);
    let pids = servers.iter().map(Running::pid).collect();
    for one in std::iter::once(load).chain(servers) {
        one.signal(Signal::TERM);
        drop(one);
    }
    bed.down();
    (pids, udpath_rig::json(&ended.out))
}

#[test]
fn two_programs_on_one_port_are_named_and_the_processes_of_one_server_are_not() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let folder = tempfile::tempdir().unwrap();
    let server = file("server.py");
    let other = folder.path().join("probe.py");
    std::fs::copy(&server, &other).unwrap();
    let (cause, probe) = ("two programs on one port", other.display().to_string());
    found_first(cause, || {
        let (pids, json) = diagnosed(&[(&server, 1), (&probe, 1)]);
        let wrong = first_is(&json, Some("port-shared"));
        if wrong.is_none() {
            let evidence = json["findings"][0]["evidence"].as_str().unwrap();
            for (script, pid) in ["server.py", "probe.py"].iter().zip(pids) {
                let named = format!(" {script} (pid {pid}; 1 socket, about 50 % of the flows)");
                assert!(evidence.contains(&named), "{evidence}");
            }
        }
        wrong
    });
    silent(cause, || first_is(&diagnosed(&[(&server, 2)]).1, None));
}

/// A shell's child, so that none of them started another: `server.py`, run by a copy of its interpreter.
fn instance(bed: &Bed, copy: &Path) -> Running {
    let line = format!("PYTHONHOME=/usr {} {} {PORT} 0 0 1; true", copy.display(), file("server.py"));
    let mut shell = bed.start("server", "sh", &["-c", &line]);
    shell.says("ready");
    shell
}

/// What is found of two instances, and whether the file was replaced after the start of the first.
fn updated(replaced: bool) -> Value {
    let bed = Bed::new("updated", &LinkSpec::with_queues(1));
    let folder = tempfile::tempdir().unwrap();
    let [copy, next] = ["python3", "next"].map(|name| folder.path().join(name));
    let interpreter = std::fs::canonicalize("/usr/bin/python3").unwrap();
    copy_program(&interpreter, &copy);
    let old = instance(&bed, &copy);
    if replaced {
        copy_program(&interpreter, &next);
        std::fs::rename(&next, &copy).unwrap();
    }
    let new = instance(&bed, &copy);
    let load = bed.load(&["echo", &bed.target(PORT), "--rate", "1k", "--flows", "32", "-d", "20s"]);
    std::thread::sleep(std::time::Duration::from_millis(300));
    let ended = bed.diagnose(&[&PORT.to_string(), "-d", "2s", "--json"]);
    drop((load, old, new));
    bed.down();
    udpath_rig::json(&ended.out)
}

#[test]
fn an_instance_from_before_an_update_is_named_and_two_of_one_file_are_not() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let cause = "an instance from before an update";
    found_first(cause, || {
        let json = updated(true);
        let wrong = first_is(&json, Some("port-shared"));
        if wrong.is_none() {
            let evidence = json["findings"][0]["evidence"].as_str().unwrap();
            assert_eq!(evidence.matches(", of a file that was replaced;").count(), 1, "{evidence}");
        }
        wrong
    });
    silent(cause, || first_is(&updated(false), None));
}
