//! Many machines: their loads, and what their captures have in common ([`machines`]).
//!
//! Loads: a caller announces a plan over NATS, and agents carry out its segments together.
//!
//! ```text
//!   caller (udpath load --fleet)                    NATS                     agent (udpath agent), on each machine
//!   announce: the order, to all          ──▶ udpath.FLEET.agents ──▶         free, and within its limits? then an offer
//!   offers, until the fleet is complete  ◀── udpath.FLEET.run.RUN ◀──
//!   how far is each one's clock ahead?   ◀─▶ udpath.FLEET.agent.NAME         clock.rs: the exchange with the least delay
//!   prepare: segment, start, clock       ◀─▶                                 acknowledged; a thread opens the flows and waits for the start
//!   alive, once per second, to all       ──▶                                 otherwise the agent is free again
//!   a beat per second and agent          ◀──                                 counts, and latency of the last second
//!   the results, acknowledged            ◀─▶                                 kept and sent again until the caller has it
//!   merge
//! ```
//! - [`caller`] and [`agent`] are ordinary loops over a [`Link`], or in tests over a bus that loses messages
//!   (`faults.rs`). Only `link.rs` knows NATS: its client needs an asynchronous runtime, which runs in one thread there
//!   and nowhere else.
//! - An agent decides by its own [`Limits`] what it sends and where: nothing in an order can raise them. Who may send
//!   orders is decided by the NATS server (credentials, nkeys, TLS).
//! - A connection that is lost stops nothing: the load ends at its own time, and results wait for the next connection.
//!   A caller that dies while the connection holds ends its load.
//! - Messages may be lost or come twice (`message.rs`); those of another version are refused with a sentence.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open their own files"))]

pub mod agent;
pub mod caller;
mod clock;
#[cfg(test)]
mod faults;
mod limits;
mod link;
pub mod machines;
mod message;

pub use clock::Offset;
pub use limits::{Allowed, Limits, Refusal};
pub use link::{Access, Link, LinkError};
pub use message::{Order, announced, delivered};

/// Whether `name` can be an agent's: that of a host or of a node of Kubernetes. 1 to 253 letters, digits, `-` and `_`,
/// in parts separated by single dots.
#[must_use]
pub fn is_name(name: &str) -> bool {
    (1..=253).contains(&name.len())
        && name.split('.').all(|part| !part.is_empty() && part.bytes().all(is_plain))
}

/// Whether `name` can be a fleet's: one token of a NATS subject, 1 to 64 letters, digits, `-` and `_`.
#[must_use]
pub fn is_token(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(is_plain)
}

const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

/// The subject of a fleet's agents, or of a run.
fn subject(fleet: &str, to: &str) -> String {
    format!("udpath.{fleet}.{to}")
}

/// The subject of one agent. Dots separate the tokens of a subject, and wildcards stand for whole tokens: those of a
/// name become colons, which no name has, so that a name is always one token and no two names share one.
fn agent_subject(fleet: &str, agent: &str) -> String {
    subject(fleet, &format!("agent.{}", agent.replace('.', ":")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_nodes_are_names_and_one_token() {
        for name in ["node1", "ip-10-0-0-1.eu-west-1.compute.internal", "a_B.9", &"x".repeat(253)] {
            assert!(is_name(name), "{name}");
        }
        for name in [
            "",
            ".",
            "..",
            "a.",
            ".a",
            "a..b",
            "a b",
            "a*",
            ">",
            "a/b",
            "a:b",
            "a\nb",
            "\u{e4}",
            &"x".repeat(254),
        ] {
            assert!(!is_name(name), "{name}");
        }
        assert_eq!(agent_subject("lab", "node.example.net"), "udpath.lab.agent.node:example:net");
        assert!(!is_token("a.b") && !is_token("") && !is_token(&"x".repeat(65)) && is_token("0123abcd"));
    }

    proptest! {
        #[test]
        fn a_name_is_one_token_that_no_other_name_has(one in "[a-zA-Z0-9_.:*> -]{1,12}", other in "[a-zA-Z0-9_.-]{1,12}") {
            if is_name(&one) {
                let subject = agent_subject("f", &one);
                prop_assert_eq!(subject.split('.').count(), 4);
                prop_assert!(!subject.contains(['*', '>', ' ']));
                if is_name(&other) && one != other {
                    prop_assert_ne!(subject, agent_subject("f", &other));
                }
            }
        }
    }
}
