//! `udpath export`: the machine's path as metrics, over HTTP, into a file for node_exporter, or once to stdout.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use udpath_host::map::{Map, Selection};
use udpath_host::status::Status;
use udpath_host::{Live, Source, Watch};
use udpath_report::{MetricsFormat, MetricsOptions, map_metrics, write_whole};

use super::settings::State;
use super::show::PlaceArgs;
use crate::exit::{Done, Failure};
use crate::terminal;

/// Where the metrics are, unless told otherwise. 9,4xx is where exporters live; this one was free in their list.
const LISTEN: &str = "127.0.0.1:9453";
/// How long a client may take to ask and to listen. Longer: one that hangs keeps the others waiting.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of a request that are looked at: more than any scraper's headers.
const REQUEST: usize = 8192;
/// Pause between two looks for a client or the end.
const LOOK: Duration = Duration::from_millis(100);

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

impl Args {
    /// The metrics of now. Called within the place that is looked at.
    fn text(&self, format: MetricsFormat, watch: &mut Watch, source: &dyn Source) -> Result<String, Failure> {
        // The journal is of this machine, and only root may read it.
        let status = || Status::of(&Live::new(), &self.state.journal()).ok();
        let status = if self.place.is_captured() { None } else { status() };
        let snapshot = watch.look(source);
        let map = Map::new(snapshot, None, &Selection::All).map_err(|error| Failure::Cannot(error.into()))?;
        let options = MetricsOptions { sockets: self.sockets.into(), queues: self.queues };
        Ok(map_metrics(&map, status.as_ref(), options, format))
    }
}

/// Exports until it is told to end.
pub(crate) fn run(args: &Args) -> Done {
    let stop = Arc::new(AtomicBool::new(false));
    if !args.once {
        terminal::stop_on_signals(&stop)?;
    }
    args.place.look(|source| match &args.textfile {
        _ if args.once => terminal::print(&args.text(MetricsFormat::Text, &mut Watch::default(), source)?),
        Some(path) => write(args, source, path, &stop),
        None => serve(args, source, &stop),
    })?
}

fn write(args: &Args, source: &dyn Source, path: &std::path::Path, stop: &AtomicBool) -> Done {
    let mut watch = Watch::default();
    while !stop.load(Ordering::Relaxed) {
        // node_exporter reads the older format alone.
        let text = args.text(MetricsFormat::Text, &mut watch, source)?;
        write_whole(path, text.as_bytes()).map_err(anyhow::Error::from)?;
        let next = Instant::now() + Duration::from_secs(args.interval);
        while Instant::now() < next && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
        }
    }
    Ok(())
}

/// One client after the other: a scraper asks once in some seconds, and an answer takes milliseconds.
fn serve(args: &Args, source: &dyn Source, stop: &AtomicBool) -> Done {
    let mut watch = Watch::default();
    let listener =
        TcpListener::bind(args.listen).with_context(|| format!("cannot listen at {}", args.listen))?;
    listener.set_nonblocking(true).context("cannot wait for clients")?;
    eprintln!("ready http://{}/metrics", listener.local_addr().unwrap_or(args.listen));
    while !stop.load(Ordering::Relaxed) {
        match listener.accept() {
            // A client that goes away or talks nonsense is not our failure.
            Ok((client, _)) => drop(answer(client, |format| args.text(format, &mut watch, source))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(LOOK),
            Err(error) => eprintln!("a client could not be taken: {error}"),
        }
    }
    Ok(())
}

/// Answers one client; `text` makes the metrics.
fn answer(
    mut client: TcpStream,
    text: impl FnOnce(MetricsFormat) -> Result<String, Failure>,
) -> io::Result<()> {
    client.set_nonblocking(false)?;
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let request = request(&mut client)?;
    let (status, kind, body) = match request {
        Some(Request { path, format }) if path == "/metrics" => match text(format) {
            Ok(text) => ("200 OK", format.content_type(), text),
            Err(error) => ("500 Internal Server Error", "text/plain", format!("{error:?}\n")),
        },
        Some(_) => ("404 Not Found", "text/plain", "the metrics are at /metrics\n".to_owned()),
        None => ("400 Bad Request", "text/plain", "only GET is understood\n".to_owned()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    client.write_all(head.as_bytes())?;
    client.write_all(body.as_bytes())
}

/// What is asked for.
struct Request {
    path: String,
    format: MetricsFormat,
}

/// The path that is asked for and the format that is understood; none if it is no GET. Reads to the end of the headers,
/// within bounds of bytes and time.
fn request(client: &mut TcpStream) -> io::Result<Option<Request>> {
    let (mut text, mut buffer) = (Vec::new(), [0; 1024]);
    let deadline = Instant::now() + PATIENCE;
    while text.len() < REQUEST && Instant::now() < deadline && !text.windows(4).any(|end| end == b"\r\n\r\n")
    {
        match client.read(&mut buffer)? {
            0 => break,
            n => text.extend_from_slice(&buffer[..n]),
        }
    }
    let text = String::from_utf8_lossy(&text);
    let mut lines = text.lines();
    let mut words = lines.next().unwrap_or_default().split(' ');
    let path = (words.next() == Some("GET")).then(|| words.next()).flatten();
    let takes_new = lines.map(str::to_ascii_lowercase).any(|line| {
        line.strip_prefix("accept:").is_some_and(|kinds| kinds.contains("application/openmetrics-text"))
    });
    let format = if takes_new { MetricsFormat::OpenMetrics } else { MetricsFormat::Text };
    Ok(path.map(|path| Request { path: path.split('?').next().unwrap_or_default().to_owned(), format }))
}
