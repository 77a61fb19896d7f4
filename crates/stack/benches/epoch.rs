//! What one reader pays for looking into a table that may be replaced, alone on its CPU.
//!
//! ```text
//! guard    taking and dropping the protection itself: once per burst for epochs, per packet for the others
//! burst    32 lookups with it, in throughput of packets
//! ```
//! Two readers at a time and a writer, with ratios, are in `make bench BENCH=epoch`.

use std::hint::black_box;
use std::sync::{Arc, RwLock};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use crossbeam_epoch::Collector;
use udpath_stack::epoch::{Domain, Table};

/// Packets under one guard.
const BURST: usize = 32;

fn guard(c: &mut Criterion) {
    let mut group = c.benchmark_group("guard");
    let domain = Domain::new(1, 64);
    let table = Table::new(&domain, 0_u64);
    let Ok(mut reader) = domain.register("reader") else { return };
    group.bench_function("own, nothing published", |b| {
        b.iter(|| {
            black_box(reader.pin());
        });
    });
    group.bench_function("own, announced anew", |b| {
        b.iter(|| {
            reader.idle();
            black_box(reader.pin());
        });
    });
    group.bench_function("own, publish and announce", |b| {
        b.iter(|| {
            black_box(reader.pin());
            table.publish(1).is_ok()
        });
    });
    let theirs = Collector::new().register();
    group.bench_function("crossbeam-epoch", |b| b.iter(|| drop(black_box(theirs.pin()))));
    let lock = RwLock::new(0_u64);
    group.bench_function("read lock, alone", |b| b.iter(|| lock.read().map_or(0, |value| *black_box(value))));
    let counted = Arc::new(0_u64);
    group.bench_function("reference count, alone", |b| b.iter(|| drop(black_box(Arc::clone(&counted)))));
    group.finish();
}

fn burst(c: &mut Criterion) {
    let mut group = c.benchmark_group("burst");
    group.throughput(Throughput::Elements(BURST as u64));
    let ports: [u16; BURST] = std::array::from_fn(|n| (n * 31 % 1024) as u16);
    let sockets = || (0..1024_u32).collect::<Vec<_>>();

    let plain = sockets();
    group.bench_function("unprotected", |b| {
        b.iter(|| {
            let table = black_box(&plain);
            black_box(&ports).iter().fold(0, |sum: u32, port| sum.wrapping_add(table[usize::from(*port)]))
        });
    });
    let domain = Domain::new(1, 64);
    let table = Table::new(&domain, sockets());
    let Ok(mut reader) = domain.register("reader") else { return };
    group.bench_function("own epoch, loaded per packet", |b| {
        b.iter(|| {
            let guard = reader.pin();
            let look_up = |port: &u16| table.load(&guard)[usize::from(*port)];
            black_box(&ports).iter().fold(0, |sum: u32, port| sum.wrapping_add(look_up(port)))
        });
    });
    group.bench_function("own epoch, loaded once", |b| {
        b.iter(|| {
            let guard = reader.pin();
            let table = table.load(&guard);
            black_box(&ports).iter().fold(0, |sum: u32, port| sum.wrapping_add(table[usize::from(*port)]))
        });
    });
    group.finish();
}

criterion_group!(benches, guard, burst);
criterion_main!(benches);
