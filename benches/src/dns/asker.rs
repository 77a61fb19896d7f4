//! Queries for names that exist and for names that do not, in equal parts, at random; replies checked for question and code.

use udpath_load::template::{Judgement, Protocol, Template};

/// Bytes of a query: header, 8-byte label, `example.org`, type and class.
pub(super) const SIZE: usize = 12 + 9 + 13 + 4;

/// The queries for a zone of this many names.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asker {
    names: u32,
}

impl Asker {
    pub(super) fn new(names: u32) -> Self {
        Self { names }
    }

    /// The query of a transaction; only the lower 16 bits of `seq` count, which are its identifier.
    fn query(self, flow: u32, seq: u64) -> ([u8; SIZE], bool) {
        let id = seq as u16;
        // SplitMix64's finalizer (Steele, Lea, Flood 2014).
        let mut z = (u64::from(flow) << 16 | u64::from(id)).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let mut number = (z >> 32) as u32 % (2 * self.names);
        let exists = number < self.names;
        let mut query = [0; SIZE];
        query[..2].copy_from_slice(&id.to_be_bytes());
        query[5] = 1;
        query[12..14].copy_from_slice(b"\x08h");
        for digit in query[14..21].iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
        query[21..].copy_from_slice(b"\x07example\x03org\0\0\x01\0\x01");
        (query, exists)
    }
}

impl Protocol for Asker {
    fn name(&self) -> &'static str {
        "dns"
    }

    fn min_size(&self) -> usize {
        SIZE
    }

    fn max_size(&self) -> usize {
        SIZE
    }

    fn ids(&self) -> u64 {
        1 << 16
    }

    fn template(&self) -> Box<dyn Template> {
        Box::new(*self)
    }
}

impl Template for Asker {
    fn name(&self) -> &'static str {
        "dns"
    }

    fn min_size(&self) -> usize {
        SIZE
    }

    fn max_reply(&self, _size: usize) -> usize {
        512
    }

    fn seq_bits(&self) -> u32 {
        16
    }

    fn write(&mut self, flow: u32, seq: u64, request: &mut [u8]) -> usize {
        request[..SIZE].copy_from_slice(&self.query(flow, seq).0);
        SIZE
    }

    fn check(&self, flow: u32, reply: &[u8]) -> Judgement {
        let Some((head, _)) = reply.split_first_chunk::<SIZE>() else { return Judgement::Corrupt };
        let seq = u64::from(u16::from_be_bytes([head[0], head[1]]));
        let (query, exists) = self.query(flow, seq);
        let code = if exists { 0 } else { 3 };
        let right = head[12..] == query[12..] && head[2] & 0xf8 == 0x80 && head[3] & 0xf == code;
        if right { Judgement::Valid { seq } } else { Judgement::Corrupt }
    }
}
