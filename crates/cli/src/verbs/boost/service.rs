//! `udpath boost --serve`: the service that the climb's servers run, and its load.

use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory};
use udpath_load::Engine;
use udpath_load::plan::Mode;
use udpath_load::template::Protocol;
use udpath_protocols::{PROTOCOLS, ProtocolEntry};

use super::load_line;
use crate::args::boost::{Args, LoadLine};
use crate::exit::Failure;
use crate::verbs::server_options::ServerOptions;

/// A service of udpath's own.
pub(super) struct Service {
    /// Its side of every trial.
    pub(super) load: Box<dyn Protocol>,
    /// What its servers are started with.
    pub(super) options: ServerOptions,
    /// Payload of a request.
    pub(super) size: usize,
    /// What sends its requests.
    pub(super) engine: Engine,
}

impl Service {
    /// The one that the arguments name; otherwise echo.
    pub(super) fn new(args: &Args) -> Result<Self, Failure> {
        let echo = [OsString::from("echo")];
        let words = if args.serve.is_empty() { &echo[..] } else { &args.serve };
        let (mut line, matches) = load_line("--serve", words)?;
        let entry = line.protocol;
        check(entry, &line.targets, &matches)?;
        let carried = |engine: &Engine| entry.engines.contains(engine);
        if let Some(engine) = args.engine.filter(|engine| !carried(engine)) {
            return Err(Failure::Usage(format!(
                "--engine {engine} does not support {}: remove it",
                entry.name
            )));
        }
        line.size = args.size;
        let load = crate::verbs::load::protocol(&line)?;
        // Requests that are sent again are answered from memory: that is not what the service can carry.
        let remembered = load.in_kernel().is_some_and(|in_kernel| in_kernel.is_remembered());
        if remembered && args.engine == Some(Engine::Kernel) {
            return Err(Failure::Usage(format!(
                "--engine kernel sends the same requests of {} again and again, which its server answers from memory: remove it",
                entry.name
            )));
        }
        let mut engines = [Engine::Kernel, Engine::Socket].into_iter().filter(carried);
        let usual = engines.find(|engine| !(remembered && *engine == Engine::Kernel));
        let usual = usual.unwrap_or(Engine::Socket);
        Ok(Self {
            load,
            options: ServerOptions::new(entry, &line.options.of(entry)?)?,
            size: args.size.unwrap_or(entry.size),
            engine: args.engine.unwrap_or(usual),
        })
    }
}

/// Rejects what cannot climb, and what a climb decides itself.
fn check(entry: &ProtocolEntry, targets: &[String], matches: &ArgMatches) -> Result<(), Failure> {
    if !can_climb(entry) {
        let others = PROTOCOLS.iter().filter(|other| can_climb(other)).map(|other| other.name);
        return Err(Failure::Usage(format!(
            "--serve: udpath has no server of {} that answers: use {}",
            entry.name,
            others.collect::<Vec<_>>().join(", ")
        )));
    }
    if let Some(target) = targets.first() {
        return Err(Failure::Usage(format!("--serve: the lab makes its own servers: remove {target}")));
    }
    let of_protocols =
        |id: &str| PROTOCOLS.iter().flat_map(|other| other.load_options).any(|own| own.name == id);
    let command = LoadLine::command();
    let given = command.get_arguments().map(|argument| argument.get_id().as_str()).find(|id| {
        matches.value_source(id) == Some(ValueSource::CommandLine) && *id != "protocol" && !of_protocols(id)
    });
    match given {
        None => Ok(()),
        Some(id) => Err(Failure::Usage(format!(
            "--serve: remove --{}: trials are closed loops of boost's own --flows, --inflight, --size and --engine, which come \
             before --serve",
            id.replace('_', "-")
        ))),
    }
}

/// A climb needs a server of udpath's own, and its replies.
fn can_climb(protocol: &ProtocolEntry) -> bool {
    protocol.start.is_some() && protocol.modes.contains(&Mode::Rr)
}
