//! What is seen of a running server under load: a map of the interval, a profile, and what the rules find in both.
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
use udpath_host::map::Map;
use udpath_host::source::Folder;
use udpath_load::Progress;
use udpath_profile::facts::Focus;
use udpath_profile::recorder::{RATE, Wanted};

use crate::finding::Finding;
use crate::judged::ProfileResult;
use crate::rules;

/// Sampled time, whatever a trial's length. On two CPUs at 199 samples a second it gives 995 samples, and a class of 10 % is
/// known to ±1.9 points. Shorter: small classes are noise. Longer: every kept change waits for it.
const LENGTH: Duration = Duration::from_millis(2500);

/// What was seen.
#[derive(Debug)]
pub(super) struct Evidence {
    pub(super) snapshot: Snapshot,
    pub(super) map: Map,
    /// The profile, or why there is none.
    pub(super) profile: Result<Box<ProfileResult>, String>,
    /// What the rules find in both, the most severe first.
    pub(super) findings: Vec<Finding>,
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

fn look(focus: Focus, over: &AtomicBool) -> Evidence {
    let source = Folder::live();
    let before = Snapshot::read(&source);
    // All CPUs: sampling the server's threads alone would miss the softirqs, where most of the cost is.
    let wanted = Wanted { cpus: before.cpus.online.clone(), pid: None, length: LENGTH, rate: RATE };
    let measured = udpath_profile::measure(&wanted, &BTreeSet::new(), &source, before.clone(), over, |_| ());
    if measured.is_err() {
        thread::sleep(LENGTH);
    }
    let snapshot = Snapshot::read(&source);
    let map = Map::whole(&snapshot, Some(&before));
    let mut findings = rules::of_map(&snapshot, &map);
    let profile = match measured {
        Ok(profile) => {
            let profile = ProfileResult::from(profile.about(focus));
            findings.extend(profile.findings.iter().cloned());
            Ok(Box::new(profile))
        }
        Err(error) => Err(Report::new(error).to_string()),
    };
    findings.sort_by_key(|finding| finding.severity);
    Evidence { snapshot, map, profile, findings }
}
