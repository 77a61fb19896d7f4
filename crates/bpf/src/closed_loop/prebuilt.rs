//! Requests of any protocol, prepared before the run: what `bpf/prebuilt_loop.bpf.c` sends, and how it judges the replies.
//!
//! ```text
//!   requests ──▶ [ length, sum | payload with zeros for the identifier ] ... blocks of 64 bytes
//!   Id, flows, requests in flight ──▶ IdCode: number, flow and place of a transaction ⇄ the bits of its identifier
//!   ReplyRules ──▶ a few comparisons per reply
//! ```

mod code;
mod declared;

use std::fmt;
use std::sync::atomic::Ordering::Release;

use aya::EbpfLoader;

use super::echo::ones_complement_sum;
use crate::Error;
use crate::shared_array::SharedArray;
use code::IdCode;

pub use declared::{Id, ReplyRules, Rule, Verdict};

/// Most requests of a table.
pub const MAX_REQUESTS: usize = 65_536;
/// The longest request, bytes: with its length and sum, it fills the program's `MAX_BLOCKS` blocks.
pub const MAX_REQUEST_LEN: usize = (MAX_BLOCKS * BLOCK_WORDS - 1) * 8;
/// Most rules: `MAX_RULES` of the program.
pub const MAX_RULES: usize = 12;
/// The longest reply, bytes: what UDP carries.
const MAX_REPLY_LEN: usize = 65_507;
const BLOCK_WORDS: usize = 8;
const MAX_BLOCKS: usize = 24;

/// Why requests cannot be prepared. All but the last are faults of the protocol's declaration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// None, or too many.
    #[error("{0} prebuilt requests: expected 1 to 65,536")]
    Requests(usize),
    /// A request that is too long, or too short for its identifier.
    #[error("a prebuilt request has {len} bytes: expected {least} to {most}", most = MAX_REQUEST_LEN)]
    Length {
        /// Its bytes.
        len: usize,
        /// End of its identifier.
        least: usize,
    },
    /// A field that the program cannot read or write.
    #[error("prebuilt requests have an invalid {0}")]
    Declaration(Declared),
    /// Too few identifiers.
    #[error(
        "at most {most} requests in flight per flow fit its {bits}-bit identifiers: lower --inflight, raise --flows"
    )]
    InFlight {
        /// Bits that vary.
        bits: u32,
        /// Requests in flight that fit.
        most: u32,
    },
}

/// The invalid part of a declaration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Declared {
    /// Its width or bits, or it ends after the shortest reply.
    Id,
    /// One ends after the shortest reply, or there are too many.
    Rule,
    /// Lengths of replies.
    ReplyLength,
}

impl fmt::Display for Declared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Id => "identifier",
            Self::Rule => "rule for replies",
            Self::ReplyLength => "length of replies",
        })
    }
}

/// Requests prepared for a run.
#[derive(Debug)]
pub struct RequestTable {
    /// As they are sent, but with zeros for the varying bits of the identifier.
    requests: Vec<Vec<u8>>,
    /// The bits that were there.
    own_ids: Vec<u64>,
    id: Id,
    reply: ReplyRules,
    code: IdCode,
    key: u64,
    inflight: u32,
    step: u32,
}

impl RequestTable {
    /// A table for `flows` flows with `inflight` requests in flight each. `key`: random for each run, so that replies to an
    /// earlier one are not counted.
    ///
    /// # Errors
    /// A declaration that the program cannot carry out, or too few identifiers.
    pub fn new(
        mut requests: Vec<Vec<u8>>,
        id: Id,
        reply: ReplyRules,
        (flows, inflight): (u32, u32),
        key: u64,
    ) -> Result<Self, TableError> {
        let count = requests.len();
        if count == 0 || count > MAX_REQUESTS {
            return Err(TableError::Requests(count));
        }
        let known = matches!(id.width, 2 | 4 | 8) && (1..=id.width as u32 * 8).contains(&id.bits);
        let within = |at: usize, len: usize| at.checked_add(len).is_some_and(|end| end <= reply.min);
        if !known || !within(id.echoed_at, id.width) {
            return Err(TableError::Declaration(Declared::Id));
        }
        if reply.rules.len() > MAX_RULES || reply.rules.iter().any(|rule| !within(rule.at, 4)) {
            return Err(TableError::Declaration(Declared::Rule));
        }
        if reply.min > reply.max || reply.max > MAX_REPLY_LEN {
            return Err(TableError::Declaration(Declared::ReplyLength));
        }
        let least = id.at.saturating_add(id.width);
        if let Some(len) = requests.iter().map(Vec::len).find(|len| !(least..=MAX_REQUEST_LEN).contains(len))
        {
            return Err(TableError::Length { len, least });
        }
        let code = IdCode::new(id.bits, flows, inflight)?;
        let own_ids = requests
            .iter_mut()
            .map(|request| {
                let own = id.read(request, id.at).unwrap_or(0) & id.mask();
                id.write(request, id.at, 0);
                own
            })
            .collect();
        // Modulo the number of requests, so that the program's next() subtracts it once at most.
        let step = (u64::from(flows) * u64::from(inflight) % count as u64) as u32;
        Ok(Self { requests, own_ids, id, reply, code, key: key & id.mask(), inflight, step })
    }

    /// Writes request `request` of transaction `seq` of the slot at `place` in `flow`. Nothing if there is no such request.
    pub fn write(&self, request: u32, (flow, place): (u32, u32), seq: u64, to: &mut Vec<u8>) {
        to.clear();
        to.extend(self.requests.get(request as usize).into_iter().flatten());
        self.id.write(to, self.id.at, self.code.encode(flow, place, seq) ^ self.key);
    }

    /// Makes a reply to a transaction of request `request` the reply to the request as the protocol wrote it.
    pub fn restore(&self, request: u32, reply: &mut [u8]) {
        if let Some(own) = self.own_ids.get(request as usize) {
            self.id.write(reply, self.id.echoed_at, *own);
        }
    }

    /// The order in which slots send requests.
    pub(super) fn walk(&self) -> Walk {
        Walk { count: self.requests.len() as u32, step: self.step }
    }

    /// Blocks per request.
    fn stride(&self) -> usize {
        let longest = self.requests.iter().map(Vec::len).max().unwrap_or(0);
        (8 + longest).div_ceil(BLOCK_WORDS * 8)
    }

    /// Entries of the program's array `requests`.
    pub(super) fn blocks(&self) -> u32 {
        (self.requests.len() * self.stride()) as u32
    }

    /// Writes all requests into the program's array.
    pub(super) fn fill(&self, object: &aya::Ebpf, program: &'static str) -> Result<(), Error> {
        let stride = self.stride();
        let array = SharedArray::map(object, program, "requests", self.requests.len(), stride * BLOCK_WORDS)?;
        for (index, request) in self.requests.iter().enumerate() {
            let first = request.len() as u64 | u64::from(ones_complement_sum(request)) << 32;
            let payload = request.chunks(8).map(|bytes| {
                let mut word = [0; 8];
                word[..bytes.len()].copy_from_slice(bytes);
                u64::from_ne_bytes(word)
            });
            for (place, word) in array.element(index).iter().zip(std::iter::once(first).chain(payload)) {
                place.store(word, Release);
            }
        }
        Ok(())
    }
}

/// The order in which a slot sends requests: `next()` of the program.
#[derive(Debug, Clone, Copy)]
pub(super) struct Walk {
    count: u32,
    step: u32,
}

impl Walk {
    /// The first request of a slot.
    pub(super) fn first(self, slot: usize) -> u64 {
        slot as u64 % u64::from(self.count)
    }

    /// The one after `request`.
    pub(super) fn next(self, request: u64) -> u64 {
        (request + u64::from(self.step)) % u64::from(self.count)
    }
}

/// The program's constants.
#[derive(Debug)]
pub(super) struct Constants {
    numbers: [(&'static str, u32); 12],
    masks: [(&'static str, u64); 4],
    rules: [[u32; 4]; MAX_RULES],
}

impl Constants {
    pub(super) fn new(table: &RequestTable) -> Self {
        let RequestTable { id, reply, code, .. } = table;
        let mut rules = [[0; 4]; MAX_RULES];
        for (place, rule) in rules.iter_mut().zip(reply.rules) {
            *place = rule.words();
        }
        Self {
            numbers: [
                ("requests_len", table.requests.len() as u32),
                ("stride", table.stride() as u32),
                ("step", table.step),
                ("reply_min", reply.min as u32),
                ("reply_max", reply.max as u32),
                ("id_at", id.at as u32),
                ("id_echoed_at", id.echoed_at as u32),
                ("id_width", id.width as u32),
                ("flow_shift", code.flow_shift()),
                ("number_shift", code.number_shift()),
                ("inflight", table.inflight),
                ("rules_len", reply.rules.len() as u32),
            ],
            masks: [
                ("id_mask", id.mask()),
                ("id_key", table.key),
                ("flow_mask", code.flow_mask()),
                ("number_mask", code.number_mask()),
            ],
            rules,
        }
    }

    pub(super) fn set<'a>(&'a self, loader: &mut EbpfLoader<'a>) {
        for (name, value) in &self.numbers {
            loader.override_global(name, value, true);
        }
        for (name, value) in &self.masks {
            loader.override_global(name, value, true);
        }
        loader.override_global("rules", &self.rules, true);
    }
}

#[cfg(test)]
mod tests;
