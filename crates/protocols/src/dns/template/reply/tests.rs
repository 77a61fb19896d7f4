use proptest::prelude::*;

use super::*;

const QUESTION: &[u8] = b"\x03wWw\x07example\x03org\0\0\x01\0\x01";
/// Owner: a pointer to the question's name. An A record.
const A: &[u8] = b"\xc0\x0c\0\x01\0\x01\0\0\x0e\x10\0\x04\xc0\0\x02\x01";
/// Owner: `mail` and a pointer to `example.org` in the question. An MX record, whose data is not looked at.
const MX: &[u8] = b"\x04mail\xc0\x10\0\x0f\0\x01\0\0\x0e\x10\0\x04\0\x0a\xc0\x0c";
const OPT: &[u8] = b"\0\0\x29\x04\xd0\0\0\0\0\0\0";

/// A reply with these flags, the question, and these records in the answer.
fn reply(flags: u16, records: &[&[u8]]) -> Vec<u8> {
    let mut reply = vec![7, 8];
    for field in [flags, 1, records.len() as u16, 0, 0] {
        reply.extend(field.to_be_bytes());
    }
    [reply, QUESTION.to_vec(), records.concat()].concat()
}

/// The judgement without and with a walk.
fn both(reply: &[u8]) -> [Contents; 2] {
    [false, true].map(|walk| check(reply, QUESTION, walk))
}

#[test]
fn answers_and_refusals_by_response_code() {
    use Contents::{Answer, Refusal, Wrong};
    let expected = [
        Answer, Refusal, Refusal, Answer, Refusal, Refusal, Refusal, Refusal, Refusal, Refusal, Refusal,
        Wrong,
    ];
    for (rcode, expected) in expected.into_iter().enumerate() {
        let reply = reply(0x8500 | rcode as u16, &[A, OPT]);
        assert_eq!(both(&reply), [expected; 2], "{rcode}");
        // Truncated, recursion available, authentic data.
        let mut flagged = reply.clone();
        (flagged[2], flagged[3]) = (flagged[2] | 2, flagged[3] | 0xa0);
        assert_eq!(both(&flagged), [expected; 2], "{rcode}");
    }
}

#[test]
fn a_refusal_may_lack_the_question() {
    let mut bare = reply(0x8101, &[])[..HEADER].to_vec();
    bare[5] = 0;
    assert_eq!(both(&bare), [Contents::Refusal; 2]);
    bare[3] = 0;
    assert_eq!(both(&bare), [Contents::Wrong; 2], "an answer may not");
}

#[test]
fn what_the_server_cannot_choose_must_be_right() {
    let good = reply(0x8180, &[A, MX]);
    assert_eq!(both(&good), [Contents::Answer; 2]);
    // QR, each bit of the opcode, RD, Z.
    for bit in [15, 14, 13, 12, 11, 8, 6] {
        let mut wrong = good.clone();
        wrong[2 + usize::from(bit < 8)] ^= 1 << (bit % 8);
        assert_eq!(both(&wrong), [Contents::Wrong; 2], "bit {bit} of the flags");
    }
    let mut other_case = good.clone();
    other_case[HEADER + 2] = b'w';
    assert_eq!(both(&other_case), [Contents::Wrong; 2], "the case of the name");
    for count in [0, 2, 257] {
        let mut wrong = good.clone();
        wrong[4..6].copy_from_slice(&u16::to_be_bytes(count));
        assert_eq!(both(&wrong), [Contents::Wrong; 2], "{count} questions");
    }
}

#[test]
fn counts_must_fit_the_rest() {
    let none = reply(0x8180, &[]);
    assert_eq!(both(&none), [Contents::Answer; 2]);
    assert_eq!(both(&[&none[..], &[0]].concat()), [Contents::Wrong; 2], "bytes without a record");
    let mut many = reply(0x8180, &[A]);
    many[6] = 1;
    assert_eq!(both(&many), [Contents::Wrong; 2], "257 records in 16 bytes");
    // One more than there are fits without looking, but is not there.
    let mut two = reply(0x8180, &[MX, MX]);
    two[11] = 1;
    assert_eq!(both(&two), [Contents::Answer, Contents::Wrong]);
}

#[test]
fn only_a_walk_finds_broken_records() {
    let length = HEADER + QUESTION.len();
    for (what, at, byte) in [
        ("a pointer to itself", length + 1, length as u8),
        ("a pointer forward", length, 0xff),
        ("a pointer into the header", length + 1, 11),
        ("a label of a type given up", length, 0x41),
        ("data beyond the end", length + 11, 5),
        ("data that ends early", length + 11, 3),
    ] {
        let mut wrong = reply(0x8180, &[A]);
        wrong[at] = byte;
        assert_eq!(both(&wrong), [Contents::Answer, Contents::Wrong], "{what}");
    }
    let whole = reply(0x8180, &[MX]);
    for end in length + MIN_RECORD..whole.len() {
        assert_eq!(both(&whole[..end]), [Contents::Answer, Contents::Wrong], "cut off at {end}");
    }
}

/// Pointers that lead backwards label by label are followed, up to the longest name.
#[test]
fn names_are_bounded() {
    // In the data of a record: the root, then a label and a pointer to what is before it, again and again.
    let chain = |links: usize| {
        let start = HEADER + QUESTION.len() + MIN_RECORD;
        let (mut data, mut last) = (vec![0], start);
        for _ in 0..links {
            let at = start + data.len();
            data.extend([1, b'l', 0xc0 | (last >> 8) as u8, last as u8]);
            last = at;
        }
        let mut record =
            [&[0, 0, 16, 0, 1, 0, 0, 0, 0][..], &(data.len() as u16).to_be_bytes(), &data].concat();
        record.extend([0xc0 | (last >> 8) as u8, last as u8]);
        record.extend([0, 1, 0, 1, 0, 0, 0, 0, 0, 0]);
        let mut reply = reply(0x8180, &[&record]);
        reply[7] = 2;
        reply
    };
    // 127 labels of two bytes and the root: 255, with one pointer each and one of the record.
    assert_eq!(both(&chain(127)), [Contents::Answer; 2]);
    assert_eq!(both(&chain(128)), [Contents::Answer, Contents::Wrong]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Nothing makes it panic; and behind a valid header and question, the work is bounded by the length.
    #[test]
    fn any_bytes_are_judged(noise in prop::collection::vec(any::<u8>(), 0..600), counts in any::<[u16; 3]>()) {
        let _ = both(&noise);
        let mut reply = reply(0x8180, &[&noise]);
        for (at, count) in counts.into_iter().enumerate() {
            reply[6 + 2 * at..8 + 2 * at].copy_from_slice(&(count % 30).to_be_bytes());
        }
        let [quick, walked] = both(&reply);
        // What a walk accepts, a quick look accepts as well.
        prop_assert!(quick == walked || walked == Contents::Wrong);
    }

    /// A flipped bit of what identifies the reply is never part of an answer.
    #[test]
    fn no_flipped_bit_passes(bit in 0..8 * QUESTION.len(), rcode in prop::sample::select(vec![NOERROR, NXDOMAIN])) {
        let good = reply(0x8580 | rcode, &[A, OPT]);
        prop_assert_eq!(both(&good), [Contents::Answer; 2]);
        let mut wrong = good.clone();
        wrong[HEADER + bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(both(&wrong), [Contents::Wrong; 2]);
        // Of the response code: no other answer is one bit away.
        let mut wrong = good;
        wrong[3] ^= 1 << (bit % 4);
        prop_assert!(both(&wrong).iter().all(|contents| *contents != Contents::Answer));
    }
}
