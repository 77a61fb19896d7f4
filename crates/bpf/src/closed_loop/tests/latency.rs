//! Latency buckets, and when the program reads the clock.

use super::*;

/// The C program's `bucket()`, computed differently.
fn bucket_of(ns: u64) -> usize {
    if ns < SUB as u64 {
        return ns as usize;
    }
    let power = (64 - (ns >> 7).leading_zeros()) as usize;
    (power * SUB + ((ns >> (power - 1)) as usize & (SUB - 1))).min(BUCKETS - 1)
}

#[test]
fn every_bucket_ends_where_the_next_begins() {
    for bucket in 0..BUCKETS - 1 {
        let top = bucket_value(bucket);
        assert_eq!(bucket_of(top), bucket, "{top}");
        assert_eq!(bucket_of(top + 1), bucket + 1, "{top}");
    }
}

#[test]
fn buckets_are_narrower_than_one_percent() {
    for bucket in SUB..BUCKETS {
        let (low, high) = (bucket_value(bucket - 1) + 1, bucket_value(bucket));
        assert!((high - low) as f64 / low as f64 <= 0.008, "{low}..={high}");
    }
}

/// The program's own bucket, read back after a reply of known age.
#[test]
fn the_program_puts_latencies_into_their_bucket() {
    udpath_lab::needs_root!();
    for age in [50_u64, 1_000, 123_456, 5_000_000, 2_000_000_000, 40_000_000_000] {
        let bench = Bench::new();
        let before = monotonic();
        let seq = bench.memory.launch(0, before.saturating_sub(age));
        let reply = frame(false, PORTS[0], &bench.payload(0, seq));
        assert_eq!(bench.run(&reply).0, XDP_TX);
        let most = age + (monotonic() - before);
        let mut latency = vec![0; BUCKETS];
        bench.memory.add_latency(&mut latency);
        let bucket = latency.iter().position(|n| *n == 1).expect("one latency recorded");
        assert!((bucket_of(age)..=bucket_of(most)).contains(&bucket), "{age} ns in bucket {bucket}");
    }
}

/// Send time of the request that followed the reply of `slot`.
fn next_sent(bench: &Bench, slot: usize, flow: usize) -> u64 {
    let seq = bench.launch(slot);
    let reply = frame(false, PORTS[flow], &bench.payload(slot as u32, seq));
    assert_eq!(bench.run(&reply).0, XDP_TX);
    bench.memory.slot(slot).sent
}

/// Pins to one CPU, where replies share a clock reading.
fn stay_on_this_cpu() {
    let mut only = rustix::thread::CpuSet::new();
    only.set(rustix::thread::sched_getcpu());
    rustix::thread::sched_setaffinity(None, &only).expect("this thread's own CPU");
}

#[test]
fn without_the_poll_tracepoint_every_reply_reads_the_clock() {
    udpath_lab::needs_root!();
    stay_on_this_cpu();
    let bench = Bench::new();
    let sent = [0, 1, 2].map(|slot| next_sent(&bench, slot, slot / 2));
    assert!(sent.is_sorted_by(|a, b| a < b), "{sent:?}");
}

/// Send times of the requests that follow the replies of three slots, of one poll.
fn sent_in_one_poll(bench: &Bench) -> [u64; 3] {
    // All of them sent before the clock is read.
    let seqs = [0, 1, 2].map(|slot| bench.launch(slot));
    bench.memory.share_clock(true);
    [0, 1, 2].map(|slot: usize| {
        let reply = frame(false, PORTS[slot / 2], &bench.payload(slot as u32, seqs[slot]));
        assert_eq!(bench.run(&reply).0, XDP_TX);
        bench.memory.slot(slot).sent
    })
}

#[test]
fn two_replies_of_a_poll_share_the_clock() {
    udpath_lab::needs_root!();
    stay_on_this_cpu();
    let sent = sent_in_one_poll(&Bench::new());
    assert_eq!(sent[0] + 1, sent[1]);
    assert!(sent[1] + 1 < sent[2], "{sent:?}");
}

#[test]
fn requests_that_share_the_clock_keep_their_order() {
    udpath_lab::needs_root!();
    stay_on_this_cpu();
    let bench = Bench::new();
    sent_in_one_poll(&bench);
    for slot in [1, 0] {
        let reply = frame(false, PORTS[0], &bench.payload(slot, bench.memory.slot(slot as usize).seq));
        assert_eq!(bench.run(&reply).0, XDP_TX);
    }
    assert_eq!(bench.counters().reordered, 1);
}

#[test]
fn a_reply_to_a_newer_request_reads_the_clock_again() {
    udpath_lab::needs_root!();
    stay_on_this_cpu();
    let bench = Bench::new();
    bench.memory.share_clock(true);
    let sent = [0, 1].map(|slot| next_sent(&bench, slot, 0));
    assert!(sent[0] < sent[1], "{sent:?}");
    assert_eq!(bench.counters(), Counters { ok: 2, sent: 2, received: 2, ..Counters::default() });
}
