//! Replies: what makes one the intact answer to a query.
//!
//! ```text
//!   id | QR opcode .. RD .. Z .. rcode | counts    12 bytes; the id and its query are the caller's business
//!   question                                       byte for byte that of the query, its case included
//!   records                                        as many as the counts say: there is room for them, or (`walk`) each is
//!                                                  whole, and the last ends where the message does
//! ```
//! All of it is bounded by the length of the reply: a name is followed through at most [`MAX_JUMPS`] pointers,
//! backwards only.

use super::name::MAX_NAME;
use super::queries::HEADER;

/// Bits of the flags that a reply to a standard query with RD cannot choose: QR, opcode, RD and the reserved Z; AA, TC,
/// RA, AD, CD and the response code are the server's.
const FIXED: u16 = 0xf940;
const EXPECTED: u16 = 0x8100;
const RCODE: u16 = 0x000f;

/// Response codes that are assigned for replies without EDNS (RFC 1035, 4.1.1; RFC 2136, 2.2).
pub(super) const CODES: [&str; 11] = [
    "NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN", "YXRRSET", "NXRRSET",
    "NOTAUTH", "NOTZONE",
];
const LAST_CODE: u16 = CODES.len() as u16 - 1;
/// Those of an answer.
const NOERROR: u16 = 0;
const NXDOMAIN: u16 = 3;

/// Bytes of the smallest record: the root's name, type, class, TTL and a length of 0.
const MIN_RECORD: usize = 11;
/// Most pointers in a name: one to each of its labels and to the root; the shortest label has 2 bytes.
const MAX_JUMPS: usize = MAX_NAME.div_ceil(2);

/// The judgement of a reply's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contents {
    /// NOERROR or NXDOMAIN, also truncated (TC).
    Answer,
    /// Any other response code.
    Refusal,
    /// Not a reply to this query, or damaged.
    Wrong,
}

/// The identifier of a message, if it is long enough for one with a header.
#[inline]
pub(super) fn id(reply: &[u8]) -> Option<u16> {
    let header = reply.first_chunk::<HEADER>()?;
    Some(u16::from_be_bytes([header[0], header[1]]))
}

/// The response code of a message with a header.
#[inline]
pub(super) fn code(reply: &[u8]) -> u8 {
    reply.get(3).map_or(0, |flags| flags & 0x0f)
}

/// Whether a message with a header says that it is incomplete (TC).
#[inline]
pub(super) fn is_truncated(reply: &[u8]) -> bool {
    reply.get(2).is_some_and(|flags| flags & 0x02 != 0)
}

/// Judges everything but the identifier; `walk`: also each record.
#[inline]
pub(super) fn check(reply: &[u8], question: &[u8], walk: bool) -> Contents {
    let Some((header, rest)) = reply.split_first_chunk::<HEADER>() else { return Contents::Wrong };
    let [_, _, f0, f1, q0, q1, a0, a1, n0, n1, r0, r1] = *header;
    let flags = u16::from_be_bytes([f0, f1]);
    let contents = match flags & RCODE {
        NOERROR | NXDOMAIN => Contents::Answer,
        ..=LAST_CODE => Contents::Refusal,
        _ => Contents::Wrong,
    };
    if flags & FIXED != EXPECTED {
        return Contents::Wrong;
    }
    let rest = match (u16::from_be_bytes([q0, q1]), contents) {
        (1, _) => rest.strip_prefix(question),
        // A server that could not read the question need not return it.
        (0, Contents::Refusal) => Some(rest),
        _ => None,
    };
    let Some(rest) = rest else { return Contents::Wrong };
    let sections = [[a0, a1], [n0, n1], [r0, r1]];
    let records: usize = sections.iter().map(|count| usize::from(u16::from_be_bytes(*count))).sum();
    let sane = if walk { whole(reply, reply.len() - rest.len(), records) } else { fit(rest.len(), records) };
    if sane { contents } else { Contents::Wrong }
}

/// Whether `records` records may be in `room` bytes.
fn fit(room: usize, records: usize) -> bool {
    if records == 0 { room == 0 } else { records * MIN_RECORD <= room }
}

/// Whether exactly `records` whole records follow at `at`.
fn whole(message: &[u8], mut at: usize, records: usize) -> bool {
    // Ends at the end of the message at the latest: each record has 11 bytes or more.
    for _ in 0..records {
        match record(message, at) {
            Some(end) => at = end,
            None => return false,
        }
    }
    at == message.len()
}

/// Where the record at `at` ends.
fn record(message: &[u8], at: usize) -> Option<usize> {
    let fields = name(message, at)?;
    // Type, class and TTL, then the length of the data.
    let length = message.get(fields + 8..)?.first_chunk::<2>()?;
    let end = fields + 10 + usize::from(u16::from_be_bytes(*length));
    (end <= message.len()).then_some(end)
}

/// Where the name at `start` ends; none if it is cut off, too long, or points anywhere but backwards (RFC 1035, 4.1.4).
fn name(message: &[u8], start: usize) -> Option<usize> {
    let (mut at, mut end, mut len, mut jumps, mut lowest) = (start, None, 0, 0, start);
    loop {
        let byte = *message.get(at)?;
        match byte >> 6 {
            0 => {
                len += 1 + usize::from(byte);
                at += 1 + usize::from(byte);
                if len > MAX_NAME {
                    return None;
                }
                if byte == 0 {
                    return Some(end.unwrap_or(at));
                }
            }
            3 => {
                let target = usize::from(byte & 0x3f) << 8 | usize::from(*message.get(at + 1)?);
                end.get_or_insert(at + 2);
                jumps += 1;
                if target >= lowest || target < HEADER || jumps > MAX_JUMPS {
                    return None;
                }
                (at, lowest) = (target, target);
            }
            // Types of labels that were given up (RFC 6891, 5).
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests;
