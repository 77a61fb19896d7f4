use super::super::super::records::key_of;
use super::*;

/// RFC 4034, 6.1.
#[test]
fn names_are_in_the_order_of_the_rfc() {
    let names = [
        &b"\x07example\0"[..],
        b"\x01a\x07example\0",
        b"\x08yljkjljk\x01a\x07example\0",
        b"\x01Z\x01a\x07example\0",
        b"\x04zABC\x01a\x07EXAMPLE\0",
        b"\x01z\x07example\0",
        b"\x01\x01\x01z\x07example\0",
        b"\x01*\x01z\x07example\0",
        b"\x01\xc8\x01z\x07example\0",
    ];
    let keys = names.map(key_of);
    for (at, key) in keys.iter().enumerate() {
        for (other, than) in keys.iter().enumerate() {
            assert_eq!(canonical(key, than), at.cmp(&other), "{key:?} {than:?}");
        }
    }
}

/// What no zone has: nothing is found, and nothing panics.
#[test]
fn an_arena_that_is_cut_short_has_no_sets() {
    let arena = b"\x02\x01a\0\x01\0\x0b\0\x2f\0\x01\0\0\0\x07\0\x01z";
    let set = Set::read(arena, 0).unwrap();
    assert_eq!((set.count, set.denial()), (1, Some(&b"z"[..])));
    let name = QueryName::parse(b"\x01b\x01a\x01x\0").unwrap();
    let mut out = [0; 64];
    // `a` and the zone's name are in the question.
    let mut key = [0; MAX_NAME];
    let len = name.write_key(3, &mut key);
    assert_eq!(set.write(&name, 3, &key[..len], &mut out, 4), Some(17));
    assert_eq!(out[4..17], *b"\xc0\x0e\0\x2f\0\x01\0\0\0\x07\0\x01z");
    for len in 0..arena.len() {
        assert!(Set::read(&arena[..len], 0).is_none());
    }
    for room in 0..17 {
        assert_eq!(set.write(&name, 3, &key[..2], &mut out[..room], 4), None);
    }
}
