//! Workers on in-memory links.

mod bed;
mod following;
mod neighbours;
mod serving;
mod shutdown;
mod socket_threads;
mod sockets;
mod support;
