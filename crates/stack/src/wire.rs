//! Wire formats: Ethernet II, VLAN tags, IPv4, IPv6 and UDP, read and written in place. No allocation, no panic whatever
//! the bytes, no unsafe code.
//!
//! Four ways to the same bytes:
//!
//! ```text
//! one header at a time   ethernet, vlan, ipv4, ipv6, udp, each with
//!                          View   checks the lengths once, then reads and writes fields where they lie
//!                          Repr   what a header says, checked; parse(view), emit(..)
//! a whole datagram       Packet::parse(frame) -> Headers or Refusal       one pass, for the fast path
//!                          Headers::verify, fill_checksums                checksums of the frame they describe
//!                          reply::in_place, echo_in_place                    the request's frame becomes the reply's
//! a flow                 flow_of(frame)                                  of headers alone, whatever the addresses
//! a new datagram         Template::new(flow), emit(frame, ..)             headers made once, a few fields per frame
//! ```
//!
//! What the fast path takes:
//! ```text
//! | Ethernet | 0 to 2 VLAN tags | IPv4, no options, no fragment | UDP | payload | what is beyond UDP's length |
//!                               | IPv6, no extension headers    |
//! 0          14                 l3                              l4    payload_offset                  frame_end
//! ```
//! Everything else is a [`Refusal`], by name. Whether the frame is for this machine (its MAC address, its IP addresses,
//! broadcasts of its subnets) is for the tables to say, not for this module.

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
pub use flow::flow_of;
pub use headers::Headers;
pub use packet::Packet;
pub use refusal::Refusal;
pub use template::Template;
pub use unfit::Unfit;
pub(crate) use words::{Words, words};

/// Who computes the UDP checksum of a frame that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UdpChecksum {
    /// This machine, before the frame is handed over.
    #[default]
    Computed,
    /// The NIC: the field gets the pseudo header's sum, and the NIC adds the rest from the UDP header on and
    /// complements. It must be asked to: `XDP_TXMD_FLAGS_CHECKSUM` with start [`Headers::l4`] and offset 6.
    Offloaded,
}

/// TTL and hop limit of what is sent: the kernel's default (`net.ipv4.ip_default_ttl`, `net.ipv6.conf.*.hop_limit`).
/// Lower, far peers are not reached; higher, a routing loop lives longer.
pub const DEFAULT_TTL: u8 = 64;

/// The 16-bit number at `at`, which is constant at every call: no check remains.
#[inline(always)]
fn be16<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Writes a 16-bit number at `at`, which is constant at every call.
#[inline(always)]
fn set16<const N: usize>(bytes: &mut [u8; N], at: usize, value: u16) {
    [bytes[at], bytes[at + 1]] = value.to_be_bytes();
}
