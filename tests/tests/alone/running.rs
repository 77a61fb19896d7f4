//! `boost` of a server that runs already finds what helps, and keeps it on request. A program that takes the CPUs makes
//! trials differ by more than that.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use udpath_rig::{DeferredServer as Bed, Run, TIMEOUT, alone, client_and_server, judged, program};

/// Names of what helps.
fn kept(result: &Value) -> Vec<&str> {
    let kept = result["running"]["kept"].as_array().unwrap();
    kept.iter().map(|helps| helps["name"].as_str().unwrap()).collect()
}

#[test]
fn what_helps_is_found_and_nothing_stays_changed() {
    udpath_lab::needs_root!();
    let _alone = alone();
    judged("what helps is found", found);
}

fn found() {
    let bed = Bed::new("boost-found");
    let ended = bed.boost(&["--budget", "10s"]).finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    let result: Value = serde_json::from_str(&ended.out).unwrap();
    // Each removes the cause, as the gain shows; which of them is fastest is within the noise of a busy machine.
    let found = |name: &&str| ["no-defer", "defer-20us", "defer-75us"].contains(name);
    assert!(kept(&result).iter().any(found), "{:#}", result["running"]);
    assert!(result["gain"]["low"].as_f64().unwrap() > 2.0, "{}", result["gain"]);
    assert_eq!(result["running"]["pids"][0], bed.server.pid());
    assert_eq!(bed.settings(), Bed::arranged());
    // Nothing to undo is left in the journal.
    let undo = bed.inside("undo");
    assert!(undo.err.contains("nothing to undo"), "{}", undo.err);
}

#[test]
fn what_helps_is_kept_on_request_and_undone_exactly() {
    udpath_lab::needs_root!();
    let _alone = alone();
    judged("what helps is kept", kept_on_request);
}

fn kept_on_request() {
    let bed = Bed::new("boost-kept");
    let ended = bed.boost(&["--budget", "1s", "--keep"]).finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    let result: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(kept(&result), ["no-defer"], "the budget is one race");
    assert_eq!(result["running"]["out_of_time"], true);
    assert_eq!(bed.settings(), ["0", "0"]);
    // A boot does not know this namespace.
    let fleeting = result["running"]["fleeting"].as_array().unwrap();
    assert_eq!((fleeting.len(), &fleeting[0]["until"]), (1, &Value::from("boot")), "{fleeting:?}");
    assert!(fleeting[0]["why"].as_str().unwrap().contains("network namespace"), "{fleeting:?}");
    let undo = bed.inside("undo");
    assert_eq!(undo.code(), Some(0), "{}", undo.err);
    assert_eq!(bed.settings(), Bed::arranged());
}

/// One thread and the kernel's buffer for as many requests as that hardly holds: they are lost in most trials.
#[test]
fn a_server_that_loses_is_searched_within_the_budget_and_what_a_restart_would_help_is_said() {
    udpath_lab::needs_root!();
    udpath_rig::needs_cpus!(2);
    let _alone = alone();
    judged("a server that loses is searched within the budget", searched);
}

fn searched() {
    let (lab, state) = (client_and_server("boost-loses", 2), tempfile::tempdir().unwrap());
    lab.machine("server").unwrap().towards("client").unwrap().keep_napi().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/alone/diagnose/server.py");
    let mut python = lab.machine("server").unwrap().command("python3");
    python.arg(script).args([&*Bed::PORT.to_string(), "0", "0", "1"]);
    let server = Run::of(python, "an echo in Python").within(TIMEOUT * 20);
    let mut server = server.start_with(|command| lab.spawn(command));
    server.says("ready");

    let [client, inside] = ["client", "server"].map(|name| lab.machine(name).unwrap().namespace());
    let target = format!("{}:{}", lab.address_of("server", "client").unwrap().ipv4, Bed::PORT);
    let mut command = Command::new(program());
    command.args(["boost", "--port", &Bed::PORT.to_string(), "--netns", inside, "--from", client, "--json"]);
    command.args(["--state", state.path().to_str().unwrap(), "--budget", "45s", "--duration", "300ms"]);
    command.args(["--load", "echo", &target, "--engine", "kernel", "--flows", "64", "--inflight", "4"]);
    let ended = Run::of(command, "boost").within(TIMEOUT * 20).finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    // On a pipe progress is lines: `[9/11] screening busy-poll:   136 k tps  block 1 of at most 1`.
    for progress in ["profiling\n", "] screening ", " against as found: "] {
        assert!(ended.err.contains(progress), "{progress:?}: {}", ended.err);
    }
    let result: Value = serde_json::from_str(&ended.out).unwrap();
    assert!(result["running"]["screened"].as_u64() >= Some(8), "{}{}", result["running"], ended.err);
    assert!(result["seconds"].as_f64().unwrap() <= 45.0 * 1.2, "{} s", result["seconds"]);

    // Without consent to a restart none was tried, and the command is there all the same, with the rate to expect.
    let found = &result["diagnoses"][0];
    assert_eq!(found["rung"], "as found");
    let (carried, findings) =
        (&found["diagnosis"]["capacity"]["carried"], found["diagnosis"]["findings"].as_array().unwrap());
    let remedies = findings.iter().flat_map(|finding| finding["remedies"].as_array().unwrap());
    let multiply = remedies.map(|remedy| &remedy["command"]).find(|remedy| {
        let command = remedy["command"].as_str().unwrap_or_default();
        command.ends_with(&format!("udpath multiply -n 2 --port {} -- COMMAND", Bed::PORT))
    });
    let expected = multiply.and_then(|remedy| remedy["expected"].as_f64());
    assert!(expected > carried["rate"].as_f64().map(|rate| rate * 0.7), "{carried}: {findings:#?}");
}
