//! A flow's headers, built once: per frame only lengths, checksums and changed fields are written.
//!
//! The template keeps two sums: of the IPv4 header, and of pseudo header and UDP header, both without the lengths. A
//! field that changes is subtracted and its new value added (RFC 1624), so a frame costs a copy of its headers and
//! the sum of its payload, and not even that if the sender keeps the payload's [`Sum`] up to date.

use super::build::Flow;
use super::checksum::Sum;
use super::ethernet;
use super::words::words;
use super::{Addresses, Headers, UdpChecksum, Unfit, ipv4, ipv6, set16, udp, vlan};

/// Length of the longest headers, bytes: two tags and IPv6.
const MAX_LEN: usize = ethernet::LEN + vlan::MAX * vlan::LEN + ipv6::LEN + udp::LEN;

/// The headers of one flow's datagrams, complete except for lengths and checksums.
#[derive(Debug, Clone)]
pub struct Template {
    /// The headers; ports, lengths and checksums are overwritten in each frame.
    bytes: [u8; MAX_LEN],
    /// Their contents, without payload.
    headers: Headers,
    /// The IPv4 header's sum without its length.
    ip: Sum,
    /// The sum of pseudo header and UDP header without their lengths.
    udp: Sum,
}

impl Template {
    /// The headers of `flow`.
    #[must_use]
    pub fn new(flow: &Flow) -> Self {
        let mut bytes = [0; MAX_LEN];
        let headers = flow.headers();
        flow.write(&mut bytes, &headers, 0);
        let ip = match flow.addresses {
            // Everything but the length.
            Addresses::V4 { source, destination } => {
                flow.ipv4(source, destination, 0).sum().minus(Sum::of_u16(ipv4::LEN as u16))
            }
            Addresses::V6 { .. } => Sum::ZERO,
        };
        let ports = Sum::of_u16(flow.source_port).plus(Sum::of_u16(flow.destination_port));
        Self { bytes, headers, ip, udp: flow.addresses.pseudo_header(0).plus(ports) }
    }

    /// The headers of the next frame, except for its payload.
    #[must_use]
    pub const fn headers(&self) -> &Headers {
        &self.headers
    }

    /// Offset of the payload, bytes.
    #[must_use]
    #[inline]
    pub const fn payload_offset(&self) -> usize {
        self.headers.payload_offset()
    }

    /// Changes the source port.
    #[inline]
    pub fn set_source_port(&mut self, port: u16) {
        self.udp = self.udp.minus(Sum::of_u16(self.headers.source_port)).plus(Sum::of_u16(port));
        self.headers.source_port = port;
    }

    /// Changes the destination port.
    #[inline]
    pub fn set_destination_port(&mut self, port: u16) {
        self.udp = self.udp.minus(Sum::of_u16(self.headers.destination_port)).plus(Sum::of_u16(port));
        self.headers.destination_port = port;
    }

    /// Changes both addresses.
    ///
    /// # Errors
    /// [`Unfit::Families`] if they are of the other IP version; then nothing was changed.
    #[inline]
    pub fn set_addresses(&mut self, addresses: Addresses) -> Result<(), Unfit> {
        if addresses.is_ipv4() != self.headers.is_ipv4() {
            return Err(Unfit::Families);
        }
        let (old, new) = (self.headers.addresses_sum(), addresses.sum());
        self.udp = self.udp.minus(old).plus(new);
        match addresses {
            Addresses::V4 { source, destination } => {
                self.ip = self.ip.minus(old).plus(new);
                self.set(self.headers.l4() - 8, &source.octets());
                self.set(self.headers.l4() - 4, &destination.octets());
            }
            Addresses::V6 { source, destination } => {
                self.set(self.headers.l4() - 32, &source.octets());
                self.set(self.headers.l4() - 16, &destination.octets());
            }
        }
        self.headers.source_ip = words(addresses.source());
        self.headers.destination_ip = words(addresses.destination());
        Ok(())
    }

    /// Writes the headers for a payload that is already in place in `frame`, at
    /// [`payload_offset`](Self::payload_offset).
    ///
    /// # Errors
    /// [`Unfit`] if the payload does not fit `frame` or a datagram; then nothing was written.
    #[inline]
    pub fn emit(
        &self,
        frame: &mut [u8],
        payload_len: usize,
        udp_checksum: UdpChecksum,
    ) -> Result<Headers, Unfit> {
        let headers = self.headers.resized(payload_len, frame.len())?;
        let field = match udp_checksum {
            UdpChecksum::Computed => self.checksum(&headers, Sum::of(headers.payload(frame))),
            UdpChecksum::Offloaded => headers.udp_field(udp_checksum, || Sum::ZERO),
        };
        self.write(frame, headers, field)
    }

    /// As [`emit`](Self::emit), for a payload with a known sum: the same for all frames, or updated with
    /// [`Sum::minus`] and [`Sum::plus`] when a number in it changes.
    ///
    /// # Errors
    /// As [`emit`](Self::emit).
    #[inline]
    pub fn emit_summed(&self, frame: &mut [u8], payload_len: usize, payload: Sum) -> Result<Headers, Unfit> {
        let headers = self.headers.resized(payload_len, frame.len())?;
        let field = self.checksum(&headers, payload);
        self.write(frame, headers, field)
    }

    /// Writes headers and payload.
    ///
    /// # Errors
    /// As [`emit`](Self::emit).
    #[inline]
    pub fn emit_payload(
        &self,
        frame: &mut [u8],
        payload: &[u8],
        udp_checksum: UdpChecksum,
    ) -> Result<Headers, Unfit> {
        let headers = self.headers.resized(payload.len(), frame.len())?;
        headers.payload_mut(frame).copy_from_slice(payload);
        self.emit(frame, payload.len(), udp_checksum)
    }

    #[inline]
    fn checksum(&self, headers: &Headers, payload: Sum) -> u16 {
        let len = Sum::of_u16(headers.udp_len());
        self.udp.plus(len).plus(len).plus(payload).udp_checksum()
    }

    /// Copies the headers and fills in the fields specific to this frame.
    #[inline]
    fn write(&self, frame: &mut [u8], headers: Headers, udp_field: u16) -> Result<Headers, Unfit> {
        // Most frames have one of these lengths, and a copy of constant length is a few instructions.
        const V4: usize = ethernet::LEN + ipv4::LEN + udp::LEN;
        const V6: usize = ethernet::LEN + ipv6::LEN + udp::LEN;
        match headers.payload_offset() {
            V4 => copy::<V4>(frame, &self.bytes),
            V6 => copy::<V6>(frame, &self.bytes),
            len => frame.iter_mut().zip(&self.bytes).take(len).for_each(|(to, from)| *to = *from),
        }
        let no_room = Unfit::NoRoom { frame_len: headers.frame_end(), room: frame.len() };
        let packet = frame.get_mut(headers.l3()..).ok_or(no_room)?;
        let datagram = if headers.is_ipv4() {
            let (header, datagram) = packet.split_first_chunk_mut::<{ ipv4::LEN }>().ok_or(no_room)?;
            set16(header, 2, headers.ipv4_len());
            set16(header, 10, self.ip.plus(Sum::of_u16(headers.ipv4_len())).checksum());
            datagram
        } else {
            let (header, datagram) = packet.split_first_chunk_mut::<{ ipv6::LEN }>().ok_or(no_room)?;
            set16(header, 4, headers.udp_len());
            datagram
        };
        let header = datagram.first_chunk_mut::<{ udp::LEN }>().ok_or(no_room)?;
        // Ports change most often, so they are not part of the copy: it would stall on the port just written.
        set16(header, 0, headers.source_port);
        set16(header, 2, headers.destination_port);
        set16(header, 4, headers.udp_len());
        set16(header, 6, udp_field);
        Ok(headers)
    }

    #[inline]
    fn set(&mut self, at: usize, value: &[u8]) {
        if let Some(field) = self.bytes.get_mut(at..at + value.len()) {
            field.copy_from_slice(value);
        }
    }
}

#[inline(always)]
fn copy<const LEN: usize>(frame: &mut [u8], headers: &[u8; MAX_LEN]) {
    if let (Some(to), Some(from)) = (frame.first_chunk_mut::<LEN>(), headers.first_chunk::<LEN>()) {
        *to = *from;
    }
}
