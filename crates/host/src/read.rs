//! From a source to the picture: one reader per part, `read(source, missing) -> part`. None fails: what it cannot read
//! it lists.

pub mod interfaces;
mod links;
mod queue_irqs;
mod queues;
pub mod steering;
pub mod taps;
pub(crate) mod text;

pub use text::Malformed;
