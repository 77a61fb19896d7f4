//! Sockets: where a datagram waits for the thread that reads it.
//!
//! - [`queue`]: many workers put datagrams in, one reader takes them out; two queues, so that they rarely meet.
//! - [`memory`]: the bytes a socket, and all sockets together, may hold.

pub mod memory;
pub mod queue;
