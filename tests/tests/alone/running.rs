//! `boost` of a server that runs already finds what helps, and keeps it on request. A program that takes the CPUs makes trials differ
//! by more than that.

use serde_json::Value;
use udpath_rig::{DeferredServer as Bed, alone, judged};

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
