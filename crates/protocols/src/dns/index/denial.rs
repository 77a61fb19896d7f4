//! Proofs that a name or a type does not exist, made of the zone's own NSEC records (RFC 4035, 3.1.3) or NSEC3 records
//! (RFC 5155, 7.2).
//!
//! ```text
//! load     names ─▸ Chain: the sets of one zone in the order in which they are searched ─▸ check: is it whole?
//!                     └ set: owner and records of each with their signatures, in the index's arena
//! query    Claim (no such type, no such name, a wildcard's answer) ─▸ Chain::prove ─▸ Proof: at most three sets ─▸ set: written
//! ```
//! The index owns chains and sets; nothing of them changes after the load. Signatures are those of the file: nothing is
//! signed here, and no key is known. Which sets prove something depends on the question's name, so they are looked for
//! with each question: for NSEC with a binary search, for NSEC3 with three hashes and searches (up to ten where opt-out
//! has left names out), all on the stack.
//!
//! A chain that has gaps gives proofs that prove nothing, or none. Validating resolvers see that, and a warning says so
//! at the load ([`check`]). Nothing here depends on a chain being whole.

mod check;
mod nsec;
mod nsec3;
mod set;

pub(super) use self::check::check;
pub(super) use self::set::Set;

use self::nsec::Nsec;
use self::nsec3::Nsec3;
use super::super::name::{MAX_NAME, QueryName};
use super::super::wire::rtype;
use super::super::zone::{Faults, ZoneError};
use super::resolve::Names;

/// Most sets of one proof: with NSEC3 records the closest encloser, the next closer name and the wildcard (RFC 5155,
/// 7.2.2).
const MAX_SETS: usize = 3;

/// Most bytes of one proof.
pub(super) const MAX_PROOF: usize = MAX_SETS * set::MAX_SET;

/// What is to be proven of a question's name. Labels: how many of the name are in front of its closest encloser, at
/// least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// It exists, and has no records of the type.
    NoData,
    /// Neither the name exists, nor a wildcard that answers for it.
    NoName(usize),
    /// It does not exist: the wildcard of its closest encloser answers for it.
    Wildcard(usize),
    /// As before, and the wildcard has no records of the type.
    WildcardNoData(usize),
}

/// The records of a zone that prove what does not exist.
#[derive(Debug, Default)]
pub(super) enum Chain {
    /// It has none.
    #[default]
    None,
    Nsec(Nsec),
    Nsec3(Nsec3),
}

/// Sets that prove something, none twice.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Proof<'a> {
    arena: &'a [u8],
    /// Those that the reply has already.
    known: &'a [[u8; 4]],
    sets: [u32; MAX_SETS],
    len: u8,
    /// Bytes of the zone's name.
    apex: u8,
}

impl Chain {
    /// The chain of a zone, its sets appended to the arena. With NSEC3PARAM records it is one of theirs, else that of
    /// NSEC records (RFC 5155, 7.2, and 10.4 for a zone that changes from one to the other).
    pub(super) fn of(
        names: &Names,
        zone: u16,
        arena: &mut Vec<u8>,
        faults: &mut Faults,
    ) -> Result<Self, ZoneError> {
        if !names.is_signed(zone) {
            return Ok(Self::None);
        }
        if let Some(chain) = Nsec3::of(names, zone, arena, faults)? {
            return Ok(Self::Nsec3(chain));
        }
        let has_nsec = |name: &usize| !names.of_type(*name, rtype::NSEC).is_empty();
        let owners: Vec<usize> = names.authoritative(zone).into_iter().filter(has_nsec).collect();
        if owners.is_empty() {
            Ok(Self::None)
        } else {
            Ok(Self::Nsec(Nsec::of(names, owners, arena, faults)?))
        }
    }

    /// Memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Nsec(chain) => chain.bytes(),
            Self::Nsec3(chain) => chain.bytes(),
        }
    }

    /// Adds the sets that prove the claim of a name of the zone, whose own name has `apex` bytes.
    pub(super) fn prove(&self, name: &QueryName, apex: u8, claim: Claim, proof: &mut Proof<'_>) {
        proof.apex = apex;
        match self {
            Self::None => {}
            Self::Nsec(chain) => chain.prove(name, claim, proof),
            Self::Nsec3(chain) => chain.prove(name, claim, proof),
        }
    }
}

impl<'a> Proof<'a> {
    /// Without sets; `known`: those that the reply has already.
    pub(super) fn new(arena: &'a [u8], known: &'a [[u8; 4]]) -> Self {
        Self { arena, known, sets: [0; MAX_SETS], len: 0, apex: 0 }
    }

    fn add(&mut self, set: Option<u32>) {
        let Some(set) = set else { return };
        let is_there = self.sets().contains(&set) || self.known.contains(&set.to_be_bytes());
        if !is_there && let Some(place) = self.sets.get_mut(usize::from(self.len)) {
            *place = set;
            self.len += 1;
        }
    }

    /// The sets, by their offsets.
    pub(super) fn sets(&self) -> &[u32] {
        &self.sets[..usize::from(self.len)]
    }

    /// Bytes of the zone's name.
    fn apex(&self) -> usize {
        self.apex.into()
    }

    /// Whether there is nothing to add to the reply.
    pub(in super::super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Writes all records behind the first `from` bytes of `out`; returns their bytes and number, or `None` if they do
    /// not fit. `out` follows the question in the message.
    pub(in super::super) fn write(
        &self,
        name: &QueryName,
        out: &mut [u8],
        from: usize,
    ) -> Option<(usize, u16)> {
        let mut key = [0; MAX_NAME];
        let apex = self.apex();
        let len = name.write_key(apex, &mut key);
        let (mut at, mut records) = (from, 0_u16);
        for set in self.sets() {
            let set = Set::read(self.arena, *set)?;
            at = set.write(name, apex, &key[..len], out, at)?;
            records = records.checked_add(set.count)?;
        }
        Some((at - from, records))
    }
}

/// The order of names (RFC 4034, 6.1), of keys without the apex.
fn canonical(mut a: &[u8], mut b: &[u8]) -> std::cmp::Ordering {
    use std::cmp::Ordering::{Equal, Greater, Less};

    loop {
        let (left, right) = match (split_label(a), split_label(b)) {
            (None, None) => return Equal,
            (None, Some(_)) => return Less,
            (Some(_), None) => return Greater,
            (Some(left), Some(right)) => (left, right),
        };
        match left.0.cmp(right.0) {
            Equal => (a, b) = (left.1, right.1),
            other => return other,
        }
    }
}

/// The first label of a key without its length, and the rest.
fn split_label(key: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = key.split_first()?;
    rest.split_at_checked(usize::from(*len))
}

#[cfg(test)]
mod tests;
