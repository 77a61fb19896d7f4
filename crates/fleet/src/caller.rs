//! The caller: gathers agents, gives each its segment and the start, follows them, and merges their results.
//!
//! ```text
//!   gather ─▸ compare clocks ─▸ prepare ─▸ follow: beats, deaths, stop ─▸ results ─▸ merge
//! ```
//! An agent is dead once nothing was heard from it for [`SILENCE`] of a connection that held; while the server is away, agents are
//! only silent. The others' results count; the sum says which segments are missing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use udpath_load::plan::{Plan, PlanError, Segment};
use udpath_load::result::{LoadResult, MergeError};

use crate::clock::{self, Offset};
use crate::link::{Link, LinkError};
use crate::message::{FromAgent, Order, Said, ToAgent};
use crate::{Access, subject};

pub use crate::message::Beat;

/// Time without a message after which an agent is dead: five beats. Shorter: an agent on a busy machine is given up.
/// Longer: deaths are reported later, and the end waits for them.
pub const SILENCE: Duration = Duration::from_secs(5);
/// Exchanges of time with each agent; the one with the least delay counts. Fewer: a busy moment is in the offset.
const EXCHANGES: u32 = 8;
/// Exchanges without an answer after which an agent is left out.
const MISSES: u32 = 2;
/// How long an exchange may take.
const EXCHANGE_TIMEOUT: Duration = Duration::from_millis(500);
/// Time between two announcements, while agents are being gathered.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(1);
/// Longest wait for a message.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time between two views.
const VIEW_INTERVAL: Duration = Duration::from_secs(1);
/// How long results may take after the end of the load. Shorter: slow agents are lost. Longer: an end takes that long if one hangs.
const RESULTS: Duration = Duration::from_secs(30);
/// How long a caller waits for a server that has gone. Agents keep their results for as long.
const RECONNECTION: Duration = Duration::from_secs(600);

/// A load to be carried out.
#[derive(Debug, Clone)]
pub struct Call {
    /// The server.
    pub access: Access,
    /// The fleet's name.
    pub fleet: String,
    /// The load.
    pub order: Order,
    /// How many agents it needs; none: those that answer within `gather`.
    pub agents: Option<u32>,
    /// How long to wait for agents.
    pub gather: Duration,
    /// Time from preparing the agents to the start.
    pub lead: Duration,
}

/// How an agent is doing.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentView {
    /// Its name.
    pub name: String,
    /// Its segment.
    pub segment: Segment,
    /// What it said last.
    pub beat: Beat,
    /// How far its clock is ahead of the caller's.
    pub offset: Offset,
    /// Whether its result has arrived.
    pub done: bool,
    /// Why it is lost.
    pub lost: Option<String>,
}

/// How the fleet is doing.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// Time since the start; none before it.
    pub elapsed: Option<Duration>,
    /// Warm-up and window.
    pub total: Duration,
    /// Whether there is a connection to the server.
    pub connected: bool,
    /// The agents, by segment.
    pub agents: Vec<AgentView>,
}

/// What a caller is informed of while the load runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// An agent does not take part, and why.
    Refused(String, String),
    /// All agents are prepared; how many, and in what time they start.
    Prepared(u32, Duration),
    /// Once per second.
    View(View),
    /// An agent was lost, and why.
    Lost(String, String),
    /// The connection is gone, or back.
    Connection(bool),
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The connection.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The plan cannot be divided among so many.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Not enough agents.
    #[error(
        "{have} of {wanted} agents of fleet {fleet} answered{why}: start `udpath agent` on the machines, and compare --fleet-name"
    )]
    TooFew {
        /// How many answered.
        have: usize,
        /// How many were needed.
        wanted: u32,
        /// The fleet.
        fleet: String,
        /// Refusals, as `; NAME refused: WHY`.
        why: String,
    },
    /// Two agents with one name.
    #[error("two agents of the fleet are named {0}: give each a --name of its own")]
    SameName(String),
    /// Every agent was lost.
    #[error("no agent sent a result: {0}")]
    NoResult(String),
    /// Results that do not fit together: agents of different versions.
    #[error("cannot merge the agents' results")]
    Merge(#[from] MergeError),
}

/// What came of a load.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The sum of the agents' results.
    pub result: LoadResult,
    /// The agents without a result, and why.
    pub lost: Vec<(String, String)>,
}

/// Carries out a load with a fleet. Setting `stop` ends it early, with the results until then.
///
/// # Errors
/// See [`Error`].
pub fn call(call: &Call, inform: &mut dyn FnMut(Event), stop: &AtomicBool) -> Result<Outcome, Error> {
    let run = format!("{:016x}", clock::now() ^ u64::from(std::process::id()).rotate_left(48));
    let link = Link::open(&call.access, vec![subject(&call.fleet, &format!("run.{run}"))])?;
    let mut caller = Caller { call, run, link, agents: BTreeMap::new(), inform };
    caller.gather(stop)?;
    caller.compare_clocks()?;
    let start = caller.prepare()?;
    caller.follow(start, stop);
    caller.merged()
}

struct Caller<'a> {
    call: &'a Call,
    run: String,
    link: Link,
    /// By name.
    agents: BTreeMap<String, Agent>,
    inform: &'a mut dyn FnMut(Event),
}

struct Agent {
    instance: u64,
    segment: Segment,
    offset: Option<Offset>,
    beat: Beat,
    heard: Instant,
    end: Option<Result<Box<LoadResult>, String>>,
}

impl Caller<'_> {
    fn to_all(&self, message: &ToAgent) {
        self.link.send(&subject(&self.call.fleet, "agents"), message);
    }

    fn to(&self, agent: &str, message: &ToAgent) {
        self.link.send(&subject(&self.call.fleet, &format!("agent.{agent}")), message);
    }

    /// The next message, and when it arrived.
    fn hear(&self, within: Duration) -> Option<(FromAgent, u64)> {
        let message = self.link.next(within)?;
        let said: FromAgent = serde_json::from_slice(&message.payload).ok()?;
        crate::is_name(&said.agent).then_some((said, message.at))
    }

    fn gather(&mut self, stop: &AtomicBool) -> Result<(), Error> {
        let announcement =
            ToAgent::Announce { run: self.run.clone(), order: Box::new(self.call.order.clone()) };
        let (until, mut announce) = (Instant::now() + self.call.gather, Instant::now());
        let mut refused = BTreeMap::new();
        while Instant::now() < until && !stop.load(Ordering::Relaxed) {
            if Instant::now() >= announce {
                self.to_all(&announcement);
                announce += ANNOUNCE_INTERVAL;
            }
            match self.hear(POLL_INTERVAL) {
                Some((FromAgent { agent, instance, said: Said::Offer }, _)) => {
                    self.offered(agent, instance)?;
                }
                Some((FromAgent { agent, said: Said::Refused(why), .. }, _))
                    if refused.insert(agent.clone(), why.clone()).is_none() =>
                {
                    (self.inform)(Event::Refused(agent, why));
                }
                _ => {}
            }
            if self.call.agents.is_some_and(|wanted| self.agents.len() >= wanted as usize) {
                return Ok(());
            }
        }
        match self.call.agents {
            None if !self.agents.is_empty() => Ok(()),
            wanted => Err(Error::TooFew {
                have: self.agents.len(),
                wanted: wanted.unwrap_or(1),
                fleet: self.call.fleet.clone(),
                why: refused.iter().map(|(agent, why)| format!("; {agent} refused: {why}")).collect(),
            }),
        }
    }

    fn offered(&mut self, name: String, instance: u64) -> Result<(), Error> {
        match self.agents.get(&name) {
            Some(agent) if agent.instance != instance => Err(Error::SameName(name)),
            Some(_) => Ok(()),
            None => {
                let agent = Agent {
                    instance,
                    segment: Segment::WHOLE,
                    offset: None,
                    beat: Beat::default(),
                    heard: Instant::now(),
                    end: None,
                };
                self.agents.insert(name, agent);
                Ok(())
            }
        }
    }

    /// Measures how far each agent's clock is ahead; those that do not answer are left out.
    fn compare_clocks(&mut self) -> Result<(), Error> {
        let names: Vec<String> = self.agents.keys().cloned().collect();
        for name in names {
            let (mut offset, mut misses) = (None, 0);
            for _ in 0..EXCHANGES {
                match self.exchange(&name) {
                    Some(measured) => offset = Some(measured.better(offset)),
                    None => misses += 1,
                }
                if misses == MISSES {
                    break;
                }
            }
            match self.agents.get_mut(&name) {
                Some(agent) if offset.is_some() => agent.offset = offset,
                _ => {
                    self.agents.remove(&name);
                    (self.inform)(Event::Refused(name, "it no longer answers".into()));
                }
            }
        }
        let wanted = self.call.agents.unwrap_or(1);
        if self.agents.len() >= wanted as usize {
            return Ok(());
        }
        let (have, fleet) = (self.agents.len(), self.call.fleet.clone());
        Err(Error::TooFew { have, wanted, fleet, why: "; others no longer do".into() })
    }

    fn exchange(&self, name: &str) -> Option<Offset> {
        let asked = clock::now();
        self.to(name, &ToAgent::Clock { run: self.run.clone(), now: asked });
        let until = Instant::now() + EXCHANGE_TIMEOUT;
        while Instant::now() < until {
            let Some((FromAgent { agent, said, .. }, heard)) = self.hear(POLL_INTERVAL) else { continue };
            if let Said::Clock { asked: of, received, answered } = said
                && (agent.as_str(), of) == (name, asked)
            {
                return Offset::new(asked, received, answered, heard);
            }
        }
        None
    }

    /// Gives each agent its segment; returns the start.
    fn prepare(&mut self) -> Result<u64, Error> {
        let of = u32::try_from(self.agents.len()).unwrap_or(u32::MAX);
        let start = clock::now().saturating_add(clock::length(self.call.lead));
        for (index, agent) in (1..).zip(self.agents.values_mut()) {
            agent.segment = Segment::new(index, of)
                .ok_or(PlanError::EmptySegments { flows: self.call.order.plan.flows, segments: of })?;
            Plan { segment: agent.segment, ..self.call.order.plan.clone() }.check()?;
            agent.heard = Instant::now();
        }
        for (name, agent) in &self.agents {
            let ahead = agent.offset.map_or(0, Offset::significant);
            let (run, instance, segment) = (self.run.clone(), agent.instance, agent.segment);
            self.to(name, &ToAgent::Prepare { run, instance, segment, start, ahead });
        }
        (self.inform)(Event::Prepared(of, self.call.lead));
        Ok(start)
    }

    /// Until every agent has sent its result, or is lost.
    fn follow(&mut self, start: u64, stop: &AtomicBool) {
        let plan = &self.call.order.plan;
        let total = plan.warmup.saturating_add(plan.duration);
        let end = self.call.lead + total + plan.timeout.saturating_mul(2) + RESULTS;
        let begun = Instant::now();
        let (mut connected, mut since) = (true, begun);
        // Time without a connection does not count.
        let (mut away, mut viewed, mut stopped) = (Duration::ZERO, begun, None::<Instant>);
        while self.agents.values().any(|agent| agent.end.is_none()) {
            if let Some((message, _)) = self.hear(POLL_INTERVAL) {
                self.followed(message);
            }
            let now = Instant::now();
            if connected != self.link.is_connected() {
                away += if connected { Duration::ZERO } else { now - since };
                (connected, since) = (!connected, now);
                (self.inform)(Event::Connection(connected));
            }
            if stop.load(Ordering::Relaxed) && stopped.is_none_or(|at| now - at >= VIEW_INTERVAL) {
                stopped = Some(now);
                self.to_all(&ToAgent::Stop { run: self.run.clone() });
            }
            if connected && now - since >= SILENCE {
                self.give_up(|agent| now - agent.heard >= SILENCE, "nothing was heard from it for 5 s");
            }
            if connected && now - begun >= end.saturating_add(away) {
                self.give_up(|_| true, "it sent no result in time");
            }
            if !connected && now - since >= RECONNECTION {
                self.give_up(|_| true, "the NATS server did not come back");
            }
            if now - viewed >= VIEW_INTERVAL {
                viewed += VIEW_INTERVAL;
                let view = self.view(start, total, connected);
                (self.inform)(Event::View(view));
            }
        }
    }

    fn followed(&mut self, message: FromAgent) {
        let FromAgent { agent: name, instance, said } = message;
        let ended = matches!(said, Said::Result(_) | Said::Failed(_));
        let Some(agent) = self.agents.get_mut(&name).filter(|agent| agent.instance == instance) else {
            return;
        };
        agent.heard = Instant::now();
        match said {
            Said::Beat(beat) => agent.beat = beat,
            Said::Result(result) if agent.end.is_none() => agent.end = Some(Ok(result)),
            Said::Failed(why) if agent.end.is_none() => {
                agent.end = Some(Err(why.clone()));
                (self.inform)(Event::Lost(name.clone(), why));
            }
            // Said again because the acknowledgement was lost, or before the load began.
            _ => {}
        }
        if ended {
            self.to(&name, &ToAgent::Received { run: self.run.clone() });
        }
    }

    /// Gives up agents that have no result yet.
    fn give_up(&mut self, dead: impl Fn(&Agent) -> bool, why: &str) {
        for (name, agent) in self.agents.iter_mut().filter(|(_, agent)| agent.end.is_none() && dead(agent)) {
            agent.end = Some(Err(why.to_owned()));
            (self.inform)(Event::Lost(name.clone(), why.to_owned()));
        }
    }

    fn view(&self, start: u64, total: Duration, connected: bool) -> View {
        let elapsed = clock::now().checked_sub(start).map(Duration::from_nanos);
        let of = |(name, agent): (&String, &Agent)| AgentView {
            name: name.clone(),
            segment: agent.segment,
            beat: agent.beat.clone(),
            offset: agent.offset.unwrap_or(Offset { ahead_ns: 0, delay_ns: 0 }),
            done: matches!(agent.end, Some(Ok(_))),
            lost: agent.end.as_ref().and_then(|end| end.as_ref().err()).cloned(),
        };
        View { elapsed, total, connected, agents: self.agents.iter().map(of).collect() }
    }

    fn merged(self) -> Result<Outcome, Error> {
        let (mut named, mut lost, mut offsets) = (Vec::new(), Vec::new(), BTreeMap::new());
        for (name, agent) in self.agents {
            offsets.insert(name.clone(), agent.offset.map(|offset| offset.ahead_ns));
            match agent.end {
                Some(Ok(result)) => named.push((name, *result)),
                Some(Err(why)) => lost.push((name, why)),
                None => lost.push((name, "it sent no result".into())),
            }
        }
        if named.is_empty() {
            let why = lost.iter().map(|(name, why)| format!("{name}: {why}")).collect::<Vec<_>>();
            return Err(Error::NoResult(why.join("; ")));
        }
        let mut result = LoadResult::merge_segments(named)?;
        result.set_offsets(|name| offsets.get(name).copied().flatten());
        let gone = lost.iter().map(|(name, why)| format!("agent {name} is not in the sums: {why}"));
        result.warnings.extend(gone);
        Ok(Outcome { result, lost })
    }
}
