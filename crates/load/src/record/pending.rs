//! Which requests of one flow are unanswered, and since when.
//!
//! ```text
//!   seq  ... oldest open ......... next - ring ............ next
//!        |  `old`: only those      |  `ring`: all requests   |
//!        |  still without a reply  |  by seq, masked         |
//! ```
//! The ring handles the common case (a reply after the last few requests) in memory that stays in the cache. A request
//! still open when its slot is needed moves to `old`, sorted by seq, found by binary search. Both are allocated once,
//! at their full size, so memory does not grow while replies are missing.
//!
//! A seq that is in neither was answered before, or was given up so long ago that its place was reused.

use std::collections::VecDeque;

use crate::plan::{Mode, Plan};

/// Time within which most replies arrive, seconds: the ring holds the requests of that time.
const USUAL: f64 = 0.005;
/// Most slots of a ring, 16 bytes each. Higher: fewer moves to `old`, but less of it stays in the cache.
const RING_MAX: u64 = 4096;

/// One request.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// When it should have been sent, nanoseconds since the start; [`ANSWERED`] if nothing is open here.
    intended: u64,
    /// Sent this much later: nanoseconds, or microseconds with [`MICROS`] set.
    delay: u32,
    /// Low half of the seq: distinguishes slots of different rounds, and orders `old`.
    seq: u32,
}

const ANSWERED: u64 = u64::MAX;
/// Set in `intended` when the closed loop has given the request up.
const GIVEN_UP: u64 = 1 << 63;
const MICROS: u32 = 1 << 31;

impl Entry {
    const NONE: Self = Self { intended: ANSWERED, delay: 0, seq: 0 };

    fn new(seq: u64, intended: u64, sent: u64) -> Self {
        let delay = sent.saturating_sub(intended);
        let delay = if delay < u64::from(MICROS) {
            delay as u32
        } else {
            MICROS | u32::try_from(delay / 1000).unwrap_or(u32::MAX).min(MICROS - 1)
        };
        Self { intended, delay, seq: seq as u32 }
    }

    fn open(&self) -> bool {
        self.intended != ANSWERED
    }

    fn intended(&self) -> u64 {
        self.intended & !GIVEN_UP
    }

    fn sent(&self) -> u64 {
        let delay = u64::from(self.delay & !MICROS);
        self.intended() + if self.delay & MICROS == 0 { delay } else { delay * 1000 }
    }
}

/// Room for `len` entries in pages already mapped: all memory is allocated at the start, and does not grow while
/// replies are missing.
fn touched(len: usize) -> VecDeque<Entry> {
    let mut room = VecDeque::with_capacity(len);
    room.resize(len, Entry::NONE);
    room.clear();
    room
}

/// The first valid reply to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) intended: u64,
    pub(crate) sent: u64,
    /// After the timeout.
    pub(crate) late: bool,
    /// The reply to a later request came earlier.
    pub(crate) reordered: bool,
    /// The closed loop had given it up, so its place in flight is already taken.
    pub(crate) given_up: bool,
}

/// The request that a reply's seq refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    First(Answer),
    Duplicate,
    /// No such request was sent: the reply is forged or damaged.
    Never,
}

/// The open requests of one flow.
#[derive(Debug)]
pub(crate) struct Pending {
    ring: Box<[Entry]>,
    old: VecDeque<Entry>,
    old_max: usize,
    next: u64,
    /// One above the highest seq answered.
    highest: u64,
    /// First seq of the window: lower ones belong to the warm-up.
    window: u64,
    open: u64,
    timeout: u64,
    /// Which bits of a seq the replies carry.
    carried: u64,
}

impl Pending {
    /// For replies that carry the low `seq_bits` bits of a seq.
    pub(crate) fn new(plan: &Plan, seq_bits: u32) -> Self {
        let old_max = if plan.mode == Mode::Rr { plan.pending_per_flow() } else { 0 };
        let usual = match plan.peak_rate() {
            Some(rate) if plan.mode == Mode::Rr => (rate / f64::from(plan.flows) * USUAL) as u64,
            _ => old_max,
        };
        let ring = usual.clamp(4, RING_MAX).next_power_of_two() as usize;
        Self {
            ring: vec![Entry::NONE; ring].into(),
            old: touched(old_max as usize),
            old_max: old_max as usize,
            next: 0,
            highest: 0,
            window: u64::MAX,
            open: 0,
            timeout: u64::try_from(plan.timeout.as_nanos()).unwrap_or(u64::MAX),
            carried: u64::MAX.checked_shr(u64::BITS.saturating_sub(seq_bits)).unwrap_or(0),
        }
    }

    /// The seq of the next request.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// The seq of the newest request sent whose carried bits are those of `bits`. If the replies carry all bits, or no
    /// such request was sent, `bits` itself.
    #[inline]
    pub(crate) fn complete(&self, bits: u64) -> u64 {
        let newest = match self.next.checked_sub(1) {
            Some(newest) if self.carried != u64::MAX => newest,
            _ => return bits,
        };
        newest.checked_sub(newest.wrapping_sub(bits) & self.carried).unwrap_or(bits)
    }

    /// Requests sent and not answered, given up or not.
    pub(crate) fn open(&self) -> u64 {
        self.open
    }

    /// Makes the next request the first of the window, unless the window has already begun: it and later ones count.
    pub(crate) fn begin_window(&mut self) {
        self.window = self.window.min(self.next);
    }

    /// Whether this seq belongs to the window.
    pub(crate) fn counts(&self, seq: u64) -> bool {
        seq >= self.window
    }

    /// Whether there is room for `n` more requests. False if one still within its timeout would have to be dropped.
    pub(crate) fn room(&mut self, n: u64, now: u64) -> bool {
        // In the worst case each of them pushes an open one out of the ring.
        while self.old.len() as u64 + n > self.old_max as u64 {
            match self.old.front() {
                Some(e) if e.open() && now < e.sent().saturating_add(self.timeout) => {
                    return self.compact(n);
                }
                Some(e) => {
                    self.open -= u64::from(e.open());
                    self.old.pop_front();
                }
                // A run longer than the table: the table is never smaller than a run (plan), so this ends here.
                None => return true,
            }
        }
        true
    }

    /// Drops the answered ones from the middle of `old`. Rare: only when an old request blocks a full table.
    fn compact(&mut self, n: u64) -> bool {
        self.old.retain(Entry::open);
        self.old.len() as u64 + n <= self.old_max as u64
    }

    /// Adds the next request. The caller has checked [`Pending::room`].
    pub(crate) fn insert(&mut self, intended: u64, sent: u64) {
        let slot = self.slot(self.next);
        let before = self.ring[slot];
        if before.open() {
            self.old.push_back(before);
        }
        self.ring[slot] = Entry::new(self.next, intended, sent);
        self.next += 1;
        self.open += 1;
    }

    /// Skips a seq whose request the kernel refused.
    pub(crate) fn skip(&mut self) {
        let slot = self.slot(self.next);
        let before = self.ring[slot];
        if before.open() {
            self.old.push_back(before);
        }
        self.ring[slot] = Entry::NONE;
        self.next += 1;
    }

    /// Skips the seqs of `count` requests of a one-way mode, which are never answered.
    pub(crate) fn skip_many(&mut self, count: u64) {
        debug_assert!(self.open == 0, "one-way requests are not kept");
        self.next += count;
    }

    /// Records a valid reply to `seq` at `now`.
    pub(crate) fn answer(&mut self, seq: u64, now: u64) -> Seen {
        if seq >= self.next {
            return Seen::Never;
        }
        let entry = if self.next - seq <= self.ring.len() as u64 {
            let slot = self.slot(seq);
            &mut self.ring[slot]
        } else {
            // Distances from the newest seq fall along `old`; they fit 32 bits as long as the table does.
            let next = self.next as u32;
            let distance = |s: u32| next.wrapping_sub(s);
            let wanted = distance(seq as u32);
            match self.old.binary_search_by(|e| wanted.cmp(&distance(e.seq))) {
                Ok(i) if self.next - seq <= u64::from(u32::MAX) => &mut self.old[i],
                _ => return Seen::Duplicate,
            }
        };
        if !entry.open() {
            return Seen::Duplicate;
        }
        let answer = Answer {
            intended: entry.intended(),
            sent: entry.sent(),
            late: now.saturating_sub(entry.sent()) > self.timeout,
            reordered: seq < self.highest,
            given_up: entry.intended & GIVEN_UP != 0,
        };
        entry.intended = ANSWERED;
        self.open -= 1;
        self.highest = self.highest.max(seq + 1);
        Seen::First(answer)
    }

    /// Gives up every request past its timeout; returns how many. For the closed loop, whose tables are small.
    pub(crate) fn give_up(&mut self, now: u64) -> u32 {
        if self.open == 0 {
            return 0;
        }
        let timeout = self.timeout;
        let mut given_up = 0;
        for e in self.old.iter_mut().chain(self.ring.iter_mut()) {
            if e.open() && e.intended & GIVEN_UP == 0 && now > e.sent().saturating_add(timeout) {
                e.intended |= GIVEN_UP;
                given_up += 1;
            }
        }
        given_up
    }

    fn slot(&self, seq: u64) -> usize {
        seq as usize & (self.ring.len() - 1)
    }
}

#[cfg(test)]
mod tests;
