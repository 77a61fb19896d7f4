//! Signals at instances and their supervisor: in every way in which a group of processes is ended, and request after
//! request while an instance hangs.

use super::servers::kill;
use super::*;
use crate::signals::{Says, leaves_nothing_and};

#[test]
fn instances_ended_in_every_way() {
    udpath_lab::needs_root!();
    udpath_rig::needs_cpus!(2);
    let scene = Scene::new("ways");
    let (state, file, port) = (scene.text("journal"), scene.text("server.py"), scene.port.to_string());
    let multiply = ["multiply", &scene.name, "--state", &state, "-n", "2"];
    let arguments = [&multiply[..], &["--", "python3", &file, &port, "pid"]].concat();
    leaves_nothing_and("instances", &arguments, 1, Says::Out("chosen by flow hash"), |ended| {
        // Nothing that only the next start would take back.
        scene.nothing_is_left();
        assert!(!ended.err.contains("took back"), "{}", ended.err);
        let undo = Run::new(&["undo", "--state", &state]).finish();
        assert!(undo.err.contains("nothing to undo"), "{}", undo.err);
    });
}

/// Instances of which one does not end, and two requests to end them.
fn asked_twice(scene: &Scene) -> (Running, u32) {
    // Longer than the test waits for their end.
    let mut running = scene.python(&["-n", "2", "--drain-limit", "300s"], "pid");
    let hangs = scene.pids()[1];
    kill(hangs, Signal::STOP);
    running.request();
    running.request();
    running
        .says(&format!("udpath: ending the instances; a further signal ends at once and leaves {GUARDED}\n"));
    (running, hangs)
}

/// What a third request leaves.
const GUARDED: &str = "the instances to their guard, which ends them";

#[test]
fn a_second_request_still_ends_them_in_order_and_a_third_leaves_them_to_the_guard() {
    udpath_lab::needs_root!();
    udpath_rig::needs_cpus!(2);
    let _alone = udpath_rig::alone();
    let scene = Scene::new("requests");
    let (running, hangs) = asked_twice(&scene);
    kill(hangs, Signal::CONT);
    let ended = running.finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    // By its supervisor, which prints the table of the last state.
    assert!(!ended.err.contains("at once by") && ended.out.contains("2 instances at"), "{}", ended.err);
    scene.nothing_is_left();

    let (mut running, hangs) = asked_twice(&scene);
    running.request();
    let ended = running.finish();
    assert_eq!(ended.code(), Some(128 + 15), "{}", ended.err);
    let last = format!("udpath: ended at once by a third signal; left {GUARDED}");
    assert_eq!(ended.err.lines().last(), Some(last.as_str()), "{}", ended.err);
    // The guard has ended as well by now.
    assert!(!killed::runs(hangs), "it was stopped");
    scene.nothing_is_left();
}
