//! The caller: gathers agents, gives each its segment and the start, follows them, and merges their results.
//!
//! ```text
//!   gather ─▸ compare clocks ─▸ prepare ─▸ follow: beats, deaths, stop ─▸ results ─▸ merge
//!   └──────────────── says that it is alive, once per second ────────────────────┘
//! ```
//! Whoever may publish may offer agents that do not exist: an agent counts once it has answered a question sent to it
//! by name, and nothing here takes longer or more memory for offers that never do. An agent is dead once nothing was
//! heard from it for [`SILENCE`] of a connection that held; while the server is away, agents are only silent. The
//! others' results count; the sum says which segments are missing.

mod gather;
mod offers;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use udpath_load::plan::{Plan, PlanError, Segment};
use udpath_load::result::{LoadResult, MergeError};

use crate::agent::BEAT;
use crate::clock::{self, Offset};
use crate::link::{self, Channel, Link, LinkError};
use crate::message::{FromAgent, Order, Said, ToAgent};
use crate::{Access, agent_subject, is_name, subject};

pub use crate::message::Beat;

/// Time without a message after which an agent is dead: five beats. Shorter: an agent on a busy machine is given up.
/// Longer: deaths are reported later, and the end waits for them.
pub const SILENCE: Duration = Duration::from_secs(5);
/// Time until an agent that has not confirmed its segment gets it again. Longer: with a short lead, a message that was
/// lost costs an agent. Shorter: more messages on a slow connection.
const PREPARE_INTERVAL: Duration = Duration::from_millis(200);
/// Longest wait for a message.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time between two views.
const VIEW_INTERVAL: Duration = Duration::from_secs(1);
/// How long results may take after the end of the load. Shorter: slow agents are lost. Longer: an end takes that long
/// if one hangs.
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
    let link = Link::open(&call.access, vec![subject(&call.fleet, &format!("run.{run}"))], stop)?;
    call_over(&link, run, call, inform, stop)
}

pub(crate) fn call_over(
    channel: &dyn Channel,
    run: String,
    call: &Call,
    inform: &mut dyn FnMut(Event),
    stop: &AtomicBool,
) -> Result<Outcome, Error> {
    let alive = Instant::now();
    let mut caller = Caller { call, run, channel, alive, agents: BTreeMap::new(), inform };
    let started = caller.gather(stop).and_then(|()| {
        caller.compare_clocks();
        caller.prepare()
    });
    match started {
        Ok(start) => {
            caller.follow(start, stop);
            caller.merged()
        }
        Err(error) => {
            // Those that offered themselves are free for others at once.
            caller.to_all(&ToAgent::Stop { run: caller.run.clone() });
            Err(error)
        }
    }
}

struct Caller<'a> {
    call: &'a Call,
    run: String,
    channel: &'a dyn Channel,
    /// When the agents are told next that it is alive.
    alive: Instant,
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
    /// It has confirmed its segment.
    prepared: bool,
    end: Option<Result<Box<LoadResult>, String>>,
}

impl Agent {
    fn new(instance: u64, offset: Offset) -> Self {
        Self {
            instance,
            segment: Segment::WHOLE,
            offset: Some(offset),
            beat: Beat::default(),
            heard: Instant::now(),
            prepared: false,
            end: None,
        }
    }
}

impl Caller<'_> {
    fn to_all(&self, message: &ToAgent) {
        link::send(self.channel, &subject(&self.call.fleet, "agents"), message);
    }

    fn to(&self, agent: &str, message: &ToAgent) {
        link::send(self.channel, &agent_subject(&self.call.fleet, agent), message);
    }

    /// The next message, and when it arrived.
    fn hear(&mut self, within: Duration) -> Option<(FromAgent, u64)> {
        if Instant::now() >= self.alive {
            self.alive = Instant::now() + BEAT;
            self.to_all(&ToAgent::Alive { run: self.run.clone() });
        }
        let message = self.channel.next(within)?;
        let said: FromAgent = serde_json::from_slice(&message.payload).ok()?;
        is_name(&said.agent).then_some((said, message.at))
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
        self.send_segments(start);
        (self.inform)(Event::Prepared(of, self.call.lead));
        Ok(start)
    }

    /// To those that have not confirmed theirs.
    fn send_segments(&self, start: u64) {
        for (name, agent) in self.agents.iter().filter(|(_, agent)| !agent.prepared && agent.end.is_none()) {
            let ahead = agent.offset.map_or(0, Offset::significant);
            let (run, instance, segment) = (self.run.clone(), agent.instance, agent.segment);
            self.to(name, &ToAgent::Prepare { run, instance, segment, start, ahead });
        }
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
        let mut prepare = begun + PREPARE_INTERVAL;
        while self.agents.values().any(|agent| agent.end.is_none()) {
            if let Some((message, _)) = self.hear(POLL_INTERVAL) {
                self.followed(message);
            }
            let now = Instant::now();
            // One that gets it after the start would be late.
            if now >= prepare && clock::now() < start {
                prepare = now + PREPARE_INTERVAL;
                self.send_segments(start);
            }
            if connected != self.channel.is_connected() {
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
        // Those that were given up may still send.
        if self.agents.values().any(|agent| matches!(agent.end, Some(Err(_)))) {
            self.to_all(&ToAgent::Stop { run: self.run.clone() });
        }
    }

    fn followed(&mut self, message: FromAgent) {
        let FromAgent { agent: name, instance, said, .. } = message;
        let ended = matches!(said, Said::Result(_) | Said::Failed(_));
        let Some(agent) = self.agents.get_mut(&name).filter(|agent| agent.instance == instance) else {
            return;
        };
        agent.heard = Instant::now();
        // Answers to earlier questions are no sign that it has its segment.
        agent.prepared |= !matches!(said, Said::Offer | Said::Refused(_) | Said::Clock { .. });
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
