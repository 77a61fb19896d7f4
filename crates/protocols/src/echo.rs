//! Echo: the server returns each payload unchanged (RFC 862).

mod service;
mod template;

pub use service::{Echo, start};
pub use template::{EchoLoad, EchoTemplate, HEADER};

use udpath_load::Engine;
use udpath_load::plan::{Mode, Transport};

use crate::ProtocolEntry;
use crate::registry::any_server;

/// The row of the registry.
pub static ENTRY: ProtocolEntry = ProtocolEntry {
    name: "echo",
    summary: "returns each request's payload",
    transports: &[Transport::Udp, Transport::Tcp],
    modes: &[Mode::Rr],
    engines: &Engine::ALL,
    size: 100,
    serve_options: &[],
    load_options: &[],
    start: Some(|config, tcp, _| Ok(start(config, tcp)?)),
    server_for: any_server,
    load: |run, _| Ok(Box::new(EchoLoad::new(run))),
};
