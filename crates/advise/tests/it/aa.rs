//! The verdicts with real traffic: rungs that change nothing are compared with the first, and hardly ever get a verdict.
//! The error rates are proven by simulation (`src/statistics/tests.rs`); this run checks that real trials behave like the
//! simulated ones. `make soak` runs 40 of them. Needs root, and the built program beside this test's own folder.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use udpath_advise::ladder::{Rung, Step};
use udpath_advise::result::Verdict;
use udpath_advise::statistics::Bound;
use udpath_advise::{Config, boost};
use udpath_load::Engine;
use udpath_protocols::echo::EchoLoad;
use udpath_rig::campaign;

/// Rungs that are equal to the first, and how many of them may get a verdict. Each gets one in under 1 % of comparisons:
/// of 4 more than one does in 0.06 % of runs, of 40 more than two in 1 %.
const SHORT: (u32, u32) = (4, 1);
const WHOLE: (u32, u32) = (40, 2);
/// Blocks per rung. Fewer: no verdict is possible, and its absence shows nothing. More: minutes.
const BLOCKS: usize = 8;

fn program() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let program = own.parent().and_then(Path::parent).unwrap().join("udpath");
    assert!(program.is_file(), "no {}: run `cargo build` first, or `make test`", program.display());
    program
}

#[test]
fn equal_rungs_get_no_verdict() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let repetitions = campaign::rounds(SHORT.0, WHOLE.0);
    let most = campaign::rounds(SHORT.1, WHOLE.1);
    let rung = |name: String| Rung { name: name.into(), change: "nothing".into(), step: Step::Base };
    let names = (0..=repetitions).map(|at| if at == 0 { "first".into() } else { format!("equal-{at}") });
    let config = Config {
        program: program(),
        service: Vec::new(),
        queues: 2,
        xps: true,
        moderation: 75,
        ladder: names.map(rung).collect(),
        left_out: Vec::new(),
        workers: 2,
        size: 100,
        flows: 64,
        inflight: 8,
        trial: Duration::from_millis(50),
        bound: Bound::new(0.015, BLOCKS).unwrap(),
        duet: None,
        engine: Engine::Kernel,
        ipv6: false,
        profile: false,
        command: None,
    };
    let result = boost(&config, &EchoLoad::new(1), &mut |_| (), &AtomicBool::new(false)).unwrap();
    assert_eq!(result.rungs.len(), repetitions as usize + 1);
    let decided: Vec<String> = result.rungs[1..]
        .iter()
        .filter(|rung| rung.verdict != Verdict::NotShown)
        .map(|rung| {
            let (low, high) = (rung.ratio_low, rung.ratio_high);
            format!("{} {:?} {:.3} ({low:.3}-{high:.3}) {:?}", rung.name, rung.verdict, rung.ratio, rung.note)
        })
        .collect();
    assert!(decided.len() <= most as usize, "of {repetitions} equal rungs: {decided:#?}");
    // None of it for lack of figures.
    for rung in &result.rungs[1..] {
        assert_eq!(rung.trials.iter().filter(|tps| **tps > 0.0).count(), rung.trials.len(), "{}", rung.name);
        assert!(rung.ratio_low < rung.ratio && rung.ratio < rung.ratio_high, "{}", rung.name);
    }
    // Nor does the order of the trials favour either side, which wide intervals would hide. Only the whole campaign can
    // show it: by chance alone, fewer than 8 or more than 32 of 40 lie above 1 once in 25,000 runs.
    let above = result.rungs[1..].iter().filter(|rung| rung.ratio > 1.0).count();
    assert!(
        repetitions < WHOLE.0 || (8..=32).contains(&above),
        "{above} of {repetitions} equal rungs seem faster than the first"
    );
    campaign::record("equal rungs with a verdict", &format!("{} of {repetitions}", decided.len()));
}
