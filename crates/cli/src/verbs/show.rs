//! `udpath show`: the path of a datagram through this machine, stage by stage, and the findings.
//!
//! It reads and changes nothing. Without root, it shows what it may read and lists what it may not.

use std::num::NonZeroU16;
use std::time::Duration;

use udpath_advise::MapResult;
use udpath_host::map::{Selection, SelectionError};
use udpath_host::process;
use udpath_host::sockets::Socket;
use udpath_host::{Acquisition, Snapshot};
use udpath_report::{Extent, map_text, to_json};

use super::machine;
use crate::args::place::{PlaceArgs, netns};
use crate::args::show::Args;
use crate::exit::{Done, Failure};
use crate::terminal;

/// Reads the machine and prints the result.
pub(crate) fn run(args: &Args) -> Done {
    let Looked { earlier, mut now, rate_error } = looked(&args.place, args.interval)?;
    if args.place.is_captured()
        && let Some((interval, earlier)) = args.interval.zip(earlier.as_ref())
    {
        let own = Duration::from_millis(now.taken.saturating_sub(earlier.taken));
        if own.abs_diff(interval) > interval / 10 {
            stderrln!(
                "the capture's two snapshots are {:.1} s apart: rates are those of this interval",
                own.as_secs_f64()
            );
        }
    }
    if !args.place.is_captured() {
        look_closer(&mut now, args.what.as_deref(), args.all)?;
    }
    if args.snapshot {
        return terminal::print(&to_json(&now));
    }
    let mut map = map(&now, earlier.as_ref(), args.what.as_deref())?;
    map.map.rate_error = rate_error;
    if let Some(netns) = netns(&args.place.namespace.place()) {
        map.place(&netns);
    }
    if args.json {
        return terminal::print(&to_json(&map));
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
    let usage = |error: SelectionError| Failure::usage(error);
    let (selection, otherwise) = select(now, what)?;
    match (MapResult::new(now, earlier, &selection), otherwise) {
        (Err(first), Some(other)) => MapResult::new(now, earlier, &other).map_err(|_| usage(first)),
        (map, _) => map.map_err(usage),
    }
}

/// Reads the options that programs have set on their sockets, through duplicates of their descriptors: for the
/// requested port or process, or for all sockets with `--all`.
pub(super) fn look_closer(now: &mut Snapshot, what: Option<&str>, all: bool) -> Result<(), Failure> {
    let (selection, otherwise) = select(now, what)?;
    let named = |selection: &Selection| matches!(selection, Selection::Port(_) | Selection::Process(_));
    let mut wanted: Vec<Selection> = [Some(selection), otherwise].into_iter().flatten().collect();
    wanted.retain(|selection| all || named(selection));
    let Snapshot { sockets, missing, .. } = now;
    let takes = |socket: &Socket| wanted.iter().any(|selection| selection.takes(socket));
    process::look_closer(sockets, takes, missing);
    Ok(())
}

/// What to show, and what instead if that is not there.
pub(super) fn select(now: &Snapshot, what: Option<&str>) -> Result<(Selection, Option<Selection>), Failure> {
    let Some(what) = what else { return Ok((Selection::All, None)) };
    if now.interfaces.iter().any(|interface| interface.name == what) {
        return Ok((Selection::Interface(what.into()), None));
    }
    if let Some(pid) = what.strip_prefix("pid:") {
        let pid = pid.parse().map_err(|_| Failure::Usage(format!("invalid PID `{pid}`: expected pid:N")))?;
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

/// Snapshots, and the most by which a rate between them may be off; unknown of those that another program has taken.
struct Looked {
    earlier: Option<Snapshot>,
    now: Snapshot,
    rate_error: Option<f64>,
}

/// A snapshot now and, if requested, one an interval earlier. A capture has its own interval, or none.
fn looked(place: &PlaceArgs, interval: Option<Duration>) -> Result<Looked, Failure> {
    let Some(path) = &place.sysroot else {
        return machine::look_live(&place.namespace, |source| {
            let look = || Acquisition::of(|| Snapshot::read(source));
            let earlier = interval.map(|interval| {
                let earlier = look();
                std::thread::sleep(interval);
                earlier
            });
            let (now, later) = look();
            let rate_error = earlier.as_ref().map(|(_, earlier)| earlier.rate_error(&later));
            Looked { earlier: earlier.map(|(snapshot, _)| snapshot), now, rate_error }
        });
    };
    let captured = machine::open_capture(path)?;
    let now = Snapshot::read(&*captured.now());
    if interval.is_none() {
        return Ok(Looked { earlier: None, now, rate_error: None });
    }
    let Some(earlier) = captured.earlier() else {
        return Err(Failure::Usage(
            "--interval needs two snapshots, and this capture has one; `udpath support --interval` takes two"
                .into(),
        ));
    };
    Ok(Looked { earlier: Some(Snapshot::read(&*earlier)), now, rate_error: None })
}
