//! From the arguments of a load to its plan: checks combinations and sets defaults.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use udpath_load::Engine;
use udpath_load::ends::Source;
use udpath_load::plan::{Arrivals, Mode, Plan, PortRange, Process, SocketOptions, Transport};
use udpath_load::search::Limits;
use udpath_load::template::Protocol;

use super::super::value;
use super::{Args, LabArgs, Pattern};

/// Most hosts on each side of a lab. All-to-all makes a link for every pair: 32 x 32 is a thousand.
const MAX_HOSTS: usize = 32;
/// Rate at which a search starts, per second.
const SEARCH_FROM: f64 = 1000.0;
/// Default share of requests that a search may lose.
const SEARCH_LOSS: f64 = 0.001;
/// Length of a run, and of each run of a search.
const DURATION: Duration = Duration::from_secs(5);
const SEARCH_DURATION: Duration = Duration::from_secs(2);

/// The task described by the arguments.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) plan: Plan,
    pub(crate) engine: Engine,
    pub(crate) search: Option<Limits>,
}

/// Makes the plan. All invalid combinations of options are rejected here. `protocol`: as its options describe it.
pub(crate) fn task(args: &Args, protocol: &dyn Protocol) -> Result<Task, String> {
    in_lab(args)?;
    let mode = mode(args)?;
    let transport = transport(args)?;
    let engine = engine(args, mode, transport)?;
    if !args.protocol.engines.contains(&engine) {
        let engines = args.protocol.engines.iter().map(|engine| engine.name()).collect::<Vec<_>>();
        return Err(format!(
            "--engine {engine} does not support {}: use --engine {}",
            args.protocol.name,
            engines.join(" or ")
        ));
    }
    if args.gso && (engine, transport, mode) != (Engine::Socket, Transport::Udp, Mode::Rr) {
        return Err(format!(
            "--gso joins requests of mode rr over UDP sockets, not of mode {mode} over {transport} with engine {engine}: remove it"
        ));
    }
    let search = search(args, mode)?;
    let targets = match &args.lab.lab {
        // A placeholder: the lab provides the targets.
        true => vec![SocketAddr::from(([127, 0, 0, 1], 7))],
        false => targets(args, protocol)?,
    };
    let (flows, segment) = (args.flows, args.segment.unwrap_or_default());
    let several = args.segment.is_some() || args.fleet.fleet.is_some();
    let plan = Plan {
        transport,
        mode,
        targets,
        flows,
        sources: args.sources.iter().map(|source| source.ip).collect(),
        source_scope: source_scope(&args.sources)?,
        source_ports: args
            .source_ports
            .as_ref()
            .map(|ports| PortRange { first: *ports.start(), last: *ports.end() }),
        arrivals: arrivals(args, mode)?,
        size: args.size.unwrap_or(args.protocol.size),
        duration: args.duration.unwrap_or(if args.find_max { SEARCH_DURATION } else { DURATION }),
        warmup: args.warmup,
        timeout: args.timeout,
        seed: args.seed,
        // With several machines it is part of the plan, and must not depend on the machine.
        threads: args.threads.unwrap_or_else(|| if several { 1 } else { default_threads(flows) }),
        gso: args.gso,
        sockets: SocketOptions {
            congestion: args.congestion.clone(),
            send_buffer: args.sndbuf,
            receive_buffer: args.rcvbuf,
        },
        segment,
        start_at: args.start_at,
        clock_ahead_ns: 0,
    };
    plan.check().map_err(|e| e.to_string())?;
    if engine != Engine::Socket && !plan.sockets.is_default() {
        return Err(format!(
            "--congestion, --sndbuf and --rcvbuf are options of kernel sockets, which engine {engine} does not send by: use \
             --engine socket"
        ));
    }
    if let Some(limits) = &search {
        limits.check().map_err(|e| e.to_string())?;
    }
    Ok(Task { plan, engine, search })
}

/// The interface of the link-local sources: a plan has one.
fn source_scope(sources: &[Source]) -> Result<u32, String> {
    let mut named = sources.iter().map(|source| source.scope).filter(|scope| *scope != 0);
    let first = named.next().unwrap_or(0);
    match named.find(|scope| *scope != first) {
        Some(other) => Err(format!("sources on two interfaces ({first} and {other}): start a load for each")),
        None => Ok(first),
    }
}

/// Rejects arguments that conflict with --lab, or require it.
fn in_lab(args: &Args) -> Result<(), String> {
    let LabArgs { lab, pattern, hosts, queues, mtu, offloads, rfs } = &args.lab;
    if !lab {
        let of_links = mtu.is_some() || offloads.is_some() || *rfs;
        return match (pattern, hosts, queues, of_links) {
            (None, None, None, false) => Ok(()),
            _ => Err("--pattern, --hosts, --queues, --mtu, --offloads and --rfs need --lab".into()),
        };
    }
    if !args.targets.is_empty() {
        return Err(format!("--lab makes its own servers: remove {}", args.targets[0]));
    }
    if args.protocol.start.is_none() {
        let name = args.protocol.name;
        return Err(format!(
            "--lab makes its own servers, and udpath has none of {name}: name a server instead"
        ));
    }
    if !args.sources.is_empty() {
        return Err("--lab does not support --source: its clients have one address per link".into());
    }
    let single = pattern.unwrap_or(Pattern::Single) == Pattern::Single;
    if single && hosts.is_some_and(|n| n != 1) {
        return Err(
            "--pattern single has one client and one server: remove --hosts, or choose another pattern"
                .into(),
        );
    }
    if single && args.flows != 1 {
        return Err(
            "--pattern single has one flow: remove --flows, or use --pattern one-to-one --hosts 1".into()
        );
    }
    if !args.protocol.modes.contains(&Mode::Rr) && !args.warmup.is_zero() {
        return Err(format!(
            "--lab reads the {} counters before and after the whole run: remove --warmup",
            args.protocol.name
        ));
    }
    match hosts {
        Some(n) if !(1..=MAX_HOSTS).contains(n) => {
            Err(format!("invalid --hosts {n}: expected 1 to {MAX_HOSTS}"))
        }
        _ => Ok(()),
    }
}

/// Half of the CPUs, since the server may be on this machine; at most one per flow.
fn default_threads(flows: u32) -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    (cpus / 2).clamp(1, (flows as usize).max(1))
}

fn mode(args: &Args) -> Result<Mode, String> {
    let protocol = args.protocol;
    let Some(mode) = args.mode else {
        return Ok(protocol.modes.first().copied().unwrap_or(Mode::Rr));
    };
    if protocol.modes.contains(&mode) {
        return Ok(mode);
    }
    let possible = protocol.modes.iter().map(|mode| mode.name()).collect::<Vec<_>>().join(" or ");
    let others = udpath_protocols::with_mode(mode).filter(|other| other.start.is_some()).map(|other| {
        let name = other.name;
        format!(", or `udpath load {name} --mode {mode}` with `udpath serve {name}` as the server")
    });
    Err(format!(
        "{} does not support --mode {mode}: use {possible}{}",
        protocol.name,
        others.collect::<String>()
    ))
}

fn transport(args: &Args) -> Result<Transport, String> {
    let transport = match (args.transport, args.tcp) {
        (Some(Transport::Udp), true) => {
            return Err("--tcp and --transport udp contradict each other: use one of them".into());
        }
        (Some(Transport::Tcp), _) | (None, true) => Transport::Tcp,
        (Some(Transport::Udp) | None, false) => Transport::Udp,
    };
    if !args.protocol.transports.contains(&transport) {
        return Err(format!("{} does not run over {transport}", args.protocol.name));
    }
    Ok(transport)
}

fn engine(args: &Args, mode: Mode, transport: Transport) -> Result<Engine, String> {
    let engine = args.engine;
    match engine {
        Engine::Socket => return Ok(engine),
        Engine::Xdp | Engine::XdpRings if transport == Transport::Tcp => {
            return Err("the xdp engine supports UDP only: remove --tcp, or use --engine socket".into());
        }
        Engine::Xdp | Engine::XdpRings if mode != Mode::Rr => {
            return Err(format!("the xdp engine does not support {mode}: use --engine socket"));
        }
        Engine::Xdp | Engine::XdpRings => return Ok(engine),
        Engine::Kernel => {}
    }
    let only =
        "the kernel engine is a closed loop over UDP: use --mode rr with --inflight, or --engine socket";
    if transport == Transport::Tcp || mode != Mode::Rr {
        return Err(only.into());
    }
    if args.rate.is_some() || args.ramp.is_some() || args.arrivals.is_some() {
        return Err(format!("{only}; it has no rate"));
    }
    if args.threads.is_some() {
        return Err(
            "the kernel engine sends from the CPUs that receive the replies: --threads needs --engine socket"
                .into(),
        );
    }
    Ok(engine)
}

fn search(args: &Args, mode: Mode) -> Result<Option<Limits>, String> {
    if !args.find_max {
        return match (args.loss, args.p99) {
            (None, None) => Ok(None),
            _ => Err("--loss and --p99 need --find-max".into()),
        };
    }
    if mode != Mode::Rr {
        return Err("--find-max needs replies: use --mode rr".into());
    }
    if args.inflight.is_some() || args.ramp.is_some() {
        return Err(
            "--find-max sets the rate, or with --engine kernel the number in flight: remove --inflight and --ramp; --rate sets \
             where the search starts"
                .into(),
        );
    }
    Ok(Some(Limits { loss: args.loss.unwrap_or(SEARCH_LOSS), p99: args.p99 }))
}

fn arrivals(args: &Args, mode: Mode) -> Result<Arrivals, String> {
    let closed = || match (args.inflight, mode) {
        (Some(_), Mode::Stream | Mode::Flood) => {
            Err(format!("--inflight needs --mode rr: {mode} has no replies"))
        }
        (inflight, _) => Ok(Arrivals::Closed { inflight: inflight.unwrap_or(1) }),
    };
    match (args.rate, args.ramp, args.arrivals) {
        (Some(_), Some(_), _) => Err("--rate and --ramp contradict each other: use one of them".into()),
        (None, Some(_), Some(_)) => Err("--ramp does not support --arrivals".into()),
        (None, None, Some(_)) if !args.find_max => Err("--arrivals needs --rate".into()),
        (Some(_), ..) | (_, Some(_), _) if args.inflight.is_some() => {
            Err("--inflight is a closed loop, which has no rate: use either --inflight, or --rate or --ramp"
                .into())
        }
        (None, Some((from, to)), None) => Ok(Arrivals::Ramp { from, to }),
        (None, None, None) if args.find_max && args.engine == Engine::Kernel => {
            Ok(Arrivals::Closed { inflight: 1 })
        }
        (None, None, None) if !args.find_max => closed(),
        (rate, None, process) => {
            let process = process.unwrap_or(Process::Constant);
            Ok(Arrivals::Open { rate: rate.unwrap_or(SEARCH_FROM), process })
        }
    }
}

fn targets(args: &Args, protocol: &dyn Protocol) -> Result<Vec<SocketAddr>, String> {
    let (names, own) = (&args.targets, protocol.targets());
    if let (Some(name), false) = (names.first(), own.is_empty()) {
        return Err(format!("the options of {} name the targets: remove {name}", protocol.name()));
    }
    if own.len() > args.flows as usize {
        let (protocol, flows) = (protocol.name(), own.len());
        return Err(format!(
            "the shares of this {protocol} need {flows} flows: use --flows {flows}, or a multiple of it"
        ));
    }
    if !own.is_empty() {
        return Ok(own);
    }
    if names.is_empty() {
        return Err("no target: name the server as ADDR:PORT, or use --lab".into());
    }
    names
        .iter()
        .map(|name| {
            // Not a name to resolve, and what is wrong with it can be said.
            if name.starts_with('[') {
                return value::address(name).map_err(|why| why.replacen("address", "target", 1));
            }
            name.to_socket_addrs().ok().and_then(|mut found| found.next()).ok_or_else(|| {
                format!("invalid target `{name}`: expected ADDR:PORT, such as 192.0.2.1:7 or [2001:db8::1]:7")
            })
        })
        .collect()
}
