//! Workers over links within the process.

mod following;
mod serving;
mod sockets;
mod support;
