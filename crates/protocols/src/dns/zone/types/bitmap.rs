//! Types as bits in windows, the end of CSYNC's text (RFC 4034, 4.1.2 and 4.2).

use std::collections::BTreeSet;

/// The windows of these types, in order.
pub(super) fn wire(types: &BTreeSet<u16>) -> Vec<u8> {
    let mut wire = Vec::new();
    let all: Vec<[u8; 2]> = types.iter().map(|number| number.to_be_bytes()).collect();
    for window in all.chunk_by(|a, b| a[0] == b[0]) {
        let [number, last] = window[window.len() - 1];
        let start = wire.len() + 2;
        wire.extend([number, last / 8 + 1]);
        wire.resize(start + usize::from(last / 8) + 1, 0);
        set(&mut wire[start..], window.iter().map(|[_, low]| u16::from(*low)));
    }
    wire
}

/// Sets these bits, counted from the first byte's highest.
pub(super) fn set(bytes: &mut [u8], bits: impl Iterator<Item = u16>) {
    for bit in bits {
        if let Some(byte) = bytes.get_mut(usize::from(bit / 8)) {
            *byte |= 0x80 >> (bit % 8);
        }
    }
}
