//! The answer index: every answer of every zone, composed once when the zones are loaded.
//!
//! ```text
//!  question's name, lowercased ─▸ hash ─▸ table: tag (32 bits) | offset (32 bits), open addressing
//!                                                                   │ one arena of bytes
//!  node     flags | zone | name | types: (type, offset) ... ◂───────┘
//!                                               │
//!  section  lengths | flags | counts | places of pointers | records, as they follow the question
//! ```
//! A section's compression pointers count from the start of a message whose question is the node's own name. For a question with
//! another name (below a delegation, matched by a wildcard, missing in a zone) the records stand further back by the difference in
//! length, and so does what the pointers point to: adding the difference to each listed pointer is all that is left to do.
//!
//! A name that exists costs one probe of the table and one copy; one that does not, a probe for each label up to the name that
//! does.

pub(super) mod build;
mod compose;
mod resolve;

use super::name::{self, QueryName};
use super::wire::{rcode, rtype};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Index {
    arena: Vec<u8>,
    table: Vec<Slot>,
    zones: Vec<ZoneEntry>,
    /// Labels of the longest name: a longer one is not here, and need not be searched for label by label.
    depth: usize,
}

/// A place of the table; `at` 0 is free.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    /// The upper half of the name's hash: most other names differ in it, and are not compared.
    tag: u32,
    at: u32,
}

/// What a zone has for all its names.
#[derive(Debug, Clone, Copy)]
struct ZoneEntry {
    /// Length of the apex's name.
    apex_len: u8,
    /// The section with the SOA record for negative answers, relative to the apex.
    negative: u32,
    /// DS records of its apex are asked of the loaded zone above, which does not have the name: as if this zone were not there.
    ds_above: bool,
    /// Its names have no answers.
    left_out: bool,
}

/// Flags of a node.
mod node_flag {
    /// Names below it belong to other servers.
    pub(super) const DELEGATION: u8 = 1;
    /// Names below it are elsewhere (RFC 6672).
    pub(super) const ALIAS: u8 = 2;
    /// There is a name `*` right below it.
    pub(super) const WILDCARD: u8 = 4;
}

/// The entry of a node for all types that it does not list: a referral, or an alias and no record of the type.
const OTHER_TYPES: u16 = 0;

/// What there is to say to a question.
#[derive(Debug, Clone, Copy)]
pub(super) enum Found<'a> {
    /// These records.
    Section(Section<'a>),
    /// The name exists, and the query is for all its types.
    AnyType,
    /// The name is below one with a DNAME record: that record, and how many labels of the question are in front of its owner.
    Alias(Section<'a>, usize),
    /// No loaded zone has the name.
    NotOurs,
}

/// Composed records, to be copied behind a question.
#[derive(Debug, Clone, Copy)]
pub(super) struct Section<'a> {
    /// Whether the answer is authoritative.
    pub(super) authoritative: bool,
    pub(super) rcode: u16,
    /// Records in the answer, authority and additional sections.
    pub(super) counts: [u16; 3],
    pub(super) body: &'a [u8],
    /// Bytes of `body` without the additional records that a client can do without.
    pub(super) required: usize,
    /// Offsets in `body` of the pointers to move by `shift`, 2 bytes each.
    places: &'a [u8],
    /// How much longer the question's name is than the one that the section was composed for; may be negative, and is added
    /// modulo 2^16.
    shift: u16,
    /// Where it is in the arena: which answer it is.
    pub(super) id: u32,
}

impl Section<'_> {
    /// Copies the first `len` bytes of the records to `out`, which has as many.
    #[inline]
    pub(super) fn copy_to(&self, out: &mut [u8]) {
        let len = out.len().min(self.body.len());
        out[..len].copy_from_slice(&self.body[..len]);
        if self.shift == 0 {
            return;
        }
        for place in self.places.as_chunks::<2>().0 {
            let at = usize::from(u16::from_be_bytes(*place));
            // A pointer behind what was asked for is not copied.
            if let Some(pointer) = out.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<2>) {
                *pointer = u16::from_be_bytes(*pointer).wrapping_add(self.shift).to_be_bytes();
            }
        }
    }
}

impl Index {
    /// What there is to say to a question of class IN.
    #[inline]
    pub(super) fn find(&self, name: &QueryName, qtype: u16) -> Found<'_> {
        if let Some(node) = self.node(name.wire())
            && (qtype != rtype::DS || !self.is_asked_above(node, name))
        {
            return self.at(node, qtype, name, 0).unwrap_or(Found::NotOurs);
        }
        for labels in name.labels().saturating_sub(self.depth).max(1)..=name.labels() {
            if let Some(encloser) = self.node(name.suffix(labels)) {
                return self.below(encloser, name, labels, qtype).unwrap_or(Found::NotOurs);
            }
        }
        Found::NotOurs
    }

    /// Number of zones that are served.
    pub(super) fn zones(&self) -> usize {
        self.zones.iter().filter(|zone| !zone.left_out).count()
    }

    /// Number of names, those without records included.
    pub(super) fn names(&self) -> usize {
        self.table.iter().filter(|slot| slot.at != 0).count()
    }

    /// Memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.arena.capacity() + self.table.capacity() * size_of::<Slot>()
    }

    /// The node's answer to a question that is `shift` bytes longer than its name. `None` never happens with an arena that
    /// [`build`] made.
    #[inline]
    fn at(&self, node: Node<'_>, qtype: u16, name: &QueryName, shift: u16) -> Option<Found<'_>> {
        if qtype == rtype::ANY && node.flags & node_flag::DELEGATION == 0 {
            return Some(Found::AnyType);
        }
        match node.entry(qtype).or_else(|| node.entry(OTHER_TYPES)) {
            Some(at) => Some(Found::Section(self.section(at, shift)?)),
            None => self.negative(node.zone, name, rcode::NOERROR),
        }
    }

    /// Whether the name is an apex of which the zone above says that it does not exist (RFC 4035, 3.1.4.1).
    fn is_asked_above(&self, node: Node<'_>, name: &QueryName) -> bool {
        let zone = self.zones.get(usize::from(node.zone));
        zone.is_some_and(|zone| zone.ds_above && usize::from(zone.apex_len) == name.wire().len())
    }

    /// The answer to a name that is not in the table, but the one without its first `labels` labels is.
    fn below(&self, encloser: Node<'_>, name: &QueryName, labels: usize, qtype: u16) -> Option<Found<'_>> {
        let (whole, known) = (name.wire().len(), name.suffix(labels));
        let shift = |len: usize| (whole as u16).wrapping_sub(len as u16);
        if encloser.flags & node_flag::DELEGATION != 0 {
            let at = encloser.entry(OTHER_TYPES)?;
            return Some(Found::Section(self.section(at, shift(known.len()))?));
        }
        if encloser.flags & node_flag::ALIAS != 0 {
            let at = encloser.entry(rtype::DNAME)?;
            return Some(Found::Alias(self.section(at, shift(known.len()))?, labels));
        }
        if encloser.flags & node_flag::WILDCARD != 0 {
            let mut wildcard = [0; name::MAX_NAME + 2];
            wildcard[..2].copy_from_slice(b"\x01*");
            wildcard[2..][..known.len()].copy_from_slice(known);
            let node = self.node(&wildcard[..2 + known.len()])?;
            return self.at(node, qtype, name, shift(2 + known.len()));
        }
        self.negative(encloser.zone, name, rcode::NXDOMAIN)
    }

    /// A negative answer of a zone to a question for a name in it.
    fn negative(&self, zone: u16, name: &QueryName, rcode: u16) -> Option<Found<'_>> {
        let zone = self.zones.get(usize::from(zone))?;
        let shift = (name.wire().len() as u16).wrapping_sub(u16::from(zone.apex_len));
        let section = self.section(zone.negative, shift)?;
        let rcode = if zone.left_out { section.rcode } else { rcode };
        Some(Found::Section(Section { rcode, ..section }))
    }

    /// The node of a lowercased name.
    #[inline]
    fn node(&self, wire: &[u8]) -> Option<Node<'_>> {
        let (tag, mut place) = slot_of(name::hash(wire), self.table.len())?;
        // The table always has free places.
        loop {
            let slot = self.table.get(place)?;
            if slot.at == 0 {
                return None;
            }
            if slot.tag == tag
                && let Some(node) = Node::read(&self.arena, slot.at, wire)
            {
                return Some(node);
            }
            place = if place + 1 == self.table.len() { 0 } else { place + 1 };
        }
    }

    /// The section at an offset of the arena. The opposite of [`compose`]'s.
    #[inline]
    fn section(&self, at: u32, shift: u16) -> Option<Section<'_>> {
        let bytes = self.arena.get(at as usize..)?;
        let [l0, l1, r0, r1, flags, p0, p1, counts @ ..] = *bytes.first_chunk::<SECTION_HEADER>()?;
        let number = |high, low| usize::from(u16::from_be_bytes([high, low]));
        let (places, rest) = bytes[SECTION_HEADER..].split_at_checked(2 * number(p0, p1))?;
        let [a0, a1, n0, n1, x0, x1] = counts;
        Some(Section {
            authoritative: flags & AUTHORITATIVE != 0,
            rcode: u16::from(flags & 0xf),
            counts: [
                u16::from_be_bytes([a0, a1]),
                u16::from_be_bytes([n0, n1]),
                u16::from_be_bytes([x0, x1]),
            ],
            body: rest.get(..number(l0, l1))?,
            required: number(r0, r1),
            places,
            shift,
            id: at,
        })
    }
}

/// The tag of a hash and its first place in a table of this length; `None` without places.
#[inline]
fn slot_of(hash: u64, len: usize) -> Option<(u32, usize)> {
    // The lower half, scaled to the table's length: any length will do.
    let place = ((hash & 0xffff_ffff) * len as u64) >> 32;
    (len > 0).then_some(((hash >> 32) as u32, place as usize))
}

/// Bytes of a section before its places: length, required, flags, number of places, three counts.
const SECTION_HEADER: usize = 13;
/// Flag of a section; the lower 4 bits are the response code.
const AUTHORITATIVE: u8 = 0x80;

/// A name of the index.
#[derive(Debug, Clone, Copy)]
struct Node<'a> {
    flags: u8,
    zone: u16,
    /// 6 bytes each: type and offset of the section.
    entries: &'a [[u8; 6]],
}

impl<'a> Node<'a> {
    /// The node at an offset, if it has this name.
    #[inline]
    fn read(arena: &'a [u8], at: u32, wire: &[u8]) -> Option<Self> {
        let node = arena.get(at as usize..)?;
        let [flags, z0, z1, len] = *node.first_chunk()?;
        let (name, rest) = node[4..].split_at_checked(usize::from(len))?;
        if name != wire {
            return None;
        }
        let (count, rest) = rest.split_first()?;
        let entries = rest.get(..6 * usize::from(*count))?.as_chunks().0;
        Some(Self { flags, zone: u16::from_be_bytes([z0, z1]), entries })
    }

    /// The offset of the section for a type.
    #[inline]
    fn entry(&self, rtype: u16) -> Option<u32> {
        let [t0, t1] = rtype.to_be_bytes();
        let found = self.entries.iter().find(|entry| [entry[0], entry[1]] == [t0, t1])?;
        let [_, _, offset @ ..] = *found;
        Some(u32::from_be_bytes(offset))
    }
}

#[cfg(test)]
mod tests;
