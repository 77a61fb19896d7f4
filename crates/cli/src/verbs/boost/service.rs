//! `udpath boost --serve`: the service that the climb's servers run, and its load.

use clap::CommandFactory;
use clap::parser::ValueSource;
use udpath_load::Engine;
use udpath_load::plan::Mode;
use udpath_load::template::Protocol;
use udpath_protocols::{Options, PROTOCOLS, ProtocolEntry, echo};

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
        let (entry, options) = match args.serve.is_empty() {
            true => (&echo::ENTRY, Options::default()),
            false => named(args)?,
        };
        let carried = |engine: &Engine| entry.engines.contains(engine);
        if let Some(engine) = args.engine.filter(|engine| !carried(engine)) {
            return Err(Failure::Usage(format!(
                "--engine {engine} does not support {}: remove it",
                entry.name
            )));
        }
        let usual = [Engine::Kernel, Engine::Socket].into_iter().find(carried).unwrap_or(Engine::Socket);
        let load = (entry.load)(u64::from(std::process::id()), &options)?;
        if args.size.is_some() && load.lengths().is_some() {
            let name = entry.name;
            return Err(Failure::Usage(format!(
                "the requests of {name} have their own lengths: remove --size"
            )));
        }
        let options = ServerOptions::new(entry, &options)?;
        Ok(Self {
            load,
            options,
            size: args.size.unwrap_or(entry.size),
            engine: args.engine.unwrap_or(usual),
        })
    }
}

/// The service after `--serve`, and the options of its load.
fn named(args: &Args) -> Result<(&'static ProtocolEntry, Options), Failure> {
    let (load, matches) = load_line("--serve", &args.serve)?;
    let entry = load.protocol;
    if !can_climb(entry) {
        let others: Vec<&str> =
            PROTOCOLS.iter().filter(|other| can_climb(other)).map(|other| other.name).collect();
        return Err(Failure::Usage(format!(
            "--serve: udpath has no server of {} that answers: use {}",
            entry.name,
            others.join(", ")
        )));
    }
    if let Some(target) = load.targets.first() {
        return Err(Failure::Usage(format!("--serve: the lab makes its own servers: remove {target}")));
    }
    let of_protocols =
        |id: &str| PROTOCOLS.iter().flat_map(|other| other.load_options).any(|own| own.name == id);
    let command = LoadLine::command();
    let given = command.get_arguments().map(|argument| argument.get_id().as_str()).find(|id| {
        matches.value_source(id) == Some(ValueSource::CommandLine) && *id != "protocol" && !of_protocols(id)
    });
    if let Some(id) = given {
        let option = id.replace('_', "-");
        return Err(Failure::Usage(format!(
            "--serve: remove --{option}: trials are closed loops of boost's own --flows, --inflight, --size and --engine, \
             which come before --serve"
        )));
    }
    Ok((entry, load.options.of(entry)?))
}

/// A climb needs a server of udpath's own, and its replies.
fn can_climb(protocol: &ProtocolEntry) -> bool {
    protocol.start.is_some() && protocol.modes.contains(&Mode::Rr)
}
