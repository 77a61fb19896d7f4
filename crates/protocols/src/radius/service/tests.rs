use std::net::SocketAddr;
use std::sync::LazyLock;

use proptest::prelude::*;
use udpath_serve::serve_once;

use super::super::oracle;
use super::super::state::RadiusFiles;
use super::super::{Clients, MAX_LEN, Users};
use super::*;

const SECRET: &[u8] = b"xyzzy5461";
const CLIENTS: &[u8] = b"192.0.2.0/24 xyzzy5461\n198.51.100.0/24 xyzzy5461 no-message-authenticator\n";
const USERS: &[u8] = b"bob Cleartext-Password := hello\n Class = x, Session-Timeout = 60\n\
                       carol Cleartext-Password := hello, One-Time-Code := 123456\n\
                       mallory Auth-Type := Reject\n";
const CLIENT: &str = "192.0.2.1:1000";
const EXEMPT: &str = "198.51.100.1:1000";
const AUTHENTICATOR: [u8; 16] = *b"unpredictable 16";
type Attributes = Vec<(u8, Vec<u8>)>;

fn service(users: &[u8]) -> Radius {
    let data = Data { clients: Clients::parse(CLIENTS).unwrap(), users: Users::parse(users).unwrap() };
    Radius::new(&RadiusState::with(RadiusFiles::default(), data))
}

fn ask_at(radius: &mut Radius, request: &[u8], peer: &str, port: u16) -> (Outcome, Vec<u8>) {
    let local = SocketAddr::from(([192, 0, 2, 99], port));
    let (outcome, reply) = serve_once(radius, request, peer.parse().unwrap(), local);
    if outcome == Outcome::Reply {
        let authenticator = request[4..20].try_into().unwrap();
        assert!(oracle::is_right(SECRET, authenticator, &reply), "{reply:02x?}");
        assert_eq!(reply[1], request[1]);
    }
    (outcome, reply)
}

fn ask(radius: &mut Radius, request: &[u8], peer: &str) -> (Outcome, Vec<u8>) {
    ask_at(radius, request, peer, 1812)
}

/// Access-Requests without and with a signature.
fn request(attributes: &[(u8, Vec<u8>)], sign: bool) -> Vec<u8> {
    let signature = if sign { vec![(80, vec![0; 16])] } else { vec![] };
    let packet = oracle::packet(1, 7, &AUTHENTICATOR, &[&signature[..], attributes].concat());
    oracle::signed(SECRET, &AUTHENTICATOR, &packet)
}

/// A signed Access-Request with this identifier.
fn numbered(identifier: u8, attributes: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut packet = request(attributes, true);
    packet[1] = identifier;
    oracle::signed(SECRET, &AUTHENTICATOR, &packet)
}

fn pap(name: &str, password: &str) -> Attributes {
    vec![(1, name.into()), (2, oracle::hidden(SECRET, &AUTHENTICATOR, password.as_bytes()))]
}

const REFUSED: (Outcome, Vec<u8>) = (Outcome::Drop(DropReason::Refused), Vec::new());
const MALFORMED: (Outcome, Vec<u8>) = (Outcome::Drop(DropReason::Malformed), Vec::new());

#[test]
fn users_are_accepted_or_rejected_by_pap_and_chap() {
    let mut radius = service(USERS);
    let chap = |password: &[u8], challenge: Option<&[u8]>| {
        let digest = oracle::md5(&[&[5], password, challenge.unwrap_or(&AUTHENTICATOR)]);
        let given = challenge.map(|challenge| (60, challenge.to_vec()));
        let mut all = vec![(1, b"bob".to_vec()), (3, [&[5], &digest[..]].concat())];
        all.extend(given);
        all
    };
    let more = vec![(33, b"outer".to_vec()), (4, vec![192, 0, 2, 1]), (33, b"inner".to_vec()), (33, vec![])];
    let mut identifier = 0;
    for (attributes, code) in [
        (pap("bob", "hello"), 2),
        (chap(b"hello", None), 2),
        (chap(b"hello", Some(b"a challenge")), 2),
        (pap("bob", "hell"), 3),
        (pap("bob", &"hello".repeat(20)), 3),
        (chap(b"hell", None), 3),
        (pap("eve", "hello"), 3),
        (pap("mallory", ""), 3),
        (vec![pap("", "hello")[1].clone()], 3),
        (vec![(1, b"bob".to_vec()), (79, b"\x02\x01\x00\x04".to_vec())], 3),
    ] {
        // Another identifier each time, otherwise it would be the same request again.
        identifier += 1;
        let packet = numbered(identifier, &[&attributes[..], &more].concat());
        let (outcome, reply) = ask(&mut radius, &packet, CLIENT);
        assert_eq!((outcome, reply[0]), (Outcome::Reply, code), "{attributes:?}");
        let of = oracle::attributes(&reply);
        assert_eq!((of[0].0, reply[20]), (80, 80), "the Message-Authenticator is first");
        let mut expected: Attributes = vec![];
        if code == 2 {
            expected = vec![(25, b"x".to_vec()), (27, vec![0, 0, 0, 60])];
        }
        expected.extend([(33, b"outer".to_vec()), (33, b"inner".to_vec()), (33, vec![])]);
        assert_eq!(of[1..], expected);
    }
    // None, or more than one, or of impossible length.
    for wrong in [
        vec![(1, b"bob".to_vec())],
        [pap("bob", "hello"), chap(b"hello", None)[1..].to_vec()].concat(),
        vec![(1, b"bob".to_vec()), (2, vec![0; 15])],
        vec![(1, b"bob".to_vec()), (2, vec![0; 144])],
        vec![(1, b"bob".to_vec()), (3, vec![0; 16])],
        vec![(1, b"bob".to_vec()), (3, vec![])],
        [pap("bob", "hello"), pap("bob", "hello")].concat(),
    ] {
        assert_eq!(ask(&mut radius, &request(&wrong, true), CLIENT), MALFORMED, "{wrong:?}");
    }
}

#[test]
fn what_is_not_signed_gets_no_reply() {
    let mut radius = service(USERS);
    let good = request(&pap("bob", "hello"), true);
    for bit in 0..good.len() * 8 {
        let mut damaged = good.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let (outcome, _) = ask(&mut radius, &damaged, CLIENT);
        assert!(matches!(outcome, Outcome::Drop(_)), "bit {bit}");
    }
    assert_eq!(ask(&mut radius, &request(&pap("bob", "hello"), false), CLIENT), REFUSED);
    assert_eq!(ask(&mut radius, &good, "203.0.113.1:1000"), REFUSED, "unknown client");
    assert_eq!(ask(&mut radius, b"", "203.0.113.1:1000"), REFUSED, "unknown client");
    assert_eq!(ask(&mut radius, b"", CLIENT), MALFORMED);
    for code in (0..=255).filter(|code| ![1, 4, 12].contains(code)) {
        let packet = oracle::packet(code, 1, &AUTHENTICATOR, &[(80, vec![0; 16])]);
        let packet = oracle::signed(SECRET, &AUTHENTICATOR, &packet);
        assert_eq!(ask(&mut radius, &packet, CLIENT), REFUSED, "code {code}");
    }
    assert_eq!(ask(&mut radius, &good, CLIENT).0, Outcome::Reply);
}

#[test]
fn an_exempt_client_may_leave_the_signature_out_where_that_is_safe() {
    let mut radius = service(USERS);
    assert_eq!(ask(&mut radius, &request(&pap("bob", "hello"), false), EXEMPT).1[0], 2);
    let proxied = [pap("bob", "hello"), vec![(33, b"p".to_vec())]].concat();
    assert_eq!(ask(&mut radius, &request(&proxied, false), EXEMPT), REFUSED);
    let eap = vec![(1, b"bob".to_vec()), (79, vec![2, 1, 0, 4])];
    assert_eq!(ask(&mut radius, &request(&eap, false), EXEMPT), REFUSED);
    // A signature that is there must be right.
    let mut wrong = request(&pap("bob", "hello"), true);
    wrong[25] ^= 1;
    assert_eq!(ask(&mut radius, &wrong, EXEMPT), REFUSED);
    assert_eq!(ask(&mut radius, &request(&proxied, true), EXEMPT).1[0], 2);
}

#[test]
fn a_challenge_is_answered_with_its_state() {
    let mut radius = service(USERS);
    let mut identifier = 0;
    let mut step = |attributes: &[(u8, Vec<u8>)], peer: &str| {
        identifier += 1;
        let (outcome, reply) = ask(&mut radius, &numbered(identifier, attributes), peer);
        assert_eq!(outcome, Outcome::Reply);
        (reply[0], oracle::attributes(&reply))
    };
    assert_eq!(step(&pap("carol", "hell"), CLIENT).0, 3);
    let (code, attributes) = step(&pap("carol", "hello"), CLIENT);
    assert_eq!((code, attributes[2].clone()), (11, (18, b"Enter the one-time code".to_vec())));
    assert_eq!(attributes[1].0, 24);
    let state = vec![attributes[1].clone()];
    let with = |name, code, state: &Attributes| [pap(name, code), state.clone()].concat();
    assert_eq!(step(&with("carol", "123457", &state), CLIENT).0, 3);
    assert_eq!(step(&with("carol", "hello", &state), CLIENT).0, 3);
    assert_eq!(step(&with("carol", "123456", &state), EXEMPT).0, 3, "another client");
    assert_eq!(step(&with("carol", "123456", &vec![(24, vec![0; 20])]), CLIENT).0, 3);
    assert_eq!(step(&with("carol", "123456", &vec![]), CLIENT).0, 3);
    assert_eq!(step(&with("carol", "123456", &state), CLIENT).0, 2);
}

#[test]
fn accounting_is_acknowledged_if_its_authenticator_is_right() {
    let mut radius = service(USERS);
    let start = vec![(40, vec![0, 0, 0, 1]), (44, b"s1".to_vec()), (33, b"p".to_vec())];
    let accounting = |attributes: &[(u8, Vec<u8>)], secret: &[u8]| {
        let packet = oracle::signed(secret, &[0; 16], &oracle::packet(4, 9, &[0; 16], attributes));
        oracle::authenticated(secret, &[0; 16], &packet)
    };
    let good = accounting(&start, SECRET);
    let (outcome, reply) = ask_at(&mut radius, &good, CLIENT, 1813);
    assert_eq!(
        (outcome, reply[0], oracle::attributes(&reply)),
        (Outcome::Reply, 5, vec![(33, b"p".to_vec())])
    );
    assert_eq!(ask(&mut radius, &accounting(&start, b"other"), CLIENT), REFUSED);
    let mut damaged = good.clone();
    damaged[25] ^= 1;
    assert_eq!(ask(&mut radius, &damaged, CLIENT), REFUSED);
    for wrong in [vec![start[1].clone()], vec![(40, vec![1])]] {
        assert_eq!(ask(&mut radius, &accounting(&wrong, SECRET), CLIENT), MALFORMED, "{wrong:?}");
    }
    // Signed as well: the signature counts.
    let signed = [&start[..], &[(80, vec![0; 16])]].concat();
    assert_eq!(ask(&mut radius, &accounting(&signed, SECRET), CLIENT).1[0], 5);
    let wrong = oracle::authenticated(SECRET, &[0; 16], &oracle::packet(4, 9, &[0; 16], &signed));
    assert_eq!(ask(&mut radius, &wrong, CLIENT), REFUSED);
}

#[test]
fn status_is_answered_by_port_and_only_if_signed() {
    let mut radius = service(USERS);
    let packet = oracle::packet(12, 3, &AUTHENTICATOR, &[(80, vec![0; 16])]);
    let signed = oracle::signed(SECRET, &AUTHENTICATOR, &packet);
    for (port, code, attributes) in [(1812, 2, 1), (1813, 5, 0), (1646, 5, 0), (9999, 2, 1)] {
        let (outcome, reply) = ask_at(&mut radius, &signed, CLIENT, port);
        assert_eq!((outcome, reply[0]), (Outcome::Reply, code), "{port}");
        assert_eq!(oracle::attributes(&reply).len(), attributes, "{port}");
    }
    assert_eq!(ask(&mut radius, &packet, CLIENT), REFUSED);
    assert_eq!(ask(&mut radius, &oracle::packet(12, 3, &AUTHENTICATOR, &[]), EXEMPT), REFUSED);
}

#[test]
fn the_same_request_gets_the_same_reply() {
    let mut radius = service(USERS);
    let packet = numbered(1, &pap("carol", "hello"));
    let first = ask(&mut radius, &packet, CLIENT);
    assert_eq!(first.1[0], 11);
    // From another worker, and after bob and carol are gone.
    let data = Data { clients: Clients::parse(CLIENTS).unwrap(), users: Users::parse(b"").unwrap() };
    let mut other = radius.clone();
    other.state.current.replace(data);
    assert_eq!(ask(&mut other, &packet, CLIENT), first);
    assert_eq!(ask(&mut other, &packet, "192.0.2.1:1001").1[0], 3, "another port");
    assert_eq!(ask(&mut other, &numbered(2, &pap("carol", "hello")), CLIENT).1[0], 3, "another identifier");
}

#[test]
fn a_reply_that_would_be_too_long_is_not_sent() {
    let attributes = vec![format!("\tClass = {}", "a".repeat(46)); 42].join(",\n");
    let mut radius = service(format!("bob Cleartext-Password := hello\n{attributes}").as_bytes());
    let with = |proxies: usize| [pap("bob", "hello"), vec![(33, vec![0; 253]); proxies]].concat();
    let (outcome, reply) = ask(&mut radius, &numbered(1, &with(8)), CLIENT);
    assert_eq!((outcome, reply.len()), (Outcome::Reply, 20 + 18 + 42 * 48 + 8 * 255));
    let (outcome, _) = ask(&mut radius, &numbered(2, &with(9)), CLIENT);
    assert_eq!(outcome, Outcome::Drop(DropReason::ReplyTooLarge));
}

/// One for all cases: its table of replies has 17 MiB.
fn shared() -> Radius {
    static SHARED: LazyLock<Radius> = LazyLock::new(|| service(USERS));
    SHARED.clone()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_handled(bytes in prop::collection::vec(any::<u8>(), 0..300), code in 0_u8..16) {
        let mut radius = shared();
        let mut with_header = bytes.clone();
        if bytes.len() >= 20 {
            let len = (bytes.len() as u16).to_be_bytes();
            with_header[..4].copy_from_slice(&[code, 1, len[0], len[1]]);
        }
        for datagram in [&bytes, &with_header] {
            for peer in [CLIENT, EXEMPT] {
                let (_, reply) = serve_once(&mut radius, datagram, peer.parse().unwrap(), "192.0.2.9:1812".parse().unwrap());
                prop_assert!(reply.len() <= datagram.len());
            }
        }
    }

    /// Whatever a client signs: replies are right, and only users who are let in get more bytes than they sent.
    #[test]
    fn replies_are_right_and_rejects_are_not_longer_than_requests(
        attributes in prop::collection::vec((prop::sample::select(vec![1_u8, 2, 3, 24, 33, 40, 60, 79, 26]),
                                             prop::collection::vec(any::<u8>(), 0..40)), 0..8),
        code in prop::sample::select(vec![1_u8, 4, 12]),
        authenticator in any::<[u8; 16]>(),
        good in any::<bool>(),
        sign in any::<bool>(),
    ) {
        let mut radius = shared();
        let mut all = attributes;
        if good {
            all.retain(|(kind, _)| ![1, 2, 3, 24, 79].contains(kind));
            all.push((1, b"bob".to_vec()));
            all.push((2, oracle::hidden(SECRET, &authenticator, b"hello")));
        }
        if sign {
            all.push((80, vec![0; 16]));
        }
        let zero = if code == 4 { [0; 16] } else { authenticator };
        let packet = oracle::signed(SECRET, &zero, &oracle::packet(code, 1, &zero, &all));
        let packet = if code == 4 { oracle::authenticated(SECRET, &zero, &packet) } else { packet };
        for peer in [CLIENT, EXEMPT] {
            let (outcome, reply) = ask(&mut radius, &packet, peer);
            let [first, ..] = reply[..] else { continue };
            prop_assert!(reply.len() <= MAX_LEN);
            let proxies = |of: &[u8]| {
                oracle::attributes(of).into_iter().filter(|(kind, _)| *kind == 33).collect::<Vec<_>>()
            };
            prop_assert_eq!(proxies(&reply), proxies(&packet));
            match first {
                2 if code == 1 => prop_assert!(good && reply.len() <= packet.len() + 38),
                2 => prop_assert!(code == 12 && reply.len() <= packet.len()),
                3 | 5 => prop_assert!(reply.len() <= packet.len()),
                other => prop_assert!(false, "code {} {:?}", other, outcome),
            }
        }
    }
}
