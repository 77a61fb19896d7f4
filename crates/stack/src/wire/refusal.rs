//! Why the fast path may not answer a frame: one word per reason, for drop counters and for the decision whether the
//! frame is passed to the kernel.

use std::fmt;

macro_rules! refusals {
    ($($(#[doc = $doc:literal])+ $variant:ident, $name:literal, $for_kernel:literal;)+) => {
        /// Why a frame is not a unicast UDP datagram that the fast path may answer.
        ///
        /// The order of the variants is the order of the checks: the first that fails names the frame.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Refusal {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Refusal {
            /// Every reason, at its own [`index`](Self::index).
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The reason's name in counters and reports: lower case, words separated by underscores.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// Whether the frame should be passed to the kernel rather than dropped.
            ///
            /// False exactly for frames that no receiver may accept: truncated, contradictory lengths or version, a
            /// wrong checksum, a group address as the source. Everything else is another protocol's frame or a matter
            /// of host policy, and the kernel has the code and the counters for it.
            #[must_use]
            pub const fn for_kernel(self) -> bool {
                match self {
                    $(Self::$variant => $for_kernel,)+
                }
            }
        }
    };
}

refusals! {
    /// The frame ends inside the Ethernet header or a VLAN tag.
    FrameShort, "frame_short", false;
    /// Sent to ff:ff:ff:ff:ff:ff, the link's broadcast address.
    LinkBroadcast, "link_broadcast", true;
    /// Sent to a link-layer group address (neighbour discovery, multicast).
    LinkMulticast, "link_multicast", true;
    /// The source MAC address is a group address: IEEE 802.3 forbids it, and a reply would reach the whole group.
    LinkSource, "link_source", false;
    /// More than two VLAN tags.
    VlanDepth, "vlan_depth", true;
    /// EtherType other than IPv4 and IPv6: ARP, LLDP, IEEE 802.3 length fields.
    NotIp, "not_ip", true;
    /// The IP version does not fit the EtherType.
    IpVersion, "ip_version", false;
    /// The frame ends within the IP header, or before the IP length.
    IpTruncated, "ip_truncated", false;
    /// IPv4 header length below 20 bytes, or total length below the header's.
    Ipv4Length, "ipv4_length", false;
    /// IPv4 options: the kernel may have to act on them.
    Ipv4Options, "ipv4_options", true;
    /// A fragment: more fragments follow, or the offset is not 0, or an IPv6 fragment header.
    Fragment, "fragment", true;
    /// An IPv6 jumbogram (RFC 2675): payload length 0 and a hop-by-hop header that has the real one.
    Ipv6Jumbogram, "ipv6_jumbogram", true;
    /// An IPv6 extension header precedes the transport header.
    Ipv6Extension, "ipv6_extension", true;
    /// UDP-Lite (RFC 3828): its length field covers the checksum, not the datagram.
    UdpLite, "udp_lite", true;
    /// Another transport: TCP, ICMP and so on.
    NotUdp, "not_udp", true;
    /// A source address that cannot be replied to: unspecified, loopback, multicast, broadcast, or IPv4-mapped in
    /// IPv6.
    SourceNotUnicast, "source_not_unicast", true;
    /// Sent to 255.255.255.255. Subnet broadcasts are known to the address tables only, not here.
    DestinationBroadcast, "destination_broadcast", true;
    /// Sent to a multicast address.
    DestinationMulticast, "destination_multicast", true;
    /// Sent to an address that is invalid on the wire: unspecified, loopback, IPv4-mapped in IPv6.
    DestinationNotUnicast, "destination_not_unicast", true;
    /// Source and destination have the same address: a forged packet that makes a host answer itself.
    SameAddress, "same_address", true;
    /// The IP payload ends inside the UDP header.
    UdpTruncated, "udp_truncated", false;
    /// UDP length 0, which only a jumbogram may have (RFC 2675).
    UdpLengthZero, "udp_length_zero", false;
    /// UDP length from 1 to 7: less than its own header.
    UdpLengthShort, "udp_length_short", false;
    /// UDP length beyond the IP payload.
    UdpLengthLong, "udp_length_long", false;
    /// Source port 0, which means "no reply wanted" (RFC 768), or destination port 0, which cannot be bound.
    PortZero, "port_zero", true;
    /// The IPv4 header checksum is wrong.
    Ipv4Checksum, "ipv4_checksum", false;
    /// UDP over IPv6 without a checksum (RFC 8200, 8.1). Only tunnel sockets request those from the kernel.
    UdpChecksumMissing, "udp_checksum_missing", true;
    /// The UDP checksum is wrong.
    UdpChecksum, "udp_checksum", false;
}

impl Refusal {
    /// The number of reasons: the length of an array of counters.
    pub const COUNT: usize = Self::ALL.len();

    /// The reason's position in [`ALL`](Self::ALL), below [`COUNT`](Self::COUNT).
    #[must_use]
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_index_and_name() {
        let mut names: Vec<_> = Refusal::ALL.iter().map(|refusal| refusal.name()).collect();
        for (index, refusal) in Refusal::ALL.iter().enumerate() {
            assert_eq!(refusal.index(), index);
            assert!(
                refusal.name().bytes().all(|c| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'_')),
                "{refusal}"
            );
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Refusal::COUNT);
    }
}
