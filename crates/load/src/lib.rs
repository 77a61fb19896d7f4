//! A load generator: plan -> transmit -> record; every transaction is timed and judged.
//!
//! ```text
//!  plan.rs ──────────▶ transmit ───────────────▶ record ─────────▶ result.rs
//!  what, where, when   socket: sendmmsg, GSO     every reply        LoadResult,
//!  Schedule: pure      kernel: BPF closed loop   judged and timed   plain, mergeable
//!       ▲                    xdp: AF_XDP ports
//!       │                    ▲
//!       │ search.rs          │ template.rs: what a protocol's requests and replies look like
//!       └ --find-max         └ (written in the crate `protocols`)
//! ```
//! - A **plan** defines what is sent and when, from a seed; it does not depend on how sending
//!   proceeds.
//! - An **engine** carries it out. It may be late, but it may not move the plan's intended times. The engines in user
//!   space share one loop (`transmit.rs`); each implements only how requests are sent and replies received.
//! - **record** keeps three times of every transaction apart (intended, sent, answered), so delay inside the
//!   generator is neither hidden nor blamed on the server. It also collects evidence of whether the generator itself
//!   was the limit, which a result states first.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open their own files"))]

mod clock;
pub mod cpu;
mod elsewhere;
pub mod ends;
mod error;
mod flows;
pub mod kernel;
pub mod origin;
pub mod plan;
mod progress;
pub mod record;
pub mod result;
mod run;
pub mod search;
mod socket;
pub mod start;
pub mod template;
mod threads;
mod transmit;
mod xdp;

pub use error::Error;
pub use progress::Progress;
pub use run::{Engine, run, settle, unreported};
