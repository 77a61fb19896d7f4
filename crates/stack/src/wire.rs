//! Wire formats: Ethernet II, VLAN tags, IPv4, IPv6 and UDP, read and written in place. No allocation, no unsafe
//! code, and no panic on any input.
//!
//! Four interfaces to the same bytes:
//!
//! ```text
//! one header at a time   ethernet, vlan, ipv4, ipv6, udp, each with
//!                          View   validates the lengths once, then reads and writes fields in place
//!                          Repr   the validated contents of a header; parse(view), emit(..)
//! a whole datagram       Packet::parse(frame) -> Headers or Refusal       one pass, for the fast path
//!                          Headers::verify, fill_checksums                checksums of the described frame
//!                          reply::in_place, echo_in_place                 the request's frame becomes the reply's
//! a captured payload     payload_of(frame)                                whole unicast datagrams, from and to any address
//! a flow                 flow_of(frame)                                   from the headers only, whatever the addresses
//! a new datagram         Template::new(flow), emit(frame, ..)             headers built once, a few fields per frame
//! ```
//!
//! What the fast path accepts:
//! ```text
//! | Ethernet | 0 to 2 VLAN tags | IPv4, no options, no fragment | UDP | payload | bytes beyond UDP's length   |
//!                               | IPv6, no extension headers    |
//! 0          14                 l3                              l4    payload_offset                  frame_end
//! ```
//! Everything else is a [`Refusal`], by name. Whether the frame is addressed to this host (its MAC address, its IP
//! addresses, broadcasts of its subnets) is decided by the tables, not by this module.

mod addresses;
mod build;
pub mod checksum;
pub mod ethernet;
mod flow;
mod headers;
pub mod ipv4;
pub mod ipv6;
mod packet;
mod refusal;
pub mod reply;
mod template;
pub mod udp;
mod unfit;
mod view;
pub mod vlan;
mod words;

pub use addresses::Addresses;
pub use build::{Flow, LinkHeader, Tags, build};
pub use ethernet::{EtherType, Mac};
pub use flow::{flow_of, payload_of};
pub use headers::Headers;
pub use packet::Packet;
pub use refusal::Refusal;
pub use template::Template;
pub use unfit::Unfit;
pub(crate) use words::{Words, words};

/// Who computes the UDP checksum of a transmitted frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UdpChecksum {
    /// The CPU, before the frame is handed over.
    #[default]
    Computed,
    /// The NIC: the field holds the pseudo header's sum, and the NIC adds the rest from the UDP header on and
    /// complements. It must be requested: `XDP_TXMD_FLAGS_CHECKSUM` with start [`Headers::l4`] and offset 6.
    Offloaded,
}

/// TTL and hop limit of transmitted packets: the kernel's default (`net.ipv4.ip_default_ttl`,
/// `net.ipv6.conf.*.hop_limit`). Lower: distant peers are not reached. Higher: a routing loop lives longer.
pub const DEFAULT_TTL: u8 = 64;

/// The 16-bit number at `at`; `at` is a constant in every call, so no bounds check remains.
#[inline(always)]
pub(crate) fn be16<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Writes a 16-bit number at `at`, a constant in every call.
#[inline(always)]
fn set16<const N: usize>(bytes: &mut [u8; N], at: usize, value: u16) {
    [bytes[at], bytes[at + 1]] = value.to_be_bytes();
}
