//! The parsed headers of one UDP datagram: offsets, addresses, checksums.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;

use super::checksum::Sum;
use super::words::{Words, to_v4, to_v6};
use super::{Addresses, Refusal, UdpChecksum, Unfit, ethernet, ipv4, set16, udp, vlan};

/// The headers of one UDP datagram, and their offsets in its frame.
///
/// A value describes the frame it was parsed from (or that was [built](super::build) or [turned into a
/// reply](super::reply) with it). Using it with another frame does not panic: out-of-bounds accesses are errors.
///
/// The addresses are kept as words, not as [`Addresses`]: an enum with fields at odd offsets is copied in other
/// widths than it was written in, and the CPU stalls on that at every hand-over. The words' sum is the addresses'
/// sum, in both IP versions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Headers {
    /// The source address, as in the frame; an IPv4 address is in the first word, the rest is 0.
    pub(super) source_ip: Words,
    /// The destination address.
    pub(super) destination_ip: Words,
    pub(super) source_port: u16,
    pub(super) destination_port: u16,
    pub(super) payload_len: u16,
    pub(super) l3: u8,
    pub(super) l4: u8,
}

impl Headers {
    /// The destination address, as in the frame: a key for tables.
    #[inline]
    pub(crate) const fn destination_words(&self) -> Words {
        self.destination_ip
    }

    /// The IP addresses.
    #[must_use]
    #[inline]
    pub const fn addresses(&self) -> Addresses {
        if self.is_ipv4() {
            Addresses::V4 { source: to_v4(self.source_ip), destination: to_v4(self.destination_ip) }
        } else {
            Addresses::V6 { source: to_v6(self.source_ip), destination: to_v6(self.destination_ip) }
        }
    }

    /// The source.
    #[must_use]
    #[inline]
    pub const fn source(&self) -> SocketAddr {
        SocketAddr::new(self.addresses().source(), self.source_port)
    }

    /// The destination.
    #[must_use]
    #[inline]
    pub const fn destination(&self) -> SocketAddr {
        SocketAddr::new(self.addresses().destination(), self.destination_port)
    }

    /// The source port; never 0 in parsed headers.
    #[must_use]
    #[inline]
    pub const fn source_port(&self) -> u16 {
        self.source_port
    }

    /// The destination port; never 0 in parsed headers.
    #[must_use]
    #[inline]
    pub const fn destination_port(&self) -> u16 {
        self.destination_port
    }

    /// Whether it is IPv4; IPv6 otherwise.
    #[must_use]
    #[inline]
    pub const fn is_ipv4(&self) -> bool {
        self.l4 - self.l3 == ipv4::LEN as u8
    }

    /// Number of VLAN tags, 0 to 2.
    #[must_use]
    #[inline]
    pub const fn tags(&self) -> usize {
        (self.l3 as usize - ethernet::LEN) / vlan::LEN
    }

    /// The maximum end of a frame with these tags, for a port that sends frames of up to `max_frame_len` bytes with
    /// the maximum number of tags.
    #[must_use]
    #[inline]
    pub(crate) const fn end_within(&self, max_frame_len: usize) -> usize {
        max_frame_len.saturating_sub((vlan::MAX - self.tags()) * vlan::LEN)
    }

    /// Offset of the IP header in the frame, bytes.
    #[must_use]
    #[inline]
    pub const fn l3(&self) -> usize {
        self.l3 as usize
    }

    /// Offset of the UDP header, bytes.
    #[must_use]
    #[inline]
    pub const fn l4(&self) -> usize {
        self.l4 as usize
    }

    /// Offset of the payload, bytes.
    #[must_use]
    #[inline]
    pub const fn payload_offset(&self) -> usize {
        self.l4 as usize + udp::LEN
    }

    /// Length of the payload, bytes.
    #[must_use]
    #[inline]
    pub const fn payload_len(&self) -> usize {
        self.payload_len as usize
    }

    /// End of the payload, and of the frame except for padding.
    #[must_use]
    #[inline]
    pub const fn frame_end(&self) -> usize {
        self.payload_offset() + self.payload_len()
    }

    /// The payload's range in the frame.
    #[must_use]
    #[inline]
    pub const fn payload_range(&self) -> Range<usize> {
        self.payload_offset()..self.frame_end()
    }

    /// The payload; empty if `frame` is too short to be the one described.
    #[must_use]
    #[inline]
    pub fn payload<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        frame.get(self.payload_range()).unwrap_or_default()
    }

    /// The payload, mutable; empty if `frame` is too short to be the one described.
    #[must_use]
    #[inline]
    pub fn payload_mut<'a>(&self, frame: &'a mut [u8]) -> &'a mut [u8] {
        frame.get_mut(self.payload_range()).unwrap_or_default()
    }

    /// Verifies the checksums of IPv4 and UDP.
    ///
    /// # Errors
    /// As [`verify_ip`](Self::verify_ip) and [`verify_udp`](Self::verify_udp).
    #[inline(always)]
    pub fn verify(&self, frame: &[u8]) -> Result<(), Refusal> {
        self.verify_ip(frame)?;
        self.verify_udp(frame)
    }

    /// Verifies the IPv4 header checksum; IPv6 has none.
    ///
    /// # Errors
    /// [`Refusal::Ipv4Checksum`]; [`Refusal::FrameShort`] if `frame` cannot be the one described.
    #[inline(always)]
    pub fn verify_ip(&self, frame: &[u8]) -> Result<(), Refusal> {
        if !self.is_ipv4() {
            return Ok(());
        }
        let Some(header) = frame.get(self.l3()..).and_then(<[u8]>::first_chunk::<{ ipv4::LEN }>) else {
            return Err(Refusal::FrameShort);
        };
        if Sum::of(header).is_intact() { Ok(()) } else { Err(Refusal::Ipv4Checksum) }
    }

    /// Verifies the UDP checksum over pseudo header, header and payload. Over IPv4 it may be absent (the field is 0).
    ///
    /// # Errors
    /// [`Refusal::UdpChecksum`]; [`Refusal::UdpChecksumMissing`] over IPv6; [`Refusal::FrameShort`] if `frame` cannot
    /// be the one described.
    #[inline(always)]
    pub fn verify_udp(&self, frame: &[u8]) -> Result<(), Refusal> {
        // The addresses directly precede the UDP header in both versions, so one pass sums both.
        let addresses_len = if self.is_ipv4() { 8 } else { 32 };
        let Some(covered) = frame.get(self.l4() - addresses_len..self.frame_end()) else {
            return Err(Refusal::FrameShort);
        };
        let field = covered.get(addresses_len + 6..).and_then(<[u8]>::first_chunk::<2>);
        if field == Some(&[0, 0]) {
            return if self.is_ipv4() { Ok(()) } else { Err(Refusal::UdpChecksumMissing) };
        }
        let sum =
            Sum::of(covered).plus(Sum::of_u16(u16::from(udp::PROTOCOL))).plus(Sum::of_u16(self.udp_len()));
        if sum.is_intact() { Ok(()) } else { Err(Refusal::UdpChecksum) }
    }

    /// As [`verify`](Self::verify), for an interface where some frames come from senders on this host that left the
    /// UDP checksum to a device (`CHECKSUM_PARTIAL`): the field then holds exactly the sum of the pseudo header, and
    /// there is nothing to verify.
    ///
    /// # Errors
    /// As [`verify`](Self::verify).
    #[inline(always)]
    pub fn verify_or_partial(&self, frame: &[u8]) -> Result<(), Refusal> {
        self.verify_ip(frame)?;
        let field = frame.get(self.l4() + 6..).and_then(<[u8]>::first_chunk::<2>);
        if field.is_some_and(|field| u16::from_be_bytes(*field) == self.pseudo_header().fold()) {
            return Ok(());
        }
        self.verify_udp(frame)
    }

    /// Computes and writes the checksums of IPv4 and UDP over the current contents of `frame`, for frames that were
    /// modified.
    ///
    /// # Errors
    /// [`Unfit::NoRoom`] if `frame` cannot be the one described.
    #[inline]
    pub fn fill_checksums(&self, frame: &mut [u8], udp_checksum: UdpChecksum) -> Result<(), Unfit> {
        let no_room = Unfit::NoRoom { frame_len: self.frame_end(), room: frame.len() };
        let packet = frame.get_mut(self.l3()..self.frame_end()).ok_or(no_room)?;
        let addresses_len = if self.is_ipv4() { 8 } else { 32 };
        if self.is_ipv4() {
            let header = packet.first_chunk_mut::<{ ipv4::LEN }>().ok_or(no_room)?;
            set16(header, 10, 0);
            let checksum = Sum::of(header).checksum();
            set16(header, 10, checksum);
        }
        let ip_len = self.l4() - self.l3();
        let (covered, field) = (ip_len - addresses_len, addresses_len + 6);
        let covered = packet.get_mut(covered..).ok_or(no_room)?;
        if let Some(field) = covered.get_mut(field..field + 2) {
            field.fill(0);
        }
        let numbers = Sum::of_u16(u16::from(udp::PROTOCOL)).plus(Sum::of_u16(self.udp_len()));
        let checksum = match udp_checksum {
            UdpChecksum::Computed => numbers.plus(Sum::of(covered)).udp_checksum(),
            UdpChecksum::Offloaded => {
                numbers.plus(Sum::of(covered.get(..addresses_len).unwrap_or_default())).fold()
            }
        };
        if let Some(field) = covered.get_mut(field..field + 2) {
            field.copy_from_slice(&checksum.to_be_bytes());
        }
        Ok(())
    }

    /// The length field of the UDP header.
    #[inline]
    pub(super) const fn udp_len(&self) -> u16 {
        self.payload_len + udp::LEN as u16
    }

    /// The total length field of the IPv4 header.
    #[inline]
    pub(super) const fn ipv4_len(&self) -> u16 {
        self.payload_len + (ipv4::LEN + udp::LEN) as u16
    }

    /// The value of the UDP checksum field, for a payload with this sum.
    #[inline(always)]
    pub(super) fn udp_field(&self, udp_checksum: UdpChecksum, payload: impl FnOnce() -> Sum) -> u16 {
        let pseudo = self.pseudo_header();
        match udp_checksum {
            UdpChecksum::Computed => {
                let ports = Sum::of_u16(self.source_port).plus(Sum::of_u16(self.destination_port));
                pseudo.plus(ports.plus(Sum::of_u16(self.udp_len()))).plus(payload()).udp_checksum()
            }
            UdpChecksum::Offloaded => pseudo.fold(),
        }
    }

    /// The contribution of both addresses to a checksum.
    #[inline(always)]
    pub(super) const fn addresses_sum(&self) -> Sum {
        let ([a, b], [c, d]) = (self.source_ip, self.destination_ip);
        Sum::of_words([a, b, c, d])
    }

    /// The sum of the pseudo header.
    #[inline(always)]
    pub(super) const fn pseudo_header(&self) -> Sum {
        let numbers = Sum::of_u16(udp::PROTOCOL as u16).plus(Sum::of_u16(self.udp_len()));
        self.addresses_sum().plus(numbers)
    }

    /// The same headers, for a payload of another length.
    #[inline(always)]
    pub(super) fn resized(self, payload_len: usize, room: usize) -> Result<Self, Unfit> {
        let most = self.max_payload();
        if payload_len > most {
            return Err(Unfit::TooLong { payload_len, most });
        }
        let resized = Self { payload_len: payload_len as u16, ..self };
        if resized.frame_end() > room {
            return Err(Unfit::NoRoom { frame_len: resized.frame_end(), room });
        }
        Ok(resized)
    }

    /// The maximum payload that the length fields of IP and UDP allow, bytes: 65,507 over IPv4, 65,527 over IPv6. The
    /// link's limit (its MTU) is smaller, and known to the port.
    #[must_use]
    #[inline]
    pub const fn max_payload(&self) -> usize {
        let ip = if self.is_ipv4() { ipv4::LEN } else { 0 };
        u16::MAX as usize - ip - udp::LEN
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Headers")
            .field("source", &self.source())
            .field("destination", &self.destination())
            .field("l3", &self.l3)
            .field("l4", &self.l4)
            .field("payload_len", &self.payload_len)
            .finish()
    }
}
