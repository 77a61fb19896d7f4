//! Data whose length or values depend on what stands before them, each after the document that [`super::layout`] names.

use super::super::super::name;
use super::super::types;

/// Bits of a degree in thousandths of a second of arc (RFC 1876, 2).
const DEGREE: u32 = 3_600_000;
/// The equator and the prime meridian.
const ORIGIN: u32 = 1 << 31;
/// Bytes of the largest map of services: a bit for each port.
const MAX_SERVICES: usize = 1 << 13;

/// An address, a protocol, and a bit for each port up to the last.
pub(super) fn is_wks(data: &[u8]) -> bool {
    let services = data.get(5..);
    services.is_some_and(|services| services.len() <= MAX_SERVICES && services.last() != Some(&0))
}

/// One text: four digits or more, as an X.121 address has.
pub(super) fn is_x25(data: &[u8]) -> bool {
    data.split_first().is_some_and(|(len, text)| {
        text.len() == usize::from(*len) && text.len() >= 4 && text.iter().all(u8::is_ascii_digit)
    })
}

/// An address, and perhaps a subaddress.
pub(super) fn is_isdn(data: &[u8]) -> bool {
    let first = data.first().map(|len| 1 + usize::from(*len));
    let rest = first.and_then(|len| data.get(len..));
    rest.is_some_and(|rest| rest.is_empty() || rest.len() == 1 + usize::from(rest[0]))
}

/// A format and an address, of which format 1 has digits.
pub(super) fn is_atma(data: &[u8]) -> bool {
    match data.split_first() {
        Some((1, address)) => !address.is_empty() && address.iter().all(u8::is_ascii_digit),
        Some((_, address)) => !address.is_empty(),
        None => false,
    }
}

/// Version 0, three diameters, and a place that is on the earth; or another version, of which nothing is known.
pub(super) fn is_loc(data: &[u8]) -> bool {
    if data.first().is_some_and(|version| *version != 0) {
        return true;
    }
    let Some((fixed, place)) = data.split_first_chunk::<4>() else { return false };
    let (numbers, []) = place.as_chunks::<4>() else { return false };
    let [latitude, longitude, _altitude] = numbers else { return false };
    // A digit and a power of ten; only the diameter 0 begins with the digit 0.
    let is_diameter = |byte: u8| byte == 0 || ((1..=9).contains(&(byte >> 4)) && byte & 0xf <= 9);
    let within = |angle: &[u8; 4], most: u32| u32::from_be_bytes(*angle).abs_diff(ORIGIN) <= most * DEGREE;
    fixed[1..].iter().all(|byte| is_diameter(*byte)) && within(latitude, 90) && within(longitude, 180)
}

/// A key, which is there if the flags do not say that there is none.
pub(super) fn is_key(data: &[u8]) -> bool {
    data.split_at_checked(4).is_some_and(|(fixed, key)| key.is_empty() == (fixed[0] & 0xc0 == 0xc0))
}

/// A key, without any flags.
pub(super) fn is_rkey(data: &[u8]) -> bool {
    data.len() > 4 && data.starts_with(&[0, 0])
}

/// The part of an address behind a prefix, and the name that has the prefix.
pub(super) fn is_a6(data: &[u8]) -> bool {
    let Some((&prefix, rest)) = data.split_first() else { return false };
    let Some(suffix) = 16_usize.checked_sub(usize::from(prefix / 8)).filter(|_| prefix <= 128) else {
        return false;
    };
    // The bits of the first byte that the prefix has are zero.
    let outside = rest.first().is_some_and(|byte| suffix > 0 && byte & !(0xff >> (prefix % 8)) != 0);
    let rest = rest.get(suffix..).filter(|_| !outside);
    rest.is_some_and(|rest| if prefix == 0 { rest.is_empty() } else { is_name(rest) })
}

/// Prefixes: family, length, and the address without the zeros at its end.
pub(super) fn is_apl(mut data: &[u8]) -> bool {
    while let Some(([f0, f1, prefix, used], rest)) = data.split_first_chunk::<4>() {
        let used = usize::from(used & 0x7f);
        let Some((address, after)) = rest.split_at_checked(used) else { return false };
        let fits = match u16::from_be_bytes([*f0, *f1]) {
            1 => *prefix <= 32 && used <= 4,
            2 => *prefix <= 128 && used <= 16,
            _ => true,
        };
        if !fits || address.last() == Some(&0) {
            return false;
        }
        data = after;
    }
    data.is_empty()
}

/// A digest as long as its type says (RFC 4034, 5.1; RFC 4509; RFC 5933; RFC 6605).
pub(super) fn is_ds(data: &[u8]) -> bool {
    let Some((fixed, digest)) = data.split_at_checked(4) else { return false };
    match fixed[3] {
        1 => digest.len() == 20,
        2 | 3 => digest.len() == 32,
        4 => digest.len() == 48,
        _ => !digest.is_empty(),
    }
}

/// A fingerprint as long as its type says (RFC 4255, 3.1.2; RFC 6594).
pub(super) fn is_sshfp(data: &[u8]) -> bool {
    let Some((fixed, digest)) = data.split_at_checked(2) else { return false };
    match fixed[1] {
        1 => digest.len() == 20,
        2 => digest.len() == 32,
        _ => !digest.is_empty(),
    }
}

/// A digest as long as its algorithm says, else of twelve bytes at least (RFC 8976, 2.2.4).
pub(super) fn is_zonemd(data: &[u8]) -> bool {
    let Some((fixed, digest)) = data.split_at_checked(6) else { return false };
    match fixed[5] {
        1 => digest.len() == 48,
        2 => digest.len() == 64,
        _ => digest.len() >= 12,
    }
}

/// Types as bits in windows (RFC 4034, 4.1.2); none need be there.
pub(super) fn is_bitmap(mut data: &[u8]) -> bool {
    let mut next = 0;
    while let Some(([window, len], rest)) = data.split_first_chunk::<2>() {
        let Some((bits, after)) = rest.split_at_checked(usize::from(*len)) else { return false };
        // Windows in order, none without a bit, and no zeros at the end.
        if u16::from(*window) < next || bits.len() > 32 || bits.last().is_none_or(|last| *last == 0) {
            return false;
        }
        (next, data) = (u16::from(*window) + 1, after);
    }
    data.is_empty()
}

/// Of an NSEC record, which has its own type at least.
pub(super) fn is_nsec_bitmap(data: &[u8]) -> bool {
    !data.is_empty() && is_bitmap(data)
}

/// Of an NXT record: bits of the types up to 127 (RFC 2535, 5.2).
pub(super) fn is_nxt_bitmap(data: &[u8]) -> bool {
    data.len() <= 16
        && data.first().is_none_or(|first| first & 0x80 == 0)
        && data.last().is_none_or(|last| *last != 0)
}

/// A hash with its length, and types.
pub(super) fn is_hash_and_bitmap(data: &[u8]) -> bool {
    let Some((&len, rest)) = data.split_first() else { return false };
    len > 0 && rest.get(usize::from(len)..).is_some_and(is_bitmap)
}

/// Precedence, what the gateway is, an algorithm, the gateway, a key unless the algorithm is 0.
pub(super) fn is_ipseckey(data: &[u8]) -> bool {
    let Some(([_, kind, algorithm], rest)) = data.split_first_chunk::<3>() else { return false };
    let gateway = match kind {
        0 => Some(0),
        1 => Some(4),
        2 => Some(16),
        3 => name::length(rest),
        _ => None,
    };
    let key = gateway.and_then(|len| rest.get(len..));
    key.is_some_and(|key| !key.is_empty() || *algorithm == 0)
}

/// Precedence, discovery and what the relay is, the relay.
pub(super) fn is_amtrelay(data: &[u8]) -> bool {
    let Some(([_, kind], rest)) = data.split_first_chunk::<2>() else { return false };
    match kind & 0x7f {
        0 => rest.is_empty(),
        1 => rest.len() == 4,
        2 => rest.len() == 16,
        3 => is_name(rest),
        // Not assigned.
        _ => true,
    }
}

/// An identity and a key, both there, and names of servers.
pub(super) fn is_hip(data: &[u8]) -> bool {
    let Some(([identity, _, k0, k1], rest)) = data.split_first_chunk::<4>() else { return false };
    let (identity, key) = (usize::from(*identity), usize::from(u16::from_be_bytes([*k0, *k1])));
    let Some(mut rest) = rest.get(identity + key..).filter(|_| identity > 0 && key > 0) else { return false };
    while !rest.is_empty() {
        match name::length(rest).and_then(|len| rest.get(len..)) {
            Some(after) => rest = after,
            None => return false,
        }
    }
    true
}

/// Flags, a tag of letters and digits with its length, a value.
pub(super) fn is_caa(data: &[u8]) -> bool {
    let Some(([_, len], rest)) = data.split_first_chunk::<2>() else { return false };
    let tag = rest.get(..usize::from(*len));
    tag.is_some_and(|tag| !tag.is_empty() && tag.iter().all(u8::is_ascii_alphanumeric))
}

/// Service parameters.
pub(super) fn is_params(data: &[u8]) -> bool {
    types::are_params(data)
}

/// Whether it is one name, and nothing else.
fn is_name(data: &[u8]) -> bool {
    name::length(data) == Some(data.len())
}
