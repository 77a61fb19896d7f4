//! Answers of signed zones, record by record.

use super::*;

const ZONE: &str = "$ORIGIN x.\n$TTL 7\n@ SOA ns admin 1 1 1 1 1\n@ NS ns\nns A 192.0.2.1\nmail MX 5 ns\n*.w TXT t\n*.w MX 5 ns\n\
                    sub NS ns.sub\nsub NS ns\nns.sub A 192.0.2.2\nsafe NS ns.y.\nto CNAME b.w\nlost CNAME no\nd DNAME y.\n";
const DS: &str = "safe DS 1 8 2 0000000000000000000000000000000000000000000000000000000000000000\n";

/// The zone's text, signed.
fn signed(text: &str, chained: Chained) -> String {
    format!("{text}{}", sign(&Zone::of("x", text), chained))
}

/// The answer with signatures, each of which is one word: the type that it covers.
fn ask_secure(index: &Index, name: &str, qtype: u16) -> String {
    let said = said(&reply(index, &secure_query(name, qtype), 65_535));
    let short = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let shown = if words.get(3) == Some(&"rrsig") { &words[..5] } else { &words[..] };
        shown.join(" ").replace(&"0".repeat(64), "00")
    };
    said.lines().map(short).collect::<Vec<_>>().join("\n")
}

const SOA: &str = "authority: x 1 soa ns.x. admin.x. 1 1 1 1 1\nauthority: x 1 rrsig soa";
const APEX: &str = "authority: x 7 nsec d.x. ns soa rrsig nsec dnskey\nauthority: x 7 rrsig nsec";
const W: &str = "authority: *.w.x 7 nsec x. mx txt rrsig nsec\nauthority: *.w.x 7 rrsig nsec";
const NS: &str = "authority: ns.x 7 nsec safe.x. a rrsig nsec\nauthority: ns.x 7 rrsig nsec";
const MAIL: &str = "authority: mail.x 7 nsec ns.x. mx rrsig nsec\nauthority: mail.x 7 rrsig nsec";

#[test]
fn answers_of_a_chain_of_nsec_records() {
    let index = index(&[&signed(&format!("{ZONE}{DS}"), Chained::Nsec)]);
    for (name, qtype, expected) in [
        ("ns.x", rtype::A, "noerror aa\nanswer: ns.x 7 a 192.0.2.1\nanswer: ns.x 7 rrsig a".to_owned()),
        ("ns.x", rtype::TXT, format!("noerror aa\n{SOA}\n{NS}")),
        (
            "mail.x",
            rtype::MX,
            "noerror aa\nanswer: mail.x 7 mx 5 ns.x.\nanswer: mail.x 7 rrsig mx\nadditional: ns.x 7 a 192.0.2.1\nadditional: ns.x 7 rrsig a"
                .to_owned(),
        ),
        ("no.x", rtype::A, format!("nxdomain aa\n{SOA}\n{MAIL}\n{APEX}")),
        // Between two names, and above one.
        ("w.x", rtype::A, "noerror aa\n$SOA\nauthority: to.x 7 nsec *.w.x. cname rrsig nsec\nauthority: to.x 7 rrsig nsec".replace("$SOA", SOA)),
        (
            "a.b.w.x",
            rtype::TXT,
            format!("noerror aa\nanswer: a.b.w.x 7 txt \"t\"\nanswer: a.b.w.x 7 rrsig txt\n{W}"),
        ),
        ("*.w.x", rtype::TXT, "noerror aa\nanswer: *.w.x 7 txt \"t\"\nanswer: *.w.x 7 rrsig txt".to_owned()),
        // One record proves both.
        ("b.w.x", rtype::A, format!("noerror aa\n{SOA}\n{W}")),
        (
            "to.x",
            rtype::TXT,
            format!(
                "noerror aa\nanswer: to.x 7 cname b.w.x.\nanswer: to.x 7 rrsig cname\nanswer: b.w.x 7 txt \"t\"\nanswer: b.w.x 7 rrsig txt\n{W}"
            ),
        ),
        (
            "lost.x",
            rtype::A,
            format!("nxdomain aa\nanswer: lost.x 7 cname no.x.\nanswer: lost.x 7 rrsig cname\n{SOA}\n{MAIL}\n{APEX}"),
        ),
        (
            "a.d.x",
            rtype::A,
            "noerror aa\nanswer: d.x 7 dname y.\nanswer: d.x 7 rrsig dname\nanswer: a.d.x 7 cname a.y.".to_owned(),
        ),
        (
            "a.safe.x",
            rtype::A,
            "noerror\nauthority: safe.x 7 ns ns.y.\nauthority: safe.x 7 ds 1 8 2 00\nauthority: safe.x 7 rrsig ds".to_owned(),
        ),
        (
            "a.sub.x",
            rtype::A,
            "noerror\nauthority: sub.x 7 ns ns.x.\nauthority: sub.x 7 ns ns.sub.x.\nauthority: sub.x 7 nsec to.x. ns rrsig nsec\
             \nauthority: sub.x 7 rrsig nsec\nadditional: ns.x 7 a 192.0.2.1\nadditional: ns.sub.x 7 a 192.0.2.2\nadditional: ns.x 7 rrsig a"
                .to_owned(),
        ),
        (
            "sub.x",
            rtype::DS,
            format!("noerror aa\n{SOA}\nauthority: sub.x 7 nsec to.x. ns rrsig nsec\nauthority: sub.x 7 rrsig nsec"),
        ),
        ("ns.x", rtype::ANY, "noerror aa\nanswer: ns.x 7 a 192.0.2.1\nanswer: ns.x 7 rrsig a".to_owned()),
        ("to.x", rtype::ANY, "noerror aa\nanswer: to.x 7 cname b.w.x.\nanswer: to.x 7 rrsig cname".to_owned()),
        ("ns.x", rtype::RRSIG, "noerror aa\nanswer: ns.x 7 rrsig a\nanswer: ns.x 7 rrsig nsec".to_owned()),
        (
            "ns.x",
            rtype::NSEC,
            "noerror aa\nanswer: ns.x 7 nsec safe.x. a rrsig nsec\nanswer: ns.x 7 rrsig nsec".to_owned(),
        ),
        ("y", rtype::A, "refused".to_owned()),
    ] {
        assert_eq!(ask_secure(&index, name, qtype), expected, "{name} {qtype}");
    }
    // Without DO nothing of it is there.
    assert_eq!(ask(&index, "no.x", rtype::A), "nxdomain aa\nauthority: x 1 soa ns.x. admin.x. 1 1 1 1 1");
    assert_eq!(ask(&index, "ns.x", rtype::ANY), "noerror aa\nanswer: ns.x 3600 hinfo \"rfc8482\" \"\"");
    assert!(ask(&index, "ns.x", rtype::RRSIG).contains("rrsig a 8 2"));
}

/// The owner of an NSEC3 record is a hash, and no name: it does not exist, or a wildcard stands for it (RFC 5155,
/// 7.2.8).
#[test]
fn hashes_are_no_names() {
    let hashed = signed(ZONE, Chained::Nsec3(0, false));
    let owner = hashed.lines().find_map(|line| line.split_once(" NSEC3 ")).unwrap().0.trim_end_matches('.');
    let index = index(&[&hashed]);
    for rtype in [rtype::NSEC3, rtype::A, rtype::RRSIG] {
        let said = ask_secure(&index, owner, rtype);
        assert!(said.starts_with("nxdomain aa"), "{said}");
        assert_eq!(said.matches("nsec3 1 0 0 aabb").count(), 3, "{said}");
    }
}

/// A server without room for all leaves out what can be missed, and truncates without the rest: signatures and proofs
/// are needed.
#[test]
fn proofs_are_whole_or_the_reply_is_truncated() {
    let index = index(&[&signed(ZONE, Chained::Nsec3(0, false))]);
    for (name, qtype) in [
        ("no.x", rtype::A),
        ("b.w.x", rtype::A),
        ("b.w.x", rtype::MX),
        ("ns.x", rtype::TXT),
        ("mail.x", rtype::MX),
    ] {
        let message = secure_query(name, qtype);
        let whole = reply(&index, &message, 65_535);
        for room in message.len()..whole.len() + 1 {
            let reply = reply(&index, &message, room);
            assert!(reply.len() <= room, "{name} {qtype}");
            let parsed = Message::from_octets(&reply[..]).unwrap();
            parsed.sections().unwrap();
            let counts = parsed.header_counts();
            let full = Message::from_octets(&whole[..]).unwrap().header_counts();
            match parsed.header().tc() {
                true => assert_eq!((counts.ancount(), counts.nscount(), counts.arcount()), (0, 0, 1)),
                false => assert_eq!((counts.ancount(), counts.nscount()), (full.ancount(), full.nscount())),
            }
        }
    }
}

/// What is missing is said, and what is there is served.
#[test]
fn a_zone_that_is_signed_in_part_is_served_with_a_warning() {
    let whole = signed(ZONE, Chained::Nsec);
    let hashed = signed(ZONE, Chained::Nsec3(0, true));
    let without = |text: &str, words: &str| {
        text.lines()
            .filter(|line| !line.starts_with(words))
            .map(|line| format!("{line}\n"))
            .collect::<String>()
    };
    let third = hashed.lines().filter(|line| line.contains(" NSEC3 ")).nth(2).unwrap();
    let hash = third.split(' ').next().unwrap();
    for (text, words) in [
        (without(&whole, "x. DNSKEY"), "the zone has signatures, but no DNSKEY record"),
        (
            without(&whole, "ns.x. RRSIG A "),
            "FILE:5: no signature of the A records of ns.x.: sign the zone again",
        ),
        (
            without(&without(&whole, "ns.x. RRSIG"), "mail.x. RRSIG"),
            "no signature of the A records of ns.x., and 3 more sets",
        ),
        (without(&whole, "ns.x. NSEC"), "the zone has signatures, but no NSEC record of ns.x."),
        (
            format!("{whole}new 7 TXT x\nnew 7 RRSIG TXT 8 2 7 20300101000000 20200101000000 1 x. AQID\n"),
            "after mail.x. the NSEC record names ns.x., and new.x. is next",
        ),
        (
            without(&without(&whole, "ns.x."), "ns A"),
            "after mail.x. the NSEC record names ns.x., and safe.x. is next",
        ),
        (without(&hashed, hash), "the NSEC3 record after "),
        (
            without(&hashed, "x. 0 NSEC3PARAM"),
            "no NSEC records, and no NSEC3 records that an NSEC3PARAM record names",
        ),
        (
            format!("{hashed}new 7 TXT x\nnew 7 RRSIG TXT 8 2 7 20300101000000 20200101000000 1 x. AQID\n"),
            "no NSEC3 record of new.x.",
        ),
    ] {
        let file = zone::file(&text);
        let (records, mut faults) = zone::load(&[file.path().to_owned()]).unwrap();
        let index = Index::build(records, &mut faults).unwrap();
        let said = faults.to_string().replace(&file.path().display().to_string(), "FILE");
        assert!(said.contains(words), "{words}: {said}");
        assert_eq!((faults.left_out(), index.zones()), (None, 1), "{said}");
        for name in ["no.x", "mail.x", "b.w.x", "a.sub.x"] {
            ask_secure(&index, name, rtype::A);
        }
    }
    for text in [whole, hashed] {
        index(&[&text]);
    }
}

/// Of several chains it is the one that an NSEC3PARAM record names (RFC 5155, 7.3).
#[test]
fn the_chain_is_the_one_that_is_named() {
    let both = signed(ZONE, Chained::Nsec) + &sign(&Zone::of("x", ZONE), Chained::Nsec3(3, false));
    let text = both.replacen("x. DNSKEY 256 3 8 AQID\n", "", 1);
    let (records, mut faults) = {
        let file = zone::file(&text);
        zone::load(&[file.path().to_owned()]).unwrap()
    };
    let hashed = Index::build(records, &mut faults).unwrap();
    assert!(ask_secure(&hashed, "no.x", rtype::A).contains(" nsec3 "));
    let unnamed: String =
        text.lines().filter(|line| !line.contains("NSEC3PARAM 1")).map(|line| format!("{line}\n")).collect();
    let file = zone::file(&unnamed);
    let (records, mut faults) = zone::load(&[file.path().to_owned()]).unwrap();
    let index = Index::build(records, &mut faults).unwrap();
    let said = ask_secure(&index, "no.x", rtype::A);
    assert!(said.contains(" nsec ") && !said.contains(" nsec3 "), "{said}");
}

#[test]
fn stray_records_of_hashes_disable_no_chain_of_names() {
    let whole = signed(ZONE, Chained::Nsec);
    let expected = ask_secure(&index(&[&whole]), "no.x", rtype::A);
    assert!(expected.ends_with(APEX), "{expected}");
    for stray in
        ["@ NSEC3PARAM 1 0 0 -\nnotahash TYPE50 \\# 7 01000000 00 01 aa\n", "@ NSEC3PARAM 1 0 500 -\n"]
    {
        let sources = [zone::file(&format!("{whole}{stray}"))];
        let (records, mut faults) = zone::load(&[sources[0].path().into()]).unwrap();
        let index = Index::build(records, &mut faults).unwrap();
        assert_eq!(ask_secure(&index, "no.x", rtype::A), expected, "{stray}{faults}");
    }
}

/// Names that opt-out leaves out, and those between them and the apex: what is proven is the same for all of them.
#[test]
fn the_closest_provable_encloser_is_found_at_any_depth() {
    let deep = "m.l.k.j.i.h.g.f.e.d.c.b.a";
    let text = format!("{ZONE}{deep} NS ns.y.\nb.c.p A 192.0.2.3\nf.e.d.b.c.p NS ns.y.\n");
    let index = index(&[&signed(&text, Chained::Nsec3(1, true))]);
    let labels: Vec<&str> = deep.split('.').collect();
    let expected = ask_secure(&index, "a.x", rtype::A);
    assert!(expected.contains(" nsec3 1 1 1 aabb "), "with opt-out: {expected}");
    for from in 1..labels.len() {
        let name = format!("{}.x", labels[from..].join("."));
        assert_eq!(ask_secure(&index, &name, rtype::A), expected, "{name}");
    }
    let below = ask_secure(&index, "d.b.c.p.x", rtype::A);
    assert_eq!(ask_secure(&index, "e.d.b.c.p.x", rtype::A), below);
    assert_ne!(below, expected);
}

#[test]
fn a_question_for_all_types_gets_no_record_that_only_helps_proofs() {
    let index = index(&[&signed(ZONE, Chained::Nsec3(1, false))]);
    let said = ask_secure(&index, "x", 255);
    assert!(said.starts_with("noerror aa\nanswer: x 7 ") && !said.contains("nsec3param"), "{said}");
}

/// A negative answer has the signatures of the SOA record and up to three sets: beside signatures of 20 KB they might
/// find no room.
#[test]
fn signatures_that_leave_no_room_for_proofs_are_named() {
    let long =
        |key: u16| format!("@ RRSIG SOA 8 1 7 20370101000000 20200101000000 {key} x. {}\n", "A".repeat(1336));
    let text = (10..30).map(long).fold(signed(ZONE, Chained::Nsec), |text, line| text + &line);
    let file = zone::file(&text);
    let (records, mut faults) = zone::load(&[file.path().into()]).unwrap();
    Index::build(records, &mut faults).unwrap();
    assert!(faults.to_string().contains("does not fit a message"), "{faults}");
}
