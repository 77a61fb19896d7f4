//! An agent: offers itself, carries out one segment at a time, and keeps the result until the caller has it.
//!
//! ```text
//!   idle ── Announce: within the limits? offer ──▶ idle ── Prepare ──▶ running ── the thread has ended ──▶ reporting ── Received ──▶ idle
//!                                                                        └ Stop, or the time limit: ends early      └ given up after a while
//! ```
//! Everything is decided here: the order is checked when it is announced, and again with its segment before it runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use udpath_load::Progress;
use udpath_load::plan::{Plan, Segment};
use udpath_load::result::LoadResult;

use crate::link::{Link, LinkError};
use crate::message::{Beat, FromAgent, Order, Said, ToAgent};
use crate::{Access, Limits, clock, subject};

/// Time between two beats. Longer: the caller notices a death later. Shorter: more messages.
pub(crate) const BEAT: Duration = Duration::from_secs(1);
/// Longest wait for a message: ends, stops and signals are noticed within it.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long a result is kept for a caller that does not take it. Longer: the agent is busy for that long after a caller has
/// died. Shorter: a server that is down for longer costs the results.
const KEEP: Duration = Duration::from_secs(600);
/// Time that opening flows and draining may take beyond the plan's, before an agent ends a run by force of its own limit.
const GRACE: Duration = Duration::from_secs(10);
/// Furthest start that is accepted: nothing keeps an agent busy for longer.
const MAX_LEAD: Duration = Duration::from_secs(600);

/// Carries out an order: its protocol, options and engine become a run.
pub trait Worker: Send + Sync + 'static {
    /// Checks what only the program knows: that protocol, options and engine exist and fit.
    ///
    /// # Errors
    /// A sentence for the caller.
    fn check(&self, order: &Order) -> Result<(), String>;

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
    /// No caller has taken the result.
    GivenUp,
}

/// Carries out orders until `stop` is set.
///
/// # Errors
/// The first connection fails.
pub fn serve(
    config: &Config,
    worker: Arc<dyn Worker>,
    stop: &AtomicBool,
    log: &mut dyn FnMut(Event),
) -> Result<(), LinkError> {
    let mine = subject(&config.fleet, &format!("agent.{}", config.name));
    let link = Link::open(&config.access, vec![subject(&config.fleet, "agents"), mine])?;
    let instance = clock::now() ^ u64::from(std::process::id()).rotate_left(40);
    let mut agent = Agent { config, worker, link, instance, announced: None, refused: None, work: None, log };
    (agent.log)(Event::Ready);
    while !stop.load(Ordering::Relaxed) {
        if let Some(message) = agent.link.next(POLL_INTERVAL)
            // What is not a message of ours is not answered.
            && let Ok(said) = serde_json::from_slice(&message.payload)
        {
            agent.hear(said, message.at);
        }
        agent.tend();
    }
    agent.end();
    Ok(())
}

struct Agent<'a> {
    config: &'a Config,
    worker: Arc<dyn Worker>,
    link: Link,
    instance: u64,
    /// The order last announced and offered for.
    announced: Option<(String, Order)>,
    /// The run last refused.
    refused: Option<String>,
    work: Option<Work>,
    log: &'a mut dyn FnMut(Event),
}

/// A run, and then its result.
struct Work {
    run: String,
    stop: Arc<AtomicBool>,
    latest: Arc<Mutex<Beat>>,
    done: Receiver<Result<LoadResult, String>>,
    /// When the run is ended in any case.
    deadline: Instant,
    /// What is sent until it is received, and since when.
    said: Option<(Said, Instant)>,
    beaten: Instant,
}

impl Agent<'_> {
    fn hear(&mut self, said: ToAgent, at: u64) {
        match said {
            ToAgent::Announce { run, order } => self.announced(run, *order),
            ToAgent::Clock { run, now } => {
                self.say(&run, Said::Clock { asked: now, received: at, answered: clock::now() });
            }
            ToAgent::Prepare { run, instance, segment, start, ahead } => {
                let known = self.announced.as_ref().is_some_and(|(announced, _)| *announced == run);
                if instance == self.instance && known && self.work.is_none() {
                    self.prepare(run, segment, start, ahead);
                }
            }
            ToAgent::Stop { run } => {
                if let Some(work) = self.work.as_ref().filter(|work| work.run == run) {
                    work.stop.store(true, Ordering::Relaxed);
                }
            }
            ToAgent::Received { run } => {
                if self.work.as_ref().is_some_and(|work| work.run == run && work.said.is_some()) {
                    self.work = None;
                    (self.log)(Event::Delivered);
                }
            }
        }
    }

    fn say(&self, run: &str, said: Said) {
        // From outside, and part of a subject.
        if !crate::is_name(run) {
            return;
        }
        let message = FromAgent { agent: self.config.name.clone(), instance: self.instance, said };
        self.link.send(&subject(&self.config.fleet, &format!("run.{run}")), &message);
    }

    /// Offers itself, or says why not. The rate is checked later: how many share it is not known yet.
    fn announced(&mut self, run: String, order: Order) {
        let any_rate = Limits { rate: None, ..self.config.limits.clone() };
        let refused = if self.work.is_some() {
            Err("it is busy with another load".to_owned())
        } else {
            any_rate.check(&order).map_err(|why| why.to_string()).and_then(|()| self.worker.check(&order))
        };
        match refused {
            Ok(()) => {
                self.say(&run, Said::Offer);
                self.announced = Some((run, order));
            }
            Err(why) => {
                self.say(&run, Said::Refused(why.clone()));
                // Announced again every second.
                if self.refused.replace(run.clone()).is_none_or(|last| last != run) {
                    (self.log)(Event::Refused(why));
                }
            }
        }
    }

    fn prepare(&mut self, run: String, segment: Segment, start: u64, ahead: i64) {
        let Some((_, mut order)) = self.announced.take() else { return };
        let plan: &mut Plan = &mut order.plan;
        (plan.segment, plan.start_at, plan.clock_ahead_ns) = (segment, Some(clock::at(start)), ahead);
        let own_start = start.saturating_add_signed(ahead);
        let lead = Duration::from_nanos(own_start.saturating_sub(clock::now()));
        let (timeout, length) = (plan.timeout.saturating_mul(2), plan.warmup.saturating_add(plan.duration));
        let checked = plan.check().map_err(|why| why.to_string());
        let checked = checked.and_then(|()| self.config.limits.check(&order).map_err(|why| why.to_string()));
        let checked = match checked {
            Ok(()) if lead > MAX_LEAD => Err(format!("the start is {:.0} s away", lead.as_secs_f64())),
            other => other,
        };
        let limit = lead.saturating_add(length).saturating_add(timeout).saturating_add(GRACE);
        let deadline = Instant::now().checked_add(limit);
        let (Ok(()), Some(deadline)) = (&checked, deadline) else {
            let why = checked.err().unwrap_or_else(|| "the load takes too long".to_owned());
            (self.log)(Event::Refused(why.clone()));
            return self.say(&run, Said::Failed(why));
        };
        let (stop, latest) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Beat::default())));
        let (finished, done) = channel();
        let what = format!("{} to {}", order.protocol, order.plan.targets[0]);
        let (worker, its_stop, its_latest) =
            (Arc::clone(&self.worker), Arc::clone(&stop), Arc::clone(&latest));
        let work = move || {
            let mut watch = |progress: &Progress| note(&its_latest, progress);
            let _ = finished.send(worker.run(&order, &mut watch, &its_stop));
        };
        if let Err(error) = thread::Builder::new().name("run".into()).spawn(work) {
            return self.say(&run, Said::Failed(format!("cannot start a thread: {error}")));
        }
        (self.log)(Event::Started(segment, what));
        // Beats of many agents must not come at once, when all of them also start: they are apart by instance.
        let apart = Duration::from_nanos(self.instance % BEAT.as_nanos() as u64);
        self.work =
            Some(Work { run, stop, latest, done, deadline, said: None, beaten: Instant::now() + apart });
    }

    /// Once per turn: the end of the run, beats, the time limit.
    fn tend(&mut self) {
        let Some(work) = &mut self.work else { return };
        let now = Instant::now();
        if now >= work.deadline {
            work.stop.store(true, Ordering::Relaxed);
        }
        if work.said.is_none() {
            let done = match work.done.try_recv() {
                Ok(done) => Some(done),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => Some(Err("the load crashed".to_owned())),
            };
            if let Some(done) = done {
                let text = match &done {
                    Ok(result) => {
                        format!("{} requests sent, {} answered", result.counts.sent, result.counts.ok)
                    }
                    Err(why) => why.clone(),
                };
                let said = done.map_or_else(Said::Failed, |result| Said::Result(Box::new(result)));
                work.said = Some((said, now));
                // At once, and then with every beat.
                work.beaten = now.checked_sub(BEAT).unwrap_or(now);
                (self.log)(Event::Ended(text));
            }
        }
        if now.saturating_duration_since(work.beaten) < BEAT || now < work.beaten {
            return;
        }
        work.beaten = now;
        let said = match &work.said {
            Some((said, _)) => said.clone(),
            None => {
                let mut latest = work.latest.lock().unwrap_or_else(PoisonError::into_inner);
                let latency = latest.latency.take();
                Said::Beat(Beat { latency, ..latest.clone() })
            }
        };
        let given_up =
            work.said.as_ref().is_some_and(|(_, since)| now.saturating_duration_since(*since) > KEEP);
        let run = work.run.clone();
        self.say(&run, said);
        if given_up {
            self.work = None;
            (self.log)(Event::GivenUp);
        }
    }

    /// Ends a run that still lasts, and sends its result.
    fn end(&mut self) {
        let Some(work) = &self.work else { return };
        work.stop.store(true, Ordering::Relaxed);
        let until = Instant::now() + GRACE;
        while self.work.is_some() && Instant::now() < until {
            let message = self.link.next(POLL_INTERVAL);
            if let Some(Ok(said)) = message.map(|message| serde_json::from_slice(&message.payload)) {
                self.hear(said, 0);
            }
            self.tend();
        }
    }
}

/// Adds a report of progress to the next beat.
fn note(latest: &Mutex<Beat>, progress: &Progress) {
    let mut beat = latest.lock().unwrap_or_else(PoisonError::into_inner);
    let latency = match (beat.latency.take(), &progress.interval) {
        (Some(a), Some(b)) => Some(a.merged(b)),
        (a, b) => a.or_else(|| b.clone()),
    };
    *beat = Beat { sent: progress.sent, ok: progress.ok, lost: progress.lost, tps: progress.tps, latency };
}
