//! All queries of a load, composed once, one behind the other.
//!
//! ```text
//!   bytes   | id 0, flags, 1 question, 0/1 record | name, type, class IN | OPT? | next query ...
//!   starts  ^ one per query, and the end
//! ```
//! To send one is to copy it and to write its identifier; to check a reply is to compare its question with the copy
//! here.

use udpath_load::template::Lengths;

use super::ids::scramble;
use super::name::MAX_NAME;

/// Bytes of a header, and where the question begins (RFC 1035, 4.1.1).
pub(super) const HEADER: usize = 12;
/// Type and class behind a question's name.
const QUESTION_TAIL: usize = 4;
/// Bytes of an OPT record without options (RFC 6891, 6.1).
const OPT_LEN: usize = 11;
/// The longest query, bytes.
pub const MAX_QUERY: usize = HEADER + MAX_NAME + QUESTION_TAIL + OPT_LEN;
/// Most queries of a load. More: their offsets may not fit 32 bits. Fewer would do for any server: it has cached
/// nothing of so many.
pub(super) const MAX_QUERIES: usize = 8 << 20;

/// RD as a stub resolver sets it; everything else 0: a standard query.
const FLAGS: [u8; 2] = [1, 0];
const CLASS_IN: u16 = 1;
const TYPE_OPT: u16 = 41;
/// DNSSEC OK, in the flags of OPT (RFC 3225).
const DNSSEC_OK: u16 = 0x8000;

/// Which queries have an OPT record, and what it says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Edns {
    /// Share of the queries that have one, 0 to 100 per cent.
    pub(super) percent: u8,
    /// Longest reply that the sender accepts, bytes.
    pub(super) size: u16,
    /// Whether DNSSEC records are wanted.
    pub(super) dnssec: bool,
}

impl Edns {
    /// Whether some queries have a record and others have none.
    pub(super) fn is_mixed(self) -> bool {
        (1..100).contains(&self.percent)
    }
}

/// The same pseudo-random numbers in every run: all runs send the same queries.
#[derive(Debug, Clone, Default)]
pub(super) struct Draw(u64);

impl Draw {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        scramble(self.0)
    }

    /// True in `percent` of all cases.
    pub(super) fn happens(&mut self, percent: u8) -> bool {
        self.next() % 100 < u64::from(percent)
    }
}

/// Composes queries.
#[derive(Debug)]
pub(super) struct Composer {
    bytes: Vec<u8>,
    starts: Vec<u32>,
    edns: Edns,
    draw: Draw,
}

impl Composer {
    pub(super) fn new(edns: Edns) -> Self {
        Self { bytes: Vec::new(), starts: vec![0], edns, draw: Draw::default() }
    }

    /// Number of queries so far.
    pub(super) fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// Adds a query for `name`, in its form in messages. False: there are [`MAX_QUERIES`] already.
    pub(super) fn push(&mut self, name: &[u8], rtype: u16) -> bool {
        if self.count() >= MAX_QUERIES || name.len() > MAX_NAME {
            return false;
        }
        let edns = self.draw.happens(self.edns.percent);
        self.bytes.extend([0, 0, FLAGS[0], FLAGS[1], 0, 1, 0, 0, 0, 0, 0, u8::from(edns)]);
        self.bytes.extend(name);
        for field in [rtype, CLASS_IN] {
            self.bytes.extend(field.to_be_bytes());
        }
        if edns {
            let flags = if self.edns.dnssec { DNSSEC_OK } else { 0 };
            self.bytes.push(0);
            for field in [TYPE_OPT, self.edns.size, 0, flags, 0] {
                self.bytes.extend(field.to_be_bytes());
            }
        }
        // Fits: the bytes of MAX_QUERIES of the longest do.
        self.starts.push(self.bytes.len() as u32);
        true
    }

    /// Repeats all queries until there are at least `count`, each with or without an OPT record of its own: so that
    /// shares are met though the queries are few.
    pub(super) fn repeat(&mut self, count: usize) {
        let once = self.count();
        if once == 0 {
            return;
        }
        for index in (0..once).cycle().take(count.saturating_sub(once).next_multiple_of(once)) {
            let query = self.bytes[self.starts[index] as usize..self.starts[index + 1] as usize].to_vec();
            let (name, rtype) = Query(&query).name_and_type();
            self.push(name, rtype);
        }
    }

    /// The queries; none without any.
    pub(super) fn finish(self) -> Option<Queries> {
        let longest = self.starts.windows(2).map(|pair| pair[1] - pair[0]).max()?;
        let (total, count) = (self.bytes.len(), self.count());
        Some(Queries {
            bytes: self.bytes.into(),
            starts: self.starts.into(),
            lengths: Lengths { longest: longest as usize, mean: total / count },
        })
    }
}

/// One or more queries.
#[derive(Debug)]
pub(super) struct Queries {
    bytes: Box<[u8]>,
    starts: Box<[u32]>,
    lengths: Lengths,
}

impl Queries {
    /// How long they are.
    pub(super) fn lengths(&self) -> Lengths {
        self.lengths
    }

    /// Number of queries.
    pub(super) fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// Query `number` in order, from the first again behind the last.
    #[inline]
    pub(super) fn get(&self, number: u64) -> Query<'_> {
        let count = self.starts.len() as u64 - 1;
        let index = (number % count) as usize;
        let (start, end) = (self.starts[index] as usize, self.starts[index + 1] as usize);
        Query(&self.bytes[start..end])
    }
}

/// A query as it is sent, but for its identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Query<'a>(&'a [u8]);

impl<'a> Query<'a> {
    pub(super) fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Name, type and class.
    #[inline]
    pub(super) fn question(self) -> &'a [u8] {
        let opt = if self.has_opt() { OPT_LEN } else { 0 };
        &self.0[HEADER..self.0.len() - opt]
    }

    fn has_opt(self) -> bool {
        self.0[HEADER - 1] != 0
    }

    fn name_and_type(self) -> (&'a [u8], u16) {
        let question = self.question();
        let (name, tail) = question.split_at(question.len() - QUESTION_TAIL);
        (name, u16::from_be_bytes([tail[0], tail[1]]))
    }
}
