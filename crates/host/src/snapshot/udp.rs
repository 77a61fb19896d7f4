//! What UDP counted, and what memory it has.

use serde::{Deserialize, Serialize};

/// UDP of one network namespace. UDP-Lite is left out: nobody serves over it.
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
    /// Datagrams for a port that nobody has.
    pub no_ports: u64,
    /// Datagrams not delivered for any other reason; counts the three kinds of errors below as well.
    pub in_errors: u64,
    /// Datagrams sent.
    pub out_datagrams: u64,
    /// Not delivered: the socket's receive buffer was full.
    pub rcvbuf_errors: u64,
    /// Not sent: no memory, or a full device queue.
    pub sndbuf_errors: u64,
    /// Not delivered: wrong checksum. From 3.10 on.
    pub in_csum_errors: Option<u64>,
    /// Multicast that no socket of the port had asked for. From 4.0 on.
    pub ignored_multi: Option<u64>,
    /// Not delivered: the memory of all UDP sockets was used up (`net.ipv4.udp_mem`). From 5.11 on; before, among
    /// `rcvbuf_errors`.
    pub mem_errors: Option<u64>,
}

impl UdpCounters {
    /// What was counted since an earlier snapshot of the same boot and namespace; 0 where a counter is lower than it
    /// was, as after the namespace was made anew.
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
    /// In use, of all namespaces. Rough by some pages for each CPU.
    pub used: u64,
    /// Its limits (`net.ipv4.udp_mem`); they are the machine's, and not seen from a namespace.
    pub limits: Option<UdpMemoryLimits>,
}

/// Limits of the memory of all UDP sockets, in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdpMemoryLimits {
    /// Up to here no socket is asked to hold back.
    pub min: u64,
    /// From here on they are, down to `min`.
    pub pressure: u64,
    /// From here on datagrams are dropped, whatever room a socket's buffer has.
    pub max: u64,
}
