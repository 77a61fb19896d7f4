//! `udpath export`: the machine's path and its findings as metrics, over HTTP, into a file for node_exporter, or once to stdout.

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

/// Where the metrics are served by default. 9,4xx is where exporters live; this one was free in their list.
const LISTEN: &str = "127.0.0.1:9453";
/// Pause between two checks for the end.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Arguments of `udpath export`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Serve /metrics here
    #[arg(long, value_name = "ADDR:PORT", default_value = LISTEN)]
    listen: SocketAddr,
    /// Write this file instead, whole or not at all, every --interval: for node_exporter's textfile collector
    #[arg(long, value_name = "FILE.prom", conflicts_with = "listen")]
    textfile: Option<PathBuf>,
    /// Seconds between two writings of the file
    #[arg(short, long, value_name = "SECONDS", default_value = "15", value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Print once and end
    #[arg(long, conflicts_with_all = ["listen", "textfile"])]
    once: bool,
    /// A series for each receive queue, too
    #[arg(long)]
    queues: bool,
    /// Sockets with the most drops that get a series
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u16).range(0..=1000))]
    sockets: u16,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    state: State,
}

/// The machine at one moment, to be written as metrics.
struct Seen {
    result: MapResult,
    /// None of a captured machine; else what the journal says, if it can be read.
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
    /// The machine now. Called within the place that is looked at.
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
        // node_exporter reads the older format alone.
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
