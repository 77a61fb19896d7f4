//! The concurrent structures under the model checker: every interleaving, and every value a load may return.
//!
//! `make loom`, or
//! `RUSTFLAGS="--cfg loom" cargo test -p udpath-stack --release --test loom --target-dir target/loom`.
//! Without `--cfg loom` there is nothing here.
//!
//! The walk is bounded to executions with at most [`PREEMPTIONS`] forced switches between threads, which is where
//! practically all known errors of this kind show; `LOOM_MAX_PREEMPTIONS=4` walks further, for as long as it takes.
//! Each model is as small as its question: two or three threads, a ring that wraps, a socket that is full after a few items.
#![cfg(loom)]

mod sys;

use arrayvec::ArrayVec;
use loom::sync::Arc;
use loom::thread;

use udpath_stack::epoch::{Domain, Table};
use udpath_stack::ring::{self, ring};
use udpath_stack::socket::memory::{Charged, Pool};
use udpath_stack::socket::queue::{Config, Producer, Reader, Received, Step, queue};
use udpath_stack::socket::returns;
use udpath_stack::wake;

use sys::Memory;

/// Forced switches per execution. Lower: errors that need one more go unseen. Higher: minutes instead of seconds.
const PREEMPTIONS: usize = 3;

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new(); // reads LOOM_* from the environment
    builder.preemption_bound.get_or_insert(PREEMPTIONS);
    builder.check(body);
}

/// An item whose memory the model watches: a slot handed over too early or used twice fails the model, as does one
/// that is never dropped.
#[derive(Clone)]
struct Item(Arc<Memory>);

impl Item {
    fn new(value: u32) -> Self {
        Self(Arc::new(Memory::new(value)))
    }

    fn value(&self) -> u32 {
        self.0.read()
    }
}

impl Charged for Item {
    fn charge(&self) -> usize {
        1000
    }
}

fn values(items: &[Item]) -> Vec<u32> {
    items.iter().map(Item::value).collect()
}

mod a_ring {
    use super::*;

    /// The ring wraps: slots are used again while the reader is at work.
    #[test]
    fn hands_over_bursts_in_order() {
        model(|| {
            let (mut producer, mut consumer) = ring(2).unwrap();
            let writer = thread::spawn(move || {
                let mut burst: ArrayVec<_, 4> = (0..4).map(Item::new).collect();
                producer.push_burst(&mut burst);
                producer.push_burst(&mut burst);
                4 - burst.len()
            });
            let mut arrived = ArrayVec::<_, 4>::new();
            consumer.pop_burst(&mut arrived);
            consumer.pop_burst(&mut arrived);
            let sent = writer.join().unwrap();
            consumer.pop_burst(&mut arrived);
            assert_eq!(values(&arrived), (0..sent as u32).collect::<Vec<_>>());
            assert!(sent >= 2 && consumer.is_empty());
        });
    }

    #[test]
    fn drops_what_is_left_whichever_end_goes_last() {
        model(|| {
            let (mut producer, mut consumer) = ring(4).unwrap();
            let writer = thread::spawn(move || {
                producer.push_from(&mut (0..3).map(Item::new));
            });
            if let Some(item) = consumer.pop() {
                assert_eq!(item.value(), 0);
            }
            drop(consumer);
            writer.join().unwrap();
        });
    }
}

mod a_sleeper {
    use super::*;

    /// A lost wake-up is a sleep without end, which loom reports as a deadlock.
    #[test]
    fn hears_of_every_burst() {
        model(|| {
            let (waker, mut sleeper) = wake::pair().unwrap();
            let (mut producer, mut consumer) = ring(2).unwrap();
            let writer = thread::spawn(move || {
                for value in 0..2 {
                    producer.push(value).unwrap();
                    waker.wake();
                }
            });
            let mut expected = 0;
            while expected < 2 {
                match consumer.pop() {
                    Some(value) => {
                        assert_eq!(value, expected);
                        expected += 1;
                    }
                    None => {
                        sleeper.sleep(None, || !consumer.is_empty()).unwrap();
                    }
                }
            }
            writer.join().unwrap();
        });
    }

    #[test]
    fn hears_of_each_of_two_producers_and_is_signalled_once_per_announcement() {
        model(|| {
            let (waker, mut sleeper) = wake::pair().unwrap();
            let mut consumers = Vec::new();
            let writers: Vec<_> = (0..2)
                .map(|value| {
                    let (mut producer, consumer) = ring(1).unwrap();
                    consumers.push(consumer);
                    let waker = waker.clone();
                    thread::spawn(move || {
                        producer.push(value).unwrap();
                        u32::from(waker.wake())
                    })
                })
                .collect();
            let mut sleeps = 0;
            let mut left = 2;
            while left > 0 {
                left -= consumers.iter_mut().filter_map(ring::Consumer::pop).count();
                if left > 0 {
                    sleeps += 1;
                    sleeper.sleep(None, || consumers.iter().any(|consumer| !consumer.is_empty())).unwrap();
                }
            }
            let signals: u32 = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
            assert!(signals <= sleeps, "{signals} system calls for {sleeps} announcements");
        });
    }
}

mod an_epoch {
    use super::*;

    /// A value whose end is a write to memory that a reader would be reading: the model sees the two collide.
    struct Watched {
        value: u32,
        freed: Arc<Memory>,
    }

    impl Watched {
        fn new(value: u32) -> Self {
            Self { value, freed: Arc::new(Memory::new(0)) }
        }

        fn look(&self) -> u32 {
            assert_eq!(self.freed.read(), 0, "looked at a freed value");
            self.value
        }
    }

    impl Drop for Watched {
        fn drop(&mut self) {
            self.freed.write(1);
        }
    }

    #[test]
    fn keeps_what_a_pinned_reader_sees() {
        model(|| {
            let domain = Domain::new(1, 4);
            let table = Arc::new(Table::new(&domain, Watched::new(0)));
            let mut reader = domain.register("reader").unwrap();
            let looking = thread::spawn({
                let table = Arc::clone(&table);
                move || {
                    for _ in 0..2 {
                        let guard = reader.pin();
                        let first = table.load(&guard);
                        let then = table.load(&guard);
                        assert!(first.look() <= then.look());
                        first.look();
                    }
                    reader.idle();
                }
            });
            table.publish(Watched::new(1)).unwrap();
            table.publish(Watched::new(2)).unwrap();
            domain.collect();
            looking.join().unwrap();
            assert_eq!(domain.collect(), 0, "an idle reader keeps nothing");
        });
    }

    #[test]
    fn frees_while_the_reader_goes_on() {
        model(|| {
            let domain = Domain::new(1, 4);
            let table = Arc::new(Table::new(&domain, Watched::new(0)));
            let mut reader = domain.register("reader").unwrap();
            // Announced before the writer starts: the fast path of `pin` is in play from the first turn.
            reader.pin();
            let looking = thread::spawn({
                let table = Arc::clone(&table);
                move || {
                    let guard = reader.pin();
                    table.load(&guard).look();
                    let guard = reader.pin();
                    table.load(&guard).look();
                    reader.idle();
                    let guard = reader.pin();
                    table.load(&guard).look();
                }
            });
            table.publish(Watched::new(1)).unwrap();
            domain.collect();
            looking.join().unwrap();
            assert_eq!(domain.collect(), 0, "a reader that is gone keeps nothing");
        });
    }

    #[test]
    fn keeps_for_each_of_two_readers() {
        model(|| {
            let domain = Domain::new(2, 4);
            let table = Arc::new(Table::new(&domain, Watched::new(0)));
            let looking: Vec<_> = ["one", "two"]
                .map(|name| domain.register(name).unwrap())
                .into_iter()
                .map(|mut reader| {
                    let table = Arc::clone(&table);
                    thread::spawn(move || {
                        let guard = reader.pin();
                        table.load(&guard).look();
                    })
                })
                .collect();
            table.publish(Watched::new(1)).unwrap();
            domain.collect();
            for reader in looking {
                reader.join().unwrap();
            }
            assert_eq!(domain.collect(), 0);
        });
    }

    #[test]
    fn two_writers_take_turns_and_garbage_stays_bounded() {
        model(|| {
            let domain = Domain::new(1, 1);
            let table = Arc::new(Table::new(&domain, Watched::new(0)));
            let mut reader = domain.register("reader").unwrap();
            let writer = thread::spawn({
                let table = Arc::clone(&table);
                move || table.publish(Watched::new(1)).is_ok()
            });
            let guard = reader.pin();
            let seen = table.load(&guard);
            let published = table.publish(Watched::new(2)).is_ok();
            seen.look();
            assert!(writer.join().unwrap() || published, "the first is never refused");
            assert!(domain.collect() <= 1);
        });
    }
}

mod a_socket {
    use super::*;

    const STEPS: [Step; 5] = [Step::OneQueue, Step::BulkRelease, Step::TwoQueues, Step::Bursts, Step::Ring];

    fn socket(limit: usize, step: Step, pool: &Pool) -> (Producer<Item>, Reader<Item>) {
        queue(Config { limit, step }, pool).unwrap()
    }

    /// The limit holds three items: the fourth is refused unless the reader released in time.
    #[test]
    fn keeps_its_limits_and_returns_all_memory() {
        for step in STEPS {
            model(move || {
                let pool = Pool::new(3500);
                let (producer, mut reader) = socket(3000, step, &pool);
                let writer = thread::spawn({
                    let pool = pool.clone();
                    move || {
                        let mut burst: ArrayVec<_, 4> = (0..4).map(Item::new).collect();
                        producer.enqueue_burst(&mut burst);
                        assert!(pool.used() <= 3500);
                        let refused = burst.len() as u64;
                        let counts = producer.counts();
                        assert_eq!(counts.refused.total(), refused);
                        assert_eq!(counts.enqueued + refused, 4);
                        4 - burst.len()
                    }
                });
                let mut received = ArrayVec::<Received<Item>, 4>::new();
                reader.try_receive_burst(&mut received);
                assert!(pool.used() <= 3500);
                let taken = writer.join().unwrap();
                while reader.try_receive_burst(&mut received) > 0 {}
                assert_eq!(received.len(), taken);
                assert!(received.windows(2).all(|pair| pair[0].item.value() < pair[1].item.value()));
                assert!(taken >= 3);
                drop(reader);
                assert_eq!(pool.used(), 0, "all memory comes back");
            });
        }
    }

    #[test]
    fn takes_from_two_workers_each_in_order() {
        model(|| {
            let pool = Pool::new(10_000);
            let (producer, mut reader) = socket(10_000, Step::default(), &pool);
            let workers: Vec<_> = (0..2)
                .map(|worker| {
                    let producer = producer.clone();
                    thread::spawn(move || {
                        let mut burst: ArrayVec<_, 2> =
                            (0..2).map(|number| Item::new(worker * 10 + number)).collect();
                        assert_eq!(producer.enqueue_burst(&mut burst), 2);
                    })
                })
                .collect();
            drop(producer);
            let mut received = ArrayVec::<Received<Item>, 4>::new();
            reader.try_receive_burst(&mut received);
            for worker in workers {
                worker.join().unwrap();
            }
            while reader.try_receive_burst(&mut received) > 0 {}
            let values: Vec<_> = received.iter().map(|received| received.item.value()).collect();
            assert!(values == [0, 1, 10, 11] || values == [10, 11, 0, 1], "{values:?}");
            drop(reader);
            assert_eq!(pool.used(), 0);
        });
    }

    #[test]
    fn wakes_its_reader() {
        model(|| {
            let pool = Pool::new(10_000);
            let (producer, mut reader) = socket(10_000, Step::default(), &pool);
            let worker = thread::spawn(move || {
                for number in 0..2 {
                    producer.enqueue(Item::new(number)).ok().unwrap();
                }
            });
            let mut received = ArrayVec::<Received<Item>, 2>::new();
            while !received.is_full() {
                reader.receive_burst(&mut received, None).unwrap();
            }
            worker.join().unwrap();
        });
    }

    #[test]
    fn closes_while_a_worker_puts_in() {
        model(|| {
            let pool = Pool::new(10_000);
            let (producer, mut reader) = socket(10_000, Step::default(), &pool);
            let worker = thread::spawn(move || {
                let mut burst: ArrayVec<_, 2> = (0..2).map(Item::new).collect();
                producer.enqueue_burst(&mut burst);
                let counts = producer.counts();
                assert_eq!(counts.refused.closed, burst.len() as u64);
                assert_eq!(counts.enqueued + counts.refused.total(), 2);
            });
            let mut received = ArrayVec::<Received<Item>, 1>::new();
            reader.try_receive_burst(&mut received);
            drop(reader);
            worker.join().unwrap();
            assert_eq!(pool.used(), 0);
        });
    }

    /// Two sockets at one pool that holds three items: never above it, and never a leak of it.
    #[test]
    fn shares_its_pool() {
        model(|| {
            let pool = Pool::new(3000);
            let (first, first_reader) = socket(10_000, Step::default(), &pool);
            let (second, mut second_reader) = socket(10_000, Step::default(), &pool);
            let worker = thread::spawn(move || {
                let mut burst: ArrayVec<_, 2> = (0..2).map(Item::new).collect();
                let taken = first.enqueue_burst(&mut burst);
                assert_eq!(first.counts().refused.pool_full, burst.len() as u64);
                taken
            });
            let mut burst: ArrayVec<_, 2> = (0..2).map(Item::new).collect();
            let taken = second.enqueue_burst(&mut burst);
            assert!(pool.used() <= 3000);
            let mut received = ArrayVec::<Received<Item>, 2>::new();
            second_reader.try_receive_burst(&mut received);
            second_reader.try_receive_burst(&mut received);
            assert_eq!(received.len(), taken);
            worker.join().unwrap();
            drop((first_reader, second_reader, second));
            assert_eq!(pool.used(), 0);
        });
    }
}

mod a_return_queue {
    use super::*;

    fn burst(numbers: std::ops::Range<u32>) -> ArrayVec<Item, 2> {
        numbers.map(Item::new).collect()
    }

    /// A worker that sleeps whenever nothing is there hears of all that two sockets give back. A lost wake-up is a deadlock.
    #[test]
    fn returns_frames_of_two_sockets_to_a_sleeping_worker() {
        model(|| {
            let (waker, mut sleeper) = wake::pair().unwrap();
            let (return_handle, mut return_queue) = returns::pair::<Item>(waker, 4, 1).unwrap();
            // Nothing to fill the stock with: that must not keep the worker awake.
            return_queue.fill(&mut ArrayVec::<Item, 1>::new());
            let sockets: Vec<_> = [0, 10]
                .into_iter()
                .map(|first| {
                    let return_handle = return_handle.clone();
                    thread::spawn(move || assert_eq!(return_handle.push(&mut burst(first..first + 1)), 1))
                })
                .collect();
            let mut returned = ArrayVec::<Item, 2>::new();
            while !returned.is_full() {
                if return_queue.receive(&mut returned) == 0 {
                    sleeper.sleep(None, || !return_queue.is_idle()).unwrap();
                }
            }
            for socket in sockets {
                socket.join().unwrap();
            }
            let values = values(&returned);
            assert!(values == [0, 10] || values == [10, 0], "{values:?}");
        });
    }

    /// What is given while the worker ends comes out of the return_queue or stays with the socket: never both, never neither.
    #[test]
    fn closes_while_a_socket_pushes_and_takes() {
        model(|| {
            let (waker, _sleeper) = wake::pair().unwrap();
            let (return_handle, mut return_queue) = returns::pair::<Item>(waker, 4, 2).unwrap();
            return_queue.fill(&mut burst(10..12));
            let socket = thread::spawn(move || {
                let mut taken = ArrayVec::<Item, 2>::new();
                return_handle.take_free(&mut taken, 1);
                let mut burst = burst(0..2);
                return_handle.push(&mut burst);
                let mut kept = values(&taken);
                kept.extend(values(&burst));
                kept
            });
            let mut back = Vec::new();
            return_queue.close(|item| back.push(item.value()));
            drop(return_queue);
            let mut all = socket.join().unwrap();
            all.extend(back);
            all.sort_unstable();
            assert_eq!(all, [0, 1, 10, 11]);
        });
    }

    /// A socket that finds no blank frame gets one without doing anything more: whoever takes the stock below half wakes
    /// the worker, who fills it up.
    #[test]
    fn wakes_a_sleeping_worker_to_refill_free_frames() {
        model(|| {
            let (waker, mut sleeper) = wake::pair().unwrap();
            let (return_handle, mut return_queue) = returns::pair::<Item>(waker, 4, 1).unwrap();
            return_queue.fill(&mut burst(0..1));
            let socket = thread::spawn(move || {
                let mut taken = ArrayVec::<Item, 2>::new();
                assert_eq!(return_handle.take_free(&mut taken, 1), 1);
                values(&taken)
            });
            while return_queue.shortage() == 0 {
                sleeper.sleep(None, || !return_queue.is_idle()).unwrap();
            }
            return_queue.fill(&mut burst(1..2));
            assert!(return_queue.is_idle());
            assert_eq!(socket.join().unwrap(), [0]);
        });
    }
}
