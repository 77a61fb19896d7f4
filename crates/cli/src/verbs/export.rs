//! `udpath export`: the machine's path and its findings as metrics, over HTTP, to a file for node_exporter, or once to
//! stdout.

mod connection;
mod server;

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use udpath_advise::MapResult;
use udpath_host::map::Selection;
use udpath_host::{Source, Watch};
use udpath_report::{Applied, MetricsFormat, MetricsOptions, map_metrics, write_whole};
use udpath_tune::Live;
use udpath_tune::status::Status;

use super::settings::State;
use super::show::PlaceArgs;
use crate::exit::Done;
use crate::terminal;

/// Default address of the metrics server. Ports 9,4xx are used by exporters; this one was not allocated in their list.
const LISTEN: &str = "127.0.0.1:9453";
/// Interval at which the stop flag is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Arguments of `udpath export`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Serve /metrics on this address
    #[arg(long, value_name = "ADDR:PORT", default_value = LISTEN)]
    listen: SocketAddr,
    /// Write this file instead, atomically, every --interval: for node_exporter's textfile collector
    #[arg(long, value_name = "FILE.prom", conflicts_with = "listen")]
    textfile: Option<PathBuf>,
    /// Seconds between two writes of the file
    #[arg(short, long, value_name = "SECONDS", default_value = "15", value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Print the metrics once and exit
    #[arg(long, conflicts_with_all = ["listen", "textfile"])]
    once: bool,
    /// Also export a series for each receive queue
    #[arg(long)]
    queues: bool,
    /// Number of sockets to export, those with the most drops first
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u16).range(0..=1000))]
    sockets: u16,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    state: State,
}

/// The machine at one moment, for export.
struct Seen {
    result: MapResult,
    /// `None` for a captured machine; otherwise the journal's status, if it can be read.
    status: Option<Option<Status>>,
    options: MetricsOptions,
}

impl Seen {
    fn text(&self, format: MetricsFormat) -> String {
        let applied = match &self.status {
            None => Applied::Absent,
            Some(None) => Applied::Unreadable,
            Some(Some(status)) => Applied::Known(status),
        };
        map_metrics(&self.result, applied, self.options, format)
    }
}

impl Args {
    /// Reads the machine. Called in the selected namespace.
    fn look(&self, watch: &mut Watch, source: &dyn Source) -> anyhow::Result<Seen> {
        // The journal is of this machine, and only root may read it.
        let captured = self.place.is_captured();
        let status = (!captured).then(|| Status::of(&Live::new(), &self.state.journal()).ok());
        let result = MapResult::new(watch.look(source), None, &Selection::All)?;
        let options = MetricsOptions { sockets: self.sockets.into(), queues: self.queues };
        Ok(Seen { result, status, options })
    }
}

/// Exports until a signal ends it.
pub(crate) fn run(args: &Args) -> Done {
    let stop = Arc::new(AtomicBool::new(false));
    if !args.once {
        terminal::stop_on_signals(&stop)?;
    }
    args.place.look(|source| match &args.textfile {
        _ if args.once => {
            terminal::print(&args.look(&mut Watch::default(), source)?.text(MetricsFormat::Text))
        }
        Some(path) => write(args, source, path, &stop),
        None => serve(args, source, &stop),
    })?
}

fn write(args: &Args, source: &dyn Source, path: &std::path::Path, stop: &AtomicBool) -> Done {
    let mut watch = Watch::default();
    while !stop.load(Ordering::Relaxed) {
        // node_exporter reads only the older format.
        let text = args.look(&mut watch, source)?.text(MetricsFormat::Text);
        write_whole(path, text.as_bytes()).map_err(anyhow::Error::from)?;
        let next = Instant::now() + Duration::from_secs(args.interval);
        while Instant::now() < next && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(POLL_INTERVAL);
        }
    }
    Ok(())
}

/// Answers scrapers until a signal ends it.
fn serve(args: &Args, source: &dyn Source, stop: &AtomicBool) -> Done {
    let mut watch = Watch::default();
    let listener =
        TcpListener::bind(args.listen).with_context(|| format!("cannot listen at {}", args.listen))?;
    eprintln!("ready http://{}/metrics", listener.local_addr().unwrap_or(args.listen));
    let mut look = || -> Result<Box<dyn Fn(MetricsFormat) -> String>, String> {
        let seen = args.look(&mut watch, source).map_err(|error| format!("{error:#}"))?;
        Ok(Box::new(move |format| seen.text(format)))
    };
    server::serve(&listener, stop, server::LIMIT, &mut look).context("cannot wait for clients")?;
    Ok(())
}
