//! Replies that are late, duplicate, reordered, of others or corrupt.

use super::*;

#[test]
fn a_second_reply_is_a_duplicate() {
    udpath_lab::needs_root!();
    let bench = Bench::new();
    let reply = frame(false, PORTS[0], &bench.payload(0, bench.launch(0)));
    assert_eq!(bench.run(&reply).0, XDP_TX);
    assert_eq!(bench.run(&reply).0, XDP_DROP);
    assert_eq!(
        bench.counters(),
        Counters { ok: 1, duplicate: 1, sent: 1, received: 2, ..Counters::default() }
    );
}

#[test]
fn a_reply_to_a_request_given_up_is_late_once() {
    udpath_lab::needs_root!();
    let bench = Bench::new();
    let seq = bench.launch(0);
    let reply = frame(false, PORTS[0], &bench.payload(0, seq));
    assert!(bench.memory.give_up(0, seq));
    assert!(!bench.memory.give_up(0, seq), "only one side wins");
    assert_eq!(bench.memory.slot(0).sent, 0, "nothing in flight");
    assert_eq!(bench.run(&reply).0, XDP_DROP);
    assert_eq!(bench.run(&reply).0, XDP_DROP);
    assert_eq!(bench.counters(), Counters { late: 1, duplicate: 1, received: 2, ..Counters::default() });
}

#[test]
fn a_reply_after_the_timeout_is_overdue_and_goes_on() {
    udpath_lab::needs_root!();
    let bench = Bench::of(false, 1_000_000);
    let seq = bench.memory.launch(0, monotonic() - 2_000_000);
    assert_eq!(bench.run(&frame(false, PORTS[0], &bench.payload(0, seq))).0, XDP_TX);
    assert_eq!(bench.counters(), Counters { overdue: 1, sent: 1, received: 1, ..Counters::default() });
}

#[test]
fn an_answered_request_cannot_be_given_up() {
    udpath_lab::needs_root!();
    let bench = Bench::new();
    let seq = bench.launch(0);
    assert_eq!(bench.run(&frame(false, PORTS[0], &bench.payload(0, seq))).0, XDP_TX);
    assert!(!bench.memory.give_up(0, seq));
}

#[test]
fn every_flipped_bit_is_found() {
    udpath_lab::needs_root!();
    let bench = Bench::new();
    let seq = bench.launch(0);
    let good = frame(false, PORTS[0], &bench.payload(0, seq));
    for bit in 0..SIZE * 8 {
        let mut bad = good.clone();
        let payload = bad.len() - SIZE;
        bad[payload + bit / 8] ^= 1 << (bit % 8);
        assert_eq!(bench.run(&bad).0, XDP_DROP, "bit {bit}");
    }
    let flips = SIZE as u64 * 8;
    assert_eq!(bench.counters(), Counters { corrupt: flips, received: flips, ..Counters::default() });
    assert_eq!(bench.run(&good).0, XDP_TX, "the intact one is still expected");
}

#[test]
fn numbers_that_were_never_sent_are_corrupt() {
    udpath_lab::needs_root!();
    let bench = Bench::new();
    let seq = bench.launch(0);
    assert_eq!(bench.run(&frame(false, PORTS[0], &bench.payload(0, seq + 1))).0, XDP_DROP);
    assert_eq!(bench.run(&frame(false, PORTS[0], &bench.payload(9999, 0))).0, XDP_DROP);
    assert_eq!(bench.counters().corrupt, 2);
}

#[test]
fn a_shortened_reply_is_corrupt() {
    udpath_lab::needs_root!();
    let bench = Bench::new();
    let payload = bench.payload(0, bench.launch(0));
    assert_eq!(bench.run(&frame(false, PORTS[0], &payload[..SIZE - 1])).0, XDP_DROP);
    assert_eq!(bench.counters().corrupt, 1);
}

#[test]
fn foreign_payloads_on_our_ports_are_corrupt() {
    udpath_lab::needs_root!();
    let bench = Bench::new();
    let payload = bench.payload(0, bench.launch(0));
    let mut earlier_run = payload.clone();
    earlier_run[16] ^= 1;
    for odd in [&[0; SIZE][..], &payload[..10], &earlier_run] {
        assert_eq!(bench.run(&frame(false, PORTS[0], odd)).0, XDP_DROP);
    }
    assert_eq!(bench.counters(), Counters { corrupt: 3, received: 3, ..Counters::default() });
}

#[test]
fn the_last_four_requests_given_up_are_remembered() {
    udpath_lab::needs_root!();
    let bench = Bench::new();
    let reply = |seq| bench.run(&frame(false, PORTS[0], &bench.payload(0, seq))).0;
    let mut lost = Vec::new();
    for round in 0..5 {
        let mut seq = bench.launch(0);
        // Answered requests in between, so that the numbers of the lost ones are not consecutive.
        for _ in 0..[3, 0, 3, 7, 4][round] {
            assert_eq!(reply(seq), XDP_TX);
            seq += 1;
        }
        assert!(bench.memory.give_up(0, seq));
        lost.push(seq);
    }
    for seq in &lost {
        assert_eq!(reply(*seq), XDP_DROP);
    }
    let (ok, late, duplicate) = (17, 4, 1);
    let expected = Counters { ok, sent: ok, late, duplicate, received: ok + 5, ..Counters::default() };
    assert_eq!(Counters { reordered: 0, ..bench.counters() }, expected);
    // It is the oldest that was forgotten: its second reply is a duplicate as well.
    assert_eq!(reply(lost[0]), XDP_DROP);
    assert_eq!(bench.counters().duplicate, 2);
}

#[test]
fn a_reply_on_another_flows_port_is_counted() {
    udpath_lab::needs_root!();
    let bench = Bench::new();
    let payload = bench.payload(0, bench.launch(0));
    assert_eq!(bench.run(&frame(false, PORTS[1], &payload)).0, XDP_DROP);
    assert_eq!(bench.counters(), Counters { wrong_flow: 1, received: 1, ..Counters::default() });
}

#[test]
fn overtaken_replies_are_reordered() {
    udpath_lab::needs_root!();
    let bench = Bench::new();
    let (first, second) = (bench.launch(0), bench.launch(1));
    assert_eq!(bench.run(&frame(false, PORTS[0], &bench.payload(1, second))).0, XDP_TX);
    assert_eq!(bench.run(&frame(false, PORTS[0], &bench.payload(0, first))).0, XDP_TX);
    assert_eq!(
        bench.counters(),
        Counters { ok: 2, reordered: 1, sent: 2, received: 2, ..Counters::default() }
    );
}
