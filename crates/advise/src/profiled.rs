//! Profiles and diagnoses a rung: an extra trial that is not scored, with every CPU sampled.
//!
//! ```text
//!  load       ── warm-up ──┬──────────────── window ───────────────┬─ stopped
//!  sampling                └─ symbols ──┬─ LENGTH at RATE ──┬──────┘
//!  snapshots                            └───────────────────┘             for the diagnosis
//!  replies so far    ·     ·     ·     ·│    ·     ·     ·  │·          Tally: replies within the sampled time
//! ```
//! It runs after the ladder is decided, so no scored trial is disturbed. Costs are divided by the load's own count: the
//! kernel's UDP counters miss AF_XDP, and count a message sent with UDP_SEGMENT as one datagram.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use error_reporter::Report;
use udpath_host::Snapshot;
use udpath_host::map::Selection;
use udpath_host::source::Folder;
use udpath_lab::Lab;
use udpath_load::plan::Plan;
use udpath_load::template::Protocol;
use udpath_load::{Engine, Progress};
use udpath_profile::Profile;
use udpath_profile::facts::Focus;
use udpath_profile::profile::Datagrams;
use udpath_profile::recorder::{Moment, RATE, Wanted};

use crate::diagnosis::Diagnosis;
use crate::judged::ProfileResult;
use crate::server_under_test::ServerUnderTest;
use crate::trial;

/// Sampled time, whatever the trial length. On two CPUs at 199 samples a second it gives 995 samples, and a class of 10
/// % is known to ±1.9 points. Shorter: small classes are noise. Longer: every climb waits for two of these.
const LENGTH: Duration = Duration::from_millis(2500);
/// Limit of the load, which normally ends with the sampling. Shorter: reading the kernel's symbols takes some tenths of
/// a second on a machine busy with the load, and seconds on a large one.
const MAX_LOAD: Duration = Duration::from_secs(30);

/// The profile of an extra trial of `server`, and what limited it.
///
/// # Errors
/// The reason why there is none; the climb is still valid. `stop` ends it early, and the caller has to check it.
pub(crate) fn profile(
    lab: &Lab,
    engine: Engine,
    plan: &Plan,
    protocol: &dyn Protocol,
    server: &ServerUnderTest,
    stop: &AtomicBool,
) -> Result<(ProfileResult, Option<Diagnosis>), String> {
    let plan = Plan { duration: MAX_LOAD, ..plan.clone() };
    let over = &AtomicBool::new(false);
    let (opened, window) = mpsc::channel();
    let mut tally = Tally::default();
    let (loaded, sampled) = thread::scope(|scope| {
        let sampler = scope.spawn(move || {
            let sampled = sample(lab, server, &window, over);
            over.store(true, Ordering::Relaxed);
            sampled
        });
        let mut watch = |progress: &Progress| {
            tally.push(Instant::now(), progress.ok);
            if !progress.elapsed.is_zero() {
                // The sampler receives once; it may have given up.
                let _ = opened.send(());
            }
            if stop.load(Ordering::Relaxed) {
                over.store(true, Ordering::Relaxed);
            }
        };
        let loaded = trial::run(lab, engine, &plan, protocol, server, &mut watch, over);
        // Releases a sampler that still waits for the window.
        drop(opened);
        over.store(true, Ordering::Relaxed);
        (loaded, sampler.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    // The error of the sampling comes first: it ends the load as well.
    let Sampled { mut profile, snapshots, begin, end } = sampled?;
    loaded.map_err(|error| Report::new(error).to_string())?;
    let replies = tally.between(begin, end).filter(|replies| *replies > 0);
    let replies = replies.ok_or("the server answered nothing while it was sampled")?;
    let dropped = profile.datagrams.map_or(0, |counted| counted.dropped);
    profile.datagrams = Some(Datagrams { received: replies, sent: replies, dropped });
    profile.notes.push(
        "datagrams received and sent are the load's transactions, over any Io; dropped datagrams are those UDP counted"
            .to_owned(),
    );
    let focus = Focus { port: Some(server.address.port()), pids: vec![server.pid()] };
    let profile = profile.about(focus);
    let diagnosis = snapshots.and_then(|[before, now]| {
        let port = Selection::Port(server.address.port());
        // It fails if nothing has the port any more: then there is nothing to say.
        Diagnosis::new(&now, Some(&before), &port, Ok(&profile)).ok()
    });
    Ok((profile.into(), diagnosis))
}

/// A profile, the machine when sampling began and ended, and when that was.
struct Sampled {
    profile: Profile,
    snapshots: Option<[Snapshot; 2]>,
    begin: Instant,
    end: Instant,
}

/// Samples inside the server's machine once the window is open.
fn sample(
    lab: &Lab,
    server: &ServerUnderTest,
    window: &mpsc::Receiver<()>,
    over: &AtomicBool,
) -> Result<Sampled, String> {
    window.recv().map_err(|_| "the load ended before it could be sampled".to_owned())?;
    let measured = lab.machine(server.machine).and_then(|machine| {
        machine.run(|| {
            let source = Folder::live();
            let snapshot = || on_side(Snapshot::read(&source), server);
            let before = snapshot();
            // All CPUs: sampling the server's threads alone would miss the softirqs, where most of the cost is.
            let wanted = Wanted { cpus: before.cpus.online.clone(), pid: None, length: LENGTH, rate: RATE };
            let (mut begin, mut end) = (Instant::now(), Instant::now());
            let (mut first, mut last) = (None, None);
            // A snapshot takes some milliseconds, which are not part of the sampled time.
            let at = |moment| match moment {
                Moment::Begin => {
                    first = Some(snapshot());
                    begin = Instant::now();
                }
                Moment::End => {
                    end = Instant::now();
                    last = Some(snapshot());
                }
            };
            let measured = udpath_profile::measure(&wanted, &BTreeSet::new(), &source, before, over, at);
            let snapshots = first.zip(last).map(<[Snapshot; 2]>::from);
            measured.map(|profile| Sampled { profile, snapshots, begin, end })
        })
    });
    let measured = measured.map_err(|error| Report::new(error).to_string())?;
    measured.map_err(|error| Report::new(error).to_string())
}

/// The machine as a server sees it that has some CPUs for itself: the others are idle meanwhile, and say nothing about
/// it.
fn on_side(mut snapshot: Snapshot, server: &ServerUnderTest) -> Snapshot {
    if let Some(cpus) = &server.cpus {
        snapshot.cpus.online.clone_from(cpus);
        snapshot.cpus.list.retain(|cpu| cpus.contains(cpu.number));
    }
    snapshot
}

/// Replies so far, recorded a few times a second.
#[derive(Debug, Default)]
struct Tally(Vec<(Instant, u64)>);

impl Tally {
    fn push(&mut self, at: Instant, replies: u64) {
        self.0.push((at, replies));
    }

    /// Replies between two moments, interpolated; none with fewer than two records.
    fn between(&self, begin: Instant, end: Instant) -> Option<u64> {
        Some((self.at(end)? - self.at(begin)?).max(0.0).round() as u64)
    }

    /// Replies until a moment, interpolated between records; before the first and after the last, extrapolated.
    fn at(&self, moment: Instant) -> Option<f64> {
        let behind = self.0.partition_point(|(at, _)| *at <= moment);
        let first = behind.saturating_sub(1).min(self.0.len().checked_sub(2)?);
        let [(from, then), (to, now)] = [self.0[first], self.0[first + 1]];
        let seconds = to.duration_since(from).as_secs_f64();
        let rate = if seconds > 0.0 { now.saturating_sub(then) as f64 / seconds } else { 0.0 };
        let since = moment.saturating_duration_since(from).as_secs_f64();
        let before = from.saturating_duration_since(moment).as_secs_f64();
        Some(then as f64 + rate * (since - before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_counted_between_reports() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut tally = Tally::default();
        assert_eq!(tally.between(at(0), at(100)), None);
        tally.push(at(200), 1_000);
        assert_eq!(tally.between(at(0), at(100)), None);
        // 1,000 in 200 ms, then 4,000, then nothing.
        tally.push(at(400), 2_000);
        tally.push(at(600), 6_000);
        tally.push(at(800), 6_000);
        assert_eq!(tally.between(at(200), at(800)), Some(5_000));
        assert_eq!(tally.between(at(300), at(500)), Some(2_500));
        assert_eq!(tally.between(at(400), at(600)), Some(4_000));
        // Before the first record as between the first two, after the last as between the last two.
        assert_eq!(tally.between(at(100), at(300)), Some(1_000));
        assert_eq!(tally.between(at(700), at(900)), Some(0));
        assert_eq!(tally.between(at(500), at(400)), Some(0));
    }

    #[test]
    fn records_at_one_moment_give_no_rate() {
        let start = Instant::now();
        let mut tally = Tally::default();
        tally.push(start, 5);
        tally.push(start, 9);
        assert_eq!(tally.between(start, start + Duration::from_secs(1)), Some(0));
    }
}
