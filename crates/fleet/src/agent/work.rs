//! A run of an agent: its thread, what it says meanwhile, and its result until the caller has it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use udpath_load::Progress;
use udpath_load::result::LoadResult;

use super::Worker;
use crate::message::{Beat, Order, Said};

/// Time between two beats. Longer: the caller notices a death later. Shorter: more messages.
pub(crate) const BEAT: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct Work {
    stop: Arc<AtomicBool>,
    latest: Arc<Mutex<Beat>>,
    /// None: there was never a thread.
    done: Option<Receiver<Result<LoadResult, String>>>,
    /// When the run is ended in any case.
    deadline: Instant,
    /// What is said until it is received.
    said: Option<Said>,
    /// When something was last said.
    spoke: Instant,
}

impl Work {
    /// Starts the thread. The first beat is `apart` later than that of other agents, so that many do not beat at once.
    pub(super) fn start(
        worker: &Arc<dyn Worker>,
        order: Order,
        deadline: Instant,
        apart: Duration,
    ) -> Result<Self, String> {
        let (stop, latest) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Beat::default())));
        let (finished, done) = channel();
        let (worker, its_stop, its_latest) = (Arc::clone(worker), Arc::clone(&stop), Arc::clone(&latest));
        let work = move || {
            let mut watch = |progress: &Progress| note(&its_latest, progress);
            let _ = finished.send(worker.run(&order, &mut watch, &its_stop));
        };
        let thread = thread::Builder::new().name("run".into()).spawn(work);
        thread.map_err(|error| format!("cannot start a thread: {error}"))?;
        Ok(Self { stop, latest, done: Some(done), deadline, said: None, spoke: Instant::now() + apart })
    }

    /// A run that did not begin, and why: said until the caller has it.
    pub(super) fn failed(why: String) -> Self {
        let now = Instant::now();
        Self {
            stop: Arc::default(),
            latest: Arc::default(),
            done: None,
            deadline: now,
            said: Some(Said::Failed(why)),
            spoke: now.checked_sub(BEAT).unwrap_or(now),
        }
    }

    /// Ends the run early; its result covers what was measured until then.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether there is a result, or the reason for none.
    pub(super) const fn is_over(&self) -> bool {
        self.said.is_some()
    }

    /// Whether there ever was a thread.
    pub(super) const fn began(&self) -> bool {
        self.done.is_some()
    }

    /// Once per turn: how the run ended, if it just did; and the time limit.
    pub(super) fn tend(&mut self, now: Instant) -> Option<String> {
        if now >= self.deadline {
            self.stop();
        }
        if self.is_over() {
            return None;
        }
        let done = match self.done.as_ref()?.try_recv() {
            Ok(done) => done,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => Err("the load crashed".to_owned()),
        };
        let how = match &done {
            Ok(result) => format!("{} requests sent, {} answered", result.counts.sent, result.counts.ok),
            Err(why) => why.clone(),
        };
        self.said = Some(done.map_or_else(Said::Failed, |result| Said::Result(Box::new(result))));
        // At once, and then with every beat.
        self.spoke = now.checked_sub(BEAT).unwrap_or(now);
        Some(how)
    }

    /// What is to be said now, if it is time: a beat, or the result again.
    pub(super) fn says(&mut self, now: Instant) -> Option<Said> {
        if now < self.spoke || now - self.spoke < BEAT {
            return None;
        }
        self.spoke = now;
        Some(self.said.clone().unwrap_or_else(|| {
            let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
            let latency = latest.latency.take();
            Said::Beat(Beat { latency, ..latest.clone() })
        }))
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
