//! The members of the kernel's enumerations, from its BTF type information: Documentation/bpf/btf.rst.

use std::collections::BTreeMap;

/// Directory of the kernel's BTF, and each module's under its name.
pub const FOLDER: &str = "/sys/kernel/btf";

/// Number of 4-byte words that follow each kind of type (`struct btf_type` is three), by `vlen`.
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
        // 64-bit enumeration.
        19 => 3 * vlen,
        _ => return None,
    })
}

/// Names and values of all 32-bit enumerators of the kernel. `None` if the data cannot be parsed.
#[must_use]
pub fn enumerators(kernel: &[u8]) -> Option<BTreeMap<String, u32>> {
    let parts = Parts::parse(kernel)?;
    parts.enumerators(&[])
}

/// The same for a module, whose names continue where the kernel's end. `None` if the data cannot be parsed.
#[must_use]
pub fn module_enumerators(module: &[u8], kernel: &[u8]) -> Option<BTreeMap<String, u32>> {
    Parts::parse(module)?.enumerators(Parts::parse(kernel)?.names)
}

/// The parts of a BTF file.
struct Parts<'a> {
    types: &'a [u8],
    names: &'a [u8],
}

impl<'a> Parts<'a> {
    /// `struct btf_header`: magic and version, its length, then offset and length of types and of names.
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let word = |at| word(bytes, at).map(|word| word as usize);
        let header = word(4)?;
        let part = |offset: usize, length: usize| bytes.get(header + offset..)?.get(..length);
        Some(Self { types: part(word(8)?, word(12)?)?, names: part(word(16)?, word(20)?)? })
    }

    /// Names at offsets below the length of `before` are in `before`.
    fn enumerators(&self, before: &[u8]) -> Option<BTreeMap<String, u32>> {
        let name = |offset: u32| {
            let offset = offset as usize;
            let text =
                before.get(offset..).or_else(|| self.names.get(offset.checked_sub(before.len())?..))?;
            String::from_utf8(text.split(|byte| *byte == 0).next()?.to_vec()).ok()
        };
        let mut found = BTreeMap::new();
        let mut at = 0;
        while at < self.types.len() {
            let info = word(self.types, at + 4)?;
            let (kind, vlen) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
            let after = at + 12;
            if kind == 6 {
                for member in 0..vlen {
                    let member = after + 8 * member;
                    found.insert(name(word(self.types, member)?)?, word(self.types, member + 4)?);
                }
            }
            at = after + 4 * words_after(kind, vlen)?;
        }
        Some(found)
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One enumeration whose members have these name offsets and values.
    fn file(members: &[(u32, u32)], names: &[u8]) -> Vec<u8> {
        let types: Vec<u32> = [0, 6 << 24 | members.len() as u32, 4]
            .into_iter()
            .chain(members.iter().flat_map(|(name, value)| [*name, *value]))
            .collect();
        let length = 4 * types.len() as u32;
        let header = [0x0001_eb9f, 24, 0, length, length, names.len() as u32];
        let words = header.into_iter().chain(types).flat_map(u32::to_le_bytes);
        words.chain(names.iter().copied()).collect()
    }

    #[test]
    fn module_names_continue_after_the_kernels() {
        let kernel = file(&[(1, 7), (4, 8)], b"\0AB\0CD\0");
        let module = file(&[(4, 9), (8, 10)], b"\0EF\0");
        let named = |found: BTreeMap<String, u32>| found.into_iter().collect::<Vec<_>>();
        assert_eq!(named(enumerators(&kernel).unwrap()), [("AB".to_owned(), 7), ("CD".to_owned(), 8)]);
        let found = module_enumerators(&module, &kernel).unwrap();
        assert_eq!(named(found), [("CD".to_owned(), 9), ("EF".to_owned(), 10)]);
    }

    #[test]
    fn truncated_data_is_rejected() {
        let whole = file(&[(1, 7)], b"\0AB\0");
        assert!((0..whole.len()).all(|length| enumerators(&whole[..length]).is_none()));
        // A name that does not exist, and a kind that does not exist.
        assert_eq!(enumerators(&file(&[(9, 7)], b"\0AB\0")), None);
        let mut strange = whole;
        strange[24 + 7] = 0x1f;
        assert_eq!(enumerators(&strange), None);
    }
}
