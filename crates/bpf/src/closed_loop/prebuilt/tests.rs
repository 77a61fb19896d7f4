//! The program as a function of one frame, with a protocol of 16-bit identifiers and requests of different lengths, and
//! one of 64-bit identifiers. Loading requires CAP_BPF.
//!
//! ```text
//!   request   0 id 2 | 2 kind 1 | 3 body ...          its length depends on its index
//!   reply     0 id 2 | 2 kind 1 with the high bit | 3 code 1 | 4 anything
//! ```

use std::borrow::Cow;

use super::super::tests::{
    Loaded, PORTS, XDP_DROP, XDP_PASS, XDP_TX, frame, ipv6_udp_residue, monotonic, with_other,
};
use super::super::{Counters, Judged, Requests, Sample};
use super::*;

mod declarations;
mod identifiers;
mod own;
mod samples;

/// The reply bit; then code 0 is valid, 5 a refusal, the others corrupt.
const RULES: [Rule; 4] = [
    Rule::unless(0, [0, 0, 0x80, 0], [0, 0, 0x80, 0], Verdict::Corrupt),
    Rule::when(0, [0, 0, 0, 0xff], [0; 4], Verdict::Valid),
    Rule::when(0, [0, 0, 0, 0xff], [0, 0, 0, 5], Verdict::Refused),
    Rule::when(0, [0; 4], [0; 4], Verdict::Corrupt),
];
const REPLY: ReplyRules = ReplyRules { min: 12, max: 1400, within: Vec::new(), rules: Cow::Borrowed(&RULES) };
const SHORT: Id = Id { at: 0, echoed_at: 0, width: 2, bits: 16 };
const SECOND: u64 = 1_000_000_000;
/// Lengths around the borders of words and blocks, and the longest of a frame.
const LENGTHS: [usize; 12] = [12, 13, 55, 56, 57, 63, 64, 65, 119, 121, 300, 1472];

fn requests(lengths: &[usize]) -> Vec<Vec<u8>> {
    let body = |i: usize, at: usize| (i * 31 + at * 7 + 3) as u8;
    lengths.iter().enumerate().map(|(i, len)| (0..*len).map(|at| body(i, at)).collect()).collect()
}

struct Bench {
    table: RequestTable,
    loaded: Loaded,
}

impl Bench {
    fn of(lengths: &[usize], id: Id, timeout: u64) -> Self {
        Self::over(false, lengths, id, timeout)
    }

    fn over(ipv6: bool, lengths: &[usize], id: Id, timeout: u64) -> Self {
        let table = RequestTable::new(requests(lengths), id, REPLY, (2, 2), 0x0123_4567_89ab_cdef).unwrap();
        let loaded = Loaded::new(ipv6, Requests::Prebuilt(&table), timeout);
        Self { table, loaded }
    }

    fn new() -> Self {
        Self::of(&LENGTHS, SHORT, SECOND)
    }

    /// Request `request` of transaction `seq` of `slot`.
    fn request(&self, slot: usize, seq: u64, request: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.table.write(request, (slot as u32 / 2, slot as u32 % 2), seq, &mut bytes);
        bytes
    }

    /// The payload of a valid reply of `len` bytes to transaction `seq` of `slot`.
    fn reply(&self, slot: usize, seq: u64, len: usize) -> Vec<u8> {
        let (id, request) = (self.table.id, self.request(slot, seq, self.loaded.memory.request(slot)));
        let mut reply = vec![0x55; len];
        reply[2..4].copy_from_slice(&[0x81, 0]);
        reply[id.echoed_at..id.echoed_at + id.width].copy_from_slice(&request[id.at..id.at + id.width]);
        reply
    }

    fn launch(&self, slot: usize) -> u64 {
        self.loaded.launch(slot)
    }

    /// The program's action on a payload for flow 0.
    fn action(&self, payload: &[u8]) -> u32 {
        self.loaded.run(&frame(false, PORTS[0], payload)).0
    }

    fn counters(&self) -> Counters {
        self.loaded.counters()
    }

    /// The first copied replies.
    fn sampled(&self) -> Vec<Sample> {
        let mut seen = Vec::new();
        self.loaded.memory.samples().unwrap().read(1000, |sample, _| seen.push(sample));
        seen
    }
}

fn ones_complement(bytes: &[u8]) -> u16 {
    let sum: u32 = bytes.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

/// Every length of reply to every length of request: longer, shorter and equal frames.
#[test]
fn a_reply_becomes_the_next_request() {
    udpath_lab::needs_root!();
    for ipv6 in [false, true] {
        let bench = Bench::over(ipv6, &LENGTHS, SHORT, SECOND);
        let memory = &bench.loaded.memory;
        let mut seq = bench.launch(1);
        let lengths = [12, 13, 40, 63, 200, 1400];
        for (turn, len) in lengths.into_iter().cycle().take(lengths.len() * LENGTHS.len()).enumerate() {
            let before = memory.request(1);
            // Four slots: each sends every fourth request.
            let next = (before + 4) % LENGTHS.len() as u32;
            let payload = bench.reply(1, seq, len);
            let (action, request) = bench.loaded.run(&frame(ipv6, PORTS[0], &payload));
            seq += 1;
            assert_eq!((action, memory.request(1), memory.slot(1).seq), (XDP_TX, next, seq), "{turn}");
            let expected = bench.request(1, seq, next);
            let headers = if ipv6 { 62 } else { 42 };
            // A frame that changes its length is never shorter than Ethernet's shortest.
            let shortest = if len == expected.len() { 0 } else { 60 };
            assert_eq!(request.len(), (headers + expected.len()).max(shortest), "{turn}");
            assert_eq!(request[headers..headers + expected.len()], expected, "{turn}");
            let udp_len = (8 + expected.len()) as u16;
            assert_eq!(request[headers - 4..headers - 2], udp_len.to_be_bytes());
            if ipv6 {
                assert_eq!(request[18..20], udp_len.to_be_bytes());
                assert_eq!(ipv6_udp_residue(&request), 0, "a valid checksum");
            } else {
                assert_eq!(request[16..18], (20 + udp_len).to_be_bytes());
                assert_eq!(request[40..42], [0, 0], "no checksum");
            }
            assert_eq!(request[headers - 8..headers - 4], {
                let [a, b] = PORTS[0].to_be_bytes();
                let [c, d] = 7777_u16.to_be_bytes();
                [a, b, c, d]
            });
        }
        let all = (lengths.len() * LENGTHS.len()) as u64;
        assert_eq!(bench.counters(), Counters { ok: all, sent: all, received: all, ..Counters::default() });
    }
}

/// An update of the sum keeps a right checksum right, whichever way the length changes.
#[test]
fn the_ipv4_headers_checksum_stays_right() {
    udpath_lab::needs_root!();
    let bench = Bench::new();
    for len in [12, 60, 700] {
        let seq = bench.launch(0);
        let mut reply = frame(false, PORTS[0], &bench.reply(0, seq, len));
        let sum = ones_complement(&reply[14..34]);
        reply[24..26].copy_from_slice(&sum.to_be_bytes());
        let (action, request) = bench.loaded.run(&reply);
        assert_eq!((action, ones_complement(&request[14..34])), (XDP_TX, 0), "{len}");
    }
}

/// Together, the four slots send every one of 3, 4, 5, 6 or 8 requests equally often.
#[test]
fn slots_share_the_requests_evenly() {
    udpath_lab::needs_root!();
    for count in [1, 3, 4, 5, 6, 8] {
        let bench = Bench::of(&vec![20; count], SHORT, SECOND);
        let mut sent = vec![0; count];
        for slot in 0..4 {
            let first = bench.launch(slot);
            for seq in first..first + 60 {
                sent[bench.loaded.memory.request(slot) as usize] += 1;
                let reply = frame(false, PORTS[slot / 2], &bench.reply(slot, seq, 20));
                assert_eq!(bench.loaded.run(&reply).0, XDP_TX);
            }
        }
        assert_eq!(sent, vec![240 / count; count]);
    }
}

#[test]
fn every_width_and_offset_of_an_identifier() {
    udpath_lab::needs_root!();
    let ids = [(0, 4, 2, 16), (4, 0, 4, 30), (5, 1, 4, 32), (8, 4, 8, 64), (3, 4, 8, 57), (9, 7, 2, 13)];
    for (at, echoed_at, width, bits) in ids {
        let id = Id { at, echoed_at, width, bits };
        for ipv6 in [false, true] {
            // Without rules: the identifier may lie anywhere.
            let reply = ReplyRules { min: 12, max: 100, within: Vec::new(), rules: Cow::Borrowed(&[]) };
            let table = RequestTable::new(requests(&[41, 60]), id, reply, (2, 2), u64::MAX / 3).unwrap();
            let loaded = Loaded::new(ipv6, Requests::Prebuilt(&table), SECOND);
            let bench = Bench { table, loaded };
            for slot in 0..4 {
                let seq = bench.launch(slot);
                let reply = frame(ipv6, PORTS[slot / 2], &bench.reply(slot, seq, 50));
                let (action, request) = bench.loaded.run(&reply);
                assert_eq!(action, XDP_TX, "{id:?} {ipv6} {slot}");
                let expected = bench.request(slot, seq + 1, bench.loaded.memory.request(slot));
                assert!(request.ends_with(&expected), "{id:?} {ipv6} {slot}");
                assert!(!ipv6 || ipv6_udp_residue(&request) == 0, "{id:?} {slot}");
            }
        }
    }
}

#[test]
fn lengths_and_fields_are_checked() {
    udpath_lab::needs_root!();
    let bench = Bench::new();
    let seq = bench.launch(0);
    let good = bench.reply(0, seq, 40);
    let change = |at: usize, value: u8| {
        let mut other = good.clone();
        other[at] = value;
        other
    };
    let bad = [good[..11].to_vec(), vec![], [&good[..], &[0; 1361]].concat(), change(2, 0x7f), change(3, 1)];
    for payload in &bad {
        assert_eq!(bench.action(payload), XDP_DROP, "{payload:?}");
    }
    // The header announces more than the frame has.
    let mut cut = frame(false, PORTS[0], &good);
    cut.truncate(cut.len() - 1);
    assert_eq!(bench.loaded.run(&cut).0, XDP_DROP);
    let all = bad.len() as u64 + 1;
    assert_eq!(bench.counters(), Counters { corrupt: all, received: all, ..Counters::default() });
    assert_eq!(bench.action(&change(2, 0xff)), XDP_TX, "only the rules' bits");
}

#[test]
fn refusals_are_counted_and_the_loop_goes_on() {
    udpath_lab::needs_root!();
    let bench = Bench::new();
    let refusal = |seq| {
        let mut reply = bench.reply(0, seq, 40);
        reply[3] = 5;
        reply
    };
    let seq = bench.launch(0);
    assert_eq!(bench.action(&refusal(seq)), XDP_TX);
    assert_eq!(bench.counters(), Counters { refused: 1, sent: 1, received: 1, ..Counters::default() });
    assert!(bench.loaded.memory.give_up(0, seq + 1));
    assert_eq!(bench.action(&refusal(seq + 1)), XDP_DROP);
    let expected = Counters { refused: 1, refused_late: 1, sent: 1, received: 2, ..Counters::default() };
    assert_eq!(bench.counters(), expected);
    let mut latency = vec![0; crate::BUCKETS];
    bench.loaded.memory.add_latency(&mut latency);
    assert_eq!(latency.iter().sum::<u64>(), 0, "a refusal has no latency");
}

#[test]
fn stale_replies_are_late_duplicate_or_corrupt() {
    udpath_lab::needs_root!();
    let bench = Bench::new();
    let seq = bench.launch(0);
    let first = bench.reply(0, seq, 40);
    assert_eq!(bench.action(&first), XDP_TX);
    assert_eq!(bench.action(&first), XDP_DROP);
    assert_eq!(bench.counters().duplicate, 1);

    // Given up, and found after any number of further requests.
    assert!(bench.loaded.memory.give_up(0, seq + 1));
    let late = bench.reply(0, seq + 1, 40);
    let next = bench.launch(0);
    assert_eq!(next, seq + 2);
    for seq in next..next + 300 {
        assert_eq!(bench.action(&bench.reply(0, seq, 40)), XDP_TX);
    }
    assert_eq!(bench.action(&late), XDP_DROP);
    assert_eq!((bench.counters().late, bench.counters().corrupt), (1, 0));
    // Not in flight for so long that it may as well be damaged; and numbers that were never sent.
    for seq in [seq, next + 301, next + 5000] {
        assert_eq!(bench.action(&bench.reply(0, seq, 40)), XDP_DROP);
    }
    let mut expected = Counters { ok: 301, sent: 301, received: 306, ..Counters::default() };
    (expected.late, expected.reordered, expected.duplicate, expected.corrupt) = (1, 1, 1, 3);
    assert_eq!(bench.counters(), expected);
}

#[test]
fn a_reply_after_the_timeout_is_overdue() {
    udpath_lab::needs_root!();
    let bench = Bench::of(&[40], SHORT, 1_000_000);
    let seq = bench.loaded.memory.launch(0, monotonic() - 2_000_000);
    assert_eq!(bench.action(&bench.reply(0, seq, 40)), XDP_TX);
    assert_eq!(bench.counters(), Counters { overdue: 1, sent: 1, received: 1, ..Counters::default() });
    assert_eq!(bench.sampled()[0].judged, Judged::Overdue);
}

/// Of a short identifier, a damaged one may be an old number of some slot, but never one in flight.
#[test]
fn a_flipped_bit_of_a_short_identifier_never_passes() {
    udpath_lab::needs_root!();
    let bench = Bench::new();
    const BEFORE: u64 = 1000;
    for slot in 0..2 {
        let first = bench.launch(slot);
        for seq in first..first + BEFORE {
            assert_eq!(bench.action(&bench.reply(slot, seq, 40)), XDP_TX);
        }
    }
    let good = bench.reply(0, BEFORE, 40);
    for bit in 0..16 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(bench.action(&bad), XDP_DROP, "bit {bit}");
    }
    let Counters { corrupt, duplicate, received, .. } = bench.counters();
    assert_eq!((corrupt + duplicate, received), (16, 16 + 2 * BEFORE));
    assert!(corrupt >= 12, "{corrupt}");
    assert_eq!(bench.action(&good), XDP_TX);
}

const LONG: Id = Id { at: 8, echoed_at: 4, width: 8, bits: 64 };

#[test]
fn every_flipped_bit_of_a_long_identifier_is_found() {
    udpath_lab::needs_root!();
    let bench = Bench::of(&[40], LONG, SECOND);
    for slot in 0..4 {
        bench.launch(slot);
    }
    let good = bench.reply(1, 0, 40);
    for bit in 0..64 {
        let mut bad = good.clone();
        bad[4 + bit / 8] ^= 1 << (bit % 8);
        assert_eq!(bench.action(&bad), XDP_DROP, "bit {bit}");
    }
    assert_eq!(bench.counters(), Counters { corrupt: 64, received: 64, ..Counters::default() });
}

#[test]
fn a_reply_on_another_flows_port_is_counted() {
    udpath_lab::needs_root!();
    let long = Bench::of(&[40], LONG, SECOND);
    let reply = long.reply(0, long.launch(0), 40);
    assert_eq!(long.loaded.run(&frame(false, PORTS[1], &reply)).0, XDP_DROP);
    assert_eq!(long.counters(), Counters { wrong_flow: 1, received: 1, ..Counters::default() });
    assert_eq!(long.loaded.memory.slot(0).seq, 0, "still in flight");

    // A short identifier does not name its flow: the reply seems to be one of the other flow's own.
    let short = Bench::new();
    let reply = short.reply(0, short.launch(0), 40);
    assert_eq!(short.loaded.run(&frame(false, PORTS[1], &reply)).0, XDP_DROP, "nothing is in flight there");
    assert_eq!(short.counters(), Counters { corrupt: 1, received: 1, ..Counters::default() });
}

#[test]
fn a_stopped_loop_counts_and_sends_nothing() {
    udpath_lab::needs_root!();
    let bench = Bench::new();
    let seq = bench.launch(0);
    bench.loaded.memory.set_running(false);
    assert_eq!(bench.action(&bench.reply(0, seq, 40)), XDP_DROP);
    assert_eq!(bench.counters(), Counters { ok: 1, received: 1, ..Counters::default() });
    assert_eq!(bench.loaded.memory.slot(0).sent, 0);
}

#[test]
fn everything_else_goes_to_the_kernel() {
    udpath_lab::needs_root!();
    let bench = Bench::new();
    let payload = bench.reply(0, bench.launch(0), 40);
    for (what, other) in [
        ("another program's flow", frame(false, PORTS[1] + 1, &payload)),
        ("a short frame", frame(false, PORTS[0], &payload)[..30].to_vec()),
    ] {
        let (action, after) = bench.loaded.run(&other);
        assert_eq!((action, &after), (XDP_PASS, &other), "{what}");
    }
    assert_eq!(bench.counters(), Counters::default());
}

#[test]
fn only_the_server_answers_and_only_to_the_flows_own_address() {
    udpath_lab::needs_root!();
    for ipv6 in [false, true] {
        let bench = Bench::over(ipv6, &LENGTHS, SHORT, SECOND);
        let reply = frame(ipv6, PORTS[0], &bench.reply(0, bench.launch(0), 40));
        for (at, action) in [(0, XDP_PASS), (1, XDP_PASS), (2, XDP_DROP)] {
            assert_eq!(bench.loaded.run(&with_other(ipv6, at, reply.clone())).0, action);
        }
        let expected = Counters { elsewhere: 2, wrong_flow: 1, received: 1, ..Counters::default() };
        assert_eq!(bench.counters(), expected);
        assert_eq!(bench.loaded.run(&reply).0, XDP_TX, "the request is still in flight");
    }
}
