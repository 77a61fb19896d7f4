//! Where the CPU time of a UDP service goes.
//!
//! ```text
//!  perf                 samples               profile
//!  an event and a ring  the same chain at     contexts, classes, locks, processes, stacks;
//!  for each CPU    ──▸  the same place once ─▸ per CPU, beside the kernel's own accounting;
//!                            ▲                per datagram
//!                symbols, context, classes
//! ```
//! - [`perf`]: the kernel's sampling; needs no external program and no kernel debug files.
//! - [`recorder`]: records an interval, with what is needed to resolve addresses later.
//! - [`samples`]: aggregated as they arrive, in bounded memory.
//! - [`counts`]: hardware counter values between samples, if there are counters.
//! - [`symbols`]: addresses to names: the kernel, its modules, BPF programs, programs and their libraries.
//! - [`context`]: on whose behalf a CPU worked: hard IRQ, softirq, system call, other kernel, user, guest, idle.
//! - [`classes`]: the kind of work, by the call chain; the rules are data.
//! - [`trace`]: locks, drops, softirqs and delays, counted by BPF programs on tracepoints.
//! - [`folded`]: reads stacks of other tools, classified by the same rules; and writes a profile's stacks for those
//!   tools.
//! - [`mod@profile`]: the result, plain and serialisable. [`mod@measure`]: measures this machine and returns the
//!   result.
//! - [`facts`]: sockets and packet sockets during the interval.
//! - [`difference`]: two results compared, per datagram.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open their own files"))]

pub mod classes;
pub mod context;
pub mod counts;
pub mod difference;
pub mod facts;
pub mod folded;
pub mod measure;
pub mod perf;
pub mod profile;
pub mod recorder;
pub mod samples;
pub mod symbols;
pub mod trace;

#[cfg(test)]
#[path = "../tests/built/mod.rs"]
mod built;
// The profiles in tests/built refer to this crate by its external name.
#[cfg(test)]
extern crate self as udpath_profile;

pub use measure::measure;
pub use profile::Profile;
