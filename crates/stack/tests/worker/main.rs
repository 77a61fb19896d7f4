//! Workers over links within the process.

mod ending;
mod following;
mod serving;
mod sockets;
mod support;
