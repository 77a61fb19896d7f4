//! The kernel engine with requests that must not be changed, against a server that checks them. Needs root.
//!
//! ```text
//!   request   0 id 1 | 1 flow 4 | 5 seq 8 | 13 sum of all these 4
//!   reply     0 id 1 | 1 80     | 2 flow 4 | 6 seq 8 | 14 sum of the request 4
//! ```

use std::time::Duration;

use udpath_load::Error;
use udpath_load::plan::{Arrivals, Plan};
use udpath_load::template::{
    Id, InKernel, Judgement, Prebuilt, Protocol, ReplyRules, Rule, Signed, Template, Verdict, Written,
};

use crate::kernel::{Bed, plan};
use crate::known::{Answering, Faults, near};

const REQUEST: usize = 17;
const REPLY: usize = 18;
const RULES: [Rule; 1] = [Rule::unless(0, [0, 0xff, 0, 0], [0, 0x80, 0, 0], Verdict::Corrupt)];

/// A protocol like RADIUS in miniature.
#[derive(Clone, Copy)]
struct Small(Signed);

/// Sums 17 bits apart, so that no two bytes can be exchanged.
fn sum(bytes: &[u8]) -> [u8; 4] {
    let sum =
        bytes.iter().fold(1_u32, |sum, byte| sum.wrapping_mul(0x0002_0001).wrapping_add(u32::from(*byte)));
    sum.to_be_bytes()
}

fn request(flow: u32, seq: u64) -> Vec<u8> {
    let mut bytes = vec![seq as u8];
    bytes.extend(flow.to_be_bytes());
    bytes.extend(seq.to_be_bytes());
    bytes.extend(sum(&bytes));
    bytes
}

fn reply(request: &[u8]) -> Vec<u8> {
    let (signed, signature) = request.split_at(REQUEST - 4);
    assert_eq!((request.len(), signature), (REQUEST, &sum(signed)[..]), "a request was changed: {request:?}");
    [&[signed[0], 0x80], &signed[1..], signature].concat()
}

fn answering() -> Answering {
    // Damage where only the complete check looks would be counted by the sample.
    Answering { answer: reply, flips: 1..2, shortest: REPLY, longest: REPLY }
}

impl Protocol for Small {
    fn name(&self) -> &'static str {
        "small"
    }

    fn min_size(&self) -> usize {
        REQUEST
    }

    fn ids(&self) -> u64 {
        256
    }

    fn in_kernel(&self) -> Option<InKernel> {
        Some(InKernel::Prebuilt(Prebuilt {
            requests: Written::Signed(self.0),
            id: Id { at: 0, echoed_at: 0, width: 1, bits: 8 },
            reply: ReplyRules { min: REPLY, max: REPLY, within: Vec::new(), rules: (&RULES[..]).into() },
        }))
    }

    fn template(&self) -> Box<dyn Template> {
        Box::new(*self)
    }
}

impl Template for Small {
    fn name(&self) -> &'static str {
        "small"
    }

    fn min_size(&self) -> usize {
        REQUEST
    }

    fn write(&mut self, flow: u32, seq: u64, to: &mut [u8]) -> usize {
        to[..REQUEST].copy_from_slice(&request(flow, seq));
        REQUEST
    }

    fn check(&self, flow: u32, bytes: &[u8]) -> Judgement {
        let Some((seq, of)) = bytes.get(6..14).zip(bytes.get(2..6)) else { return Judgement::Corrupt };
        let (seq, of) =
            (u64::from_be_bytes(seq.try_into().unwrap()), u32::from_be_bytes(of.try_into().unwrap()));
        if reply(&request(of, seq)) != bytes {
            return Judgement::Corrupt;
        }
        if of == flow { Judgement::Valid { seq } } else { Judgement::WrongFlow }
    }
}

const FORGOTTEN: Signed = Signed { per_id: 2, lifetime: None, remembered: None };

#[test]
fn signed_requests_arrive_unchanged_and_every_fault_is_counted() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let bed = Bed::new("signed");
    for ipv6 in [false, true] {
        let faults = Faults { drop: 0.002, duplicate: 0.01, corrupt: 0.003, ..Faults::default() };
        let server = bed.answering(ipv6, faults, answering());
        let plan = Plan { size: REQUEST, timeout: Duration::from_millis(400), ..plan(server.address) };
        let result = bed.load(&plan, &Small(FORGOTTEN)).unwrap();
        let (truth, counts) = (server.stop(), &result.counts);
        counts.check().unwrap();
        assert!(truth.dropped > 10 && truth.duplicated > 50 && truth.corrupted > 10, "{truth:?}");
        assert_eq!((counts.sent, counts.wrong_flow, counts.refused), (truth.received, 0, 0));
        near("duplicate", counts.duplicate, truth.duplicated);
        near("corrupt", counts.corrupt, truth.corrupted);
        near("lost", counts.lost, truth.dropped + truth.corrupted);
        // The sample has found none of them wrong.
        assert!(result.warnings.iter().all(|warning| !warning.contains("checked")), "{:?}", result.warnings);
        assert!(result.warnings.iter().all(|warning| !warning.contains("again")), "{:?}", result.warnings);
    }
}

#[test]
fn requests_sent_again_before_they_are_forgotten_are_reported() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let bed = Bed::new("signed-again");
    let server = bed.answering(false, Faults::default(), answering());
    let remembered = Signed { remembered: Some(Duration::from_secs(3600)), ..FORGOTTEN };
    let plan = Plan { size: REQUEST, duration: Duration::from_millis(500), ..plan(server.address) };
    let result = bed.load(&plan, &Small(remembered)).unwrap();
    server.stop();
    let warning = result.warnings.iter().find(|warning| warning.contains("again")).expect("a warning");
    assert!(warning.contains("that keeps its replies for 3600 s answers from there"), "{warning}");
}

#[test]
fn runs_that_signed_requests_cannot_carry_are_rejected() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let bed = Bed::new("signed-cannot");
    let server = bed.answering(false, Faults::default(), answering());
    let good = Plan { size: REQUEST, ..plan(server.address) };
    let long = Plan { duration: Duration::from_secs(60), ..good.clone() };
    let expiring = Signed { lifetime: Some(Duration::from_secs(60)), ..FORGOTTEN };
    let many = Plan { arrivals: Arrivals::Closed { inflight: 33 }, ..good.clone() };
    let flows = Plan { flows: 5000, ..good };
    for (plan, signed, words) in [
        (&long, expiring, "a time that servers accept for 60 s: shorten --duration"),
        (&many, FORGOTTEN, "at most 32 requests in flight per flow"),
        (&flows, FORGOTTEN, "at most 4096 requests in flight over all flows"),
    ] {
        let error = bed.load(plan, &Small(signed)).unwrap_err();
        assert!(matches!(error, Error::Plan(_)) && error.to_string().contains(words), "{error}");
    }
    server.stop();
}
