//! Builds the index: names in the order of their keys, so that each comes right after those above it.
//!
//! ```text
//! sorted records ─▸ names ─▸ for each: names between it and the one above (without records, but they exist: RFC 8020)
//!                            its sections, composed into the arena        names below a delegation: only its glue
//!                   offsets of all nodes ─▸ table
//! ```

use super::super::name;
use super::super::records::{Record, Records, boundaries, key_of, target, wire_of};
use super::super::wire::{rcode, rtype};
use super::super::zone::{Faults, ZoneError};
use super::compose::{Composer, Part, Question, TooLong};
use super::resolve::{Names, Target};
use super::{Index, OTHER_TYPES, Slot, ZoneEntry, node_flag, slot_of};

/// Most CNAME records of one answer. Resolvers give up at about as many; more would only lengthen the answer.
const MAX_CHAIN: usize = 16;
/// Most additional records of one answer. More do not fit a datagram.
const MAX_ADDITIONAL: usize = 32;
/// Places of the table per two names. Fewer: longer searches; more: memory without a name in it.
const PLACES_PER_TWO: usize = 3;

impl Index {
    /// Composes all answers. Those that do not fit a message are faults; questions for them fail.
    pub(in super::super) fn build(records: Records, faults: &mut Faults) -> Result<Self, ZoneError> {
        let names = Names::new(records);
        // Offset 0 marks a free place of the table.
        let mut builder = Builder {
            names: &names,
            arena: vec![0],
            nodes: Vec::new(),
            composer: Composer::new(),
            sections: Vec::new(),
            entries: Vec::new(),
            faults,
        };
        let zones = builder.zones()?;
        builder.all_names()?;
        let Builder { mut arena, nodes, .. } = builder;
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

struct Builder<'a> {
    names: &'a Names,
    arena: Vec<u8>,
    /// Offset of each node.
    nodes: Vec<u32>,
    composer: Composer,
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
    /// The negative section of each zone.
    fn zones(&mut self) -> Result<Vec<ZoneEntry>, ZoneError> {
        let mut entries = Vec::new();
        for (number, zone) in (0..).zip(&self.names.records.zones) {
            let mut apex = Vec::new();
            wire_of(&zone.apex, &mut apex);
            self.composer.begin(&apex, Question::Below);
            if zone.left_out {
                self.composer.fail();
            } else {
                negative(&mut self.composer, &self.names.records, number);
            }
            let at = u32::try_from(self.arena.len()).map_err(|_| ZoneError::TooLarge)?;
            // One record, or none.
            let _ = self.composer.finish(&mut self.arena);
            entries.push(ZoneEntry {
                apex_len: apex.len() as u8,
                negative: at,
                ds_above: !zone.left_out
                    && self.names.above(number).is_some()
                    && self.names.signing(number).is_none(),
                left_out: zone.left_out,
            });
        }
        Ok(entries)
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
            self.composer.begin(wire, Question::Below);
            self.composer.fail();
            self.finish(name, OTHER_TYPES);
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
        (flags, false)
    }

    /// The answer to a question for DS records of an apex, from the zone above, if that has the name. If not, it is found at run time
    /// what there is instead: [`ZoneEntry::ds_above`].
    fn signing(&mut self, apex: usize, wire: &[u8]) {
        match self.names.signing(self.names.zone(apex)) {
            Some(Target::Name(at) | Target::Cut(at)) => self.answer(at, wire, Question::Exact, rtype::DS),
            Some(Target::Empty(zone)) => {
                self.composer.begin(wire, Question::Exact);
                negative(&mut self.composer, &self.names.records, zone);
                self.finish(apex, rtype::DS);
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
        self.composer.begin(wire, mode);
        self.chain(name, rtype);
        self.finish(name, rtype);
    }

    fn chain(&mut self, name: usize, rtype: u16) {
        let (names, records) = (self.names, &self.names.records);
        let (mut at, mut owner): (usize, Option<&[u8]>) = (name, None);
        let mut seen = Vec::new();
        loop {
            let found = names.of_type(at, rtype);
            let step = if found.is_empty() { names.of_type(at, rtype::CNAME) } else { found };
            for record in step {
                match owner {
                    None => self.composer.question_record(records, record),
                    Some(owner) => self.composer.record(owner, records, record, Part::Answer),
                }
            }
            if !found.is_empty() {
                return self.additional(rtype, found);
            }
            let next = step.first().and_then(|alias| target(rtype::CNAME, records.data(alias)));
            let Some(next) = next else { return negative(&mut self.composer, records, names.zone(at)) };
            seen.push(at);
            match names.resolve(next, rtype) {
                Target::Name(to) | Target::Wildcard(to) if !seen.contains(&to) && seen.len() < MAX_CHAIN => {
                    (at, owner) = (to, Some(next));
                }
                Target::Empty(zone) => return negative(&mut self.composer, records, zone),
                Target::Missing(zone) => {
                    // The code is the last name's (RFC 6604, 3).
                    self.composer.rcode = rcode::NXDOMAIN as u8;
                    return negative(&mut self.composer, records, zone);
                }
                // The delegation itself, of which this zone has what says how it is signed.
                Target::Cut(to) if rtype == rtype::DS && !seen.contains(&to) => {
                    (at, owner) = (to, Some(next));
                    // Its other records are not its own.
                    if names.of_type(at, rtype::DS).is_empty() {
                        return negative(&mut self.composer, records, names.zone(at));
                    }
                }
                // The client asks on.
                Target::Cut(_) | Target::Elsewhere | Target::Name(_) | Target::Wildcard(_) => return,
            }
        }
    }

    /// Addresses of the names in the answer.
    fn additional(&mut self, rtype: u16, answer: &[Record]) {
        if ![rtype::NS, rtype::MX, rtype::SRV].contains(&rtype) {
            return;
        }
        self.composer.optional_from_here();
        let (names, records) = (self.names, &self.names.records);
        let targets = answer.iter().filter_map(|record| target(rtype, records.data(record)));
        let mut seen = Vec::new();
        let found = targets.filter_map(|target| match names.resolve(target, rtype::A) {
            Target::Name(name) if !seen.contains(&name) => {
                seen.push(name);
                Some((target, name))
            }
            _ => None,
        });
        let addresses =
            found.flat_map(|(target, name)| addresses(names, name).map(move |record| (target, record)));
        for (target, record) in addresses.take(MAX_ADDITIONAL) {
            self.composer.record(target, records, record, Part::Additional);
        }
    }

    /// The name servers of a delegation, and the addresses of theirs that the zone has (RFC 9471: all, or the reply is truncated).
    fn referral(&mut self, name: usize, wire: &[u8]) {
        let (names, records) = (self.names, &self.names.records);
        self.composer.begin(wire, Question::Below);
        self.composer.authoritative = false;
        let servers = names.of_type(name, rtype::NS);
        for record in servers {
            self.composer.record(wire, records, record, Part::Authority);
        }
        for server in servers.iter().filter_map(|record| target(rtype::NS, records.data(record))) {
            let (zone, key) = (names.zone(name), key_of(server));
            // Below a delegation as well; elsewhere a wildcard may stand for it.
            let glue = names.exact(zone, &key).or_else(|| match names.search(zone, &key) {
                Target::Wildcard(wildcard) => Some(wildcard),
                _ => None,
            });
            if let Some(glue) = glue {
                for record in addresses(names, glue) {
                    self.composer.record(server, records, record, Part::Additional);
                }
            }
        }
        self.finish(name, OTHER_TYPES);
    }

    fn finish(&mut self, name: usize, rtype: u16) {
        self.entries.push((rtype, self.sections.len()));
        let Err(TooLong { len, most }) = self.composer.finish(&mut self.sections) else { return };
        let (records, all) = (&self.names.records, self.names.records_of(name));
        let first = all.iter().find(|record| record.rtype == rtype).unwrap_or(&all[0]);
        let reason = format!(
            "{}: an answer for {} does not fit a message of 64 KiB: its records have {len} bytes, and {most} are left \
             beside the question and EDNS: remove records",
            records.place(first),
            records.name(first)
        );
        self.faults.record(records.source(first), reason);
        self.composer.fail();
        // Nothing always fits.
        let _ = self.composer.finish(&mut self.sections);
    }
}

/// Address records of a name.
fn addresses(names: &Names, name: usize) -> impl Iterator<Item = &Record> {
    names.of_type(name, rtype::A).iter().chain(names.of_type(name, rtype::AAAA))
}

/// The SOA record of a zone, with the TTL of negative answers (RFC 2308, 5).
fn negative(composer: &mut Composer, records: &Records, zone: u16) {
    let Some(zone) = records.zones.get(usize::from(zone)) else { return };
    let minimum = records.data(&zone.soa).last_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
    let mut apex = Vec::new();
    wire_of(&zone.apex, &mut apex);
    let ttl = zone.soa.ttl.min(minimum);
    composer.record_with_ttl(&apex, records, &zone.soa, ttl, Part::Authority);
}

/// The index of files without faults, for tests.
#[cfg(test)]
pub(in super::super) fn whole(files: &[std::path::PathBuf]) -> Result<Index, ZoneError> {
    let (records, mut faults) = super::super::zone::load(files)?;
    let index = Index::build(records, &mut faults)?;
    if faults.is_empty() { Ok(index) } else { Err(ZoneError::Faults(faults.to_string())) }
}
