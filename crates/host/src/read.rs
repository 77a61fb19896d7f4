//! Turns a source into a snapshot: one reader per part, `read(source, missing) -> part`. Readers never fail: they list
//! what they cannot read.

pub mod actors;
pub mod cpus;
pub mod interfaces;
pub mod irqs;
pub mod kernel;
pub mod limits;
mod links;
pub mod machine;
pub mod netfilter;
pub mod packet_sockets;
pub mod processes;
mod queue_irqs;
pub(crate) mod queues;
pub mod sockets;
pub mod softnet;
pub mod steering;
pub mod sysctls;
pub(crate) mod text;
pub mod udp;

pub use text::Malformed;

#[cfg(test)]
mod tests;
