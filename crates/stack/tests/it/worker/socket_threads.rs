//! Sockets under load: workers and readers in separate threads.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use udpath_stack::counters::{DropReason, Snapshot};
use udpath_stack::socket::Wait;
use udpath_stack::wire::Tags;
use udpath_stack::worker::Worker;

use super::bed::*;
use super::support::*;

/// Several workers with one port each fill several sockets, each read by its own thread, one of them slowly. Sockets
/// are closed and opened at the same time. All counts add up, and each flow keeps its order.
#[test]
fn threads_that_sleep_read_everything_that_is_not_refused() {
    const PER_FAR: u32 = 12_000;
    const FLOWS: u16 = 16;
    let binds = ["192.0.2.1:7", "192.0.2.1:8", "192.0.2.1:9"];
    let spread = || Some(spread("0-1"));
    let mut bed = bed(&binds, 1 << 20, 256, vec![spread(), spread()], || echo);
    let sockets: Vec<_> = binds.iter().map(|bind| bed.open(bind, 40 * CHARGE)).collect();
    bed.deliver_to(&sockets.iter().collect::<Vec<_>>());
    let counters: Vec<_> = bed.workers.iter().map(Worker::counters).collect();
    let (stop, quiet) = (AtomicBool::new(false), AtomicBool::new(false));
    let deadline = Instant::now() + Duration::from_secs(60);
    let workers = std::mem::take(&mut bed.workers);
    let (ends, workers) = std::thread::scope(|scope| {
        let workers: Vec<_> = workers
            .into_iter()
            .map(|mut worker| {
                let stop = &stop;
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        if worker.poll() == 0 {
                            worker.wait(Duration::from_millis(20), None).unwrap();
                            std::thread::yield_now();
                        }
                    }
                    worker
                })
            })
            .collect();
        let readers: Vec<_> = sockets
            .into_iter()
            .enumerate()
            .map(|(place, mut socket)| {
                let quiet = &quiet;
                scope.spawn(move || {
                    let mut next: HashMap<u16, u32> = HashMap::new();
                    let (mut stamp, mut turn) = (0, 0_u32);
                    loop {
                        let ending = quiet.load(Ordering::Relaxed);
                        turn += 1;
                        let wait = match turn % 3 {
                            0 => Wait::Sleep(Some(Duration::from_millis(20))),
                            1 => Wait::Poll(Duration::from_micros(20)),
                            _ => Wait::No,
                        };
                        let mut batch = socket.recv_batch(wait).unwrap();
                        if ending && batch.is_empty() {
                            drop(batch);
                            return socket.counts();
                        }
                        for mut datagram in batch.iter_mut() {
                            let number = u32::from_ne_bytes(*datagram.payload().first_chunk().unwrap());
                            let expected = next.entry(datagram.from().port()).or_default();
                            assert!(number >= *expected, "reordered: {number} after {expected}");
                            *expected = number + 1;
                            assert!(
                                datagram.refused_before().wrapping_sub(stamp) < 1 << 31,
                                "stamps went back"
                            );
                            stamp = datagram.refused_before();
                            if number % 2 == 0 {
                                datagram.reply(&number.to_ne_bytes()).unwrap();
                            }
                        }
                        drop(batch);
                        if place == 0 {
                            std::thread::sleep(Duration::from_micros(300));
                        }
                    }
                })
            })
            .collect();
        let (mut sent, mut got) = ([0_u32; 2], 0_u64);
        while sent.iter().any(|sent| *sent < PER_FAR) {
            assert!(Instant::now() < deadline, "{sent:?} sent");
            for (place, far) in bed.fars.iter_mut().enumerate() {
                got += receive(far).len() as u64;
                // No more in flight than there is memory for.
                if sent[place] < PER_FAR && far.outstanding() <= FRAMES - 32 {
                    let frames: Vec<_> = (sent[place]..sent[place] + 32)
                        .map(|number| {
                            // The two ends use different flows.
                            let flow = (number % u32::from(FLOWS)) as u16 + FLOWS * place as u16;
                            let bind = binds[usize::from(flow % 3)];
                            request(Tags::NONE, 6000 + flow, bind, &number.to_ne_bytes())
                        })
                        .collect();
                    send(far, &frames);
                    sent[place] += 32;
                }
            }
        }
        // Until every received datagram is accounted for.
        loop {
            assert!(Instant::now() < deadline, "never at rest");
            got += bed.fars.iter_mut().map(|far| receive(far).len() as u64).sum::<u64>();
            let mut all = Snapshot::default();
            counters.iter().for_each(|counters| all.add(&counters.snapshot()));
            if all.received == u64::from(2 * PER_FAR) && all.under_way() == 0 {
                break;
            }
        }
        quiet.store(true, Ordering::Relaxed);
        let ends: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        let wanted: u64 = ends.iter().map(|end| end.sent).sum();
        while got < wanted {
            assert!(Instant::now() < deadline, "{got} of {wanted} replies");
            got += bed.fars.iter_mut().map(|far| receive(far).len() as u64).sum::<u64>();
        }
        assert_eq!(got, wanted);
        stop.store(true, Ordering::Relaxed);
        (ends, workers.into_iter().map(|worker| worker.join().unwrap()).collect::<Vec<_>>())
    });
    bed.workers = workers;
    bed.assert_all_returned();
    let sum = sum(&bed.workers);
    let enqueued: u64 = ends.iter().map(|end| end.enqueued).sum();
    let refused: u64 = ends.iter().map(|end| end.refused.total()).sum();
    assert_eq!((sum.received, sum.under_way(), sum.unsent), (u64::from(2 * PER_FAR), 0, 0));
    assert_eq!((sum.delivered, sum.dropped(DropReason::SocketFull)), (enqueued, refused));
    assert_eq!(sum.dropped_total(), refused + sum.dropped(DropReason::BacklogFull));
    assert_eq!(sum.sent, ends.iter().map(|end| end.sent).sum::<u64>());
    assert!(ends.iter().all(|end| end.received == end.enqueued && end.received > 0), "{ends:?}");
    assert!(ends[0].refused.socket_full > 0, "the slow reader was refused nothing: {ends:?}");
    assert!(sum.steered > 0);
    assert_eq!(bed.sockets.memory(), 0);
}

/// A socket is repeatedly closed and another one opened for the same binding, while datagrams arrive.
#[test]
fn sockets_come_and_go_under_load() {
    let spread = || Some(spread("0-1"));
    let mut bed = bed(&SERVER, 1 << 20, 256, vec![spread(), spread()], || echo);
    let workers = std::mem::take(&mut bed.workers);
    let stop = AtomicBool::new(false);
    let read = std::sync::atomic::AtomicU64::new(0);
    let workers = std::thread::scope(|scope| {
        let workers: Vec<_> = workers
            .into_iter()
            .map(|mut worker| {
                let stop = &stop;
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        if worker.poll() == 0 {
                            std::thread::yield_now();
                        }
                    }
                    worker
                })
            })
            .collect();
        let bed = &mut bed;
        for round in 0..100_u32 {
            let mut socket = bed.open(SERVER[0], 30 * CHARGE);
            bed.deliver_to(&[&socket]);
            let reader = scope.spawn({
                let read = &read;
                move || {
                    for _ in 0..round % 7 {
                        let mut batch =
                            socket.recv_batch(Wait::Sleep(Some(Duration::from_millis(1)))).unwrap();
                        read.fetch_add(batch.len() as u64, Ordering::Relaxed);
                        batch.iter_mut().step_by(2).for_each(|mut datagram| datagram.reply(b"y").unwrap());
                    }
                }
            });
            while !reader.is_finished() {
                for far in &mut bed.fars {
                    receive(far);
                    if far.outstanding() <= FRAMES - 32 {
                        let frames: Vec<_> =
                            (0..32).map(|flow| request(Tags::NONE, 6000 + flow, SERVER[0], b"x")).collect();
                        send(far, &frames);
                    }
                }
            }
            reader.join().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().unwrap()).collect::<Vec<_>>()
    });
    bed.workers = workers;
    run_until_idle(&mut bed.workers);
    for far in &mut bed.fars {
        receive(far);
    }
    bed.assert_all_returned();
    let sum = sum(&bed.workers);
    assert_eq!(sum.under_way(), 0);
    assert!(read.into_inner() > 0 && sum.dropped(DropReason::SocketClosed) > 0, "{sum:?}");
    assert_eq!(bed.sockets.memory(), 0);
}
