//! Request after request to end an apply, and an undo, whose restart command hangs.

use udpath_rig::Running;

use super::*;

/// While this file exists, the restart command waits.
const HOLD: &str = "hold";
/// The pid of a restart command that waits, or has waited.
const HELD: &str = "held";

/// The restart command of a server that can be held. Without the mark of a run of udpath, since it outlives one that
/// ends at once.
fn restart(nsd: &Nsd) -> String {
    let (path, hold, held) = (nsd.path("held-restart"), nsd.path(HOLD), nsd.path(HELD));
    let (hold, held, restart) = (hold.display(), held.display(), nsd.path("restart"));
    let script = format!(
        "[ ! -e {hold} ] || echo $$ > {held}\nwhile [ -e {hold} ]; do sleep 0.02; done\nexec /bin/sh {}\n",
        restart.display()
    );
    fs::write(&path, script).unwrap();
    format!("exec env -u UDPATH_TEST_RUN /bin/sh {}", path.display())
}

/// The process of the restart command, if it runs.
fn held(nsd: &Nsd) -> Option<u32> {
    let pid = fs::read_to_string(nsd.path(HELD)).ok()?.trim().parse().ok()?;
    fs::read_link(format!("/proc/{pid}/exe")).is_ok().then_some(pid)
}

/// Lets the restart command go on.
fn release(nsd: &Nsd) {
    fs::remove_file(nsd.path(HOLD)).unwrap();
}

fn left(nsd: &Nsd) -> String {
    format!("changed settings; to restore them: udpath undo --state {}", nsd.path("state").display())
}

/// Runs udpath until its restart command hangs, and asks it twice to end.
fn asked_twice(nsd: &Nsd, arguments: &[&str]) -> Running {
    fs::write(nsd.path(HOLD), "").unwrap();
    let mut running = udpath(&nsd.lab, "server", &nsd.with_state(arguments));
    awaited("the restart command", TIMEOUT, || held(nsd));
    running.request();
    running.request();
    running.says(&format!("udpath: restoring; a further signal ends at once and leaves {}\n", left(nsd)));
    running
}

/// And a third time: it ends while the command still hangs.
fn asked_three_times(nsd: &Nsd, arguments: &[&str]) {
    let mut running = asked_twice(nsd, arguments);
    running.request();
    let said = running.finish();
    ended(&said, 128 + 15, "");
    let last = format!("udpath: ended at once by a third signal; left {}", left(nsd));
    assert_eq!(said.err.lines().last(), Some(last.as_str()), "{}", said.err);
    assert!(held(nsd).is_some(), "its command hangs");
    release(nsd);
    awaited("the command to end", TIMEOUT, || held(nsd).is_none().then_some(()));
}

#[test]
fn an_apply_whose_restart_hangs_is_taken_back_and_ends_at_once_at_the_third_request() {
    udpath_lab::needs_root!();
    let nsd = Nsd::start("requests-apply");
    let (before, restart) = (nsd.files(), restart(&nsd));
    let apply = apply_with(&restart);
    let running = asked_twice(&nsd, &apply);
    release(&nsd);
    ended(&running.finish(), 4, "interrupted by SIGTERM; ");
    assert_eq!(nsd.files(), before);
    ended(&nsd.run(&["undo"]), 3, "nothing to undo");
    nsd.has_servers(1);

    asked_three_times(&nsd, &apply);
    assert_ne!(nsd.files(), before, "it has left the change");
    ended(&nsd.run(&["undo"]), 0, "undid apply");
    assert_eq!(nsd.files(), before);
    nsd.has_servers(1);
    assert!(nsd.answers());
}

#[test]
fn an_undo_whose_restart_hangs_goes_to_its_end_and_ends_at_once_at_the_third_request() {
    udpath_lab::needs_root!();
    let nsd = Nsd::start("requests-undo");
    let (before, restart) = (nsd.files(), restart(&nsd));
    ended(&nsd.run(&apply_with(&restart)), 0, "applied and verified");
    let running = asked_twice(&nsd, &["undo"]);
    release(&nsd);
    ended(&running.finish(), 0, "undid apply");
    assert_eq!(nsd.files(), before);
    nsd.has_servers(1);

    ended(&nsd.run(&apply_with(&restart)), 0, "applied and verified");
    asked_three_times(&nsd, &["undo"]);
    ended(&nsd.run(&["undo"]), 0, "undid apply");
    assert_eq!(nsd.files(), before);
    nsd.has_servers(1);
    assert!(nsd.answers());
}
