//! `udpath predict`: which queue, CPU and socket a flow's datagrams reach, and which source ports reach a wanted one.
//!
//! What is known comes from this machine (`--interface`), or from JSON, and from the arguments on top of it. stdout: the
//! steps, or one source port per line; stderr: what was assumed.

mod input;
mod output;

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use udpath_steer::predict::{Predictor, ReverseError, TablesError, Wanted};
use udpath_steer::reuseport::By;
use udpath_steer::toeplitz::{Fields, Key};
use udpath_steer::{CpuSet, Flow};

use crate::exit::{Done, Failure};
use crate::terminal;
use crate::verbs::show::PlaceArgs;

/// Source ports named in reverse, unless told otherwise.
const COUNT: u16 = 16;
/// Source ports tried in reverse: those that need no privilege.
const PORTS: RangeInclusive<u16> = 1024..=65535;

/// Arguments of `udpath predict`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the datagrams come from; in reverse the port may be left out
    #[arg(value_name = "SRC:PORT")]
    source: String,
    /// Where they go to
    #[arg(value_name = "DST:PORT")]
    destination: String,
    /// Read what is known from this interface of the machine; options come on top of it
    #[arg(long, value_name = "IFACE", conflicts_with = "tables")]
    interface: Option<String>,
    #[command(flatten)]
    place: PlaceArgs,
    /// What is known, as JSON udpath.tables/1, `-` for standard input; options come on top of it
    #[arg(long, value_name = "FILE.json|-")]
    tables: Option<PathBuf>,
    /// The hash key as ethtool -x shows it, or microsoft, or symmetric
    #[arg(long, value_name = "HEX")]
    key: Option<Key>,
    /// The driver, for what it sets by default
    #[arg(long, value_name = "NAME")]
    driver: Option<String>,
    /// What the card hashes of UDP: addresses, or ports too; default: the driver's, or sdfn without a driver
    #[arg(long, value_name = "sd|sdfn")]
    fields: Option<Fields>,
    /// The indirection table: equal:N, weight:W,W,..., or a file with a JSON array of queues; default: the queues in turn
    #[arg(long, value_name = "FILE|-|equal:N")]
    table: Option<String>,
    /// Entries of a table given as equal or weight; default: the driver's, or 128
    #[arg(long, value_name = "N")]
    table_size: Option<usize>,
    /// Receive queues
    #[arg(long, value_name = "N")]
    queues: Option<u32>,
    /// The RPS map of every queue, such as 0-3,8; an empty one is off
    #[arg(long, value_name = "LIST")]
    rps_cpus: Option<CpuSet>,
    /// The CPUs of the queues' IRQs: that of queue n is the n-th of the list, round again if there are more queues
    #[arg(long, value_name = "LIST")]
    irq_cpus: Option<CpuSet>,
    /// Sockets of the reuseport group
    #[arg(long, value_name = "N")]
    sockets: Option<usize>,
    /// How the group chooses: the kernel's hash, SO_INCOMING_CPU (socket n has CPU n), or the hash of the packet
    #[arg(long, value_name = "hash|cpu|rxhash", requires = "sockets", value_parser = input::by)]
    by: Option<By>,
    /// In reverse: source ports that reach this queue
    #[arg(long, value_name = "QUEUE")]
    reverse: Option<u32>,
    /// In reverse: source ports that reach this CPU, after RPS
    #[arg(long, value_name = "CPU")]
    reverse_cpu: Option<u32>,
    /// In reverse: source ports that reach this socket, in order of binding from 0
    #[arg(long, value_name = "N")]
    reverse_socket: Option<u32>,
    /// In reverse: source ports to try; default: 1024-65535
    #[arg(long, value_name = "A-B", value_parser = input::ports)]
    ports: Option<RangeInclusive<u16>>,
    /// In reverse: how many to name at most; default: 16
    #[arg(long, value_name = "N")]
    count: Option<u16>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Foretells.
pub(crate) fn run(args: Args) -> Done {
    let wanted = wanted(&args)?;
    let flow = flow(&args, wanted.is_some()).map_err(Failure::Usage)?;
    let tables = input::tables(&args, &flow)?;
    let predictor =
        Predictor::new(&tables).map_err(|error: TablesError| Failure::Usage(error.to_string()))?;
    match wanted {
        None => {
            let path = predictor.decide(&flow);
            terminal::print(&if args.json {
                output::json_of_path(&flow, &path)?
            } else {
                output::text(&flow, &path)
            })
        }
        Some(wanted) => reverse(&args, &predictor, &flow, &wanted),
    }
}

fn reverse(args: &Args, predictor: &Predictor, flow: &Flow, wanted: &Wanted) -> Done {
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

/// What is wanted in reverse, if anything.
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

fn flow(args: &Args, reverse: bool) -> Result<Flow, String> {
    let address = |text: &str| {
        text.parse::<SocketAddr>().map_err(|_| {
            format!("{text:?} is no address; write ADDR:PORT, such as 192.0.2.1:53 or [2001:db8::1]:53")
        })
    };
    let bare: Result<IpAddr, _> = args.source.parse();
    let source = match bare {
        Ok(bare) if reverse => SocketAddr::new(bare, 0),
        _ => address(&args.source)?,
    };
    Flow::udp(source, address(&args.destination)?).map_err(|error| error.to_string())
}
