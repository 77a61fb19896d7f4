//! Mix: one load of several protocols, each with its servers and its share of the flows.
//!
//! ```text
//!   file.rs       70 dns 10.0.0.2:53 --queries q.txt     a line per part: weight, protocol, target, options
//!                 30 ntp 10.0.0.3:123
//!   shares.rs     dns dns ntp dns dns dns ntp ...        slots: weights without their common divisor, interleaved
//!   template.rs   flow i has slot i mod slots: its part writes its requests and checks its replies
//! ```
//! A flow has one protocol, because it has one target. So shares are those of flows: at a given rate, all flows send
//! equally often; in a closed loop, each flow is as fast as its server.

mod file;
mod shares;
mod template;

pub use template::{MixLoad, MixTemplate};

use udpath_load::Engine;
use udpath_load::plan::{Mode, Transport};

use crate::registry::any_server;
use crate::{OptionSpec, ProtocolEntry};

/// `--mix`.
const MIX: OptionSpec = OptionSpec {
    name: "mix",
    value: Some("FILE"),
    repeatable: false,
    secret: false,
    help: "parts of the load, one per line: WEIGHT PROTOCOL ADDR:PORT and the protocol's options",
};

/// Engines of a mix: each of its parts must support them all.
const ENGINES: &[Engine] = &Engine::ALL;

/// The row of the registry.
pub static ENTRY: ProtocolEntry = ProtocolEntry {
    name: "mix",
    summary: "sends requests of several protocols to their servers, by weight",
    transports: &[Transport::Udp],
    modes: &[Mode::Rr],
    engines: ENGINES,
    size: 1,
    serve_options: &[],
    load_options: &[MIX],
    start: None,
    server_for: any_server,
    load: |run, options| Ok(Box::new(MixLoad::from_options(run, options)?)),
};
