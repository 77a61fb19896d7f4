//! `udpath show`: the path of a datagram through this machine, link by link, and the findings.
//!
//! It reads and changes nothing. Without root, it shows what it may read and lists what it may not.

use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use udpath_advise::MapResult;
use udpath_host::map::{Selection, SelectionError};
use udpath_host::namespace::{self, Place};
use udpath_host::process;
use udpath_host::sockets::Socket;
use udpath_host::source::Folder;
use udpath_host::{Snapshot, Source};
use udpath_report::{Extent, map_text};

use super::captured::Captured;
use crate::exit::{Done, Failure};
use crate::terminal;

/// Longest interval, seconds: 32-bit counters wrap after a few minutes at full rate.
const MAX_INTERVAL: f64 = 300.0;

/// Arguments of `udpath show`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An interface, a UDP port, or a process with UDP sockets (`pid:N` if N is also a port) [default: everything]
    #[arg(value_name = "IFACE|PORT|PID")]
    what: Option<String>,
    /// Count for this long instead of since boot
    #[arg(short, long, value_name = "SECONDS", value_parser = interval)]
    interval: Option<Duration>,
    /// Show every queue, CPU and socket, not only the busiest and those with findings; also show socket options
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    place: PlaceArgs,
    /// Print the map and its findings as one JSON document (udpath.map/2)
    #[arg(long)]
    json: bool,
    /// Print the raw snapshot as one JSON document (udpath.snapshot/2)
    #[arg(long, conflicts_with_all = ["json", "interval", "what", "all"])]
    snapshot: bool,
}

/// The network namespace of this machine to use.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct NamespaceArgs {
    /// Use this network namespace, as listed by `ip netns`
    #[arg(long, value_name = "NAME")]
    netns: Option<String>,
    /// Use the network namespace of this process
    #[arg(long, value_name = "PID", conflicts_with = "netns")]
    pid: Option<u32>,
}

impl NamespaceArgs {
    /// Calls `look` with this machine, in that namespace.
    pub(crate) fn look<T: Send>(&self, look: impl FnOnce(&dyn Source) -> T + Send) -> Result<T, Failure> {
        let place = match (&self.netns, self.pid) {
            (Some(name), _) => Place::Named(name.clone()),
            (None, Some(pid)) => Place::Process(pid),
            (None, None) => Place::Here,
        };
        namespace::inside(&place, || look(&Folder::live())).map_err(|error| Failure::Cannot(error.into()))
    }
}

/// The machine to read: shared by the verbs that read a machine.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct PlaceArgs {
    #[command(flatten)]
    namespace: NamespaceArgs,
    /// Read a captured machine: an archive of `udpath support`, or a folder that contains proc and sys
    #[arg(long, value_name = "FILE.tar.gz|DIR", conflicts_with_all = ["netns", "pid"])]
    sysroot: Option<PathBuf>,
}

impl PlaceArgs {
    /// Calls `look` with the selected source.
    pub(crate) fn look<T: Send>(&self, look: impl FnOnce(&dyn Source) -> T + Send) -> Result<T, Failure> {
        match &self.sysroot {
            Some(path) => Ok(look(&*Captured::open(path)?.now())),
            None => self.namespace.look(look),
        }
    }

    /// Is it a capture, which does not change?
    pub(crate) const fn is_captured(&self) -> bool {
        self.sysroot.is_some()
    }

    /// A snapshot now and, if requested, one an interval earlier. A capture has its own interval, or none.
    fn pictures(&self, interval: Option<Duration>) -> Result<(Option<Snapshot>, Snapshot), Failure> {
        let Some(path) = &self.sysroot else {
            return self.namespace.look(|source| {
                let earlier = interval.map(|interval| {
                    let earlier = Snapshot::read(source);
                    std::thread::sleep(interval);
                    earlier
                });
                (earlier, Snapshot::read(source))
            });
        };
        let captured = Captured::open(path)?;
        let now = Snapshot::read(&*captured.now());
        if interval.is_none() {
            return Ok((None, now));
        }
        let Some(earlier) = captured.earlier() else {
            return Err(Failure::Usage(
                "--interval counts on a live machine; a capture of one picture stands still, and two are made by \
                 `udpath support --interval`"
                    .into(),
            ));
        };
        let earlier = Snapshot::read(&*earlier);
        Ok((Some(earlier), now))
    }
}

/// A length of time in seconds.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 =
        text.trim_end_matches('s').trim().parse().map_err(|_| "give seconds, such as 1 or 0.5")?;
    if (0.01..=MAX_INTERVAL).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(format!("give 0.01 to {MAX_INTERVAL} seconds"))
    }
}

/// Reads the machine and prints the result.
pub(crate) fn run(args: Args) -> Done {
    let (earlier, mut now) = args.place.pictures(args.interval)?;
    if args.place.is_captured()
        && let Some((interval, earlier)) = args.interval.zip(earlier.as_ref())
    {
        let own = Duration::from_millis(now.taken.saturating_sub(earlier.taken));
        if own.abs_diff(interval) > interval / 10 {
            eprintln!(
                "the capture's two pictures are {:.1} s apart, which is what is shown",
                own.as_secs_f64()
            );
        }
    }
    if !args.place.is_captured() {
        look_closer(&mut now, args.what.as_deref(), args.all)?;
    }
    if args.snapshot {
        let text = serde_json::to_string(&now).context("cannot write the snapshot as JSON")?;
        return terminal::print(&text);
    }
    let map = map(&now, earlier.as_ref(), args.what.as_deref())?;
    if args.json {
        let text = serde_json::to_string(&map).context("cannot write the map as JSON")?;
        return terminal::print(&text);
    }
    let extent = if args.all { Extent::All } else { Extent::Most };
    terminal::print(&map_text(&map, extent, &terminal::style()))
}

/// The requested map and its findings. A bare number is a port if a socket is bound to it, otherwise a process.
pub(crate) fn map(
    now: &Snapshot,
    earlier: Option<&Snapshot>,
    what: Option<&str>,
) -> Result<MapResult, Failure> {
    let usage = |error: SelectionError| Failure::Usage(error.to_string());
    let (selection, otherwise) = select(now, what)?;
    match (MapResult::new(now, earlier, &selection), otherwise) {
        (Err(first), Some(other)) => MapResult::new(now, earlier, &other).map_err(|_| usage(first)),
        (map, _) => map.map_err(usage),
    }
}

/// Reads the options that programs have set on their sockets, through duplicates of their descriptors: for the
/// requested port or process, or for all sockets with `--all`.
fn look_closer(now: &mut Snapshot, what: Option<&str>, all: bool) -> Result<(), Failure> {
    let (selection, otherwise) = select(now, what)?;
    let named = |selection: &Selection| matches!(selection, Selection::Port(_) | Selection::Process(_));
    let mut wanted: Vec<Selection> = [Some(selection), otherwise].into_iter().flatten().collect();
    wanted.retain(|selection| all || named(selection));
    let Snapshot { sockets, missing, .. } = now;
    let takes = |socket: &Socket| wanted.iter().any(|selection| selection.takes(socket));
    process::look_closer(sockets, takes, missing);
    Ok(())
}

fn select(now: &Snapshot, what: Option<&str>) -> Result<(Selection, Option<Selection>), Failure> {
    let Some(what) = what else { return Ok((Selection::All, None)) };
    if now.interfaces.iter().any(|interface| interface.name == what) {
        return Ok((Selection::Interface(what.into()), None));
    }
    if let Some(pid) = what.strip_prefix("pid:") {
        let pid = pid
            .parse()
            .map_err(|_| Failure::Usage(format!("'{pid}' is not a process number; give pid:N")))?;
        return Ok((Selection::Process(pid), None));
    }
    let digits = what.strip_prefix(':').unwrap_or(what);
    let port = digits.parse().ok().map(|port: NonZeroU16| Selection::Port(port.get()));
    let process = digits.parse().ok().filter(|_| digits == what).map(Selection::Process);
    match (port, process) {
        (Some(port), process) => Ok((port, process)),
        (None, Some(process)) => Ok((process, None)),
        (None, None) => Ok((Selection::Interface(what.into()), None)),
    }
}
