//! Settings that are changed and restored.

use std::time::{Duration, Instant};

use udpath_rig::{Ended, Run, alone, campaign, client_and_server};

use super::{Moments, SEARCH, WAYS};

/// An apply is taken back or complete, and an undo that has begun goes to its end: by each way, at moments from before
/// their first change to after their last.
#[test]
fn an_apply_and_its_undo() {
    const QUEUES: u32 = 16;
    udpath_lab::needs_root!();
    let _alone = alone();
    let lab = client_and_server("ended", QUEUES);
    let server = lab.machine("server").unwrap();
    let interface = server.towards("client").unwrap().name().to_owned();
    let masks = || {
        let mut cat = server.command("sh");
        cat.args(["-c", &format!("cat /sys/class/net/{interface}/queues/rx-*/rps_cpus")]);
        let masks = String::from_utf8(cat.output().unwrap().stdout).unwrap();
        assert_eq!(masks.lines().count(), QUEUES as usize, "{masks}");
        masks
    };
    let before = masks();
    let sets: Vec<String> = (0..QUEUES).map(|queue| format!("{interface}:rps/rx-{queue}=1")).collect();
    let state = tempfile::tempdir().unwrap();
    let at = ["--state", state.path().to_str().unwrap(), "--netns", server.namespace()];
    let apply: Vec<&str> =
        ["apply"].into_iter().chain(sets.iter().flat_map(|set| ["--set", set.as_str()])).chain(at).collect();
    let undo: Vec<&str> = ["undo"].into_iter().chain(at).collect();
    let whole = |arguments: &[&str]| Run::new(arguments).finish();
    let done = |ended: &Ended| assert_eq!(ended.code(), Some(0), "{}", ended.err);
    done(&whole(&apply));
    let all = masks();
    assert_ne!(all, before, "the apply changes what is there");
    let since = Instant::now();
    done(&whole(&undo));
    let span = since.elapsed();
    assert_eq!(masks(), before);

    let rounds = campaign::rounds(3, 50);
    let (mut tried, mut taken_back, mut undone) = (0, 0, 0);
    for way in WAYS {
        let [mut of_apply, mut of_undo] = [(); 2].map(|()| Moments { early: Duration::ZERO, late: span * 2 });
        let mut round = 0;
        while round < rounds || (taken_back == 0 && round < SEARCH) {
            round += 1;
            let moment = of_apply.next();
            let ended = way.end(&apply, moment);
            let now = masks();
            let case = format!("{way:?} after {moment:?}: {:?} {}{}", ended.code(), ended.out, ended.err);
            assert!(now == all || now == before, "half applied: {now} {case}");
            assert!(!ended.err.contains("panicked") && !ended.err.contains("at once"), "{case}");
            taken_back += u32::from(ended.err.contains("interrupted by"));
            of_apply.tried(moment, now == all);
            if now == before {
                let left = whole(&undo);
                assert!(left.err.contains("nothing to undo"), "{case}: {}", left.err);
                done(&whole(&apply));
            }
            let moment = of_undo.next();
            let ended = way.end(&undo, moment);
            let case = format!("{way:?} after {moment:?}: {:?} {}{}", ended.code(), ended.out, ended.err);
            let now = masks();
            assert!(now == before || now == all, "half undone: {now} {case}");
            of_undo.tried(moment, now == before);
            if now == before {
                undone += 1;
            } else {
                done(&whole(&undo));
            }
            assert_eq!(masks(), before, "{case}");
        }
        tried += round;
    }
    assert!(taken_back > 0 && undone > 0, "no signal came in time");
    campaign::record(
        "applies and undos ended by timeout, ^C in a pipeline, a service's stop",
        &format!("{tried} each, taken back {taken_back}, undone {undone}, half done: 0"),
    );
}
