//! The verdicts, with real traffic: 40 rungs that change nothing are each raced against the first, and hardly
//! ever told apart. Needs root, and the built program beside this test's own folder.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use udpath_advise::ladder::{Rung, Step};
use udpath_advise::result::Verdict;
use udpath_advise::statistics::Bound;
use udpath_advise::{Config, boost};
use udpath_load::Engine;
use udpath_protocols::echo::EchoLoad;

/// Rungs that are equal to the first.
const REPETITIONS: usize = 40;
/// How many of them must not be told apart: 95 %.
const NOT_SHOWN: usize = 38;
/// Blocks per rung. Fewer: with so few a verdict is out of reach, and its absence shows nothing.
/// More: minutes.
const BLOCKS: usize = 8;

fn program() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let program = own.parent().and_then(Path::parent).unwrap().join("udpath");
    assert!(program.is_file(), "no {}: run `cargo build` first, or `make test`", program.display());
    program
}

#[test]
fn equal_rungs_are_not_told_apart() {
    let rung = |name: String| Rung { name: name.into(), change: "nothing".into(), step: Step::Base };
    let names = (0..=REPETITIONS).map(|at| if at == 0 { "first".into() } else { format!("equal-{at}") });
    let config = Config {
        program: program(),
        queues: 2,
        moderation: 75,
        ladder: names.map(rung).collect(),
        workers: 2,
        size: 100,
        flows: 64,
        inflight: 8,
        trial: Duration::from_millis(50),
        bound: Bound::new(0.015, BLOCKS).unwrap(),
        engine: Engine::Kernel,
        ipv6: false,
        profile: false,
        command: None,
    };
    let result = boost(&config, &EchoLoad::new(1), &mut |_| (), &AtomicBool::new(false)).unwrap();
    assert_eq!(result.rungs.len(), REPETITIONS + 1);
    let told: Vec<String> = result.rungs[1..]
        .iter()
        .filter(|rung| rung.verdict != Verdict::NotShown)
        .map(|rung| {
            let (low, high) = (rung.ratio_low, rung.ratio_high);
            format!("{} {:?} {:.3} ({low:.3}-{high:.3}) {:?}", rung.name, rung.verdict, rung.ratio, rung.note)
        })
        .collect();
    assert!(told.len() <= REPETITIONS - NOT_SHOWN, "told apart: {told:#?}");
    // None of it for want of figures.
    for rung in &result.rungs[1..] {
        assert_eq!(rung.trials.iter().filter(|tps| **tps > 0.0).count(), rung.trials.len(), "{}", rung.name);
        assert!(rung.ratio_low < rung.ratio && rung.ratio < rung.ratio_high, "{}", rung.name);
    }
    // Nor does the order of the trials favour either side, which wide intervals would hide: by chance alone, fewer than 8
    // or more than 32 of 40 lie above 1 once in 25,000 runs.
    let above = result.rungs[1..].iter().filter(|rung| rung.ratio > 1.0).count();
    assert!(
        (8..=32).contains(&above),
        "{above} of {REPETITIONS} equal rungs seem faster than what was first"
    );
}
