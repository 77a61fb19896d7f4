//! Composes one section: records with names compressed against the question and each other (RFC 1035, 4.1.4).

use super::super::answer::OPT;
use super::super::cookie::OPTION;
use super::super::name;
use super::super::records::{Record, Records, names_in};
use super::super::wire::{HEADER, class, rcode};
use super::denial::Set;
use super::{AUTHORITATIVE, FLAGS, SECTION_HEADER, SIGNED};

/// Farthest place that a pointer may name: 14 bits, less what a longer question can add.
const MAX_POINTER: usize = 0x3fff - name::MAX_NAME;
/// Names remembered for compression. More make large answers slow to compose, fewer make them longer.
const MAX_KNOWN: usize = 64;

/// Which pointers move when the question's name is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Question {
    /// The name is the node's own: none.
    Exact,
    /// The name is below the node's or is the node's: all.
    Below,
    /// The node is a wildcard: all but those to the whole name.
    Wildcard,
}

/// Which section the next records belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Answer,
    Authority,
    Additional,
}

/// An answer that does not fit a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLong {
    /// Bytes of its records.
    pub(super) len: usize,
    /// As many as may be.
    pub(super) most: usize,
}

/// A section under composition. Its buffers are used again.
#[derive(Debug)]
pub(super) struct Composer {
    question: Question,
    /// Offset of the body in the message.
    base: usize,
    body: Vec<u8>,
    places: Vec<u16>,
    /// Names written so far, each with the place of its bytes in `names` and its offset in the message.
    known: Vec<(usize, usize, u16)>,
    names: Vec<u8>,
    counts: [u16; 3],
    pub(super) rcode: u8,
    pub(super) authoritative: bool,
    /// Whether it is the answer to a client that wants signatures.
    pub(super) signed: bool,
    /// Offsets of the sets of denial in it.
    sets: Vec<u32>,
    /// Where the records begin that a client can do without, and the number of additional ones before.
    optional: Option<(usize, u16)>,
}

impl Composer {
    pub(super) fn new() -> Self {
        Self {
            question: Question::Exact,
            base: 0,
            body: Vec::new(),
            places: Vec::new(),
            known: Vec::new(),
            names: Vec::new(),
            counts: [0; 3],
            rcode: 0,
            authoritative: true,
            signed: false,
            sets: Vec::new(),
            optional: None,
        }
    }

    /// Begins the section for a question with this lowercased name; `signed`: for a client that wants signatures.
    pub(super) fn begin(&mut self, wire: &[u8], question: Question, signed: bool) {
        let base = HEADER + wire.len() + 4;
        self.body.clear();
        self.places.clear();
        self.known.clear();
        self.names.clear();
        (self.question, self.base, self.counts) = (question, base, [0; 3]);
        (self.rcode, self.authoritative, self.signed, self.optional) = (0, true, signed, None);
        self.sets.clear();
        // A wildcard's own name is not in the question.
        let skipped = usize::from(question == Question::Wildcard);
        for start in name::label_starts(wire).skip(skipped) {
            self.know(&wire[start..], HEADER + start);
        }
    }

    /// Makes it an answer that says only that the server has none (SERVFAIL).
    pub(super) fn fail(&mut self) {
        self.body.clear();
        self.places.clear();
        self.sets.clear();
        self.counts = [0; 3];
        (self.rcode, self.authoritative, self.optional) = (rcode::SERVFAIL as u8, false, None);
    }

    /// The records that follow need not be in an answer without room for them.
    pub(super) fn optional_from_here(&mut self) {
        self.optional.get_or_insert((self.body.len(), self.counts[Part::Additional as usize]));
    }

    /// Adds a set of denial to the authority section, if it is not there yet; `at`: its offset, `apex`: the name of its
    /// zone.
    pub(super) fn set(&mut self, at: u32, set: Set<'_>, apex: &[u8]) {
        if self.sets.contains(&at) {
            return;
        }
        self.sets.push(at);
        let mut owner = Vec::new();
        set.owner(apex, &mut owner);
        for record in set.records() {
            self.name(&owner);
            self.body.extend_from_slice(record);
            self.count(Part::Authority);
        }
    }

    /// Adds a record of the question's name.
    pub(super) fn question_record(&mut self, records: &Records, record: &Record) {
        let moves = self.question == Question::Below;
        self.pointer(HEADER, moves);
        self.rest(records, record, record.ttl, Part::Answer);
    }

    /// Adds a record.
    pub(super) fn record(&mut self, owner: &[u8], records: &Records, record: &Record, part: Part) {
        self.record_with_ttl(owner, records, record, record.ttl, part);
    }

    /// Adds a record with another TTL.
    pub(super) fn record_with_ttl(
        &mut self,
        owner: &[u8],
        records: &Records,
        record: &Record,
        ttl: u32,
        part: Part,
    ) {
        self.name(owner);
        self.rest(records, record, ttl, part);
    }

    /// Type, class, TTL and data, after the owner.
    fn rest(&mut self, records: &Records, record: &Record, ttl: u32, part: Part) {
        self.body.extend(record.rtype.to_be_bytes());
        self.body.extend(class::IN.to_be_bytes());
        self.body.extend(ttl.to_be_bytes());
        let length = self.body.len();
        self.body.extend([0, 0]);
        let mut data = records.data(record);
        let (before, names) = names_in(record.rtype);
        let (fixed, rest) = data.split_at_checked(before).unwrap_or((data, &[]));
        self.body.extend_from_slice(fixed);
        data = rest;
        for _ in 0..names {
            let Some(len) = name::length(data) else { break };
            self.name(&data[..len]);
            data = &data[len..];
        }
        self.body.extend_from_slice(data);
        let len = (self.body.len() - length - 2) as u16;
        self.body[length..length + 2].copy_from_slice(&len.to_be_bytes());
        self.count(part);
    }

    fn count(&mut self, part: Part) {
        let count = &mut self.counts[part as usize];
        *count = count.saturating_add(1);
    }

    /// Adds a name: as much as is new of it, and a pointer to the rest.
    fn name(&mut self, wire: &[u8]) {
        for start in name::label_starts(wire) {
            let suffix = &wire[start..];
            if let Some(offset) = self.find(suffix) {
                return self.pointer(usize::from(offset), self.question != Question::Exact);
            }
            self.know(suffix, self.base + self.body.len());
            let label = &suffix[..1 + usize::from(suffix[0])];
            self.body.extend_from_slice(label);
        }
        self.body.push(0);
    }

    fn pointer(&mut self, offset: usize, moves: bool) {
        if moves {
            self.places.push(self.body.len() as u16);
        }
        self.body.extend((0xc000 | offset as u16).to_be_bytes());
    }

    fn find(&self, suffix: &[u8]) -> Option<u16> {
        let same =
            |(at, len, _): &&(usize, usize, u16)| self.names[*at..at + len].eq_ignore_ascii_case(suffix);
        self.known.iter().find(same).map(|(_, _, offset)| *offset)
    }

    fn know(&mut self, suffix: &[u8], offset: usize) {
        if offset <= MAX_POINTER && self.known.len() < MAX_KNOWN {
            self.known.push((self.names.len(), suffix.len(), offset as u16));
            self.names.extend_from_slice(suffix);
        }
    }

    /// Appends the section to the arena. [`super::Index::section`] reads it.
    pub(super) fn finish(&self, arena: &mut Vec<u8>) -> Result<(), TooLong> {
        self.finish_before(arena, 0)
    }

    /// The same of a section to which up to so many bytes are added in a reply.
    fn finish_before(&self, arena: &mut Vec<u8>, more: usize) -> Result<(), TooLong> {
        // With the question, an OPT record and a cookie it must still be a message. The question's name may be any
        // where it is not the node's.
        let before = if self.question == Question::Exact { self.base } else { HEADER + name::MAX_NAME + 4 };
        let (len, most) = (self.body.len(), usize::from(u16::MAX) - before - OPT - OPTION - more);
        if len > most {
            return Err(TooLong { len, most });
        }
        let (required, glue) =
            self.optional.unwrap_or((self.body.len(), self.counts[Part::Additional as usize]));
        let before = arena.len();
        arena.extend((self.body.len() as u16).to_be_bytes());
        arena.extend((required as u16).to_be_bytes());
        arena.push(self.rcode | if self.authoritative { AUTHORITATIVE } else { 0 });
        arena.extend((self.places.len() as u16).to_be_bytes());
        arena.extend(self.counts.iter().flat_map(|count| count.to_be_bytes()));
        arena.extend(glue.to_be_bytes());
        arena.push(self.sets.len() as u8);
        debug_assert_eq!(arena.len() - before, SECTION_HEADER);
        arena.extend(self.places.iter().flat_map(|place| place.to_be_bytes()));
        arena.extend(self.sets.iter().flat_map(|set| set.to_be_bytes()));
        arena.extend_from_slice(&self.body);
        Ok(())
    }

    /// Appends it as the signed form of the section at `plain`, which ends where the arena does. If both are the same,
    /// one is enough. `more`: bytes of the proofs that are added in a reply, at most.
    pub(super) fn finish_signed(
        &self,
        arena: &mut Vec<u8>,
        plain: usize,
        more: usize,
    ) -> Result<(), TooLong> {
        let end = arena.len();
        self.finish_before(arena, more)?;
        if arena[plain..end] == arena[end..] {
            arena.truncate(end);
        } else {
            arena[plain + FLAGS] |= SIGNED;
        }
        Ok(())
    }
}
