//! What an answer says, record by record, for [`Builder`] to compose: once for clients that want no signatures, and in
//! signed zones once for those that do (RFC 4035, 3.1).
//!
//! ```text
//! chain        name ─▸ CNAME ─▸ CNAME ─▸ records of the type, their addresses │ nothing: SOA
//!              with signatures: those of each set, and last the proofs: of each wildcard on the way, and of what there is not
//! delegation   NS │ DS, or the proof that there is none │ glue │ signatures of addresses that are no glue
//! ```
//! Proofs that depend on the question's name, because a wildcard stands for it or nothing does, are added to the reply
//! ([`super::denial`]).

use super::super::name::QueryName;
use super::super::records::{Record, key_of, signatures, target, wire_of};
use super::super::wire::{rcode, rtype};
use super::build::{Builder, MAX_CHAIN};
use super::compose::Part;
use super::denial::{Claim, Proof, Set};
use super::resolve::{Names, Target};

/// Most additional records of one answer, without signatures. More do not fit a datagram.
const MAX_ADDITIONAL: usize = 32;

impl Builder<'_> {
    /// The records of a type, at the end of a chain of CNAME records if there is one; or that there are none.
    pub(super) fn chain(&mut self, name: usize, wire: &[u8], rtype: u16) {
        let names = self.names;
        let records = &names.records;
        let (mut at, mut owner): (usize, Option<&[u8]>) = (name, None);
        // Of a name that a wildcard stands for, how many labels are in front of its closest encloser.
        let mut expanded: Option<usize> = None;
        let (mut seen, mut proofs) = (Vec::new(), Vec::new());
        loop {
            let found = names.of_type(at, rtype);
            let alias = names.of_type(at, rtype::CNAME);
            let step = if found.is_empty() { alias } else { found };
            let signed = step.first().filter(|_| self.composer.signed).map(|record| record.rtype);
            for record in step.iter().chain(signatures_of(names, at, signed)) {
                match owner {
                    None => self.composer.question_record(records, record),
                    Some(owner) => self.composer.record(owner, records, record, Part::Answer),
                }
            }
            let (zone, here) = (names.zone(at), owner.unwrap_or(wire));
            if !step.is_empty() {
                proofs.extend(expanded.map(|labels| (zone, here, Claim::Wildcard(labels))));
            }
            let next = step.first().and_then(|alias| target(rtype::CNAME, records.data(alias)));
            let next = next.filter(|_| found.is_empty());
            let end = match next {
                _ if !found.is_empty() => None,
                None => Some((zone, here, expanded.map_or(Claim::NoData, Claim::WildcardNoData))),
                Some(next) => {
                    seen.push(at);
                    let target = names.resolve(next, rtype);
                    match target {
                        Target::Name(to) | Target::Wildcard(to)
                            if !seen.contains(&to) && seen.len() < MAX_CHAIN =>
                        {
                            let labels = names.in_front(names.zone(to), &key_of(next));
                            (at, owner, expanded) = (to, Some(next), (labels > 0).then_some(labels));
                            continue;
                        }
                        // The delegation itself, of which this zone has what says how it is signed.
                        Target::Cut(to) if rtype == rtype::DS && !seen.contains(&to) => {
                            (at, owner, expanded) = (to, Some(next), None);
                            if !names.of_type(at, rtype::DS).is_empty() {
                                continue;
                            }
                            // Its other records are not its own.
                            Some((names.zone(at), next, Claim::NoData))
                        }
                        Target::Empty(zone) => match names.in_front(zone, &key_of(next)) {
                            0 => Some((zone, next, Claim::NoData)),
                            labels => Some((zone, next, Claim::WildcardNoData(labels))),
                        },
                        Target::Missing(zone) => {
                            // The code is the last name's (RFC 6604, 3).
                            self.composer.rcode = rcode::NXDOMAIN as u8;
                            Some((zone, next, Claim::NoName(names.in_front(zone, &key_of(next)))))
                        }
                        // The client asks on.
                        Target::Cut(_) | Target::Elsewhere | Target::Name(_) | Target::Wildcard(_) => None,
                    }
                }
            };
            if let Some((zone, ..)) = end {
                self.soa(zone);
            }
            for (zone, name, claim) in proofs.into_iter().chain(end) {
                self.prove(zone, name, claim);
            }
            if !found.is_empty() {
                self.additional(rtype, found);
            }
            return;
        }
    }

    /// That there is nothing: the SOA record of a zone, and the proof of what is claimed of a name of it.
    pub(super) fn negative(&mut self, zone: u16, (name, claim): (&[u8], Claim)) {
        self.soa(zone);
        self.prove(zone, name, claim);
    }

    /// The SOA record of a zone, with the TTL of negative answers (RFC 2308, 5).
    pub(super) fn soa(&mut self, zone: u16) {
        let records = &self.names.records;
        let Some(entry) = records.zones.get(usize::from(zone)) else { return };
        let minimum = records.data(&entry.soa).last_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        let mut apex = Vec::new();
        wire_of(&entry.apex, &mut apex);
        let ttl = entry.soa.ttl.min(minimum);
        let name = self.names.exact(zone, &entry.apex).filter(|_| self.composer.signed);
        let signatures = name.into_iter().flat_map(|name| signatures_of(self.names, name, Some(rtype::SOA)));
        for record in [&entry.soa].into_iter().chain(signatures) {
            self.composer.record_with_ttl(&apex, records, record, ttl, Part::Authority);
        }
    }

    /// Adds what proves the claim of a name, if it is to be in the answer.
    fn prove(&mut self, zone: u16, name: &[u8], claim: Claim) {
        let Some(entry) = self.zones.get(usize::from(zone)).filter(|_| self.composer.signed) else { return };
        let Some(name) = QueryName::parse(name) else { return };
        let mut proof = Proof::new(&self.arena, &[]);
        entry.chain.prove(&name, entry.apex_len, claim, &mut proof);
        let mut apex = Vec::new();
        wire_of(self.names.apex(zone), &mut apex);
        for at in proof.sets() {
            if let Some(set) = Set::read(&self.arena, *at) {
                self.composer.set(*at, set, &apex);
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
        let signed = self.composer.signed;
        let most = if signed { 2 * MAX_ADDITIONAL } else { MAX_ADDITIONAL };
        let addresses = found.flat_map(|(target, name)| {
            let sets = [rtype::A, rtype::AAAA].into_iter().flat_map(move |rtype| {
                let signatures = signatures_of(names, name, Some(rtype).filter(|_| signed));
                names.of_type(name, rtype).iter().chain(signatures)
            });
            sets.map(move |record| (target, record))
        });
        for (target, record) in addresses.take(most) {
            self.composer.record(target, records, record, Part::Additional);
        }
    }

    /// The name servers of a delegation, what says whether it is signed (RFC 4035, 3.1.4), and the addresses of the
    /// servers that the zone has (RFC 9471: all, or the reply is truncated).
    pub(super) fn delegation(&mut self, name: usize, wire: &[u8]) {
        let (names, records) = (self.names, &self.names.records);
        self.composer.authoritative = false;
        let servers = names.of_type(name, rtype::NS);
        for record in servers {
            self.composer.record(wire, records, record, Part::Authority);
        }
        let secure = names.of_type(name, rtype::DS);
        // What NS records of a wildcard mean is not defined.
        if self.composer.signed && !wire.starts_with(b"\x01*") {
            for record in secure.iter().chain(signatures_of(names, name, Some(rtype::DS))) {
                self.composer.record(wire, records, record, Part::Authority);
            }
            if secure.is_empty() {
                self.prove(names.zone(name), wire, Claim::NoData);
            }
        }
        let mut signed = Vec::new();
        for server in servers.iter().filter_map(|record| target(rtype::NS, records.data(record))) {
            let (zone, key) = (names.zone(name), key_of(server));
            // Below a delegation as well; elsewhere a wildcard may stand for it.
            let own = names.search(zone, &key);
            let glue = names.exact(zone, &key).or(match own {
                Target::Wildcard(wildcard) => Some(wildcard),
                _ => None,
            });
            if let Some(glue) = glue {
                for record in addresses(names, glue) {
                    self.composer.record(server, records, record, Part::Additional);
                }
                // Of its own addresses it has signatures, of glue it has none.
                let is_own = matches!(own, Target::Name(_) | Target::Wildcard(_));
                signed.extend(Some((server, glue)).filter(|_| is_own && self.composer.signed));
            }
        }
        self.composer.optional_from_here();
        for (server, name) in signed {
            for rtype in [rtype::A, rtype::AAAA] {
                for record in signatures_of(names, name, Some(rtype)) {
                    self.composer.record(server, records, record, Part::Additional);
                }
            }
        }
    }
}

/// Address records of a name.
fn addresses(names: &Names, name: usize) -> impl Iterator<Item = &Record> {
    names.of_type(name, rtype::A).iter().chain(names.of_type(name, rtype::AAAA))
}

/// The signatures of a name's records of a type, if there is one.
fn signatures_of(names: &Names, name: usize, rtype: Option<u16>) -> impl Iterator<Item = &Record> {
    rtype
        .into_iter()
        .flat_map(move |rtype| signatures(&names.records, names.of_type(name, rtype::RRSIG), rtype))
}
