//! Where the CPU time of a UDP service goes.
//!
//! ```text
//!  perf                 samples               profile
//!  an event and a ring  the same chain at     contexts, classes, locks, processes, stacks;
//!  for each CPU    ──▸  the same place once ─▸ per CPU, beside the kernel's own accounting;
//!                            ▲                per datagram
//!                symbols, context, classes
//! ```
//! - [`perf`]: the kernel's sampling; no program is started and no file of the kernel's build is needed.
//! - [`recorder`]: an interval of it, with what is needed to name addresses later.
//! - [`samples`]: counted as they come; memory is bounded.
//! - [`counts`]: what hardware counters counted between samples, where there are any.
//! - [`symbols`]: addresses to names: the kernel, its modules, BPF programs, programs and their libraries.
//! - [`context`]: on whose behalf a CPU worked: hard IRQ, softirq, system call, other kernel, user, guest, idle.
//! - [`classes`]: which kind of work it was, by the call chain; the rules are data.
//! - [`trace`]: locks, drops, softirqs and delays, counted by programs on tracepoints.
//! - [`folded`]: stacks as other tools write them, by the same rules; and a profile's, for them.
//! - [`mod@profile`]: the result, plain and serialisable. [`mod@measure`]: from the machine to it.
//! - [`facts`]: sockets and packet sockets around the samples.
//! - [`difference`]: two results, per datagram.

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
// The profiles in tests/built name this crate as other crates do.
#[cfg(test)]
extern crate self as udpath_profile;

pub use measure::measure;
pub use profile::Profile;
