//! Turning a request's frame round, so that it is the reply's: the payload is in place already.
//!
//! ```text
//! | MACs swapped | VLAN tags as they came | IP: addresses swapped, the rest new | UDP: ports swapped | payload
//! ```
//! The fields that are new are what the kernel would put into a reply of a socket with default options:
//!
//! | field | value | why |
//! |---|---|---|
//! | TTL, hop limit | [`HOPS`] | the default of the kernel; the request's would tell a peer nothing and may be 1 |
//! | TOS, traffic class | 0 | a socket's default. ECN above all must not be reflected: its marks belong to one direction |
//! | IPv4 flags | DF | path MTU discovery is on by default (`IP_PMTUDISC_WANT`), and nothing here fragments |
//! | IPv4 identification | 0 | a packet that cannot be fragmented needs none (RFC 6864, 4.1). The kernel counts one up per pair of addresses for unconnected sockets (`ip_select_ident`), which would be shared state here and tells others how much is sent |
//! | IPv6 flow label | the request's | stable per flow, as RFC 6437 asks, without a hash per packet; the kernel with `net.ipv6.flowlabel_reflect` |
//! | VLAN tags | the request's, priority included | the way back is the way here |
//!
//! Replies below 60 bytes are not padded: NICs and their drivers do that.

use super::checksum::Sum;
use super::{Addresses, HOPS, Headers, UdpChecksum, Unfit, be16, ethernet, ipv4, ipv6, set16, udp};

/// Makes `frame`, which holds a request and, where its payload was, `payload_len` bytes of the reply's payload, the
/// reply. What is returned describes it; it is [`Headers::frame_end`] bytes long.
///
/// # Errors
/// [`Unfit`] if the payload is longer than the frame's buffer or than a datagram can be; nothing was written then.
#[inline]
pub fn turn(
    frame: &mut [u8],
    request: &Headers,
    payload_len: usize,
    udp_checksum: UdpChecksum,
) -> Result<Headers, Unfit> {
    let reply = turned(request).resized(payload_len, frame.len())?;
    write(frame, &reply, |header, payload| {
        reply.udp_field(udp_checksum, || {
            let [a, b, c, d, e, f, ..] = *header;
            Sum::of(&[a, b, c, d, e, f]).plus(Sum::of(payload))
        })
    })
}

/// As [`turn`], for a service that answers with the very payload of the request (echo). Addresses and ports change
/// places and the sum does not see it, so the request's UDP checksum stays: it costs nothing, and covers the payload
/// from the client and back to it. A request without gets a checksum like any other reply.
///
/// The payload must be as it came, or else the reply's checksum is wrong.
///
/// # Errors
/// [`Unfit`] if `frame` is not the one that `request` describes; nothing was written then.
#[inline]
pub fn turn_unchanged(frame: &mut [u8], request: &Headers) -> Result<Headers, Unfit> {
    let reply = turned(request).resized(request.payload_len(), frame.len())?;
    let old =
        frame.get(request.l4()..).and_then(<[u8]>::first_chunk::<{ udp::LEN }>).map_or(0, |h| be16(h, 6));
    if old == 0 {
        return turn(frame, request, request.payload_len(), UdpChecksum::Computed);
    }
    write(frame, &reply, |_, _| old)
}

#[inline]
fn turned(request: &Headers) -> Headers {
    Headers {
        addresses: request.addresses.turned(),
        source_port: request.destination_port,
        destination_port: request.source_port,
        ..*request
    }
}

/// Writes the headers of `reply` over those of its request. `checksum` gives the UDP checksum for header (the field
/// itself not yet written) and payload.
#[inline]
fn write(
    frame: &mut [u8],
    reply: &Headers,
    checksum: impl FnOnce(&[u8; udp::LEN], &[u8]) -> u16,
) -> Result<Headers, Unfit> {
    let no_room = Unfit::NoRoom { frame_len: reply.frame_end(), room: frame.len() };
    // Both are in the frame, or it would not have been resized.
    let (link, _) = frame.split_first_chunk_mut::<{ ethernet::LEN }>().ok_or(no_room)?;
    let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = *link;
    link[..12].copy_from_slice(&[g, h, i, j, k, l, a, b, c, d, e, f]);

    let packet = frame.get_mut(reply.l3()..reply.frame_end()).ok_or(no_room)?;
    let datagram = match reply.addresses {
        Addresses::V4 { source, destination } => {
            let (header, datagram) = packet.split_first_chunk_mut::<{ ipv4::LEN }>().ok_or(no_room)?;
            let repr = ipv4::Repr {
                source,
                destination,
                protocol: udp::PROTOCOL,
                ttl: HOPS,
                tos: 0,
                identification: 0,
                dont_fragment: true,
                payload_len: reply.udp_len(),
            };
            repr.emit(header);
            datagram
        }
        Addresses::V6 { source, destination } => {
            let (header, datagram) = packet.split_first_chunk_mut::<{ ipv6::LEN }>().ok_or(no_room)?;
            let [_, a, b, c, ..] = *header;
            let repr = ipv6::Repr {
                source,
                destination,
                next_header: udp::PROTOCOL,
                hop_limit: HOPS,
                traffic_class: 0,
                flow_label: u32::from_be_bytes([0, a, b, c]),
                payload_len: reply.udp_len(),
            };
            repr.emit(header);
            datagram
        }
    };
    let (header, payload) = datagram.split_first_chunk_mut::<{ udp::LEN }>().ok_or(no_room)?;
    set16(header, 0, reply.source_port);
    set16(header, 2, reply.destination_port);
    set16(header, 4, reply.udp_len());
    let checksum = checksum(header, payload);
    set16(header, 6, checksum);
    Ok(*reply)
}
