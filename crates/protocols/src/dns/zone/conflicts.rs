//! Records that cannot stand together: of several that exclude each other the first stays, of a CNAME record and others
//! the others.

use std::collections::{BTreeMap, BTreeSet};

use super::super::records::{Record, Records, is_hashed};
use super::super::wire::rtype;
use super::faults::Faults;

/// Most types of one name: as many entries as a node of the index has, less those for all others, for a question for
/// all, and for DS records from the zone above.
pub(in super::super) const MAX_TYPES: usize = 252;

/// Leaves them out of the sorted records.
pub(super) fn leave_out(records: &mut Records, faults: &mut Faults) {
    let mut out: Vec<Record> = Vec::new();
    for name in records.list.chunk_by(|a, b| records.key(a) == records.key(b)) {
        // Most names have one record.
        if name.len() == 1 {
            continue;
        }
        let zones: BTreeSet<u16> = name.iter().map(|record| record.zone).collect();
        for zone in zones {
            let of_zone: Vec<Record> = name.iter().filter(|record| record.zone == zone).copied().collect();
            out.extend(conflicting(records, &of_zone, faults));
        }
    }
    if !out.is_empty() {
        let is_out = |record: &Record| out.iter().any(|other| other.is(record));
        records.list.retain(|record| !is_out(record));
    }
}

/// Leaves out what is below a DNAME record of its zone, which answers for all names there: BIND loads it and never
/// sends it, NSD and Knot refuse the zone.
pub(super) fn leave_out_hidden(records: &mut Records, faults: &mut Faults) {
    // The last of each zone: names below it follow it in the order of the list.
    let mut trees: BTreeMap<u16, Record> = BTreeMap::new();
    let mut out: BTreeSet<usize> = BTreeSet::new();
    for (at, record) in records.list.iter().enumerate() {
        let tree = trees.get(&record.zone).filter(|tree| {
            !is_hashed(records, record)
                && records.is_below(record, tree)
                && records.key(record).len() > records.key(tree).len()
        });
        if let Some(tree) = tree {
            out.insert(at);
            let (place, name, above) = (records.place(record), records.name(record), records.name(tree));
            let reason = "has a DNAME record, which answers for all names below it: remove one of them";
            faults
                .record(records.source(record), format!("{place}: {name} is below {above}, which {reason}"));
        } else if record.rtype == rtype::DNAME {
            trees.insert(record.zone, *record);
        }
    }
    if !out.is_empty() {
        let mut at = 0..;
        records.list.retain(|_| at.next().is_none_or(|at| !out.contains(&at)));
    }
}

/// Those of one name's records that cannot stand beside the others.
fn conflicting(records: &Records, all: &[Record], faults: &mut Faults) -> Vec<Record> {
    let mut types: Vec<u16> = all.iter().map(|record| record.rtype).collect();
    types.dedup();
    let beyond = types.get(MAX_TYPES);
    let has_others = types.iter().any(|rtype| ![rtype::CNAME, rtype::RRSIG, rtype::NSEC].contains(rtype));
    let (mut aliases, mut trees) = (0, 0);
    let mut out = Vec::new();
    for record in all {
        aliases += u32::from(record.rtype == rtype::CNAME);
        trees += u32::from(record.rtype == rtype::DNAME);
        let reason = match record.rtype {
            rtype::CNAME if has_others => "has a CNAME record and others: keep one or the others",
            rtype::CNAME if aliases > 1 => "has several CNAME records: keep one",
            rtype::DNAME if trees > 1 => "has several DNAME records: keep one",
            rtype if beyond.is_some_and(|first| rtype >= *first) => "has more than 252 types: remove some",
            _ => continue,
        };
        out.push(*record);
        faults.record(
            records.source(record),
            format!("{}: {} {reason}", records.place(record), records.name(record)),
        );
    }
    out
}
