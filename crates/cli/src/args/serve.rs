//! Arguments of `udpath serve`.

use std::net::SocketAddr;

use clap::builder::TypedValueParser;
use udpath_protocols::ProtocolEntry;
use udpath_serve::{Config, Io, IoChoice, xdp};
use udpath_steer::CpuSet;

use super::confine::UserArgs;
use super::protocol_options::ServeOptions;
use super::{choice, value};

/// Arguments of `udpath serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Protocol to serve
    #[arg(value_name = "PROTOCOL", value_parser = choice::protocol(udpath_protocols::with_server()))]
    pub(crate) protocol: &'static ProtocolEntry,
    /// How datagrams are received and sent
    #[arg(long, default_value = "auto", value_name = "IO", value_parser = io())]
    pub(crate) io: IoChoice,
    /// Address to serve; repeatable. Port 0 selects a free port; the IPv6 wildcard serves IPv6 only
    #[arg(long, required = true, value_name = "ADDR:PORT", value_parser = value::address)]
    pub(crate) bind: Vec<SocketAddr>,
    /// Worker threads, each with its own service instance [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = value::count::<usize>)]
    pub(crate) workers: Option<usize>,
    /// Most datagrams per system call, 1 to 1024
    #[arg(long, default_value_t = Config::DEFAULT_BATCH, value_name = "N", value_parser = value::count::<usize>)]
    pub(crate) batch: usize,
    /// Send consecutive replies to one peer with UDP_SEGMENT (the default)
    #[arg(long, overrides_with = "no_gso")]
    pub(crate) gso: bool,
    /// Send each reply in its own system call entry (no UDP_SEGMENT)
    #[arg(long, overrides_with = "gso")]
    pub(crate) no_gso: bool,
    /// Pin each worker to its CPU (the default)
    #[arg(long, overrides_with = "no_pin")]
    pub(crate) pin: bool,
    /// Let the scheduler place the workers
    #[arg(long, overrides_with = "pin")]
    pub(crate) no_pin: bool,
    /// CPUs to use, such as 0-3,8 [default: all allowed CPUs]
    #[arg(long, value_name = "LIST")]
    pub(crate) cpus: Option<CpuSet>,
    /// Also serve the same addresses over TCP
    #[arg(long)]
    pub(crate) tcp: bool,
    /// Receive buffer of each socket (SO_RCVBUF), such as 4MiB; the kernel doubles it, up to net.core.rmem_max
    #[arg(long, value_name = "BYTES", value_parser = value::size)]
    pub(crate) rcvbuf: Option<usize>,
    /// Also answer requests to broadcast and multicast addresses, once each. By default they are dropped: with a forged
    /// source address, every server of a network would answer one victim
    #[arg(long)]
    pub(crate) answer_broadcast: bool,
    /// With xdp: interface to take frames from; repeatable [default: the interfaces that have the addresses]. For a
    /// VLAN device, frames are taken from the interface below it, with the VLAN's tag
    #[arg(long, value_name = "IFACE")]
    pub(crate) interface: Vec<String>,
    /// With xdp: distribute frames by flow over all workers, or over those listed, such as 1-3, instead of the worker
    /// of their queue
    #[arg(long, value_name = "WORKERS", num_args = 0..=1, require_equals = true)]
    pub(crate) steer: Option<Option<CpuSet>>,
    /// With --steer: once a worker's backlog is half full, drop first from a flow with more than half of the recent
    /// frames
    #[arg(long)]
    pub(crate) flow_limit: bool,
    /// With xdp: send a reply to the MAC address of its request only if the kernel would; all others leave by the
    /// kernel (default for dns and radius)
    #[arg(long, overrides_with = "no_check_neighbours")]
    pub(crate) check_neighbours: bool,
    /// With xdp: send every reply to the MAC address of its request
    #[arg(long, overrides_with = "check_neighbours")]
    pub(crate) no_check_neighbours: bool,
    /// With xdp: the workers poll the device instead of waiting for interrupts (SO_PREFER_BUSY_POLL)
    #[arg(long)]
    pub(crate) busy_poll: bool,
    /// With xdp: send every reply through the AF_XDP ring. By default, where the kernel copies, many replies at once
    /// are sent as live frames, without an skb for each
    #[arg(long)]
    pub(crate) no_live_frames: bool,
    /// With xdp: frames of memory per queue, 2 KiB each
    #[arg(long, default_value_t = xdp::Config::default().frames, value_name = "N", value_parser = value::count::<usize>)]
    pub(crate) frames: usize,
    /// Print the summary as one JSON document (udpath.serve/1)
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) user: UserArgs,
    #[command(flatten)]
    pub(crate) options: ServeOptions,
}

fn io() -> impl TypedValueParser<Value = IoChoice> {
    const IOS: &[(IoChoice, &str)] = &[
        (IoChoice::Auto, "the best one that works here"),
        (IoChoice::Only(Io::Shared), "one socket that all workers read"),
        (IoChoice::Only(Io::Reuseport), "a socket per worker; the kernel chooses by flow hash"),
        (
            IoChoice::Only(Io::Percpu),
            "a socket per worker; the kernel chooses by the CPU that received the datagram",
        ),
        (IoChoice::Only(Io::Xdp), "frames from the device's queues, bypassing the kernel's UDP (AF_XDP)"),
    ];
    choice::one_of(IOS, |io| match io {
        IoChoice::Auto => "auto",
        IoChoice::Only(io) => io.name(),
    })
}
