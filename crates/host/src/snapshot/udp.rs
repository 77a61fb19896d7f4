//! UDP counters and memory.

use serde::{Deserialize, Serialize};

/// UDP of one network namespace. UDP-Lite is left out: it is not used by servers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Udp {
    /// Over IPv4.
    pub v4: Option<UdpCounters>,
    /// Over IPv6.
    pub v6: Option<UdpCounters>,
    /// The memory of all UDP sockets.
    pub memory: Option<UdpMemory>,
}

/// Counters of one family, as the kernel names them (RFC 4113 and its own).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdpCounters {
    /// Datagrams delivered to applications.
    pub in_datagrams: u64,
    /// Datagrams for a port without a socket.
    pub no_ports: u64,
    /// Datagrams not delivered for any other reason; includes the three kinds of errors below.
    pub in_errors: u64,
    /// Datagrams sent.
    pub out_datagrams: u64,
    /// Not delivered: the socket's receive buffer was full.
    pub rcvbuf_errors: u64,
    /// Not sent: no memory, or a full device queue.
    pub sndbuf_errors: u64,
    /// Not delivered: wrong checksum. From 3.10 on.
    pub in_csum_errors: Option<u64>,
    /// Multicast that no socket on the port had joined. From 4.0 on.
    pub ignored_multi: Option<u64>,
    /// Not delivered: the memory of all UDP sockets was exhausted (`net.ipv4.udp_mem`). From 5.11 on; before, included
    /// in `rcvbuf_errors`.
    pub mem_errors: Option<u64>,
}

impl UdpCounters {
    /// The increase since an earlier snapshot of the same boot and namespace; 0 where a counter went down, as after the
    /// namespace was recreated.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let both =
            |now: Option<u64>, then: Option<u64>| now.zip(then).map(|(now, then)| now.saturating_sub(then));
        Self {
            in_datagrams: self.in_datagrams.saturating_sub(earlier.in_datagrams),
            no_ports: self.no_ports.saturating_sub(earlier.no_ports),
            in_errors: self.in_errors.saturating_sub(earlier.in_errors),
            out_datagrams: self.out_datagrams.saturating_sub(earlier.out_datagrams),
            rcvbuf_errors: self.rcvbuf_errors.saturating_sub(earlier.rcvbuf_errors),
            sndbuf_errors: self.sndbuf_errors.saturating_sub(earlier.sndbuf_errors),
            in_csum_errors: both(self.in_csum_errors, earlier.in_csum_errors),
            ignored_multi: both(self.ignored_multi, earlier.ignored_multi),
            mem_errors: both(self.mem_errors, earlier.mem_errors),
        }
    }
}

/// The memory of all UDP sockets of the machine, in pages of the kernel (4 KiB on x86 and most arm64).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdpMemory {
    /// In use, in all namespaces. Imprecise by some pages per CPU.
    pub used: u64,
    /// Its limits (`net.ipv4.udp_mem`); they are machine-wide, and not visible from a namespace.
    pub limits: Option<UdpMemoryLimits>,
}

/// Limits of the memory of all UDP sockets, in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdpMemoryLimits {
    /// Below this, the kernel does not limit socket memory.
    pub min: u64,
    /// Above this, it does, until usage falls to `min`.
    pub pressure: u64,
    /// Above this, datagrams are dropped even if the socket's buffer has room.
    pub max: u64,
}
