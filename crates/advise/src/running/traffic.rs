//! What goes to the server while it is measured: a load of udpath's own, or what its clients send.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use udpath_host::namespace::Place;
use udpath_load::result::LoadResult;
use udpath_profile::facts::Focus;

use super::evidence::{self, Evidence};
use super::live::{self, LiveCounters, Losses, Seen};
use super::load::{Load, WARMUP, WARMUP_SHARE};
use super::target::Target;
use super::truth::Counters;
use super::{RunningConfig, RunningError, Traffic};

/// A trial's outcome.
#[derive(Debug)]
pub(super) enum Measured {
    /// Of a load.
    Load(Box<LoadResult>),
    /// Of live traffic.
    Live(Seen),
}

impl Measured {
    /// What is compared: transactions per second, or datagrams per second of CPU time.
    pub(super) fn figure(&self) -> f64 {
        match self {
            Self::Load(result) => result.tps,
            Self::Live(seen) => seen.per_cpu_second(),
        }
    }
}

/// Why a trial does not count.
#[derive(Debug)]
pub(super) enum Refused {
    /// It cannot be trusted, and is repeated.
    Trial(String),
    /// What was measured is not wanted, whatever its figure.
    Change(String),
}

/// The traffic of a boost.
pub(super) enum Sent<'a> {
    /// A load, run for each trial.
    Load(Load<'a>),
    /// What clients send.
    Live(LiveTraffic<'a>),
}

/// What clients send, as it was so far.
pub(super) struct LiveTraffic<'a> {
    length: Duration,
    stop: &'a AtomicBool,
    /// The trial before.
    last: Option<Seen>,
    /// With nothing changed.
    found: Losses,
    /// Of the change that is measured.
    losses: Losses,
}

impl<'a> Sent<'a> {
    /// The traffic that is configured; `stop` ends a trial.
    pub(super) fn new(config: &'a RunningConfig, stop: &'a AtomicBool) -> Self {
        match &config.traffic {
            Traffic::Load(load) => {
                // `Here` is where the caller was before it entered the server's namespace.
                let from = match (&load.from, &config.place) {
                    (Place::Here, Place::Here) => Place::Here,
                    (Place::Here, _) => Place::Process(std::process::id()),
                    (from, _) => from.clone(),
                };
                Self::Load(Load { config: load, from, stop })
            }
            Traffic::Live(length) => Self::Live(LiveTraffic {
                length: *length,
                stop,
                last: None,
                found: Losses::default(),
                losses: Losses::default(),
            }),
        }
    }

    /// The interfaces that it leaves by and arrives on; live traffic only arrives.
    pub(super) fn interfaces(&self, target: &Target) -> Result<(String, String), RunningError> {
        match self {
            Self::Load(load) => load.interfaces()?.ok_or_else(|| RunningError::Silent(target.name())),
            Self::Live(live) => {
                let (before, packets) = (live.counters(target)?, Counters::read());
                live::wait(live.length, live.stop);
                let arrived = live.counters(target)?.since(&before).delivered > 0;
                let there = Counters::read().busiest(&packets, |packets| packets.received);
                let there = there.filter(|_| arrived).ok_or_else(|| RunningError::Quiet(target.name()))?;
                Ok((there.clone(), there))
            }
        }
    }

    /// Lets a change take effect before it is measured.
    pub(super) fn warm(&mut self) -> Result<(), RunningError> {
        match self {
            // Not scored: a server that answers nothing shows in the trial.
            Self::Load(load) => match load.warm() {
                Ok(_) | Err(RunningError::Silent(_)) => {}
                Err(error) => return Err(error),
            },
            Self::Live(live) => {
                live.losses = Losses::default();
                live::wait(live.length.mul_f64(WARMUP_SHARE).clamp(WARMUP.0, WARMUP.1), live.stop);
            }
        }
        Ok(())
    }

    /// What is seen of the server.
    pub(super) fn evidence(&self, target: &Target) -> Result<Evidence, RunningError> {
        let focus = Focus { port: Some(target.port), pids: target.pids() };
        match self {
            Self::Load(load) => load.evidence(focus),
            Self::Live(live) => Ok(evidence::look(focus, live.stop)),
        }
    }

    /// One trial; `changed`: of a change rather than of what was found.
    pub(super) fn trial(
        &mut self,
        target: &Target,
        interfaces: &(String, String),
        changed: bool,
    ) -> Result<Result<Measured, Refused>, RunningError> {
        match self {
            Self::Load(load) => {
                let result = load.checked(interfaces)?;
                Ok(result.map(|result| Measured::Load(Box::new(result))).map_err(Refused::Trial))
            }
            Self::Live(live) => live.trial(target, changed),
        }
    }
}

impl LiveTraffic<'_> {
    fn counters(&self, target: &Target) -> Result<LiveCounters, RunningError> {
        LiveCounters::read(&target.pids()).map_err(RunningError::Counters)
    }

    fn trial(&mut self, target: &Target, changed: bool) -> Result<Result<Measured, Refused>, RunningError> {
        let before = self.counters(target)?;
        live::wait(self.length, self.stop);
        let seen = self.counters(target)?.since(&before);
        let last = self.last.replace(seen.clone());
        if let Some(why) = last.and_then(|last| seen.jumped(&last)) {
            return Ok(Err(Refused::Trial(why)));
        }
        if changed {
            self.losses.add(&seen);
            if let Some(why) = self.losses.refuses(self.found) {
                return Ok(Err(Refused::Change(why)));
            }
        } else {
            self.found.add(&seen);
        }
        Ok(Ok(Measured::Live(seen)))
    }
}
