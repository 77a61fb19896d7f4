//! `boost --live`: nothing is sent, and what clients send anyway is measured.

use serde_json::Value;
use udpath_rig::{DeferredServer as Bed, Run, TIMEOUT, program};

use crate::inside::{addresses, udpath};

/// `udpath boost --live` of the bed's server.
fn boost(bed: &Bed) -> Run {
    let (pid, state) = (bed.server.pid().to_string(), bed.state.path().to_str().unwrap());
    let mut command = std::process::Command::new(program());
    command.args(["boost", "--live", "--pid", &pid, "--state", state, "--json", "--no-profile"]);
    command.args(["--bound", "10", "--blocks", "3", "--budget", "12s"]);
    Run::of(command, "boost --live").within(TIMEOUT * 4)
}

#[test]
fn changes_are_judged_by_the_cpu_time_of_what_clients_send() {
    udpath_lab::needs_root!();
    let bed = Bed::new("boost-live");
    let [v4, _] = addresses(&bed.lab);
    let target = format!("{v4}:{}", Bed::PORT);
    let arguments = ["load", "echo", &target, "--flows", "16", "--rate", "5k", "-d", "120s"];
    let _clients = udpath(&bed.lab, "client", &arguments);
    let ended = boost(&bed).finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    let result: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(result["load"]["engine"], "live");
    let rungs = result["rungs"].as_array().unwrap();
    assert!(rungs.len() > 1, "{}", ended.err);
    let found = &rungs[0];
    // What the clients sent in the trials, and what one second of CPU time carries of it: more than a thousandth of a
    // second for each would be no server.
    let (trials, sent) =
        (found["trials"].as_array().unwrap().len(), found["counts"]["sent"].as_u64().unwrap());
    assert!(sent >= 2_000 * trials as u64, "{found}");
    assert!(found["tps"].as_f64().unwrap() > 1_000.0, "{found}");
    assert!(ended.err.contains(" per CPU s"), "{}", ended.err);
    // Time inside the machine, of a sample of them: more than nothing, less than the trial.
    for rung in rungs.iter().filter(|rung| rung["verdict"] != "failed") {
        let latency = &rung["latency"];
        assert!(latency["count"].as_u64().unwrap() > 100, "{rung}");
        let (p50, max) = (latency["p50"].as_u64().unwrap(), latency["max"].as_u64().unwrap());
        assert!((500..1_000_000_000).contains(&p50) && p50 <= max, "{latency}");
    }
    assert_eq!(bed.settings(), Bed::arranged());
    assert!(bed.inside("undo").err.contains("nothing to undo"));
}

#[test]
fn without_traffic_it_says_so() {
    udpath_lab::needs_root!();
    let bed = Bed::new("boost-quiet");
    let ended = boost(&bed).finish();
    assert_eq!(ended.code(), Some(3), "{}", ended.err);
    assert!(ended.err.contains("no datagram arrived for udpath"), "{}", ended.err);
    assert_eq!(bed.settings(), Bed::arranged());
}
