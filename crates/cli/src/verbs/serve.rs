//! `udpath serve`: runs a service until a signal, then answers queued requests and prints a summary.
//!
//! stderr: notes, the line `ready ...` once test datagrams were answered, and on a terminal a status line; stdout: the
//! summary.

mod bypassed;

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Read, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use udpath_host::filters::Filters;
use udpath_load::plan::Transport;
use udpath_protocols::ProtocolEntry;
use udpath_serve::{Config, Error, IoChoice, Server, Status, Steer, XdpConfig, xdp};
use udpath_steer::CpuSet;

use super::choice;
use crate::exit::{Done, Failure};

/// How often the status line is updated and the counters are read.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Arguments of `udpath serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Protocol to serve
    #[arg(value_name = "PROTOCOL", value_parser = choice::protocol())]
    protocol: &'static ProtocolEntry,
    /// How datagrams are received and sent: shared, reuseport, percpu, xdp, or auto for the best one that works here
    #[arg(long, default_value = "auto", value_name = "IO")]
    io: IoChoice,
    /// Address to serve; repeatable. Port 0 selects a free port; the IPv6 wildcard serves IPv6 only
    #[arg(long, required = true, value_name = "ADDR:PORT")]
    bind: Vec<SocketAddr>,
    /// Worker threads, each with its own service instance [default: one per CPU]
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// Most datagrams per system call, 1 to 1024
    #[arg(long, default_value_t = Config::DEFAULT_BATCH, value_name = "N")]
    batch: usize,
    /// Send consecutive replies to one peer with UDP_SEGMENT (the default)
    #[arg(long, overrides_with = "no_gso")]
    gso: bool,
    /// Send each reply in its own system call entry (no UDP_SEGMENT)
    #[arg(long, overrides_with = "gso")]
    no_gso: bool,
    /// Pin each worker to its CPU (the default)
    #[arg(long, overrides_with = "no_pin")]
    pin: bool,
    /// Let the scheduler place the workers
    #[arg(long, overrides_with = "pin")]
    no_pin: bool,
    /// CPUs to use, such as 0-3,8 [default: all allowed CPUs]
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuSet>,
    /// Also serve the same addresses over TCP
    #[arg(long)]
    tcp: bool,
    /// Receive buffer of each socket (SO_RCVBUF); the kernel doubles it, up to net.core.rmem_max
    #[arg(long, value_name = "BYTES")]
    rcvbuf: Option<usize>,
    /// Also answer requests to broadcast and multicast addresses, once each. By default they are dropped: with a forged
    /// source address, every server of a network would answer one victim
    #[arg(long)]
    answer_broadcast: bool,
    /// With xdp: interface to take frames from; repeatable [default: the interfaces that have the addresses]. For a VLAN
    /// device, frames are taken from the interface below it, with the VLAN's tag
    #[arg(long, value_name = "NAME")]
    interface: Vec<String>,
    /// With xdp: distribute frames by flow over all workers, or over those listed, such as 1-3, instead of the worker of
    /// their queue
    #[arg(long, value_name = "WORKERS", num_args = 0..=1, require_equals = true)]
    steer: Option<Option<CpuSet>>,
    /// With --steer: once a worker's backlog is half full, drop first from a flow with more than half of the recent frames
    #[arg(long)]
    flow_limit: bool,
    /// With xdp: poll the device from the workers instead of interrupts (SO_PREFER_BUSY_POLL)
    #[arg(long)]
    busy_poll: bool,
    /// With xdp: send every reply through the AF_XDP ring. By default, where the kernel copies, many replies at once are
    /// sent as live frames, without an skb for each
    #[arg(long)]
    no_live_frames: bool,
    /// With xdp: frames of memory per queue, 2 KiB each
    #[arg(long, default_value_t = xdp::Config::default().frames, value_name = "N")]
    frames: usize,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

/// The JSON document at the end.
#[derive(Debug, Serialize)]
struct Document<'a> {
    schema: &'static str,
    service: &'static str,
    #[serde(flatten)]
    status: &'a Status,
    /// Rules of packet filters that do not apply to frames taken by xdp, as of the start.
    filters: &'a Filters,
}

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(args: Args) -> Done {
    let protocol = args.protocol;
    if args.tcp && !protocol.transports.contains(&Transport::Tcp) {
        return Err(Failure::Usage(format!("{} runs over UDP only: remove --tcp", protocol.name)));
    }
    let config = Config {
        io: args.io,
        workers: args.workers,
        batch: args.batch,
        // The last of two flags wins.
        gso: !args.no_gso,
        pin: !args.no_pin,
        cpus: args.cpus,
        receive_buffer: args.rcvbuf,
        answer_broadcast: args.answer_broadcast,
        xdp: XdpConfig {
            interfaces: args.interface,
            steer: match args.steer {
                None => Steer::Off,
                Some(None) => Steer::All,
                Some(Some(workers)) => Steer::To(workers),
            },
            flow_limit: args.flow_limit,
            port: xdp::Config {
                frames: args.frames,
                live_frames: !args.no_live_frames,
                busy_poll: args.busy_poll.then(xdp::BusyPoll::default),
                ..xdp::Config::default()
            },
        },
        ..Config::new(args.bind)
    };
    // Before anything is bound, so that a signal during the start is not lost.
    let mut signals = Signals::watch().context("cannot watch for signals")?;
    let server = (protocol.start)(&config, args.tcp).map_err(|error| match error {
        Error::Config(error) => Failure::Usage(error.to_string()),
        other => Failure::Cannot(other.into()),
    })?;
    let filters = bypassed::read(&server);
    announce(&server, &config, &filters);
    let mut line = StatusLine::new();
    while signals.none_within(REPORT_INTERVAL).context("cannot wait for signals")? {
        if server.is_impaired() {
            return Err(impaired(server));
        }
        line.show(&server.status());
    }
    line.end();
    let status = server.stop().context("cannot stop cleanly")?;
    line.warn(&status);
    print(&status, protocol, &filters, args.json).context("cannot write the summary")?;
    status.balance().context("the counters do not add up; this is a bug, please report it")?;
    Ok(())
}

/// A thread ended unexpectedly: stops the others and reports which one.
fn impaired(server: Server) -> Failure {
    match server.stop() {
        Err(error) => Failure::Cannot(error.into()),
        Ok(_) => Failure::Cannot(anyhow::anyhow!("a worker ended unexpectedly")),
    }
}

/// Prints which Ios `auto` rejected and why, then the ready line for scripts.
fn announce(server: &Server, config: &Config, filters: &Filters) {
    let mut text = String::new();
    for rejected in server.rejected() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "not {}: {}", rejected.io, rejected.reason);
    }
    let binds: Vec<_> = server.binds().iter().map(ToString::to_string).collect();
    let pin = match server.pinned_to() {
        Some(cpus) => cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
        None => "off".into(),
    };
    if let Some(xdp) = server.status().xdp {
        for port in &xdp.ports {
            let _ = write!(text, "{}: {} mode, probe {}", port.name, port.mode, port.probe);
            if let Some(hash) = &port.rx_hash {
                let _ = write!(text, ", rx hash: {hash}");
            }
            let _ = write!(text, ", live frames: {}", port.live_frames);
            text.push('\n');
        }
        let _ = writeln!(text, "{}", config.xdp.port);
    }
    text.push_str(&bypassed::warnings(filters));
    let _ = writeln!(
        text,
        "ready io={} workers={} batch={} bind={} pin={pin}",
        server.io(),
        server.workers(),
        config.batch,
        binds.join(","),
    );
    talk(&text);
}

/// Writes to stderr in one call. A closed stderr must not stop the service.
fn talk(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// SIGTERM and SIGINT as an event to wait for. A second signal ends the program at once.
struct Signals(UnixStream);

impl Signals {
    fn watch() -> io::Result<Self> {
        let (reader, writer) = UnixStream::pair()?;
        let again = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            // In this order: the first signal finds the flag clear and sets it, the second finds it set.
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&again))?;
            signal_hook::flag::register(signal, Arc::clone(&again))?;
            signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
        }
        Ok(Self(reader))
    }

    /// Waits; true if no signal came in time.
    fn none_within(&mut self, time: Duration) -> io::Result<bool> {
        self.0.set_read_timeout(Some(time))?;
        match self.0.read(&mut [0]) {
            Ok(_) => Ok(false),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }
}

/// The live line on a terminal, and warnings on stderr.
struct StatusLine {
    terminal: bool,
    before: Option<(f64, u64, Vec<u64>)>,
    /// Warnings of the last update.
    warned: Vec<String>,
    drawn: bool,
}

impl StatusLine {
    fn new() -> Self {
        Self { terminal: io::stderr().is_terminal(), before: None, warned: Vec::new(), drawn: false }
    }

    fn show(&mut self, status: &Status) {
        self.warn(status);
        if !self.terminal {
            return;
        }
        let received: Vec<u64> = status.workers.iter().map(|worker| worker.counts.received).collect();
        let (then, answered, by_worker) = self
            .before
            .replace((status.seconds, status.total.answered, received.clone()))
            .unwrap_or_default();
        let seconds = (status.seconds - then).max(1e-3);
        let tps = (status.total.answered - answered) as f64 / seconds;
        let window: Vec<u64> = received
            .iter()
            .enumerate()
            .map(|(worker, now)| now - by_worker.get(worker).copied().unwrap_or(0))
            .collect();
        let total = window.iter().sum::<u64>();
        let mut text = format!("\r\x1b[K{tps:.0} tps, {:.0} received/s", total as f64 / seconds);
        if total > 0 {
            let shares = window.iter().map(|share| format!("{:.0}", *share as f64 * 100.0 / total as f64));
            // No more shares than fit on the line.
            let shares: Vec<_> = shares.take(16).collect();
            let _ = write!(text, ", workers {} %", shares.join("/"));
        }
        let _ =
            write!(text, ", dropped {}, by the kernel {}", status.total.dropped.total(), status.kernel_drops);
        match status.warnings.len() {
            0 => {}
            1 => text.push_str(" [1 warning]"),
            several => {
                let _ = write!(text, " [{several} warnings]");
            }
        }
        talk(&text);
        self.drawn = true;
    }

    /// Prints each new warning, and again when it returns.
    fn warn(&mut self, status: &Status) {
        let before = std::mem::replace(&mut self.warned, status.warnings.clone());
        for warning in status.warnings.iter().filter(|warning| !before.contains(warning)) {
            self.end();
            talk(&format!("warning: {warning}\n"));
        }
    }

    /// Keeps the line and moves to the next.
    fn end(&mut self) {
        if std::mem::take(&mut self.drawn) {
            talk("\n");
        }
    }
}

fn print(status: &Status, protocol: &ProtocolEntry, filters: &Filters, json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        let document = Document { schema: "udpath.serve/1", service: protocol.name, status, filters };
        serde_json::to_writer_pretty(&mut out, &document)?;
        writeln!(out)?;
    } else {
        out.write_all(table(status).as_bytes())?;
    }
    out.flush()
}

/// The summary as text.
fn table(status: &Status) -> String {
    let mut text = format!("{} for {:.1} s, batch {}\n", status.io, status.seconds, status.batch);
    let head = ["worker", "cpu", "received", "answered", "dropped", "deferred", "per burst"];
    let mut rows = vec![head.map(String::from)];
    let row = |name: String, cpu: String, counts: &udpath_serve::Counts| {
        [
            name,
            cpu,
            counts.received.to_string(),
            counts.answered.to_string(),
            counts.dropped.total().to_string(),
            counts.deferred.to_string(),
            format!("{:.1}", counts.received as f64 / counts.bursts.max(1) as f64),
        ]
    };
    for worker in &status.workers {
        let cpu = worker.cpu.map_or("any".into(), |cpu| cpu.to_string());
        rows.push(row(worker.worker.to_string(), cpu, &worker.counts));
    }
    rows.push(row("all".into(), String::new(), &status.total));
    let widths: Vec<usize> =
        (0..head.len()).map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0)).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  "));
    }
    for (reason, count) in status.total.dropped.occurred() {
        let _ = writeln!(text, "dropped as {reason}: {count}");
    }
    for socket in status.sockets.iter().filter(|socket| socket.kernel_drops > 0) {
        let _ = writeln!(
            text,
            "dropped by the kernel at {}{}: {} (receive buffer {} bytes)",
            socket.bind,
            socket.worker.map_or(String::new(), |worker| format!(" of worker {worker}")),
            socket.kernel_drops,
            socket.receive_buffer_bytes,
        );
    }
    if let Some(xdp) = &status.xdp {
        let _ = writeln!(
            text,
            "frames: {} taken, {} received, {} answered, {} steered to another worker",
            xdp.taken, xdp.received, xdp.answered, xdp.steered
        );
        for (worker, port) in xdp.ports.iter().enumerate() {
            for (reason, count) in &port.dropped {
                let _ = writeln!(
                    text,
                    "dropped by the kernel at {} of worker {worker}: {count} ({reason})",
                    port.name
                );
            }
        }
        for (reason, count) in &xdp.dropped {
            let _ = writeln!(text, "frames dropped as {reason}: {count}");
        }
    }
    if let Some(tcp) = &status.tcp {
        let _ = writeln!(
            text,
            "tcp: {} connections ({} refused, {} failed), {} bytes received, {} answered",
            tcp.accepted, tcp.refused, tcp.failed, tcp.received_bytes, tcp.answered_bytes
        );
    }
    text
}
