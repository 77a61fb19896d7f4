//! Which queue, CPU and socket a packet goes to. Pure decisions: no I/O and no clock, so every answer can be tested
//! and printed before anything is changed.
//!
//! ```text
//! flow --toeplitz--> hash --rss--> queue --(irq)--> CPU --rps, rfs--> CPU --reuseport--> socket
//!                                                      flow_limit: is it admitted to that CPU's backlog?
//! transmit: CPU --xps--> transmit queue
//! ```
//!
//! - [`CpuSet`]: a set of CPU numbers, in the kernel's list form (`0-3,8`) and mask form (`ff,00000001`).
//! - [`Flow`]: the 5-tuple that every decision starts from.
//! - [`toeplitz`], [`rss`]: a network card's hash and indirection table. [`rules`]: flow rules that override them.
//!   [`drivers`]: the defaults of drivers.
//! - [`rps`], [`rfs`], [`flow_limit`]: the CPU that processes a packet, by the kernel's rules.
//! - [`reuseport`]: the socket of a group. [`xps`]: which CPUs transmit on which queue.
//! - [`predict`]: all of these for a given flow and given tables, each step with its reason; and in reverse, source
//!   ports that reach a wanted queue, CPU and socket.
//!
//! The rules have two users: prediction of the kernel's behaviour, and udpath's own datapath, which calls
//! [`rss::Rss::hash`], [`rps::steer`] and [`flow_limit::FlowLimit::drops`] for each packet.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open their own files"))]

mod backlog;
pub mod cpu_set;
pub mod drivers;
pub mod flow;
pub mod flow_limit;
pub mod hash;
pub mod predict;
pub mod reuseport;
pub mod rfs;
pub mod rps;
pub mod rss;
pub mod rules;
pub mod toeplitz;
pub mod xps;

pub use cpu_set::{CpuSet, CpuSetError};
pub use flow::{Addresses, Flow, FlowError};
