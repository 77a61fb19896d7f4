//! The verdicts with real traffic: rungs that change nothing are compared with the first, and hardly ever get a
//! verdict. The error rates are proven by simulation (`src/statistics/tests.rs`); this run checks that real trials
//! behave like the simulated ones. Needs root, and the built program beside this test's own folder.

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

/// Rungs of a climb that are equal to the first.
const RUNGS: u32 = 4;
/// Climbs, and the most verdicts allowed: fewer than 5 %. If under 1 % of comparisons get one, as in simulations, more
/// than three of 80 do in 1 % of runs.
const CLIMBS: u32 = 20;
const MOST: usize = 3;
/// Blocks per rung. Fewer: no verdict is possible, and its absence shows nothing. More: minutes.
const BLOCKS: usize = 8;

fn program() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let program = own.parent().and_then(Path::parent).unwrap().join("udpath");
    assert!(program.is_file(), "no {}: run `cargo build` first, or `make test`", program.display());
    program
}

#[test]
#[ignore = "in make soak: a minute and a half for one climb, which shows little; simulations show the rate in make test"]
fn equal_rungs_get_no_verdict() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let rung = |name: String| Rung { name: name.into(), change: "nothing".into(), step: Step::Base };
    let names = (0..=RUNGS).map(|at| if at == 0 { "first".into() } else { format!("equal-{at}") });
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
    let (mut decided, mut above) = (Vec::new(), 0);
    for climb in 1..=CLIMBS {
        let result = boost(&config, &EchoLoad::new(1), &mut |_| (), &AtomicBool::new(false)).unwrap();
        assert_eq!(result.rungs.len(), RUNGS as usize + 1);
        for rung in &result.rungs[1..] {
            // None of it for lack of figures.
            assert_eq!(
                rung.trials.iter().filter(|tps| **tps > 0.0).count(),
                rung.trials.len(),
                "{}",
                rung.name
            );
            let (low, high) = (rung.ratio_low, rung.ratio_high);
            assert!(low < rung.ratio && rung.ratio < high, "{}", rung.name);
            above += u32::from(rung.ratio > 1.0);
            if rung.verdict != Verdict::NotShown {
                let (verdict, ratio, note) = (rung.verdict, rung.ratio, &rung.note);
                decided.push(format!(
                    "climb {climb}, {} {verdict:?} {ratio:.3} ({low:.3}-{high:.3}) {note:?}",
                    rung.name
                ));
            }
        }
    }
    let rungs = CLIMBS * RUNGS;
    campaign::record(
        "verdicts on equal rungs",
        &format!("{} of {rungs}, in climbs of {RUNGS}; at most {MOST} allowed", decided.len()),
    );
    assert!(decided.len() <= MOST, "of {rungs} equal rungs: {decided:#?}");
    // Nor does the order of the trials favour either side, which wide intervals would hide: by chance alone, fewer than
    // 23 or more than 57 of 80 lie above 1 once in 10,000 runs.
    assert!((23..=57).contains(&above), "{above} of {rungs} equal rungs seem faster than the first");
}
