//! `udpath predict`: which queue, CPU and socket a flow's datagrams reach, and which source ports reach a given one;
//! how many flows are distributed; and whether real packets follow the prediction.
//!
//! The input comes from this machine (`--interface`) or from JSON, with options on top. stdout: the steps, the
//! distribution, or one source port per line; stderr: assumptions.

mod ends;
mod flows;
mod input;
mod verify;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use udpath_report::predict::{path_json, ports_json, spreads_json};
use udpath_report::{path_text, spreads_text};
use udpath_steer::Flow;
use udpath_steer::predict::{Predictor, ReverseError, Sockets, Tables, Wanted, Why};

use crate::args::predict::{Args, To};
use crate::args::value::address;
use crate::exit::{Done, Failure};
use crate::terminal;
use ends::Ends;
use flows::Flows;
use input::Known;

/// Default number of source ports printed in reverse.
const COUNT: u16 = 16;
/// Source ports tried in reverse: the unprivileged ones.
const PORTS: RangeInclusive<u16> = 1024..=65535;

/// Predicts.
pub(crate) fn run(args: &Args) -> Done {
    let wanted = wanted(args)?;
    // Check the request first: a mistake in it is reported before the machine is read.
    let flow = flow(args, wanted.is_some()).map_err(Failure::Usage)?;
    let flows = Flows::read(args)?;
    let known = input::known(args, ports(args, flow.as_ref(), flows.as_ref()).as_ref())?;
    let predictor = Predictor::new(&known.tables)?;
    let ends = Ends::new(&known);
    match (flow, wanted) {
        (Some(flow), Some(wanted)) => {
            let sockets = ends.sockets(&flow);
            reverse(args, known.tables.clone(), sockets, &flow, &wanted)
        }
        (Some(flow), None) => one(args, &known, &predictor, &ends, &flow),
        (None, _) => many(args, &known, &predictor, &ends, flows),
    }
}

fn one(args: &Args, known: &Known, predictor: &Predictor, ends: &Ends<'_>, flow: &Flow) -> Done {
    let verified = verify::watch(args, known, predictor, |watched| watched == flow)?;
    let reached = ends.of(flow);
    let path = predictor.decide_among(flow, reached.prepared());
    let verification = verified.as_ref().map(|verified| &verified.verification);
    let text = if args.json {
        path_json(flow, &path, &reached.list, verification)
    } else {
        path_text(flow, &path, &reached.list)
    };
    terminal::print(&text)?;
    note_assumption(known, path.socket.why == Why::IncomingCpu);
    verified.map_or(Ok(()), |verified| verified.end(args.json))
}

/// A program that a server has attached to its group takes precedence over SO_INCOMING_CPU, and is visible only to
/// root.
fn note_assumption(known: &Known, by_incoming_cpu: bool) {
    let unseen = known
        .machine
        .as_ref()
        .is_some_and(|(snapshot, _)| snapshot.sockets.groups.iter().any(|group| group.order.is_none()));
    if by_incoming_cpu && unseen {
        stderrln!(
            "assuming that no BPF program selects the socket: the kernel shows such programs, which override \
             SO_INCOMING_CPU, only to root"
        );
    }
}

fn many(args: &Args, known: &Known, predictor: &Predictor, ends: &Ends<'_>, flows: Option<Flows>) -> Done {
    let to = |flow: &Flow| args.to.as_ref().is_none_or(|to| to.takes(flow));
    let verified = match &flows {
        Some(flows) => verify::watch(args, known, predictor, |flow| flows.has(flow))?,
        None => verify::watch(args, known, predictor, to)?,
    };
    // If no flows were given, use the observed ones.
    let flows = match (flows, &verified) {
        (Some(flows), _) => flows,
        (None, Some(verified)) => verified.flows()?,
        (None, None) => return Err(Failure::Usage("expected a flow, --flows, --capture or --verify".into())),
    };
    let (spreads, by_incoming_cpu) = ends.spreads(predictor, &flows);
    let text = if args.json {
        spreads_json(&spreads, flows.not_counted(), verified.as_ref().map(|verified| &verified.verification))
    } else {
        spreads_text(&spreads, &terminal::style())
    };
    terminal::print(&text)?;
    note_assumption(known, by_incoming_cpu);
    verified.map_or(Ok(()), |verified| verified.end(args.json))
}

/// `sockets`: the machine's sockets, if it was read.
fn reverse(args: &Args, mut tables: Tables, sockets: Option<Sockets>, flow: &Flow, wanted: &Wanted) -> Done {
    tables.sockets = sockets.or(tables.sockets);
    let predictor = Predictor::new(&tables)?;
    let range = args.ports.clone().unwrap_or(PORTS);
    let count = args.count.unwrap_or(COUNT);
    let found =
        predictor.source_ports(flow, wanted, range.clone(), count.into()).map_err(|error| match error {
            ReverseError::NoSuchQueue { .. } => Failure::usage(error),
            unknown => Failure::Cannot(unknown.into()),
        })?;
    let (first, last) = range.into_inner();
    if args.json {
        terminal::print(&ports_json(flow, wanted, &found))?;
    } else if found.matching > 0 {
        let lines: Vec<String> = found.ports.iter().map(u16::to_string).collect();
        terminal::print(&lines.join("\n"))?;
        stderrln!("{} of the {} source ports {first}-{last} reach it", found.matching, found.tried);
    }
    match found.matching {
        0 => Err(Failure::Findings(format!("none of the source ports {first}-{last} reaches it"))),
        _ => Ok(()),
    }
}

/// The ports whose sockets are needed; `None`: all.
fn ports(args: &Args, flow: Option<&Flow>, flows: Option<&Flows>) -> Option<BTreeSet<u16>> {
    match (flow, flows) {
        (Some(flow), _) => Some([flow.destination_port].into()),
        (None, Some(flows)) => Some(flows.iter().map(|(flow, _)| flow.destination_port).collect()),
        (None, None) => args.to.as_ref().and_then(To::port).map(|port| [port].into()),
    }
}

/// The target in reverse, if any.
fn wanted(args: &Args) -> Result<Option<Wanted>, Failure> {
    let wanted = Wanted { queue: args.reverse, cpu: args.reverse_cpu, socket: args.reverse_socket };
    if wanted != Wanted::default() {
        return match args.count {
            Some(0) => Err(Failure::Usage("--count must be at least 1".into())),
            _ => Ok(Some(wanted)),
        };
    }
    if args.ports.is_some() || args.count.is_some() {
        return Err(Failure::Usage(
            "--ports and --count need a target: add --reverse QUEUE, --reverse-cpu CPU or --reverse-socket N"
                .into(),
        ));
    }
    Ok(None)
}

/// The single flow on the command line, if any.
fn flow(args: &Args, reverse: bool) -> Result<Option<Flow>, String> {
    let (Some(source), Some(destination)) = (&args.source, &args.destination) else { return Ok(None) };
    let bare: Result<IpAddr, _> = source.parse();
    let source = match bare {
        Ok(bare) if reverse => SocketAddr::new(bare, 0),
        _ => address(source)?,
    };
    Flow::udp(source, address(destination)?).map(Some).map_err(|error| error.to_string())
}
