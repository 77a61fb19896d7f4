//! Where the packet of a frame begins, by its link type (tcpdump.org/linktypes.html).

use crate::wire::EtherType;

/// EtherTypes of what is within Ethernet in turn: sessions of PPPoE (RFC 2516), MPLS to one and to many (RFC 3032).
const PPPOE: u16 = 0x8864;
const MPLS: [u16; 2] = [0x8847, 0x8848];
/// Greater numbers in the place of an EtherType are one, and not a length (IEEE 802.3, 3.2.6).
const MAX_LENGTH: u16 = 1500;
/// LLC of SNAP, and no organisation: an EtherType follows (RFC 1042).
const SNAP: [u8; 6] = [0xaa, 0xaa, 3, 0, 0, 0];

/// What a link layer carries.
pub(super) struct Packet<'a> {
    /// Its protocol; 0: none that has an EtherType here.
    pub(super) ether_type: u16,
    pub(super) bytes: &'a [u8],
}

/// The protocols of IPv4 and IPv6 in PPP (RFC 1332, RFC 5072).
const PPP_IPV4: u16 = 0x21;
const PPP_IPV6: u16 = 0x57;
/// The attribute of nflog with the packet (`NFULA_PAYLOAD` of linux/netfilter/nfnetlink_log.h).
const NFLOG_PAYLOAD: u16 = 9;

/// The packet of a frame; `None`: not known where it is. What is cut short stays as short: it is no datagram either
/// way.
pub(super) fn packet(link: u32, bytes: &[u8]) -> Option<Packet<'_>> {
    Some(match link {
        // LINUX_SLL and LINUX_SLL2: the protocol is the last field of one and the first of the other.
        113 => behind(bytes, 16, field(bytes, 14)),
        276 => behind(bytes, 20, field(bytes, 0)),
        // NULL, LOOP and ENC: an address family, whose numbers differ between systems; ENC has the association and
        // flags behind it.
        0 | 108 => ip(bytes, 4),
        109 => ip(bytes, 12),
        12 | 14 | 101 | 228 | 229 => ip(bytes, 0),
        // PFLOG: its first byte is the length of its header, which is padded.
        117 => ip(bytes, bytes.first().map_or(0, |len| usize::from(*len).next_multiple_of(4))),
        9 => ppp(bytes),
        // PPP or Cisco's framing, by the address.
        50 if matches!(bytes.first(), Some(0x0f | 0x8f)) => behind(bytes, 4, field(bytes, 2)),
        50 => ppp(bytes),
        // PPPoE: version and type, code, session, length.
        51 => ppp(bytes.get(6..).unwrap_or_default()),
        104 => behind(bytes, 4, field(bytes, 2)),
        239 => ip(nflog(bytes)?, 0),
        _ => return None,
    })
}

/// The packet within an Ethernet frame that has it behind more than tags; `None`: there is nothing more.
pub(super) fn within_ethernet(frame: &[u8]) -> Option<Packet<'_>> {
    let mut at = 12;
    while EtherType(field(frame, at)).is_tag() {
        at += 4;
    }
    within(field(frame, at), frame.get(at + 2..)?)
}

/// The packet within PPPoE, MPLS or SNAP; `None`: it is none of those.
fn within(ether_type: u16, bytes: &[u8]) -> Option<Packet<'_>> {
    match ether_type {
        PPPOE => Some(ppp(bytes.get(6..).unwrap_or_default())),
        _ if MPLS.contains(&ether_type) => {
            // The last label has the lowest bit of its third byte.
            let labels = bytes.as_chunks::<4>().0.iter().position(|label| label[2] & 1 == 1)? + 1;
            // Else a pseudo-wire.
            let version = bytes.get(4 * labels).map(|byte| byte >> 4);
            version.filter(|version| matches!(version, 4 | 6)).map(|_| ip(bytes, 4 * labels))
        }
        0..=MAX_LENGTH => bytes.starts_with(&SNAP).then(|| behind(bytes, 8, field(bytes, 6))),
        _ => None,
    }
}

fn field(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |field| u16::from_be_bytes(*field))
}

fn behind(bytes: &[u8], header: usize, ether_type: u16) -> Packet<'_> {
    Packet { ether_type, bytes: bytes.get(header..).unwrap_or_default() }
}

/// A packet of IP, whose version it says itself.
fn ip(bytes: &[u8], header: usize) -> Packet<'_> {
    let version = bytes.get(header).map(|byte| byte >> 4);
    behind(bytes, header, if version == Some(6) { EtherType::IPV6.0 } else { EtherType::IPV4.0 })
}

/// PPP, with or without the address and control of HDLC's framing, and with a protocol of two bytes or, compressed, one
/// (RFC 1661, 6.5).
fn ppp(bytes: &[u8]) -> Packet<'_> {
    let bytes = bytes.strip_prefix(&[0xff, 3]).unwrap_or(bytes);
    let (protocol, header) = match bytes.first() {
        // The last byte of a protocol is odd, and no other one is.
        Some(odd) if odd & 1 == 1 => (u16::from(*odd), 1),
        _ => (field(bytes, 0), 2),
    };
    let ether_type = match protocol {
        PPP_IPV4 => EtherType::IPV4.0,
        PPP_IPV6 => EtherType::IPV6.0,
        _ => 0,
    };
    behind(bytes, header, ether_type)
}

/// The packet of nflog: behind a header of 4 bytes, attributes in the byte order of the machine, here the little-endian
/// one.
fn nflog(bytes: &[u8]) -> Option<&[u8]> {
    let mut rest = bytes.get(4..)?;
    loop {
        let (head, _) = rest.split_first_chunk::<4>()?;
        let [len, kind] = [u16::from_le_bytes([head[0], head[1]]), u16::from_le_bytes([head[2], head[3]])];
        let value = rest.get(4..usize::from(len))?;
        if kind == NFLOG_PAYLOAD {
            return Some(value);
        }
        // At least the 4 bytes of its header.
        rest = rest.get(usize::from(len).next_multiple_of(4)..)?;
    }
}
