//! Turning a request's frame into the reply's, in place: the payload is there already.
//!
//! ```text
//! | MACs swapped | VLAN tags unchanged | IP: addresses swapped, the rest rewritten | UDP: ports swapped | payload
//! ```
//! The rewritten fields are what the kernel would put into a reply from a socket with default options:
//!
//! | field | value | why |
//! |---|---|---|
//! | TTL, hop limit | [`DEFAULT_TTL`] | the kernel's default; the request's is meaningless to the peer and may be 1 |
//! | TOS, traffic class | 0 | a socket's default. ECN in particular must not be reflected: its marks belong to one direction |
//! | IPv4 flags | DF | path MTU discovery is on by default (`IP_PMTUDISC_WANT`), and nothing here fragments |
//! | IPv4 identification | 0 | a packet that cannot be fragmented needs none (RFC 6864, 4.1). For unconnected sockets the kernel increments one per pair of addresses (`ip_select_ident`), which would be shared state here and reveals how much is sent |
//! | IPv6 flow label | the request's | stable per flow, as RFC 6437 requires, without a hash per packet; the kernel with `net.ipv6.flowlabel_reflect` |
//! | VLAN tags | the request's, priority included | the reply takes the same path back. For frames over AF_XDP the program has written the priority of replies into the tag (`take.bpf.c`) |
//!
//! Replies shorter than 60 bytes are not padded: NICs and their drivers do that.

use super::checksum::Sum;
use super::words::to_v4;
use super::{DEFAULT_TTL, Headers, UdpChecksum, Unfit, be16, ethernet, ipv4, ipv6, set16, udp};

/// Turns `frame`, which holds a request with `payload_len` bytes of reply payload in place of its own payload, into
/// the reply. Returns the reply's headers; its length is [`Headers::frame_end`].
///
/// # Errors
/// [`Unfit`] if the payload does not fit the frame's buffer or a datagram; then nothing was written.
#[inline(always)]
pub fn in_place(
    frame: &mut [u8],
    request: &Headers,
    payload_len: usize,
    udp_checksum: UdpChecksum,
) -> Result<Headers, Unfit> {
    let reply = reversed(request).resized(payload_len, frame.len())?;
    let field = reply.udp_field(udp_checksum, || Sum::of(reply.payload(frame)));
    write_headers(frame, &reply, field)?;
    Ok(reply)
}

/// As [`in_place`], for a service that answers with the unchanged payload of the request (echo). Swapping addresses
/// and ports does not change the sum, so the request's UDP checksum stays valid: it costs nothing, and covers the
/// payload from the client and back to it. A request without a checksum gets one, like any other reply.
///
/// The payload must be unchanged, or else the reply's checksum is wrong.
///
/// # Errors
/// [`Unfit`] if `frame` is not the one that `request` describes; then nothing was written.
#[inline(always)]
pub fn echo_in_place(frame: &mut [u8], request: &Headers) -> Result<Headers, Unfit> {
    let reply = reversed(request).resized(request.payload_len(), frame.len())?;
    let old =
        frame.get(request.l4()..).and_then(<[u8]>::first_chunk::<{ udp::LEN }>).map_or(0, |h| be16(h, 6));
    if old == 0 {
        return in_place(frame, request, request.payload_len(), UdpChecksum::Computed);
    }
    write_headers(frame, &reply, old)?;
    Ok(reply)
}

#[inline(always)]
fn reversed(request: &Headers) -> Headers {
    Headers {
        source_ip: request.destination_ip,
        destination_ip: request.source_ip,
        source_port: request.destination_port,
        destination_port: request.source_port,
        ..*request
    }
}

/// The part of an IPv4 header that is the same in all replies: version and header length, DF, TTL and protocol.
const IPV4_CONSTANT: Sum = Sum::of_u16(0x4500)
    .plus(Sum::of_u16(ipv4::DONT_FRAGMENT))
    .plus(Sum::of_u16((DEFAULT_TTL as u16) << 8 | udp::PROTOCOL as u16));

/// Overwrites the request's headers with those of `reply`.
///
/// The sums come from values, not from the header: reading back, in wide words, what was just written in narrow ones
/// stalls on store forwarding.
#[inline(always)]
fn write_headers(frame: &mut [u8], reply: &Headers, udp_field: u16) -> Result<(), Unfit> {
    let no_room = Unfit::NoRoom { frame_len: reply.frame_end(), room: frame.len() };
    // Within the frame, or `resized` would have failed.
    let (link, _) = frame.split_first_chunk_mut::<{ ethernet::LEN }>().ok_or(no_room)?;
    let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = *link;
    link[..12].copy_from_slice(&[g, h, i, j, k, l, a, b, c, d, e, f]);

    let packet = frame.get_mut(reply.l3()..).ok_or(no_room)?;
    let datagram = if reply.is_ipv4() {
        let (header, datagram) = packet.split_first_chunk_mut::<{ ipv4::LEN }>().ok_or(no_room)?;
        let checksum =
            IPV4_CONSTANT.plus(Sum::of_u16(reply.ipv4_len())).plus(reply.addresses_sum()).checksum();
        header[..2].copy_from_slice(&[0x45, 0]);
        set16(header, 2, reply.ipv4_len());
        header[4..10].copy_from_slice(&[
            0,
            0,
            (ipv4::DONT_FRAGMENT >> 8) as u8,
            0,
            DEFAULT_TTL,
            udp::PROTOCOL,
        ]);
        set16(header, 10, checksum);
        header[12..16].copy_from_slice(&to_v4(reply.source_ip).octets());
        header[16..].copy_from_slice(&to_v4(reply.destination_ip).octets());
        datagram
    } else {
        let (header, datagram) = packet.split_first_chunk_mut::<{ ipv6::LEN }>().ok_or(no_room)?;
        header[0] = 0x60;
        header[1] &= 0xf;
        set16(header, 4, reply.udp_len());
        header[6..8].copy_from_slice(&[udp::PROTOCOL, DEFAULT_TTL]);
        let ([a, b], [c, d]) = (reply.source_ip, reply.destination_ip);
        header[8..16].copy_from_slice(&a.to_ne_bytes());
        header[16..24].copy_from_slice(&b.to_ne_bytes());
        header[24..32].copy_from_slice(&c.to_ne_bytes());
        header[32..].copy_from_slice(&d.to_ne_bytes());
        datagram
    };
    let header = datagram.first_chunk_mut::<{ udp::LEN }>().ok_or(no_room)?;
    set16(header, 0, reply.source_port);
    set16(header, 2, reply.destination_port);
    set16(header, 4, reply.udp_len());
    set16(header, 6, udp_field);
    Ok(())
}
