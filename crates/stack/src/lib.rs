//! The user-space UDP datapath: what the kernel does between a NIC's queue and a socket, as a library.
//!
//! - [`wire`]: Ethernet, VLAN, IPv4, IPv6 and UDP, read and written in place; checksums.
//! - [`ring`]: bursts from one worker to another. [`wake`]: sleep without losing a wake-up.
//! - [`epoch`]: tables that are read without a lock and replaced meanwhile.
//! - [`tables`]: interfaces, local addresses, neighbours and routes, mirrored from the kernel into such tables.
//! - [`socket`]: where datagrams wait for their reader: two queues, memory accounted in bulk.

pub mod counters;
pub mod epoch;
pub mod frame;
pub mod groups;
pub mod handler;
pub mod mesh;
pub mod port;
mod primitive;
pub mod ring;
pub mod socket;
pub mod steering;
pub mod tables;
pub mod wake;
pub mod wire;
pub mod worker;
