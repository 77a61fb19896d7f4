//! Copies of a KiB.

use std::hint::black_box;
use std::io;
use std::time::Instant;

use super::{on, quickest};

/// A buffer that stays in the second-level cache, bytes: a fraction of the 256 KiB of the smallest.
const CACHED: usize = 128 << 10;
/// A buffer that leaves every cache that a CPU of a shared host gets, bytes. Larger: calibration needs it free.
const MEMORY: usize = 256 << 20;
/// Bytes copied at a time.
const PIECE: usize = 4 << 10;
/// Bytes copied in a round.
const COPIED: usize = 8 << 20;

/// From the cache.
pub(super) fn cached(cpu: u32) -> io::Result<f64> {
    copies(cpu, CACHED)
}

/// From memory.
pub(super) fn memory(cpu: u32) -> io::Result<f64> {
    copies(cpu, MEMORY)
}

/// Nanoseconds per KiB of copies out of a buffer, into one that stays in the cache.
fn copies(cpu: u32, size: usize) -> io::Result<f64> {
    on(cpu, || {
        // Written, so that it has pages of its own.
        let from: Vec<u8> = (0..size).map(|at| (at / PIECE) as u8).collect();
        let mut to = vec![0; PIECE];
        let mut pieces = from.chunks_exact(PIECE).cycle();
        quickest(|| {
            let begin = Instant::now();
            for piece in pieces.by_ref().take(COPIED / PIECE) {
                black_box(&mut to).copy_from_slice(black_box(piece));
            }
            Ok(begin.elapsed().as_nanos() as f64 / (COPIED >> 10) as f64)
        })
    })
}
