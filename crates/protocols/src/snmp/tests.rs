//! The load against an agent whose messages are those of rasn.

mod agent;

use agent::{Fault, octets, oid, reply_v2c, reply_v3};
use proptest::prelude::*;
use rasn::ber::{decode, encode};
use rasn_snmp::v2::{GetRequest as Get, Pdus, VarBind, VarBindValue};
use rasn_snmp::v2c;
use udpath_load::plan::Plan;
use udpath_load::result::Kind;
use udpath_load::template::{Judgement, Protocol, Template};

use super::*;

const RUN: u64 = 0x0123_4567_89ab_cdef;
const SEQ_MASK: u64 = (1 << 22) - 1;

fn text(parts: &[u32]) -> String {
    parts.iter().map(u32::to_string).collect::<Vec<_>>().join(".")
}

fn load(asker: Asker, operation: Operation, oids: &[Vec<u32>], repetitions: u32) -> Box<dyn Template> {
    let oids = oids.iter().map(|parts| text(parts).parse().unwrap()).collect();
    let questions = vec![Question { operation, oids, repetitions }];
    SnmpLoad::new(RUN, SnmpConfig { asker, questions }).unwrap().template()
}

fn written(template: &mut dyn Template, flow: u32, seq: u64) -> Vec<u8> {
    let mut request = vec![0xee; template.min_size()];
    let len = template.write(flow, seq, &mut request);
    assert!(len > 0 && len <= template.min_size());
    request.truncate(len);
    request
}

fn public() -> Asker {
    Asker::Community("public".into())
}

fn levels() -> Vec<User> {
    let user = |auth| User { name: "joe".into(), auth };
    let hashes = [Hash::Sha1, Hash::Sha224, Hash::Sha256, Hash::Sha384, Hash::Sha512];
    let auth = |hash, privacy| Some(Auth { hash, password: "maplesyrup".into(), privacy });
    let private = hashes.map(|hash| user(auth(hash, Some("honeydew".into()))));
    let authentic = hashes.map(|hash| user(auth(hash, None)));
    std::iter::once(user(None)).chain(authentic).chain(private).collect()
}

fn refusal(name: &str) -> Kind {
    Kind { refused: 1, ..Kind::new(name, 1) }
}

const SYS_UP_TIME: [u32; 9] = [1, 3, 6, 1, 2, 1, 1, 3, 0];

#[test]
fn replies_are_judged_by_what_they_say() {
    use Judgement::{Corrupt, Refused, Valid};
    let seq = 5;
    let (valid, refused) = (Valid { seq }, Refused { seq });
    let all = [Operation::Get, Operation::GetNext, Operation::GetBulk];
    for (fault, expected) in [
        (Fault::None, [valid; 3]),
        (Fault::Error(1), [refused; 3]),
        (Fault::Error(18), [refused; 3]),
        (Fault::Error(19), [Corrupt; 3]),
        (Fault::NoSuchObject, [refused, Corrupt, Corrupt]),
        (Fault::NoSuchInstance, [refused, Corrupt, Corrupt]),
        (Fault::EndOfMibView, [Corrupt, refused, refused]),
        (Fault::Null, [Corrupt; 3]),
        (Fault::OtherName, [Corrupt; 3]),
        // A GETBULK may return fewer, but not none.
        (Fault::TooFew, [Corrupt, Corrupt, valid]),
        (Fault::TooMany, [Corrupt; 3]),
        (Fault::OtherId, [Judgement::WrongFlow; 3]),
        (Fault::Report, [Corrupt; 3]),
    ] {
        let name = match fault {
            Fault::Error(1) => "tooBig",
            Fault::Error(18) => "inconsistentName",
            Fault::NoSuchObject => "noSuchObject",
            Fault::NoSuchInstance => "noSuchInstance",
            Fault::EndOfMibView => "endOfMibView",
            _ => "",
        };
        for (operation, expected) in all.into_iter().zip(expected) {
            let oids = [SYS_UP_TIME.to_vec(), vec![1, 3, 6, 1, 2, 1, 1, 5]];
            let mut template = load(public(), operation, &oids, 3);
            let reply = reply_v2c("public", &written(&mut *template, 3, seq), fault);
            assert_eq!(template.check(3, &reply), expected, "{operation:?} {fault:?}");
            let kinds = if expected == refused { vec![refusal(name)] } else { Vec::new() };
            assert_eq!(template.kinds(), kinds, "{operation:?} {fault:?}");
        }
    }
}

#[test]
fn every_level_of_version_3_is_answered() {
    for user in levels() {
        let mut template = load(Asker::User(user.clone()), Operation::Get, &[SYS_UP_TIME.to_vec()], 1);
        for (fault, expected) in [
            (Fault::None, Judgement::Valid { seq: 77 }),
            (Fault::Error(5), Judgement::Refused { seq: 77 }),
            (Fault::NoSuchObject, Judgement::Refused { seq: 77 }),
            (Fault::Report, Judgement::Refused { seq: 77 }),
            (Fault::OtherName, Judgement::Corrupt),
            (Fault::OtherId, Judgement::Corrupt),
        ] {
            let reply = reply_v3(&user, &written(&mut *template, 3, 77), fault);
            assert_eq!(template.check(3, &reply), expected, "{user:?} {fault:?}");
        }
        let refused = ["genErr", "noSuchObject", "usmStatsNotInTimeWindows"].map(refusal);
        assert_eq!(template.kinds(), [&[Kind::new("answered", 1)][..], &refused].concat(), "{user:?}");
    }
}

/// Protected by a code, no bit of a reply may change; and only the right key makes the code.
#[test]
fn no_damaged_or_forged_reply_is_valid() {
    let users = levels();
    for (user, other) in [(&users[1], &users[2]), (&users[6], &users[7])] {
        let mut template = load(Asker::User(user.clone()), Operation::Get, &[SYS_UP_TIME.to_vec()], 1);
        let good = reply_v3(user, &written(&mut *template, 0, 9), Fault::None);
        assert_eq!(template.check(0, &good), Judgement::Valid { seq: 9 });
        for bit in 0..good.len() * 8 {
            let mut damaged = good.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let judged = template.check(0, &damaged);
            // Without the bit "authenticated" it is a message that anyone may send, with a code that is not checked.
            assert!(!matches!(judged, Judgement::Valid { .. }), "bit {bit}: {judged:?}");
        }
        let mut theirs = load(Asker::User(other.clone()), Operation::Get, &[SYS_UP_TIME.to_vec()], 1);
        let forged = reply_v3(other, &written(&mut *theirs, 0, 9), Fault::None);
        assert_eq!(template.check(0, &forged), Judgement::Corrupt);
    }
}

#[test]
fn another_community_version_or_run_is_not_ours() {
    let mut template = load(public(), Operation::Get, &[SYS_UP_TIME.to_vec()], 1);
    let request = written(&mut *template, 1, 0);
    let reply = reply_v2c("public", &request, Fault::None);
    let message: v2c::Message<Pdus> = decode(&reply).unwrap();
    let as_sent = |message: &v2c::Message<Pdus>| encode(message).unwrap();
    assert_eq!(template.check(1, &as_sent(&message)), Judgement::Valid { seq: 0 });
    let other = v2c::Message { community: octets(b"private"), ..message.clone() };
    assert_eq!(template.check(1, &as_sent(&other)), Judgement::Corrupt);
    let other = v2c::Message { version: 0.into(), ..message };
    assert_eq!(template.check(1, &as_sent(&other)), Judgement::Corrupt);
    assert_eq!(template.check(1, &request), Judgement::Corrupt, "its own request");
    assert_eq!(template.check(1, &[&reply[..], &[0]].concat()), Judgement::Corrupt, "a byte more");
    for len in 0..reply.len() {
        assert_eq!(template.check(1, &reply[..len]), Judgement::Corrupt, "{len} bytes");
    }
    // A tag of 8 bits: most of many other flows and runs are seen.
    let others = (2..1002).filter(|flow| template.check(*flow, &reply) == Judgement::WrongFlow).count();
    assert!(others > 970, "{others}");
}

#[test]
fn questions_take_turns() {
    let oids = [SYS_UP_TIME.to_vec(), vec![1, 3, 6, 1, 2, 1, 1, 5, 0], vec![2, 999]];
    let questions = oids.iter().map(|parts| Question {
        operation: Operation::Get,
        oids: vec![text(parts).parse().unwrap()],
        repetitions: 1,
    });
    let config = SnmpConfig { asker: public(), questions: questions.collect() };
    let mut template = SnmpLoad::new(RUN, config).unwrap().template();
    // Those whose ids are the same ask the same.
    for (seq, turn) in [(0, 0), (1, 1), (2, 2), (3, 0), (SEQ_MASK, SEQ_MASK % 3), (SEQ_MASK + 2, 1)] {
        let request = written(&mut *template, 0, seq);
        let message: v2c::Message<Pdus> = decode(&request).unwrap();
        let Pdus::GetRequest(Get(pdu)) = message.data else { panic!("{message:?}") };
        assert_eq!(pdu.variable_bindings[0].name, oid(&oids[turn as usize]), "{seq}");
        let reply = reply_v2c("public", &request, Fault::None);
        assert_eq!(template.check(0, &reply), Judgement::Valid { seq: seq & SEQ_MASK });
    }
}

#[test]
fn requests_that_no_message_holds_are_refused() {
    let long = vec![vec![1; 128]; 12];
    let oids = long.iter().map(|parts| text(parts).parse().unwrap()).collect();
    let question = |oids| Question { operation: Operation::Get, oids, repetitions: 1 };
    let short = question(vec!["1.3".parse().unwrap()]);
    let config = SnmpConfig { asker: public(), questions: vec![short, question(oids)] };
    let error = SnmpLoad::new(RUN, config).unwrap_err().to_string();
    assert!(error.starts_with("invalid --oids request 2: it is longer than the 1472 bytes"), "{error}");
}

/// Where no agent is, a run in version 3 says so before it begins; version 2c has nothing to prepare.
#[test]
fn an_agent_that_does_not_answer_is_named() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let target = silent.local_addr().unwrap();
    let plan = Plan::new(target);
    let ask = |asker| {
        let question =
            Question { operation: Operation::Get, oids: vec!["1.3".parse().unwrap()], repetitions: 1 };
        let load = SnmpLoad::new(RUN, SnmpConfig { asker, questions: vec![question] }).unwrap();
        load.prepare(&plan, std::time::Duration::from_millis(60))
    };
    assert!(ask(public()).unwrap().is_none());
    let error = ask(Asker::User(levels().remove(0))).err().unwrap().to_string();
    assert!(error.starts_with(&format!("{target} did not answer in SNMP version 3 within 60ms")), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// rasn reads what is written, and its answer is understood.
    #[test]
    fn requests_are_those_of_the_standard(
        operation in prop::sample::select(vec![Operation::Get, Operation::GetNext, Operation::GetBulk]),
        oids in prop::collection::vec(prop::collection::vec(any::<u32>(), 0..12), 1..6),
        community in "[ -~]{0,40}",
        repetitions in 1_u32..1000,
        flow in 0_u32..131_072,
        seq in any::<u64>(),
    ) {
        let oids: Vec<Vec<u32>> = oids.into_iter().map(|tail| [&[1, 3], &tail[..]].concat()).collect();
        let mut template = load(Asker::Community(community.clone()), operation, &oids, repetitions);
        let request = written(&mut *template, flow, seq);
        let message: v2c::Message<Pdus> = decode(&request).unwrap();
        let (found, names) = match &message.data {
            Pdus::GetRequest(get) => (Operation::Get, &get.0.variable_bindings),
            Pdus::GetNextRequest(next) => (Operation::GetNext, &next.0.variable_bindings),
            Pdus::GetBulkRequest(bulk) => {
                prop_assert_eq!(bulk.0.max_repetitions, repetitions);
                (Operation::GetBulk, &bulk.0.variable_bindings)
            }
            other => panic!("{other:?}"),
        };
        prop_assert_eq!(found, operation);
        let expected = oids.iter().map(|parts| VarBind { name: oid(parts), value: VarBindValue::Unspecified });
        prop_assert_eq!(names, &expected.collect::<Vec<_>>());
        prop_assert_eq!(encode(&message).unwrap(), &request[..], "as short as it can be");
        let reply = reply_v2c(&community, &request, Fault::None);
        prop_assert_eq!(template.check(flow, &reply), Judgement::Valid { seq: seq & SEQ_MASK });
    }

    /// Whatever arrives is judged.
    #[test]
    fn any_bytes_are_judged(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for asker in [public(), Asker::User(levels().remove(0))] {
            let template = load(asker, Operation::GetBulk, &[SYS_UP_TIME.to_vec()], 3);
            let valid = matches!(template.check(0, &bytes), Judgement::Valid { .. });
            prop_assert!(!valid);
        }
    }
}
