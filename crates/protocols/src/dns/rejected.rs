//! The reply to a message that is no query for this server: malformed, or another operation.
//!
//! ```text
//! without OPT   header                   as little as tells the client
//! with OPT      header, question, OPT    RFC 6891, 7: without it, the client would conclude that the server has no EDNS
//! ```
//! No reply is longer than its request. The message is read as far as it can be, and never past its end.

use super::answer::{OPT, write_opt};
use super::name;
use super::wire::{HEADER, rtype};

/// Bytes of a record between its name and its data: type, class, TTL, length.
const FIXED: usize = 10;
/// Bytes of a question after its name: type, class.
const ASKED: usize = 4;

/// Writes the reply with this code; returns its length, or `None` without room or header.
pub(super) fn reject(message: &[u8], rcode: u16, out: &mut [u8]) -> Option<usize> {
    let [i0, i1, flags, ..] = *message.first_chunk::<HEADER>()?;
    let (question, dnssec) = match edns(message) {
        Some(Edns { question, dnssec }) => (question, Some(dnssec)),
        None => (&[][..], None),
    };
    let len = HEADER + question.len() + dnssec.map_or(0, |_| OPT);
    let (header, rest) = out.get_mut(..len)?.split_first_chunk_mut::<HEADER>()?;
    *header = [0; HEADER];
    [header[0], header[1], header[2], header[3]] = [i0, i1, 0x80 | flags & 0x79, rcode as u8];
    (header[5], header[11]) = (u8::from(!question.is_empty()), u8::from(dnssec.is_some()));
    let (asked, opt) = rest.split_at_mut(question.len());
    asked.copy_from_slice(question);
    if let Some(dnssec) = dnssec {
        write_opt(opt, rcode, dnssec, None);
    }
    Some(len)
}

/// What a reply to a message with an OPT record repeats.
struct Edns<'a> {
    /// The question; empty if there is another number of them, or its name is compressed.
    question: &'a [u8],
    /// DO of the first OPT record.
    dnssec: bool,
}

/// `None`: the message has no whole OPT record among its additional records.
fn edns(message: &[u8]) -> Option<Edns<'_>> {
    let (header, mut rest) = message.split_first_chunk::<HEADER>()?;
    let count = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let asked = rest;
    for _ in 0..count(4) {
        rest = after_name(rest)?.get(ASKED..)?;
    }
    let question = match (count(4), name::length(asked)) {
        (1, Some(name)) => asked.get(..name + ASKED)?,
        _ => &[],
    };
    for _ in 0..u32::from(count(6)) + u32::from(count(8)) {
        (_, rest) = record(rest)?;
    }
    for _ in 0..count(10) {
        let (fixed, after) = record(rest)?;
        // Of the root, as every OPT record is.
        if [fixed[0], fixed[1]] == rtype::OPT.to_be_bytes() && rest[0] == 0 {
            return Some(Edns { question, dnssec: fixed[6] & 0x80 != 0 });
        }
        rest = after;
    }
    None
}

/// What a record has between name and data, and what follows it.
fn record(bytes: &[u8]) -> Option<([u8; FIXED], &[u8])> {
    let (fixed, data) = after_name(bytes)?.split_first_chunk::<FIXED>()?;
    Some((*fixed, data.get(usize::from(u16::from_be_bytes([fixed[8], fixed[9]]))..)?))
}

/// What follows a name, which may end with a pointer (RFC 1035, 4.1.4).
fn after_name(mut bytes: &[u8]) -> Option<&[u8]> {
    loop {
        let (&len, rest) = bytes.split_first()?;
        bytes = match len {
            0 => return Some(rest),
            0xc0.. => return rest.get(1..),
            len if len > name::MAX_LABEL => return None,
            len => rest.get(usize::from(len)..)?,
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::wire::{Query, QueryError, rcode};
    use super::*;

    const QUESTION: &[u8] = b"\x03www\x01x\0\0\x01\0\x01";
    const EDNS: &[u8] = b"\0\0\x29\x04\xd0\0\0\x80\0\0\0";
    const POINTED: &[u8] = b"\xc0\x0c\0\x01\0\x01\0\0\0\0\0\x04\x7f\0\0\x01";

    fn message(counts: [u8; 4], flags: u8, parts: &[&[u8]]) -> Vec<u8> {
        let [questions, answers, authority, additional] = counts;
        let header = [0xab, 0xcd, flags, 0, 0, questions, 0, answers, 0, authority, 0, additional];
        [&header[..], &parts.concat()].concat()
    }

    /// The reply: the code, the number of questions, whether it has an OPT record.
    fn rejected(message: &[u8]) -> (u8, u8, bool) {
        let Err(QueryError::Rejected(code)) = Query::parse(message) else { panic!("answered: {message:?}") };
        let mut out = [0xff; 512];
        let len = reject(message, code, &mut out).unwrap();
        assert!(len <= message.len());
        assert_eq!((&out[..2], out[2]), (&message[..2], 0x80 | message[2]));
        let has_opt = out[11] == 1;
        // An OPT record of this server's size, with DO as asked.
        let (questions, opt) = out[HEADER..len].split_at(len - HEADER - if has_opt { OPT } else { 0 });
        assert!(opt.is_empty() || *opt == *b"\0\0\x29\x04\xd0\0\0\x80\0\0\0");
        assert_eq!(questions, if out[5] == 1 { QUESTION } else { &[] });
        (out[3], out[5], has_opt)
    }

    #[test]
    fn errors_have_an_opt_record_where_the_message_has_one() {
        let (formerr, notimp) = (rcode::FORMERR as u8, rcode::NOTIMP as u8);
        let update = 0x28;
        for (message, reply) in [
            (message([1, 0, 0, 1], update, &[QUESTION, EDNS]), (notimp, 1, true)),
            (message([1, 1, 1, 2], update, &[QUESTION, POINTED, POINTED, POINTED, EDNS]), (notimp, 1, true)),
            (message([1, 0, 0, 0], update, &[QUESTION]), (notimp, 0, false)),
            (message([0, 0, 0, 1], 0, &[EDNS]), (formerr, 0, true)),
            (message([2, 0, 0, 1], 0, &[QUESTION, QUESTION, EDNS]), (formerr, 0, true)),
            (message([1, 0, 0, 2], 0, &[QUESTION, EDNS, EDNS]), (formerr, 1, true)),
            (message([1, 0, 0, 1], 0, &[QUESTION, EDNS, b"rest"]), (formerr, 1, true)),
            // An option that is cut short (RFC 6891, 7).
            (message([1, 0, 0, 1], 0, &[QUESTION, &EDNS[..9], b"\0\x02\0\x0a"]), (formerr, 1, true)),
            // Not of the root, cut, and after a label that is none.
            (message([1, 0, 0, 1], 0, &[QUESTION, b"\x01a", EDNS]), (formerr, 0, false)),
            (message([1, 0, 0, 1], 0, &[QUESTION, &EDNS[..10]]), (formerr, 0, false)),
            (message([1, 0, 0, 1], 0, &[b"\x40", QUESTION, EDNS]), (formerr, 0, false)),
        ] {
            assert_eq!(rejected(&message), reply, "{message:02x?}");
        }
    }

    proptest! {
        #[test]
        fn no_reply_is_longer_than_its_message(message: Vec<u8>, room in 0..64_usize) {
            let mut out = vec![0; room];
            if let Some(len) = reject(&message, rcode::FORMERR, &mut out) {
                prop_assert!(len <= room && len <= message.len());
            }
        }
    }
}
