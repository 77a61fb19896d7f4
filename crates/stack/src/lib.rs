//! The user-space UDP datapath: what the kernel does between a NIC's queue and a socket, as a library.
//!
//! - [`wire`]: Ethernet, VLAN, IPv4, IPv6 and UDP, read and written in place; checksums.

pub mod wire;
