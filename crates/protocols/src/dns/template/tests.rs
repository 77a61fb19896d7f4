use std::collections::HashSet;

use domain::base::iana::Rcode;
use domain::base::message_builder::OptBuilder;
use domain::base::{Message, MessageBuilder, Rtype, StaticCompressor};
use domain::rdata::A;
use proptest::prelude::*;

use super::*;

const RUN: u64 = 0x0123_4567_89ab_cdef;

/// A load of the queries that these options describe.
fn load(given: &[(&str, &str)]) -> DnsLoad {
    let mut options = Options::default();
    for (name, value) in given {
        let spec = OPTIONS.iter().find(|spec| spec.name == *name).unwrap();
        options.push(spec, value);
    }
    DnsLoad::from_options(RUN, &options).unwrap()
}

fn request(load: &DnsLoad, flow: u32, seq: u64) -> Vec<u8> {
    let mut bytes = vec![0xff; MAX_QUERY];
    let len = load.template().write(flow, seq, &mut bytes);
    bytes.truncate(len);
    bytes
}

/// A server's answer, written by `domain`: an address, compressed.
fn answer(request: &[u8], rcode: Rcode) -> Vec<u8> {
    let request = Message::from_octets(request).unwrap();
    let name = request.sole_question().unwrap().into_qname();
    let builder = MessageBuilder::from_target(StaticCompressor::new(Vec::new())).unwrap();
    let mut builder = builder.start_answer(&request, rcode).unwrap();
    if rcode == Rcode::NOERROR {
        builder.push((&name, 3600, A::from_octets(192, 0, 2, 1))).unwrap();
    }
    let mut builder = builder.additional();
    if request.opt().is_some() {
        let size = |opt: &mut OptBuilder<'_, _>| {
            opt.set_udp_payload_size(1232);
            Ok(())
        };
        builder.opt(size).unwrap();
    }
    builder.finish().into_target()
}

#[test]
fn domain_reads_our_queries_as_they_were_meant() {
    let load = load(&[
        ("name", "wWw{}.Example.org"),
        ("names", "100"),
        ("types", "A:1,MX:1"),
        ("edns", "50"),
        ("bufsize", "4000"),
        ("dnssec", ""),
    ]);
    let (mut with_edns, mut names, mut types) = (0, HashSet::new(), HashSet::new());
    for seq in 0..10_000 {
        let bytes = request(&load, 0, seq);
        let message = Message::from_octets(&bytes).unwrap();
        let header = message.header();
        assert!(!header.qr() && header.rd() && !header.tc() && !header.ad() && !header.cd());
        let question = message.sole_question().unwrap();
        names.insert(question.qname().to_string());
        types.insert(question.qtype());
        let records = message.header_counts();
        assert_eq!((records.ancount(), records.nscount()), (0, 0));
        if let Some(opt) = message.opt() {
            with_edns += 1;
            assert_eq!((opt.udp_payload_size(), opt.version(), opt.dnssec_ok()), (4000, 0, true));
        }
        assert_eq!(usize::from(records.arcount()), usize::from(message.opt().is_some()));
    }
    assert_eq!(names, (0..100).map(|number| format!("wWw{number}.Example.org")).collect());
    assert_eq!(types, HashSet::from([Rtype::A, Rtype::MX]));
    assert!((4700..5300).contains(&with_edns), "{with_edns}");
}

#[test]
fn replies_written_by_domain_name_their_query() {
    for verify in [&[][..], &[("verify", "")]] {
        for edns in ["0", "100"] {
            let given = [&[("name", "h{}.example.org"), ("names", "5000"), ("edns", edns)], verify].concat();
            let load = load(&given);
            let template = load.template();
            for (flow, seq) in [(0, 0), (0, 65_535), (7, 4), (131_071, 70_000)] {
                let sent = request(&load, flow, seq);
                let seq = seq & 0xffff;
                for (rcode, judgement) in [
                    (Rcode::NOERROR, Judgement::Valid { seq }),
                    (Rcode::NXDOMAIN, Judgement::Valid { seq }),
                    (Rcode::SERVFAIL, Judgement::Refused { seq }),
                    (Rcode::REFUSED, Judgement::Refused { seq }),
                    (Rcode::NOTIMP, Judgement::Refused { seq }),
                    (Rcode::FORMERR, Judgement::Refused { seq }),
                ] {
                    let reply = answer(&sent, rcode);
                    assert_eq!(template.check(flow, &reply), judgement, "{flow} {rcode}");
                    // Elsewhere its identifier is that of another query.
                    assert_eq!(template.check(flow ^ 1, &reply), Judgement::Corrupt, "{flow} {rcode}");
                }
                assert_eq!(template.check(flow, &sent), Judgement::Corrupt, "the query itself");
            }
        }
    }
}

/// Flows continue behind each other, so that together they send each query equally often.
#[test]
fn truncated_replies_are_counted_apart_and_beside_as_many_lost_ones_are_a_limit() {
    let load = load(&[]);
    let (template, request) = (load.template(), request(&load, 0, 0));
    let mut reply = answer(&request, Rcode::NOERROR);
    template.check(0, &reply);
    reply[2] |= 0x02;
    assert_eq!(template.check(0, &reply), Judgement::Valid { seq: 0 });
    let count = |name: &str, count| Kind::new(name, count);
    assert_eq!(template.kinds(), [count("NOERROR", 1), count("truncated", 1)]);
    template.check(0, &answer(&request, Rcode::SERVFAIL));
    let refused = Kind { refused: 1, ..count("SERVFAIL", 1) };
    assert_eq!(template.kinds(), [count("NOERROR", 1), refused, count("truncated", 1)]);

    let counts = |received, lost| Counts { received, lost, ..Counts::default() };
    let kinds = [count("NOERROR", 200), count("truncated", 800)];
    let hint = limited(&kinds, &counts(1_000, 790)).unwrap();
    assert!(hint.starts_with("about 800 replies were truncated and 790 requests had none"), "{hint}");
    // Of 100,000 replies, the kernel engine has read a hundredth.
    assert!(limited(&kinds, &counts(100_000, 81_000)).is_some());
    // Truncated for their size; lost on the way; neither.
    assert_eq!(limited(&kinds, &counts(1_000, 0)), None);
    assert_eq!(limited(&kinds, &counts(1_000, 10_000)), None);
    assert_eq!(limited(&kinds[..1], &counts(1_000, 1_000)), None);
}

#[test]
fn flows_cover_all_queries() {
    let load = load(&[("name", "{}"), ("names", "100000")]);
    let question = |flow, seq| request(&load, flow, seq)[queries::HEADER..].to_vec();
    let first: HashSet<_> = (0..65_536).map(|seq| question(0, seq)).collect();
    assert_eq!(first.len(), 65_536);
    let second: HashSet<_> = (0..65_536).map(|seq| question(1, seq)).collect();
    assert_eq!(first.union(&second).count(), 100_000);
    // What a reply carries of the number decides.
    assert_eq!(request(&load, 0, 65_536), request(&load, 0, 0));
}

#[test]
fn identifiers_are_those_of_the_run() {
    let load = load(&[("name", "{}"), ("names", "1000")]);
    let ids: HashSet<_> = (0..65_536).map(|seq| request(&load, 3, seq)[..2].to_vec()).collect();
    assert_eq!(ids.len(), 65_536);
    let other = DnsLoad { key: scramble(RUN + 1), ..load.clone() };
    let valid = |seq: &u64| {
        let reply = answer(&request(&load, 3, *seq), Rcode::NOERROR);
        matches!(other.template().check(3, &reply), Judgement::Valid { .. })
    };
    // By chance one of a thousand names the query that it answers.
    assert!((0..2000).filter(valid).count() < 20);
}

#[test]
fn sizes_are_those_of_the_queries() {
    let load = load(&[("name", "{}"), ("names", "11"), ("edns", "100")]);
    // Ten names of one digit, and `10`.
    let one = 12 + 3 + 4 + 11;
    assert_eq!((load.min_size(), load.max_size()), (one + 1, MAX_QUERY));
    assert_eq!(load.lengths(), Some(Lengths { longest: one + 1, mean: one }));
    assert_eq!((load.one_size(), load.ids(), load.template().seq_bits()), (false, 65_536, 16));
    let template = load.template();
    assert_eq!(template.max_reply(one), 1232);
    // A reply longer than its query allows.
    let mut reply = answer(&request(&load, 0, 0), Rcode::NOERROR);
    reply.resize(1232, 0);
    assert_eq!(template.check(0, &reply), Judgement::Valid { seq: 0 });
    reply.push(0);
    assert_eq!(template.check(0, &reply), Judgement::Corrupt);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_reply_is_judged(flow in 0..131_072_u32, bytes in prop::collection::vec(any::<u8>(), 0..1500)) {
        for verify in [&[][..], &[("verify", "")]] {
            let judged = load(verify).template().check(flow, &bytes);
            prop_assert!(!matches!(judged, Judgement::WrongFlow));
        }
    }

    /// A flipped bit of the identifier makes it that of another query; of the flags, it is not the answer any more,
    /// unless it is one of the server's: AA, TC, RA, AD or CD; in the question or a count of questions, it is damage.
    #[test]
    fn flipped_bits_are_detected(flow in 0..131_072_u32, seq in 0..65_536_u64, at in 0..6_usize, bit in 0..8_u8) {
        let load = load(&[("name", "h{}.example.org"), ("names", "3000")]);
        let mut reply = answer(&request(&load, flow, seq), Rcode::NOERROR);
        reply[at] ^= 1 << bit;
        let free = (at == 2 && [1, 2].contains(&bit)) || (at == 3 && [4, 5, 7].contains(&bit));
        let judged = load.template().check(flow, &reply);
        prop_assert_eq!(judged == Judgement::Valid { seq }, free, "byte {}, bit {}: {:?}", at, bit, judged);
    }
}
