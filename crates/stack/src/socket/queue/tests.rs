use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use proptest::prelude::*;

use super::super::memory::QUANTUM;
use super::*;

type TestResult = Result<(), Box<dyn std::error::Error>>;

const STEPS: [Step; 7] = Step::ALL;

/// What a test sends: who sent it, which number, what it is charged.
#[derive(Debug, Clone, PartialEq)]
struct Packet {
    from: usize,
    number: u64,
    charge: usize,
    alive: Arc<()>,
}

impl Charged for Packet {
    fn charge(&self) -> usize {
        self.charge
    }
}

fn packets(charges: &[usize]) -> ArrayVec<Packet, 32> {
    let alive = Arc::new(());
    (charges.iter().zip(0..))
        .map(|(charge, number)| Packet { from: 0, number, charge: *charge, alive: Arc::clone(&alive) })
        .collect()
}

fn numbers<const N: usize>(received: &ArrayVec<Received<Packet>, N>) -> Vec<u64> {
    received.iter().map(|received| received.item.number).collect()
}

#[test]
fn what_goes_in_comes_out_in_order() -> TestResult {
    for step in STEPS {
        let pool = Pool::new(1 << 20);
        let (producer, mut reader) = queue(Config { limit: 10_000, step }, &pool)?;
        assert_eq!(producer.enqueue_burst(&mut packets(&[1000; 5])), 5);
        let mut two: ArrayVec<_, 2> = ArrayVec::new();
        assert_eq!(reader.try_receive_burst(&mut two), 2);
        assert_eq!(reader.try_receive_burst(&mut two), 0, "no room");
        assert_eq!(numbers(&two), [0, 1]);
        assert_eq!(reader.waiting(), 3);

        // Younger ones wait in the other queue, and come after.
        assert_eq!(producer.enqueue_burst(&mut packets(&[1000; 2])), 2);
        let mut rest: ArrayVec<_, 32> = ArrayVec::new();
        while reader.try_receive_burst(&mut rest) > 0 {}
        assert_eq!(numbers(&rest), [2, 3, 4, 0, 1], "{step:?}");
        assert_eq!(reader.counts(), Counts { enqueued: 7, refused: Refused::default() });
        drop((producer, reader));
        assert_eq!(pool.used(), 0);
    }
    Ok(())
}

#[test]
fn what_is_refused_stays_with_the_worker_and_is_counted_and_stamped() -> TestResult {
    for step in STEPS {
        let pool = Pool::new(1 << 20);
        let (producer, mut reader) = queue(Config { limit: 10_000, step }, &pool)?;
        let mut burst = packets(&[4000, 7000, 4000, 3000, 1500]);
        assert_eq!(producer.enqueue_burst(&mut burst), 3);
        assert_eq!(burst.iter().map(|packet| packet.number).collect::<Vec<_>>(), [1, 3]);
        // Less room than the least charge: not even the lock is taken.
        assert_eq!(producer.enqueue(packets(&[1]).remove(0)).map_err(|packet| packet.number), Err(0));

        let mut received: ArrayVec<_, 32> = ArrayVec::new();
        while reader.try_receive_burst(&mut received) > 0 {}
        let stamps: Vec<_> = received.iter().map(|received| received.refused_before).collect();
        assert_eq!(stamps, [0, 1, 2], "{step:?}");
        assert_eq!(reader.try_receive_burst(&mut received), 0, "ran empty: all is released");
        assert_eq!(producer.enqueue_burst(&mut packets(&[10_000])), 1);
        reader.try_receive_burst(&mut received);
        assert_eq!(received.last().map(|received| received.refused_before), Some(3));
        let refused = Refused { socket_full: 3, ..Refused::default() };
        assert_eq!(producer.counts(), Counts { enqueued: 4, refused });
    }
    Ok(())
}

#[test]
fn one_pool_bounds_all_sockets() -> TestResult {
    let pool = Pool::new(2 * QUANTUM);
    let (first, mut first_reader) = queue(Config::new(1 << 20), &pool)?;
    let (second, _second_reader) = queue(Config::new(1 << 20), &pool)?;
    assert_eq!(first.enqueue_burst(&mut packets(&[QUANTUM, QUANTUM])), 2);
    assert_eq!(second.enqueue_burst(&mut packets(&[64, 64])), 0);
    assert_eq!(second.counts().refused, Refused { pool_full: 2, ..Refused::default() });
    let mut received: ArrayVec<_, 4> = ArrayVec::new();
    while first_reader.try_receive_burst(&mut received) > 0 {}
    // A sleeping reader returns it at once, a polling one after some looks.
    first_reader.receive_burst(&mut received, Some(Duration::from_millis(1)))?;
    assert_eq!(pool.used(), QUANTUM, "one is kept forward");
    assert_eq!(second.enqueue_burst(&mut packets(&[64])), 1);
    Ok(())
}

#[test]
fn the_reader_releases_a_quarter_while_its_own_queue_is_long() -> TestResult {
    let pool = Pool::new(1 << 20);
    let (producer, mut reader) = queue(Config::new(32_000), &pool)?;
    assert_eq!(producer.enqueue_burst(&mut packets(&[1000; 32])), 32);
    let mut received: ArrayVec<_, 7> = ArrayVec::new();
    reader.try_receive_burst(&mut received);
    assert!(producer.enqueue(packets(&[1000]).remove(0)).is_err(), "less than a quarter: still charged");
    let mut received: ArrayVec<_, 1> = ArrayVec::new();
    reader.try_receive_burst(&mut received);
    assert_eq!(producer.enqueue_burst(&mut packets(&[1000; 9])), 8, "a quarter: released");
    Ok(())
}

#[test]
fn without_a_reader_all_is_dropped_and_refused() -> TestResult {
    for step in STEPS {
        let pool = Pool::new(1 << 20);
        let (producer, mut reader) = queue(Config { limit: 100_000, step }, &pool)?;
        let mut burst = packets(&[6000; 6]);
        let alive = Arc::downgrade(&burst[0].alive);
        producer.enqueue_burst(&mut burst);
        let mut one: ArrayVec<_, 1> = ArrayVec::new();
        reader.try_receive_burst(&mut one);
        drop((reader, one));
        assert_eq!(alive.strong_count(), 0, "both queues are dropped");
        assert!(pool.used() <= if step < Step::BulkRelease { 0 } else { QUANTUM }, "and released");
        assert_eq!(producer.clone().enqueue_burst(&mut packets(&[100; 2])), 0);
        assert_eq!(producer.counts().refused, Refused { closed: 2, ..Refused::default() });
        drop(producer);
        assert_eq!(pool.used(), 0);
    }
    Ok(())
}

#[test]
fn a_limit_has_a_range() {
    let pool = Pool::new(1 << 20);
    for limit in [0, MIN_CHARGE - 1, MAX_BYTES + 1] {
        let error = queue::<Packet>(Config::new(limit), &pool).err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| {
            error.starts_with(&format!("cannot create a socket queue of {limit} bytes"))
        }));
    }
}

#[test]
fn waiting_for_nothing_ends() -> TestResult {
    let pool = Pool::new(1 << 20);
    let (_producer, mut reader) = queue::<Packet>(Config::new(1000), &pool)?;
    let mut received: ArrayVec<_, 4> = ArrayVec::new();
    assert_eq!(reader.receive_burst(&mut received, Some(Duration::from_millis(1)))?, 0);
    assert_eq!(reader.busy_receive_burst(&mut received, Duration::from_micros(100)), 0);
    assert_eq!(reader.receive_burst(&mut ArrayVec::<_, 0>::new(), None)?, 0, "nor for room");
    Ok(())
}

proptest! {
    /// Every step is the same queue: order, stamps, limits and sums as in a model that knows no steps.
    #[test]
    fn behaves_as_a_bounded_queue(
        step in prop::sample::select(STEPS.to_vec()),
        rounds in prop::collection::vec((prop::collection::vec(1_usize..9000, 0..32), 0_usize..40), 1..40),
    ) {
        let pool = Pool::new(40_000);
        let Ok((producer, mut reader)) = queue(Config { limit: 30_000, step }, &pool) else {
            return Err(TestCaseError::fail("queue"));
        };
        let mut expected = VecDeque::new();
        let mut refused = 0;
        for (charges, wanted) in rounds {
            let mut burst = packets(&charges);
            let offered = burst.clone();
            producer.enqueue_burst(&mut burst);
            prop_assert!(burst.windows(2).all(|pair| pair[0].number < pair[1].number));
            for packet in offered {
                if burst.contains(&packet) {
                    refused += 1;
                } else {
                    expected.push_back(packet);
                }
            }
            let charged: usize = expected.iter().map(|packet| packet.charge.max(MIN_CHARGE)).sum();
            prop_assert!(charged <= 30_000);
            for _ in 0..wanted {
                let mut one: ArrayVec<_, 1> = ArrayVec::new();
                reader.try_receive_burst(&mut one);
                prop_assert_eq!(one.pop().map(|received| received.item), expected.pop_front());
            }
            prop_assert_eq!(reader.waiting(), expected.len());
            prop_assert!(pool.used() <= 40_000);
            prop_assert_eq!(producer.counts().refused.total(), refused);
        }
        drop((producer, reader));
        prop_assert_eq!(pool.used(), 0);
    }
}

/// Several workers flood one reader that sleeps, polls and looks in turn: nothing is lost, invented or reordered.
#[test]
fn a_flood_adds_up() -> TestResult {
    for step in STEPS {
        let pool = Pool::new(1 << 20);
        let (producer, mut reader) = queue(Config { limit: 200_000, step }, &pool)?;
        let stop = AtomicBool::new(false);
        let end = Instant::now() + Duration::from_millis(200);
        std::thread::scope(|scope| -> TestResult {
            let workers: Vec<_> = (0..3)
                .map(|from| {
                    let producer = producer.clone();
                    scope.spawn(move || {
                        let alive = Arc::new(());
                        let (mut offered, mut left) = (0_u64, 0_u64);
                        while Instant::now() < end {
                            let mut burst: ArrayVec<_, 16> = (offered..offered + 16)
                                .map(|number| Packet {
                                    from,
                                    number,
                                    charge: 1000,
                                    alive: Arc::clone(&alive),
                                })
                                .collect();
                            offered += 16;
                            producer.enqueue_burst(&mut burst);
                            left += burst.len() as u64;
                            if !burst.is_empty() {
                                std::thread::yield_now();
                            }
                        }
                        (offered, left)
                    })
                })
                .collect();
            let ended = scope.spawn({
                let stop = &stop;
                move || {
                    let sums: Vec<_> = workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
                    stop.store(true, Ordering::Relaxed);
                    sums
                }
            });

            let mut next = [0; 3];
            let mut received_sum = 0_u64;
            let mut stamp = 0;
            let mut turn = 0_usize;
            loop {
                let stopping = stop.load(Ordering::Relaxed);
                let mut received: ArrayVec<_, 8> = ArrayVec::new();
                turn += 1;
                match turn % 3 {
                    0 => reader.receive_burst(&mut received, Some(Duration::from_millis(20)))?,
                    1 => reader.busy_receive_burst(&mut received, Duration::from_micros(20)),
                    _ => reader.try_receive_burst(&mut received),
                };
                if stopping && received.is_empty() && reader.waiting() == 0 {
                    break;
                }
                received_sum += received.len() as u64;
                for Received { item, refused_before, .. } in received {
                    assert!(item.number >= next[item.from], "{step:?}: reordered");
                    next[item.from] = item.number + 1;
                    assert!(refused_before >= stamp, "{step:?}: stamps went back");
                    stamp = refused_before;
                }
            }
            let Ok(sums) = ended.join() else { return Err("a worker panicked".into()) };
            let (mut offered, mut left) = (0, 0);
            for sum in sums.into_iter().flatten() {
                offered += sum.0;
                left += sum.1;
            }
            let counts = reader.counts();
            assert_eq!(counts.enqueued, received_sum, "{step:?}");
            assert_eq!(counts.refused, Refused { socket_full: left, ..Refused::default() });
            assert_eq!(offered, received_sum + left);
            Ok(())
        })?;
        drop((producer, reader));
        assert_eq!(pool.used(), 0, "{step:?}");
    }
    Ok(())
}
