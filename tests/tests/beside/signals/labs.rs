//! Kept labs, while they are built and while they are removed.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use udpath_rig::{Ended, Host, Run, TIMEOUT, alone, awaited, campaign};

use super::{END, Moments, SEARCH, WAYS, entries, pid_of, traces};

/// Machines of a lab, each linked to all others: its start and its end take some hundred milliseconds.
const MACHINES: usize = 12;

fn machines() -> String {
    let names: Vec<String> = (0..MACHINES).map(|number| format!("m{number}")).collect();
    names.join(",")
}

#[test]
fn a_kept_lab_that_is_not_complete() {
    udpath_lab::needs_root!();
    let _alone = alone();
    let host = Host::now();
    let machines = machines();
    let arguments = ["lab", "up", "interrupted", "--queues", "2", "--machines", &machines];
    let rounds = campaign::rounds(3, 50);
    for _ in 0..rounds {
        let running = Run::new(&arguments).within(END).start();
        let pid = [running.pid()];
        awaited("the lab's record", TIMEOUT, || entries(Path::new("/run/udpath/lab")).pop());
        running.signal(Signal::TERM);
        running.signal(Signal::HUP);
        let ended = running.finish();
        // It may be complete by then.
        if ended.code() == Some(0) {
            assert_eq!(Run::new(&["lab", "down", "interrupted"]).finish().code(), Some(0));
        } else {
            assert_eq!(ended.code(), Some(3), "{}", ended.err);
            // Of two that wait, the kernel delivers the one with the lower number first.
            let removed =
                |signal| ended.err.contains(&format!("interrupted by {signal}; the lab has been removed"));
            assert!(removed("SIGTERM") || removed("SIGHUP"), "{}", ended.err);
        }
        host.is_as_before(&pid);
    }
    campaign::record("kept labs, ended while they are built", &format!("{rounds}, leaving anything: 0"));
}

#[test]
fn a_kept_lab_that_is_being_removed() {
    udpath_lab::needs_root!();
    let _alone = alone();
    let host = Host::now();
    let machines = machines();
    let up = ["lab", "up", "removed", "--machines", &machines];
    let (rounds, mut in_time) = (campaign::rounds(3, 50), 0);
    for round in 0..rounds {
        let made = Run::new(&up).within(END).finish();
        assert_eq!(made.code(), Some(0), "{}", made.err);
        let running = Run::new(&["lab", "down", "removed"]).within(END).start();
        let pid = running.pid();
        // Its own handlers are set, or it has ended: before, a signal ends it, and the lab is whole.
        awaited("it to watch", TIMEOUT, || (catches(pid) || ended(pid)).then_some(()));
        std::thread::sleep(Duration::from_millis(u64::from(round % 10) * 5));
        in_time += u32::from(!ended(pid));
        running.signal(Signal::TERM);
        running.signal(Signal::HUP);
        let down = running.finish();
        assert_eq!((down.code(), down.err.as_str()), (Some(0), ""), "round {round}");
        host.is_as_before(&[made.pid, pid]);
    }
    assert!(in_time > 0, "each had ended before its signals");
    campaign::record(
        "kept labs that got two signals while removed",
        &format!("{rounds}, leaving anything: 0"),
    );
}

/// Whether a process has a handler for SIGTERM.
pub(super) fn catches(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let bits = caught.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0);
    bits & 1 << (Signal::TERM.as_raw() - 1) != 0
}

/// Whether a child has ended, and waits for its parent.
fn ended(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('Z'))
}

/// By each way: one that is being built is whole then, or not there; one that is being removed goes, or is whole.
#[test]
fn a_kept_lab_that_is_built_and_removed() {
    udpath_lab::needs_root!();
    let _alone = alone();
    let host = Host::now();
    let before = traces();
    let machines = machines();
    let up = ["lab", "up", "ways", "--queues", "2", "--machines", &machines];
    let down = ["lab", "down", "ways"];
    let is_there = |case: &str| {
        // A namespace for each machine, and the lab's record.
        let made = [Path::new("/run/netns"), Path::new("/run/udpath/lab")].into_iter().flat_map(entries);
        match made.filter(|path| !before.contains(path)).count() {
            0 => false,
            made => {
                assert_eq!(made, MACHINES + 1, "half of it: {case}");
                true
            }
        }
    };
    let done = |arguments: &[&str]| {
        let since = Instant::now();
        let ended = Run::new(arguments).within(END).finish();
        assert_eq!(ended.code(), Some(0), "{}", ended.err);
        since.elapsed()
    };
    let [to_build, to_remove] = [&up[..], &down].map(done);
    let shown = |ended: &Ended, moment: Duration| {
        format!("{} after {moment:?}: {:?} {}{}", ended.shown, ended.code(), ended.out, ended.err)
    };

    let rounds = campaign::rounds(2, 50);
    let (mut tried, mut taken_back, mut removed) = (0, 0, 0);
    for way in WAYS {
        let [mut of_up, mut of_down] =
            [to_build, to_remove].map(|span| Moments { early: Duration::ZERO, late: span * 2 });
        let mut round = 0;
        while round < rounds || (taken_back == 0 && round < SEARCH) {
            round += 1;
            let moment = of_up.next();
            let ended = way.end(&up, moment);
            let case = shown(&ended, moment);
            let whole = is_there(&case);
            assert!(!ended.err.contains("panicked") && !ended.err.contains("at once"), "{case}");
            taken_back += u32::from(ended.err.contains("; the lab has been removed"));
            of_up.tried(moment, whole);
            if !whole {
                host.is_as_before(&[pid_of(&ended)]);
                done(&up);
            }
            let moment = of_down.next();
            let ended = way.end(&down, moment);
            let case = shown(&ended, moment);
            let whole = is_there(&case);
            assert!(!ended.err.contains("panicked") && !ended.err.contains("at once"), "{case}");
            of_down.tried(moment, !whole);
            removed += u32::from(!whole);
            if whole {
                done(&down);
            }
            host.is_as_before(&[]);
            awaited(&format!("nothing new: {case}"), TIMEOUT, || traces().is_subset(&before).then_some(()));
        }
        tried += round;
    }
    assert!(taken_back > 0 && removed > 0, "no signal came in time");
    campaign::record(
        "kept labs built and removed, ended by timeout, ^C in a pipeline, a service's stop",
        &format!("{tried} each, taken back {taken_back}, removed {removed}, half there: 0"),
    );
}
