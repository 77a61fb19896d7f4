//! From a source to the picture: one reader per part, `read(source, missing) -> part`. None fails: what it cannot read
//! it lists.

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
