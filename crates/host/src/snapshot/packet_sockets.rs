//! Packet sockets and handlers, which receive packets before the protocols.

use serde::{Deserialize, Serialize};

/// Packet sockets and handlers. Each one that receives everything costs a clone per packet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketSockets {
    /// Packet sockets: /proc/net/packet.
    pub sockets: Vec<PacketSocket>,
    /// Handlers of packet types: /proc/net/ptype.
    pub handlers: Vec<PacketHandler>,
}

/// A packet socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketSocket {
    /// 3: with link-layer header (`SOCK_RAW`), 2: without (`SOCK_DGRAM`), 10: the obsolete type (`SOCK_PACKET`).
    pub kind: u32,
    /// The EtherType it receives; 3: everything; 0: nothing (it only sends).
    pub protocol: u16,
    /// The interface's index; 0: all.
    pub interface: u32,
    /// Whether it is receiving packets.
    pub running: bool,
    /// Bytes waiting for its reader.
    pub queued: u64,
    /// Its owner's user.
    pub user: u32,
    /// Its inode, as /proc/PID/fd shows it.
    pub inode: u64,
}

/// A handler of a packet type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketHandler {
    /// EtherType in hexadecimal (`0800`), or `ALL`.
    pub kind: String,
    /// The interface it is limited to.
    pub device: Option<String>,
    /// The kernel function.
    pub function: String,
}
