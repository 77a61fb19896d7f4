//! `udpath serve`: runs a service until a signal, then answers queued requests and prints a summary.
//!
//! stderr: notes, the line `ready ...` once test datagrams were answered, and on a terminal a status line; stdout: the
//! summary.

use std::io::{self, Read, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use udpath_host::filters::{Filters, Taken, bypassed};
use udpath_load::plan::Transport;
use udpath_report::{Started, served_text, server_line, started_text, to_pretty_json};
use udpath_serve::{Config, Server, Status, Steer, XdpConfig, xdp};

use crate::args::serve::Args;
use crate::exit::{Done, Failure};
use crate::terminal::{self, StatusLine};

/// How often the status line is updated and the counters are read.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

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
        return Err(Failure::Usage(format!("{} supports UDP only: remove --tcp", protocol.name)));
    }
    let options = args.options.of(protocol)?;
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
    let server = (protocol.start)(&config, args.tcp, &options)?;
    let filters = bypassed_by(&server);
    let status = server.status();
    let started = Started {
        status: &status,
        binds: server.binds(),
        pinned_to: server.pinned_to(),
        ports: config.xdp.port.to_string(),
        filters: &filters,
    };
    // In one call. A closed stderr must not stop the service.
    let _ = io::stderr().write_all(started_text(&started).as_bytes());
    let mut watcher = Watcher::new();
    while signals.none_within(REPORT_INTERVAL).context("cannot wait for signals")? {
        if server.is_impaired() {
            return Err(impaired(server));
        }
        watcher.show(server.status());
    }
    let status = server.stop().context("cannot stop cleanly")?;
    watcher.warn(&status);
    watcher.line.end();
    terminal::print(&if args.json {
        let service = protocol.name;
        to_pretty_json(&Document { schema: "udpath.serve/1", service, status: &status, filters: &filters })
    } else {
        served_text(&status, &terminal::style())
    })?;
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

/// Rules of packet filters that do not apply to the datagrams that xdp takes; empty for other Ios.
fn bypassed_by(server: &Server) -> Filters {
    let on = |interface: String| {
        server.binds().iter().map(move |bind| Taken { interface: interface.clone(), address: *bind })
    };
    let taken: Vec<_> = server.interfaces().into_iter().flat_map(on).collect();
    if taken.is_empty() { Filters::default() } else { bypassed(&taken) }
}

/// The live line on a terminal, and warnings on stderr.
struct Watcher {
    line: StatusLine,
    before: Option<Status>,
    /// Warnings of the last update.
    warned: Vec<String>,
}

impl Watcher {
    fn new() -> Self {
        Self { line: StatusLine::new(), before: None, warned: Vec::new() }
    }

    fn show(&mut self, status: Status) {
        self.warn(&status);
        if self.line.is_live() {
            self.line.show(&server_line(self.before.as_ref(), &status));
            self.before = Some(status);
        }
    }

    /// Prints each new warning, and again when it returns.
    fn warn(&mut self, status: &Status) {
        let before = std::mem::replace(&mut self.warned, status.warnings.clone());
        for warning in status.warnings.iter().filter(|warning| !before.contains(warning)) {
            self.line.end();
            let _ = writeln!(io::stderr(), "warning: {warning}");
        }
    }
}
