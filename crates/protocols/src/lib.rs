//! The protocols that udpath supports, each as a service (the server) and as a load template (the client).
//!
//! [`PROTOCOLS`] is the only list of them: the command lines of `serve` and `load`, their help and completions, and
//! `boost` read it. To add a protocol: write `src/NAME.rs` with its `ENTRY` and options, `src/NAME/service.rs` and
//! `src/NAME/template.rs`; declare the module and add its line to the table below; test it.

pub mod dns;
pub mod echo;
pub mod ntp;
mod options;
pub mod radius;
mod registry;
pub mod sink;

pub use options::{OptionError, OptionSpec, Options};
pub use registry::{Load, ProtocolEntry, StartError, find, with_mode};

/// Every protocol, in the order of help and completions.
pub static PROTOCOLS: &[&ProtocolEntry] = &[
    &echo::ENTRY, //
    &sink::ENTRY,
    &ntp::ENTRY,
    &dns::ENTRY,
    &radius::ENTRY,
];
