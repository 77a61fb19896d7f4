//! What is seen of a running server under load: a map of the interval, a profile, and the diagnosis of both.
//!
//! ```text
//!  load      ── started ──┬───────────────────────────┬─ stopped
//!  this                   └ snapshot ─ sampling ─ snapshot
//! ```

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use error_reporter::Report;
use udpath_host::Snapshot;
use udpath_host::map::{Map, Selection};
use udpath_host::source::Folder;
use udpath_load::Progress;
use udpath_profile::facts::Focus;
use udpath_profile::recorder::{Moment, RATE, Wanted};
use udpath_profile::trace::ServedMeter;

use crate::diagnosis::{Diagnosis, only_own};
use crate::finding::Finding;
use crate::judged::ProfileResult;
use crate::rules;

/// Sampled time, whatever a trial's length. On two CPUs at 199 samples a second it gives 995 samples, and a class of 10
/// % is known to ±1.9 points. Shorter: small classes are noise. Longer: every kept change waits for it.
const LENGTH: Duration = Duration::from_millis(2500);

/// What was seen.
#[derive(Debug)]
pub(super) struct Evidence {
    pub(super) snapshot: Snapshot,
    pub(super) map: Map,
    /// The profile, or why there is none.
    pub(super) profile: Result<Box<ProfileResult>, String>,
    /// What limits it.
    pub(super) diagnosis: Diagnosis,
}

impl Evidence {
    /// What is wrong, by weight.
    pub(super) fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.diagnosis.findings.iter().map(|found| &found.finding)
    }
}

/// Looks at the server of `focus` while `load` runs; `load` gets a progress to call and a flag that ends it.
///
/// # Errors
/// The load's, or the machine cannot be read.
pub(super) fn under_load<E: Send>(
    focus: Focus,
    stop: &AtomicBool,
    load: impl FnOnce(&mut (dyn FnMut(&Progress) + Send), &AtomicBool) -> Result<(), E> + Send,
) -> Result<Evidence, E> {
    let over = &AtomicBool::new(false);
    let (sender, started) = mpsc::channel();
    thread::scope(|scope| {
        let load = scope.spawn(move || {
            let mut watch = |_: &Progress| {
                // Received once; nobody listens after that.
                let _ = sender.send(());
                if stop.load(Ordering::Relaxed) {
                    over.store(true, Ordering::Relaxed);
                }
            };
            load(&mut watch, over)
        });
        // An error: the load ended before it began, and says why.
        let _ = started.recv();
        let evidence = look(focus, over);
        over.store(true, Ordering::Relaxed);
        let loaded = load.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        loaded.map(|()| evidence)
    })
}

/// Looks at the server of `focus`, until `over` at most.
pub(super) fn look(focus: Focus, over: &AtomicBool) -> Evidence {
    let source = Folder::live();
    let before = Snapshot::read(&source);
    let selection = focus.port.map_or(Selection::All, Selection::Port);
    // All CPUs: sampling the server's threads alone would miss the softirqs, where most of the cost is.
    let wanted = Wanted { cpus: before.cpus.online.clone(), pid: None, length: LENGTH, rate: RATE };
    let (mut begin, mut end) = (before.clone(), None);
    let mut meter = match focus.port.map(|port| ServedMeter::start(port, false)) {
        Some(started) => started,
        None => Err("its port is not known".to_owned()),
    };
    let (mut sampling, mut counted) = (None, Err("sampling did not end".to_owned()));
    let at = |moment| match moment {
        Moment::Begin => {
            begin = Snapshot::read(&source);
            let taken = std::mem::replace(&mut meter, Err("it was taken".to_owned()));
            sampling = Some(taken.map(|meter| meter.sample(LENGTH)));
        }
        Moment::End => {
            counted = match sampling.take() {
                Some(Ok(sampling)) => {
                    sampling.end().ok_or_else(|| "the counts of its sockets cannot be read".to_owned())
                }
                Some(Err(why)) => Err(why),
                None => Err("sampling did not begin".to_owned()),
            };
            end = Some(Snapshot::read(&source));
        }
    };
    let measured = udpath_profile::measure(&wanted, &BTreeSet::new(), &source, before, over, at);
    if measured.is_err() {
        thread::sleep(LENGTH);
    }
    let snapshot = end.unwrap_or_else(|| Snapshot::read(&source));
    let map = Map::whole(&snapshot, Some(&begin));
    let profile = measured
        .map(|mut profile| {
            // Why a rate is unknown is a matter of `udpath diagnose`.
            let _ = only_own(&mut profile, (&begin, &snapshot), &selection, &counted);
            profile.about(focus)
        })
        .map_err(|error| Report::new(error).to_string());
    let of = profile.as_ref().map_err(String::as_str);
    // A server that has ended has no socket at the port: then all of the machine is diagnosed.
    let diagnosis = Diagnosis::new(&snapshot, Some(&begin), &selection, of)
        .unwrap_or_else(|_| Diagnosis::of(&map, rules::of_map(&snapshot, &map), of));
    let profile = profile.map(|profile| Box::new(ProfileResult::from(profile)));
    Evidence { snapshot, map, profile, diagnosis }
}
