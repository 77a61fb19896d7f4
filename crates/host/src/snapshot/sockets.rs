//! UDP sockets: where they are bound, what they hold and dropped, whose they are, and which share a port.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use udpath_steer::reuseport::By;

use super::processes::Process;
use crate::{Fact, Provenance};

/// The UDP sockets of one network namespace. Sockets that are not bound do not show, as they receive nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sockets {
    /// By port, address and inode.
    pub list: Vec<Socket>,
    /// Where the list is from.
    pub from: Option<Provenance>,
    /// The processes that have them, by number.
    pub processes: Vec<Process>,
    /// Sockets that share an address and port.
    pub groups: Vec<ReuseportGroup>,
}

impl Sockets {
    /// The process of that number, if it has a UDP socket.
    #[must_use]
    pub fn process(&self, pid: u32) -> Option<&Process> {
        self.processes.binary_search_by_key(&pid, |process| process.pid).ok().map(|at| &self.processes[at])
    }
}

/// A UDP socket. Its options are told neither by sock_diag nor by procfs: they are read through a duplicate of its
/// descriptor, and of those sockets alone that were asked for (see [`look_closer`](crate::process::look_closer)).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Socket {
    /// Where it is bound.
    pub local: SocketAddr,
    /// Whom it is connected to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<SocketAddr>,
    /// The interface it is bound to, by its index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<u32>,
    /// Its inode, which descriptors name. 0: the kernel's own (tunnels, WireGuard), or closed at this moment.
    pub inode: u32,
    /// Its cookie: no other socket of this boot has or had the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cookie: Option<u64>,
    /// The user who made it.
    pub uid: u32,
    /// Of IPv6: takes no IPv4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v6only: Option<bool>,
    /// Bytes that wait to be received, by the kernel's accounting (whole buffers, not payload).
    pub receive_queue: u32,
    /// Bytes that wait to be sent.
    pub send_queue: u32,
    /// Its buffers; none where `/proc/net/udp` had to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<SocketMemory>,
    /// Datagrams dropped at it since it was opened, for whatever reason. Wraps at 32 bits.
    pub drops: u32,
    /// Who has it open. Empty where that is nobody, or not to be seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<Owner>,
    /// Its group, as an index into the list of groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<usize>,
    /// What its program has set of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<SocketOptions>,
}

/// What a program has set of a socket (socket(7), udp(7)).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SocketOptions {
    /// `SO_REUSEPORT`: shares the datagrams of its port with others that have it.
    pub reuseport: bool,
    /// `SO_REUSEADDR`: of several on one port, the one bound last gets all.
    pub reuseaddr: bool,
    /// `SO_INCOMING_CPU`: of its group's datagrams those that arrive on this CPU. Of a connected socket it is the CPU of
    /// the last datagram.
    pub incoming_cpu: Option<u32>,
    /// `SO_INCOMING_NAPI_ID`: the NAPI instance that its last datagram came through.
    pub napi: Option<u32>,
    /// `SO_BUSY_POLL`, microseconds; 0: off.
    pub busy_poll_us: u32,
    /// `SO_PREFER_BUSY_POLL`.
    pub prefer_busy_poll: bool,
    /// Times it asks for: `SO_TIMESTAMP`, `SO_TIMESTAMPNS`, `SO_TIMESTAMPING`. One socket that does has every packet of the
    /// machine stamped.
    pub timestamps: Vec<String>,
    /// `UDP_GRO`: takes several datagrams as one.
    pub gro: bool,
    /// `UDP_SEGMENT`: bytes into which what it sends is cut.
    pub segment: Option<u16>,
    /// `UDP_ENCAP_*` of linux/udp.h: the kernel takes what a tunnel carries.
    pub encapsulation: Option<u32>,
    /// Its receive buffer's size was set by the program, and `net.core.rmem_default` does not count.
    pub receive_buffer_set: bool,
    /// `SO_ZEROCOPY`: sends without copying.
    pub zero_copy: bool,
}

impl SocketOptions {
    /// What is set, a word or a few each; nothing where nothing is.
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

/// A socket's buffers, bytes of the kernel's accounting (`linux/sock_diag.h`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SocketMemory {
    /// Its receive buffer's size: twice what `SO_RCVBUF` asked for.
    pub receive_buffer: u32,
    /// Its send buffer's size.
    pub send_buffer: u32,
    /// Reserved of the memory of all UDP sockets, and not used.
    pub reserved: u32,
    /// Taken by options and filters.
    pub options: u32,
    /// Waiting because a reader held the socket's lock.
    pub backlog: u32,
}

/// A process's hold on a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Owner {
    /// The process.
    pub pid: u32,
    /// The descriptor's number in it.
    pub fd: u32,
}

/// Sockets that share an address and port.
///
/// They were opened with `SO_REUSEPORT`, and share the datagrams; or with `SO_REUSEADDR` alone, and the last one bound
/// gets all of them. Which it is, is told by their options alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReuseportGroup {
    /// The address they share.
    pub address: IpAddr,
    /// The port they share.
    pub port: u16,
    /// The interface they are bound to.
    pub interface: Option<u32>,
    /// The user who made them: only sockets of one user form a group.
    pub uid: u32,
    /// The sockets as indices into the list, in the order in which they were made. That is the order in which they were
    /// bound, unless a program made several before it bound them.
    pub members: Vec<usize>,
    /// How a datagram finds its socket, of what udpath itself has set (its journal knows); the kernel tells
    /// nobody. `Hash`: no program chooses, so that SO_INCOMING_CPU does where sockets have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selection: Option<Fact<By>>,
}
