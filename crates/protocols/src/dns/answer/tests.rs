use domain::base::Message;
use domain::rdata::AllRecordData;

use super::super::index::build::whole;
use super::super::zone;
use super::*;

mod message;
mod naive;
mod nested;
pub(in crate::dns) mod signed;

/// An index of these zones.
pub(in crate::dns) fn index(zones: &[&str]) -> Index {
    let files: Vec<_> = zones.iter().map(|text| zone::file(text)).collect();
    let paths: Vec<_> = files.iter().map(|file| file.path().to_owned()).collect();
    whole(&paths).unwrap()
}

/// A query; `more` stands behind the question, with the number of its records.
pub(in crate::dns) fn query(name: &str, qtype: u16, more: (u8, &[u8])) -> Vec<u8> {
    let mut message = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, more.0];
    message.extend(name::from_text(name).unwrap());
    message.extend(qtype.to_be_bytes());
    message.extend([0, 1]);
    message.extend_from_slice(more.1);
    message
}

fn reply(index: &Index, message: &[u8], room: usize) -> Vec<u8> {
    let query = Query::parse(message).unwrap();
    let mut out = vec![0xee; room];
    let response = Response::to(&query, index, b"\x04test");
    let len = response.write(&query, &mut out, None, false).unwrap();
    out.truncate(len);
    out
}

/// What a reply says, read by `domain`: code and flags, then the records of each section.
pub(in crate::dns) fn said(reply: &[u8]) -> String {
    let message = Message::from_octets(reply).unwrap();
    let header = message.header();
    let mut text = header.rcode().to_string();
    for (flag, name) in
        [(header.aa(), " AA"), (header.tc(), " TC"), (header.ra(), " RA"), (!header.qr(), " !QR")]
    {
        text += if flag { name } else { "" };
    }
    let sections = [message.answer().unwrap(), message.authority().unwrap(), message.additional().unwrap()];
    for (section, name) in sections.into_iter().zip(["answer", "authority", "additional"]) {
        for record in section {
            let record = record.unwrap().into_record::<AllRecordData<_, _>>().unwrap().unwrap();
            if record.rtype().to_int() != rtype::OPT {
                let ttl = record.ttl().as_secs();
                text += &format!("\n{name}: {} {ttl} {} {}", record.owner(), record.rtype(), record.data());
            }
        }
    }
    text.to_lowercase()
}

fn ask(index: &Index, name: &str, qtype: u16) -> String {
    said(&reply(index, &query(name, qtype, (0, &[])), 65_535))
}

const ORG: &str = "$ORIGIN example.org.
$TTL 300
@ SOA ns1 admin 1 2 3 4 60
@ NS ns1
@ NS ns.elsewhere.net.
@ MX 10 mail
ns1 A 192.0.2.53
ns1 AAAA 2001:db8::53
mail A 192.0.2.25
www A 192.0.2.80
www A 192.0.2.81
alias CNAME www
twice CNAME alias
away CNAME www.elsewhere.net.
across CNAME host.example.net.
nowhere CNAME missing
loop CNAME pool
pool CNAME loop
deep.down.below A 192.0.2.9
*.wild A 192.0.2.7
*.wild MX 5 mail.wild
exists.wild TXT here
*.alias-wild CNAME www
sub NS ns.sub
sub NS ns1
ns.sub A 192.0.2.99
sub DS 1 8 9 00ff
hidden.sub A 192.0.2.98
away2 NS ns.elsewhere.net.
_s._udp SRV 1 2 3 mail
old DNAME new
here.new A 192.0.2.44
";
const NET: &str = "$ORIGIN example.net.\n@ 100 SOA ns admin 1 2 3 4 50\nhost 200 A 198.51.100.1\n";
const SOA: &str = "\nauthority: example.org 60 soa ns1.example.org. admin.example.org. 1 2 3 4 60";

#[test]
fn answers_are_those_of_the_zone() {
    let index = index(&[ORG, NET]);
    let says = |name: &str, qtype: u16, expected: &str| {
        assert_eq!(ask(&index, name, qtype), expected.replace("$SOA", SOA), "{name} {qtype}");
    };
    says(
        "WWW.example.org",
        rtype::A,
        "noerror aa\nanswer: www.example.org 300 a 192.0.2.80\nanswer: www.example.org 300 a 192.0.2.81",
    );
    says("www.example.org", rtype::TXT, "noerror aa$SOA");
    says("missing.example.org", rtype::A, "nxdomain aa$SOA");
    says("a.b.missing.example.org", rtype::A, "nxdomain aa$SOA");
    says("www.example.com", rtype::A, "refused");
    // RFC 8020: names with names below them exist.
    says("down.below.example.org", rtype::A, "noerror aa$SOA");
    says("up.below.example.org", rtype::A, "nxdomain aa$SOA");
    says(
        "example.org",
        rtype::MX,
        "noerror aa\nanswer: example.org 300 mx 10 mail.example.org.\nadditional: mail.example.org 300 a 192.0.2.25",
    );
    says(
        "_s._udp.example.org",
        rtype::SRV,
        "noerror aa\nanswer: _s._udp.example.org 300 srv 1 2 3 mail.example.org\nadditional: mail.example.org 300 a 192.0.2.25",
    );
    says("www.example.org", rtype::ANY, "noerror aa\nanswer: www.example.org 3600 hinfo \"rfc8482\" \"\"");
    for refused in [rtype::AXFR, rtype::IXFR] {
        says("example.org", refused, "refused");
    }
    says("example.org", 253, "notimp");
    says("example.org", rtype::OPT, "formerr");
}

#[test]
fn cname_records_are_followed_within_the_loaded_zones() {
    let index = index(&[ORG, NET]);
    let says = |name: &str, qtype: u16, expected: &str| {
        assert_eq!(ask(&index, name, qtype), expected.replace("$SOA", SOA), "{name} {qtype}");
    };
    let www = "\nanswer: www.example.org 300 a 192.0.2.80\nanswer: www.example.org 300 a 192.0.2.81";
    let alias = "\nanswer: alias.example.org 300 cname www.example.org.";
    says("alias.example.org", rtype::A, &format!("noerror aa{alias}{www}"));
    says("alias.example.org", rtype::CNAME, &format!("noerror aa{alias}"));
    says("alias.example.org", rtype::TXT, &format!("noerror aa{alias}$SOA"));
    says(
        "twice.example.org",
        rtype::A,
        &format!("noerror aa\nanswer: twice.example.org 300 cname alias.example.org.{alias}{www}"),
    );
    says("away.example.org", rtype::A, "noerror aa\nanswer: away.example.org 300 cname www.elsewhere.net.");
    says(
        "across.example.org",
        rtype::A,
        "noerror aa\nanswer: across.example.org 300 cname host.example.net.\nanswer: host.example.net 200 a 198.51.100.1",
    );
    says(
        "across.example.org",
        rtype::TXT,
        "noerror aa\nanswer: across.example.org 300 cname host.example.net.\nauthority: example.net 50 soa ns.example.net. admin.example.net. 1 2 3 4 50",
    );
    says(
        "nowhere.example.org",
        rtype::A,
        "nxdomain aa\nanswer: nowhere.example.org 300 cname missing.example.org.$SOA",
    );
    says(
        "loop.example.org",
        rtype::A,
        "noerror aa\nanswer: loop.example.org 300 cname pool.example.org.\nanswer: pool.example.org 300 cname loop.example.org.",
    );
    says(
        "x.alias-wild.example.org",
        rtype::A,
        &format!("noerror aa\nanswer: x.alias-wild.example.org 300 cname www.example.org.{www}"),
    );
}

#[test]
fn wildcards_delegations_and_dname_records_cover_what_is_below_them() {
    let index = index(&[ORG, NET]);
    let says = |name: &str, qtype: u16, expected: &str| {
        assert_eq!(ask(&index, name, qtype), expected.replace("$SOA", SOA), "{name} {qtype}");
    };
    says("any.wild.example.org", rtype::A, "noerror aa\nanswer: any.wild.example.org 300 a 192.0.2.7");
    says(
        "very.long-name.any.wild.example.org",
        rtype::MX,
        "noerror aa\nanswer: very.long-name.any.wild.example.org 300 mx 5 mail.wild.example.org.",
    );
    says("any.wild.example.org", rtype::TXT, "noerror aa$SOA");
    says("exists.wild.example.org", rtype::A, "noerror aa$SOA");
    says("below.exists.wild.example.org", rtype::A, "nxdomain aa$SOA");
    says("wild.example.org", rtype::A, "noerror aa$SOA");
    says("*.wild.example.org", rtype::A, "noerror aa\nanswer: *.wild.example.org 300 a 192.0.2.7");
    let referral = "noerror\nauthority: sub.example.org 300 ns ns.sub.example.org.\nauthority: sub.example.org 300 ns ns1.example.org.\
                    \nadditional: ns.sub.example.org 300 a 192.0.2.99\nadditional: ns1.example.org 300 a 192.0.2.53\
                    \nadditional: ns1.example.org 300 aaaa 2001:db8::53";
    for name in
        ["sub.example.org", "hidden.sub.example.org", "ns.sub.example.org", "any.thing.sub.example.org"]
    {
        says(name, rtype::A, referral);
        says(name, rtype::ANY, referral);
    }
    says("x.sub.example.org", rtype::DS, referral);
    says("sub.example.org", rtype::DS, "noerror aa\nanswer: sub.example.org 300 ds 1 8 9 00ff");
    says("away2.example.org", rtype::DS, "noerror aa$SOA");
    says("x.away2.example.org", rtype::A, "noerror\nauthority: away2.example.org 300 ns ns.elsewhere.net.");
    let dname = "\nanswer: old.example.org 300 dname new.example.org.";
    says(
        "Here.old.example.org",
        rtype::A,
        &format!("noerror aa{dname}\nanswer: here.old.example.org 300 cname here.new.example.org."),
    );
    says("old.example.org", rtype::DNAME, &format!("noerror aa{dname}"));
    says("old.example.org", rtype::A, "noerror aa$SOA");
    let long = format!("{}.old.example.org", vec!["a".repeat(60); 3].join("."));
    let longer = format!("{}.{long}", "b".repeat(48));
    assert!(ask(&index, &long, rtype::A).starts_with("noerror aa\n"));
    assert!(name::from_text(&longer).is_some());
    // `new` is as long as `old`, so every name fits; a longer target does not.
    assert!(ask(&index, &longer, rtype::A).starts_with("noerror aa\n"));
}

/// DNAME records as NSD and Knot have them. What NS records of a wildcard mean RFC 4592 (4.2) leaves open: NSD answers
/// with the wildcard's other records, Knot refers to its name, and here the name below its parent is delegated, of all
/// names there.
#[test]
fn a_wildcard_may_have_dname_and_ns_records() {
    let index =
        index(&["$ORIGIN x.\n@ 1 SOA . . 1 1 1 1 1\n*.w DNAME a.b.\n*.v NS ns.other.\n*.v A 192.0.2.7\n"]);
    let nothing = "noerror aa\nauthority: x 1 soa . . 1 1 1 1 1";
    for (name, qtype, expected) in [
        ("x.w.x", rtype::A, nothing),
        ("y.x.w.x", rtype::A, nothing),
        ("*.w.x", rtype::A, nothing),
        ("x.w.x", rtype::DNAME, "noerror aa\nanswer: x.w.x 1 dname a.b."),
        ("a.*.w.x", rtype::A, "noerror aa\nanswer: *.w.x 1 dname a.b.\nanswer: a.*.w.x 1 cname a.a.b."),
        ("x.v.x", rtype::A, "noerror\nauthority: x.v.x 1 ns ns.other."),
        ("y.x.v.x", rtype::NS, "noerror\nauthority: x.v.x 1 ns ns.other."),
        ("*.v.x", rtype::A, "noerror\nauthority: *.v.x 1 ns ns.other."),
    ] {
        assert_eq!(ask(&index, name, qtype), expected, "{name} {qtype}");
    }
}

#[test]
fn names_below_a_dname_record_are_answered_by_it() {
    let file = zone::file(
        "$ORIGIN x.\n@ 1 SOA . . 1 1 1 1 1\nd DNAME e\na.d A 192.0.2.1\nb.c.d A 192.0.2.2\nd A 192.0.2.3\ndd A 192.0.2.4\n",
    );
    // What is below is left out, with a word.
    let (records, mut faults) = zone::load(&[file.path().to_owned()]).unwrap();
    let index = Index::build(records, &mut faults).unwrap();
    for (name, target) in [("a.d.x", "a.e.x"), ("c.d.x", "c.e.x"), ("b.c.d.x", "b.c.e.x")] {
        let expected = format!("noerror aa\nanswer: d.x 1 dname e.x.\nanswer: {name} 1 cname {target}.");
        assert_eq!(ask(&index, name, rtype::A), expected);
    }
    assert_eq!(ask(&index, "d.x", rtype::A), "noerror aa\nanswer: d.x 1 a 192.0.2.3");
    assert_eq!(ask(&index, "dd.x", rtype::A), "noerror aa\nanswer: dd.x 1 a 192.0.2.4");
}

#[test]
fn ds_records_of_an_apex_are_asked_of_the_zone_above() {
    let above = "$ORIGIN x.\n@ 1 SOA . . 1 1 1 1 11\nsub NS ns.sub\nns.sub A 192.0.2.1\n";
    let below = "$ORIGIN sub.x.\n@ 1 SOA . . 1 1 1 1 22\n@ NS ns\nns A 192.0.2.1\n";
    let both = index(&[above, below]);
    let soa = |zone: &str, minimum: u32| format!("noerror aa\nauthority: {zone} 1 soa . . 1 1 1 1 {minimum}");
    assert_eq!(ask(&both, "sub.x", rtype::DS), soa("x", 11));
    assert_eq!(ask(&both, "sub.x", rtype::TXT), soa("sub.x", 22));
    assert_eq!(ask(&both, "ns.sub.x", rtype::DS), soa("sub.x", 22));
    assert_eq!(ask(&index(&[below]), "sub.x", rtype::DS), soa("sub.x", 22));
}

#[test]
fn names_longer_than_any_are_answered_as_shorter_ones() {
    let index =
        index(&["$ORIGIN x.\n@ 1 SOA . . 1 1 1 1 1\n*.w A 192.0.2.1\na.b.c A 192.0.2.2\nd DNAME e\n"]);
    let long = "l.".repeat(100);
    assert!(ask(&index, &format!("{long}x"), rtype::A).starts_with("nxdomain aa"));
    assert!(ask(&index, &format!("{long}w.x"), rtype::A).ends_with("1 a 192.0.2.1"));
    assert!(ask(&index, &format!("{long}d.x"), rtype::A).contains("dname e.x."));
    assert_eq!(ask(&index, &format!("{long}y"), rtype::A), "refused");
}

#[test]
fn answers_for_any_class_have_no_authority() {
    let index = index(&[ORG]);
    let mut message = query("www.example.org", rtype::A, (0, &[]));
    *message.last_mut().unwrap() = 255;
    let said = said(&reply(&index, &message, 512));
    assert!(said.starts_with("noerror\nanswer: www.example.org 300 a 192.0.2.80"), "{said}");
}

#[test]
fn a_dname_record_may_make_a_name_too_long() {
    let index = index(&["$ORIGIN x.\n@ 1 SOA . . 1 1 1 1 1\nd DNAME a.much.longer.target.than.before\n"]);
    let long = format!("{}.d.x", vec!["a".repeat(60); 4].join("."));
    assert_eq!(
        ask(&index, &long, rtype::A),
        "yxdomain aa\nanswer: d.x 1 dname a.much.longer.target.than.before.x."
    );
}

/// Nothing is said of names whose zone is left out: not that they do not exist, nor that they are another server's.
#[test]
fn questions_for_what_is_left_out_fail() {
    let texts = [
        "$ORIGIN x.\n@ 1 SOA . . 1 1 1 1 1\nhere A 192.0.2.1\nto CNAME www.sub\nsub DS 1 8 2 \
         0000000000000000000000000000000000000000000000000000000000000000\n",
        "$ORIGIN sub.x.\n@ 1 SOA . . 1 1 1 1 1\n$FROB\nwww A 192.0.2.2\n",
        "$ORIGIN deep.sub.x.\n@ 1 SOA . . 1 1 1 1 1\nwww A 192.0.2.3\n",
    ];
    let many: String = (0..8200).map(|n| format!("many A 10.0.{}.{}\n", n / 256, n % 256)).collect();
    let first = format!("{}{many}", texts[0]);
    let files = [&first, texts[1], texts[2]].map(zone::file);
    let paths = files.each_ref().map(|file| file.path().to_owned());
    let (records, mut faults) = zone::load(&paths).unwrap();
    let index = Index::build(records, &mut faults).unwrap();
    assert_eq!(faults.left_out().as_deref(), Some("1 record and 1 zone"), "{faults}");
    assert_eq!(index.zones(), 2);
    for (name, qtype, rcode, authoritative, answers) in [
        ("here.x", rtype::A, 0, true, 1),
        ("no.x", rtype::A, 3, true, 0),
        ("sub.x", rtype::SOA, 2, false, 0),
        ("sub.x", rtype::ANY, 2, false, 0),
        ("sub.x", rtype::DS, 2, false, 0),
        ("www.sub.x", rtype::A, 2, false, 0),
        ("a.b.sub.x", rtype::TXT, 2, false, 0),
        // The client asks on.
        ("to.x", rtype::A, 0, true, 1),
        ("www.deep.sub.x", rtype::A, 0, true, 1),
        ("deep.sub.x", rtype::DS, 2, false, 0),
        ("many.x", rtype::A, 2, false, 0),
        ("many.x", rtype::TXT, 0, true, 0),
    ] {
        let reply = reply(&index, &query(name, qtype, (0, &[])), 65_535);
        let header = Message::from_octets(&reply[..]).unwrap();
        let (code, flags) = (header.header().rcode().to_int(), header.header().aa());
        let count = header.header_counts().ancount();
        assert_eq!((u16::from(code), flags, count), (rcode, authoritative, answers), "{name} {qtype}");
    }
}

#[test]
fn the_root_may_be_served() {
    let index = index(&[". 9 IN SOA . . 1 1 1 1 5\n. NS a.\na. A 192.0.2.1\n*.w. A 192.0.2.2\n"]);
    assert_eq!(ask(&index, "a", rtype::A), "noerror aa\nanswer: a 9 a 192.0.2.1");
    assert_eq!(ask(&index, ".", rtype::NS), "noerror aa\nanswer:  9 ns a.\nadditional: a 9 a 192.0.2.1");
    assert_eq!(ask(&index, "b.c", rtype::A), "nxdomain aa\nauthority:  5 soa . . 1 1 1 1 5");
    assert_eq!(ask(&index, "b.w", rtype::A), "noerror aa\nanswer: b.w 9 a 192.0.2.2");
}
