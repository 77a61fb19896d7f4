//! `udpath serve`: runs a service until a signal, then answers queued requests and prints a summary. SIGHUP makes a
//! service that has files load them again, and ends others.
//!
//! stderr: notes, the line `ready ...` once test datagrams were answered, and on a terminal a status line; stdout: the
//! summary.

use std::time::Duration;

use anyhow::Context;
use schemars::JsonSchema;
use serde::Serialize;
use udpath_host::filters::{Filters, Taken, bypassed};
use udpath_load::plan::Transport;
use udpath_report::{Started, served_text, server_line, started_text, to_pretty_json};
use udpath_serve::{CheckNeighbours, Config, Server, Status, Steer, XdpConfig, xdp};

use crate::args::serve::Args;
use crate::confine::{self, Choice, Needs};
use crate::exit::{Done, Failure};
use crate::signals::{self, Event, Left};
use crate::terminal::{self, StatusLine};

mod reload;

use reload::Reloads;

/// How often the status line is updated and the counters are read.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// How soon the end of a reload is noticed. Sooner: CPU time; later: its message and the next reload wait.
const RELOAD_INTERVAL: Duration = Duration::from_millis(50);

/// Version of the JSON format; incremented when a field changes its meaning or is removed.
pub(crate) const SCHEMA: &str = "udpath.serve/1";

/// The JSON document at the end.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct Document<'a> {
    schema: &'static str,
    service: &'static str,
    #[serde(flatten)]
    status: &'a Status,
    /// Rules of packet filters that do not apply to frames taken by xdp, as of the start.
    filters: &'a Filters,
}

/// Serves until a signal.
pub(crate) fn run(args: Args) -> Done {
    let protocol = args.protocol;
    if args.tcp && !protocol.transports.contains(&Transport::Tcp) {
        return Err(Failure::Usage(format!("{} supports UDP only: remove --tcp", protocol.name)));
    }
    // The argument's parser offers only protocols that have one.
    let Some(start) = protocol.start else {
        return Err(Failure::Usage(format!("{} has no server: use `udpath load {0}`", protocol.name)));
    };
    let options = args.options.of(protocol)?;
    let user = Choice::of(args.user.user.as_deref())?;
    let needs = Needs::SERVER.require(args.user.require_confinement);
    confine::before_threads(&user, &needs)?;
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
        // Nothing of a client is read with privileges.
        hold: true,
        xdp: XdpConfig {
            interfaces: args.interface,
            steer: match args.steer {
                None => Steer::Off,
                Some(None) => Steer::All,
                Some(Some(workers)) => Steer::To(workers),
            },
            flow_limit: args.flow_limit,
            check_neighbours: match (args.check_neighbours, args.no_check_neighbours) {
                (true, _) => CheckNeighbours::On,
                (_, true) => CheckNeighbours::Off,
                _ => CheckNeighbours::Auto,
            },
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
    let signals = signals::watch(Left::Nothing)?;
    let server = start(&config, args.tcp, &options)?;
    // Before it says that it is ready: from then on SIGHUP may come.
    let mut reloads = Reloads::of(&server);
    if reloads.is_some() {
        signals.reload_on_hangup();
    }
    // Reads with privileges for the last time.
    let filters = bypassed_by(&server);
    confine::give_up(&user, &needs)?;
    server.release();
    let status = server.status();
    let started = Started {
        status: &status,
        binds: server.binds(),
        pinned_to: server.pinned_to(),
        ports: config.xdp.port.to_string(),
        filters: &filters,
    };
    terminal::say_lines(&started_text(&started));
    let mut watcher = Watcher::new();
    loop {
        let reloading = reloads.as_ref().is_some_and(Reloads::is_running);
        let interval = if reloading { RELOAD_INTERVAL } else { REPORT_INTERVAL };
        match signals.wait(interval).context("cannot wait for signals")? {
            Event::Stop => break,
            Event::Reload => reloads.iter_mut().for_each(Reloads::ask),
            Event::Nothing => {}
        }
        if server.is_impaired() {
            return Err(impaired(server));
        }
        if let Some(text) = reloads.as_mut().and_then(Reloads::turn) {
            watcher.say(&text);
        }
        watcher.show(server.status());
    }
    let status = server.stop().context("cannot stop cleanly")?;
    watcher.warn(&status);
    watcher.line.end();
    terminal::print(&if args.json {
        let service = protocol.name;
        to_pretty_json(&Document { schema: SCHEMA, service, status: &status, filters: &filters })
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

    /// Prints a line above the status line.
    fn say(&mut self, text: &str) {
        self.line.end();
        terminal::say(text);
    }

    /// Prints each new warning, and again when it returns.
    fn warn(&mut self, status: &Status) {
        let before = std::mem::replace(&mut self.warned, status.warnings.clone());
        for warning in status.warnings.iter().filter(|warning| !before.contains(warning)) {
            self.line.end();
            stderrln!("warning: {warning}");
        }
    }
}
