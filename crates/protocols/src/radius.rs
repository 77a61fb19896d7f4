//! RADIUS (RFC 2865, 2866): the server accepts, rejects or challenges users from a file; the load asks like an access
//! server.
//!
//! ```text
//!  access server                                  serve radius
//!  Access-Request: user, hidden password ───────▸ whose secret?  clients.rs, by the longest prefix of the source address
//!    signed with the secret                       signed with it?  secret.rs
//!                                                 asked before?  duplicates.rs: the same reply again
//!  ◂─────── Access-Accept, -Reject, -Challenge ── may this user in?  users.rs, access.rs
//!  Accounting-Request, Status-Server ───────────▸ answered at once
//! ```
//! What a packet may claim is decided by the shared secret alone, so a packet without a valid signature gets no reply.
//! All digests are MD5, which is broken; RFC 3579's Message-Authenticator (HMAC-MD5) still resists forgery, which is
//! why it is required in requests and comes first in replies (Blast-RADIUS, CVE-2024-3596).

mod access;
mod attributes;
mod challenge;
mod clients;
mod dictionary;
mod duplicates;
mod items;
#[cfg(test)]
mod oracle;
mod packet;
mod secret;
mod service;
mod state;
mod template;
mod text;
mod users;

pub use clients::{Client, Clients};
pub use packet::{Code, Kind, MAX_LEN, Packet, PacketError, Writer};
pub use secret::Secret;
pub use service::{Radius, start};
pub use state::{RadiusFiles, RadiusState};
pub use template::{Auth, LoadConfig, RadiusLoad, RadiusTemplate};
pub use text::FileError;
pub use users::{User, Users, Verdict};

use udpath_load::Engine;
use udpath_load::plan::{Mode, Transport};

use crate::misfits::SKIP_INVALID;
use crate::{OptionSpec, ProtocolEntry};

/// The secret of the clients that are known without `--clients`, and of a load without `--secret`: that of the examples
/// which FreeRADIUS comes with.
const DEFAULT_SECRET: &str = "testing123";

/// `--clients`.
const CLIENTS: OptionSpec = OptionSpec {
    name: "clients",
    value: Some("FILE"),
    repeatable: false,
    secret: false,
    help: "who may ask, one `PREFIX SECRET [no-message-authenticator]` per line [default: this host, testing123]",
};
/// `--users`.
const USERS: OptionSpec = OptionSpec {
    name: "users",
    value: Some("FILE"),
    repeatable: false,
    secret: false,
    help: "users in the format of FreeRADIUS's `users` file [default: bob with password hello]",
};
/// `--secret`.
const SECRET: OptionSpec = OptionSpec {
    name: "secret",
    value: Some("SECRET"),
    repeatable: false,
    secret: true,
    help: "secret shared with the server; visible in the list of processes [default: testing123]",
};
/// `--secret-file`.
const SECRET_FILE: OptionSpec = OptionSpec {
    name: "secret-file",
    value: Some("FILE"),
    repeatable: false,
    secret: false,
    help: "file whose first line is the secret shared with the server",
};
/// `--method`.
const METHOD: OptionSpec = OptionSpec {
    name: "method",
    value: Some("METHOD"),
    repeatable: false,
    secret: false,
    help: "how users prove their password: pap or chap [default: pap]",
};
/// `--accounting`.
const ACCOUNTING: OptionSpec = OptionSpec {
    name: "accounting",
    value: None,
    repeatable: false,
    secret: false,
    help: "send Accounting-Requests, alternately Start and Stop, instead of Access-Requests",
};

/// The row of the registry.
pub static ENTRY: ProtocolEntry = ProtocolEntry {
    name: "radius",
    summary: "accepts, rejects or challenges users from a file, and acknowledges accounting",
    transports: &[Transport::Udp],
    modes: &[Mode::Rr],
    engines: &Engine::ALL,
    size: template::DEFAULT_SIZE,
    serve_options: &[CLIENTS, USERS],
    load_options: &[SECRET, SECRET_FILE, USERS, SKIP_INVALID, METHOD, ACCOUNTING],
    start: Some(|config, _tcp, options| {
        let state = RadiusState::open(RadiusFiles::from_options(options)?)?;
        Ok(start(config, &state)?)
    }),
    server_for: template::server_for,
    load: |run, options| Ok(Box::new(RadiusLoad::new(run, LoadConfig::from_options(options)?))),
};
