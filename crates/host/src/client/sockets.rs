//! UDP sockets as sock_diag lists them.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use udpath_netlink::{Error, SockDiag, diag};

/// A UDP socket. Neither sock_diag nor procfs reports its options: they are read through a duplicate of its descriptor,
/// and only for the sockets requested (see [`look_closer`](crate::process::look_closer)).
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Socket {
    /// Bound address.
    pub local: SocketAddr,
    /// Peer address, if connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<SocketAddr>,
    /// The interface it is bound to, by its index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<u32>,
    /// Its inode, which descriptors name. 0: a kernel socket (tunnels, WireGuard), or one that was just closed.
    pub inode: u32,
    /// Its cookie, unique since boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cookie: Option<u64>,
    /// The user who created it.
    pub uid: u32,
    /// IPv6 only (`IPV6_V6ONLY`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v6only: Option<bool>,
    /// Bytes waiting to be received, by the kernel's accounting (whole buffers, not payload).
    pub receive_queue: u32,
    /// Bytes waiting to be sent.
    pub send_queue: u32,
    /// Its buffers; `None` if read from `/proc/net/udp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<SocketMemory>,
    /// Datagrams dropped at this socket since it was opened, for any reason. Wraps at 32 bits.
    pub drops: u32,
    /// Processes that have it open. Empty if there are none or they are not visible.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<Owner>,
    /// Its group, as an index into the list of groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<usize>,
    /// The options its program set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<SocketOptions>,
}

/// Socket options set by a program (socket(7), udp(7)).
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SocketOptions {
    /// `SO_REUSEPORT`: shares the datagrams of its port with the other sockets that set it.
    pub reuseport: bool,
    /// `SO_REUSEADDR`: of several on one port, the one bound last gets everything.
    pub reuseaddr: bool,
    /// `SO_INCOMING_CPU`: prefers its group's datagrams that arrive on this CPU. For a connected socket: the CPU of the
    /// last datagram.
    pub incoming_cpu: Option<u32>,
    /// `SO_INCOMING_NAPI_ID`: the NAPI instance that delivered its last datagram.
    pub napi: Option<u32>,
    /// `SO_BUSY_POLL`, microseconds; 0: off.
    pub busy_poll_us: u32,
    /// `SO_PREFER_BUSY_POLL`.
    pub prefer_busy_poll: bool,
    /// Timestamps it requests: `SO_TIMESTAMP`, `SO_TIMESTAMPNS`, `SO_TIMESTAMPING`. A single socket that requests them
    /// makes the kernel stamp every packet on the machine.
    pub timestamps: Vec<String>,
    /// `UDP_GRO`: receives several datagrams as one.
    pub gro: bool,
    /// `UDP_SEGMENT`: segment size in bytes for what it sends.
    pub segment: Option<u16>,
    /// `UDP_ENCAP_*` of linux/udp.h: the kernel handles the tunnel's traffic.
    pub encapsulation: Option<u32>,
    /// The program set the receive buffer size, so `net.core.rmem_default` does not apply.
    pub receive_buffer_set: bool,
    /// `SO_ZEROCOPY`: sends without copying.
    pub zero_copy: bool,
}

impl SocketOptions {
    /// The options that are set, in a few words each; empty if none are.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let on = |is: bool, word: &str| is.then(|| word.to_owned());
        let fixed = [
            on(self.reuseport, "shares its port (SO_REUSEPORT)"),
            on(self.reuseaddr, "SO_REUSEADDR"),
            self.incoming_cpu.map(|cpu| format!("incoming CPU {cpu}")),
            (self.busy_poll_us > 0).then(|| format!("busy poll {} us", self.busy_poll_us)),
            on(self.prefer_busy_poll, "prefers busy poll"),
            on(self.gro, "UDP_GRO"),
            self.segment.map(|bytes| format!("UDP_SEGMENT {bytes}")),
            self.encapsulation.map(|kind| format!("UDP_ENCAP {kind}")),
            on(self.receive_buffer_set, "receive buffer set by its program"),
            on(self.zero_copy, "SO_ZEROCOPY"),
        ];
        fixed.into_iter().flatten().chain(self.timestamps.iter().cloned()).collect()
    }
}

/// A socket's buffers, in bytes of the kernel's accounting (`linux/sock_diag.h`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SocketMemory {
    /// Receive buffer size: twice the `SO_RCVBUF` value.
    pub receive_buffer: u32,
    /// Send buffer size.
    pub send_buffer: u32,
    /// Reserved from the memory of all UDP sockets, not yet used.
    pub reserved: u32,
    /// Used by options and filters.
    pub options: u32,
    /// Queued while a reader held the socket's lock.
    pub backlog: u32,
}

/// Share of its send buffer from which on a socket has no room. A server that waits in its send call is at the limit.
/// Lower: a busy server, whose packets wait for the device. Higher: one of a few large replies is not found.
const NO_ROOM: f64 = 0.9;

impl SocketMemory {
    /// Is there no room in the send buffer for what a server sends next, if this much waits?
    #[must_use]
    pub fn has_no_room(&self, send_queue: u32) -> bool {
        self.send_buffer > 0 && f64::from(send_queue) >= NO_ROOM * f64::from(self.send_buffer)
    }
}

/// A process's descriptor of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Owner {
    /// The process.
    pub pid: u32,
    /// Its descriptor number there.
    pub fd: u32,
}

/// Reads all bound UDP sockets, of both families.
pub(super) fn udp_sockets(diag: &mut SockDiag) -> Result<Vec<Socket>, Error> {
    diag.udp_sockets(socket)
}

fn socket(is: diag::UdpSocket) -> Socket {
    Socket {
        local: is.local,
        peer: is.peer,
        interface: is.interface,
        inode: is.inode,
        cookie: is.cookie,
        uid: is.uid,
        v6only: is.v6only,
        receive_queue: is.receive_queue,
        send_queue: is.send_queue,
        memory: is.memory.map(|memory| SocketMemory {
            receive_buffer: memory.receive_buffer,
            send_buffer: memory.send_buffer,
            reserved: memory.reserved,
            options: memory.options,
            backlog: memory.backlog,
        }),
        drops: is.drops,
        owners: Vec::new(),
        group: None,
        options: None,
    }
}
