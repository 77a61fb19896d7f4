//! Events per second of the simulation: a lab of two CPUs, and a server of twenty under a flood.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use udpath_model::{Costs, Description, Effort, Published, experiment, predict};

fn events(criterion: &mut Criterion) {
    let costs = Costs::default();
    let effort = Effort { seed: 1, runs: 1, warm_up_ms: 2, window_ms: 10 };
    let small = Description { cores: 2, queues: 2, workers: 2, ..Description::default() };
    let large = match experiment("ladder.reuseport") {
        Some(Published::Path(description)) => *description,
        _ => return,
    };
    let mut group = criterion.benchmark_group("events");
    for (name, description) in [("2 CPUs", small), ("20 CPUs", large)] {
        let Ok(once) = predict(&description, &costs, &effort) else { continue };
        group.throughput(Throughput::Elements(once.events));
        group.bench_function(name, |bencher| {
            bencher.iter(|| black_box(predict(black_box(&description), &costs, &effort)));
        });
    }
    group.finish();
}

criterion_group!(benches, events);
criterion_main!(benches);
