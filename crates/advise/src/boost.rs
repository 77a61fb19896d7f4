//! The climb: every rung against the best so far, in turn, until the interval says enough.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use udpath_lab::{Lab, LabBuilder, LinkSpec, NapiGuard};
use udpath_load::Engine;
use udpath_load::template::Protocol;

use crate::competitor::{CLIENT, Competitor, FAST, NARROW, SERVER};
use crate::ladder::{Io, Rung, Settings, Step};
use crate::machine::{facts, line_rate_10g, wire_bytes};
use crate::result::{BoostResult, LoadSummary, Ratio, RungResult, SCHEMA, Verdict};
use crate::statistics::{Bound, Comparison, State};
use crate::trial::{self, Trials};
use crate::{ConfigError, Error};

/// First port of the servers: above the well-known ones, below the ephemeral range, and the lab has nothing else.
const FIRST_PORT: u16 = 7000;

/// What to climb with.
#[derive(Debug, Clone)]
pub struct Config {
    /// The program whose `serve` runs the servers: this one.
    pub program: PathBuf,
    /// Receive and transmit queues of the link.
    pub queues: u32,
    /// Interrupt moderation of the link's ends, microseconds ([`LinkSpec::moderation`]).
    pub moderation: u32,
    /// The rungs, in order; the first is where the climb begins. See [`crate::ladder::ladder`].
    pub ladder: Vec<Rung>,
    /// Workers of each server.
    pub workers: usize,
    /// Payload bytes.
    pub size: usize,
    /// Flows.
    pub flows: u32,
    /// Requests in flight per flow.
    pub inflight: u32,
    /// Length of a trial, its warm-up not included.
    pub trial: Duration,
    /// When a comparison is done.
    pub bound: Bound,
    /// What sends the load.
    pub engine: Engine,
    /// IPv6 rather than IPv4.
    pub ipv6: bool,
    /// How the climb was asked for, for the report: a command line that does it again.
    pub command: Option<String>,
}

impl Config {
    /// Holds the configuration to its limits.
    ///
    /// # Errors
    /// The first thing that makes no sense.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.ladder.is_empty() {
            return Err(ConfigError::NoRung);
        }
        // Before what is derived from it: the workers are as many as the queues unless somebody says otherwise.
        self.blueprint().blueprint()?;
        if !(1..=1024).contains(&self.workers) {
            return Err(ConfigError::Workers(self.workers));
        }
        let seconds = self.trial.as_secs_f64();
        if !(0.05..=3600.0).contains(&seconds) {
            return Err(ConfigError::Trial(seconds));
        }
        if u64::from(self.flows) * u64::from(self.inflight) > 1 << 20 {
            return Err(ConfigError::InFlight { flows: self.flows, inflight: self.inflight });
        }
        trial::plan(self, ([192, 0, 2, 1], FIRST_PORT).into()).check()?;
        Ok(())
    }

    fn blueprint(&self) -> LabBuilder {
        let link = LinkSpec { moderation: self.moderation, ..LinkSpec::with_queues(self.queues) };
        let narrow = LinkSpec { queues: 1, ..link.clone() };
        let needs = |step: fn(Step) -> bool| self.ladder.iter().any(|rung| step(rung.step));
        let fast = FAST.map(|machine| (machine, &link)).into_iter().filter(|_| needs(Step::needs_xdp));
        let narrow =
            NARROW.map(|machine| (machine, &narrow)).into_iter().filter(|_| needs(Step::needs_one_queue));
        let builder = LabBuilder::new("boost").machine(CLIENT).machine(SERVER).link(CLIENT, SERVER, &link);
        fast.chain(narrow)
            .fold(builder, |builder, (machine, link)| builder.machine(machine).link(CLIENT, machine, link))
    }
}

/// What happens during a climb, for whoever watches.
#[derive(Debug)]
pub enum Event<'a> {
    /// A rung begins. `step` of `steps`, the last being the final comparison of best and first.
    Rung {
        /// Which step, from 1.
        step: usize,
        /// How many there are.
        steps: usize,
        /// The rung's name.
        name: &'a str,
        /// What it is compared with; none for the first.
        against: Option<&'a str>,
    },
    /// A trial of it is done.
    Trial {
        /// The rung's name.
        name: &'a str,
        /// Transactions per second of the trial.
        tps: f64,
        /// Blocks of four trials done so far, and the most there can be.
        blocks: (usize, usize),
        /// Ratio so far.
        interval: Option<Ratio>,
    },
    /// A rung is done.
    Done(&'a RungResult),
}

/// Climbs the ladder in a lab of its own, which is gone afterwards.
///
/// # Errors
/// A configuration that makes no sense, a lab or a load that cannot be run here, or `stop`. A server that does not come
/// up, or a setting that this machine refuses, is a failed rung, not an error, unless it is the first.
pub fn boost(
    config: &Config,
    protocol: &dyn Protocol,
    watch: &mut dyn FnMut(&Event<'_>),
    stop: &AtomicBool,
) -> Result<BoostResult, Error> {
    config.check()?;
    let begin = Instant::now();
    let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let lab = config.blueprint().up()?;
    let climb = Climb { lab: &lab, config, protocol, stop, watch, _napi: napi(&lab, config)? };
    let (rungs, best, gain, warnings) = climb.run()?;
    let machine = facts(config.queues, link(config));
    lab.down()?;
    let size = config.size as u32;
    Ok(BoostResult {
        schema: SCHEMA.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        started,
        seconds: begin.elapsed().as_secs_f64(),
        machine,
        load: LoadSummary {
            engine: config.engine.to_string(),
            flows: config.flows,
            inflight: config.flows * config.inflight,
            size,
            wire_bytes: wire_bytes(size, config.ipv6),
            line_rate_tps: line_rate_10g(size, config.ipv6),
            trial_seconds: config.trial.as_secs_f64(),
        },
        rungs,
        best,
        gain,
        warnings,
        command: config.command.clone(),
    })
}

/// The server's end must take frames that the in-kernel loop sends; other engines need nothing.
fn napi(lab: &Lab, config: &Config) -> Result<Option<NapiGuard>, Error> {
    match config.engine {
        Engine::Kernel => Ok(Some(lab.machine(SERVER)?.towards(CLIENT)?.ensure_napi()?)),
        Engine::Socket | Engine::Xdp | Engine::XdpRings => Ok(None),
    }
}

/// Where a candidate runs: over AF_XDP on the machine of the two that the one to beat is not on.
fn machine_for(candidate: &Settings, incumbent: &Competitor) -> &'static str {
    let [one, other] = match candidate.io {
        Io::Xdp if candidate.one_queue => NARROW,
        Io::Xdp => FAST,
        Io::Shared | Io::Reuseport | Io::Percpu => return SERVER,
    };
    if incumbent.machine == one { other } else { one }
}

/// What joins generator and server, in words.
fn link(config: &Config) -> String {
    let plural = if config.queues == 1 { "queue" } else { "queues" };
    let moderation = match config.moderation {
        0 => "interrupts not moderated".to_owned(),
        microseconds => format!("interrupts moderated to one in {microseconds} us"),
    };
    format!("veth pair, {} {plural} each way, {moderation}, two namespaces", config.queues)
}

/// A climb under way.
struct Climb<'a> {
    lab: &'a Lab,
    config: &'a Config,
    protocol: &'a dyn Protocol,
    stop: &'a AtomicBool,
    watch: &'a mut dyn FnMut(&Event<'_>),
    _napi: Option<NapiGuard>,
}

type Summit = (Vec<RungResult>, String, Ratio, Vec<String>);

/// One of two competitors that are measured in turn.
enum Side {
    Best,
    Candidate,
}

/// The order within a block: whatever drifts evenly over it weighs on both alike.
const BLOCK: [Side; 4] = [Side::Best, Side::Candidate, Side::Candidate, Side::Best];

/// The ratio of a thing to itself.
const SAME: Ratio = Ratio { ratio: 1.0, low: 1.0, high: 1.0 };

/// The ratio of what was not measured.
const NOTHING: Ratio = Ratio { ratio: 0.0, low: 0.0, high: 0.0 };

/// Two competitors measured in turn.
struct Race {
    comparison: Comparison,
    verdict: Verdict,
    of_best: Trials,
    of_candidate: Trials,
}

impl Climb<'_> {
    fn run(mut self) -> Result<Summit, Error> {
        let rungs = &self.config.ladder;
        let steps = rungs.len() + 1;
        let mut port = FIRST_PORT;
        let mut next_port = || {
            port += 1;
            port
        };

        // The first rung stays up to the end: the gain is measured against it.
        let base = Settings::base(self.config.workers, self.config.flows * self.config.inflight);
        let mut first = self.start(&rungs[0], base, SERVER, next_port())?;
        (self.watch)(&Event::Rung { step: 1, steps, name: &first.name, against: None });
        let (result, trials) = self.measure_first(&rungs[0], &mut first)?;
        let mut results = vec![result];
        // Every trial of a rung counts for its figures, also those in which it was the one to beat.
        let mut all_trials = vec![trials];
        let mut best: Option<(usize, Competitor)> = None;

        for (index, rung) in rungs.iter().enumerate().skip(1) {
            let (at, incumbent) = best.as_mut().map_or((0, &mut first), |(at, best)| (*at, best));
            let against = incumbent.name.clone();
            let settings = rung.step.apply(&incumbent.settings, self.config.workers);
            if settings == incumbent.settings && rung.step != Step::Base {
                // A rung that tries together what was kept one by one has nothing left to try. One that was never to
                // change anything is a control, there to be told apart from nothing.
                continue;
            }
            (self.watch)(&Event::Rung { step: index + 1, steps, name: &rung.name, against: Some(&against) });
            let machine = machine_for(&settings, incumbent);
            let raced = self.start(rung, settings.clone(), machine, next_port()).and_then(|mut candidate| {
                let race = self.race(incumbent, &mut candidate)?;
                Ok((candidate, race))
            });
            let (result, trials) = match raced {
                Ok((candidate, race)) => {
                    all_trials[at].merge(race.of_best);
                    let ratio = race.comparison.interval().unwrap_or(NOTHING);
                    let result = self.result(
                        rung,
                        &candidate,
                        &race.of_candidate,
                        Some(&against),
                        ratio,
                        race.verdict,
                    );
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
        let warnings = warnings(&results);
        Ok((results, name, gain, warnings))
    }

    fn start(
        &self,
        rung: &Rung,
        settings: Settings,
        machine: &'static str,
        port: u16,
    ) -> Result<Competitor, Error> {
        let competitor = Competitor::start(self.lab, self.config, machine, &rung.name, settings, port)?;
        // Each trial does it again; here it is found out whether it can be done at all.
        trial::set_transmit_mapping(self.lab, &competitor)
            .map_err(|cause| Error::NotPossible { competitor: rung.name.to_string(), cause: cause.into() })?;
        Ok(competitor)
    }

    /// The first rung has nothing to be compared with: as many trials as a comparison needs at least on each side.
    fn measure_first(&mut self, rung: &Rung, first: &mut Competitor) -> Result<(RungResult, Trials), Error> {
        const TRIALS: usize = 4;
        let mut trials = Trials::default();
        for done in 0..TRIALS {
            let tps = self.trial(first, &mut trials)?;
            let blocks = (done, TRIALS);
            (self.watch)(&Event::Trial { name: &rung.name, tps, blocks, interval: None });
        }
        let result = self.result(rung, first, &trials, None, SAME, Verdict::Base);
        (self.watch)(&Event::Done(&result));
        Ok((result, trials))
    }

    /// Measures both in turn until the comparison is done.
    fn race(&mut self, best: &mut Competitor, candidate: &mut Competitor) -> Result<Race, Error> {
        let mut comparison = Comparison::new(self.config.bound);
        let mut of_best = Trials::default();
        let mut of_candidate = Trials::default();
        let most = self.config.bound.most_blocks();
        loop {
            let mut block = [0.0; BLOCK.len()];
            for (tps, side) in block.iter_mut().zip(BLOCK) {
                *tps = match side {
                    Side::Best => self.trial(best, &mut of_best)?,
                    Side::Candidate => self.trial(candidate, &mut of_candidate)?,
                };
                let (blocks, interval) = ((comparison.blocks(), most), comparison.interval());
                (self.watch)(&Event::Trial { name: &candidate.name, tps: *tps, blocks, interval });
            }
            if let Err(error) = comparison.push_block(block) {
                of_candidate.warn(&error.to_string());
            }
            if let State::Done(verdict) = comparison.state() {
                return Ok(Race { comparison, verdict, of_best, of_candidate });
            }
        }
    }

    fn trial(&self, competitor: &mut Competitor, trials: &mut Trials) -> Result<f64, Error> {
        let trial = trial::run(self.lab, self.config, self.protocol, competitor, self.stop)?;
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        if competitor.ended() {
            let reason = "it ended while it was measured".into();
            return Err(Error::NotReady { competitor: competitor.name.clone(), reason });
        }
        trials.add(trial.as_ref());
        Ok(trial.map_or(0.0, |t| t.tps))
    }

    fn result(
        &self,
        rung: &Rung,
        competitor: &Competitor,
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
            ..unmeasured(rung, &competitor.settings)
        };
        self.fill(&mut result, trials);
        result
    }

    /// Fills in what the trials say. A rung that failed keeps its note.
    fn fill(&self, result: &mut RungResult, trials: &Trials) {
        let size = self.config.size as u32;
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

/// A rung whose server did not come up.
fn failed(rung: &Rung, settings: &Settings, against: &str, error: &Error) -> RungResult {
    RungResult { against: Some(against.into()), note: Some(error.to_string()), ..unmeasured(rung, settings) }
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

/// What a reader must know before believing the ladder.
fn warnings(rungs: &[RungResult]) -> Vec<String> {
    let mut warnings = vec![
        "generator and server share this machine's CPUs: compare the rungs, not the absolute figures"
            .to_owned(),
    ];
    let losing: Vec<&str> = rungs.iter().filter(|r| r.loss > 0.001).map(|r| r.name.as_str()).collect();
    if !losing.is_empty() {
        warnings
            .push(format!("more than 0.1 % of the requests of {} had no reply in time", losing.join(", ")));
    }
    warnings
}
