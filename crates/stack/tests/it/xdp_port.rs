//! AF_XDP ports on veth pairs, with kernel sockets at the other end. Needs root.

mod bulk;
mod hash;
mod probe;
mod removal;
mod sockets;
mod support;
mod sys;
mod traffic;
