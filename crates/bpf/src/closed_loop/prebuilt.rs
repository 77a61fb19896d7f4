//! Requests of any protocol, prepared before the run: what `bpf/prebuilt_loop.bpf.c` sends, and how it judges the
//! replies.
//!
//! ```text
//!   requests ──▶ [ length, sum | payload with zeros for the identifier ] ... blocks of 64 bytes
//!   Id, flows, requests in flight ──▶ IdCode: number, flow and place of a transaction ⇄ the bits of its identifier
//!   ReplyRules ──▶ a few comparisons per reply
//! ```
//! Either all slots send the same requests in turn, and the program writes each identifier; or each slot has requests
//! of its own, which are signed and must not be changed: they are written with the identifiers of their transactions.

mod code;
mod declared;
mod order;

use std::fmt;
use std::sync::atomic::Ordering::Release;

use aya::EbpfLoader;

use super::echo::ones_complement_sum;
use crate::Error;
use crate::shared_array::SharedArray;
use code::IdCode;

pub use declared::{Element, Id, ReplyRules, Rule, Verdict};
pub(super) use order::Order;

/// Most requests of a table.
pub const MAX_REQUESTS: usize = 65_536;
/// The longest request, bytes: with its length and sum, it fills the program's `MAX_BLOCKS` blocks.
pub const MAX_REQUEST_LEN: usize = (MAX_BLOCKS * BLOCK_WORDS - 1) * 8;
/// Most rules: `MAX_RULES` of the program.
pub const MAX_RULES: usize = 12;
/// Most elements around the fields of a reply: `MAX_ELEMENTS` of the program.
pub const MAX_ELEMENTS: usize = 2;
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
    /// Too few requests for so many slots.
    #[error(
        "at most {most} requests in flight over all flows, each of which needs prebuilt requests of its own: lower --flows or \
         --inflight"
    )]
    Slots {
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
    /// There are too many elements around the identifier, or a request has none.
    Element,
    /// Lengths of replies.
    ReplyLength,
}

impl fmt::Display for Declared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Id => "identifier",
            Self::Rule => "rule for replies",
            Self::Element => "element around the identifier",
            Self::ReplyLength => "length of replies",
        })
    }
}

/// Requests prepared for a run.
#[derive(Debug)]
pub struct RequestTable {
    /// As they are sent, but with zeros where the program writes the identifier.
    requests: Vec<Vec<u8>>,
    /// The bits that were there; nothing if requests are not changed.
    own_ids: Vec<u64>,
    id: Id,
    reply: ReplyRules,
    code: IdCode,
    key: u64,
    inflight: u32,
    order: Order,
}

impl RequestTable {
    /// A table for `flows` flows with `inflight` requests in flight each, which all send `requests` in turn. `key`:
    /// random for each run, so that replies to an earlier one are not counted.
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
        check(&requests, id, &reply)?;
        let code =
            if id == Id::NONE { IdCode::none(inflight)? } else { IdCode::new(id.bits, flows, inflight)? };
        let own_ids = requests
            .iter_mut()
            .map(|request| {
                let own = id.read(request, id.at).unwrap_or(0) & id.mask();
                id.write(request, id.at, 0);
                own
            })
            .collect();
        let slots = u64::from(flows) * u64::from(inflight);
        let order = Order::shared(requests.len() as u32, slots);
        Ok(Self { requests, own_ids, id, reply, code, key: key & id.mask(), inflight, order })
    }

    /// A table in which each slot has requests of its own: those that `write` returns for a flow and a seq whose low
    /// `id.bits` bits are the request's identifier. At least `per_id` different requests of a slot have the same
    /// identifier, and are sent in turn.
    ///
    /// # Errors
    /// As [`RequestTable::new`]; too many slots.
    pub fn of_slots(
        id: Id,
        reply: ReplyRules,
        (flows, inflight): (u32, u32),
        key: u64,
        per_id: u32,
        mut write: impl FnMut(u32, u64) -> Vec<u8>,
    ) -> Result<Self, TableError> {
        let order = Order::of_slots(u64::from(flows) * u64::from(inflight), per_id)?;
        let code = IdCode::of_own(id.bits, inflight, order.log_numbers(per_id))?;
        let mut table = Self {
            requests: Vec::new(),
            own_ids: Vec::new(),
            id,
            reply,
            code,
            key: key & id.mask(),
            inflight,
            order,
        };
        table.requests = (0..order.count(flows * inflight))
            .map(|request| {
                let (flow, seq) = table.transaction(request);
                write(flow, seq)
            })
            .collect();
        check(&table.requests, id, &table.reply)?;
        for (request, bytes) in (0..).zip(&table.requests) {
            let moved = table.reply.moved(bytes).ok_or(TableError::Declaration(Declared::Element))?;
            let (found, meant) = (id.read(bytes, id.at + moved), table.transaction(request).1);
            if found.is_none_or(|found| (found ^ meant) & id.mask() != 0) {
                return Err(TableError::Declaration(Declared::Id));
            }
        }
        Ok(table)
    }

    /// The flow and the seq of a request as the protocol wrote it. A slot sends its own requests by the low bits of its
    /// seq.
    #[must_use]
    pub fn transaction(&self, request: u32) -> (u32, u64) {
        let Some((slot, seq)) = self.order.own(request) else { return (0, u64::from(request)) };
        let (flow, place) = (slot / self.inflight, slot % self.inflight);
        let id = (self.code.encode(flow, place, seq) ^ self.key) & self.id.mask();
        (flow, self.code.turn(seq) << self.id.bits | id)
    }

    /// Number of different requests.
    #[must_use]
    pub fn count(&self) -> usize {
        self.requests.len()
    }

    /// Writes request `request` of transaction `seq` of the slot at `place` in `flow`. Nothing if there is no such
    /// request.
    pub fn write(&self, request: u32, (flow, place): (u32, u32), seq: u64, to: &mut Vec<u8>) {
        to.clear();
        to.extend(self.requests.get(request as usize).into_iter().flatten());
        if self.order.is_shared() {
            self.id.write(to, self.id.at, self.code.encode(flow, place, seq) ^ self.key);
        }
    }

    /// Makes a reply to a transaction of request `request` the reply to the request as the protocol wrote it.
    pub fn restore(&self, request: u32, reply: &mut [u8]) {
        if let Some(own) = self.own_ids.get(request as usize) {
            self.id.write(reply, self.id.echoed_at, *own);
        }
    }

    /// The order in which slots send requests.
    pub(super) fn order(&self) -> Order {
        self.order
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

/// Checks what the program must be able to carry out.
fn check(requests: &[Vec<u8>], id: Id, reply: &ReplyRules) -> Result<(), TableError> {
    let count = requests.len();
    if count == 0 || count > MAX_REQUESTS {
        return Err(TableError::Requests(count));
    }
    let known =
        id == Id::NONE || matches!(id.width, 1 | 2 | 4 | 8) && (1..=id.width as u32 * 8).contains(&id.bits);
    let within = |at: usize, len: usize| at.checked_add(len).is_some_and(|end| end <= reply.min);
    if !known || !within(id.echoed_at, id.width) {
        return Err(TableError::Declaration(Declared::Id));
    }
    if reply.rules.len() > MAX_RULES || reply.rules.iter().any(|rule| !within(rule.at, 4)) {
        return Err(TableError::Declaration(Declared::Rule));
    }
    if reply.within.len() > MAX_ELEMENTS || reply.within.iter().any(|element| !within(element.at, 2)) {
        return Err(TableError::Declaration(Declared::Element));
    }
    if reply.min > reply.max || reply.max > MAX_REPLY_LEN {
        return Err(TableError::Declaration(Declared::ReplyLength));
    }
    let least = id.at.saturating_add(id.width);
    match requests.iter().map(Vec::len).find(|len| !(least..=MAX_REQUEST_LEN).contains(len)) {
        Some(len) => Err(TableError::Length { len, least }),
        None => Ok(()),
    }
}

/// The program's constants.
#[derive(Debug)]
pub(super) struct Constants {
    numbers: [(&'static str, u32); 14],
    masks: [(&'static str, u64); 4],
    rules: [[u32; 4]; MAX_RULES],
    elements: [[u32; 2]; MAX_ELEMENTS],
}

impl Constants {
    pub(super) fn new(table: &RequestTable) -> Self {
        let RequestTable { id, reply, code, .. } = table;
        let mut rules = [[0; 4]; MAX_RULES];
        for (place, rule) in rules.iter_mut().zip(&*reply.rules) {
            *place = rule.words();
        }
        let mut elements = [[0; 2]; MAX_ELEMENTS];
        for (place, element) in elements.iter_mut().zip(&reply.within) {
            *place = [element.at as u32, element.tag.into()];
        }
        Self {
            numbers: [
                ("requests_len", table.requests.len() as u32),
                ("stride", table.stride() as u32),
                ("step", table.order.step()),
                ("own_mask", table.order.own_mask()),
                ("reply_min", reply.min as u32),
                ("reply_max", reply.max as u32),
                ("id_at", id.at as u32),
                ("id_echoed_at", id.echoed_at as u32),
                ("id_width", id.width as u32),
                ("flow_shift", code.flow_shift()),
                ("number_shift", code.number_shift()),
                ("inflight", table.inflight),
                ("rules_len", reply.rules.len() as u32),
                ("elements_len", reply.within.len() as u32),
            ],
            masks: [
                ("id_mask", id.mask()),
                ("id_key", table.key),
                ("flow_mask", code.flow_mask()),
                ("number_mask", code.number_mask()),
            ],
            rules,
            elements,
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
        loader.override_global("elements", &self.elements, true);
    }
}

#[cfg(test)]
mod tests;
