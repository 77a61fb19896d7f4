//! A socket's queue and its memory.

use super::*;

const STEPS: [Step; 7] = Step::ALL;

fn socket(limit: usize, step: Step, pool: &Pool) -> (Producer<Item>, Reader<Item>) {
    queue(Config { limit, step }, pool).unwrap()
}

/// The limit is three items: the fourth is refused unless the reader released one in time.
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

/// Two sockets share a pool of three items: the limit is never exceeded, and nothing leaks.
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
