//! Requests for an echo server: what `bpf/closed_loop.bpf.c` knows of them before it is loaded.

use aya::EbpfLoader;

/// First four bytes of every request, little endian.
pub const MAGIC: u32 = 0x3150_4c75;
/// Bytes of a request before its body.
pub const HEADER: usize = 24;
/// The smallest payload: the header and the eight bytes that are compared directly.
pub const MIN_SIZE: usize = HEADER + 8;

/// The check word of a request's header, at offset 20: `header_check()` of the program.
#[must_use]
pub fn header_check(slot: u32, seq: u64, run: u32) -> u32 {
    let tied = seq.wrapping_add(u64::from(slot) << 32) ^ u64::from(run);
    (tied.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

/// The program's constants that follow from the request.
#[derive(Debug)]
pub(super) struct Constants {
    size: u32,
    body_words: u32,
    body_sum: u64,
    body_check: u32,
    tail: u64,
    run: u32,
}

impl Constants {
    /// Of a whole request as first sent, at least [`MIN_SIZE`] bytes.
    pub(super) fn new(request: &[u8]) -> Self {
        let (header, body) = request.split_at_checked(HEADER).unwrap_or((request, &[]));
        Self {
            size: request.len() as u32,
            body_words: (body.len() / 8) as u32,
            body_sum: weighted_sum(body),
            body_check: u32::from(ones_complement_sum(body)),
            tail: request.last_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)),
            run: header.get(16..20).and_then(|run| run.try_into().ok()).map_or(0, u32::from_le_bytes),
        }
    }

    pub(super) fn set<'a>(&'a self, loader: &mut EbpfLoader<'a>) {
        loader
            .override_global("size", &self.size, true)
            .override_global("body_words", &self.body_words, true)
            .override_global("body_sum", &self.body_sum, true)
            .override_global("body_check", &self.body_check, true)
            .override_global("tail", &self.tail, true)
            .override_global("run", &self.run, true);
    }
}

/// The sum of the whole 64-bit words, weighted by position with 1, 3, 5 ...: `body()` of the program.
fn weighted_sum(body: &[u8]) -> u64 {
    body.as_chunks()
        .0
        .iter()
        .zip((1_u64..).step_by(2))
        .fold(0, |sum: u64, (word, weight)| sum.wrapping_add(u64::from_le_bytes(*word).wrapping_mul(weight)))
}

/// The folded one's complement sum of 16-bit words in native order; an odd last byte is padded with zero (RFC 1071).
pub(super) fn ones_complement_sum(bytes: &[u8]) -> u16 {
    let (words, rest) = bytes.as_chunks();
    let last = rest.first().map_or(0, |byte| u64::from(u16::from_ne_bytes([*byte, 0])));
    let mut sum = words.iter().map(|word| u64::from(u16::from_ne_bytes(*word))).sum::<u64>() + last;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
