//! A UDP service runtime: one handler, every way to move datagrams.
pub mod service;
pub use service::{DropReason, Outcome, Reply, Request, Service};
