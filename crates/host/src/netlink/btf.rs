//! The members of the kernel's enumerations, out of its own type information: Documentation/bpf/btf.rst. For tests.

use std::collections::BTreeMap;

/// Kinds of types, and how many 4-byte words follow each (`struct btf_type` is three), by `vlen`.
fn words_after(kind: u32, vlen: usize) -> Option<usize> {
    Some(match kind {
        // Pointer, forward, typedef, volatile, const, restrict, function, float, type tag.
        2 | 7 | 8 | 9 | 10 | 11 | 12 | 16 | 18 => 0,
        // Integer, variable, declaration tag.
        1 | 14 | 17 => 1,
        3 => 3,
        // Structure and union, section.
        4 | 5 | 15 => 3 * vlen,
        // Enumeration, function prototype.
        6 | 13 => 2 * vlen,
        // Enumeration of 64 bits.
        19 => 3 * vlen,
        _ => return None,
    })
}

/// Names and values of all enumerators of 32 bits. None when the bytes are not understood.
pub(super) fn enumerators(bytes: &[u8]) -> Option<BTreeMap<String, u32>> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    // struct btf_header: magic and version, its length, then offset and length of types and of names.
    let header = word(4)? as usize;
    let (types, length) = (header + word(8)? as usize, word(12)? as usize);
    let names = header + word(16)? as usize;
    let name = |offset: u32| {
        let text = bytes.get(names + offset as usize..)?;
        String::from_utf8(text.split(|byte| *byte == 0).next()?.to_vec()).ok()
    };
    let mut found = BTreeMap::new();
    let mut at = types;
    while at < types + length {
        let info = word(at + 4)?;
        let (kind, vlen) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
        let after = at + 12;
        if kind == 6 {
            for member in 0..vlen {
                found.insert(name(word(after + 8 * member)?)?, word(after + 8 * member + 4)?);
            }
        }
        at = after + 4 * words_after(kind, vlen)?;
    }
    Some(found)
}
