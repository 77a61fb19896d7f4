//! Arguments of `udpath load`.

pub(crate) mod task;

use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime};

use clap::builder::TypedValueParser;
use udpath_lab::Offloads;
use udpath_load::Engine;
use udpath_load::ends::Source;
use udpath_load::plan::{Mode, Process, Segment, Transport};
use udpath_protocols::{PROTOCOLS, ProtocolEntry};

use super::history::RecordArgs;
use super::nats::FleetArgs;
use super::protocol_options::LoadOptions;
use super::{choice, value};

/// Arguments of `udpath load`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Protocol of the server
    #[arg(value_name = "PROTOCOL", value_parser = choice::protocol(PROTOCOLS.iter().copied()))]
    pub(crate) protocol: &'static ProtocolEntry,
    /// Address of the server; several servers share the flows
    #[arg(value_name = "ADDR:PORT")]
    pub(crate) targets: Vec<String>,
    /// What sends the requests
    #[arg(long, default_value = "socket", value_name = "ENGINE", value_parser = engine())]
    pub(crate) engine: Engine,
    /// Transport [default: udp]
    #[arg(long, value_name = "TRANSPORT", value_parser = transport())]
    pub(crate) transport: Option<Transport>,
    /// Same as --transport tcp
    #[arg(long)]
    pub(crate) tcp: bool,
    /// What a flow does [default: the first mode that the protocol supports]
    #[arg(long, value_name = "MODE", value_parser = mode())]
    pub(crate) mode: Option<Mode>,
    /// Number of flows: sockets, each with its own source port
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = value::count::<u32>)]
    pub(crate) flows: u32,
    /// Closed loop: requests in flight per flow [default: 1]
    #[arg(long, value_name = "N", value_parser = value::count::<u32>)]
    pub(crate) inflight: Option<u32>,
    /// Open loop: transactions per second over all flows, such as 100k
    #[arg(long, value_parser = value::rate, allow_hyphen_values = true, value_name = "RATE")]
    pub(crate) rate: Option<f64>,
    /// Arrival process of --rate: constant, poisson, burst or burst:N [default: constant]
    #[arg(long, value_parser = process, value_name = "PROCESS")]
    pub(crate) arrivals: Option<Process>,
    /// Open loop with a rate that changes from A to B over the duration
    #[arg(long, value_parser = value::ramp, allow_hyphen_values = true, value_name = "A..B")]
    pub(crate) ramp: Option<(f64, f64)>,
    /// Length of the measured window [default: 5s; 2s for each run of a search]
    #[arg(short, long, value_parser = value::duration, allow_hyphen_values = true, value_name = "TIME")]
    pub(crate) duration: Option<Duration>,
    /// Time under the same load before the window
    #[arg(long, default_value = "0s", value_parser = value::duration, allow_hyphen_values = true, value_name = "TIME")]
    pub(crate) warmup: Duration,
    /// A reply after this time is late; after twice this time, it is lost
    #[arg(long, default_value = "1s", value_parser = value::duration, allow_hyphen_values = true, value_name = "TIME")]
    pub(crate) timeout: Duration,
    /// Payload of a request [default: 100, or the size that the protocol prescribes]
    #[arg(long, value_parser = value::size, allow_hyphen_values = true, value_name = "BYTES")]
    pub(crate) size: Option<usize>,
    /// Source address; repeatable
    #[arg(long = "source", value_name = "ADDR[%IFACE]", value_parser = udpath_load::ends::source)]
    pub(crate) sources: Vec<Source>,
    /// Source ports
    #[arg(long, value_parser = value::ports, value_name = "LOW-HIGH")]
    pub(crate) source_ports: Option<RangeInclusive<u16>>,
    /// Sending threads [default: half of the CPUs; with --segment or --fleet, 1]
    #[arg(long, value_name = "N", value_parser = value::count::<usize>)]
    pub(crate) threads: Option<usize>,
    /// Send requests of one flow that are due together as few messages (UDP_SEGMENT); needs mode rr over UDP sockets
    #[arg(long)]
    pub(crate) gso: bool,
    /// TCP: congestion control of the flows, such as reno, cubic or bbr [default: net.ipv4.tcp_congestion_control]
    #[arg(long, value_name = "NAME")]
    pub(crate) congestion: Option<String>,
    /// Send buffer of each flow's socket (SO_SNDBUF), such as 4MiB; the kernel doubles it, up to net.core.wmem_max
    #[arg(long, value_parser = value::size, allow_hyphen_values = true, value_name = "BYTES")]
    pub(crate) sndbuf: Option<usize>,
    /// Receive buffer of each flow's socket (SO_RCVBUF), with --lab also of the servers' sockets; the kernel doubles
    /// it, up to net.core.rmem_max
    #[arg(long, value_parser = value::size, allow_hyphen_values = true, value_name = "BYTES")]
    pub(crate) rcvbuf: Option<usize>,
    /// Seed of the arrival times
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,
    /// The I-th of N shares of this load, for N machines: rates and flows are those of all together. I counts from 1;
    /// with `index:` from 0, as batch systems do
    #[arg(long, value_name = "[index:]I/N", requires = "start_at")]
    pub(crate) segment: Option<Segment>,
    /// When to start, by this machine's clock (RFC 3339, such as 2026-11-23T22:30:00Z) [default: at once]
    #[arg(long, value_name = "TIME", value_parser = value::timestamp, conflicts_with_all = ["find_max", "lab"])]
    pub(crate) start_at: Option<SystemTime>,
    /// Search for the highest rate within --loss and --p99; with --engine kernel, by the number in flight
    #[arg(long, conflicts_with = "record")]
    pub(crate) find_max: bool,
    /// Search: largest share of requests lost or late [default: 0.1%]
    #[arg(long, value_parser = value::share, allow_hyphen_values = true, value_name = "SHARE")]
    pub(crate) loss: Option<f64>,
    /// Search: largest 99th percentile of latency [default: no limit]
    #[arg(long, value_parser = value::duration, allow_hyphen_values = true, value_name = "TIME")]
    pub(crate) p99: Option<Duration>,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
    #[command(flatten)]
    pub(crate) lab: LabArgs,
    #[command(flatten)]
    pub(crate) record: RecordArgs,
    /// Print one JSON document (udpath.load/1; with --find-max, udpath.find-max/1)
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) options: LoadOptions,
}

/// Arguments of a load in a lab.
#[derive(Debug, clap::Args)]
pub(crate) struct LabArgs {
    /// Run clients and servers on machines created for the run, instead of connecting to a server
    #[arg(long)]
    pub(crate) lab: bool,
    /// Lab: which clients send to which servers [default: single]
    #[arg(long, value_name = "PATTERN", value_parser = pattern())]
    pub(crate) pattern: Option<Pattern>,
    /// Lab: number of clients, servers, or both, depending on the pattern [default: 2]
    #[arg(long, value_name = "N", value_parser = value::count::<usize>)]
    pub(crate) hosts: Option<usize>,
    /// Lab: receive and transmit queues per link [default: 1]
    #[arg(long, value_name = "N", value_parser = value::count::<u32>)]
    pub(crate) queues: Option<u32>,
    /// Lab: MTU of the links, bytes [default: 1500]
    #[arg(long, value_name = "BYTES", value_parser = value::count::<u32>)]
    pub(crate) mtu: Option<u32>,
    /// Lab: offloads of the links' ends that are on, of tso, gso and gro; or none [default: tso,gso]
    #[arg(long, value_name = "NAME,...", value_parser = value::offloads)]
    pub(crate) offloads: Option<Offloads>,
    /// Lab: each packet is processed on the CPU of the thread that reads its flow (RFS); needs root
    #[arg(long)]
    pub(crate) rfs: bool,
}

/// Which clients of a lab send to which servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// One client, one server, one flow.
    Single,
    /// Pairs of a client and a server.
    OneToOne,
    /// Many clients, one server.
    Incast,
    /// One client, many servers.
    Outcast,
    /// Every client to every server.
    AllToAll,
}

impl Pattern {
    const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::OneToOne => "one-to-one",
            Self::Incast => "incast",
            Self::Outcast => "outcast",
            Self::AllToAll => "all-to-all",
        }
    }
}

fn pattern() -> impl TypedValueParser<Value = Pattern> {
    const PATTERNS: &[(Pattern, &str)] = &[
        (Pattern::Single, "one client, one server, one flow"),
        (Pattern::OneToOne, "pairs of a client and a server"),
        (Pattern::Incast, "many clients, one server"),
        (Pattern::Outcast, "one client, many servers"),
        (Pattern::AllToAll, "every client to every server"),
    ];
    choice::one_of(PATTERNS, Pattern::name)
}

fn engine() -> impl TypedValueParser<Value = Engine> {
    const ENGINES: &[(Engine, &str)] = &[
        (Engine::Socket, "kernel sockets; every plan"),
        (Engine::Kernel, "closed loop in the driver, by BPF; UDP only, not over the loopback"),
        (Engine::Xdp, "AF_XDP, bypassing the kernel's UDP; UDP only, not over the loopback"),
        (Engine::XdpRings, "like xdp, but never sends live frames"),
    ];
    choice::one_of(ENGINES, Engine::name)
}

fn transport() -> impl TypedValueParser<Value = Transport> {
    const TRANSPORTS: &[(Transport, &str)] =
        &[(Transport::Udp, "datagrams"), (Transport::Tcp, "one connection per flow")];
    choice::one_of(TRANSPORTS, Transport::name)
}

fn mode() -> impl TypedValueParser<Value = Mode> {
    const MODES: &[(Mode, &str)] = &[
        (Mode::Rr, "requests and replies"),
        (Mode::Stream, "one way, batched with GSO"),
        (Mode::Flood, "one way, one datagram per message"),
    ];
    choice::one_of(MODES, Mode::name)
}

/// Transactions per burst if `burst` has no number.
const BURST: u32 = 16;

fn process(text: &str) -> Result<Process, String> {
    match text.split_once(':').map_or((text, None), |(name, n)| (name, Some(n))) {
        ("constant", None) => Ok(Process::Constant),
        ("poisson", None) => Ok(Process::Poisson),
        ("burst", None) => Ok(Process::Burst { len: BURST }),
        ("burst", Some(n)) => value::count(n).map(|len| Process::Burst { len }),
        _ => Err(format!("unknown process `{text}`: expected constant, poisson, burst or burst:N")),
    }
}
