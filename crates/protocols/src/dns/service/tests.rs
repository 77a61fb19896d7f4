#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a test says what it did")]

use proptest::prelude::*;
use udpath_serve::serve_once;

use super::super::answer::tests::signed::{secure_query, signed};
use super::super::answer::tests::{query, said};
use super::super::{wire::rtype, zone};
use super::*;

const ZONE_TEXT: &str = "$ORIGIN x.\n@ 1 SOA . . 1 1 1 1 1\nwww A 192.0.2.1\n*.w TXT \"any\"\nc CNAME www\nd DNAME w\nsub NS ns.sub\nns.sub A 192.0.2.2\n";

fn dns(text: &str, change: impl FnOnce(&mut DnsConfig)) -> Dns {
    let file = zone::file(text);
    let zones = vec![file.path().into()];
    let mut config = DnsConfig { zones, responses_per_second: None, ..DnsConfig::default() };
    change(&mut config);
    Dns::load(&config).unwrap()
}

fn ask(dns: &mut Dns, message: &[u8]) -> (Outcome, Vec<u8>) {
    serve_once(dns, message, "192.0.2.77:4000".parse().unwrap(), "192.0.2.53:53".parse().unwrap())
}

/// An OPT record of 1232 bytes with a COOKIE option.
fn cookie(data: &[u8]) -> Vec<u8> {
    let mut opt = vec![0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 4 + data.len() as u8, 0, 10, 0, data.len() as u8];
    opt.extend_from_slice(data);
    opt
}

fn stream(dns: &Dns) -> DnsStream {
    DnsStream { current: Arc::clone(dns.view.current()), settings: Arc::clone(&dns.settings) }
}

#[test]
fn queries_are_answered_and_other_messages_are_not() {
    let mut dns = dns(ZONE_TEXT, |_| ());
    let good = query("www.x", rtype::A, (0, &[]));
    let (outcome, reply) = ask(&mut dns, &good);
    assert_eq!((outcome, &said(&reply)[..]), (Outcome::Reply, "noerror aa\nanswer: www.x 1 a 192.0.2.1"));
    let mut response = good.clone();
    response[2] |= 0x80;
    for dropped in [&response[..], &good[..11], b""] {
        assert_eq!(ask(&mut dns, dropped).0, Outcome::Drop(DropReason::Malformed));
    }
    let (_, malformed) = ask(&mut dns, &good[..20]);
    assert_eq!(malformed, [0xab, 0xcd, 0x81, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    let mut update = good;
    update[2] = 0x28;
    assert_eq!(ask(&mut dns, &update).1[..4], [0xab, 0xcd, 0xa8, 4], "UPDATE: NOTIMP");
}

#[test]
fn a_cookie_comes_back_and_proves_the_client() {
    let mut dns = dns(ZONE_TEXT, |config| config.responses_per_second = Some(1));
    let (_, reply) = ask(&mut dns, &query("www.x", rtype::A, (1, &cookie(&[5; 8]))));
    let shown = reply[reply.len() - 24..].to_vec();
    assert_eq!(shown[..8], [5; 8]);
    // The rate is used up; with the cookie the server gave, replies go on.
    let plain = query("www.x", rtype::A, (0, &[]));
    assert_eq!(ask(&mut dns, &plain).0, Outcome::Drop(DropReason::Refused));
    for _ in 0..5 {
        let (outcome, reply) = ask(&mut dns, &query("www.x", rtype::A, (1, &cookie(&shown))));
        assert_eq!((outcome, &reply[reply.len() - 24..]), (Outcome::Reply, &shown[..]));
    }
    let mut forged = shown;
    forged[23] ^= 1;
    let (outcome, reply) = ask(&mut dns, &query("www.x", rtype::A, (1, &cookie(&forged))));
    assert_eq!((outcome, reply[2] & 2), (Outcome::Reply, 2), "every second one, truncated");
}

/// RFC 7766: several messages in one read, or a message in several.
#[test]
fn over_tcp_messages_have_their_length_in_front() {
    let mut stream = stream(&dns(ZONE_TEXT, |_| ()));
    let asked = query("www.x", rtype::A, (1, &cookie(&[5; 8])));
    let framed = [&(asked.len() as u16).to_be_bytes()[..], &asked].concat();
    for len in 0..framed.len() {
        assert_eq!(stream.message_len(&framed[..len]), None, "{len} bytes");
    }
    assert_eq!(stream.message_len(&framed.repeat(2)), Some(framed.len()));
    let mut buffer = vec![0; 1 << 16];
    let mut reply = Reply::new(&mut buffer);
    let outcome = stream.serve_from("192.0.2.1:9".parse().unwrap(), &framed, &mut reply);
    let len = reply.len();
    assert_eq!((outcome, usize::from(u16::from_be_bytes([buffer[0], buffer[1]]))), (Outcome::Reply, len - 2));
    assert!(said(&buffer[2..len]).contains("192.0.2.1"));
    for bad in [&[0, 0][..], &[0, 1, 7]] {
        let outcome = stream.serve(bad, &mut Reply::new(&mut buffer));
        assert_eq!(outcome, Outcome::Drop(DropReason::Malformed), "the connection is closed");
    }
}

#[test]
fn a_reply_too_long_for_udp_is_whole_over_tcp() {
    let text = ZONE_TEXT.to_owned() + &(0..200).map(|n| format!("big A 10.0.0.{n}\n")).collect::<String>();
    let mut dns = dns(&text, |_| ());
    let asked = query("big.x", rtype::A, (0, &[]));
    let (_, udp) = ask(&mut dns, &asked);
    assert_eq!(said(&udp), "noerror aa tc");
    let mut buffer = vec![0; 1 << 16];
    let framed = [&(asked.len() as u16).to_be_bytes()[..], &asked].concat();
    let mut reply = Reply::new(&mut buffer);
    assert_eq!(stream(&dns).serve(&framed, &mut reply), Outcome::Reply);
    let len = reply.len();
    assert_eq!(said(&buffer[2..len]).lines().count(), 201);
}

#[test]
fn options_have_ranges() {
    let config = |spec, value: &str| {
        let mut options = Options::default();
        options.push(spec, value);
        DnsConfig::from_options(&options).map_err(|error| error.to_string())
    };
    assert_eq!(config(&RESPONSES_PER_SECOND, "20").unwrap().responses_per_second, Some(20));
    for wrong in ["0", "1001", "many"] {
        let error = config(&RESPONSES_PER_SECOND, wrong).unwrap_err();
        assert_eq!(error, format!("invalid --responses-per-second {wrong}: expected 1 to 1000, or off"));
    }
    assert_eq!(config(&RESPONSES_PER_SECOND, "off").unwrap().responses_per_second, None);
    assert_eq!(config(&VERSION_TEXT, "x").unwrap().responses_per_second, Some(200), "limited by default");
    assert_eq!(config(&VERSION_TEXT, "x").unwrap().version, "x");
    config(&VERSION_TEXT, &"x".repeat(256)).unwrap_err();
    let mut zones = Options::default();
    zones.push(&ZONE, "a");
    zones.push(&ZONE, "b");
    assert_eq!(DnsConfig::from_options(&zones).unwrap().zones, [PathBuf::from("a"), "b".into()]);
}

#[test]
fn a_wrong_file_is_the_fault_of_its_option() {
    let mut options = Options::default();
    options.push(&ZONE, "/nothing/there");
    let start = super::super::ENTRY.start.unwrap();
    let error = start(&Config::new([]), false, &options).unwrap_err().to_string();
    assert_eq!(
        error,
        "invalid --zone /nothing/there: cannot read /nothing/there: No such file or directory (os error 2)"
    );
}

/// A reply is never longer than the client takes, and a message that is none gets at most a header.
fn bounded(dns: &mut Dns, message: &[u8]) -> Result<(), TestCaseError> {
    let (outcome, reply) = ask(dns, message);
    // Of what is rejected: header, question, OPT.
    let rejected = message.len().min(12 + 255 + 4 + 11);
    let most = Query::parse(message).map_or(rejected, |query| query.udp_limit());
    prop_assert!(most <= 1232 && reply.len() <= most, "{} bytes", reply.len());
    if outcome == Outcome::Reply {
        prop_assert_eq!(&reply[..2], &message[..2]);
        prop_assert_eq!(reply[2] & 0x80, 0x80);
        domain::base::Message::from_octets(&reply[..]).unwrap().sections().unwrap();
    }
    let mut stream = stream(dns);
    let mut buffer = [0; 4096];
    let framed = [&(message.len() as u16).to_be_bytes()[..], message].concat();
    prop_assert_eq!(stream.message_len(&framed), Some(framed.len()));
    let _ = stream.serve(&framed, &mut Reply::new(&mut buffer));
    Ok(())
}

proptest! {
    #[test]
    fn any_bytes_are_answered_within_bounds(message in prop::collection::vec(any::<u8>(), 0..600)) {
        bounded(&mut dns(ZONE_TEXT, |_| ()), &message)?;
    }

    #[test]
    fn damaged_queries_are_answered_within_bounds(
        name in prop::sample::select(vec!["www.x", "a.b.w.x", "c.x", "q.d.x", "n.sub.x", "x", "none.x", "y"]),
        qtype in 0..300_u16,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
        whole in any::<bool>(),
        secure in prop::option::of(any::<bool>()),
    ) {
        let mut message = query(name, qtype, (1, &cookie(&[3; 8])));
        // DO.
        if let Some(hashed) = secure {
            let flags = message.len() - 16;
            message[flags] = 0x80;
            let mut dns = dns(&signed(ZONE_TEXT, hashed), |_| ());
            bounded(&mut dns, &message)?;
        }
        for (at, byte) in damage {
            let at = at.index(message.len());
            message[at] = byte;
        }
        if !whole {
            message.truncate(cut.index(message.len()));
        }
        bounded(&mut dns(ZONE_TEXT, |_| ()), &message)?;
    }
}

/// Bytes of UDP payload that come out for each byte that goes in, when the same query comes many times.
fn amplification(dns: &mut Dns, message: &[u8], times: usize) -> f64 {
    let out: usize = (0..times).map(|_| ask(dns, message).1.len()).sum();
    out as f64 / (times * message.len()) as f64
}

/// As NSD counts: a resolver may ask for many names, and made-up names are no new ones.
#[test]
fn each_answer_has_its_own_rate_and_made_up_names_share_one() {
    const QUERIES: u64 = 100;
    let names: String = (0..QUERIES).map(|n| format!("h{n} A 10.0.0.1\n")).collect();
    let mut dns = dns(&(ZONE_TEXT.to_owned() + &names), |config| config.responses_per_second = Some(1));
    let mut whole = |name: &dyn Fn(u64) -> String, rtype| {
        let begun = std::time::Instant::now();
        let whole = (0..QUERIES).filter(|n| {
            let (outcome, reply) = ask(&mut dns, &query(&name(*n), rtype, (0, &[])));
            outcome == Outcome::Reply && reply[2] & 2 == 0
        });
        (whole.count() as u64, 2 + begun.elapsed().as_secs())
    };
    assert_eq!(whole(&|n| format!("h{n}.x"), rtype::A).0, QUERIES);
    let made_up: [(&dyn Fn(u64) -> String, u16); 6] = [
        (&|n| format!("n{n}.w.x"), rtype::TXT),
        (&|n| format!("n{n}.x"), rtype::A),
        (&|n| format!("h{n}.x"), rtype::MX),
        (&|n| format!("n{n}.sub.x"), rtype::A),
        (&|n| format!("n{n}.d.x"), rtype::A),
        (&|n| format!("n{n}.y"), rtype::A),
    ];
    for (name, rtype) in made_up {
        let (whole, most) = whole(name, rtype);
        assert!((1..=most).contains(&whole), "{} {rtype}: {whole}", name(0));
    }
}

/// What a forged source address is worth; docs/protocols/dns.md has the figures.
#[test]
fn the_limit_makes_a_flood_of_replies_smaller_than_the_flood_of_queries() {
    let text = format!("{ZONE_TEXT}big TXT {}\n", format!("\"{}\" ", "t".repeat(200)).repeat(5));
    let opt = [0, 0, 41, 16, 0, 0, 0, 0, 0, 0, 0];
    let (large, short) = (query("big.x", rtype::TXT, (1, &opt)), query("big.x", rtype::TXT, (0, &[])));
    let mut open = dns(&text, |_| ());
    let unlimited = amplification(&mut open, &large, 1);
    assert!((25.0..1232.0 / 28.0).contains(&unlimited), "{unlimited}");
    assert!(amplification(&mut open, &short, 1) <= 1.0, "without EDNS it is truncated");
    for (kind, message) in [
        ("an answer", large),
        ("no such name", query("none.x", rtype::A, (1, &opt))),
        ("no such type", query("www.x", rtype::MX, (1, &opt))),
        ("an error", query("www.y", rtype::A, (1, &opt))),
    ] {
        println!("{kind} without a limit: {:.1}", amplification(&mut open, &message, 1));
        let mut limited = dns(&text, |config| config.responses_per_second = Some(5));
        let factor = amplification(&mut limited, &message, 10_000);
        assert!(factor < 0.8, "{kind}: {factor}");
        println!("{kind}: {factor:.2}");
    }
    println!("without a limit: {unlimited:.1}");
}

/// With signatures and proofs a reply is longer, and no new answer. docs/protocols/dns.md has the factors.
#[test]
fn signed_answers_are_limited_as_others() {
    const QUERIES: usize = 100;
    for (hashed, factor) in [(false, 9.5..10.5), (true, 16.0..17.0)] {
        let text = signed(ZONE_TEXT, hashed);
        let mut open = dns(&text, |_| ());
        let missing = secure_query("no.such.name.x", rtype::A);
        let unlimited = amplification(&mut open, &missing, 1);
        println!("signed, NSEC3 {hashed}: {unlimited:.1}");
        assert!(factor.contains(&unlimited), "{unlimited}");
        for (name, rtype) in
            [("n.x", rtype::A), ("n.w.x", rtype::TXT), ("n.w.x", rtype::A), ("n.sub.x", rtype::A)]
        {
            let mut dns = dns(&text, |config| config.responses_per_second = Some(1));
            let begun = std::time::Instant::now();
            let whole = (0..QUERIES).filter(|n| {
                // With DO and without: one answer.
                let name = format!("{n}{name}");
                let query =
                    if n % 2 == 0 { secure_query(&name, rtype) } else { query(&name, rtype, (0, &[])) };
                let (outcome, reply) = ask(&mut dns, &query);
                outcome == Outcome::Reply && reply[2] & 2 == 0
            });
            let (whole, most) = (whole.count() as u64, 2 + begun.elapsed().as_secs());
            assert!((1..=most).contains(&whole), "{name} {rtype}: {whole}");
        }
        let mut limited = dns(&text, |config| config.responses_per_second = Some(5));
        assert!(amplification(&mut limited, &missing, 10_000) < 0.8);
    }
}

/// Nothing is left out, and it is said all the same.
#[test]
fn a_zone_without_all_signatures_is_a_warning() {
    let text: String = signed(ZONE_TEXT, false)
        .lines()
        .filter(|line| !line.starts_with("www.x. RRSIG"))
        .map(|line| format!("{line}\n"))
        .collect();
    let warnings = left_out(&dns(&text, |_| ()).view.get().faults);
    assert_eq!(warnings[0], "loaded with faults (with --strict, this is an error)");
    assert!(
        warnings[1]
            .ends_with(":3: no signature of the A records of www.x., and 1 more set: sign the zone again"),
        "{warnings:?}"
    );
    assert!(left_out(&dns(&signed(ZONE_TEXT, false), |_| ()).view.get().faults).is_empty());
}
