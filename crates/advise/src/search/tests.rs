//! The search over machines that are formulas: what each set of candidates yields is known.

use std::convert::Infallible;

use super::*;

/// A machine with noise: `tps` of a set, times a factor around 1.
struct Formula<F> {
    tps: F,
    candidates: usize,
    /// Standard deviation of a trial, as a share.
    noise: f64,
    seed: u64,
    trials: usize,
    most: usize,
    /// What a set yields under another load; none: there is none.
    other: Option<fn(&[Candidate]) -> f64>,
}

impl<F: Fn(&[Candidate]) -> f64> Formula<F> {
    fn new(candidates: usize, noise: f64, seed: u64, tps: F) -> Self {
        // Seeds in a row give streams that begin alike.
        let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self { tps, candidates, noise, seed, trials: 0, most: 1 << 40, other: None }
    }

    /// Uniform in 0..1 (xorshift).
    fn uniform(&mut self) -> f64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (self.seed >> 11) as f64 / (1u64 << 53) as f64
    }
}

impl<F: Fn(&[Candidate]) -> f64> Bed for Formula<F> {
    type Error = Infallible;

    fn offers(
        &mut self,
        kept: &[Candidate],
        raced: &BTreeSet<Candidate>,
    ) -> Result<Vec<Candidate>, Infallible> {
        Ok((0..self.candidates).filter(|at| !kept.contains(at) && !raced.contains(at)).collect())
    }

    fn has_other_load(&self) -> bool {
        self.other.is_some()
    }

    fn trial(&mut self, on: &[Candidate], under: Under) -> Result<f64, Trouble<Infallible>> {
        self.trials += 1;
        // Irwin and Hall: the sum of twelve is near enough to a normal distribution.
        let normal = (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0;
        let tps = match (under, self.other) {
            (Under::Load, _) => (self.tps)(on),
            (Under::OtherLoad, other) => other.expect("trials are under loads that there are")(on),
        };
        match tps {
            tps if tps < 0.0 => Err(Trouble::Candidate("refused".into())),
            tps => Ok(tps * (self.noise * normal).exp()),
        }
    }

    /// A trial takes a millisecond.
    fn left(&self) -> Duration {
        Duration::from_millis(self.most.saturating_sub(self.trials) as u64)
    }
}

fn found<F: Fn(&[Candidate]) -> f64>(mut bed: Formula<F>) -> Found {
    search(&mut bed, Bound::default()).unwrap_or_else(|never| match never {})
}

#[test]
fn what_helps_is_kept_and_its_gain_is_measured() {
    let found = found(Formula::new(4, 0.02, 1, |on| {
        let gain = |at: usize, by: f64| if on.contains(&at) { by } else { 1.0 };
        1e5 * gain(0, 0.8) * gain(1, 1.5) * gain(2, 1.0) * gain(3, 1.2)
    }));
    assert_eq!(found.kept, [1, 3]);
    let tried: Vec<Purpose> = found.races.iter().map(|race| race.purpose).take(2).collect();
    assert_eq!(tried, [Purpose::Try(1), Purpose::Try(3)], "the most promising first");
    let gain = found.gain.unwrap();
    assert!((1.75..1.85).contains(&gain.ratio) && gain.low <= 1.8 && 1.8 <= gain.high, "{gain:?}");
    assert!(gain.high / gain.low < 1.3, "{gain:?}");
    assert!(!found.out_of_time);
    assert_eq!(found.screened, 4);
}

/// The valley: spreading alone loses, with the socket split it wins.
#[test]
fn a_group_wins_whose_first_half_loses() {
    const SPREAD: usize = 0;
    const SPLIT_AND_SPREAD: usize = 1;
    let found = found(Formula::new(2, 0.02, 2, |on| match on {
        [] => 270_000.0,
        [SPREAD] => 17_000.0,
        on if on.contains(&SPLIT_AND_SPREAD) => 2_540_000.0,
        _ => 17_000.0,
    }));
    assert_eq!(found.kept, [SPLIT_AND_SPREAD]);
    assert_eq!(found.races[0].purpose, Purpose::Try(SPLIT_AND_SPREAD));
}

/// The third does what the first did, and more: without the first nothing is lost.
#[test]
fn what_is_not_missed_is_left_out() {
    let found = found(Formula::new(3, 0.01, 3, |on| match on {
        [] => 1e5,
        [0] => 1.4e5,
        [1] => 1.25e5,
        [2] => 1.1e5,
        [0, 1] => 1.6e5,
        _ => 2e5,
    }));
    assert_eq!(found.kept, [1, 2]);
    let purposes: Vec<Purpose> = found.races.iter().map(|race| race.purpose).collect();
    let [tries, leaves] = [
        [Purpose::Try(0), Purpose::Try(1), Purpose::Try(2)],
        [Purpose::Without(0), Purpose::Without(1), Purpose::Gain],
    ];
    assert_eq!(purposes, [tries, leaves].concat());
}

#[test]
fn a_candidate_that_cannot_be_measured_is_noted() {
    let found = found(Formula::new(2, 0.01, 4, |on| if on.contains(&0) { -1.0 } else { 1e5 }));
    let race = found.races.iter().find(|race| race.purpose == Purpose::Try(0)).unwrap();
    assert_eq!((race.verdict, race.note.as_deref()), (Verdict::Failed, Some("refused")));
    assert_eq!((found.kept.len(), found.gain), (0, None));
}

#[test]
fn no_race_begins_after_the_budget() {
    let mut bed = Formula::new(50, 0.02, 5, |_| 1e5);
    bed.most = 200;
    let found = search(&mut bed, Bound::default()).unwrap_or_else(|never| match never {});
    assert!(found.out_of_time && found.races.len() < 50, "{} races", found.races.len());
}

/// With time for a few races only, the one candidate of many that gains is raced.
#[test]
fn a_gain_late_in_the_list_is_found_within_the_budget() {
    const CANDIDATES: usize = 20;
    let late = |on: &[Candidate]| if on.contains(&(CANDIDATES - 1)) { 1.4e5 } else { 1e5 };
    let mut bed = Formula::new(CANDIDATES, 0.03, 7, late);
    bed.most = 60;
    let found = search(&mut bed, Bound::default()).unwrap_or_else(|never| match never {});
    assert_eq!((found.kept, found.out_of_time), (vec![CANDIDATES - 1], true));
}

/// Of a dozen candidates one gains a half and one a tenth, whatever the budget and the noise.
#[test]
fn a_budget_holds_with_the_measurement_of_the_gain() {
    const SEARCHES: usize = 200;
    let (mut cut, mut half) = (0, 0);
    for search_no in 0..SEARCHES {
        let gains = |on: &[Candidate]| {
            let gain = |at: usize, by: f64| if on.contains(&at) { by } else { 1.0 };
            1e5 * gain(4, 1.5) * gain(9, 1.1)
        };
        let mut bed = Formula::new(12, 0.03, 900 + search_no as u64, gains);
        bed.other = Some(|_| 1e5);
        bed.most = 110 + 4 * search_no;
        let found = search(&mut bed, Bound::default()).unwrap_or_else(|never| match never {});
        assert!(bed.trials * 5 <= bed.most * 6, "{} trials of {}", bed.trials, bed.most);
        cut += usize::from(found.races.iter().any(|race| race.cut));
        half += usize::from(found.kept.contains(&4));
    }
    assert!(cut > SEARCHES / 4, "{cut} searches had a race that was cut");
    assert!(half * 20 >= SEARCHES * 19, "kept in {half} of {SEARCHES}");
}

#[test]
fn without_any_time_one_candidate_is_compared_and_its_gain_is_measured() {
    let mut bed = Formula::new(3, 0.01, 11, |on| if on.contains(&0) { 1.5e5 } else { 1e5 });
    bed.other = Some(|_| 1e5);
    bed.most = 0;
    let found = search(&mut bed, Bound::default()).unwrap_or_else(|never| match never {});
    let purposes: Vec<Purpose> = found.races.iter().map(|race| race.purpose).collect();
    assert_eq!(purposes, [Purpose::Try(0), Purpose::Hold(0), Purpose::Gain]);
    assert_eq!((found.kept, bed.trials), (vec![0], 3 * 4 * FEWEST_BLOCKS));
    assert!(found.gain.is_some() && found.out_of_time);
}

/// 0 gains most under one load and loses under the other; 1 gains under both.
#[test]
fn what_loses_under_another_load_is_not_kept() {
    let mut bed = Formula::new(2, 0.02, 9, |on: &[Candidate]| match on {
        [] => 1e5,
        [0, ..] => 1.5e5,
        _ => 1.2e5,
    });
    bed.other = Some(|on| if on.contains(&0) { 0.92e5 } else { 1e5 });
    let found = found(bed);
    assert_eq!(found.kept, [1]);
    let purposes: Vec<Purpose> = found.races.iter().map(|race| race.purpose).collect();
    let tried = [Purpose::Try(0), Purpose::Hold(0), Purpose::Try(1), Purpose::Hold(1)];
    assert_eq!(purposes[..4], tried);
    assert_eq!((purposes.last(), found.races[1].verdict), (Some(&Purpose::Gain), Verdict::Worse));
    assert!(found.races[1].loses() && !found.races[3].loses());
    let gain = found.gain.unwrap();
    assert!(gain.low <= 1.2 && 1.2 <= gain.high, "{gain:?}");
}

/// What does not differ in screening is tried in the order of the diagnosis.
#[test]
fn noise_does_not_order_candidates() {
    let found = found(Formula::new(4, 0.01, 8, |_| 1e5));
    let tried: Vec<Purpose> = found.races.iter().map(|race| race.purpose).collect();
    assert_eq!(tried, [0, 1, 2, 3].map(Purpose::Try));
}

/// A/A: twenty candidates that change nothing, in a hundred climbs.
#[test]
fn nothing_is_kept_where_nothing_helps() {
    const CLIMBS: u64 = 100;
    const CANDIDATES: usize = 20;
    let (mut verdicts, mut kept) = (0, 0);
    for climb in 0..CLIMBS {
        let found = found(Formula::new(CANDIDATES, 0.03, 100 + climb, |_| 1e5));
        verdicts += found
            .races
            .iter()
            .filter(|race| matches!(race.verdict, Verdict::Better | Verdict::Worse))
            .count();
        kept += usize::from(!found.kept.is_empty());
    }
    let races = CLIMBS as usize * CANDIDATES;
    assert!(verdicts * 100 < races, "{verdicts} false verdicts in {races} races");
    assert!(kept * 20 < CLIMBS as usize, "something was kept in {kept} of {CLIMBS} climbs");
}

/// Of what was kept in spite of the noise, and of what helps by little, the last race says how much it is.
#[test]
fn gains_are_not_overstated() {
    let mut covered = 0;
    const CLIMBS: u64 = 60;
    for climb in 0..CLIMBS {
        let found = found(Formula::new(6, 0.03, 500 + climb, |on| {
            1e5 * on.iter().filter(|at| **at < 2).fold(1.0, |tps, _| tps * 1.06)
        }));
        let truth = found.kept.iter().filter(|at| **at < 2).fold(1.0, |tps, _| tps * 1.06);
        covered += usize::from(found.gain.is_none_or(|gain| gain.low <= truth && truth <= gain.high));
    }
    assert!(covered * 10 >= CLIMBS as usize * 9, "the interval held the truth in {covered} of {CLIMBS}");
}
