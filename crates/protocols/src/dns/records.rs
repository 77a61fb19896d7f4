//! All records of all zones, as compact as they are while the index is built: one arena of bytes and a list of 24 bytes
//! each.
//!
//! ```text
//! key:   www.example.org. as 3 org 7 example 3 www: labels from the root, lowercased, each with its length byte
//!        a key that begins with another belongs to a name below the other's; sorted, they stand together
//! data:  length, record data with uncompressed names
//! ```

use std::path::PathBuf;

use super::name;
use super::wire::rtype;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Records {
    bytes: Vec<u8>,
    /// Sorted by key, type and data once the zones are loaded.
    pub(super) list: Vec<Record>,
    pub(super) zones: Vec<Zone>,
    /// Files by their number in records, for messages.
    pub(super) files: Vec<PathBuf>,
}

/// A record: where its key and data are, and where it was defined.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    key: u32,
    data: u32,
    /// Seconds.
    pub(super) ttl: u32,
    pub(super) line: u32,
    pub(super) rtype: u16,
    pub(super) zone: u16,
    pub(super) file: u16,
}

impl Record {
    /// Whether it is this very record.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.data == other.data
    }
}

/// A zone.
#[derive(Debug)]
pub(super) struct Zone {
    /// Key of its apex.
    pub(super) apex: Vec<u8>,
    /// Of a zone that is left out, a record of no type.
    pub(super) soa: Record,
    /// Which of the given files it comes from.
    pub(super) source: u16,
    /// It has faults, and is left out: questions for its names fail.
    pub(super) left_out: bool,
}

/// The length of an SOA's five numbers, which follow its two names.
const SOA_NUMBERS: usize = 20;

/// The records need more than 4 GiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLarge;

impl Records {
    /// Adds a record. `owner`: lowercased, in wire form.
    pub(super) fn push(&mut self, owner: &[u8], data: &[u8], record: Unplaced) -> Result<Record, TooLarge> {
        let key = key_of(owner);
        let place = match self.list.last() {
            // Most owners have several records, one after the other.
            Some(last) if self.key(last) == key => last.key,
            _ => self.append(&[u8::try_from(key.len()).map_err(|_| TooLarge)?], &key)?,
        };
        let len = u16::try_from(data.len()).map_err(|_| TooLarge)?;
        let data = self.append(&len.to_be_bytes(), data)?;
        let Unplaced { ttl, line, rtype, zone, file } = record;
        let record = Record { key: place, data, ttl, line, rtype, zone, file };
        self.list.push(record);
        Ok(record)
    }

    fn append(&mut self, len: &[u8], bytes: &[u8]) -> Result<u32, TooLarge> {
        let place = u32::try_from(self.bytes.len()).map_err(|_| TooLarge)?;
        self.bytes.extend_from_slice(len);
        self.bytes.extend_from_slice(bytes);
        Ok(place)
    }

    /// Sorts by key, type and data. Of records that are equal but for the letters of names and the TTL, the first one
    /// stays (RFC 2181, 5), and all of a set get the TTL of its first record (5.2), as in BIND. Frees what loading kept
    /// in reserve.
    pub(super) fn sort(&mut self) {
        let mut list = std::mem::take(&mut self.list);
        let set = |a: &Record, b: &Record| {
            self.key(a).cmp(self.key(b)).then(a.rtype.cmp(&b.rtype)).then(a.zone.cmp(&b.zone))
        };
        let order = |a: &Record, b: &Record| {
            set(a, b).then_with(|| canonical_order(a.rtype, self.data(a), self.data(b)))
        };
        let defined = |record: &Record| (record.file, record.line);
        list.sort_unstable_by(|a, b| order(a, b).then(defined(a).cmp(&defined(b))));
        list.dedup_by(|a, b| order(a, b).is_eq());
        // The TTL of a signature is that of what it signs (RFC 4034, 3).
        for set in list.chunk_by_mut(|a, b| a.rtype != rtype::RRSIG && set(a, b).is_eq()) {
            if let Some(first) = set.iter().min_by_key(|record| defined(record)).copied() {
                set.iter_mut().for_each(|record| record.ttl = first.ttl);
            }
        }
        list.shrink_to_fit();
        self.list = list;
        self.bytes.shrink_to_fit();
    }

    /// `FILE:LINE` of a record.
    pub(super) fn place(&self, record: &Record) -> String {
        let file = self.files.get(usize::from(record.file)).map(|file| file.display().to_string());
        format!("{}:{}", file.unwrap_or_default(), record.line)
    }

    /// Which of the given files a record comes from.
    pub(super) fn source(&self, record: &Record) -> u16 {
        self.zones.get(usize::from(record.zone)).map_or(0, |zone| zone.source)
    }

    /// The owner for a message.
    pub(super) fn name(&self, record: &Record) -> String {
        let mut wire = Vec::new();
        wire_of(self.key(record), &mut wire);
        name::display(&wire)
    }

    /// Whether the owner is that of `apex`, or a name below it.
    pub(super) fn is_below(&self, record: &Record, apex: &Record) -> bool {
        self.key(record).starts_with(self.key(apex))
    }

    /// Whether an SOA is another but for the letters of its names. `owner`: in wire form.
    pub(super) fn is_same_soa(&self, record: &Record, owner: &[u8], data: &[u8]) -> bool {
        let known = self.data(record);
        let Some(names) = known.len().checked_sub(SOA_NUMBERS).filter(|_| known.len() == data.len()) else {
            return false;
        };
        known[..names].eq_ignore_ascii_case(&data[..names])
            && known[names..] == data[names..]
            && self.key(record) == key_of(owner)
    }

    /// The key of a record's owner.
    pub(super) fn key(&self, record: &Record) -> &[u8] {
        let at = record.key as usize;
        &self.bytes[at + 1..][..usize::from(self.bytes[at])]
    }

    /// A record's data, with uncompressed names.
    pub(super) fn data(&self, record: &Record) -> &[u8] {
        let at = record.data as usize;
        let len = u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]]);
        &self.bytes[at + 2..][..usize::from(len)]
    }
}

/// The order of a set's records: names by their letters in any case, where only names follow (RFC 4034, 6.2).
fn canonical_order(rtype: u16, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
    // RP, AFSDB, RT, PX, KX
    let before_names = match rtype {
        rtype::DNAME | 17 => Some(0),
        18 | 21 | 26 | 36 => Some(2),
        rtype::SRV => Some(6),
        rtype::SOA => None,
        _ => match names_in(rtype) {
            (_, 0) => None,
            (before, _) => Some(before),
        },
    };
    match before_names.map(|before| (a.split_at_checked(before), b.split_at_checked(before))) {
        Some((Some((fixed_a, names_a)), Some((fixed_b, names_b)))) => {
            let lower = |names: &[u8]| names.iter().map(u8::to_ascii_lowercase).collect::<Vec<_>>();
            fixed_a.cmp(fixed_b).then_with(|| {
                if names_a.eq_ignore_ascii_case(names_b) {
                    std::cmp::Ordering::Equal
                } else {
                    lower(names_a).cmp(&lower(names_b))
                }
            })
        }
        _ => a.cmp(b),
    }
}

/// A record's numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unplaced {
    pub(super) ttl: u32,
    pub(super) line: u32,
    pub(super) rtype: u16,
    pub(super) zone: u16,
    pub(super) file: u16,
}

/// The key of a name in wire form; lowercases it.
pub(super) fn key_of(wire: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(wire.len());
    let starts: Vec<usize> = name::label_starts(wire).collect();
    for start in starts.into_iter().rev() {
        let label = &wire[start..][..1 + usize::from(wire[start])];
        key.extend(label.iter().map(u8::to_ascii_lowercase));
    }
    key
}

/// The name of a key, in wire form.
pub(super) fn wire_of(key: &[u8], wire: &mut Vec<u8>) {
    wire.clear();
    let ends: Vec<usize> = boundaries(key).collect();
    for pair in ends.windows(2).rev() {
        wire.extend_from_slice(&key[pair[0]..pair[1]]);
    }
    wire.push(0);
}

/// The lengths of the key's prefixes that are names, from the root's 0 to the whole.
pub(super) fn boundaries(key: &[u8]) -> impl Iterator<Item = usize> + '_ {
    let mut next = Some(0);
    std::iter::from_fn(move || {
        let at = next?;
        next = key.get(at).map(|len| at + 1 + usize::from(*len));
        Some(at)
    })
}

/// How the data of a type is made of names: bytes before them, their number, and whether they may be compressed. Only
/// types of RFC 1035 may (RFC 3597, 4).
pub(super) fn names_in(rtype: u16) -> (usize, usize) {
    // MD, MF, MB, MG, MR, PTR like NS; MINFO like SOA.
    match rtype {
        rtype::NS | rtype::CNAME | 3 | 4 | 7 | 8 | 9 | 12 => (0, 1),
        rtype::MX => (2, 1),
        rtype::SOA | 14 => (0, 2),
        _ => (0, 0),
    }
}

/// The type that a signature covers; `None` for any other record.
pub(super) fn covered(records: &Records, record: &Record) -> Option<u16> {
    let type_covered = records.data(record).first_chunk().filter(|_| record.rtype == rtype::RRSIG)?;
    Some(u16::from_be_bytes(*type_covered))
}

/// Whether its owner is a hash, not a name of the zone's tree: an NSEC3 record or a signature of one (RFC 5155, 7.2.8).
pub(super) fn is_hashed(records: &Records, record: &Record) -> bool {
    record.rtype == rtype::NSEC3 || covered(records, record) == Some(rtype::NSEC3)
}

/// Those of a name's signatures that cover a type.
pub(super) fn signatures<'a>(
    records: &'a Records,
    all: &'a [Record],
    rtype: u16,
) -> impl Iterator<Item = &'a Record> + Clone {
    all.iter().filter(move |record| covered(records, record) == Some(rtype))
}

/// The name that a client will ask for next, if the type has one: a server's, an exchange's.
pub(super) fn target(rtype: u16, data: &[u8]) -> Option<&[u8]> {
    let at = match rtype {
        rtype::NS | rtype::CNAME | rtype::DNAME => 0,
        rtype::MX => 2,
        rtype::SRV => 6,
        _ => return None,
    };
    let name = data.get(at..)?;
    name.get(..name::length(name)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_names_from_the_root() {
        let mut wire = Vec::new();
        for name in [&b"\0"[..], b"\x03org\0", b"\x01*\x07example\x03org\0"] {
            wire_of(&key_of(name), &mut wire);
            assert_eq!(wire, name);
        }
        let key = key_of(b"\x01*\x07exAmple\x03org\0");
        assert_eq!(key, b"\x03org\x07example\x01*");
        assert_eq!(boundaries(&key).collect::<Vec<_>>(), [0, 4, 12, 14]);
    }

    #[test]
    fn sorting_puts_a_name_before_those_below_it_and_removes_duplicates() {
        let mut records = Records::default();
        let mut add = |owner: &[u8], data: &[u8]| {
            let numbers = Unplaced { ttl: 1, line: 1, rtype: 1, zone: 0, file: 0 };
            records.push(owner, data, numbers).unwrap();
        };
        add(b"\x01z\x01a\0", b"1");
        add(b"\x02aa\0", b"2");
        add(b"\x01a\0", b"4");
        add(b"\x01a\0", b"3");
        add(b"\x01a\0", b"4");
        records.sort();
        let sorted: Vec<_> = records.list.iter().map(|record| records.data(record)).collect();
        assert_eq!(sorted, [b"3", b"4", b"1", b"2"]);
    }
}
