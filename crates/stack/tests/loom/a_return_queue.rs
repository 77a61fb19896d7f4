//! Frames returning to the worker.

use super::*;

fn burst(numbers: std::ops::Range<u32>) -> ArrayVec<Item, 2> {
    numbers.map(Item::new).collect()
}

/// A worker that sleeps whenever the queue is empty receives everything that two sockets return. A lost wake-up is a
/// deadlock.
#[test]
fn returns_frames_of_two_sockets_to_a_sleeping_worker() {
    model(|| {
        let (waker, mut sleeper) = wake::pair().unwrap();
        let (return_handle, mut return_queue) = returns::pair::<Item>(waker, 4, 1).unwrap();
        // No free frames to refill with: that must not keep the worker awake.
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

/// Items pushed while the worker ends either leave the queue or stay with the socket: never both, never neither.
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

/// A socket that finds no free frame receives one without further calls: the socket that leaves less than half wakes
/// the worker, which refills the queue.
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
