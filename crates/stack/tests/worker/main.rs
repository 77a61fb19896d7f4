//! Workers on in-memory links.

mod following;
mod serving;
mod shutdown;
mod sockets;
mod support;
