//! Copies of replies that the program made for a complete check in user space.
//!
//! ```text
//!   per CPU:  [ full | full | full | free | free ... ]      the program fills free places in order, and copies nothing
//!               ▲ next to read                               while the next one is full
//! ```
//! So at low rates every reply is copied, and at high rates the first ones after each reading.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::shared_array::SharedArray;

/// Places per CPU: `SAMPLES` of the program.
pub(super) const PER_CPU: usize = 32;
/// Words of a place: `struct sample`.
pub(super) const WORDS: usize = 256;
/// Words before the reply: state, request.
const HEAD: usize = 2;
/// The longest reply that is copied, bytes: `SAMPLE_BYTES` of the program.
pub const MAX_SAMPLE_LEN: usize = (WORDS - HEAD) * 8;

/// How the program counted a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judged {
    /// Valid and in time.
    Ok,
    /// Refused.
    Refused,
    /// Valid, after the timeout.
    Overdue,
}

/// A copied reply: the first one to its request, and judged valid or refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Which of the prebuilt requests it answers.
    pub request: u32,
    /// How it was counted.
    pub judged: Judged,
}

/// Reads the copies. Only one reader at a time: it frees their places.
#[derive(Debug)]
pub struct Samples<'a> {
    places: &'a SharedArray,
    /// By CPU: the next place to read.
    next: Vec<usize>,
    /// The CPU to begin with.
    turn: usize,
    reply: Vec<u8>,
}

impl<'a> Samples<'a> {
    pub(super) fn new(places: &'a SharedArray, cpus: usize) -> Self {
        Self { places, next: vec![0; cpus], turn: 0, reply: Vec::with_capacity(MAX_SAMPLE_LEN) }
    }

    /// Calls `see` with each copy, at most `most` of them. All CPUs get their turn over several calls.
    pub fn read(&mut self, most: usize, mut see: impl FnMut(Sample, &mut [u8])) {
        let (cpus, turn) = (self.next.len(), self.turn);
        let mut left = most;
        for cpu in (0..cpus).map(|i| (turn + i) % cpus) {
            while left > 0 {
                let Some(sample) = self.take(cpu) else { break };
                see(sample, &mut self.reply);
                left -= 1;
            }
        }
        self.turn = (turn + 1) % cpus.max(1);
    }

    /// Copies the CPU's next reply into `self.reply`, and frees its place.
    fn take(&mut self, cpu: usize) -> Option<Sample> {
        let next = self.next.get_mut(cpu)?;
        let words = self.places.element(cpu * PER_CPU + *next);
        let state = words[0].load(Acquire);
        if state == 0 {
            return None;
        }
        let len = (state as u32 as usize).min(MAX_SAMPLE_LEN);
        self.reply.clear();
        self.reply.extend(words[HEAD..].iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).take(len));
        let judged = match state >> 32 {
            0 => Judged::Ok,
            1 => Judged::Refused,
            _ => Judged::Overdue,
        };
        let sample = Sample { request: words[1].load(Relaxed) as u32, judged };
        words[0].store(0, Release);
        *next = (*next + 1) % PER_CPU;
        Some(sample)
    }
}
