//! The load: requests whose every byte is known, so that any damage to a reply is detected.
//!
//! ```text
//!   0        2          6               14        18
//!   | magic  | flow     | seq           | tag     | body: a stream derived from (run, size, flow, seq) ...
//! ```
//! All numbers are big endian. The tag is derived from the same numbers as the body, so a changed flow, seq or length
//! is detected even without a body. The server needs to know none of this: any echo server works. 18 bytes fill the
//! smallest Ethernet frame.

use udpath_load::template::{InKernel, Judgement, Protocol, Template};

/// First two bytes of every request: "uP", easy to find in a capture.
const MAGIC: [u8; 2] = *b"uP";
/// Bytes before the body: the smallest request.
pub const HEADER: usize = 18;

/// Echo for a load.
#[derive(Debug, Clone, Copy)]
pub struct EchoLoad {
    run: u64,
}

impl EchoLoad {
    /// Requests of run `run`. Give each run its own number: replies to an earlier run then count as corrupt, not valid.
    #[must_use]
    pub fn new(run: u64) -> Self {
        Self { run }
    }
}

impl Protocol for EchoLoad {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn min_size(&self) -> usize {
        HEADER
    }

    fn in_kernel(&self) -> Option<InKernel> {
        Some(InKernel::Echo)
    }

    fn template(&self) -> Box<dyn Template> {
        Box::new(EchoTemplate { run: self.run })
    }
}

/// Writes and judges echo requests.
#[derive(Debug, Clone, Copy)]
pub struct EchoTemplate {
    run: u64,
}

impl Template for EchoTemplate {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn min_size(&self) -> usize {
        HEADER
    }

    fn write(&mut self, flow: u32, seq: u64, request: &mut [u8]) -> usize {
        let len = request.len();
        let mut stream = Stream::new(self.run, len, flow, seq);
        let (header, body) = request.split_at_mut(HEADER);
        header[..2].copy_from_slice(&MAGIC);
        header[2..6].copy_from_slice(&flow.to_be_bytes());
        header[6..14].copy_from_slice(&seq.to_be_bytes());
        header[14..].copy_from_slice(&stream.tag());
        let mut words = body.chunks_exact_mut(8);
        for word in &mut words {
            word.copy_from_slice(&stream.next());
        }
        let rest = words.into_remainder();
        let last = stream.next();
        rest.copy_from_slice(&last[..rest.len()]);
        len
    }

    fn check(&self, flow: u32, reply: &[u8]) -> Judgement {
        let Some((header, body)) = reply.split_first_chunk::<HEADER>() else { return Judgement::Corrupt };
        let [m0, m1, f0, f1, f2, f3, s0, s1, s2, s3, s4, s5, s6, s7, tag @ ..] = *header;
        let named = u32::from_be_bytes([f0, f1, f2, f3]);
        let seq = u64::from_be_bytes([s0, s1, s2, s3, s4, s5, s6, s7]);
        let mut stream = Stream::new(self.run, reply.len(), named, seq);
        if [m0, m1] != MAGIC || tag != stream.tag() {
            return Judgement::Corrupt;
        }
        let words = body.chunks_exact(8);
        let rest = words.remainder();
        // Decided once at the end: the whole body is read anyway, and the loop has no branch.
        let mut wrong = false;
        for word in words {
            wrong |= *word != stream.next();
        }
        let last = stream.next();
        wrong |= *rest != last[..rest.len()];
        match (wrong, named == flow) {
            (true, _) => Judgement::Corrupt,
            (false, true) => Judgement::Valid { seq },
            (false, false) => Judgement::WrongFlow,
        }
    }
}

/// The bytes of one request: SplitMix64 (Steele, Lea, Flood 2014), seeded by run, size, flow and seq.
struct Stream(u64);

impl Stream {
    fn new(run: u64, size: usize, flow: u32, seq: u64) -> Self {
        // The flow takes the upper half, the size 16 bits of the lower one.
        Self(mix(mix(run ^ (u64::from(flow) << 32) ^ size as u64) ^ seq))
    }

    fn tag(&mut self) -> [u8; 4] {
        let [a, b, c, d, ..] = self.next();
        [a, b, c, d]
    }

    fn next(&mut self) -> [u8; 8] {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0).to_be_bytes()
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        EchoTemplate { run: 7 }.write(3, 41, &mut bytes);
        bytes
    }

    #[test]
    fn an_intact_reply_names_its_request() {
        for size in [HEADER, HEADER + 1, 25, 26, 27, 100, 1472, 65_507] {
            let bytes = request(size);
            let t = EchoTemplate { run: 7 };
            assert_eq!(t.check(3, &bytes), Judgement::Valid { seq: 41 }, "{size} bytes");
            assert_eq!(t.check(4, &bytes), Judgement::WrongFlow, "{size} bytes");
        }
    }

    #[test]
    fn every_flipped_bit_is_detected() {
        for size in [HEADER, 23, 100] {
            for bit in 0..size * 8 {
                let mut bytes = request(size);
                bytes[bit / 8] ^= 1 << (bit % 8);
                let t = EchoTemplate { run: 7 };
                assert_eq!(t.check(3, &bytes), Judgement::Corrupt, "bit {bit} of {size} bytes");
            }
        }
    }

    #[test]
    fn cut_and_stretched_replies_are_corrupt() {
        let t = EchoTemplate { run: 7 };
        let mut bytes = request(100);
        for len in 0..100 {
            assert_eq!(t.check(3, &bytes[..len]), Judgement::Corrupt, "{len} of 100 bytes");
        }
        bytes.push(0);
        assert_eq!(t.check(3, &bytes), Judgement::Corrupt);
    }

    #[test]
    fn other_runs_are_corrupt() {
        let bytes = request(100);
        assert_eq!(EchoTemplate { run: 8 }.check(3, &bytes), Judgement::Corrupt);
    }
}
