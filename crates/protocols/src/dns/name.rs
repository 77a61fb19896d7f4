//! Names in wire form (RFC 1035, 3.1): those of questions, and the hash by which the index finds them.

/// Longest name in bytes, with the length bytes and the root's (RFC 1035, 2.3.4).
pub(super) const MAX_NAME: usize = 255;
/// Longest label in bytes. Greater length bytes are pointers or unassigned.
pub(super) const MAX_LABEL: u8 = 63;

/// The name of a question: lowercased, because names are equal regardless of case (RFC 4343), with the place of each
/// label.
#[derive(Debug, Clone)]
pub(super) struct QueryName {
    bytes: [u8; MAX_NAME],
    len: u8,
    /// Where the labels begin. A label takes two bytes or more, so 127 fit a name.
    starts: [u8; 128],
    labels: u8,
}

impl QueryName {
    /// The uncompressed name at the start of `wire`; `None` if it is cut short, too long or compressed.
    #[inline]
    pub(super) fn parse(wire: &[u8]) -> Option<Self> {
        let mut name = Self { bytes: [0; MAX_NAME], len: 0, starts: [0; 128], labels: 0 };
        let mut at = 0_usize;
        loop {
            let len = *wire.get(at)?;
            if len == 0 {
                break;
            }
            if len > MAX_LABEL {
                return None;
            }
            *name.starts.get_mut(usize::from(name.labels))? = u8::try_from(at).ok()?;
            name.labels += 1;
            at += 1 + usize::from(len);
            // The root's byte must fit too.
            if at >= MAX_NAME {
                return None;
            }
        }
        let len = at + 1;
        let bytes = name.bytes.get_mut(..len)?;
        bytes.copy_from_slice(wire.get(..len)?);
        // Length bytes are below 64 and capital letters above, so the whole name can be treated alike.
        bytes.make_ascii_lowercase();
        name.len = u8::try_from(len).ok()?;
        Some(name)
    }

    /// The whole name, lowercased.
    #[inline]
    pub(super) fn wire(&self) -> &[u8] {
        self.suffix(0)
    }

    /// Number of labels, without the root.
    #[inline]
    pub(super) fn labels(&self) -> usize {
        usize::from(self.labels)
    }

    /// Labels of the name in front of its last `apex` bytes, in reversed order, as in the keys of records; returns
    /// their length.
    pub(super) fn write_key(&self, apex: usize, out: &mut [u8; MAX_NAME]) -> usize {
        let front = self.wire().get(..self.wire().len().saturating_sub(apex)).unwrap_or_default();
        reverse(front, out)
    }

    /// The name without its first `labels` labels; the root if there are no more.
    #[inline]
    pub(super) fn suffix(&self, labels: usize) -> &[u8] {
        let end = usize::from(self.len);
        let start = if labels < self.labels() { usize::from(self.starts[labels]) } else { end - 1 };
        &self.bytes[start..end]
    }
}

/// The hash of a lowercased name. Not keyed: only the operator chooses the names in the table.
#[inline]
pub(super) fn hash(name: &[u8]) -> u64 {
    // Fractional digits of pi: any odd number with many bits would do.
    const KEY: u64 = 0x2437_6a88_85a3_08d3;
    const FACTOR: u64 = 0x1319_8a2e_0370_7345;
    let fold = |x: u64| {
        let wide = u128::from(x ^ KEY) * u128::from(FACTOR);
        wide as u64 ^ (wide >> 64) as u64
    };
    let mut hash = name.len() as u64;
    let (words, rest) = name.as_chunks::<8>();
    for word in words {
        hash = fold(hash ^ u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    fold(hash.rotate_left(32) ^ u64::from_le_bytes(last))
}

/// Offsets of the labels of a valid uncompressed name, without the root.
pub(super) fn label_starts(wire: &[u8]) -> impl Iterator<Item = usize> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at;
        let len = *wire.get(start).filter(|len| **len != 0)?;
        at += 1 + usize::from(len);
        Some(start)
    })
}

/// Writes labels in reversed order, and returns their length: that of a key from labels of a name, and back. What is
/// longer than a name, or cut short, is left out.
pub(super) fn reverse(labels: &[u8], out: &mut [u8; MAX_NAME]) -> usize {
    let (mut from, mut end) = (0, labels.len().min(MAX_NAME));
    let whole = end;
    while let Some(len) = labels.get(from) {
        let size = 1 + usize::from(*len);
        let (Some(label), Some(start)) = (labels.get(from..from + size), end.checked_sub(size)) else {
            break;
        };
        out[start..end].copy_from_slice(label);
        (from, end) = (from + size, start);
    }
    whole
}

/// The length of the uncompressed name at the start of `bytes`, if there is a whole one, of [`MAX_NAME`] bytes at most.
pub(super) fn length(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match *bytes.get(at)? {
            0 => return Some(at + 1).filter(|len| *len <= MAX_NAME),
            len if len > MAX_LABEL => return None,
            len => at += 1 + usize::from(len),
        }
    }
}

/// A name for an error message, in master file form with the final dot.
pub(super) fn display(wire: &[u8]) -> String {
    let mut text = String::new();
    for start in label_starts(wire) {
        let label = &wire[start + 1..][..usize::from(wire[start])];
        for &byte in label {
            match byte {
                b'.' | b'\\' => text.extend(['\\', char::from(byte)]),
                0x21..=0x7e => text.push(char::from(byte)),
                _ => text.push_str(&format!("\\{byte:03}")),
            }
        }
        text.push('.');
    }
    if text.is_empty() { ".".into() } else { text }
}

/// The wire form of a name; the final dot may be missing. `None` if it is not a name.
#[cfg(test)]
pub(super) fn from_text(text: &str) -> Option<Vec<u8>> {
    use std::str::FromStr;

    let name = domain::base::Name::<Vec<u8>>::from_str(text).ok()?;
    Some(name.as_slice().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_lowercased_and_cut_into_suffixes() {
        let name = QueryName::parse(b"\x03WwW\x07Example\x00rest").unwrap();
        assert_eq!(name.wire(), b"\x03www\x07example\x00");
        assert_eq!((name.labels(), name.suffix(1), name.suffix(2)), (2, &b"\x07example\x00"[..], &b"\0"[..]));
        let root = QueryName::parse(b"\0").unwrap();
        assert_eq!((root.labels(), root.wire()), (0, &b"\0"[..]));
    }

    #[test]
    fn broken_names_are_rejected() {
        for broken in [&b""[..], b"\x01", b"\x01a", b"\x03ab\0", b"\xc0\x0c", b"\x40", b"\x01a\xc0\x0c"] {
            assert!(QueryName::parse(broken).is_none(), "{broken:?}");
        }
        let longest = [[1, b'a'].repeat(127), vec![0]].concat();
        assert_eq!(QueryName::parse(&longest).unwrap().labels(), 127);
        let too_long = [[1, b'a'].repeat(128), vec![0]].concat();
        assert!(QueryName::parse(&too_long).is_none());
        assert_eq!((length(&longest), length(&too_long)), (Some(MAX_NAME), None));
    }

    #[test]
    fn hashes_of_similar_names_differ() {
        let mut seen = std::collections::HashSet::new();
        for number in 0..10_000 {
            let label = format!("host{number}");
            let wire = [&[label.len() as u8], label.as_bytes(), b"\x07example\0"].concat();
            assert!(seen.insert(hash(&wire) >> 16), "{number}");
        }
        assert_ne!(hash(b"\0"), hash(b"\0\0"));
    }

    #[test]
    fn names_are_shown_as_in_a_master_file() {
        assert_eq!(display(b"\x03w.w\x07example\0"), "w\\.w.example.");
        assert_eq!(display(b"\x01\x07\0"), "\\007.");
        assert_eq!(display(b"\0"), ".");
        assert_eq!(from_text("www.example").unwrap(), b"\x03www\x07example\0");
        assert_eq!(from_text("www..example"), None);
    }
}
