//! DNS (RFC 1034, 1035): an authoritative server for zones from master files, and a load that asks like a resolver.
//!
//! ```text
//! master files ─▸ zone.rs: records.rs ─▸ index.rs: every answer composed once
//!                                           │
//! datagram ─▸ wire.rs: query, name.rs ─▸ answer.rs: find, copy, add OPT ─▸ limit.rs: how often? ─▸ reply
//!                │                          └ cookie.rs: whether the client forges its address
//!                └ no query: rejected.rs
//! SIGHUP ───▸ reload.rs: a new index, swapped in while workers answer
//! ```
//! Signed zones are served as they are loaded: index/denial.rs proves what does not exist. What is not served: signing,
//! transfers, updates, notifications.

mod answer;
mod cookie;
mod index;
mod limit;
mod name;
mod records;
mod rejected;
mod reload;
mod service;
mod template;
mod wire;
mod zone;

pub use cookie::SecretError;
pub use reload::LoadError;
pub use service::{Dns, DnsConfig, start};
pub use template::{DnsLoad, DnsTemplate, MAX_QUERY};
pub use zone::ZoneError;

use udpath_load::Engine;
use udpath_load::plan::{Mode, Transport};

use crate::{OptionError, OptionSpec, Options, ProtocolEntry, ServerOption, ServerValue, StartError};

/// `--zone`.
const ZONE: OptionSpec = OptionSpec {
    name: "zone",
    value: Some("[NAME=]FILE"),
    repeatable: true,
    secret: false,
    help: "master file (RFC 1035) of a zone to serve, and the zone's name if the file does not say it; SIGHUP loads all again",
};
/// `--strict`.
const STRICT: OptionSpec = OptionSpec {
    name: "strict",
    value: None,
    repeatable: false,
    secret: false,
    help: "do not start with a fault in a zone's file; without it, the record or zone with the fault is left out",
};
/// `--responses-per-second`.
const RESPONSES_PER_SECOND: OptionSpec = OptionSpec {
    name: "responses-per-second",
    value: Some("N"),
    repeatable: false,
    secret: false,
    help: "how often a network (IPv4 /24, IPv6 /56) gets the same answer over UDP, per second; or off [default: 200]",
};
/// `--version-text`.
const VERSION_TEXT: OptionSpec = OptionSpec {
    name: "version-text",
    value: Some("TEXT"),
    repeatable: false,
    secret: false,
    help: "what version.bind (class CHAOS) says [default: udpath]",
};
/// `--cookie-secret`.
const COOKIE_SECRET: OptionSpec = OptionSpec {
    name: "cookie-secret",
    value: Some("FILE"),
    repeatable: false,
    secret: false,
    help: "secret of DNS cookies, 32 hexadecimal digits; a second line is still accepted [default: random]",
};
/// The row of the registry.
pub static ENTRY: ProtocolEntry = ProtocolEntry {
    name: "dns",
    summary: "answers DNS queries with authority from master files",
    transports: &[Transport::Udp, Transport::Tcp],
    modes: &[Mode::Rr],
    engines: &Engine::ALL,
    size: MAX_QUERY,
    serve_options: &[ZONE, STRICT, RESPONSES_PER_SECOND, VERSION_TEXT, COOKIE_SECRET],
    load_options: template::OPTIONS,
    start: Some(|config, tcp, options| {
        let files = DnsConfig::from_options(options)?;
        let dns = Dns::load(&files).map_err(|error| invalid(options, &error))?;
        Ok::<_, StartError>(start(config, tcp, dns, &files)?)
    }),
    server_for: |load| {
        let zone = template::zone_for(load)?;
        // A load asks as many resolvers of many networks do.
        Ok(vec![
            ServerOption { spec: &ZONE, value: ServerValue::FileWith(zone) },
            ServerOption { spec: &RESPONSES_PER_SECOND, value: ServerValue::Text(service::NO_LIMIT) },
        ])
    },
    load: |run, options| Ok(Box::new(DnsLoad::from_options(run, options)?)),
};

/// A file that cannot be loaded, as the fault of the option that named it.
fn invalid(options: &Options, error: &LoadError) -> OptionError {
    let option = if matches!(error, LoadError::Zone(_)) { ZONE } else { COOKIE_SECRET };
    let files: Vec<String> = options.paths(&option).map(|file| file.display().to_string()).collect();
    OptionError::Invalid { option: option.name, value: files.join(" "), reason: error.to_string() }
}
