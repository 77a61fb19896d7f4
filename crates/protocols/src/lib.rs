//! The protocols that udpath supports, each as a load template (the client), most also as a service (the server).
//!
//! [`PROTOCOLS`] is the only list of them: the command lines of `serve` and `load`, their help and completions, and
//! `boost` read it. To add a protocol: write `src/NAME.rs` with its `ENTRY` and options, `src/NAME/service.rs` and
//! `src/NAME/template.rs`; declare the module and add its line to the table below; test it.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open their own files"))]

pub mod dns;
pub mod echo;
mod misfits;
pub mod mix;
pub mod ntp;
mod options;
pub mod radius;
mod registry;
pub mod replay;
mod said;
pub mod sink;
pub mod snmp;

pub use options::{OptionError, OptionSpec, Options};
pub use registry::{
    Load, ProtocolEntry, ServerOption, ServerValue, Start, StartError, find, with_mode, with_server,
};

/// Every protocol, in the order of help and completions.
pub static PROTOCOLS: &[&ProtocolEntry] = &[
    &echo::ENTRY, //
    &sink::ENTRY,
    &ntp::ENTRY,
    &dns::ENTRY,
    &radius::ENTRY,
    &snmp::ENTRY,
    &replay::ENTRY,
    &mix::ENTRY,
];
