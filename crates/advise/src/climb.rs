//! The climb: measures every rung in turn against the best so far, until the interval is narrow enough.

use std::sync::atomic::{AtomicBool, Ordering};

use error_reporter::Report;
use udpath_lab::Lab;
use udpath_load::template::Protocol;
use udpath_serve::Io;

use crate::config::{Config, Event};
use crate::entrant::Entrant;
use crate::ladder::{Rung, Settings, Step};
use crate::machine::{line_rate_10g, mean_size, wire_bytes};
use crate::result::{Profiles, Ratio, RungDiagnosis, RungResult, Verdict};
use crate::server_under_test::{FAST, Home, NARROW, RSS_OFF, SERVER};
use crate::trial::Trials;
use crate::{Error, profiled, trial};

/// First port of the servers: above the well-known ones, below the ephemeral range, and the lab has nothing else.
pub(crate) const FIRST_PORT: u16 = 7000;

/// A climb under way.
pub(crate) struct Climb<'a> {
    pub(crate) lab: &'a Lab,
    pub(crate) config: &'a Config,
    pub(crate) protocol: &'a dyn Protocol,
    pub(crate) stop: &'a AtomicBool,
    pub(crate) watch: &'a mut dyn FnMut(&Event<'_>),
}

/// Outcome of a climb; the fields are those of [`crate::result::BoostResult`].
pub(crate) struct ClimbResult {
    pub(crate) rungs: Vec<RungResult>,
    pub(crate) best: String,
    pub(crate) gain: Ratio,
    pub(crate) profiles: Option<Profiles>,
    pub(crate) diagnoses: Vec<RungDiagnosis>,
    pub(crate) warnings: Vec<String>,
}

/// Ratio of the first rung to itself.
const SAME: Ratio = Ratio { ratio: 1.0, low: 1.0, high: 1.0 };

/// Ratio of a rung that was not measured.
const NOTHING: Ratio = Ratio { ratio: 0.0, low: 0.0, high: 0.0 };

/// The machine a candidate runs on. With AF_XDP: the one of the two that the best server so far does not use.
fn home(candidate: &Settings, incumbent: &Entrant) -> Home {
    let [one, other] = match candidate.io {
        Io::Xdp if candidate.one_queue => NARROW,
        Io::Xdp => FAST,
        _ if candidate.one_queue => return RSS_OFF,
        Io::Shared | Io::Reuseport | Io::Percpu => return SERVER,
    };
    if incumbent.home == one { other } else { one }
}

impl Climb<'_> {
    /// Up the ladder, to the last rung.
    pub(crate) fn run(mut self) -> Result<ClimbResult, Error> {
        let rungs = &self.config.ladder;
        let steps = rungs.len() + 1;
        let mut port = FIRST_PORT;
        let mut next_port = || {
            port += 1;
            port
        };

        // The first rung's server runs to the end: the gain is measured against it.
        let base = Settings::base(self.config.workers, self.config.flows * self.config.inflight);
        let settings = rungs[0].step.apply(&base, self.config.workers);
        let first_home = if settings.one_queue { RSS_OFF } else { SERVER };
        let mut first = self.start(&rungs[0], settings, first_home, next_port())?;
        (self.watch)(&Event::Rung { step: 1, steps, name: &first.name, against: None });
        let (result, trials) = self.measure_first(&rungs[0], &mut first)?;
        let mut results = vec![result];
        // Every trial of a rung counts, also those in which it was the best so far.
        let mut all_trials = vec![trials];
        let mut best: Option<(usize, Entrant)> = None;

        for (index, rung) in rungs.iter().enumerate().skip(1) {
            let (at, incumbent) = best.as_mut().map_or((0, &mut first), |(at, best)| (*at, best));
            let against = incumbent.name.clone();
            let settings = rung.step.apply(&incumbent.settings, self.config.workers);
            if settings == incumbent.settings && rung.step != Step::Base {
                // A rung that combines changes which were all kept before has nothing left to try. One without any
                // change is a control (tests/it/aa.rs).
                continue;
            }
            (self.watch)(&Event::Rung { step: index + 1, steps, name: &rung.name, against: Some(&against) });
            let home = home(&settings, incumbent);
            let raced = self.start(rung, settings, home, next_port()).and_then(|mut candidate| {
                let race = self.race(incumbent, &mut candidate)?;
                Ok((candidate, race))
            });
            let (result, trials) = match raced {
                Ok((candidate, race)) => {
                    all_trials[at].merge(race.of_best);
                    let ratio = race.comparison.interval().unwrap_or(NOTHING);
                    let mut result = self.result(
                        rung,
                        &candidate,
                        &race.of_candidate,
                        Some(&against),
                        ratio,
                        race.verdict,
                    );
                    result.in_turn = race.in_turn;
                    // A link of one queue is a reference: later rungs build on all queues, whichever is faster here.
                    result.kept |= rung.step == Step::Base && incumbent.settings.one_queue;
                    if result.kept {
                        best = Some((results.len(), candidate));
                    }
                    (result, race.of_candidate)
                }
                // A candidate that cannot be measured fails its rung; anything else ends the climb.
                Err(error) if error.blames(&rung.name) => {
                    (failed(rung, &settings, &against, &error), Trials::default())
                }
                Err(error) => return Err(error),
            };
            (self.watch)(&Event::Done(&result));
            results.push(result);
            all_trials.push(trials);
        }

        let (name, gain) = match &mut best {
            None => (first.name.clone(), SAME),
            Some((at, best)) => {
                let shown = &results[*at];
                let gain = if shown.against.as_ref() == Some(&first.name) {
                    Ratio { ratio: shown.ratio, low: shown.ratio_low, high: shown.ratio_high }
                } else {
                    (self.watch)(&Event::Rung {
                        step: steps,
                        steps,
                        name: &best.name,
                        against: Some(&first.name),
                    });
                    let race = self.race(&mut first, best)?;
                    all_trials[0].merge(race.of_best);
                    all_trials[*at].merge(race.of_candidate);
                    race.comparison.interval().unwrap_or(NOTHING)
                };
                (best.name.clone(), gain)
            }
        };
        for (result, trials) in results.iter_mut().zip(&all_trials) {
            self.fill(result, trials);
        }
        let best = best.as_ref().map(|(_, best)| best);
        let (profiles, diagnoses) = match self.config.profile {
            true => self.profiles(&first, best).map(|(profiles, diagnoses)| (Some(profiles), diagnoses))?,
            false => (None, Vec::new()),
        };
        let warnings = warnings(&results);
        Ok(ClimbResult { rungs: results, best: name, gain, profiles, diagnoses, warnings })
    }

    /// Profiles and diagnoses the first and the best rung. Stops at the first that cannot be sampled: the reason holds
    /// for both.
    fn profiles(
        &mut self,
        first: &Entrant,
        best: Option<&Entrant>,
    ) -> Result<(Profiles, Vec<RungDiagnosis>), Error> {
        let (mut profiles, mut diagnoses) = (Profiles::default(), Vec::new());
        for server in [Some(first), best].into_iter().flatten().map(Entrant::server) {
            (self.watch)(&Event::Profile { name: &server.name });
            let taken = profiled::profile(
                self.lab,
                self.config.engine,
                &trial::plan(self.config, server.address),
                self.protocol,
                server,
                self.stop,
            );
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let place = if profiles.first.is_none() { &mut profiles.first } else { &mut profiles.best };
            match taken {
                Ok((profile, diagnosis)) => {
                    *place = Some(Box::new(profile));
                    let rung = server.name.clone();
                    diagnoses.extend(diagnosis.map(|diagnosis| RungDiagnosis { rung, diagnosis }));
                }
                Err(reason) => {
                    profiles.absent = Some(format!("{}: {reason}", server.name));
                    break;
                }
            }
        }
        Ok((profiles, diagnoses))
    }

    /// The first rung is not compared: it gets as many trials as a comparison has at least on each side.
    fn measure_first(&mut self, rung: &Rung, first: &mut Entrant) -> Result<(RungResult, Trials), Error> {
        const TRIALS: usize = 4;
        let mut trials = Trials::default();
        for done in 0..TRIALS {
            let tps = self.turn(first, &mut trials)?;
            let blocks = (done, TRIALS);
            (self.watch)(&Event::Trial { name: &rung.name, tps, blocks, interval: None });
        }
        let result = self.result(rung, first, &trials, None, SAME, Verdict::Base);
        (self.watch)(&Event::Done(&result));
        Ok((result, trials))
    }

    fn result(
        &self,
        rung: &Rung,
        entrant: &Entrant,
        trials: &Trials,
        against: Option<&str>,
        ratio: Ratio,
        verdict: Verdict,
    ) -> RungResult {
        let mut result = RungResult {
            ratio: ratio.ratio,
            ratio_low: ratio.low,
            ratio_high: ratio.high,
            verdict,
            kept: matches!(verdict, Verdict::Base | Verdict::Better),
            against: against.map(Into::into),
            ..unmeasured(rung, &entrant.settings)
        };
        self.fill(&mut result, trials);
        result
    }

    /// Fills in the figures of its trials. A failed rung keeps its note.
    fn fill(&self, result: &mut RungResult, trials: &Trials) {
        let size = mean_size(self.protocol, self.config.size);
        result.tps = trials.median_tps();
        result.wire_mbits = result.tps * f64::from(wire_bytes(size, self.config.ipv6)) * 8.0 / 1e6;
        result.line_share = result.tps / line_rate_10g(size, self.config.ipv6);
        result.trials.clone_from(&trials.tps);
        result.counts = trials.counts;
        result.loss = trials.counts.loss();
        result.latency.clone_from(&trials.latency);
        result.cpu_ns_per_transaction = trials.cpu_ns_per_transaction();
        result.cpus = trials.cpus();
        if !trials.warnings.is_empty() {
            result.note = Some(trials.warnings.join("; "));
        }
    }
}

/// A rung whose server did not start, or ended during a trial.
fn failed(rung: &Rung, settings: &Settings, against: &str, error: &Error) -> RungResult {
    RungResult {
        against: Some(against.into()),
        note: Some(Report::new(error).to_string()),
        ..unmeasured(rung, settings)
    }
}

/// A rung without any trial.
fn unmeasured(rung: &Rung, settings: &Settings) -> RungResult {
    RungResult {
        name: rung.name.to_string(),
        change: rung.change.to_string(),
        settings: settings.pairs(),
        tps: 0.0,
        wire_mbits: 0.0,
        line_share: 0.0,
        ratio: NOTHING.ratio,
        ratio_low: NOTHING.low,
        ratio_high: NOTHING.high,
        verdict: Verdict::Failed,
        kept: false,
        other_load: false,
        in_turn: None,
        against: None,
        trials: Vec::new(),
        counts: udpath_load::result::Counts::default(),
        loss: 0.0,
        latency: None,
        cpu_ns_per_transaction: 0.0,
        cpus: Vec::new(),
        note: None,
    }
}

/// Caveats that apply to the whole ladder.
fn warnings(rungs: &[RungResult]) -> Vec<String> {
    let mut warnings = vec![
        "load generator and server share this machine's CPUs; compare rungs, not absolute rates".to_owned(),
    ];
    let losing: Vec<&str> = rungs.iter().filter(|r| r.loss > 0.001).map(|r| r.name.as_str()).collect();
    if !losing.is_empty() {
        warnings.push(format!("more than 0.1 % of requests had no reply in time: {}", losing.join(", ")));
    }
    warnings
}
