//! The text of APL's items (RFC 3123, 5): `[!]FAMILY:ADDRESS/LENGTH`.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The item's data: family, prefix length, `!` and the number of bytes, and the address without the zeros at its end.
pub(super) fn wire(text: &str) -> Option<Vec<u8>> {
    let (negated, text) = text.strip_prefix('!').map_or((0, text), |text| (0x80, text));
    let (family, text) = text.split_once(':')?;
    let (address, len) = text.rsplit_once('/')?;
    let (mut address, most): (Vec<u8>, u8) = match family {
        "1" => (address.parse::<Ipv4Addr>().ok()?.octets().into(), 32),
        "2" => (address.parse::<Ipv6Addr>().ok()?.octets().into(), 128),
        _ => return None,
    };
    let family: u16 = family.parse().ok()?;
    let len: u8 = super::number(len).filter(|len| *len <= most)?;
    let used = address.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    address.truncate(used);
    let mut wire = family.to_be_bytes().to_vec();
    wire.extend([len, negated | u8::try_from(used).ok()?]);
    wire.extend(address);
    Some(wire)
}
