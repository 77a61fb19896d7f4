//! Invariants of every parser for any input, one function each.
//!
//! ```text
//! fuzz/fuzz_targets/NAME.rs  --\
//!                               >--  NAME(data)     panics when something does not hold
//! tests/replay.rs  ------------/
//! fuzz/seeds/NAME/             inputs to begin with; what the fuzzer once found is added there as found-*
//! ```
//! The same function runs under the fuzzer (`make fuzz`) and in `cargo test`, there with the seeds, with random bytes
//! and with damaged seeds. A new parser gets a function here, a line in [`BODIES`], a target and a seed.

#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

mod archive;
mod capture;
mod cpu_set;
mod cpu_times;
mod dns;
mod dns_reply;
mod fleet;
mod host;
mod host_text;
mod ntp;
mod profile;
mod protocols;
mod radius;
mod receive;
mod report;
mod service_files;
mod service_text;
mod settings;
mod snmp;
mod steering;
mod wire;

pub use archive::archive;
pub use capture::capture;
pub use cpu_set::cpu_set;
pub use cpu_times::cpu_times;
pub use dns::dns_query;
pub use dns_reply::dns_reply;
pub use fleet::{fleet_json, fleet_message};
pub use host::{host_answers, host_packet_sockets};
pub use host_text::host_text;
pub use ntp::{ntp_reply, ntp_request};
pub use profile::{perf_records, profile_text};
pub use protocols::{echo_reply, sink_report};
pub use radius::{radius_files, radius_reply, radius_request};
pub use receive::receive;
pub use report::{report_json, report_values};
pub use service_files::service_files;
pub use service_text::service_text;
pub use settings::{journal, settings};
pub use snmp::{snmp_oid, snmp_reply};
pub use steering::{steering, tables_json};
pub use wire::{wire_build, wire_parse, wire_reply};

/// One of the functions.
pub type Body = fn(&[u8]);

/// Every function with its name, which is also the name of its target and of its seeds' folder.
pub const BODIES: [(&str, Body); 34] = [
    ("archive", archive),
    ("capture", capture),
    ("cpu_set", cpu_set),
    ("cpu_times", cpu_times),
    ("dns_query", dns_query),
    ("dns_reply", dns_reply),
    ("echo_reply", echo_reply),
    ("fleet_json", fleet_json),
    ("fleet_message", fleet_message),
    ("host_answers", host_answers),
    ("host_packet_sockets", host_packet_sockets),
    ("host_text", host_text),
    ("journal", journal),
    ("ntp_reply", ntp_reply),
    ("ntp_request", ntp_request),
    ("perf_records", perf_records),
    ("profile_text", profile_text),
    ("radius_files", radius_files),
    ("radius_reply", radius_reply),
    ("radius_request", radius_request),
    ("receive", receive),
    ("report_json", report_json),
    ("report_values", report_values),
    ("service_files", service_files),
    ("service_text", service_text),
    ("settings", settings),
    ("sink_report", sink_report),
    ("snmp_oid", snmp_oid),
    ("snmp_reply", snmp_reply),
    ("steering", steering),
    ("tables_json", tables_json),
    ("wire_build", wire_build),
    ("wire_parse", wire_parse),
    ("wire_reply", wire_reply),
];

/// An error's text goes to a terminal: not empty, bounded, and without control characters.
fn presentable(error: &dyn std::fmt::Display, input: usize) {
    let text = error.to_string();
    assert!(!text.is_empty() && text.len() <= 512 + 8 * input, "{} bytes: {text}", text.len());
    assert!(!text.chars().any(char::is_control), "control characters: {text:?}");
}
