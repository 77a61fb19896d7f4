//! AF_XDP ports on veth pairs, with kernel sockets at the other end. Needs root.

mod bulk;
mod going;
mod hash;
mod sockets;
mod support;
mod sys;
mod traffic;
mod trial;
