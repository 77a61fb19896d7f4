//! What a datagram costs on its way through a ring and through a socket, both sides in one thread.
//!
//! ```text
//! ring     a burst of 32 in and out
//! socket   a burst of 32 in and out, at each step from one locked queue to two queues and bulk accounting
//! wake     telling a consumer that is awake
//! ```
//! With the two sides on two CPUs, under flood, and with ratios: `make bench BENCH=two_queue`.

use std::hint::black_box;

use arrayvec::ArrayVec;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use udpath_stack::ring;
use udpath_stack::socket::memory::{Charged, Pool};
use udpath_stack::socket::queue::{Config, Received, Step, queue};
use udpath_stack::wake;

/// Datagrams in a burst.
const BURST: usize = 32;

/// As large as a frame's handle with its addresses.
#[derive(Clone, Copy)]
struct Datagram([u64; 3]);

impl Charged for Datagram {
    fn charge(&self) -> usize {
        832
    }
}

fn datagrams() -> ArrayVec<Datagram, BURST> {
    (0..BURST as u64).map(|number| Datagram([number; 3])).collect()
}

fn through_a_ring(c: &mut Criterion) {
    let mut group = c.benchmark_group("ring");
    group.throughput(Throughput::Elements(BURST as u64));
    let Ok((mut producer, mut consumer)) = ring::ring(256) else { return };
    let mut burst = datagrams();
    group.bench_function("in and out", |b| {
        b.iter(|| {
            producer.push_burst(&mut burst);
            consumer.pop_burst(black_box(&mut burst))
        });
    });
    group.finish();
}

fn through_a_socket(c: &mut Criterion) {
    let mut group = c.benchmark_group("socket");
    group.throughput(Throughput::Elements(BURST as u64));
    for step in Step::ALL {
        let pool = Pool::new(1 << 24);
        let Ok((producer, mut reader)) = queue(Config { limit: 212_992, step }, &pool) else { return };
        let mut received: ArrayVec<Received<Datagram>, BURST> = ArrayVec::new();
        group.bench_function(format!("{step:?}"), |b| {
            b.iter(|| {
                producer.enqueue_burst(black_box(&mut datagrams()));
                reader.try_receive_burst(&mut received);
                received.drain(..).fold(0, |sum, received| sum ^ received.item.0[0])
            });
        });
    }
    group.finish();
}

fn telling_an_awake_consumer(c: &mut Criterion) {
    let Ok((waker, _sleeper)) = wake::pair() else { return };
    c.bench_function("wake, consumer awake", |b| b.iter(|| black_box(&waker).wake()));
}

criterion_group!(benches, through_a_ring, through_a_socket, telling_an_awake_consumer);
criterion_main!(benches);
