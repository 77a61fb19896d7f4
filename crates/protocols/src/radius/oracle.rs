//! RADIUS as its RFCs describe it, without regard to cost: what the tests compare with. Only MD5 itself is shared with
//! the implementation; HMAC is that of RFC 2104, by its definition.

use md5::{Digest, Md5};

pub(super) fn md5(parts: &[&[u8]]) -> [u8; 16] {
    Md5::digest(parts.concat()).into()
}

pub(super) fn hmac_md5(key: &[u8], parts: &[&[u8]]) -> [u8; 16] {
    let mut block = if key.len() > 64 { md5(&[key]).to_vec() } else { key.to_vec() };
    block.resize(64, 0);
    let pad = |with: u8| block.iter().map(|byte| byte ^ with).collect::<Vec<_>>();
    md5(&[&pad(0x5c), &md5(&[&pad(0x36), &parts.concat()])])
}

/// RFC 2865, 5.2.
pub(super) fn hidden(secret: &[u8], authenticator: &[u8; 16], password: &[u8]) -> Vec<u8> {
    let mut padded = password.to_vec();
    padded.resize(password.len().max(1).next_multiple_of(16), 0);
    let mut previous = *authenticator;
    for block in padded.chunks_mut(16) {
        let mask = md5(&[secret, &previous]);
        block.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
        previous.copy_from_slice(block);
    }
    padded
}

/// Code, identifier, authenticator and attributes as a packet.
pub(super) fn packet(
    code: u8,
    identifier: u8,
    authenticator: &[u8; 16],
    attributes: &[(u8, Vec<u8>)],
) -> Vec<u8> {
    let attributes: Vec<u8> = attributes
        .iter()
        .flat_map(|(kind, value)| [&[*kind, value.len() as u8 + 2], &value[..]].concat())
        .collect();
    let len = (20 + attributes.len() as u16).to_be_bytes();
    [&[code, identifier, len[0], len[1]], &authenticator[..], &attributes].concat()
}

/// The attributes of a packet.
pub(super) fn attributes(packet: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let (mut rest, mut found) = (&packet[20..], Vec::new());
    while let [kind, len, ..] = rest {
        found.push((*kind, rest[2..usize::from(*len)].to_vec()));
        rest = &rest[usize::from(*len)..];
    }
    found
}

/// A copy of `packet` with its first Message-Authenticator signed, if it has one (RFC 3579, 3.2).
pub(super) fn signed(secret: &[u8], authenticator: &[u8; 16], packet: &[u8]) -> Vec<u8> {
    let mut at = 20;
    while at < packet.len() && packet[at] != 80 {
        at += usize::from(packet[at + 1]);
    }
    if at == packet.len() {
        return packet.to_vec();
    }
    let blank = [&packet[..4], authenticator, &packet[20..at + 2], &[0; 16], &packet[at + 18..]].concat();
    let signature = hmac_md5(secret, &[&blank]);
    [&packet[..at + 2], &signature, &packet[at + 18..]].concat()
}

/// A copy of `packet` with the authenticator of a reply to `authenticator`, or of an accounting request, to 0.
pub(super) fn authenticated(secret: &[u8], authenticator: &[u8; 16], packet: &[u8]) -> Vec<u8> {
    let digest = md5(&[&packet[..4], authenticator, &packet[20..], secret]);
    [&packet[..4], &digest, &packet[20..]].concat()
}

/// Whether a reply is right in both signatures, for a request with `authenticator`.
pub(super) fn is_right(secret: &[u8], authenticator: &[u8; 16], reply: &[u8]) -> bool {
    let mut unsigned = reply.to_vec();
    unsigned[4..20].copy_from_slice(authenticator);
    authenticated(secret, authenticator, reply) == reply
        && signed(secret, authenticator, &unsigned) == unsigned
}

/// The test case of RFC 2202, 2.
#[test]
fn hmac_is_that_of_rfc_2104() {
    let expected =
        [0x75, 0x0c, 0x78, 0x3e, 0x6a, 0xb0, 0xb5, 0x03, 0xea, 0xa8, 0x6e, 0x31, 0x0a, 0x5d, 0xb7, 0x38];
    assert_eq!(hmac_md5(b"Jefe", &[b"what do ya want ", b"for nothing?"]), expected);
}
