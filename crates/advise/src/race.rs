//! A race: two rungs measured in turn, or in duets, until the comparison is decided.

use std::sync::atomic::Ordering;
use std::thread;

use udpath_load::Progress;
use udpath_load::result::LoadResult;

use crate::Error;
use crate::climb::Climb;
use crate::config::Event;
use crate::duet::InTurn;
use crate::entrant::Entrant;
use crate::ladder::{Rung, Settings};
use crate::server_under_test::{Home, ServerUnderTest};
use crate::statistics::ratio::{Ratio, Verdict};
use crate::statistics::{Comparison, State};
use crate::trial::{self, Trials};

/// One of the two that are measured in turn.
enum Turn {
    Best,
    Candidate,
}

/// The order within a block: an even drift affects both alike.
const BLOCK: [Turn; 4] = [Turn::Best, Turn::Candidate, Turn::Candidate, Turn::Best];

/// What a race showed.
pub(crate) struct Race {
    pub(crate) comparison: Comparison,
    pub(crate) verdict: Verdict,
    /// After duets: what the same trials say if taken for trials in turn.
    pub(crate) in_turn: Option<Ratio>,
    pub(crate) of_best: Trials,
    pub(crate) of_candidate: Trials,
}

/// Adds a trial, and returns its rate.
fn counted(trials: &mut Trials, result: Option<&LoadResult>) -> f64 {
    trials.add(result);
    result.map_or(0.0, |result| result.tps)
}

impl Climb<'_> {
    /// Starts a rung's servers.
    pub(crate) fn start(
        &self,
        rung: &Rung,
        settings: Settings,
        home: Home,
        port: u16,
    ) -> Result<Entrant, Error> {
        let sides = self.config.duet.as_ref().map_or(&[][..], |sides| &sides[..]);
        let cpus = sides.iter().map(Some).chain(sides.is_empty().then_some(None));
        let mut servers = Vec::new();
        for (machine, cpus) in home.into_iter().zip(cpus) {
            let server = ServerUnderTest::start(
                self.lab,
                &self.config.launch(),
                self.protocol,
                (machine, cpus),
                &rung.name,
                settings,
                port,
            )?;
            // Each trial sets it again; this call checks that it can be set at all.
            trial::set_receive_steering(self.lab, &server)
                .map_err(|cause| Error::NotPossible { rung: rung.name.to_string(), cause: cause.into() })?;
            servers.push(server);
        }
        Ok(Entrant { name: rung.name.to_string(), settings, home, servers })
    }

    /// One trial of a rung while no other is measured; in duets, of both its servers at once. Returns the rate of one
    /// server.
    pub(crate) fn turn(&self, entrant: &mut Entrant, trials: &mut Trials) -> Result<f64, Error> {
        match entrant.servers.as_mut_slice() {
            [one, other] => {
                let rates = self.at_once(one, other)?.map(|result| counted(trials, result.as_ref()));
                Ok(f64::midpoint(rates[0], rates[1]))
            }
            servers => Ok(counted(trials, self.trial(&mut servers[0])?.as_ref())),
        }
    }

    /// Measures both until the comparison is done.
    pub(crate) fn race(&mut self, best: &mut Entrant, candidate: &mut Entrant) -> Result<Race, Error> {
        let bound = self.config.bound;
        let mut comparison = Comparison::new(bound);
        let mut in_turn = InTurn::new(bound);
        let mut of_best = Trials::default();
        let mut of_candidate = Trials::default();
        // RFS has one table for the whole machine: it cannot be on for one side alone.
        let at_once = self.config.duet.is_some() && best.settings.rfs == candidate.settings.rfs;
        loop {
            let block = if at_once {
                let [a0, b1] = self.at_once(&mut best.servers[0], &mut candidate.servers[1])?;
                let [b0, a1] = self.at_once(&mut candidate.servers[0], &mut best.servers[1])?;
                let of_candidate = &mut of_candidate;
                let [a0, a1] = [a0, a1].map(|result| counted(&mut of_best, result.as_ref()));
                let [b1, b0] = [b1, b0].map(|result| counted(of_candidate, result.as_ref()));
                [a0, b1, b0, a1]
            } else {
                let mut block = [0.0; BLOCK.len()];
                for (tps, turn) in block.iter_mut().zip(BLOCK) {
                    let (entrant, trials) = match turn {
                        Turn::Best => (&mut *best, &mut of_best),
                        Turn::Candidate => (&mut *candidate, &mut of_candidate),
                    };
                    *tps = self.turn(entrant, trials)?;
                    self.show(&candidate.name, *tps, &comparison);
                }
                block
            };
            if let Err(error) = comparison.push_block(block) {
                of_candidate.warn(&error.to_string());
            }
            if at_once {
                in_turn.push_block(block);
                self.show(&candidate.name, block[2], &comparison);
            }
            if let State::Done(verdict) = comparison.state() {
                let in_turn = in_turn.interval();
                return Ok(Race { comparison, verdict, in_turn, of_best, of_candidate });
            }
        }
    }

    fn show(&mut self, name: &str, tps: f64, comparison: &Comparison) {
        let blocks = (comparison.blocks(), self.config.bound.most_blocks());
        (self.watch)(&Event::Trial { name, tps, blocks, interval: comparison.interval() });
    }

    /// A trial of one server.
    fn trial(&self, server: &mut ServerUnderTest) -> Result<Option<LoadResult>, Error> {
        let result = self.measurement()(server);
        self.checked(result, server)
    }

    /// A trial of two servers at once, on their sides.
    fn at_once(
        &self,
        one: &mut ServerUnderTest,
        other: &mut ServerUnderTest,
    ) -> Result<[Option<LoadResult>; 2], Error> {
        // One after the other: they share the machine's flow table.
        for server in [&*one, &*other] {
            trial::set_receive_steering(self.lab, server)?;
        }
        let measure = self.measurement();
        let [of_one, of_other] = thread::scope(|scope| {
            let beside = scope.spawn(|| measure(other));
            let of_one = measure(one);
            [of_one, beside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))]
        });
        Ok([self.checked(of_one, one)?, self.checked(of_other, other)?])
    }

    /// Measures a server; it can be called on several threads.
    fn measurement(&self) -> impl Fn(&ServerUnderTest) -> Result<Option<LoadResult>, Error> + Sync {
        let (lab, config, protocol, stop) = (self.lab, self.config, self.protocol, self.stop);
        move |server| {
            let plan = trial::plan(config, server.address);
            trial::run(lab, config.engine, &plan, protocol, server, &mut |_: &Progress| (), stop)
        }
    }

    /// The result of a trial that was not interrupted, of a server that is still there.
    fn checked(
        &self,
        result: Result<Option<LoadResult>, Error>,
        server: &mut ServerUnderTest,
    ) -> Result<Option<LoadResult>, Error> {
        let result = result?;
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        if server.ended() {
            let reason = "it ended during a trial".into();
            return Err(Error::NotReady { rung: server.name.clone(), reason });
        }
        Ok(result)
    }
}
