//! Request after request to end a climb whose servers hang, and the removal of a lab whose processes do.

use std::fs;
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, kill_process};
use udpath_rig::{Host, Run, Running, TIMEOUT, alone, awaited, named};

use super::labs::catches;
use super::{CLIMB, END};

/// A climb whose servers hang, which takes seconds to end, and two requests to end it. Returns what a third leaves.
fn hanging() -> (Running, String) {
    // It waits for each stopped server as long as servers may take, some 30 s in all.
    let mut running = Run::new(&CLIMB).within(END * 3).start();
    running.says("first rung");
    let own = running.pid();
    // Stopped before its exec, a child would keep the thread that starts it waiting for ever.
    let serves = |pid: &String| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(b"serve")
    };
    let children = || {
        let tasks = fs::read_dir(format!("/proc/{own}/task")).unwrap().flatten();
        let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        lists
            .flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
            .filter(serves)
            .collect::<Vec<_>>()
    };
    for pid in awaited("its servers", TIMEOUT, || Some(children()).filter(|all| !all.is_empty())) {
        // One that has just ended is not needed.
        let _ = kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), Signal::STOP);
    }
    running.request();
    running.request();
    let namespaces = format!("network namespaces udpath-{own}-*; to remove them: udpath lab down --stale");
    running.says(&format!("udpath: restoring; a further signal ends at once and leaves {namespaces}\n"));
    (running, namespaces)
}

#[test]
fn a_second_request_still_removes_the_lab_and_a_third_names_it() {
    udpath_lab::needs_root!();
    let _alone = alone();
    let host = Host::now();
    let (running, _) = hanging();
    let ended = running.finish();
    assert_eq!(ended.code(), Some(3), "{}", ended.err);
    let interrupted = "udpath: interrupted; the lab has been removed";
    assert_eq!(ended.err.lines().last(), Some(interrupted), "{}", ended.err);
    host.is_as_before(&[ended.pid]);

    let (mut running, namespaces) = hanging();
    running.request();
    let ended = running.finish();
    assert_eq!(ended.code(), Some(128 + 15), "{}", ended.err);
    let last = format!("udpath: ended at once by a third signal; left {namespaces}");
    assert_eq!(ended.err.lines().last(), Some(last.as_str()), "{}", ended.err);
    assert!(!named(&[ended.pid]).is_empty(), "it has left its lab");
    let swept = Run::new(&["lab", "down", "--stale"]).finish();
    assert_eq!((swept.code(), swept.err.as_str()), (Some(0), ""));
    host.is_as_before(&[ended.pid]);
}

/// Programs in a machine of a kept lab that outlive SIGKILL: the first process of a pid namespace ends once its others
/// have been waited for, and here their parent does not wait.
struct Unkillable {
    _inside: Running,
    first: Pid,
    parent: Child,
}

impl Unkillable {
    fn start(machine: &str) -> Self {
        let run = ["lab", "exec", machine, "--", "unshare", "--pid", "--fork", "sleep", "1000"];
        let inside = Run::new(&run).within(END * 2).start();
        let first = sleeper(inside.pid());
        let mut parent = Command::new("nsenter");
        let parent =
            parent.args(["-t", &first.as_raw_nonzero().to_string(), "-p", "sleep", "1000"]).spawn().unwrap();
        sleeper(parent.id());
        kill_process(Pid::from_child(&parent), Signal::STOP).unwrap();
        Self { _inside: inside, first, parent }
    }
}

impl Drop for Unkillable {
    fn drop(&mut self) {
        // Both fail only if they have ended.
        let _ = kill_process(self.first, Signal::KILL);
        let _ = kill_process(Pid::from_child(&self.parent), Signal::CONT);
        let _ = self.parent.wait();
    }
}

/// Waits until a process has a child that is `sleep`; returns its pid.
fn sleeper(parent: u32) -> Pid {
    awaited("sleep", TIMEOUT, || {
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
        let child: i32 = children.split_whitespace().next()?.parse().ok()?;
        let is_sleep = fs::read_to_string(format!("/proc/{child}/comm")).ok()? == "sleep\n";
        is_sleep.then_some(Pid::from_raw(child)?)
    })
}

/// Each machine keeps its removal waiting for some seconds: four of them, longer than three requests take.
#[test]
fn a_third_request_names_the_command_that_removes_the_rest_of_a_lab() {
    const MACHINES: [&str; 4] = ["a", "b", "c", "d"];
    udpath_lab::needs_root!();
    let _alone = alone();
    let host = Host::now();
    let up = Run::new(&["lab", "up", "rest", "--machines", &MACHINES.join(",")]).finish();
    assert_eq!(up.code(), Some(0), "{}", up.err);
    let unkillable = MACHINES.map(|machine| Unkillable::start(&format!("rest/{machine}")));
    let mut down = Run::new(&["lab", "down", "rest"]).within(END).start();
    awaited("it to watch", TIMEOUT, || catches(down.pid()).then_some(()));
    down.request();
    down.request();
    let rest = "the rest; to remove it: udpath lab down rest";
    down.says(&format!("udpath: removing; a further signal ends at once and leaves {rest}\n"));
    down.request();
    let ended = down.finish();
    assert_eq!(ended.code(), Some(128 + 15), "{}", ended.err);
    let last = format!("udpath: ended at once by a third signal; left {rest}");
    assert_eq!(ended.err.lines().last(), Some(last.as_str()), "{}", ended.err);
    assert!(!named(&[up.pid]).is_empty(), "it has left machines");
    drop(unkillable);
    let removed = Run::new(&["lab", "down", "rest"]).finish();
    assert_eq!((removed.code(), removed.err.as_str()), (Some(0), ""));
    host.is_as_before(&[up.pid]);
}
