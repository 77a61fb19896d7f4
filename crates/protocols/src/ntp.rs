//! NTP version 4 (RFC 5905): the server answers clients with the time of the kernel's clock; the load asks like a
//! client.
//!
//! ```text
//!  client                                          server
//!  T1 transmit ── mode 3 ─────────────────────────▸ T2: the kernel's receive time stamp
//!                                                   T3: read last, when the reply is written
//!  T4 ◂───────── mode 4: origin T1, receive T2, transmit T3
//!                           offset = ((T2 - T1) + (T3 - T4)) / 2
//! ```
//! The server keeps nothing of its clients but their rate. It answers mode 3 of versions 1 to 4 and nothing else:
//! control and private messages (modes 6 and 7), which made NTP servers known as amplifiers, least of all. A reply has
//! 48 bytes, as many as the shortest request.

mod clock;
mod packet;
mod service;
mod template;

pub use clock::{ClockState, ClockStatus};
pub use packet::{Header, PacketError, Query, ReferenceId, Timestamp};
pub use service::{Ntp, NtpConfig, start};
pub use template::{NtpLoad, NtpTemplate};

use udpath_load::Engine;
use udpath_load::plan::{Mode, Transport};

use crate::registry::any_server;
use crate::{OptionSpec, ProtocolEntry};

/// `--stratum`.
const STRATUM: OptionSpec = OptionSpec {
    name: "stratum",
    value: Some("N"),
    repeatable: false,
    secret: false,
    help: "stratum to announce, 1 to 15 [default: 10]",
};
/// `--local`.
const LOCAL: OptionSpec = OptionSpec {
    name: "local",
    value: None,
    repeatable: false,
    secret: false,
    help: "announce this host's clock as synchronized even if the kernel says that it is not",
};
/// `--rate-limit`.
const RATE_LIMIT: OptionSpec = OptionSpec {
    name: "rate-limit",
    value: Some("SECONDS"),
    repeatable: false,
    secret: false,
    help: "answer each client once per this many seconds on average [default: no limit]",
};
/// `--rate-burst`.
const RATE_BURST: OptionSpec = OptionSpec {
    name: "rate-burst",
    value: Some("N"),
    repeatable: false,
    secret: false,
    help: "requests of a client that --rate-limit answers at once [default: 8]",
};

/// The row of the registry.
pub static ENTRY: ProtocolEntry = ProtocolEntry {
    name: "ntp",
    summary: "answers NTP clients with the time of the kernel's clock",
    transports: &[Transport::Udp],
    modes: &[Mode::Rr],
    engines: &Engine::ALL,
    size: Header::LEN,
    serve_options: &[STRATUM, LOCAL, RATE_LIMIT, RATE_BURST],
    load_options: &[],
    start: Some(|config, _tcp, options| Ok(start(config, NtpConfig::from_options(options)?)?)),
    server_for: any_server,
    load: |run, _| Ok(Box::new(NtpLoad::new(run))),
};
