//! The Basic Encoding Rules (X.690) as far as SNMP uses them (RFC 3417, 8): tags of one byte, definite lengths.
//!
//! ```text
//! tag 1 | length: one byte below 128, otherwise 0x80 + n and n bytes | contents
//! ```
//! A [`Writer`] writes from the last byte to the first, because the length stands before the contents: each byte is
//! written once, and every length is as short as it can be.

/// Tags, with the class and the bit of constructed types.
pub(super) mod tag {
    pub(crate) const INTEGER: u8 = 0x02;
    pub(crate) const OCTETS: u8 = 0x04;
    pub(crate) const NULL: u8 = 0x05;
    pub(crate) const OID: u8 = 0x06;
    pub(crate) const SEQUENCE: u8 = 0x30;
}

/// Reads one element after the other. `None` is returned for what is not BER, or not what was asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next element: its tag and contents.
    #[inline]
    pub(super) fn any(&mut self) -> Option<(u8, &'a [u8])> {
        let [tag, first, rest @ ..] = self.0 else { return None };
        let (len, rest) = match *first {
            short @ 0..0x80 => (usize::from(short), rest),
            // Four bytes are more than a datagram needs; 0x80, the indefinite form, is not allowed.
            long => {
                let (len, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
                if !(1..=4).contains(&len.len()) {
                    return None;
                }
                (len.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
            }
        };
        let (contents, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((*tag, contents))
    }

    /// The contents of the next element, which has this tag.
    #[inline]
    pub(super) fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.any().filter(|(found, _)| *found == tag).map(|(_, contents)| contents)
    }

    /// The elements within the next one, which has this tag.
    #[inline]
    pub(super) fn within(&mut self, tag: u8) -> Option<Self> {
        self.expect(tag).map(Reader)
    }

    /// The next element, an INTEGER of up to 32 bits.
    #[inline]
    pub(super) fn int(&mut self) -> Option<i32> {
        let contents = self.expect(tag::INTEGER)?;
        let (first, rest) = contents.split_first().filter(|(_, rest)| rest.len() < 4)?;
        Some(rest.iter().fold(i32::from(*first as i8), |sum, byte| sum << 8 | i32::from(*byte)))
    }

    /// The next element, an INTEGER from 0 to 2^31-1.
    #[inline]
    pub(super) fn unsigned(&mut self) -> Option<u32> {
        self.int().and_then(|int| u32::try_from(int).ok())
    }

    /// Nothing follows.
    #[inline]
    pub(super) fn end(self) -> Option<()> {
        self.is_empty().then_some(())
    }
}

/// Writes from the end of its buffer to the front.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    buffer: &'a mut [u8],
    /// The first byte written.
    start: usize,
    /// Whether something did not fit.
    overflowed: bool,
}

impl<'a> Writer<'a> {
    pub(super) fn new(buffer: &'a mut [u8]) -> Self {
        Self { start: buffer.len(), buffer, overflowed: false }
    }

    /// Bytes written so far: also the distance of the first of them from the end.
    pub(super) fn len(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// What was written so far.
    pub(super) fn written(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..]
    }

    /// Puts `bytes` before what was written.
    #[inline]
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        match self.start.checked_sub(bytes.len()) {
            Some(start) => {
                self.buffer[start..self.start].copy_from_slice(bytes);
                self.start = start;
            }
            None => self.overflowed = true,
        }
    }

    /// Makes what was written since the length was `since` the contents of one element.
    #[inline]
    pub(super) fn wrap(&mut self, tag: u8, since: usize) {
        let len = self.len() - since;
        let [.., high, low] = len.to_be_bytes();
        match len {
            0..0x80 => self.bytes(&[tag, low]),
            0x80..0x100 => self.bytes(&[tag, 0x81, low]),
            0x100..0x1_0000 => self.bytes(&[tag, 0x82, high, low]),
            // Longer than any datagram.
            _ => self.overflowed = true,
        }
    }

    /// An OCTET STRING, or another element of bytes.
    #[inline]
    pub(super) fn element(&mut self, tag: u8, contents: &[u8]) {
        let since = self.len();
        self.bytes(contents);
        self.wrap(tag, since);
    }

    /// An INTEGER, up to 2^31-1.
    #[inline]
    pub(super) fn int(&mut self, value: u32) {
        let [a, b, c, d] = value.to_be_bytes();
        let bytes = [0, a, b, c, d];
        // As few as hold the value's bits and the sign's.
        let len = (u32::BITS - value.leading_zeros() + 1).div_ceil(8) as usize;
        self.element(tag::INTEGER, &bytes[bytes.len() - len..]);
    }

    /// Moves the message to the front of the buffer; returns its length, none if it did not fit.
    #[inline]
    pub(super) fn finish(self) -> Option<usize> {
        if self.overflowed {
            return None;
        }
        let len = self.len();
        self.buffer.copy_within(self.start.., 0);
        Some(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut buffer = [0xee; 600];
        let mut writer = Writer::new(&mut buffer);
        write(&mut writer);
        let len = writer.finish().unwrap();
        buffer[..len].to_vec()
    }

    #[test]
    fn integers_are_as_short_as_their_sign_allows() {
        for (value, bytes) in [
            (0, &[2, 1, 0][..]),
            (1, &[2, 1, 1]),
            (127, &[2, 1, 0x7f]),
            (128, &[2, 2, 0, 0x80]),
            (255, &[2, 2, 0, 0xff]),
            (256, &[2, 2, 1, 0]),
            (0x7fff, &[2, 2, 0x7f, 0xff]),
            (0x8000, &[2, 3, 0, 0x80, 0]),
            (0x80_0000, &[2, 4, 0, 0x80, 0, 0]),
            (0x4000_0000, &[2, 4, 0x40, 0, 0, 0]),
            (0x7fff_ffff, &[2, 4, 0x7f, 0xff, 0xff, 0xff]),
        ] {
            assert_eq!(written(|w| w.int(value)), bytes, "{value}");
            assert_eq!(Reader::new(bytes).unsigned(), Some(value));
        }
        assert_eq!(Reader::new(&[2, 1, 0xff]).int(), Some(-1));
        assert_eq!(Reader::new(&[2, 1, 0xff]).unsigned(), None);
        for wrong in [&[2, 0][..], &[2, 5, 0, 1, 2, 3, 4], &[4, 1, 0], &[2, 2, 0], &[2], &[]] {
            assert_eq!(Reader::new(wrong).int(), None, "{wrong:?}");
        }
    }

    #[test]
    fn lengths_have_every_form() {
        for (len, head) in [
            (0, &[4, 0][..]),
            (127, &[4, 0x7f]),
            (128, &[4, 0x81, 0x80]),
            (255, &[4, 0x81, 0xff]),
            (256, &[4, 0x82, 1, 0]),
        ] {
            let contents = vec![7; len];
            let element = written(|w| w.element(tag::OCTETS, &contents));
            assert_eq!(element[..head.len()], *head, "{len}");
            let mut reader = Reader::new(&element);
            assert_eq!((reader.expect(tag::OCTETS), reader.end()), (Some(&contents[..]), Some(())));
            assert!(Reader::new(&element[..element.len() - 1]).any().is_none());
        }
        // The indefinite form, a length of five bytes, and one beyond the end.
        for wrong in [
            &[4, 0x80, 0, 0][..],
            &[4, 0x85, 0, 0, 0, 0, 0],
            &[4, 0x84, 0xff, 0xff, 0xff, 0xff],
            &[4, 0x82, 0],
        ] {
            assert!(Reader::new(wrong).any().is_none(), "{wrong:?}");
        }
        // Longer than it need be: allowed.
        assert_eq!(Reader::new(&[4, 0x82, 0, 1, 9]).expect(tag::OCTETS), Some(&[9][..]));
    }

    #[test]
    fn what_does_not_fit_is_not_written() {
        let mut small = [0; 4];
        let mut writer = Writer::new(&mut small);
        writer.element(tag::OCTETS, b"abc");
        assert_eq!(writer.finish(), None);
    }
}
