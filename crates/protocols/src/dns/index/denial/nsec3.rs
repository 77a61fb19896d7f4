//! Chains of NSEC3 records (RFC 5155): as those of NSEC, of hashes of the names, which stay secret.
//!
//! ```text
//! a.b.x does not exist, x does:     closest encloser x: the set with its hash
//!                                   next closer name b.x: the set before its hash     wildcard *.x: that before its hash
//! ```
//! A chain may leave out delegations that are not signed, and names that exist only for them (opt-out, 6). Of these a
//! proof says what exists above them, and that its set has the flag.

use sha1::{Digest as _, Sha1};

use super::super::super::name::QueryName;
use super::super::super::records::{Record, covered};
use super::super::super::wire::rtype;
use super::super::super::zone::{Faults, Nsec3Params, ZoneError};
use super::super::resolve::Names;
use super::{Claim, Proof, set};

/// Bytes of a hash: of SHA-1, the only algorithm (RFC 5155, 11).
const HASH: usize = 20;

/// See the module.
#[derive(Debug)]
pub(in super::super) struct Nsec3 {
    salt: Vec<u8>,
    iterations: u16,
    /// Hash and offset of each set, in the order of the hashes.
    sets: Vec<([u8; HASH], u32)>,
}

impl Nsec3 {
    /// The chain of a zone: that of the NSEC3PARAM record with most records, of those that can be used.
    pub(super) fn of(
        names: &Names,
        zone: u16,
        arena: &mut Vec<u8>,
        faults: &mut Faults,
    ) -> Result<Option<Self>, ZoneError> {
        let records = &names.records;
        let Some(apex) = names.exact(zone, names.apex(zone)) else { return Ok(None) };
        let hashed = names.hashed(zone);
        let belongs = |record: &&Record, to: &Nsec3Params<'_>| {
            record.rtype == rtype::NSEC3
                && Nsec3Params::read(records.data(record)).is_some_and(|own| own.are(to))
        };
        let size = |params: &Nsec3Params<'_>| hashed.iter().filter(|record| belongs(record, params)).count();
        let named = names.of_type(apex, rtype::NSEC3PARAM).iter();
        let usable = named.filter_map(|record| Nsec3Params::usable(records.data(record)));
        let Some(params) = usable.max_by_key(size).filter(|params| size(params) > 0) else { return Ok(None) };
        let mut sets = Vec::new();
        for owner in hashed.chunk_by(|a, b| records.key(a) == records.key(b)) {
            let key = records.key(&owner[0]).get(names.apex(zone).len()..).unwrap_or_default();
            let Some(hash) = hash_of(key) else { continue };
            let denial = owner.iter().filter(|record| belongs(record, &params));
            // Signatures cover all records of the owner.
            let signatures = owner.iter().filter(|record| covered(records, record) == Some(rtype::NSEC3));
            if denial.clone().next().is_some() {
                let set = set::append(arena, key, records, denial.chain(signatures), faults)?;
                sets.extend(set.map(|set| (hash, set)));
            }
        }
        // Records that stand nowhere in a chain are none.
        if sets.is_empty() {
            return Ok(None);
        }
        sets.sort_unstable();
        sets.shrink_to_fit();
        Ok(Some(Self { salt: params.salt.to_vec(), iterations: params.iterations, sets }))
    }

    pub(super) fn bytes(&self) -> usize {
        self.sets.capacity() * size_of::<([u8; HASH], u32)>() + self.salt.capacity()
    }

    /// RFC 5155, 7.2.
    pub(super) fn prove(&self, name: &QueryName, claim: Claim, proof: &mut Proof<'_>) {
        match claim {
            // Also of DS records (7.2.3, 7.2.4), and for a delegation that is not signed (7.2.7).
            Claim::NoData => {
                self.encloser(name, 0, proof);
            }
            Claim::NoName(labels) | Claim::WildcardNoData(labels) => {
                let encloser = self.encloser(name, labels, proof);
                let wildcard = self.hash(&[b"\x01*", name.suffix(encloser)]);
                proof.add(self.last_not_after(&wildcard));
            }
            Claim::Wildcard(labels) => {
                let next_closer = self.hash(&[name.suffix(labels.saturating_sub(1))]);
                proof.add(self.last_not_after(&next_closer));
            }
        }
    }

    /// Adds the set of the closest encloser that has one, of the name without its first `labels` labels or above, and
    /// the set that covers the next closer name. Returns how many labels are in front of that encloser.
    ///
    /// Names without a set of their own are those that opt-out leaves out, with names between them and the next one
    /// above. Where a name has a set, those above have one: a binary search among the labels takes at most seven
    /// hashes. In a chain with gaps it may find an encloser that is not the closest, which proves as little as the gap.
    fn encloser(&self, name: &QueryName, labels: usize, proof: &mut Proof<'_>) -> usize {
        let own = |in_front: usize| self.own(&self.hash(&[name.suffix(in_front)]));
        let is_within = |in_front: &usize| name.suffix(*in_front).len() >= proof.apex();
        let apex = (labels..=name.labels()).take_while(is_within).last();
        let (mut without, mut at) = (labels, labels);
        // Most names have one.
        let mut set = own(labels);
        if set.is_none() {
            at = apex.unwrap_or(labels);
            set = own(at);
            if set.is_none() {
                return labels;
            }
            while at - without > 1 {
                let middle = without + (at - without) / 2;
                match own(middle) {
                    None => without = middle,
                    found => (at, set) = (middle, found),
                }
            }
        }
        proof.add(set);
        if let Some(longer) = at.checked_sub(1) {
            proof.add(self.last_not_after(&self.hash(&[name.suffix(longer)])));
        }
        at
    }

    /// The hash of a name in pieces (5).
    pub(super) fn hash(&self, name: &[&[u8]]) -> [u8; HASH] {
        let first = name.iter().fold(Sha1::new(), Sha1::chain_update);
        let mut hash = first.chain_update(&self.salt).finalize();
        for _ in 0..self.iterations {
            hash = Sha1::new().chain_update(hash).chain_update(&self.salt).finalize();
        }
        hash.into()
    }

    /// The set with this hash.
    pub(super) fn own(&self, hash: &[u8; HASH]) -> Option<u32> {
        let place = self.sets.binary_search_by_key(hash, |(hash, _)| *hash).ok()?;
        self.sets.get(place).map(|(_, set)| *set)
    }

    /// The set with this hash, or the last before it; the very last, if there is none.
    pub(super) fn last_not_after(&self, hash: &[u8; HASH]) -> Option<u32> {
        let after = self.sets.partition_point(|(other, _)| other <= hash);
        let place = after.checked_sub(1).unwrap_or(self.sets.len().saturating_sub(1));
        self.sets.get(place).map(|(_, set)| *set)
    }

    /// Hash and offset of each set, in the order of the hashes.
    pub(super) fn sets(&self) -> &[([u8; HASH], u32)] {
        &self.sets
    }
}

/// The hash that is an owner's only label (RFC 5155, 3; base 32 of RFC 4648, 7).
fn hash_of(key: &[u8]) -> Option<[u8; HASH]> {
    let text: &[u8; 32] = key.strip_prefix(&[32])?.try_into().ok()?;
    let mut hash = [0; HASH];
    for (five, eight) in hash.as_chunks_mut::<5>().0.iter_mut().zip(text.as_chunks::<8>().0) {
        let mut bits = 0_u64;
        for digit in eight {
            let value = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'v' => digit - b'a' + 10,
                _ => return None,
            };
            bits = bits << 5 | u64::from(value);
        }
        five.copy_from_slice(&bits.to_be_bytes()[3..]);
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 5155, appendix A.
    #[test]
    fn hashes_are_those_of_the_rfc() {
        let chain = Nsec3 { salt: vec![0xaa, 0xbb, 0xcc, 0xdd], iterations: 12, sets: Vec::new() };
        for (name, hash) in [
            (&b"\x07example\0"[..], &b"\x200p9mhaveqvm6t7vbl5lop2u3t2rp3tom"[..]),
            (b"\x01a\x07example\0", b"\x2035mthgpgcu1qg68fab165klnsnk3dpvl"),
            (b"\x01*\x01w\x07example\0", b"\x20r53bq7cc2uvmubfu5ocmm6pers9tk9en"),
        ] {
            let (wildcard, rest) = name.split_at(2);
            assert_eq!(Some(chain.hash(&[name])), hash_of(hash));
            assert_eq!(Some(chain.hash(&[wildcard, rest])), hash_of(hash));
        }
        for broken in [
            &b""[..],
            b"\x200p9m",
            b"\x200p9mhaveqvm6t7vbl5lop2u3t2rp3tow",
            b"\x1f0p9mhaveqvm6t7vbl5lop2u3t2rp3to",
        ] {
            assert_eq!(hash_of(broken), None);
        }
    }
}
