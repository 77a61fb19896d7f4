//! The answer index: every answer of every zone, composed once when the zones are loaded.
//!
//! ```text
//!  question's name, lowercased ─▸ hash ─▸ table: tag (32 bits) | offset (32 bits), open addressing
//!                                                                   │ one arena of bytes
//!  node     flags | zone | name | types: (type, offset) ... ◂───────┘
//!                                               │
//!  section  lengths | flags | counts | places of pointers | records, as they follow the question
//!           in a signed zone, right after it the same with signatures
//! ```
//! A section's compression pointers count from the start of a message whose question is the node's own name. For a
//! question with another name (below a delegation, matched by a wildcard, missing in a zone) the records stand further
//! back by the difference in length, and so does what the pointers point to: adding the difference to each listed
//! pointer is all that is left to do.
//!
//! A name that exists costs one probe of the table and one copy; one that does not, a probe for each label up to the
//! name that does. Of a signed zone a client that asks for it is also shown a proof of what does not exist: [`denial`]
//! has its sets.

pub(super) mod build;
mod compose;
mod content;
mod denial;
mod resolve;

use self::denial::{Chain, Claim, Proof};
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
#[derive(Debug)]
struct ZoneEntry {
    /// Length of the apex's name.
    apex_len: u8,
    /// The section with the SOA record for negative answers, relative to the apex.
    negative: u32,
    /// DS records of its apex are asked of the loaded zone above, which does not have the name: as if this zone were
    /// not there.
    ds_above: bool,
    /// Its names have no answers.
    left_out: bool,
    /// It has signatures.
    signed: bool,
    /// What proves that its names and types do not exist.
    chain: Chain,
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

/// The entry of a node for a question for all its types, where one set of them is the answer: with signatures (RFC
/// 8482, 4.1).
const ANY_TYPE: u16 = rtype::ANY;

/// A question.
#[derive(Debug, Clone, Copy)]
struct Asked<'a> {
    name: &'a QueryName,
    qtype: u16,
    /// Whether the client wants signatures.
    dnssec: bool,
}

/// What there is to say to a question.
#[derive(Debug, Clone, Copy)]
pub(super) enum Found<'a> {
    /// These records.
    Section(Section<'a>),
    /// The name exists, and the query is for all its types.
    AnyType,
    /// The name is below one with a DNAME record: that record, and how many labels of the question are in front of its
    /// owner.
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
    /// Additional records among these.
    pub(super) glue: u16,
    /// More records of the authority section. A section that may have some has no glue.
    pub(super) proof: Proof<'a>,
    /// Offsets in `body` of the pointers to move by `shift`, 2 bytes each.
    places: &'a [u8],
    /// How much longer the question's name is than the one that the section was composed for; may be negative, and is
    /// added modulo 2^16.
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
    /// What there is to say to a question of class IN; `dnssec`: to a client that wants signatures.
    #[inline]
    pub(super) fn find(&self, name: &QueryName, qtype: u16, dnssec: bool) -> Found<'_> {
        let asked = Asked { name, qtype, dnssec };
        if let Some(node) = self.node(name.wire())
            && (qtype != rtype::DS || !self.is_asked_above(node, name))
        {
            return self.at(node, asked, 0, None).unwrap_or(Found::NotOurs);
        }
        for labels in name.labels().saturating_sub(self.depth).max(1)..=name.labels() {
            if let Some(encloser) = self.node(name.suffix(labels)) {
                return self.below(encloser, asked, labels).unwrap_or(Found::NotOurs);
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
        let chains: usize = self.zones.iter().map(|zone| zone.chain.bytes()).sum();
        self.arena.capacity() + self.table.capacity() * size_of::<Slot>() + chains
    }

    /// The node's answer to a question that is `shift` bytes longer than its name. `wildcard`: the node is one that
    /// stands for the name, which does not exist; so many labels of that are in front of the closest encloser. `None`
    /// never happens with an arena that [`build`] made.
    #[inline]
    fn at(&self, node: Node<'_>, asked: Asked<'_>, shift: u16, wildcard: Option<usize>) -> Option<Found<'_>> {
        let cut = node.flags & node_flag::DELEGATION != 0;
        let mut qtype = asked.qtype;
        if qtype == rtype::ANY && !cut {
            if !asked.dnssec || self.zones.get(usize::from(node.zone)).is_none_or(|zone| !zone.signed) {
                return Some(Found::AnyType);
            }
            qtype = ANY_TYPE;
        }
        let claim = |found: bool| match wildcard {
            None => Claim::NoData,
            Some(labels) if found => Claim::Wildcard(labels),
            Some(labels) => Claim::WildcardNoData(labels),
        };
        let Some(at) = node.entry(qtype).or_else(|| node.entry(OTHER_TYPES)) else {
            return self.negative(node.zone, asked, rcode::NOERROR, claim(false));
        };
        let mut section = self.section(at, shift, asked.dnssec)?;
        // What a wildcard's NS records mean is not defined (RFC 4592, 4.2), nor how it is proven.
        if asked.dnssec && wildcard.is_some() && !cut {
            self.prove(&mut section, node.zone, asked.name, claim(true));
        }
        Some(Found::Section(section))
    }

    /// Whether the name is an apex of which the zone above says that it does not exist (RFC 4035, 3.1.4.1).
    fn is_asked_above(&self, node: Node<'_>, name: &QueryName) -> bool {
        let zone = self.zones.get(usize::from(node.zone));
        zone.is_some_and(|zone| zone.ds_above && usize::from(zone.apex_len) == name.wire().len())
    }

    /// The answer to a name that is not in the table, but the one without its first `labels` labels is.
    fn below(&self, encloser: Node<'_>, asked: Asked<'_>, labels: usize) -> Option<Found<'_>> {
        let Asked { name, dnssec, .. } = asked;
        let (whole, known) = (name.wire().len(), name.suffix(labels));
        let shift = |len: usize| (whole as u16).wrapping_sub(len as u16);
        if encloser.flags & node_flag::DELEGATION != 0 {
            let at = encloser.entry(OTHER_TYPES)?;
            return Some(Found::Section(self.section(at, shift(known.len()), dnssec)?));
        }
        if encloser.flags & node_flag::ALIAS != 0 {
            let at = encloser.entry(rtype::DNAME)?;
            return Some(Found::Alias(self.section(at, shift(known.len()), dnssec)?, labels));
        }
        if encloser.flags & node_flag::WILDCARD != 0 {
            let mut wildcard = [0; name::MAX_NAME + 2];
            wildcard[..2].copy_from_slice(b"\x01*");
            wildcard[2..][..known.len()].copy_from_slice(known);
            let node = self.node(&wildcard[..2 + known.len()])?;
            return self.at(node, asked, shift(2 + known.len()), Some(labels));
        }
        self.negative(encloser.zone, asked, rcode::NXDOMAIN, Claim::NoName(labels))
    }

    /// A negative answer of a zone to a question for a name in it.
    fn negative(&self, zone: u16, asked: Asked<'_>, rcode: u16, claim: Claim) -> Option<Found<'_>> {
        let entry = self.zones.get(usize::from(zone))?;
        let shift = (asked.name.wire().len() as u16).wrapping_sub(u16::from(entry.apex_len));
        let mut section = self.section(entry.negative, shift, asked.dnssec)?;
        section.rcode = if entry.left_out { section.rcode } else { rcode };
        if asked.dnssec {
            self.prove(&mut section, zone, asked.name, claim);
        }
        Some(Found::Section(section))
    }

    /// Adds the proof of what is said of a name of this zone, if the zone is signed.
    fn prove<'a>(&'a self, section: &mut Section<'a>, zone: u16, name: &QueryName, claim: Claim) {
        if let Some(zone) = self.zones.get(usize::from(zone))
            && section.rcode != rcode::SERVFAIL
        {
            zone.chain.prove(name, zone.apex_len, claim, &mut section.proof);
        }
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

    /// The section at an offset of the arena, with signatures if it is to have some. The opposite of [`compose`]'s.
    #[inline]
    fn section(&self, at: u32, shift: u16, signed: bool) -> Option<Section<'_>> {
        let (section, flags, len) = self.section_at(at as usize, shift)?;
        let section = if signed && flags & SIGNED != 0 {
            self.section_at(at as usize + len, shift)?.0
        } else {
            section
        };
        // One answer, with and without signatures: it has one rate.
        Some(Section { id: at, ..section })
    }

    /// The section right at an offset, its flags and its length.
    #[inline]
    fn section_at(&self, at: usize, shift: u16) -> Option<(Section<'_>, u8, usize)> {
        let bytes = self.arena.get(at..)?;
        let [l0, l1, r0, r1, flags, p0, p1, a0, a1, n0, n1, x0, x1, g0, g1, sets] =
            *bytes.first_chunk::<SECTION_HEADER>()?;
        let number = |high, low| u16::from_be_bytes([high, low]);
        let (places, rest) = bytes[SECTION_HEADER..].split_at_checked(2 * usize::from(number(p0, p1)))?;
        let (sets, rest) = rest.split_at_checked(4 * usize::from(sets))?;
        let body = rest.get(..usize::from(number(l0, l1)))?;
        let section = Section {
            authoritative: flags & AUTHORITATIVE != 0,
            rcode: u16::from(flags & RCODE),
            counts: [number(a0, a1), number(n0, n1), number(x0, x1)],
            body,
            required: usize::from(number(r0, r1)),
            glue: number(g0, g1),
            proof: Proof::new(&self.arena, sets.as_chunks().0),
            places,
            shift,
            id: 0,
        };
        Some((section, flags, SECTION_HEADER + places.len() + sets.len() + body.len()))
    }
}

/// The tag of a hash and its first place in a table of this length; `None` without places.
#[inline]
fn slot_of(hash: u64, len: usize) -> Option<(u32, usize)> {
    // The lower half, scaled to the table's length: any length will do.
    let place = ((hash & 0xffff_ffff) * len as u64) >> 32;
    (len > 0).then_some(((hash >> 32) as u32, place as usize))
}

/// Bytes of a section before its places: length, required, flags, number of places, three counts, glue, number of sets
/// of denial.
const SECTION_HEADER: usize = 16;
/// Where its flags are.
const FLAGS: usize = 4;
/// Flag of a section.
const AUTHORITATIVE: u8 = 0x80;
/// Flag of a section: the same with signatures follows.
const SIGNED: u8 = 0x40;
/// The response code among the flags.
const RCODE: u8 = 0xf;

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
