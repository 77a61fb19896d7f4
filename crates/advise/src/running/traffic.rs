//! What goes to the server while it is measured: a load of udpath's own, or what its clients send.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use error_reporter::Report;
use udpath_host::namespace::Place;
use udpath_load::plan::Plan;
use udpath_load::result::LoadResult;
use udpath_profile::facts::Focus;
use udpath_profile::trace::{DelayMeter, Times};

use super::evidence::{self, Evidence};
use super::live::{self, LiveCounters, Seen, SideEffects};
use super::load::{self, Load, WARMUP, WARMUP_SHARE};
use super::target::Target;
use super::truth::Counters;
use super::{RunningConfig, RunningError, Traffic};
use crate::search::{Candidate, Under};

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
    Load(Box<Load<'a>>),
    /// What clients send.
    Live(Box<LiveTraffic<'a>>),
}

/// What clients send, as it was so far.
pub(super) struct LiveTraffic<'a> {
    length: Duration,
    stop: &'a AtomicBool,
    /// The trial before.
    last: Option<Seen>,
    /// How long datagrams take inside the machine, or why that is not measured.
    meter: Result<DelayMeter, String>,
    /// By what was changed; nothing: as found.
    effects: BTreeMap<Vec<Candidate>, SideEffects>,
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
                let (plan, other) = (load.plan.clone(), load::other(&load.plan));
                Self::Load(Box::new(Load { config: load, plan, other, from, stop }))
            }
            Traffic::Live(length) => Self::Live(Box::new(LiveTraffic {
                length: *length,
                stop,
                last: None,
                meter: DelayMeter::start().map_err(|error| Report::new(error).to_string()),
                effects: BTreeMap::new(),
            })),
        }
    }

    /// The other load, if there is one.
    pub(super) fn other_load(&self) -> Option<&Plan> {
        match self {
            Self::Load(load) => Some(&load.other),
            Self::Live(_) => None,
        }
    }

    /// What is not measured, and why.
    pub(super) fn unmeasured(&self) -> Option<String> {
        let Self::Live(live) = self else { return None };
        let why = live.meter.as_ref().err()?;
        Some(format!("how long datagrams take inside this machine was not judged: {why}"))
    }

    /// The interfaces that it leaves by and arrives on; live traffic only arrives.
    pub(super) fn interfaces(&mut self, target: &Target) -> Result<(String, String), RunningError> {
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

    /// One trial of these changes; none: of what was found.
    pub(super) fn trial(
        &mut self,
        target: &Target,
        interfaces: &(String, String),
        on: &[Candidate],
        under: Under,
    ) -> Result<Result<Measured, Refused>, RunningError> {
        match self {
            Self::Load(load) => {
                let result = load.checked(interfaces, under)?;
                Ok(result.map(|result| Measured::Load(Box::new(result))).map_err(Refused::Trial))
            }
            Self::Live(live) => live.trial(target, on),
        }
    }
}

impl LiveTraffic<'_> {
    fn counters(&self, target: &Target) -> Result<LiveCounters, RunningError> {
        LiveCounters::read(&target.pids(), self.delays(target)).map_err(RunningError::Counters)
    }

    /// How long the server's datagrams took so far.
    fn delays(&self, target: &Target) -> Option<Times> {
        let netns = std::fs::metadata("/proc/thread-self/ns/net").ok()?.ino() as u32;
        self.meter.as_ref().ok()?.read(&target.addresses, netns).ok()
    }

    fn trial(
        &mut self,
        target: &Target,
        on: &[Candidate],
    ) -> Result<Result<Measured, Refused>, RunningError> {
        let before = self.counters(target)?;
        live::wait(self.length, self.stop);
        let seen = self.counters(target)?.since(&before);
        let last = self.last.replace(seen.clone());
        if let Some(why) = last.and_then(|last| seen.jumped(&last)) {
            return Ok(Err(Refused::Trial(why)));
        }
        self.effects.entry(on.to_vec()).or_default().add(&seen);
        if let ([_, ..], Some(found), Some(changed)) = (on, self.effects.get(&[][..]), self.effects.get(on))
            && let Some(why) = changed.refuses(found)
        {
            return Ok(Err(Refused::Change(why)));
        }
        Ok(Ok(Measured::Live(seen)))
    }
}
