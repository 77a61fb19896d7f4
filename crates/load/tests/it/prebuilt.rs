//! The kernel engine with requests of protocols, against servers with known faults: NTP, and a protocol with 16-bit
//! identifiers and messages of many lengths, like DNS. Needs root.

use std::borrow::Cow;
use std::time::Duration;

use udpath_load::Error;
use udpath_load::plan::{Arrivals, Plan};
use udpath_load::result::LoadResult;
use udpath_load::template::{
    Id, InKernel, Judgement, Prebuilt, Protocol, ReplyRules, Rule, Template, Verdict, Written,
};
use udpath_protocols::ntp::{Header, NtpLoad, ReferenceId, Timestamp};
use udpath_protocols::sink;

use crate::kernel::{Bed, plan};
use crate::known::all_faults::{compare_late, compare_order, compare_rare, rare_faults};
use crate::known::{Answering, Faults, near};

/// A synchronized server's reply.
pub(crate) fn ntp(request: &[u8]) -> Header {
    let asked = Header::decode(request).expect("a whole request");
    let (receive, transmit) = (Timestamp(0xe000_0000_0000_0000), Timestamp(0xe000_0000_0000_1000));
    let header = Header { version: 4, mode: 4, stratum: 2, precision: -24, ..Header::default() };
    Header { root_delay: 300, root_dispersion: 70, origin: asked.transmit, receive, transmit, ..header }
}

/// Damage where the kernel looks: the origin, and the length.
pub(crate) fn answering(answer: fn(&[u8]) -> Vec<u8>) -> Answering {
    Answering { answer, flips: 24..32, shortest: Header::LEN, longest: Header::LEN }
}

fn ntp_plan(server: std::net::SocketAddr) -> Plan {
    Plan { size: Header::LEN, ..plan(server) }
}

/// Replies that the complete check saw, by the result's note.
fn checked(result: &LoadResult) -> u64 {
    let note = &result.generator.notes[0];
    let (checked, rest) = note.split_once(" of ").unwrap();
    assert!(
        rest.starts_with(&format!("{} replies were checked completely", result.counts.received)),
        "{note}"
    );
    checked.parse().unwrap()
}

#[test]
fn ntp_counts_are_the_truth_over_ipv4_and_ipv6() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let bed = Bed::in_order("prebuilt-ntp");
    for ipv6 in [false, true] {
        let server = bed.answering(ipv6, rare_faults(), answering(|request| ntp(request).encode().to_vec()));
        let result = bed.load(&ntp_plan(server.address), &NtpLoad::new(7)).unwrap();
        let truth = server.stop();
        compare_rare(&result, &truth);
        compare_order(&result, &truth);
        assert_eq!((result.protocol.as_str(), result.engine.as_str()), ("ntp", "kernel"));
        assert!(checked(&result) > 100, "{:?}", result.generator.notes);
        assert!(result.warnings.iter().all(|warning| !warning.contains("checked")), "{:?}", result.warnings);
    }
}

#[test]
fn late_ntp_replies_are_distinguished_from_lost_ones() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let bed = Bed::new("prebuilt-late");
    let faults = Faults { late: 0.01, late_by: Duration::from_millis(300), drop: 0.005, ..Faults::default() };
    let server = bed.answering(false, faults, answering(|request| ntp(request).encode().to_vec()));
    // Longer than anything else on a busy machine takes. After the run, replies are awaited for two timeouts.
    let plan = Plan { timeout: Duration::from_millis(200), ..ntp_plan(server.address) };
    let result = bed.load(&plan, &NtpLoad::new(7)).unwrap();
    compare_late(&result, &server.stop(), plan.timeout);
}

#[test]
fn refusals_are_counted() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let bed = Bed::new("prebuilt-kiss");
    let kiss = |request: &[u8]| {
        let refusal = Header { leap: 3, stratum: 0, reference_id: ReferenceId::RATE, ..ntp(request) };
        refusal.encode().to_vec()
    };
    let server = bed.answering(false, Faults { drop: 0.002, ..Faults::default() }, answering(kiss));
    let plan = Plan { duration: Duration::from_millis(500), ..ntp_plan(server.address) };
    let result = bed.load(&plan, &NtpLoad::new(7)).unwrap();
    let truth = server.stop();
    let counts = &result.counts;
    counts.check().unwrap();
    assert_eq!((counts.ok, counts.corrupt, counts.sent), (0, 0, truth.received));
    assert_eq!((counts.refused, counts.lost), (truth.received - truth.dropped, truth.dropped));
    assert!(result.sent_latency.is_none() && checked(&result) > 0);
}

/// A field that the kernel does not look at: the sample finds it, the counts and a warning say so.
#[test]
fn what_only_a_complete_check_sees_is_reported() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let bed = Bed::new("prebuilt-sample");
    let too_far = |request: &[u8]| Header { root_delay: 16 << 16, ..ntp(request) }.encode().to_vec();
    let server = bed.answering(false, Faults::default(), answering(too_far));
    let plan = Plan { duration: Duration::from_millis(500), ..ntp_plan(server.address) };
    let result = bed.load(&plan, &NtpLoad::new(7)).unwrap();
    server.stop();
    let counts = &result.counts;
    counts.check().unwrap();
    let checked = checked(&result);
    assert!(checked > 0 && counts.ok > 0, "{counts:?}");
    assert_eq!((counts.corrupt, counts.lost), (checked, checked), "every reply that was checked");
    let warning = result.warnings.iter().find(|warning| warning.contains("checked completely")).unwrap();
    assert!(warning.contains(&format!("{checked} were corrupt and 0 refusals")), "{warning}");
    assert!(warning.contains("about 100.00 %"), "{warning}");
}

/// A protocol like DNS in miniature.
///
/// ```text
///   request   0 id 2 | 2 zero 2 | 4 number 2 | 6 the number's low byte, repeated
///   reply     the same with the high bit at 2, another code at 3 if refused, and another length
/// ```
///
/// Requests have up to `SPREAD` bytes more than the shortest.
struct Small<const SPREAD: usize>;

impl<const SPREAD: usize> Small<SPREAD> {
    const REQUESTS: u32 = 1000;
    const HEADER: usize = 6;
    const MAX_REPLY_LEN: usize = 700;
    const RULES: [Rule; 3] = [
        Rule::unless(0, [0, 0, 0xff, 0], [0, 0, 0x80, 0], Verdict::Corrupt),
        Rule::when(0, [0, 0, 0, 0xff], [0, 0, 0, 5], Verdict::Refused),
        Rule::unless(0, [0, 0, 0, 0xff], [0; 4], Verdict::Corrupt),
    ];

    fn request_len(number: u16) -> usize {
        Self::HEADER + usize::from(number) * 7 % SPREAD
    }

    fn reply_len(number: u16) -> usize {
        Self::HEADER + usize::from(number) * 13 % 500
    }

    /// Server: ten of the thousand requests are refused, about as many of each slot as of any other.
    fn answer(request: &[u8]) -> Vec<u8> {
        let [a, b, 0, 0, high, low, body @ ..] = request else { panic!("{request:?}") };
        let number = u16::from_be_bytes([*high, *low]);
        assert_eq!(request.len(), Self::request_len(number));
        assert!(body.iter().all(|byte| byte == low), "{request:?}");
        let mut reply = vec![*a, *b, 0x80, if number % 101 == 7 { 5 } else { 0 }, *high, *low];
        reply.resize(Self::reply_len(number), *low);
        reply
    }

    fn answering() -> Answering {
        Answering { answer: Self::answer, flips: 2..4, shortest: Self::HEADER, longest: Self::MAX_REPLY_LEN }
    }
}

/// The frame of any reply can grow to any request.
type Few = Small<200>;
/// Many requests do not fit the frame of a short reply, if the driver leaves no room behind it.
type Many = Small<1400>;

impl<const SPREAD: usize> Protocol for Small<SPREAD> {
    fn name(&self) -> &'static str {
        "small"
    }

    fn min_size(&self) -> usize {
        Self::HEADER
    }

    fn one_size(&self) -> bool {
        false
    }

    fn in_kernel(&self) -> Option<InKernel> {
        Some(InKernel::Prebuilt(Prebuilt {
            requests: Written::InTurn(Self::REQUESTS),
            id: Id { at: 0, echoed_at: 0, width: 2, bits: 16 },
            reply: ReplyRules {
                min: Self::HEADER,
                max: Self::MAX_REPLY_LEN,
                within: Vec::new(),
                rules: Cow::Borrowed(&Self::RULES),
            },
        }))
    }

    fn template(&self) -> Box<dyn Template> {
        Box::new(Self)
    }
}

impl<const SPREAD: usize> Template for Small<SPREAD> {
    fn name(&self) -> &'static str {
        "small"
    }

    fn min_size(&self) -> usize {
        Self::HEADER
    }

    fn seq_bits(&self) -> u32 {
        16
    }

    fn write(&mut self, _flow: u32, seq: u64, request: &mut [u8]) -> usize {
        let number = seq as u16;
        let [high, low] = number.to_be_bytes();
        let request = &mut request[..Self::request_len(number)];
        request.fill(low);
        // Any own identifier: the engine replaces it.
        let [a, b] = (number ^ 0x5aa5).to_be_bytes();
        request[..Self::HEADER].copy_from_slice(&[a, b, 0, 0, high, low]);
        request.len()
    }

    fn check(&self, _flow: u32, reply: &[u8]) -> Judgement {
        let [a, b, 0x80, code, high, low, body @ ..] = reply else { return Judgement::Corrupt };
        let number = u16::from_be_bytes([*high, *low]);
        let whole = reply.len() == Self::reply_len(number) && body.iter().all(|byte| byte == low);
        if u16::from_be_bytes([*a, *b]) != number ^ 0x5aa5 || !whole {
            return Judgement::Corrupt;
        }
        let seq = u64::from(number);
        if *code == 5 { Judgement::Refused { seq } } else { Judgement::Valid { seq } }
    }
}

/// Requests and replies of many lengths, refusals among them; every fault in its count.
#[test]
fn many_lengths_and_short_identifiers() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let bed = Bed::new("prebuilt-small");
    for ipv6 in [false, true] {
        let faults = Faults { drop: 0.002, duplicate: 0.02, corrupt: 0.003, ..Faults::default() };
        let server = bed.answering(ipv6, faults, Few::answering());
        // A stall of the machine makes replies late, but nothing else.
        let plan = Plan { size: 400, timeout: Duration::from_millis(400), ..plan(server.address) };
        let result = bed.load(&plan, &Few {}).unwrap();
        let truth = server.stop();
        let counts = &result.counts;
        counts.check().unwrap();
        assert!(truth.dropped > 10 && truth.duplicated > 100 && truth.corrupted > 10, "{result:?}");
        assert!(
            result.warnings.iter().all(|w| !w.contains("waited for user space")),
            "{:?}",
            result.warnings
        );
        assert_eq!((counts.sent, counts.wrong_flow), (truth.received, 0));
        assert_eq!(counts.duplicate, truth.duplicated);
        assert_eq!((counts.corrupt, counts.lost), (truth.corrupted, truth.dropped + truth.corrupted));
        // Each request is sent about equally often: one in a hundred is refused.
        let refused = (truth.received - truth.dropped - truth.corrupted) as f64 / 100.0;
        assert!((counts.refused as f64 - refused).abs() < 0.3 * refused, "{} of {refused}", counts.refused);
        assert!(
            checked(&result) > 100 && result.warnings.iter().all(|w| !w.contains("checked")),
            "{result:?}"
        );
    }
}

/// The driver sends what fits, user space the others: all of them, and no fault in any.
#[test]
fn requests_that_do_not_fit_the_frame_are_sent_by_user_space() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let bed = Bed::new("prebuilt-long");
    let server = bed.answering(false, Faults::default(), Many::answering());
    let result = bed.load(&Plan { size: 1406, ..plan(server.address) }, &Many {}).unwrap();
    let truth = server.stop();
    let counts = &result.counts;
    counts.check().unwrap();
    assert_eq!(
        (counts.sent, counts.lost, counts.send_errors),
        (truth.received, 0, 0),
        "{:?}",
        result.warnings
    );
    assert_eq!((counts.corrupt, counts.duplicate), (0, 0));
    assert!(counts.ok > 1000, "{counts:?} {:?}", result.warnings);
}

/// A 16-bit identifier on another flow's port, or a damaged one, is never a valid reply.
#[test]
fn foreign_and_damaged_short_identifiers_are_not_counted_as_replies() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let bed = Bed::new("prebuilt-foreign");
    let faults = Faults { corrupt: 0.003, misdirect: 0.003, ..Faults::default() };
    let server = bed.answering(false, faults, Answering { flips: 0..2, ..Few::answering() });
    let result = bed.load(&Plan { size: 400, ..plan(server.address) }, &Few {}).unwrap();
    let truth = server.stop();
    let counts = &result.counts;
    counts.check().unwrap();
    let wrong = truth.corrupted + truth.misdirected;
    assert!(truth.corrupted > 10 && truth.misdirected > 10, "{truth:?}");
    // Some are old numbers; one in thousands is by chance in flight, and its slot's own reply then a duplicate.
    near("corrupt or duplicate", counts.corrupt + counts.duplicate, wrong);
    near("lost", counts.lost, wrong);
    assert!(counts.corrupt * 2 > wrong, "{} of {wrong}", counts.corrupt);
}

#[test]
fn what_cannot_run_in_the_kernel_is_rejected_with_a_reason() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let bed = Bed::new("prebuilt-cannot");
    let server = bed.answering(false, Faults::default(), Few::answering());
    let good = Plan { size: 400, ..plan(server.address) };
    let sources = vec!["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()];
    let many = Plan { arrivals: Arrivals::Closed { inflight: 257 }, ..good.clone() };
    let sinks = (sink::ENTRY.load)(7, &udpath_protocols::Options::default()).unwrap();
    for (plan, protocol, words) in [
        (&Plan { sources, ..good.clone() }, &Few {} as &dyn Protocol, "one source address"),
        (&many, &Few {}, "at most 256 requests in flight per flow"),
        (&good, &*sinks, "use another engine"),
    ] {
        let error = bed.load(plan, protocol).unwrap_err();
        assert!(matches!(error, Error::Plan(_)) && error.to_string().contains(words), "{error}");
    }
    server.stop();
}
