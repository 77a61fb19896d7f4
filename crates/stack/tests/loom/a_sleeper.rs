//! Sleeping and waking.

use super::*;

/// A lost wake-up is an endless sleep, which loom reports as a deadlock.
#[test]
fn is_woken_for_every_burst() {
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
fn is_woken_by_each_of_two_producers_and_signalled_once_per_announcement() {
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
