//! What the program decides about a frame, and how often it has decided so.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Words of a CPU's counters; a power of two, as the program masks with it.
pub(super) const WORDS: usize = 16;

macro_rules! outcomes {
    ($($(#[doc = $doc:literal])+ $variant:ident, $name:literal;)+) => {
        /// What happened to a frame, and why it was not taken. The first reason in this order.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Outcome {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Outcome {
            /// All of them, each at its index in the program's counters.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Its name in counters and reports: lower case, words joined by underscores.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

outcomes! {
    /// Redirected to the queue's socket.
    Taken, "taken";
    /// For another MAC address than the interface's own.
    OtherHost, "other_host";
    /// Broadcast or multicast, of the link or of IP.
    Group, "group";
    /// A tag of a VLAN that is not served here, or more than one tag.
    Vlan, "vlan";
    /// Neither IPv4 nor IPv6: ARP, LLDP.
    NotIp, "not_ip";
    /// Truncated, or with inconsistent lengths or version.
    Malformed, "malformed";
    /// IPv4 options.
    Options, "options";
    /// A fragment of a datagram.
    Fragment, "fragment";
    /// An IPv6 extension header.
    Extension, "extension";
    /// Another transport protocol: TCP, ICMP.
    NotUdp, "not_udp";
    /// To a port or address that is not bound here.
    OtherPort, "other_port";
    /// Handled only by the kernel: loopback, unspecified, reserved and IPv4-mapped addresses, a sender equal to the
    /// receiver, port 0, no checksum over IPv6.
    Special, "special";
    /// From an address that the kernel's source validation may reject: one of this host, a broadcast or network
    /// address, one that rp_filter rejects.
    Source, "source";
    /// Longer than the sockets' buffers.
    TooLong, "too_long";
    /// Would have been taken, but its queue has no socket.
    NoSocket, "no_socket";
    /// Would have been taken, but had no room in front for its hash: sent that way by another machine's XDP program.
    NoRoom, "no_room";
}

/// Number of frames by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcomes([u64; WORDS]);

impl Outcomes {
    /// A CPU's counters, as the program's map has them now.
    pub(super) fn read(words: &[AtomicU64]) -> Self {
        let mut counts = Self::default();
        for (count, word) in counts.0.iter_mut().zip(words) {
            *count = word.load(Relaxed);
        }
        counts
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (sum, count) in self.0.iter_mut().zip(other.0) {
            *sum += count;
        }
    }

    pub(super) fn subtract_taken(&mut self, frames: u64) {
        let taken = &mut self.0[Outcome::Taken as usize];
        *taken = taken.saturating_sub(frames);
    }

    /// The number of frames with this outcome.
    #[must_use]
    pub fn of(&self, outcome: Outcome) -> u64 {
        self.0[outcome as usize]
    }

    /// Every outcome with its number of frames.
    pub fn iter(&self) -> impl Iterator<Item = (Outcome, u64)> + '_ {
        Outcome::ALL.iter().map(|outcome| (*outcome, self.of(*outcome)))
    }

    /// Number of frames left to the kernel.
    #[must_use]
    pub fn passed(&self) -> u64 {
        self.iter().filter(|(outcome, _)| *outcome != Outcome::Taken).map(|(_, frames)| frames).sum()
    }
}
