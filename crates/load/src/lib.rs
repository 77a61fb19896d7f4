//! A load generator that does not lie: plan -> transmit -> record.
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
//! - A **plan** says what is sent and when, from a seed; it never depends on how sending goes.
//! - An **engine** carries it out. It may be late; it may not move the plan's intended times.
//! - **record** keeps three clocks of every transaction apart (intended, sent, answered), so waiting inside the
//!   generator is never taken for the server's, and never hidden. It also collects the evidence for the verdict
//!   whether the generator itself was the limit, which is the first thing a result says.

pub mod cpu;
mod error;
mod flows;
pub mod kernel;
pub mod plan;
mod progress;
pub mod record;
pub mod result;
mod run;
pub mod search;
mod socket;
pub mod template;
mod threads;
mod transmit;
mod xdp;

pub use error::Error;
pub use progress::Progress;
pub use run::{Engine, run, settle, unreported};
