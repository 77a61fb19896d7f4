use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::plan::Arrivals;

const TIMEOUT: u64 = 1_000_000;

fn pending(inflight: u32) -> Pending {
    let mut plan = Plan::new("192.0.2.1:7".parse().unwrap());
    plan.arrivals = Arrivals::Closed { inflight };
    plan.timeout = Duration::from_nanos(TIMEOUT);
    Pending::new(&plan, u64::BITS)
}

fn first(p: &mut Pending, seq: u64, now: u64) -> Answer {
    match p.answer(seq, now) {
        Seen::First(answer) => answer,
        other => panic!("seq {seq}: {other:?}"),
    }
}

#[test]
fn first_then_duplicate_and_never() {
    let mut p = pending(8);
    p.insert(10, 30);
    let a = first(&mut p, 0, 100);
    assert_eq!(a, Answer { intended: 10, sent: 30, late: false, reordered: false, given_up: false });
    assert_eq!(p.answer(0, 100), Seen::Duplicate);
    assert_eq!(p.answer(1, 100), Seen::Never);
    assert_eq!(p.answer(u64::MAX, 100), Seen::Never);
}

#[test]
fn a_slow_one_survives_many_rounds_of_the_ring() {
    let mut p = pending(2);
    p.insert(0, 0);
    for seq in 1..10_000 {
        assert!(p.room(1, 500));
        p.insert(500, 500);
        first(&mut p, seq, 500);
    }
    assert!(first(&mut p, 0, 900).reordered);
    assert_eq!(p.answer(0, 900), Seen::Duplicate);
    assert_eq!(p.answer(5000, 900), Seen::Duplicate);
}

#[test]
fn late_replies_and_requests_given_up_are_recognised() {
    let mut p = pending(2);
    p.insert(0, 10);
    p.insert(0, 20);
    assert!(!first(&mut p, 0, 10 + TIMEOUT).late);
    assert_eq!(p.give_up(20 + TIMEOUT), 0);
    assert_eq!(p.give_up(21 + TIMEOUT), 1);
    assert_eq!(p.give_up(22 + TIMEOUT), 0);
    let a = first(&mut p, 1, 22 + TIMEOUT);
    assert!(a.late && a.given_up);
}

#[test]
fn a_full_table_holds_back_until_the_timeout() {
    let mut p = pending(1);
    let mut sent = 0;
    while p.room(1, 0) {
        p.insert(0, 0);
        sent += 1;
        assert!(sent < 100, "a table for one in flight has a bound");
    }
    assert!(!p.room(1, TIMEOUT - 1));
    assert!(p.room(1, TIMEOUT));
}

#[test]
fn long_delays_keep_microseconds() {
    let e = Entry::new(0, 7, 7 + 3_000_000_000);
    assert_eq!(e.sent(), 7 + 3_000_000_000);
    assert_eq!(Entry::new(0, 0, u64::MAX >> 1).sent(), u64::from(MICROS - 1) * 1000);
}

#[test]
fn carried_bits_mean_the_newest_request_that_has_them() {
    let mut plan = Plan::new("192.0.2.1:7".parse().unwrap());
    plan.arrivals = Arrivals::Closed { inflight: 4 };
    let mut p = Pending::new(&plan, 8);
    assert_eq!(p.complete(0), 0);
    assert_eq!(p.answer(p.complete(0), 0), Seen::Never);
    for _ in 0..700 {
        p.skip();
    }
    // Sent: 0 to 699, and 699 is 0x2bb.
    assert_eq!((p.complete(0xbb), p.complete(0xba), p.complete(0xbc)), (699, 698, 444));
    assert_eq!(p.complete(0), 512);
}

proptest! {
    /// Against a table that never drops an entry: the same judgement of every reply, in any order.
    #[test]
    fn agrees_with_a_plain_map(ops in prop::collection::vec((0u8..4, 0u64..40), 1..400)) {
        let mut p = pending(16);
        let mut model: HashMap<u64, u64> = HashMap::new();
        let (mut now, mut next, mut highest) = (0, 0u64, 0);
        for (op, back) in ops {
            now += 1;
            if op < 2 {
                if model.len() < 40 && p.room(1, now) {
                    p.insert(now, now);
                    model.insert(next, now);
                    next += 1;
                }
                continue;
            }
            let seq = if op == 2 { next.saturating_sub(back) } else { back };
            let expected = if seq >= next {
                Seen::Never
            } else if let Some(sent) = model.remove(&seq) {
                let a = Answer { intended: sent, sent, late: false, reordered: seq < highest, given_up: false };
                highest = highest.max(seq + 1);
                Seen::First(a)
            } else {
                Seen::Duplicate
            };
            prop_assert_eq!(p.answer(seq, now), expected);
            prop_assert_eq!(p.open(), model.len() as u64);
        }
    }
}
