//! The bytes of a drained ring as records.

use super::record::{self, Layout, Record};

/// Calls `take` with each record of `bytes`, of a ring without counters; see [`records_as`].
pub fn records(bytes: &[u8], take: impl FnMut(Record<'_>)) -> u64 {
    records_as(Layout::Plain, bytes, take)
}

/// Calls `take` with each record of `bytes` and returns the number of invalid ones. After an invalid length, the rest
/// cannot be parsed and counts as one.
pub fn records_as(layout: Layout, mut bytes: &[u8], mut take: impl FnMut(Record<'_>)) -> u64 {
    let mut malformed = 0;
    while !bytes.is_empty() {
        let Ok(size) = record::size(bytes) else { return malformed + 1 };
        let (record, rest) = bytes.split_at(size);
        match Record::parse_as(layout, record) {
            Ok(record) => take(record),
            Err(_) => malformed += 1,
        }
        bytes = rest;
    }
    malformed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_record_does_not_take_the_next_with_it() {
        let header = |kind: u32, size: u16| {
            [&kind.to_ne_bytes()[..], &0u16.to_ne_bytes(), &size.to_ne_bytes()].concat()
        };
        // A sample without its fields, a throttle record, and half a record.
        let bytes = [header(9, 8), header(5, 8), header(5, 32)].concat();
        let mut found = Vec::new();
        let malformed = records(&bytes, |record| found.push(format!("{record:?}")));
        assert_eq!((found, malformed), (vec!["Throttled".to_owned()], 2));
    }
}
