//! `udpath export`: the machine's path and its findings as metrics: over HTTP, to a file for node_exporter, or
//! once to stdout.
//!
//! Over HTTP it is two processes: the one that answers clients has no privileges, and asks the other for each reading
//! of the machine.
//! ```text
//!  Prometheus ── HTTP ──▸ answering.rs, server.rs ── a byte ──▸ reading.rs ─▸ the machine
//!                         (started first)         ◂── text ───  (keeps three capabilities)
//! ```

mod answering;
mod connection;
mod reading;
mod server;

use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::thread::CapabilitySet;
use udpath_advise::MapResult;
use udpath_host::map::Selection;
use udpath_host::{Source, Watch};
use udpath_report::{Applied, MetricsFormat, MetricsOptions, map_metrics, write_whole};
use udpath_tune::status::Status;
use udpath_tune::{Journal, Live};

use self::reading::Answering;
use super::machine;
use crate::args::export::{AnswerArgs, Args};
use crate::confine::{self, Choice, Connections, Needs};
use crate::exit::Done;
use crate::signals::{self, Left};
use crate::terminal;

/// Interval at which the stop flag is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// What reading needs: the answers of ethtool and netdev, other users' processes and sockets, the journal. Not
/// Landlock, which also keeps a process from looking at others.
const READS: Needs<'_> = Needs {
    writes: &[],
    connections: Connections::Accepted,
    capabilities: CapabilitySet::NET_ADMIN
        .union(CapabilitySet::SYS_PTRACE)
        .union(CapabilitySet::DAC_READ_SEARCH),
    required: false,
};

/// The machine at one moment, for export.
struct Seen {
    result: MapResult,
    /// `None` for a captured machine; otherwise the journal's status, if it can be read.
    status: Option<Option<Status>>,
    options: MetricsOptions,
}

impl Seen {
    fn text(&self, format: MetricsFormat) -> String {
        map_metrics(&self.result, self.applied(), self.options, format)
    }

    fn applied(&self) -> Applied<'_> {
        match &self.status {
            None => Applied::Absent,
            Some(None) => Applied::Unreadable,
            Some(Some(status)) => Applied::Known(status),
        }
    }
}

/// Reads the machine. Called in the selected namespace.
fn look(args: &Args, watch: &mut Watch, source: &dyn Source) -> anyhow::Result<Seen> {
    // The journal is of this machine, and only root may read it.
    let journal = || Journal::at(&args.journal.state);
    let status = (!args.place.is_captured()).then(|| Status::settled(&Live::new(), &journal()).ok());
    let now = watch.look(source);
    let mut result = MapResult::new(now, None, &Selection::All)?;
    let options = MetricsOptions { sockets: args.sockets.into(), queues: args.queues };
    // Each answer copies the map: not the thousands of sockets that none of them contains.
    result.map.sockets.truncate(options.sockets);
    result.map.look_seconds =
        watch.took().map(|took| took.as_secs_f64()).filter(|_| !args.place.is_captured());
    Ok(Seen { result, status, options })
}

/// Exports until a signal ends it.
pub(crate) fn run(args: &Args) -> Done {
    // One reading ends by itself, and changes nothing.
    let unasked = AtomicBool::new(false);
    let stop = if args.once { &unasked } else { signals::watch(Left::Nothing)?.flag() };
    machine::look(&args.place, |source| match &args.textfile {
        _ if args.once => {
            terminal::print_exact(&look(args, &mut Watch::default(), source)?.text(MetricsFormat::Text))
        }
        Some(path) => write(args, source, path, stop),
        None => serve(args, source, stop),
    })?
}

fn write(args: &Args, source: &dyn Source, path: &Path, stop: &AtomicBool) -> Done {
    let mut watch = Watch::default();
    while !stop.load(Ordering::Relaxed) {
        // node_exporter reads only the older format.
        let text = look(args, &mut watch, source)?.text(MetricsFormat::Text);
        write_whole(path, text.as_bytes())?;
        let next = Instant::now() + args.interval;
        while Instant::now() < next && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(POLL_INTERVAL);
        }
    }
    Ok(())
}

/// Reads the machine for the process that answers scrapers, until a signal.
fn serve(args: &Args, source: &dyn Source, stop: &AtomicBool) -> Done {
    let listener =
        TcpListener::bind(args.listen).with_context(|| format!("cannot listen on {}", args.listen))?;
    confine::before_programs()?;
    let user = Choice::of(args.user.user.as_deref())?;
    let answering = Answering::start(listener, &user, args.user.require_confinement)?;
    confine::give_up(&user, &READS.require(args.user.require_confinement))?;
    let mut watch = Watch::default();
    answering.serve(stop, &mut || look(args, &mut watch, source))
}

/// Answers scrapers until SIGTERM, or until the process that started it has ended.
pub(crate) fn answer(args: &AnswerArgs) -> Done {
    answering::run(args)
}
