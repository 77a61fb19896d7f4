//! Replay: the load sends the UDP payloads of a capture, whatever their protocol.
//!
//! ```text
//!   capture.rs   pcap or pcapng ─▸ payloads to one port, in order
//!   template.rs  flow, seq ─▸ payload, with the number of the transaction where the protocol has its identifier (--id)
//! ```
//! Without `--id` nothing in a reply says which request it answers: then each flow waits for a reply before it sends
//! the next.

mod capture;
mod template;

pub use template::{ReplayLoad, ReplayTemplate};

use udpath_load::Engine;
use udpath_load::plan::{Mode, Transport};

use crate::registry::any_server;
use crate::{OptionSpec, ProtocolEntry};

/// `--pcap`.
const PCAP: OptionSpec = OptionSpec {
    name: "pcap",
    value: Some("FILE"),
    repeatable: false,
    secret: false,
    help: "capture to replay, pcap or pcapng",
};
/// `--port`.
const PORT: OptionSpec = OptionSpec {
    name: "port",
    value: Some("PORT"),
    repeatable: false,
    secret: false,
    help: "replay the datagrams to this port [default: the only one in the capture]",
};
/// `--id`.
const ID: OptionSpec = OptionSpec {
    name: "id",
    value: Some("OFFSET:WIDTH"),
    repeatable: false,
    secret: false,
    help: "place and bytes of the identifier in payload and reply, such as 0:2 for DNS: it is set for each request",
};

/// The row of the registry.
pub static ENTRY: ProtocolEntry = ProtocolEntry {
    name: "replay",
    summary: "sends the UDP payloads of a capture",
    transports: &[Transport::Udp],
    modes: &[Mode::Rr],
    engines: &Engine::ALL,
    size: 1,
    serve_options: &[],
    load_options: &[PCAP, PORT, ID],
    start: None,
    server_for: any_server,
    load: |run, options| Ok(Box::new(ReplayLoad::from_options(run, options)?)),
};
