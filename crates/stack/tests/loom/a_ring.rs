//! The ring.

use super::*;

/// The ring wraps: slots are reused while the reader is active.
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
fn drops_remaining_items_whichever_end_is_dropped_last() {
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
