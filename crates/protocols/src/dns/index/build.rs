//! Builds the index: names in the order of their keys, so that each comes right after those above it.
//!
//! ```text
//! sorted records ─▸ names ─▸ for each: names between it and the one above (without records, but they exist: RFC 8020)
//!                            its sections, composed into the arena        names below a delegation: only its glue
//!                   offsets of all nodes ─▸ table
//! ```

use super::super::name;
use super::super::records::{Record, Records, boundaries, key_of, target, wire_of};
use super::super::wire::rtype;
use super::super::zone::{Faults, MAX_TYPES, ZoneError};
use super::compose::{Composer, Question, TooLong};
use super::denial::{self, Chain, Claim, MAX_PROOF};
use super::resolve::{Names, Target};
use super::{ANY_TYPE, Index, OTHER_TYPES, Slot, ZoneEntry, node_flag, slot_of};

/// Places of the table per two names. Fewer: longer searches; more: memory without a name in it.
const PLACES_PER_TWO: usize = 3;
/// Most CNAME records of one answer. Resolvers give up at about as many; more would only lengthen the answer.
pub(super) const MAX_CHAIN: usize = 16;

impl Index {
    /// Composes all answers. Those that do not fit a message are faults; questions for them fail.
    pub(in super::super) fn build(records: Records, faults: &mut Faults) -> Result<Self, ZoneError> {
        let names = Names::new(records);
        // Offset 0 marks a free place of the table.
        let mut builder = Builder {
            names: &names,
            arena: vec![0],
            nodes: Vec::new(),
            zones: Vec::new(),
            signed: (0..).take(names.records.zones.len()).any(|zone| names.is_signed(zone)),
            composer: Composer::new(),
            sections: Vec::new(),
            entries: Vec::new(),
            faults,
        };
        builder.zones()?;
        builder.all_names()?;
        let Builder { mut arena, nodes, zones, .. } = builder;
        drop(names);
        arena.shrink_to_fit();
        let table = table(&arena, &nodes);
        let depth =
            nodes.iter().map(|at| name::label_starts(name_of(&arena, *at)).count()).max().unwrap_or(0);
        Ok(Self { arena, table, zones, depth })
    }
}

/// The nodes by the hash of their names.
fn table(arena: &[u8], nodes: &[u32]) -> Vec<Slot> {
    let mut table = vec![Slot::default(); nodes.len() / 2 * PLACES_PER_TWO + PLACES_PER_TWO];
    for &at in nodes {
        let wire = name_of(arena, at);
        let Some((tag, mut place)) = slot_of(name::hash(wire), table.len()) else { break };
        while table[place].at != 0 {
            place = if place + 1 == table.len() { 0 } else { place + 1 };
        }
        table[place] = Slot { tag, at };
    }
    table
}

/// The name of the node at an offset.
fn name_of(arena: &[u8], at: u32) -> &[u8] {
    let node = &arena[at as usize..];
    &node[4..][..usize::from(node[3])]
}

/// See the module.
pub(super) struct Builder<'a> {
    pub(super) names: &'a Names,
    pub(super) arena: Vec<u8>,
    /// Offset of each node.
    nodes: Vec<u32>,
    pub(super) zones: Vec<ZoneEntry>,
    /// Whether any zone is signed: if so, answers are also composed for clients that want signatures.
    signed: bool,
    pub(super) composer: Composer,
    /// The sections of the node under construction, and its entries with offsets into them.
    sections: Vec<u8>,
    entries: Vec<(u16, usize)>,
    faults: &'a mut Faults,
}

/// A node on the way from an apex to the present name.
struct Step {
    /// How much of the present key it is.
    end: usize,
    /// Its offset in the arena.
    at: u32,
    /// Whether names below it are not answered from here.
    cut: bool,
}

impl Builder<'_> {
    /// The negative section of each zone, and what proves that something does not exist in it.
    fn zones(&mut self) -> Result<(), ZoneError> {
        for (number, zone) in (0..).zip(&self.names.records.zones) {
            let mut apex = Vec::new();
            wire_of(&zone.apex, &mut apex);
            let chain = Chain::of(self.names, number, &mut self.arena, self.faults)?;
            denial::check(self.names, number, &chain, &self.arena, self.faults);
            let at = u32::try_from(self.arena.len()).map_err(|_| ZoneError::TooLarge)?;
            for signed in [false, true] {
                self.composer.begin(&apex, Question::Below, signed);
                if zone.left_out {
                    self.composer.fail();
                } else {
                    self.soa(number);
                }
                // One record and its signatures. With more than a message has room for, there are none.
                let finished = match signed {
                    false => self.composer.finish(&mut self.arena),
                    true => self.composer.finish_signed(&mut self.arena, at as usize, MAX_PROOF),
                };
                if let Err(TooLong { len, most }) = finished {
                    self.too_long(&zone.soa, len, most);
                }
            }
            self.zones.push(ZoneEntry {
                apex_len: apex.len() as u8,
                negative: at,
                ds_above: !zone.left_out
                    && self.names.above(number).is_some()
                    && self.names.signing(number).is_none(),
                left_out: zone.left_out,
                signed: self.names.is_signed(number),
                chain,
            });
        }
        Ok(())
    }

    /// A node for each name, and for those between it and the one above in its zone.
    fn all_names(&mut self) -> Result<(), ZoneError> {
        let (mut path, mut last): (Vec<Step>, &[u8]) = (Vec::new(), &[]);
        let (names, mut wire) = (self.names, Vec::new());
        for name in 0..names.len() {
            let (key, zone) = (names.key(name), names.zone(name));
            if names.is_apex(name) {
                path.clear();
            }
            let common = key.iter().zip(last).take_while(|(a, b)| a == b).count();
            while path.last().is_some_and(|step| step.end > common || step.end == key.len()) {
                path.pop();
            }
            if path.last().is_some_and(|step| step.cut) {
                continue;
            }
            last = key;
            // Of what another loaded zone answers for, only the names above that zone are left.
            let nested = names.nested(name);
            let start = path.last().map_or(key.len(), |step| step.end);
            let between = start + 1..nested.unwrap_or(key.len());
            for end in boundaries(key).filter(|end| between.contains(end)) {
                wire_of(&key[..end], &mut wire);
                let at = self.node(&wire, 0, zone)?;
                self.mark_wildcard(&key[..end], path.last());
                path.push(Step { end, at, cut: false });
            }
            if nested.is_some() {
                continue;
            }
            wire_of(key, &mut wire);
            let (flags, cut) = self.sections_of(name, &wire);
            let at = self.node(&wire, flags, zone)?;
            self.mark_wildcard(key, path.last());
            // What stands below a DNAME record is answered by that (RFC 6672, 2.4).
            let cut = cut || flags & node_flag::ALIAS != 0;
            path.push(Step { end: key.len(), at, cut });
        }
        Ok(())
    }

    /// Marks the node above: there is a `*` below it.
    fn mark_wildcard(&mut self, key: &[u8], above: Option<&Step>) {
        if let Some(step) = above
            && key.get(step.end..) == Some(b"\x01*")
        {
            self.arena[step.at as usize] |= node_flag::WILDCARD;
        }
    }

    /// Appends a node with the sections composed for it. [`super::Node::read`] reads it.
    fn node(&mut self, wire: &[u8], flags: u8, zone: u16) -> Result<u32, ZoneError> {
        let at = u32::try_from(self.arena.len()).map_err(|_| ZoneError::TooLarge)?;
        let [z0, z1] = zone.to_be_bytes();
        self.arena.extend([flags, z0, z1, wire.len() as u8]);
        self.arena.extend_from_slice(wire);
        self.arena.push(self.entries.len() as u8);
        let first = self.arena.len() + 6 * self.entries.len();
        for (rtype, offset) in self.entries.drain(..) {
            let offset = u32::try_from(first + offset).map_err(|_| ZoneError::TooLarge)?;
            self.arena.extend(rtype.to_be_bytes());
            self.arena.extend(offset.to_be_bytes());
        }
        self.arena.append(&mut self.sections);
        self.nodes.push(at);
        Ok(at)
    }

    /// Composes the sections of a name; returns its flags and whether it is a delegation.
    fn sections_of(&mut self, name: usize, wire: &[u8]) -> (u8, bool) {
        let names = self.names;
        let all = names.records_of(name);
        let cut = names.is_cut(name);
        let mode = if wire.starts_with(b"\x01*") { Question::Wildcard } else { Question::Exact };
        let mut types: Vec<u16> = all.iter().map(|record| record.rtype).collect();
        let mut flags = 0;
        if names.is_left_out(name) {
            self.compose(name, wire, Question::Below, OTHER_TYPES, |builder| builder.composer.fail());
            return (node_flag::DELEGATION, true);
        }
        if cut {
            self.answer(name, wire, mode, rtype::DS);
            self.referral(name, wire);
            return (node_flag::DELEGATION, true);
        }
        if types.contains(&rtype::CNAME) {
            types.extend(self.types_at_the_end(name));
            types.push(OTHER_TYPES);
        }
        types.sort_unstable();
        types.dedup();
        // An alias may lead to a name with as many types as it could have itself.
        types.truncate(MAX_TYPES + 1);
        if names.is_apex(name) && names.above(names.zone(name)).is_some() {
            types.retain(|rtype| *rtype != rtype::DS);
            self.signing(name, wire);
        }
        for rtype in types {
            // Not one at the end of its own alias.
            let alias = rtype == rtype::DNAME && !names.of_type(name, rtype).is_empty();
            flags |= if alias { node_flag::ALIAS } else { 0 };
            self.answer(name, wire, if alias { Question::Below } else { mode }, rtype);
        }
        self.any_type(name);
        (flags, false)
    }

    /// Of a signed zone's name the set that is the answer to a question for all: the alias, else the shortest one that
    /// is the name's own (RFC 8482, 4.1); none that only says how others are proven, as NSEC3PARAM, which signers give
    /// a TTL of 0.
    fn any_type(&mut self, name: usize) {
        let ends = self.entries.iter().map(|(_, end)| *end).skip(1).chain([self.sections.len()]);
        let own = self.entries.iter().zip(ends).filter(|((rtype, _), _)| {
            ![OTHER_TYPES, rtype::RRSIG, rtype::NSEC, rtype::NSEC3PARAM].contains(rtype)
                && !self.names.of_type(name, *rtype).is_empty()
        });
        let shortest = own.min_by_key(|((rtype, at), end)| (*rtype != rtype::CNAME, end - at));
        let chosen = shortest.map(|((_, at), _)| *at).filter(|_| self.names.is_signed(self.names.zone(name)));
        self.entries.extend(chosen.map(|at| (ANY_TYPE, at)));
    }

    /// The answer to a question for DS records of an apex, from the zone above, if that has the name. If not, it is
    /// found at run time what there is instead: [`ZoneEntry::ds_above`].
    fn signing(&mut self, apex: usize, wire: &[u8]) {
        match self.names.signing(self.names.zone(apex)) {
            Some(Target::Name(at) | Target::Cut(at)) => self.answer(at, wire, Question::Exact, rtype::DS),
            Some(Target::Empty(zone)) => {
                // Or a wildcard stands for it, and is empty.
                let claim = match self.names.in_front(zone, self.names.key(apex)) {
                    0 => (wire, Claim::NoData),
                    labels => (wire, Claim::WildcardNoData(labels)),
                };
                self.compose(apex, wire, Question::Exact, rtype::DS, |builder| builder.negative(zone, claim));
            }
            _ => {}
        }
    }

    /// The types that have answers of their own at the end of a CNAME chain.
    fn types_at_the_end(&self, mut name: usize) -> Vec<u16> {
        let names = self.names;
        let mut types = Vec::new();
        for _ in 0..MAX_CHAIN {
            let Some(next) = self.alias_of(name) else {
                types.extend(names.records_of(name).iter().map(|record| record.rtype));
                break;
            };
            let key = key_of(next);
            if names.asked(&key, rtype::DS) != names.asked(&key, OTHER_TYPES) {
                types.push(rtype::DS);
            }
            match names.resolve(next, OTHER_TYPES) {
                Target::Name(at) | Target::Wildcard(at) => name = at,
                Target::Cut(_) => {
                    types.push(rtype::DS);
                    break;
                }
                Target::Empty(_) | Target::Missing(_) | Target::Elsewhere => break,
            }
        }
        types
    }

    fn alias_of(&self, name: usize) -> Option<&[u8]> {
        let alias = self.names.of_type(name, rtype::CNAME).first()?;
        target(rtype::CNAME, self.names.records.data(alias))
    }

    /// The answer to a question for a type: its records, at the end of a chain of CNAME records if there is one.
    fn answer(&mut self, name: usize, wire: &[u8], mode: Question, rtype: u16) {
        self.compose(name, wire, mode, rtype, |builder| builder.chain(name, wire, rtype));
    }

    /// The name servers of a delegation, what says whether it is signed (RFC 4035, 3.1.4), and the addresses of the
    /// servers that the zone has (RFC 9471: all, or the reply is truncated).
    fn referral(&mut self, name: usize, wire: &[u8]) {
        self.compose(name, wire, Question::Below, OTHER_TYPES, |builder| builder.delegation(name, wire));
    }

    /// Composes an answer, and the one with signatures.
    fn compose(&mut self, name: usize, wire: &[u8], mode: Question, rtype: u16, content: impl Fn(&mut Self)) {
        let plain = self.sections.len();
        self.entries.push((rtype, plain));
        let forms: &[bool] = if self.signed { &[false, true] } else { &[false] };
        for signed in forms {
            self.composer.begin(wire, mode, *signed);
            content(self);
            let Err(TooLong { len, most }) = self.finish(plain) else { continue };
            let all = self.names.records_of(name);
            let first = all.iter().find(|record| record.rtype == rtype).unwrap_or(&all[0]);
            self.too_long(first, len, most);
            self.composer.fail();
            // Nothing always fits.
            let _ = self.finish(plain);
            // Nor does it with signatures.
            break;
        }
    }

    fn finish(&mut self, plain: usize) -> Result<(), TooLong> {
        match self.composer.signed {
            false => self.composer.finish(&mut self.sections),
            true => self.composer.finish_signed(&mut self.sections, plain, 0),
        }
    }

    fn too_long(&mut self, first: &Record, len: usize, most: usize) {
        let records = &self.names.records;
        let reason = format!(
            "{}: an answer for {} does not fit a message of 64 KiB: its records have {len} bytes, and {most} are left \
             beside the question and EDNS: remove records",
            records.place(first),
            records.name(first)
        );
        self.faults.record(records.source(first), reason);
    }
}

/// The index of files without faults, for tests.
#[cfg(test)]
pub(in super::super) fn whole(files: &[std::path::PathBuf]) -> Result<Index, ZoneError> {
    let (records, mut faults) = super::super::zone::load(files)?;
    let index = Index::build(records, &mut faults)?;
    if faults.is_empty() { Ok(index) } else { Err(ZoneError::Faults(faults.to_string())) }
}
