use std::io::Write as _;

use super::*;

fn loaded(text: &str) -> Result<Records, String> {
    let file = file(text);
    let path = file.path().display().to_string();
    load(&[file.path().into()]).map_err(|error| error.to_string().replace(&path, "FILE"))
}

#[test]
fn records_have_owner_type_ttl_data_and_line() {
    let records = loaded(
        "$ORIGIN Example.org.\n$TTL 300\n@ SOA ns admin (\n 1 2 3 4 ; serial and times\n 5 )\n\
         \n  NS ns\nNs 60 A 192.0.2.1\n",
    )
    .unwrap();
    assert!(has_zone(&records, b"\x07example\x03org\0"));
    let of = |rtype| records.list.iter().find(|record| record.rtype == rtype).unwrap();
    let (soa, ns, a) = (of(rtype::SOA), of(rtype::NS), of(rtype::A));
    assert_eq!((records.name(soa), soa.ttl, soa.line), ("example.org.".into(), 300, 3));
    assert_eq!((records.name(ns), ns.ttl, ns.line), ("example.org.".into(), 300, 7));
    assert_eq!((records.name(a), a.ttl, a.line), ("ns.example.org.".into(), 60, 8));
    assert_eq!(records.data(a), [192, 0, 2, 1]);
    assert_eq!(records.data(ns), b"\x02ns\x07Example\x03org\0", "with the case of its letters");
}

/// Every type that `domain` knows is kept as it composes it; others in the form of RFC 3597.
#[test]
fn all_types_are_taken() {
    let text = "$ORIGIN x.\n@ 1 SOA . . 1 1 1 1 1\na MX 5 b\na TXT \"two\" strings\na SRV 1 2 3 b\n\
                a CAA 0 issue \"ca\"\na TLSA 3 1 1 00ff\na SSHFP 1 1 00ff\na NAPTR 1 2 \"u\" \"s\" \"\" .\n\
                a DS 1 8 2 00ff\na DNSKEY 256 3 8 AAAA\na HTTPS 1 . alpn=h2\na TYPE4711 \\# 2 abcd\n";
    let records = loaded(text).unwrap();
    let types: Vec<u16> = records.list.iter().map(|record| record.rtype).collect();
    assert_eq!(types, [6, 15, 16, 33, 35, 43, 44, 48, 52, 65, 257, 4711]);
    assert_eq!(records.data(records.list.last().unwrap()), [0xab, 0xcd]);
}

#[test]
fn errors_name_file_line_and_reason() {
    let soa = "$ORIGIN x.\n@ 1 SOA . . 1 1 1 1 1\n";
    for (text, expected) in [
        ("", "FILE: no SOA record"),
        ("@ 1 SOA . . 1 1 1 1 1\n", "FILE:1: missing origin"),
        (&format!("{soa}a A (\n 192.0.2.300 )\n"), "FILE:4: expected IPv4 address"),
        (&format!("{soa}a A 192.0.2.300\n"), "FILE:3: expected IPv4 address"),
        (&format!("{soa}a A 192.0.2.1\na FROB x\n"), "FILE:4:"),
        (&format!("{soa}a CH A 192.0.2.1\n"), "FILE:3:"),
        (&format!("{soa}$FROB\n"), "FILE:3:"),
        (&format!("{soa}a TYPE0 \\# 0\n"), "FILE:3:"),
        (&format!("{soa}a TYPE250 \\# 0\n"), "FILE:3:"),
        (&format!("{soa}a A 192.0.2.1\nb.y. A 192.0.2.1\n"), "FILE:4: b.y. does not belong to the zone x."),
        (
            &format!("{soa}\n@ 1 SOA . . 1 1 1 1 2\n"),
            "FILE:4: a second SOA record; the first is of x. on line 2",
        ),
        (&format!("{soa}$INCLUDE nothing.there\n"), "cannot read "),
    ] {
        let error = loaded(text).map(|_| ()).unwrap_err();
        assert!(error.starts_with(expected), "{text}\n{error}");
    }
    let missing = load(&["/nothing/there".into()]).map(|_| ()).unwrap_err().to_string();
    assert!(missing.starts_with("cannot read /nothing/there: No such file"), "{missing}");
}

#[test]
fn a_zone_may_be_loaded_once() {
    let one = file("x. 1 IN SOA . . 1 1 1 1 1\n");
    let error = load(&[one.path().into(), one.path().into()]).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains(":1: this zone is loaded from"), "{error}");
}

#[test]
fn includes_keep_or_change_the_origin_and_end_somewhere() {
    let inner = file("a A 192.0.2.1\n");
    let name = inner.path().display();
    let text =
        format!("$ORIGIN x.\n@ 1 SOA . . 1 1 1 1 1\n$INCLUDE {name}\n$INCLUDE {name} y.x.\nb A 192.0.2.2\n");
    let records = loaded(&text).unwrap();
    let names: Vec<String> = records.list.iter().map(|record| records.name(record)).collect();
    assert_eq!(names, ["x.", "a.x.", "b.x.", "a.y.x."]);
    let mut endless = file("$ORIGIN x.\n@ 1 SOA . . 1 1 1 1 1\n");
    let path = endless.path().to_owned();
    writeln!(endless, "$INCLUDE {}", path.display()).unwrap();
    let error = load(&[path]).map(|_| ()).unwrap_err().to_string();
    // It says the same as the first time: a second SOA comes first.
    assert!(error.contains("a second SOA record"), "{error}");
}
