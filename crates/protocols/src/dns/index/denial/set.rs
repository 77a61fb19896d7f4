//! Sets of a chain in the index's arena: the records of one owner with their signatures, as they are sent.
//!
//! ```text
//! length | owner's labels from the apex | number of records | bytes of these | type, class, TTL, length, data | ...
//! ```
//! The owner is written before each record, from the labels that the question does not have and a pointer into the
//! question: a set is the same for each question. Names in the data are not compressed (RFC 4034, 3.1.7 and 4.1.1).

use super::super::super::name::{self, MAX_NAME, QueryName};
use super::super::super::records::{Record, Records};
use super::super::super::wire::{HEADER, class, rtype};
use super::super::super::zone::{Faults, ZoneError};
use super::split_label;

/// Most bytes of one set: three of them, an SOA record and a question fit a message over TCP. Those of a zone have some
/// 500, a few thousand with several keys.
pub(super) const MAX_SET: usize = 16 << 10;
/// Bytes of a record between owner and data.
const FIXED: usize = 10;

/// A set that was found.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Set<'a> {
    /// Its owner's labels, from the apex.
    key: &'a [u8],
    pub(super) count: u16,
    records: &'a [u8],
}

/// Appends a set, and returns its offset; `None` and a fault if it is too long.
pub(super) fn append<'a>(
    arena: &mut Vec<u8>,
    key: &[u8],
    records: &Records,
    all: impl Iterator<Item = &'a Record> + Clone,
    faults: &mut Faults,
) -> Result<Option<u32>, ZoneError> {
    let at = u32::try_from(arena.len()).map_err(|_| ZoneError::TooLarge)?;
    let len: usize = all.clone().map(|record| FIXED + records.data(record).len()).sum();
    let Some(first) = all.clone().next() else { return Ok(None) };
    let (true, Ok(key_len)) = (len <= MAX_SET, u8::try_from(key.len())) else {
        let (place, name) = (records.place(first), records.name(first));
        let reason = format!(
            "{place}: the denial record of {name} and its signatures have {len} bytes, and {MAX_SET} may be: remove signatures"
        );
        faults.records(records.source(first), all.count(), reason);
        return Ok(None);
    };
    arena.push(key_len);
    arena.extend_from_slice(key);
    arena.extend((all.clone().count() as u16).to_be_bytes());
    arena.extend((len as u16).to_be_bytes());
    for record in all {
        let data = records.data(record);
        arena.extend(record.rtype.to_be_bytes());
        arena.extend(class::IN.to_be_bytes());
        arena.extend(record.ttl.to_be_bytes());
        arena.extend((data.len() as u16).to_be_bytes());
        arena.extend_from_slice(data);
    }
    Ok(Some(at))
}

/// The owner of the set at an offset, as the key behind the apex's; empty if there is no set.
pub(super) fn key(arena: &[u8], at: u32) -> &[u8] {
    let key = arena.get(at as usize..).and_then(<[u8]>::split_first);
    key.and_then(|(len, rest)| rest.get(..usize::from(*len))).unwrap_or_default()
}

impl<'a> Set<'a> {
    /// The set at an offset.
    pub(in super::super) fn read(arena: &'a [u8], at: u32) -> Option<Self> {
        let key = key(arena, at);
        let (fixed, rest) = arena.get(at as usize + 1 + key.len()..)?.split_first_chunk::<4>()?;
        let [c0, c1, l0, l1] = *fixed;
        let records = rest.get(..usize::from(u16::from_be_bytes([l0, l1])))?;
        Some(Self { key, count: u16::from_be_bytes([c0, c1]), records })
    }

    /// Writes the owner's name; `apex`: the zone's.
    pub(in super::super) fn owner(&self, apex: &[u8], out: &mut Vec<u8>) {
        let mut labels = [0; MAX_NAME];
        let len = name::reverse(self.key, &mut labels);
        out.clear();
        out.extend_from_slice(&labels[..len]);
        out.extend_from_slice(apex);
    }

    /// Its records, each from its type to the end of its data.
    pub(in super::super) fn records(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self.records;
        std::iter::from_fn(move || {
            let len = rest.get(FIXED - 2..).and_then(<[u8]>::first_chunk::<2>)?;
            let (record, after) = rest.split_at_checked(FIXED + usize::from(u16::from_be_bytes(*len)))?;
            rest = after;
            Some(record)
        })
    }

    /// The data of its first record, which says what is next.
    pub(super) fn denial(&self) -> Option<&'a [u8]> {
        self.records().next()?.get(FIXED..)
    }

    /// Whether it has a signature.
    pub(super) fn is_signed(&self) -> bool {
        self.records().any(|record| record.starts_with(&rtype::RRSIG.to_be_bytes()))
    }

    /// Writes the records at `at` of `out`, which follows the question for `name`; returns where they end. `apex`:
    /// bytes of the zone's name; `key`: the question's labels from there.
    pub(super) fn write(
        &self,
        name: &QueryName,
        apex: usize,
        key: &[u8],
        out: &mut [u8],
        mut at: usize,
    ) -> Option<usize> {
        let shared = shared(self.key, key);
        let mut labels = [0; MAX_NAME];
        let own = name::reverse(&self.key[shared..], &mut labels);
        let in_question = (name.wire().len() - apex).checked_sub(shared)?;
        let base = HEADER + name.wire().len() + 4;
        let mut put = |at: &mut usize, bytes: &[u8]| {
            out.get_mut(*at..)?.get_mut(..bytes.len())?.copy_from_slice(bytes);
            *at += bytes.len();
            Some(())
        };
        let first = pointer(base + at).filter(|_| own > 0);
        for (nth, record) in self.records().enumerate() {
            match first.filter(|_| nth > 0) {
                Some(owner) => put(&mut at, &owner)?,
                None => {
                    put(&mut at, &labels[..own])?;
                    match name.wire().get(in_question..)? {
                        // The root is shorter than a pointer to it.
                        [0] => put(&mut at, &[0])?,
                        _ => put(&mut at, &pointer(HEADER + in_question)?)?,
                    }
                }
            }
            put(&mut at, record)?;
        }
        Some(at)
    }
}

/// A pointer to this offset of the message (RFC 1035, 4.1.4), if one can be.
fn pointer(offset: usize) -> Option<[u8; 2]> {
    let offset = u16::try_from(offset).ok().filter(|offset| *offset <= 0x3fff)?;
    Some((0xc000 | offset).to_be_bytes())
}

/// Bytes of the labels that two keys begin with.
fn shared(a: &[u8], b: &[u8]) -> usize {
    let (mut rest_a, mut rest_b) = (a, b);
    while let (Some((label_a, after_a)), Some((label_b, after_b))) =
        (split_label(rest_a), split_label(rest_b))
        && label_a == label_b
    {
        (rest_a, rest_b) = (after_a, after_b);
    }
    a.len() - rest_a.len()
}
