//! What a reply has beside its records.

use super::*;

#[test]
fn identifier_case_and_flags_come_back() {
    let index = index(&[ORG]);
    let mut message = query("wWw.ExAmPlE.oRg", rtype::A, (0, &[]));
    (message[2], message[3]) = (0x01, 0xff);
    let reply = reply(&index, &message, 512);
    assert_eq!(&reply[..2], &message[..2]);
    assert_eq!((reply[2], reply[3]), (0x85, 0x10), "QR, AA, RD as asked; CD as asked, no error");
    assert_eq!(reply[12..message.len()], message[12..]);
}

#[test]
fn edns_and_its_versions() {
    let index = index(&[ORG]);
    let opt = |version: u8, flags: u8| [0, 0, 41, 16, 0, 0, version, flags, 0, 0, 0];
    let asked = reply(&index, &query("www.example.org", rtype::A, (1, &opt(0, 0x80))), 512);
    assert_eq!(asked[asked.len() - 11..], [0, 0, 41, 4, 208, 0, 0, 0x80, 0, 0, 0], "our size, DO as asked");
    let newer = reply(&index, &query("www.example.org", rtype::A, (1, &opt(1, 0))), 512);
    assert_eq!(newer[newer.len() - 11..], [0, 0, 41, 4, 208, 1, 0, 0, 0, 0, 0], "BADVERS: 16");
    assert_eq!((newer[3] & 0xf, &newer[4..12]), (0, &[0, 1, 0, 0, 0, 0, 0, 1][..]));
}

#[test]
fn what_does_not_fit_is_left_out_or_truncated() {
    let mut zone = "$ORIGIN x.\n@ 1 SOA . . 1 1 1 1 1\ncut NS ns.cut\nns.cut A 192.0.2.1\n".to_owned();
    (0..30).for_each(|n| zone += &format!("many A 198.51.100.{n}\nmx MX {n} many\n"));
    (1..30).for_each(|n| zone += &format!("ns.cut A 192.0.2.{n}\n"));
    let index = index(&[&zone]);
    let count = |name: &str, qtype: u16, room: usize| {
        let reply = reply(&index, &query(name, qtype, (0, &[])), room);
        assert!(reply.len() <= room);
        let counts = [7, 9, 11].map(|at| reply[at]);
        (counts, said(&reply).starts_with("noerror aa tc") || said(&reply).starts_with("noerror tc"))
    };
    assert_eq!(count("many.x", rtype::A, 512), ([30, 0, 0], false));
    assert_eq!(count("many.x", rtype::A, 501), ([0, 0, 0], true));
    assert_eq!(count("mx.x", rtype::MX, 1232), ([30, 0, 30], false));
    assert_eq!(count("mx.x", rtype::MX, 900), ([30, 0, 0], false), "additional records may go");
    assert_eq!(count("mx.x", rtype::MX, 400), ([0, 0, 0], true));
    assert_eq!(count("a.cut.x", rtype::A, 512), ([0, 1, 29], false));
    assert_eq!(count("a.cut.x", rtype::A, 400), ([0, 0, 0], true), "glue may not (RFC 9471)");
}

#[test]
fn chaos_tells_the_version_only() {
    let index = index(&[]);
    let chaos = |name: &str, qtype: u16| {
        let mut message = query(name, qtype, (0, &[]));
        let class = message.len() - 1;
        message[class] = class::CHAOS as u8;
        said(&reply(&index, &message, 512))
    };
    assert_eq!(chaos("VERSION.bind", rtype::TXT), "noerror aa\nanswer: version.bind 0 txt \"test\"");
    assert_eq!(chaos("version.server", rtype::TXT), "noerror aa\nanswer: version.server 0 txt \"test\"");
    assert_eq!(chaos("hostname.bind", rtype::TXT), "refused");
    assert_eq!(chaos("version.bind", rtype::A), "refused");
}
