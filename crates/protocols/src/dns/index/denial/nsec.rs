//! Chains of NSEC records (RFC 4034, 4; RFC 4035, 3.1.3): each name with records has one, which also says which name is
//! the next.
//!
//! ```text
//! x ──▸ a.x ──▸ c.x ──▸ x         no b.x: the set of a.x     no *.x: that of x
//! ```
//! What a record says of the names after it is right for the one that is asked if the record's owner is the last that
//! is not after it, in the order of RFC 4034 (6.1): the same search finds the name's own record, which says what types
//! it has. A name without records that has names below it lies between two others, and so does every name that does not
//! exist.

use std::cmp::Ordering;

use super::super::super::name::{MAX_NAME, QueryName};
use super::super::super::records::signatures;
use super::super::super::wire::rtype;
use super::super::super::zone::{Faults, ZoneError};
use super::super::resolve::Names;
use super::{Claim, Proof, canonical, set};

/// See the module.
#[derive(Debug)]
pub(in super::super) struct Nsec {
    /// Offsets of the sets, in the order of their owners.
    sets: Vec<u32>,
}

impl Nsec {
    /// The sets of these names of one zone.
    pub(super) fn of(
        names: &Names,
        owners: Vec<usize>,
        arena: &mut Vec<u8>,
        faults: &mut Faults,
    ) -> Result<Self, ZoneError> {
        let mut sets = Vec::with_capacity(owners.len());
        for name in owners {
            let (records, denial) = (&names.records, names.of_type(name, rtype::NSEC));
            let all =
                denial.iter().chain(signatures(records, names.of_type(name, rtype::RRSIG), rtype::NSEC));
            sets.extend(set::append(arena, names.relative_key(name), records, all, faults)?);
        }
        sets.sort_by(|a, b| canonical(set::key(arena, *a), set::key(arena, *b)));
        Ok(Self { sets })
    }

    pub(super) fn bytes(&self) -> usize {
        self.sets.capacity() * size_of::<u32>()
    }

    /// Offsets of the sets, in the order of their owners.
    pub(super) fn sets(&self) -> &[u32] {
        &self.sets
    }

    /// RFC 4035, 3.1.3.
    pub(super) fn prove(&self, name: &QueryName, claim: Claim, proof: &mut Proof<'_>) {
        let mut key = [0; MAX_NAME];
        let len = name.write_key(proof.apex(), &mut key);
        proof.add(self.last_not_after(proof.arena, &key[..len]));
        if let Claim::NoName(labels) | Claim::WildcardNoData(labels) = claim {
            let encloser = name.suffix(labels).len().saturating_sub(proof.apex());
            // The longest encloser has a label less than the name, of two bytes at least.
            if let Some(place) = key.get_mut(encloser..encloser + 2) {
                place.copy_from_slice(b"\x01*");
                proof.add(self.last_not_after(proof.arena, &key[..encloser + 2]));
            }
        }
    }

    /// The set of a name, or of the last name before it; of the very last, if there is none.
    fn last_not_after(&self, arena: &[u8], key: &[u8]) -> Option<u32> {
        let after = self.sets.partition_point(|at| canonical(set::key(arena, *at), key) != Ordering::Greater);
        self.sets.get(after.checked_sub(1).unwrap_or(self.sets.len().saturating_sub(1))).copied()
    }
}
