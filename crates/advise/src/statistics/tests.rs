//! The rules checked on simulated machines whose true ratio is known. Seeds are fixed: every run is the same.

use super::*;

/// SplitMix64 (Steele, Lea, Flood 2014): small, seeded, good enough to simulate noise.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Standard normal, by Box and Muller.
    pub(super) fn normal(&mut self) -> f64 {
        let (u, v) = (self.uniform().max(1e-300), self.uniform());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }
}

/// How the simulated machine disturbs a trial.
#[derive(Debug, Clone, Copy)]
struct Noise {
    name: &'static str,
    /// Standard deviation of ln tps between trials.
    per_trial: f64,
    /// Standard deviation of the step ln tps takes between trials and keeps.
    drift: f64,
    /// Share of the trials in which a neighbour begins to take 30 % of the rate.
    disturbed: f64,
    /// Trials in a row that the neighbour stays.
    stays: u32,
}

const QUIET: Noise = Noise { name: "log-normal 2 %", per_trial: 0.02, drift: 0.0, disturbed: 0.0, stays: 1 };
const DRIFT: Noise = Noise { name: "with drift", per_trial: 0.02, drift: 0.01, disturbed: 0.0, stays: 1 };
const SHARED: Noise =
    Noise { name: "with drift and neighbours", per_trial: 0.02, drift: 0.005, disturbed: 0.03, stays: 1 };
const CALM: Noise =
    Noise { name: "log-normal 0.5 %", per_trial: 0.005, drift: 0.0, disturbed: 0.0, stays: 1 };
/// A neighbour that stays for the length of a block, at any point of it: a hypervisor that takes the CPU.
const BURSTS: Noise =
    Noise { name: "with neighbours that stay", per_trial: 0.02, drift: 0.0, disturbed: 0.01, stays: 4 };
/// So much noise that the smallest effect worth a verdict has no influence. Trials of 50 ms of a shared socket without
/// a transmit mapping had this much.
const WILD: Noise = Noise { name: "log-normal 10 %", per_trial: 0.1, drift: 0.0, disturbed: 0.0, stays: 1 };
const MODELS: [Noise; 4] = [QUIET, DRIFT, SHARED, CALM];
/// Under all of these, equal rungs must not get a verdict.
const ALL: [Noise; 6] = [QUIET, DRIFT, SHARED, CALM, BURSTS, WILD];

#[derive(Debug, Default)]
struct Tally {
    better: usize,
    worse: usize,
    not_shown: usize,
    covered: usize,
    blocks: usize,
}

/// Compares a rung with one that is `gain` times as fast, `repetitions` times over.
fn simulate(noise: Noise, gain: f64, bound: Bound, repetitions: usize, seed: u64) -> Tally {
    let mut random = Random(seed);
    let mut tally = Tally::default();
    for _ in 0..repetitions {
        let mut level = 600_000.0_f64.ln();
        let mut stays = 0_u32;
        let mut comparison = Comparison::new(bound);
        let verdict = loop {
            let block = [1.0, gain, gain, 1.0].map(|factor| {
                level += noise.drift * random.normal();
                let begins = random.uniform() < noise.disturbed;
                stays = if begins { noise.stays } else { stays.saturating_sub(1) };
                let lost = if stays > 0 { 0.7 } else { 1.0 };
                (level + noise.per_trial * random.normal()).exp() * factor * lost
            });
            comparison.push_block(block).expect("rates are finite");
            assert!(comparison.blocks() <= bound.most_blocks());
            if let State::Done(verdict) = comparison.state() {
                break verdict;
            }
        };
        match verdict {
            Verdict::Better => tally.better += 1,
            Verdict::Worse => tally.worse += 1,
            Verdict::NotShown => tally.not_shown += 1,
            Verdict::Base | Verdict::Failed => panic!("{verdict:?} of finite rates"),
        }
        let interval = comparison.interval().expect("there are blocks");
        tally.covered += usize::from((interval.low..=interval.high).contains(&gain));
        tally.blocks += comparison.blocks();
    }
    tally
}

#[test]
fn equal_rungs_are_rarely_declared_different() {
    for noise in ALL {
        for bound in [
            Bound::default(),
            Bound::new(0.025, 8).unwrap(),
            Bound::new(0.015, 8).unwrap(),
            Bound::new(0.01, 30).unwrap(),
            Bound::new(0.015, 16).unwrap().for_verdict(),
        ] {
            let t = simulate(noise, 1.0, bound, 2000, 1);
            assert!(t.better + t.worse <= 20, "{}: {t:?} at {bound:?}", noise.name);
        }
    }
}

#[test]
fn of_forty_comparisons_of_equals_thirty_eight_show_nothing() {
    for noise in ALL {
        for seed in 0..20 {
            let t = simulate(noise, 1.0, Bound::default(), 40, 1000 + seed);
            assert!(t.not_shown >= 38, "{}: {t:?}, seed {seed}", noise.name);
        }
    }
}

/// What ARCHITECTURE.md says of a ladder: a dozen equal rungs, one after the other, err in less than one climb of
/// twenty.
#[test]
fn of_twenty_climbs_fewer_than_one_keeps_or_rejects_an_equal_rung() {
    const CLIMBS: usize = 500;
    for noise in ALL {
        let errs = |climb: &usize| {
            let t = simulate(noise, 1.0, Bound::default(), 12, 50_000 + *climb as u64);
            t.better + t.worse > 0
        };
        let wrong = (0..CLIMBS).filter(errs).count();
        assert!(wrong < CLIMBS / 20, "{}: {wrong} of {CLIMBS} climbs", noise.name);
    }
}

#[test]
fn a_gain_of_five_per_cent_is_found() {
    for noise in MODELS {
        let t = simulate(noise, 1.05, Bound::default(), 1000, 2);
        assert!(t.better >= 900 && t.worse == 0, "{}: {t:?}", noise.name);
        let t = simulate(noise, 1.0 / 1.05, Bound::default(), 1000, 3);
        assert!(t.worse >= 900 && t.better == 0, "{}: {t:?}", noise.name);
    }
}

/// Under every noise but the wildest, which hides it whatever the statistics.
#[test]
fn a_gain_of_two_per_cent_is_found_in_four_of_five_comparisons() {
    for noise in ALL.into_iter().filter(|noise| noise.name != WILD.name) {
        let t = simulate(noise, 1.02, Bound::default(), 2000, 4);
        assert!(t.better >= 1600 && t.worse == 0, "{}: {t:?}", noise.name);
        let t = simulate(noise, 1.0 / 1.02, Bound::default(), 2000, 5);
        assert!(t.worse >= 1600 && t.better == 0, "{}: {t:?}", noise.name);
    }
}

/// Where the noise hides a gain of two per cent, a comparison says so long before the limit.
#[test]
fn a_machine_too_noisy_for_the_gain_sought_is_given_up() {
    let bound = Bound::default();
    assert!((0.0195..0.0205).contains(&bound.sought()), "{}", bound.sought());
    let wild = simulate(WILD, 1.02, bound, 500, 7);
    assert!(wild.not_shown >= 490 && wild.blocks < 500 * 30, "{wild:?}");
    // A ratio is measured to the end.
    let ratio = Bound::new(bound.half_width(), bound.most_blocks()).unwrap();
    let wild = simulate(WILD, 1.02, ratio, 100, 7);
    assert!(wild.blocks > 100 * 75, "{wild:?}");
}

#[test]
fn intervals_hold_the_truth_in_ninety_five_per_cent() {
    for noise in MODELS {
        for gain in [1.0, 1.01, 1.02, 1.03, 1.5] {
            let t = simulate(noise, gain, Bound::default(), 2000, 5);
            let share = t.covered as f64 / 2000.0;
            assert!((0.93..=0.985).contains(&share), "{} x {gain}: covers {share}: {t:?}", noise.name);
        }
    }
}

#[test]
fn clear_cases_take_few_blocks_and_unclear_ones_more() {
    let clear = simulate(QUIET, 1.5, Bound::default(), 500, 6);
    let unclear = simulate(QUIET, 1.0, Bound::default(), 500, 6);
    assert_eq!(clear.better, 500);
    assert!(clear.blocks < 500 * 5, "{clear:?}");
    assert!(unclear.blocks > 500 * 15 && unclear.blocks < 500 * 25, "{unclear:?}");
    let slight = simulate(QUIET, 1.02, Bound::default(), 500, 6);
    assert!(slight.blocks > unclear.blocks * 2 && slight.blocks < 500 * 60, "{slight:?}");
    let calm = simulate(CALM, 1.0, Bound::default(), 500, 6);
    assert!(calm.blocks < 500 * 8, "{calm:?}");
}

#[test]
fn the_figures_are_those_of_a_hand_calculation() {
    // Log ratios 0.01, 0.02, 0.03: mean 0.02, standard error 0.01/sqrt 3, t(2, 0.99) = 6.96456.
    let mut comparison = Comparison::new(Bound::default());
    for d in [0.02_f64, 0.03, 0.01] {
        comparison.push_block([1000.0, 1000.0 * d.exp(), 1000.0 * d.exp(), 1000.0]).unwrap();
    }
    let r = comparison.interval().unwrap();
    assert!((r.ratio.ln() - 0.02).abs() < 1e-9);
    assert!((r.high.ln() - 0.02 - 6.964_557 * 0.01 / 3.0_f64.sqrt()).abs() < 1e-6, "{r:?}");
    assert!((r.low.ln() + r.high.ln() - 0.04).abs() < 1e-9);
    assert_eq!(comparison.state(), State::Continue);
}

#[test]
fn one_disturbed_block_does_not_move_the_estimate() {
    let mut comparison = Comparison::new(Bound::default());
    for i in 0..6 {
        let wobble = 1.0 + 0.001 * f64::from(i);
        let lost = if i == 3 { 0.3 } else { 1.0 };
        comparison.push_block([1e6, 1.05e6 * wobble, 1.05e6 * wobble * lost, 1e6]).unwrap();
    }
    assert_eq!(comparison.state(), State::Done(Verdict::Better));
    assert!((comparison.interval().unwrap().ratio - 1.0525).abs() < 0.002);
}

#[test]
fn a_rung_that_answers_nothing_loses() {
    let mut comparison = Comparison::new(Bound::default());
    while comparison.state() == State::Continue {
        comparison.push_block([500_000.0, 0.0, 0.0, 501_000.0]).unwrap();
    }
    assert_eq!(comparison.state(), State::Done(Verdict::Worse));
    assert_eq!(comparison.blocks(), FEWEST_BLOCKS);
    assert_eq!(comparison.silent(), Silent { best: 0, candidate: 2 * FEWEST_BLOCKS });
    let r = comparison.interval().unwrap();
    assert!(r.ratio < 1e-5 && r.low <= r.ratio && r.ratio <= r.high && r.low > 0.0);
}

#[test]
fn a_base_that_answers_nothing_is_beaten() {
    let mut comparison = Comparison::new(Bound::default());
    while comparison.state() == State::Continue {
        comparison.push_block([0.0, 4000.0, 4100.0, 0.0]).unwrap();
    }
    assert_eq!(comparison.state(), State::Done(Verdict::Better));
    assert!(comparison.interval().unwrap().ratio.is_finite());
}

#[test]
fn two_dead_rungs_end_at_the_limit_as_failed() {
    let mut comparison = Comparison::new(Bound::new(0.02, 5).unwrap());
    for _ in 0..4 {
        comparison.push_block([0.0; 4]).unwrap();
        assert_eq!(comparison.state(), State::Continue);
    }
    comparison.push_block([0.0; 4]).unwrap();
    assert_eq!(comparison.state(), State::Done(Verdict::Failed));
    assert_eq!(comparison.interval(), None);
}

#[test]
fn a_rung_that_sometimes_fails_gets_no_verdict() {
    let mut comparison = Comparison::new(Bound::default());
    while comparison.state() == State::Continue {
        let b = if comparison.blocks().is_multiple_of(2) { 0.0 } else { 1e6 };
        comparison.push_block([1e6, b, b, 1e6]).unwrap();
    }
    assert!(matches!(comparison.state(), State::Done(Verdict::Worse | Verdict::NotShown)));
    // Given up as soon as it may be: its blocks differ by orders of magnitude.
    assert_eq!((comparison.blocks(), comparison.silent().candidate), (BLOCKS_BEFORE_GIVING_UP, 20));
}

#[test]
fn invalid_rates_are_refused_and_count_towards_the_limit() {
    let mut comparison = Comparison::new(Bound::new(0.02, 3).unwrap());
    for (i, bad) in [f64::NAN, f64::INFINITY, -1.0].into_iter().enumerate() {
        let mut block = [1e5; 4];
        block[i] = bad;
        let error = comparison.push_block(block).unwrap_err();
        assert_eq!(error.trial, i + 1);
        assert!(error.to_string().contains("a rate is finite and not negative"), "{error}");
    }
    assert_eq!(comparison.state(), State::Done(Verdict::Failed));
}

#[test]
fn silly_bounds_are_refused_with_what_would_be_right() {
    for bad in [0.0, -0.1, 0.6, f64::NAN] {
        assert!(Bound::new(bad, 10).unwrap_err().to_string().contains("expected 0.001 to 0.5"));
    }
    for bad in [0, 2, 1001] {
        assert!(Bound::new(0.02, bad).unwrap_err().to_string().contains("3 to 1000"));
    }
    assert_eq!(Bound::new(0.007, 80).map(Bound::for_verdict), Ok(Bound::default()));
}
