use std::collections::HashSet;
use std::sync::LazyLock;

use proptest::prelude::*;
use udpath_serve::{Outcome, serve_once};

use super::super::state::Data;
use super::super::{Clients, Radius, RadiusFiles, RadiusState, Secret, Users, oracle};
use super::*;

const RUN: u64 = 0x0123_4567_89ab_cdef;
const SECRET: &[u8] = b"testing123";
const USERS: &[u8] = b"bob Cleartext-Password := hello\n Reply-Message = \"Hello\"\n\
                       carol Cleartext-Password := \"a password that takes more than two blocks\", One-Time-Code := 1\n\
                       mallory Auth-Type := Reject\n";

fn protocol(auth: Auth, accounting: bool, users: &[u8]) -> RadiusLoad {
    let secret = Secret::new(SECRET);
    let users = Users::parse(users).unwrap();
    RadiusLoad::new(RUN, LoadConfig { secret, users, left_out: None, auth, accounting })
}

/// PAP, CHAP and accounting.
fn all() -> [RadiusTemplate; 3] {
    let of = |(auth, accounting)| protocol(auth, accounting, USERS).own();
    [(Auth::Pap, false), (Auth::Chap, false), (Auth::Pap, true)].map(of)
}

fn request(load: &mut RadiusTemplate, flow: u32, seq: u64) -> Vec<u8> {
    let mut bytes = vec![0xee; 512];
    let len = load.write(flow, seq, &mut bytes);
    bytes.truncate(len);
    bytes
}

/// The reply of our own server, which has the same users.
fn reply(request: &[u8]) -> Vec<u8> {
    static SERVER: LazyLock<Radius> = LazyLock::new(|| {
        let data = Data { clients: Clients::local(), users: Users::parse(USERS).unwrap() };
        Radius::new(&RadiusState::with(RadiusFiles::default(), data))
    });
    let [peer, local] = ["127.0.0.1:1000", "127.0.0.1:1812"].map(|address| address.parse().unwrap());
    let (outcome, reply) = serve_once(&mut SERVER.clone(), request, peer, local);
    assert_eq!(outcome, Outcome::Reply);
    reply
}

#[test]
fn requests_are_those_of_an_access_server() {
    let [mut pap, mut chap, mut accounting] = all();
    let mut names = HashSet::new();
    for seq in [0, 1, 2, 255, 256, u64::MAX] {
        let sent = request(&mut pap, 3, seq);
        let (authenticator, found) = (sent[4..20].try_into().unwrap(), oracle::attributes(&sent));
        assert_eq!((sent[0], sent[1]), (1, seq as u8));
        assert_eq!(oracle::signed(SECRET, &authenticator, &sent), sent);
        let kinds: Vec<u8> = found.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [80, 33, 1, 2, 32], "the Message-Authenticator is first");
        let user = Users::parse(USERS).unwrap().find(&found[2].1).unwrap().clone();
        assert_eq!(found[3].1, oracle::hidden(SECRET, &authenticator, &user.password));
        names.insert(found[2].1.clone());

        let sent = request(&mut chap, 3, seq);
        let authenticator: [u8; 16] = sent[4..20].try_into().unwrap();
        let found = oracle::attributes(&sent);
        assert_eq!((found[3].0, found[3].1[0]), (3, seq as u8));
        assert_eq!(found[3].1[1..], oracle::md5(&[&[seq as u8], &user.password, &authenticator]));

        let sent = request(&mut accounting, 3, seq);
        assert_eq!(oracle::authenticated(SECRET, &[0; 16], &sent), sent);
        let kinds: Vec<u8> = oracle::attributes(&sent).iter().map(|(kind, _)| *kind).collect();
        assert_eq!((sent[0], kinds), (4, vec![33, 1, 40, 44, 32]));
    }
    assert_eq!(names.len(), 3, "all users in turn");
    // Start and Stop of one session.
    let of = |accounting: &mut RadiusTemplate, seq| oracle::attributes(&request(accounting, 3, seq));
    let [start, stop, next] = [6, 7, 8].map(|seq| of(&mut accounting, seq));
    assert_eq!((start[2].1[3], stop[2].1[3], next[2].1[3]), (1, 2, 1));
    assert!(start[3] == stop[3] && start[3] != next[3], "{start:?} {next:?}");
}

#[test]
fn lengths_are_known_before() {
    let long = format!("{} Cleartext-Password := {}", "n".repeat(253), "p".repeat(128));
    for users in [USERS, long.as_bytes()] {
        for (auth, accounting) in [(Auth::Pap, false), (Auth::Chap, false), (Auth::Pap, true)] {
            let load = protocol(auth, accounting, users);
            let lens: Vec<usize> = (0..3).map(|seq| request(&mut load.own(), 0, seq).len()).collect();
            let longest = *lens.iter().max().unwrap();
            assert_eq!((load.min_size(), load.own().min_size()), (longest, longest));
            assert!(lens.iter().all(|len| *len > 0) && longest <= load.max_size(), "{lens:?}");
        }
    }
    let default = RadiusLoad::new(1, LoadConfig::default());
    assert!(default.min_size() <= DEFAULT_SIZE);
    assert_eq!(default.own().request(0, 0, &mut [0; 40]), None);
}

#[test]
fn a_reply_names_its_request_and_no_damage_passes() {
    for mut load in all() {
        for (flow, seq) in [(0, 0), (0, 1), (0, 2), (131_071, 77), (7, u64::MAX)] {
            let sent = request(&mut load, flow, seq);
            let reply = reply(&sent);
            assert_eq!(load.check(flow, &reply), Judgement::Valid { seq }, "{flow} {seq}");
            assert_eq!(load.check(flow ^ 1, &reply), Judgement::WrongFlow);
            assert_eq!(load.check(flow, &sent), Judgement::Corrupt, "the request itself");
            assert_eq!(load.check(flow, &[&reply[..], &[0]].concat()), Judgement::Corrupt, "padding");
            let mut other = load.clone();
            other.run += 1;
            assert_eq!(other.check(flow, &reply), Judgement::Corrupt, "of another run");
            for bit in 0..reply.len() * 8 {
                let mut damaged = reply.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(load.check(flow, &damaged), Judgement::Corrupt, "bit {bit}");
            }
        }
    }
}

#[test]
fn another_verdict_than_the_users_is_a_refusal() {
    let [mut pap, ..] = all();
    for seq in 0..3 {
        let sent = request(&mut pap, 0, seq);
        let authenticator = sent[4..20].try_into().unwrap();
        let state = oracle::attributes(&sent)[1].clone();
        let expected = reply(&sent)[0];
        for code in [2, 3, 11] {
            // Without a Message-Authenticator, as servers answer that know nothing of Blast-RADIUS.
            let answer = oracle::packet(code, seq as u8, &authenticator, std::slice::from_ref(&state));
            let answer = oracle::authenticated(SECRET, &authenticator, &answer);
            let judged = if code == expected { Judgement::Valid { seq } } else { Judgement::Refused { seq } };
            assert_eq!(pap.check(0, &answer), judged, "{seq} {code}");
            // With a wrong one.
            let attributes = [(80, vec![7; 16]), state.clone()];
            let answer = oracle::packet(code, seq as u8, &authenticator, &attributes);
            let answer = oracle::authenticated(SECRET, &authenticator, &answer);
            assert_eq!(pap.check(0, &answer), Judgement::Corrupt);
        }
        for (code, identifier, attributes) in [
            (5, seq as u8, vec![state.clone()]),
            (2, seq as u8 + 1, vec![state.clone()]),
            (2, seq as u8, vec![state.clone(), state.clone()]),
            (2, seq as u8, vec![]),
        ] {
            let answer = oracle::packet(code, identifier, &authenticator, &attributes);
            let answer = oracle::authenticated(SECRET, &authenticator, &answer);
            assert_eq!(pap.check(0, &answer), Judgement::Corrupt, "{code}");
        }
    }
    // What came, by name: an Access-Reject of one user is the answer to another.
    let kinds = pap.kinds();
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name.as_str()).collect();
    assert_eq!(names, ["Access-Accept", "Access-Reject", "Access-Challenge"]);
    let sums =
        kinds.iter().fold((0, 0), |(count, refused), kind| (count + kind.count, refused + kind.refused));
    assert_eq!(sums, (9, 6), "{kinds:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_judged(bytes in prop::collection::vec(any::<u8>(), 0..200), flow in any::<u32>()) {
        for load in all() {
            prop_assert_eq!(load.check(flow, &bytes), Judgement::Corrupt);
        }
    }

    #[test]
    fn authenticators_differ(flow in 0_u32..131_072, seq in any::<u64>(), other in any::<u64>()) {
        let [pap, ..] = all();
        let of = |flow, seq| pap.authenticator(flow, seq);
        prop_assert!(seq == other || of(flow, seq) != of(flow, other));
        prop_assert_ne!(of(flow, seq), of(flow ^ 1, seq));
    }
}
