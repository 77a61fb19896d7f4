//! The ladder in the order of what the model expects of each rung.
//!
//! The most promising rungs come first, so that later ones are tried on top of what is likely to win, and a climb that
//! is interrupted has seen the most. Every rung is still measured: the model decides nothing.

use udpath_model::{Costs, Effort, predict};

use super::{Rung, Settings, Step};
use crate::calibration::in_lab;

/// Simulated for each rung: the order of rungs that differ by some per cent.
const EFFORT: Effort = Effort { seed: 1, runs: 1, warm_up_ms: 4, window_ms: 12 };

/// The lab that a ladder is climbed in.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// CPUs.
    pub cpus: usize,
    /// Queues of the link.
    pub queues: u32,
    /// Workers of a server.
    pub workers: usize,
    /// Requests in flight.
    pub inflight: u32,
}

/// The same rungs: up to the base as they are, then those that the model knows, the highest predicted rate first. The
/// others, with AF_XDP, keep their places among all.
#[must_use]
pub fn ordered(ladder: Vec<Rung>, costs: &Costs, place: Place) -> Vec<Rung> {
    ordered_by(ladder, |step| {
        let base = Settings::base(place.workers, place.inflight);
        let settings = step.apply(&base, place.workers);
        let description = in_lab(&settings, place.cpus, place.queues, place.inflight)?;
        predict(&description, costs, &EFFORT).ok().map(|outcome| outcome.tps)
    })
}

fn ordered_by(ladder: Vec<Rung>, mut predicted: impl FnMut(Step) -> Option<f64>) -> Vec<Rung> {
    let start = ladder.iter().position(|rung| rung.step == Step::Base).map_or(1, |base| base + 1);
    let mut rungs: Vec<Option<Rung>> = ladder.into_iter().map(Some).collect();
    let places: Vec<(usize, f64)> = (start.min(rungs.len())..rungs.len())
        .filter_map(|at| Some((at, predicted(rungs[at].as_ref()?.step)?)))
        .collect();
    let mut best = places.clone();
    // Equal ones stay in the ladder's order, which has its reasons.
    best.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut taken: Vec<Option<Rung>> = best.iter().map(|(at, _)| rungs[*at].take()).collect();
    for ((place, _), rung) in places.iter().zip(&mut taken) {
        rungs[*place] = rung.take();
    }
    rungs.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use udpath_serve::Io;

    use super::*;
    use crate::ladder::ladder;

    const PLACE: Place = Place { cpus: 2, queues: 2, workers: 2, inflight: 256 };

    fn names(ladder: &[Rung]) -> Vec<&str> {
        ladder.iter().map(|rung| rung.name.as_ref()).collect()
    }

    /// A rate for any settings: each change gains, but RPS with one socket loses, and batches gain more apart.
    fn rate(settings: &Settings) -> f64 {
        let split = settings.io != Io::Shared;
        let io = match settings.io {
            Io::Shared => 1.0,
            Io::Reuseport => 1.4,
            Io::Percpu => 1.45,
            Io::Xdp => 3.0,
        };
        let rps = match (settings.rps, split) {
            (true, false) => 0.2,
            (true, true) => 0.9,
            _ => 1.0,
        };
        let batch = if settings.batch > 1 { 1.2 } else { 1.0 };
        io * rps * batch * if settings.pin { 1.05 } else { 1.0 }
    }

    /// The greedy climb over a ladder, with that rate instead of trials.
    fn climbed(ladder: &[Rung]) -> f64 {
        let first = ladder[0].step.apply(&Settings::base(2, 256), 2);
        let mut best = first;
        for rung in &ladder[1..] {
            let next = rung.step.apply(&best, 2);
            if rate(&next) > rate(&best) || rung.step == Step::Base {
                best = next;
            }
        }
        rate(&best)
    }

    #[test]
    fn the_order_changes_and_the_result_does_not() {
        let plain = ladder(&Io::ALL, 2);
        let costs = Costs::default();
        let by_model = ordered(plain.clone(), &costs, PLACE);
        assert_ne!(names(&plain), names(&by_model));
        let sorted = |ladder: &[Rung]| {
            let mut names: Vec<String> = ladder.iter().map(|rung| rung.name.to_string()).collect();
            names.sort();
            names
        };
        assert_eq!(sorted(&plain), sorted(&by_model), "no rung is skipped");
        assert_eq!(climbed(&plain), climbed(&by_model));
        // Also with the worst order that a model could give.
        let mut at = 0.0;
        let wrong = ordered_by(plain.clone(), |step| {
            at += 1.0;
            (!step.needs_xdp()).then_some(at)
        });
        assert_eq!(climbed(&plain), climbed(&wrong));
    }

    #[test]
    fn the_base_stays_first_and_unknown_rungs_in_their_places() {
        let plain = ladder(&Io::ALL, 2);
        let by_model = ordered(plain.clone(), &Costs::default(), PLACE);
        assert_eq!(names(&by_model)[..2], ["one-queue", "shared"]);
        for (before, after) in plain.iter().zip(&by_model) {
            assert_eq!(before.step.needs_xdp(), after.step.needs_xdp(), "{} {}", before.name, after.name);
        }
        // RPS with one socket is expected to lose: it comes behind what splits the socket.
        let at = |name: &str| names(&by_model).iter().position(|other| *other == name).unwrap();
        assert!(at("reuseport") < at("rps"), "{:?}", names(&by_model));
    }
}
