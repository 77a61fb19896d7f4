//! What a signed zone lacks, so that its operator hears of it before validating resolvers do: they take its answers for
//! forged.
//!
//! ```text
//! each set that the zone answers for ─▸ a signature?     apex ─▸ a DNSKEY record?
//! each name ─▸ in the chain?     each record of the chain ─▸ does it name the next one?
//! ```
//! The zone is served all the same: the other answers are whole. Signatures are not verified, nor are their times.

use std::collections::BTreeMap;

use domain::base::iana::Rtype;

use super::super::super::name;
use super::super::super::records::{Record, boundaries, key_of, signatures, wire_of};
use super::super::super::wire::rtype;
use super::super::super::zone::{Faults, Nsec3Params};
use super::super::resolve::Names;
use super::nsec::Nsec;
use super::nsec3::Nsec3;
use super::set::{self, Set};
use super::{Chain, canonical};

/// The flag of an NSEC3 record that leaves out delegations that are not signed (RFC 5155, 3.1.2.1).
const OPT_OUT: u8 = 1;

/// Says what a signed zone lacks.
pub(in super::super) fn check(names: &Names, zone: u16, chain: &Chain, arena: &[u8], faults: &mut Faults) {
    let Some(entry) = names.records.zones.get(usize::from(zone)).filter(|_| names.is_signed(zone)) else {
        return;
    };
    let apex = names.exact(zone, names.apex(zone));
    let place = names.records.place(&entry.soa);
    let mut say = |text: String| faults.say(entry.source, text);
    if apex.is_none_or(|apex| names.of_type(apex, rtype::DNSKEY).is_empty()) {
        say(format!("{place}: the zone has signatures, but no DNSKEY record: add the keys that made them"));
    }
    let unsigned = unsigned(names, zone);
    if let Some(first) = unsigned.first() {
        let more = match unsigned.len() - 1 {
            0 => String::new(),
            1 => ", and 1 more set".to_owned(),
            more => format!(", and {more} more sets"),
        };
        let (place, name) = (names.records.place(first), names.records.name(first));
        let rtype = Rtype::from_int(first.rtype);
        say(format!("{place}: no signature of the {rtype} records of {name}{more}: sign the zone again"));
    }
    let gap = match chain {
        Chain::None => Some(
            "no NSEC records, and no NSEC3 records that an NSEC3PARAM record names: it cannot be proven that something does not exist"
                .to_owned(),
        ),
        Chain::Nsec(chain) => gap_in_names(names, zone, chain, arena),
        Chain::Nsec3(chain) => gap_in_hashes(names, zone, chain, arena),
    };
    if let Some(gap) = gap {
        say(format!("{place}: the zone has signatures, but {gap}: sign the zone again"));
    }
}

/// The first record of each set that has no signature, and should: those of the zone's own names, and of its
/// delegations what they are proven with (RFC 4035, 2.2).
fn unsigned(names: &Names, zone: u16) -> Vec<&Record> {
    let sets = names.authoritative(zone).into_iter().flat_map(|name| {
        let is_signed = move |rtype: u16| {
            signatures(&names.records, names.of_type(name, rtype::RRSIG), rtype).next().is_some()
        };
        let cut = names.is_cut(name);
        let sets = names.records_of(name).chunk_by(|a, b| a.rtype == b.rtype).map(|set| &set[0]);
        sets.filter(move |first| {
            let is_own = !cut || [rtype::DS, rtype::NSEC].contains(&first.rtype);
            first.rtype != rtype::RRSIG && is_own && !is_signed(first.rtype)
        })
    });
    sets.collect()
}

/// The first gap of a chain of NSEC records.
fn gap_in_names(names: &Names, zone: u16, chain: &Nsec, arena: &[u8]) -> Option<String> {
    let mut all = names.authoritative(zone);
    all.sort_by(|a, b| canonical(names.relative_key(*a), names.relative_key(*b)));
    let mut sets = chain.sets().iter().peekable();
    let next = all.iter().skip(1).chain(all.first());
    for (name, next) in all.iter().zip(next) {
        let shown = |name: usize| shown(names.key(name));
        // The chain has sets of these names only, in the same order.
        let Some(set) = sets.next_if(|at| set::key(arena, **at) == names.relative_key(*name)) else {
            return Some(format!("no NSEC record of {}", shown(*name)));
        };
        let said = Set::read(arena, *set).and_then(|set| set.denial())?;
        let said = said.get(..name::length(said)?)?;
        if key_of(said) != names.key(*next) {
            let (name, said) = (shown(*name), name::display(said));
            return Some(format!("after {name} the NSEC record names {said}, and {} is next", shown(*next)));
        }
    }
    None
}

/// The first gap of a chain of NSEC3 records.
fn gap_in_hashes(names: &Names, zone: u16, chain: &Nsec3, arena: &[u8]) -> Option<String> {
    let sets = chain.sets();
    for ((hash, at), (next, _)) in sets.iter().zip(sets.iter().skip(1).chain(sets.first())) {
        let set = Set::read(arena, *at)?;
        let owner = String::from_utf8_lossy(set::key(arena, *at).get(1..).unwrap_or_default()).into_owned();
        if !set.is_signed() {
            return Some(format!("no signature of the NSEC3 record {owner}"));
        }
        let denial = set.denial()?;
        let said = Nsec3Params::read(denial).and_then(|params| denial.get(6 + params.salt.len()..))?;
        if !said.starts_with(next) {
            return Some(format!(
                "the NSEC3 record after {owner}, whose hash begins with {:02x}, is missing",
                hash[0]
            ));
        }
    }
    // Each name, and those between, with whether it must have a record: opt-out leaves out delegations that are not
    // signed.
    let mut all: BTreeMap<&[u8], bool> = BTreeMap::new();
    for name in names.authoritative(zone) {
        let must = !names.is_cut(name) || !names.of_type(name, rtype::DS).is_empty();
        let key = names.key(name);
        for end in boundaries(key).filter(|end| *end >= names.apex(zone).len()) {
            *all.entry(&key[..end]).or_default() |= must;
        }
    }
    let mut wire = Vec::new();
    for (key, must) in all {
        wire_of(key, &mut wire);
        let hash = chain.hash(&[&wire]);
        let is_left_out = || {
            let around = chain.last_not_after(&hash).and_then(|at| Set::read(arena, at)?.denial());
            around.is_some_and(|denial| denial.get(1).is_some_and(|flags| flags & OPT_OUT != 0))
        };
        if chain.own(&hash).is_none() && (must || !is_left_out()) {
            return Some(format!("no NSEC3 record of {}", shown(key)));
        }
    }
    None
}

fn shown(key: &[u8]) -> String {
    let mut wire = Vec::new();
    wire_of(key, &mut wire);
    name::display(&wire)
}
