//! `boost` of a server that already runs: which changes to this machine and to its sockets and threads make it faster.
//!
//! ```text
//!  target.rs      the server: its port, processes, namespace, the interface that its datagrams use
//!  candidates.rs  what can be tried: remedies of findings first, then what the interface, sockets and threads offer
//!  device.rs      the part of it that a network card offers: channels, rings, moderation
//!  groups.rs      those resolved against the machine, and the server's own configuration
//!  bed.rs         makes a set of candidates effective (tune's temporary changes), and measures it
//!  truth.rs       compares the load's counts with the counters of the interfaces at both ends
//!  evidence.rs    a profile and a map under load, and the diagnosis of both
//!  traffic.rs     what goes to the server in a trial: load.rs, a load run where it is sent from, or live.rs, what clients send
//!  keep.rs        applies what helps, so that it stays
//!  story.rs       from races to the result
//! ```
//! The search itself is `search.rs`. The machine is as found when it ends, however it ends; with `keep`, what was shown
//! to help is applied at the end as an ordinary apply, persistently where that is possible, which `udpath undo` takes
//! back.

mod bed;
mod candidates;
mod device;
mod error;
mod evidence;
mod group;
mod groups;
mod keep;
pub(crate) mod live;
mod load;
mod story;
mod target;
mod traffic;
mod truth;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use udpath_host::namespace::{Place, inside};
use udpath_load::Engine;
use udpath_load::plan::Plan as LoadPlan;
use udpath_load::template::Protocol;
use udpath_tune::plan::Consent;
use udpath_tune::{Journal, Live, Temporary, temporary};

use crate::config::Event;
use crate::result::BoostResult;
use crate::search::search;
use crate::statistics::Bound;
use bed::RunningBed;
use keep::Applier;

pub use error::RunningError;
pub use target::Served;

/// What the server is measured under.
#[derive(Debug)]
pub enum Traffic {
    /// A load, the same in every trial: transactions per second are compared.
    Load(Box<LoadConfig>),
    /// What its clients send anyway, in trials of this length: datagrams per second of CPU time are compared.
    Live(Duration),
}

/// A load.
pub struct LoadConfig {
    /// Where it is sent from.
    pub from: Place,
    /// The load of every trial; its duration is a trial's.
    pub plan: LoadPlan,
    /// Its engine.
    pub engine: Engine,
    /// What is sent.
    pub protocol: Box<dyn Protocol>,
}

impl std::fmt::Debug for LoadConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { from, plan, engine, protocol } = self;
        let mut load = f.debug_struct("LoadConfig");
        load.field("from", from).field("plan", plan).field("engine", engine);
        load.field("protocol", &protocol.name()).finish()
    }
}

/// What to boost, and how.
#[derive(Debug)]
pub struct RunningConfig {
    /// The server.
    pub served: Served,
    /// Where it runs: settings are changed there.
    pub place: Place,
    /// What it is measured under.
    pub traffic: Traffic,
    /// When a comparison ends.
    pub bound: Bound,
    /// How long it may take, the measurement of the gain and the last profile included. However short it is, one
    /// candidate is compared.
    pub budget: Duration,
    /// What may be tried besides.
    pub allow: Allow,
    /// How the server is restarted, if systemd does not do it: a command for `/bin/sh -c`.
    pub restart: Option<String>,
    /// Apply what helps at the end, so that it outlasts restarts and boots where it can. This is the program that a
    /// unit runs at each boot: `udpath`'s own file.
    pub keep: Option<PathBuf>,
    /// The journal.
    pub journal: PathBuf,
    /// Profile the server as found and with what helps.
    pub profile: bool,
    /// The command line that repeats it, for the report.
    pub command: Option<String>,
}

/// What needs the caller's consent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allow {
    /// Changes that lower security.
    pub security: bool,
    /// Changes after which the link may be down for seconds, in every trial.
    pub link_reset: bool,
    /// Changes of the server's configuration files.
    pub config: bool,
    /// Restarts of the server.
    pub restart: bool,
}

/// Searches for changes that make a running server faster.
///
/// # Errors
/// The server cannot be found, the load cannot be run or gets no reply, the journal cannot be used, or `stop`. The
/// machine is as found.
pub fn boost_running(
    config: &RunningConfig,
    watch: &mut (dyn FnMut(&Event<'_>) + Send),
    stop: &AtomicBool,
) -> Result<BoostResult, RunningError> {
    let begin = Instant::now();
    let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let at = Start { begin, started };
    inside(&config.place, || climb(config, watch, stop, &at))?
}

/// When it began.
struct Start {
    begin: Instant,
    /// Seconds since 1970.
    started: u64,
}

/// In the server's network namespace.
fn climb(
    config: &RunningConfig,
    watch: &mut (dyn FnMut(&Event<'_>) + Send),
    stop: &AtomicBool,
    start: &Start,
) -> Result<BoostResult, RunningError> {
    let machine = Live::new();
    let journal = Journal::at(&config.journal);
    let lock = journal.lock()?;
    let mut notes = Vec::new();
    for undone in temporary::recover(&machine, &lock).map_err(RunningError::Recover)? {
        notes.push(format!("restored what an earlier boost that was killed had left (apply {})", undone.id));
    }
    let changes = Temporary::begin(&machine, &lock)?;
    // A signal may reach the server first, whose end then looks like the cause.
    let cause = |error| if stop.load(Ordering::Relaxed) { RunningError::Interrupted } else { error };
    let mut bed = RunningBed::new(config, &machine, changes, watch, stop, start.begin).map_err(cause)?;
    let found = search(&mut bed, config.bound);
    let found = match found {
        Ok(found) => found,
        Err(error) => {
            let restored = bed.end();
            return Err(cause(error).after(restored));
        }
    };
    let profiles = bed.profiles(&found.kept);
    if stop.load(Ordering::Relaxed) {
        // The last profile may be cut short, and whoever ends this wants nothing to be kept.
        return Err(RunningError::Interrupted.after(bed.end()));
    }
    let profiles = profiles?;
    let mut result = story::result(config, &bed, &found, profiles, start);
    let kept = bed.kept(&found.kept);
    let undone = bed.end()?;
    result.warnings.splice(0..0, notes);
    result.warnings.extend(undone.left.iter().map(|left| format!("not restored: {left}")));
    if let Some(program) = config.keep.as_deref().filter(|_| !found.kept.is_empty()) {
        let applier = Applier { machine: &machine, lock: &lock, journal: &config.journal, program };
        let applied = kept.apply(&applier).map_err(RunningError::Keep)?;
        result.warnings.extend(applied.notes);
        if let Some(running) = &mut result.running {
            running.applies = applied.applies;
            running.fleeting = applied.fleeting;
        }
    }
    Ok(result)
}

/// Consent to changes that lower security, for these settings.
fn consent(names: impl IntoIterator<Item = String>) -> Consent {
    Consent { insecure: names.into_iter().collect(), ..Consent::default() }
}
