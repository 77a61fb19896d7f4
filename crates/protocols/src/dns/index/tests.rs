use super::super::answer::tests::index;
use super::super::zone;
use super::build::whole;
use super::*;

fn error(text: &str) -> String {
    let file = zone::file(&format!("$ORIGIN x.\n@ 1 SOA . . 1 1 1 1 1\n{text}"));
    let path = file.path().display().to_string();
    let built = whole(&[file.path().into()]);
    built.map(|_| ()).unwrap_err().to_string().replace(&path, "FILE")
}

#[test]
fn records_that_cannot_stand_together_are_named_with_their_line() {
    for (text, expected) in [
        ("a A 192.0.2.1\na CNAME b\n", "FILE:4: a.x. has a CNAME record and others"),
        ("a CNAME b\n\na CNAME c\n", "FILE:5: a.x. has several CNAME records"),
        ("a DNAME b\na DNAME c\n", "FILE:4: a.x. has several DNAME records"),
    ] {
        let error = error(text);
        assert!(error.starts_with(expected), "{text}\n{error}");
    }
    let many: String = (0..8200).map(|n| format!("a A 10.0.{}.{}\n", n / 256, n % 256)).collect();
    let words = "an answer for a.x. does not fit a message of 64 KiB: its records have 131200 bytes, and 65475 are left";
    assert!(error(&many).contains(words), "{}", error(&many));
}

/// The first of several stays, and a name that has a CNAME record and others has the others. Neighbours stay.
#[test]
fn what_remains_of_records_that_cannot_stand_together() {
    for (text, expected, count) in [
        ("a A 192.0.2.1\na CNAME b\nb A 192.0.2.2\n", vec![1], 1),
        ("a CNAME b\na CNAME c\na CNAME d\n", vec![5], 2),
        ("a DNAME b\na DNAME c\n", vec![39], 1),
        ("a A 192.0.2.1\na CNAME b\nsub.a CNAME c\n", vec![1], 1),
    ] {
        let file = zone::file(&format!("$ORIGIN x.\n@ 1 SOA . . 1 1 1 1 1\n{text}"));
        let (records, faults) = zone::load(&[file.path().into()]).unwrap();
        let types: Vec<u16> = records
            .list
            .iter()
            .filter(|record| records.key(record) == b"\x01x\x01a")
            .map(|record| record.rtype)
            .collect();
        assert_eq!((types, faults.lines().len()), (expected, count), "{text}{faults}");
    }
    // All but the last of 253 types stay.
    let many: String = (0..253).map(|n| format!("a TYPE{} \\# 1 00\n", 65_280 + n)).collect();
    let file = zone::file(&format!("$ORIGIN x.\n@ 1 SOA . . 1 1 1 1 1\n{many}"));
    let (records, faults) = zone::load(&[file.path().into()]).unwrap();
    assert_eq!((records.list.len(), faults.lines().len()), (253, 1), "{faults}");
}

#[test]
fn names_without_records_are_nodes_and_hidden_ones_are_not() {
    let text = "$ORIGIN x.\n@ 1 SOA . . 1 1 1 1 1\na.b.c A 192.0.2.1\ncut NS ns.cut\nns.cut A 192.0.2.1\n";
    // x, c, b.c, a.b.c and cut.
    assert_eq!(index(&[text]).names(), 5);
    assert_eq!(Index::default().names(), 0);
}

/// Every name is found whatever its neighbours in the table are.
#[test]
fn a_hundred_thousand_names_are_found_in_little_memory() {
    let mut text = "$ORIGIN example.org.\n$TTL 60\n@ SOA ns admin 1 1 1 1 1\n".to_owned();
    (0..100_000_u32).for_each(|n| {
        let [_, b, c, d] = n.to_be_bytes();
        text += &format!("host{n} A 10.{b}.{c}.{d}\n");
    });
    let index = index(&[&text]);
    assert_eq!(index.names(), 100_001);
    for n in 0..100_000_u32 {
        let name = name::from_text(&format!("host{n}.example.org")).unwrap();
        let name = QueryName::parse(&name).unwrap();
        let Found::Section(section) = index.find(&name, rtype::A, false) else { panic!("host{n}") };
        assert_eq!(section.body[12..], [10, (n >> 16) as u8, (n >> 8) as u8, n as u8], "host{n}");
    }
    // 12 bytes of the table, and a node: name, one entry, header and record.
    assert!(index.bytes() < 100_000 * 80, "{} bytes", index.bytes());
}

/// An alias has entries of its own, and those of the name that it leads to: as many as fit.
#[test]
fn an_alias_to_a_name_with_many_types_answers_for_most_of_them() {
    let many: String = (0..252).map(|n| format!("a TYPE{} \\# 1 00\n", 65_280 + n)).collect();
    let index = index(&[&format!("$ORIGIN x.\n@ 1 SOA . . 1 1 1 1 1\nto CNAME a\n{many}")]);
    let name = QueryName::parse(b"\x02to\x01x\0").unwrap();
    let answers = |qtype| {
        let Found::Section(section) = index.find(&name, qtype, false) else { panic!("{qtype}") };
        section.counts[0]
    };
    assert_eq!((answers(rtype::CNAME), answers(65_280), answers(rtype::TXT)), (1, 2, 1));
}
