//! The whole path through a worker: which requests are answered, what is dropped and why, how frames are spread
//! over workers and returned.

use std::sync::Arc;
use std::time::{Duration, Instant};

use udpath_stack::counters::{DropReason, Snapshot};
use udpath_stack::handler::{Datagram, Handler, Outcome};
use udpath_stack::port::Port;
use udpath_stack::wire::{Packet, Refusal, Tags, vlan};
use udpath_stack::worker::Worker;

use super::support::*;

#[test]
fn requests_are_answered_the_way_they_came() {
    let (mut far, mut workers) = workers(1, 64, |_| echo, || None);
    let tag = |id| vlan::Control(id);
    for tags in [Tags::NONE, Tags::one(tag(7)), Tags::two(tag(100), tag(7))] {
        for to in SERVER {
            for payload in [&b""[..], b"x", &[7; 18], &[9; 1400]] {
                let request = request(tags, 5000, to, payload);
                send(&mut far, std::slice::from_ref(&request));
                run_until_idle(&mut workers);
                let replies = receive(&mut far);
                assert_eq!(replies.len(), 1, "{to} {} bytes", payload.len());
                let (asked, got) = (Packet::parse(&request).unwrap(), Packet::parse(&replies[0]).unwrap());
                assert_eq!((got.source(), got.destination()), (asked.destination(), asked.source()));
                assert_eq!(got.payload(&replies[0]), payload);
                assert_eq!(got.tags(), asked.tags());
                got.verify(&replies[0]).unwrap();
                assert_eq!(replies[0][..12], [&request[6..12], &request[..6]].concat());
            }
        }
    }
    let sum = sum(&workers);
    assert_eq!((sum.received, sum.answered, sum.under_way()), (24, 24, 0));
}

#[test]
fn unanswered_frames_are_dropped_by_reason() {
    let (mut far, mut workers) = workers(1, 64, |_| echo, || None);
    let good = request(Tags::NONE, 5000, SERVER[0], b"good");
    let mut bad_ip = good.clone();
    bad_ip[24] ^= 1;
    let mut bad_udp = good.clone();
    *bad_udp.last_mut().unwrap() ^= 1;
    let mut arp = good.clone();
    arp[12..14].copy_from_slice(&[8, 6]);
    let frames = [
        bad_ip,
        bad_udp,
        arp,
        good[..20].to_vec(),
        request(Tags::NONE, 5000, "192.0.2.1:8", b"other port"),
        request(Tags::NONE, 5000, "192.0.2.2:7", b"other address"),
        good,
    ];
    send(&mut far, &frames);
    run_until_idle(&mut workers);
    assert_eq!(receive(&mut far).len(), 1);
    let sum = sum(&workers);
    assert_eq!((sum.received, sum.answered, sum.dropped_total(), sum.under_way()), (7, 1, 6, 0));
    assert_eq!(sum.dropped(DropReason::Unbound), 2);
    assert_eq!(sum.dropped(DropReason::Refused(Refusal::NotIp)), 1);
    assert_eq!(sum.drops().map(|(_, count)| count).sum::<u64>(), 6);
    assert_eq!(far.outstanding(), 0, "all frames were returned");
}

#[test]
fn a_reply_too_long_for_the_link_goes_another_way_or_is_dropped() {
    let ask = |payload: &[u8]| request(Tags::NONE, 5000, SERVER[0], payload);
    struct Longer(bool);
    impl Handler for Longer {
        fn handle(&mut self, _: Datagram<'_>, _: &mut [u8]) -> Outcome {
            Outcome::Reply(9000)
        }
        fn send_otherwise(&mut self, _: Datagram<'_>, reply: &[u8]) -> bool {
            assert_eq!(reply.len(), 9000);
            std::mem::replace(&mut self.0, false)
        }
    }
    let (mut far, mut workers) = workers(1, 64, |_| Longer(true), || None);
    send(&mut far, &[ask(b"a"), ask(b"b")]);
    run_until_idle(&mut workers);
    assert!(receive(&mut far).is_empty());
    let sum = sum(&workers);
    assert_eq!((sum.declined, sum.dropped(DropReason::ReplyTooLong), sum.under_way()), (1, 1, 0));
}

#[test]
fn a_steered_reply_is_held_to_the_link_it_leaves_by() {
    // Worker 1 serves and has no port of its own; the frame has room for more than the link's MTU.
    let handler = |_| {
        |datagram: Datagram<'_>, _: &mut [u8]| {
            Outcome::Reply(usize::from(u16::from_be_bytes([datagram.payload[0], datagram.payload[1]])))
        }
    };
    let (mut far, mut workers) = workers(2, 64, handler, || Some(spread("1")));
    // The longest frame has two VLAN tags of four bytes, these have none; 42 bytes of headers.
    let most = far.properties().max_frame_len - 2 * 4 - 42;
    let ask = |len: usize| request(Tags::NONE, 5000, SERVER[0], &(len as u16).to_be_bytes());
    send(&mut far, &[ask(most), ask(most + 1)]);
    run_until_idle(&mut workers);
    let lens: Vec<_> = receive(&mut far).iter().map(Vec::len).collect();
    assert_eq!(lens, [most + 42]);
    let sum = sum(&workers);
    assert_eq!(
        (sum.steered, sum.answered, sum.dropped(DropReason::ReplyTooLong), sum.under_way()),
        (2, 1, 1, 0)
    );
}

#[test]
fn flows_are_spread_over_workers_and_keep_their_order() {
    // Each worker answers with its own number and the payload, so that the reply shows which worker served it.
    let handler = |index: u16| {
        move |datagram: Datagram<'_>, room: &mut [u8]| {
            room[0] = index as u8;
            room[1..=datagram.payload.len()].copy_from_slice(datagram.payload);
            Outcome::Reply(1 + datagram.payload.len())
        }
    };
    let (mut far, mut workers) = workers(3, 256, handler, || Some(spread("0-2")));
    let mut next = [0_u8; 32];
    let mut served_by: Vec<Option<u8>> = vec![None; 32];
    for round in 0..100_u8 {
        let frames: Vec<_> = (0..32)
            .map(|flow| request(Tags::NONE, 6000 + flow, SERVER[usize::from(flow % 2)], &[round]))
            .collect();
        send(&mut far, &frames);
        // Polls in a varying order: some workers several times, some not at all.
        for poll in 0..(round % 5) {
            workers[usize::from((poll * 7 + round) % 3)].poll();
        }
        if round % 4 == 3 {
            run_until_idle(&mut workers);
        }
        for reply in receive(&mut far) {
            let headers = Packet::parse(&reply).unwrap();
            headers.verify(&reply).unwrap();
            let flow = usize::from(headers.destination_port() - 6000);
            let [worker, number] = *headers.payload(&reply) else { panic!("two bytes") };
            assert_eq!(number, next[flow], "order within flow {flow}");
            next[flow] += 1;
            assert_eq!(*served_by[flow].get_or_insert(worker), worker, "a flow stays with its worker");
        }
    }
    run_until_idle(&mut workers);
    let used: std::collections::HashSet<_> = served_by.iter().flatten().collect();
    assert_eq!(used.len(), 3, "all workers serve: {served_by:?}");
    let sum = sum(&workers);
    assert_eq!((sum.received, sum.answered, sum.dropped_total(), sum.under_way()), (3200, 3200, 0, 0));
    assert!(sum.steered > 1000);
    assert_eq!(far.outstanding(), 0);
}

#[test]
fn a_backlog_that_is_full_drops_and_says_so() {
    // Everything goes to worker 1, which is never polled.
    let (mut far, mut workers) = workers(2, 16, |_| echo, || Some(spread("1")));
    let frames: Vec<_> = (0..40).map(|i| request(Tags::NONE, 7000 + i, SERVER[0], b"x")).collect();
    send(&mut far, &frames);
    assert!(workers[0].poll() > 0);
    let first = sum(&workers);
    assert_eq!((first.received, first.dropped(DropReason::BacklogFull), first.under_way()), (40, 24, 16));
    run_until_idle(&mut workers);
    let rest = sum(&workers);
    assert_eq!((rest.answered, rest.under_way()), (16, 0));
    assert_eq!(receive(&mut far).len(), 16);
    assert_eq!(far.outstanding(), 0);
}

#[test]
fn a_flow_that_fills_the_backlog_is_held_back_for_the_others() {
    use udpath_steer::flow_limit::FlowLimit;
    let limited = || Some(spread("1").limiting(FlowLimit::new(FlowLimit::DEFAULT_BUCKETS)));
    let (mut far, mut workers) = workers(2, 128, |_| echo, limited);
    let (mut sent_small, mut got_small) = (0, 0);
    for _ in 0..40 {
        // One flow floods, another sends every sixteenth datagram.
        let small = |i: usize| i % 16 == 5;
        let port = |i| if small(i) { 7001 } else { 7000 };
        let frames: Vec<_> = (0..64).map(|i| request(Tags::NONE, port(i), SERVER[0], b"x")).collect();
        sent_small += (0..64).filter(|i| small(*i)).count();
        send(&mut far, &frames);
        // The other worker serves a burst for each one received, so that one always waits.
        workers[0].poll();
        if sum(&workers).steered > 64 {
            workers[1].poll();
        }
        workers[0].poll();
        let to_small = |frame: &&Vec<u8>| Packet::parse(frame).unwrap().destination_port() == 7001;
        got_small += receive(&mut far).iter().filter(to_small).count();
    }
    run_until_idle(&mut workers);
    got_small +=
        receive(&mut far).iter().filter(|f| Packet::parse(f).unwrap().destination_port() == 7001).count();
    let sum = sum(&workers);
    assert!(sum.dropped(DropReason::FlowLimit) > 20, "{sum:?}");
    assert_eq!((got_small, sum.dropped(DropReason::BacklogFull), sum.under_way()), (sent_small, 0, 0));
}

#[test]
fn threads_that_sleep_serve_everything() {
    const REQUESTS: u16 = 20_000;
    let (mut far, workers) = workers(2, 256, |_| echo, || Some(spread("0-1")));
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let counters: Vec<_> = workers.iter().map(Worker::counters).collect();
    let threads: Vec<_> = workers
        .into_iter()
        .map(|mut worker| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    if worker.poll() == 0 {
                        worker.wait(Duration::from_millis(20), None).unwrap();
                        std::thread::yield_now();
                    }
                }
                worker.poll();
            })
        })
        .collect();
    let (mut sent, mut got) = (0, 0);
    let deadline = Instant::now() + Duration::from_secs(60);
    while got < REQUESTS {
        assert!(Instant::now() < deadline, "{got} of {sent} answered");
        // Never more in flight than there is memory for.
        let count = (REQUESTS - sent).min(32);
        if sent - got <= 128 && count > 0 {
            let frames: Vec<_> =
                (sent..sent + count).map(|i| request(Tags::NONE, 1 + i % 999, SERVER[0], b"x")).collect();
            send(&mut far, &frames);
            sent += count;
        }
        got += receive(&mut far).len() as u16;
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let mut sum = Snapshot::default();
    counters.iter().for_each(|counters| sum.add(&counters.snapshot()));
    assert_eq!((sum.received, sum.answered, sum.under_way()), (REQUESTS.into(), REQUESTS.into(), 0));
    assert!(sum.steered > 0);
}
