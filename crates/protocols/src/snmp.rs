//! SNMP (RFC 3411 to 3418): a load that asks an agent like a manager does, in versions 2c and 3. There is no service.
//!
//! ```text
//!  manager                                            agent
//!  version 3 only, before the run, to each target:
//!    an empty request ───────────────────────────────▸ Report: its engine ID          discovery, RFC 3414, 4
//!    an authenticated one ───────────────────────────▸ Report: its boots and time
//!  then:
//!    GET, GETNEXT or GETBULK of some OIDs, id n ─────▸ Response with id n: the values
//! ```
//! The request-id, and in version 3 also the msgID, is the transaction: a part of the sequence number, and a tag of run
//! and flow. Messages are composed and read without allocation.

mod answers;
mod ber;
mod discovery;
mod engine;
mod in_kernel;
mod list;
mod message;
mod oid;
mod options;
mod pdu;
mod template;
#[cfg(test)]
mod tests;
mod usm;

pub use oid::{Oid, OidError};
pub use options::{Asker, SnmpConfig};
pub use pdu::{Operation, Question};
pub use template::{SnmpLoad, SnmpTemplate};
pub use usm::{Auth, Hash, User};

use udpath_load::Engine;
use udpath_load::plan::{Mode, Transport};

use crate::registry::any_server;
use crate::{OptionSpec, ProtocolEntry};

/// Longest message sent or accepted, bytes: what an Ethernet frame carries in one fragment over IPv4. In version 3
/// agents learn of it (msgMaxSize) and return fewer variables. Longer: AF_XDP cannot receive the replies; shorter: a
/// GETBULK returns less.
pub const MAX_MESSAGE: usize = 1472;
/// What every agent accepts, bytes (RFC 3417, 3.2): the longest request unless the user allows for more.
const SMALLEST_MAXIMUM: usize = 484;

/// `--community`.
const COMMUNITY: OptionSpec = OptionSpec {
    name: "community",
    value: Some("NAME"),
    repeatable: false,
    secret: true,
    help: "community of version 2c [default: public]",
};
/// `--user`.
const USER: OptionSpec = OptionSpec {
    name: "user",
    value: Some("NAME"),
    repeatable: false,
    secret: false,
    help: "user of version 3, instead of a community",
};
/// `--auth`.
const AUTH: OptionSpec = OptionSpec {
    name: "auth",
    value: Some("HASH:PASSWORD"),
    repeatable: false,
    secret: true,
    help: "authenticate as --user, by sha, sha224, sha256, sha384 or sha512 [default: not authenticated]",
};
/// `--priv`.
const PRIV: OptionSpec = OptionSpec {
    name: "priv",
    value: Some("aes:PASSWORD"),
    repeatable: false,
    secret: true,
    help: "encrypt what --auth authenticates, by AES-128 [default: not encrypted]",
};
/// `--operation`.
const OPERATION: OptionSpec = OptionSpec {
    name: "operation",
    value: Some("OPERATION"),
    repeatable: false,
    secret: false,
    help: "get, getnext or getbulk, for lines of --oids without one [default: get]",
};
/// `--oids`.
const OIDS: OptionSpec = OptionSpec {
    name: "oids",
    value: Some("FILE"),
    repeatable: false,
    secret: false,
    help: "requests to send in turn: a line each, [OPERATION] OID... [default: sysUpTime.0]",
};
/// `--max-repetitions`.
const MAX_REPETITIONS: OptionSpec = OptionSpec {
    name: "max-repetitions",
    value: Some("N"),
    repeatable: false,
    secret: false,
    help: "rows that a getbulk asks for, 1 to 1000 [default: 10]",
};

/// The row of the registry.
pub static ENTRY: ProtocolEntry = ProtocolEntry {
    name: "snmp",
    summary: "asks an SNMP agent (a load only)",
    transports: &[Transport::Udp],
    modes: &[Mode::Rr],
    engines: &Engine::ALL,
    size: SMALLEST_MAXIMUM,
    serve_options: &[],
    load_options: &[COMMUNITY, USER, AUTH, PRIV, OPERATION, OIDS, MAX_REPETITIONS],
    start: None,
    server_for: any_server,
    load: |run, options| Ok(Box::new(SnmpLoad::new(run, SnmpConfig::from_options(options)?)?)),
};
