//! Many machines: their loads, and what their captures have in common ([`machines`]).
//!
//! Loads: a caller announces a plan over NATS, and agents carry out its segments together.
//!
//! ```text
//!   caller (udpath load --fleet)                    NATS                     agent (udpath agent), on each machine
//!   announce: the order, to all          ──▶ udpath.FLEET.agents ──▶         within its limits? then an offer
//!   offers, until the fleet is complete  ◀── udpath.FLEET.run.RUN ◀──
//!   how far is each one's clock ahead?   ◀─▶ udpath.FLEET.agent.NAME         clock.rs: the exchange with the least delay
//!   prepare: segment, start, clock       ──▶                                 a thread opens the flows and waits for the start
//!   a beat per second and agent          ◀──                                 counts, and latency of the last second
//!   the results, acknowledged            ◀─▶                                 kept and sent again until the caller has it
//!   merge
//! ```
//! - [`caller`] and [`agent`] are ordinary loops over a [`Link`]. Only `link.rs` knows NATS: its client needs an asynchronous
//!   runtime, which runs in one thread there and nowhere else.
//! - An agent decides by its own [`Limits`] what it sends and where: nothing in an order can raise them. Who may send orders
//!   is decided by the NATS server (credentials, nkeys, TLS).
//! - A connection that is lost stops nothing: the load ends at its own time, and results wait for the next connection.

pub mod agent;
pub mod caller;
mod clock;
mod limits;
mod link;
pub mod machines;
mod message;

pub use clock::Offset;
pub use limits::{Allowed, Limits, Refusal};
pub use link::{Access, Link, LinkError};
pub use message::Order;

/// Whether `name` can be part of a NATS subject: 1 to 64 letters, digits, `-` and `_`.
#[must_use]
pub fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// The subject of a fleet's agents, of one agent, or of a run.
fn subject(fleet: &str, to: &str) -> String {
    format!("udpath.{fleet}.{to}")
}
