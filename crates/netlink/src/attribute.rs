//! Attributes: a length (of header and value), a type, a value, padding to four bytes; numbers in the machine's order.
//!
//! The reader trusts nothing: no bytes make it panic, and a list that breaks off in the middle of an attribute ends
//! before it. The first attribute of a type counts.

/// `NLA_F_NESTED` of linux/netlink.h: the value is a list of attributes.
const NESTED: u16 = 1 << 15;
/// `NLA_TYPE_MASK`: the type without its flags.
const TYPE: u16 = !(NESTED | 1 << 14);
/// Bytes of length and type.
const HEADER: usize = 4;

/// A list of attributes.
#[derive(Debug, Clone, Copy)]
pub struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    /// The list in `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Types and values, in order.
    pub fn iter(self) -> impl Iterator<Item = (u16, &'a [u8])> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (length, after) = rest.split_first_chunk::<2>()?;
            let kind = after.first_chunk::<2>()?;
            let length = usize::from(u16::from_ne_bytes(*length));
            let value = rest.get(HEADER..length)?;
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            Some((u16::from_ne_bytes(*kind) & TYPE, value))
        })
    }

    /// The value of the first attribute of a type.
    #[must_use]
    pub fn bytes(self, kind: u16) -> Option<&'a [u8]> {
        self.iter().find(|(found, _)| *found == kind).map(|(_, value)| value)
    }

    /// A list inside this one; empty if it is missing.
    #[must_use]
    pub fn nested(self, kind: u16) -> Self {
        Self(self.bytes(kind).unwrap_or_default())
    }

    /// Whether there is an attribute of a type.
    #[must_use]
    pub fn has(self, kind: u16) -> bool {
        self.bytes(kind).is_some()
    }

    /// A number of one, two, four or eight bytes: the kernel writes a `uint` as short as it fits.
    #[must_use]
    pub fn number(self, kind: u16) -> Option<u64> {
        number(self.bytes(kind)?)
    }

    /// A number that fits in 32 bits.
    #[must_use]
    pub fn u32(self, kind: u16) -> Option<u32> {
        self.number(kind)?.try_into().ok()
    }

    /// A text, without its terminating zero.
    #[must_use]
    pub fn text(self, kind: u16) -> Option<String> {
        let bytes = self.bytes(kind)?;
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }
}

/// A number in the machine's byte order, by its length.
#[must_use]
pub fn number(bytes: &[u8]) -> Option<u64> {
    match bytes.len() {
        1 => Some(bytes[0].into()),
        2 => Some(u16::from_ne_bytes(bytes.try_into().ok()?).into()),
        4 => Some(u32::from_ne_bytes(bytes.try_into().ok()?).into()),
        8 => Some(u64::from_ne_bytes(bytes.try_into().ok()?)),
        _ => None,
    }
}

/// Writes the body of a message.
#[derive(Debug, Clone, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// A body that begins with a fixed part: `ifinfomsg`, `tcmsg`, ...
    #[must_use]
    pub fn after(fixed: &[u8]) -> Self {
        Self(fixed.to_vec())
    }

    /// The body so far.
    #[must_use]
    pub fn written(&self) -> &[u8] {
        &self.0
    }

    /// The body.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.0
    }

    /// An attribute of bytes. One longer than an attribute can be is left out, so that the kernel refuses the request.
    pub fn bytes(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        if let Ok(length) = u16::try_from(HEADER + value.len()) {
            self.0.extend_from_slice(&length.to_ne_bytes());
            self.0.extend_from_slice(&kind.to_ne_bytes());
            self.0.extend_from_slice(value);
            self.0.resize(self.0.len().next_multiple_of(4), 0);
        }
        self
    }

    /// One byte.
    pub fn u8(&mut self, kind: u16, value: u8) -> &mut Self {
        self.bytes(kind, &[value])
    }

    /// Four bytes.
    pub fn u32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.bytes(kind, &value.to_ne_bytes())
    }

    /// A `uint` of the kernel's: four bytes, or eight if it does not fit.
    pub fn uint(&mut self, kind: u16, value: u64) -> &mut Self {
        match u32::try_from(value) {
            Ok(short) => self.u32(kind, short),
            Err(_) => self.bytes(kind, &value.to_ne_bytes()),
        }
    }

    /// A text with its terminating zero.
    pub fn text(&mut self, kind: u16, value: &str) -> &mut Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.bytes(kind, &bytes)
    }

    /// A flag.
    pub fn flag(&mut self, kind: u16) -> &mut Self {
        self.bytes(kind, &[])
    }

    /// A list of attributes.
    pub fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) -> &mut Self {
        let mut inner = Self::default();
        fill(&mut inner);
        self.bytes(kind | NESTED, &inner.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn written_attributes_read_back() {
        let mut writer = Writer::default();
        writer.u8(1, 7).u32(2, 70_000).uint(3, 5).uint(4, 1 << 40).text(5, "eth0").flag(6);
        writer.nest(7, |inner| {
            inner.u32(1, 9);
        });
        let bytes = writer.finish();
        let read = Attributes::new(&bytes);
        assert_eq!((read.number(1), read.u32(2)), (Some(7), Some(70_000)));
        assert_eq!((read.number(3), read.number(4), read.u32(4)), (Some(5), Some(1 << 40), None));
        assert_eq!((read.text(5).as_deref(), read.has(6), read.has(8)), (Some("eth0"), true, false));
        assert_eq!((read.nested(7).u32(1), read.nested(8).u32(1)), (Some(9), None));
    }

    proptest! {
        #[test]
        fn any_bytes_end_and_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), kind: u16) {
            let is = Attributes::new(&bytes);
            // Each attribute takes its header at least.
            prop_assert!(is.iter().count() <= bytes.len() / HEADER);
            let _ = (is.number(kind), is.text(kind), is.nested(kind).u32(kind));
        }

        #[test]
        fn lists_are_read_as_written(list in prop::collection::vec((0_u16..0x3fff, prop::collection::vec(any::<u8>(), 0..40)), 0..12)) {
            let mut writer = Writer::default();
            for (kind, value) in &list {
                writer.bytes(*kind, value);
            }
            let bytes = writer.finish();
            let read: Vec<(u16, Vec<u8>)> =
                Attributes::new(&bytes).iter().map(|(kind, value)| (kind, value.to_vec())).collect();
            prop_assert_eq!(read, list);
        }
    }
}
