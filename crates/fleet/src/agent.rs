//! An agent: offers itself to one caller at a time, carries out a segment, and keeps the result until the caller has
//! it.
//!
//! ```text
//!   free ── Announce: within the limits? Offer ──▶ offered ── Prepare ──▶ working ── the thread has ended ──▶ reporting ── Received ──▶ free
//!                                                    │                       │ Stop, or the time limit: ends early  │
//!                                                    └── Stop, or the caller is silent for LEASE: ends early, ──────┴──▶ free
//!                                                        nothing is reported
//! ```
//! - Everything is decided here: the order is checked when it is announced, and again with its segment before it runs.
//! - While a caller has the agent, others are refused, with the load and the time since when. A caller has it for as
//!   long as it is heard: one that died is forgotten after [`LEASE`] of a connection that held. Time without a
//!   connection does not count.
//! - Any message may come twice: the answer is the same, and a run begins once.

mod work;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use udpath_load::Progress;
use udpath_load::plan::{Arrivals, Plan, Segment};
use udpath_load::result::LoadResult;

use crate::link::{self, Channel, Link, LinkError};
use crate::message::{self, FromAgent, Order, Said, ToAgent};
use crate::{Access, Limits, agent_subject, clock, is_token, subject};

pub(crate) use work::BEAT;
use work::Work;

/// Longest wait for a message: ends, stops and signals are noticed within it.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long a silent caller still has the agent: five of its messages. Shorter: a busy caller loses its agents. Longer:
/// after the death of a caller others wait for longer.
pub const LEASE: Duration = Duration::from_secs(5);
/// Time that opening flows and draining may take beyond the plan's, before an agent ends a run by force of its own
/// limit.
const GRACE: Duration = Duration::from_secs(10);
/// Furthest start that is accepted.
const MAX_LEAD: Duration = Duration::from_secs(600);
/// How long an agent that is ended waits for a run's last replies and for the caller to take the result; and for all of
/// that with the end of the connection. Shorter: results of loads whose timeout is a second, the default, are lost.
/// Longer: whoever ends it, such as systemd at a shutdown, waits.
const END: (Duration, Duration) = (Duration::from_millis(2300), Duration::from_millis(2600));
/// Runs that are remembered after their end, so that a message that comes late begins nothing.
const REMEMBERED: usize = 16;
/// Least time between two refusals in the log. Shorter: whoever may announce fills the log.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Carries out an order: its protocol, options and engine become a run.
pub trait Worker: Send + Sync + 'static {
    /// Checks what only the program knows: that protocol, options and engine exist and fit. Returns the bytes of the
    /// longest request that it would send, which may be more than the plan says.
    ///
    /// # Errors
    /// A sentence for the caller.
    fn check(&self, order: &Order) -> Result<usize, String>;

    /// Carries out the order, whose plan has its segment and start.
    ///
    /// # Errors
    /// A sentence for the caller. A run that was cut short is a result with a warning.
    fn run(
        &self,
        order: &Order,
        progress: &mut dyn FnMut(&Progress),
        stop: &AtomicBool,
    ) -> Result<LoadResult, String>;
}

/// An agent's place in its fleet.
#[derive(Debug, Clone)]
pub struct Config {
    /// The server.
    pub access: Access,
    /// The fleet's name: a caller and its agents have the same.
    pub fleet: String,
    /// This agent's name, which no other agent of the fleet has.
    pub name: String,
    /// What it accepts.
    pub limits: Limits,
}

/// What an agent reports to its own log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It is connected and waits for orders.
    Ready,
    /// It has refused an order, and why.
    Refused(String),
    /// It carries out this segment, of this load.
    Started(Segment, String),
    /// The load has ended; the text says how.
    Ended(String),
    /// The caller has the result.
    Delivered,
    /// The caller is silent: the agent is free again, and what it had is discarded.
    CallerLost,
}

/// Carries out orders until `stop` is set, and then returns within three seconds.
///
/// # Errors
/// The first connection fails.
pub fn serve(
    config: &Config,
    worker: Arc<dyn Worker>,
    stop: &AtomicBool,
    log: &mut dyn FnMut(Event),
) -> Result<(), LinkError> {
    let mine = agent_subject(&config.fleet, &config.name);
    let link = match Link::open(&config.access, vec![subject(&config.fleet, "agents"), mine], stop) {
        Err(LinkError::Stopped) => return Ok(()),
        opened => opened?,
    };
    serve_over(link, config, worker, stop, log);
    Ok(())
}

pub(crate) fn serve_over(
    channel: impl Channel,
    config: &Config,
    worker: Arc<dyn Worker>,
    stop: &AtomicBool,
    log: &mut dyn FnMut(Event),
) {
    let instance = clock::now() ^ u64::from(std::process::id()).rotate_left(40);
    let (refused, past) = (None, VecDeque::new());
    let mut agent = Agent { config, worker, channel, instance, engaged: None, refused, past, log };
    (agent.log)(Event::Ready);
    while !stop.load(Ordering::Relaxed) {
        agent.turn();
    }
    agent.end();
}

struct Agent<'a, C> {
    config: &'a Config,
    worker: Arc<dyn Worker>,
    channel: C,
    instance: u64,
    engaged: Option<Engagement>,
    /// The run last refused, and when that was logged.
    refused: Option<(String, Instant)>,
    /// The last runs that ended.
    past: VecDeque<String>,
    log: &'a mut dyn FnMut(Event),
}

/// What an agent does for a caller.
struct Engagement {
    run: String,
    /// The load in a few words.
    what: String,
    since: Instant,
    /// When the caller was last heard.
    heard: Instant,
    stage: Stage,
}

enum Stage {
    Offered(Box<Order>),
    Working(Work),
}

impl<C: Channel> Agent<'_, C> {
    fn turn(&mut self) {
        if let Some(message) = self.channel.next(POLL_INTERVAL)
            // What is not a message of ours is not answered; a run is part of a subject.
            && let Ok(said) = serde_json::from_slice::<ToAgent>(&message.payload)
            && is_token(said.run())
        {
            self.hear(said, message.at);
        }
        self.tend(Instant::now());
    }

    fn hear(&mut self, said: ToAgent, at: u64) {
        let engaged = self.engaged.as_mut().filter(|engaged| engaged.run == said.run());
        let Some(engaged) = engaged else {
            if let ToAgent::Announce { run, version, order } = said {
                self.announced(run, version, *order);
            }
            return;
        };
        engaged.heard = Instant::now();
        match said {
            // Announced until there are enough agents.
            ToAgent::Announce { run, .. } => {
                if let Stage::Offered(_) = engaged.stage {
                    self.say(&run, Said::Offer);
                }
            }
            ToAgent::Clock { run, now } => {
                self.say(&run, Said::Clock { asked: now, received: at, answered: clock::now() });
            }
            ToAgent::Prepare { run, instance, segment, start, ahead } if instance == self.instance => {
                self.prepare(segment, start, ahead);
                self.say(&run, Said::Prepared);
            }
            // Of another agent with this name.
            ToAgent::Prepare { .. } | ToAgent::Alive { .. } => {}
            ToAgent::Stop { .. } => match &engaged.stage {
                Stage::Offered(_) => self.release(),
                Stage::Working(work) => work.stop(),
            },
            ToAgent::Received { .. } => {
                if let Stage::Working(work) = &engaged.stage
                    && work.is_over()
                {
                    // A refusal is in the log already.
                    let began = work.began();
                    self.release();
                    if began {
                        (self.log)(Event::Delivered);
                    }
                }
            }
        }
    }

    fn say(&self, run: &str, said: Said) {
        let (version, agent, instance) = (message::VERSION, self.config.name.clone(), self.instance);
        let message = FromAgent { version, agent, instance, said };
        link::send(&self.channel, &subject(&self.config.fleet, &format!("run.{run}")), &message);
    }

    /// Offers itself, or says why not. The rate is checked later: how many share it is not known yet.
    fn announced(&mut self, run: String, version: u32, order: Order) {
        if self.past.contains(&run) {
            return;
        }
        let why = match &self.engaged {
            Some(Engagement { run, what, since, .. }) => {
                let time = since.elapsed().as_secs();
                Err(format!("it has been busy for {time} s with load {run} of another caller, {what}"))
            }
            None if version != message::VERSION => Err(message::mismatch(version)),
            None => self.acceptable(&order, false),
        };
        match why {
            Ok(()) => {
                self.say(&run, Said::Offer);
                let target = order.plan.targets.first().map_or_else(String::new, |to| format!(" to {to}"));
                let what = format!("{}{target}", order.protocol);
                let (now, stage) = (Instant::now(), Stage::Offered(Box::new(order)));
                self.engaged = Some(Engagement { run, what, since: now, heard: now, stage });
            }
            Err(why) => {
                self.say(&run, Said::Refused(why.clone()));
                // Announced again every second.
                let now = Instant::now();
                let quiet = self.refused.as_ref().is_some_and(|(last, at)| {
                    *last == run || now.saturating_duration_since(*at) < LOG_INTERVAL
                });
                if !quiet {
                    self.refused = Some((run, now));
                    (self.log)(Event::Refused(why));
                }
            }
        }
    }

    /// Whether an order is within the limits. Before it has its `segment`, this agent's share of rate, flows and memory
    /// is not known; what can be found out then is refused then, while others can still be asked.
    fn acceptable(&self, order: &Order, segment: bool) -> Result<(), String> {
        let mut limits = self.config.limits.clone();
        if segment {
            order.plan.check().map_err(|why| why.to_string())?;
        } else {
            (limits.flows, limits.memory) = (u32::MAX, u64::MAX);
            // A closed loop has no rate, whatever the share.
            if !matches!(order.plan.arrivals, Arrivals::Closed { .. }) {
                (limits.rate, limits.bits) = (None, None);
            }
        }
        let longest = self.worker.check(order)?;
        let mut order = order.clone();
        order.plan.size = order.plan.size.max(longest);
        limits.check(&order).map_err(|why| why.to_string())
    }

    /// Begins the run of the order that was offered for; nothing if it has begun.
    fn prepare(&mut self, segment: Segment, start: u64, ahead: i64) {
        let Some(Engagement { what, stage: Stage::Offered(order), .. }) = &self.engaged else { return };
        let (mut order, what) = ((**order).clone(), what.clone());
        let plan: &mut Plan = &mut order.plan;
        (plan.segment, plan.start_at, plan.clock_ahead_ns) = (segment, Some(clock::at(start)), ahead);
        let own_start = start.saturating_add_signed(ahead);
        let lead = Duration::from_nanos(own_start.saturating_sub(clock::now()));
        let (timeout, length) = (plan.timeout.saturating_mul(2), plan.warmup.saturating_add(plan.duration));
        let limit = lead.saturating_add(length).saturating_add(timeout).saturating_add(GRACE);
        // Beats of many agents must not come at once, when all of them also start: they are apart by instance.
        let apart = Duration::from_nanos(self.instance % BEAT.as_nanos() as u64);
        let begun = match (self.acceptable(&order, true), Instant::now().checked_add(limit)) {
            (Err(why), _) => Err(why),
            (Ok(()), _) if lead > MAX_LEAD => Err(format!("the start is {:.0} s away", lead.as_secs_f64())),
            (Ok(()), None) => Err("the load takes too long".to_owned()),
            (Ok(()), Some(deadline)) => Work::start(&self.worker, order, deadline, apart),
        };
        (self.log)(match &begun {
            Ok(_) => Event::Started(segment, what),
            Err(why) => Event::Refused(why.clone()),
        });
        if let Some(engaged) = &mut self.engaged {
            engaged.stage = Stage::Working(begun.unwrap_or_else(Work::failed));
        }
    }

    /// Once per turn: the caller's silence, the end of the run, beats, the time limit.
    fn tend(&mut self, now: Instant) {
        let connected = self.channel.is_connected();
        let Some(engaged) = &mut self.engaged else { return };
        if !connected {
            engaged.heard = now;
        }
        let silent = now.saturating_duration_since(engaged.heard) >= LEASE;
        let Stage::Working(work) = &mut engaged.stage else {
            if silent {
                self.release();
                (self.log)(Event::CallerLost);
            }
            return;
        };
        if silent {
            work.stop();
        }
        if let Some(how) = work.tend(now) {
            (self.log)(Event::Ended(how));
        }
        if silent && work.is_over() {
            self.release();
            return (self.log)(Event::CallerLost);
        }
        if let Some(said) = work.says(now) {
            let run = engaged.run.clone();
            self.say(&run, said);
        }
    }

    fn release(&mut self) {
        if let Some(engaged) = self.engaged.take() {
            self.past.truncate(REMEMBERED - 1);
            self.past.push_front(engaged.run);
        }
    }

    /// Ends a run that still lasts, and sends its result.
    fn end(&mut self) {
        let begun = Instant::now();
        match &self.engaged {
            Some(Engagement { stage: Stage::Working(work), .. }) => work.stop(),
            _ => self.release(),
        }
        while self.engaged.is_some() && begun.elapsed() < END.0 {
            self.turn();
        }
        if let Some(Engagement { run, stage: Stage::Working(work), .. }) = &self.engaged
            && !work.is_over()
        {
            self.say(run, Said::Failed("it was ended before the last replies had come".to_owned()));
        }
        self.channel.close(END.1.saturating_sub(begun.elapsed()));
    }
}
