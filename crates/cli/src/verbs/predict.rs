//! `udpath predict`: which queue, CPU and socket a flow's datagrams reach, and which source ports reach a given one;
//! how many flows are distributed; and whether real packets follow the prediction.
//!
//! The input comes from this machine (`--interface`) or from JSON, with options on top. stdout: the steps, the
//! distribution, or one source port per line; stderr: assumptions.

mod ends;
mod flows;
mod input;
mod output;
mod verify;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use udpath_steer::predict::{Predictor, ReverseError, Sockets, Tables, TablesError, Wanted, Why};
use udpath_steer::reuseport::By;
use udpath_steer::toeplitz::{Fields, Key};
use udpath_steer::{CpuSet, Flow};

use crate::exit::{Done, Failure};
use crate::terminal;
use crate::verbs::settings::State;
use crate::verbs::show::PlaceArgs;
use ends::Ends;
use flows::{Flows, To};
use input::Known;

/// Default number of source ports printed in reverse.
const COUNT: u16 = 16;
/// Source ports tried in reverse: the unprivileged ones.
const PORTS: RangeInclusive<u16> = 1024..=65535;

/// Arguments of `udpath predict`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Source of the datagrams; the port may be omitted with the --reverse options
    #[arg(value_name = "SRC:PORT", requires = "destination",
          required_unless_present_any = ["flows", "capture", "verify"], conflicts_with_all = ["flows", "capture"])]
    source: Option<String>,
    /// Destination of the datagrams
    #[arg(value_name = "DST:PORT", required_unless_present_any = ["flows", "capture", "verify"])]
    destination: Option<String>,
    /// Predict the distribution of many flows: a file, or - for standard input, with `SRC:PORT DST:PORT [PACKETS]` on
    /// each line
    #[arg(long, value_name = "FILE|-", conflicts_with = "capture")]
    flows: Option<PathBuf>,
    /// Predict the distribution of the flows in a capture (pcap or pcapng)
    #[arg(long, value_name = "FILE.pcap")]
    capture: Option<PathBuf>,
    /// Of many flows, use only those to this port, address, or both
    #[arg(long, value_name = "[ADDR:]PORT|ADDR", value_parser = flows::to, conflicts_with = "source")]
    to: Option<To>,
    /// Watch the packets that the interface receives and compare: the given flows, or all UDP [default: 5 seconds]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "5",
          value_parser = verify::seconds, requires = "interface", conflicts_with = "sysroot")]
    verify: Option<Duration>,
    /// Read the configuration of this interface; other options override it
    #[arg(long, value_name = "IFACE", conflicts_with = "tables")]
    interface: Option<String>,
    #[command(flatten)]
    place: PlaceArgs,
    // The kernel does not report reuseport selections that udpath has set.
    #[command(flatten)]
    state: State,
    /// Read the configuration from JSON (udpath.tables/1), `-` for standard input; other options override it
    #[arg(long, value_name = "FILE.json|-")]
    tables: Option<PathBuf>,
    /// RSS hash key as shown by ethtool -x, or microsoft, or symmetric
    #[arg(long, value_name = "HEX")]
    key: Option<Key>,
    /// Driver, for its default settings
    #[arg(long, value_name = "NAME")]
    driver: Option<String>,
    /// UDP fields that the NIC hashes: addresses only, or ports too [default: the driver's, or sdfn without a driver]
    #[arg(long, value_name = "sd|sdfn")]
    fields: Option<Fields>,
    /// Indirection table: equal:N, weight:W,W,..., or a file with a JSON array of queues [default: all queues in turn]
    #[arg(long, value_name = "FILE|-|equal:N")]
    table: Option<String>,
    /// Entries of a table given as equal or weight [default: the driver's, or 128]
    #[arg(long, value_name = "N")]
    table_size: Option<usize>,
    /// Number of receive queues
    #[arg(long, value_name = "N")]
    queues: Option<u32>,
    /// RPS CPUs of every queue, such as 0-3,8; an empty list disables RPS
    #[arg(long, value_name = "LIST")]
    rps_cpus: Option<CpuSet>,
    /// CPUs of the queues' IRQs: queue n uses the n-th CPU of the list, starting over if there are more queues
    #[arg(long, value_name = "LIST")]
    irq_cpus: Option<CpuSet>,
    /// Number of sockets in the reuseport group
    #[arg(long, value_name = "N")]
    sockets: Option<usize>,
    /// How the group selects a socket: the kernel's hash, SO_INCOMING_CPU (socket n has CPU n), a program that takes
    /// the CPU modulo the sockets (selection=by-cpu), or the packet's hash
    #[arg(long, value_name = "hash|cpu|cpu-modulo|rxhash", requires = "sockets", value_parser = input::by)]
    by: Option<By>,
    /// Print source ports that reach this queue
    #[arg(long, value_name = "QUEUE", requires = "source", conflicts_with = "verify")]
    reverse: Option<u32>,
    /// Print source ports that reach this CPU, after RPS
    #[arg(long, value_name = "CPU", requires = "source", conflicts_with = "verify")]
    reverse_cpu: Option<u32>,
    /// Print source ports that reach this socket, in bind order from 0
    #[arg(long, value_name = "N", requires = "source", conflicts_with = "verify")]
    reverse_socket: Option<u32>,
    /// With --reverse options: source ports to try [default: 1024-65535]
    #[arg(long, value_name = "A-B", value_parser = input::ports)]
    ports: Option<RangeInclusive<u16>>,
    /// With --reverse options: how many ports to print at most [default: 16]
    #[arg(long, value_name = "N")]
    count: Option<u16>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Predicts.
pub(crate) fn run(args: Args) -> Done {
    let wanted = wanted(&args)?;
    // Check the request first: a mistake in it is reported before the machine is read.
    let flow = flow(&args, wanted.is_some()).map_err(Failure::Usage)?;
    let flows = Flows::read(&args)?;
    let known = input::known(&args, ports(&args, flow.as_ref(), flows.as_ref()).as_ref())?;
    let predictor = predictor(&known.tables)?;
    let ends = Ends::new(&known);
    match (flow, wanted) {
        (Some(flow), Some(wanted)) => {
            let sockets = ends.sockets(&flow);
            reverse(&args, known.tables.clone(), sockets, &flow, &wanted)
        }
        (Some(flow), None) => one(&args, &known, &predictor, &ends, &flow),
        (None, _) => many(&args, &known, &predictor, &ends, flows),
    }
}

fn predictor(tables: &Tables) -> Result<Predictor, Failure> {
    Predictor::new(tables).map_err(|error: TablesError| Failure::usage(error))
}

fn one(args: &Args, known: &Known, predictor: &Predictor, ends: &Ends<'_>, flow: &Flow) -> Done {
    let verified = verify::watch(args, known, predictor, |watched| watched == flow)?;
    let receivers = ends.of(flow);
    let path = predictor.decide_among(flow, receivers.prepared());
    let verification = verified.as_ref().map(|verified| &verified.verification);
    let text = if args.json {
        output::json_of_path(flow, &path, &receivers, verification)?
    } else {
        output::text(flow, &path, &receivers)
    };
    terminal::print(&text)?;
    tell_assumed(known, path.socket.why == Why::IncomingCpu);
    verified.map_or(Ok(()), |verified| verified.end(args.json))
}

/// A program that a server has attached to its group takes precedence over SO_INCOMING_CPU, and is not visible from
/// outside.
fn tell_assumed(known: &Known, by_incoming_cpu: bool) {
    if by_incoming_cpu && known.machine.is_some() {
        eprintln!(
            "SO_INCOMING_CPU counts unless a BPF program chooses in the group, which the kernel does not tell"
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
        (None, None) => return Err(Failure::Usage("give a flow, --flows, --capture or --verify".into())),
    };
    let spreads = ends::Spreads::new(predictor, ends, &flows);
    let text = if args.json {
        output::json_of_spread(&spreads, verified.as_ref().map(|verified| &verified.verification))?
    } else {
        output::spread(&spreads)
    };
    terminal::print(&text)?;
    tell_assumed(known, spreads.by_incoming_cpu);
    verified.map_or(Ok(()), |verified| verified.end(args.json))
}

/// `sockets`: the machine's sockets, if it was read.
fn reverse(args: &Args, mut tables: Tables, sockets: Option<Sockets>, flow: &Flow, wanted: &Wanted) -> Done {
    tables.sockets = sockets.or(tables.sockets);
    let predictor = predictor(&tables)?;
    let range = args.ports.clone().unwrap_or(PORTS);
    let count = args.count.unwrap_or(COUNT);
    let found =
        predictor.source_ports(flow, wanted, range.clone(), count.into()).map_err(|error| match error {
            ReverseError::NoSuchQueue { .. } => Failure::Usage(error.to_string()),
            unknown => Failure::Cannot(unknown.into()),
        })?;
    let (first, last) = range.into_inner();
    if args.json {
        terminal::print(&output::json_of_ports(flow, wanted, &found)?)?;
    } else if found.matching > 0 {
        let lines: Vec<String> = found.ports.iter().map(u16::to_string).collect();
        terminal::print(&lines.join("\n"))?;
        eprintln!("{} of the {} source ports {first}-{last} get there", found.matching, found.tried);
    }
    match found.matching {
        0 => Err(Failure::Findings(format!("none of the source ports {first}-{last} gets there"))),
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
            Some(0) => Err(Failure::Usage("0 source ports name nothing: give --count 1 or more".into())),
            _ => Ok(Some(wanted)),
        };
    }
    if args.ports.is_some() || args.count.is_some() {
        return Err(Failure::Usage(
            "--ports and --count are for source ports that reach something: add --reverse QUEUE".into(),
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

/// An address with its port.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!("{text:?} is no address; write ADDR:PORT, such as 192.0.2.1:53 or [2001:db8::1]:53")
    })
}
