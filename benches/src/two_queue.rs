//! A socket under flood: the gain of each step from one locked queue to two queues and bulk accounting.
//!
//! One, two or four workers flood the socket in bursts and never wait; one reader, pinned to CPU 0, polls it. The workers
//! share the other CPUs. The result is the reader's rate, as in the kernel's measurements with a flood and `udp_sink`.
//!
//! A trial's rate is the median of its windows, and a step's rate the median of its trials; the figure is the ratio of
//! two such medians, from trials in alternation (A B B A).

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use arrayvec::ArrayVec;
use crossbeam_queue::ArrayQueue;
use udpath_stack::socket::memory::{Charged, Pool, RELEASE_SHARE};
use udpath_stack::socket::queue::{Config, Received, Step, queue};

use crate::claim::{Bound, Claim};
use crate::race::{medians, pin, quantile};
use crate::results::Results;

/// Burst size of the worker and of the reader.
const BURST: usize = 32;
/// The kernel's default receive buffer, bytes.
const LIMIT: usize = 212_992;
/// The kernel's charge for a datagram of 100 bytes over loopback: 256 of them fit.
const CHARGE: usize = 832;
/// Length of one trial.
const TRIAL: Duration = Duration::from_millis(80);
/// A trial is cut into windows. Shorter: datagrams queued before the window have too much weight. Longer: a disturbance
/// affects more of the trial.
const WINDOW: Duration = Duration::from_millis(1);
/// Blocks of four trials of each comparison.
const BLOCKS: usize = 12;
/// Floods: how many workers.
const PRODUCERS: [usize; 3] = [1, 2, 4];
/// How long the reader polls before it checks the trial's clock.
const BUDGET: Duration = Duration::from_micros(20);
/// Required gain of two queues and bulk accounting together, under this many workers.
const AT_LEAST: f64 = 3.0;
const UNDER: usize = 2;

/// As large as a frame's handle with its addresses.
#[derive(Clone, Copy)]
struct Datagram([u64; 3]);

impl Charged for Datagram {
    fn charge(&self) -> usize {
        CHARGE
    }
}

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let steps = [
        (Step::TwoQueues, "two_queues", "two queues"),
        (Step::BulkRelease, "bulk", "two queues, bulk accounting"),
        (Step::Bursts, "bursts", "the same, a lock per burst"),
        (Step::Ring, "ring", "the same, a ring instead of the splice"),
    ];
    for producers in PRODUCERS {
        let workers = if producers == 1 { "worker" } else { "workers" };
        let mut before = (Step::OneQueue, "one locked queue");
        for (step, id, name) in steps {
            let what = format!("two_queue, {producers} {workers}: {name} / one locked queue");
            let ratio =
                medians(&what, BLOCKS, || flood(Step::OneQueue, producers), || flood(step, producers))?;
            let judged = step == Step::BulkRelease && producers == UNDER;
            let bound = if judged { Bound::AtLeast(AT_LEAST) } else { Bound::Shown };
            results.add(&Claim::ratio(&format!("two_queue.{id}.{producers}"), what, &ratio, bound));
            if before.0 != Step::OneQueue {
                let what = format!("two_queue, {producers} {workers}: {name} / {}", before.1);
                let ratio = medians(&what, BLOCKS, || flood(before.0, producers), || flood(step, producers))?;
                let id = format!("two_queue.{id}_alone.{producers}");
                results.add(&Claim::ratio(&id, what, &ratio, Bound::Shown));
            }
            before = (step, name);
        }
        // With one worker the lock-free queue is faster; `socket::queue` explains what the lock provides.
        let what = format!("two_queue, {producers} {workers}: all / lock-free queue, atomic accounting");
        let ours = || flood(Step::default(), producers);
        let ratio = medians(&what, BLOCKS, || flood_lock_free(producers), ours)?;
        results.add(&Claim::ratio(&format!("two_queue.lock_free.{producers}"), what, &ratio, Bound::Shown));
    }
    Ok(())
}

/// Datagrams per second that the reader gets.
fn flood(step: Step, producers: usize) -> Result<f64> {
    let pool = Pool::new(64 * LIMIT);
    let (producer, mut reader) = queue(Config { limit: LIMIT, step }, &pool)?;
    let mut received: ArrayVec<Received<Datagram>, BURST> = ArrayVec::new();
    let rate = race_of_sides(
        producers,
        |burst| {
            producer.enqueue_burst(burst);
        },
        || {
            reader.busy_receive_burst(&mut received, BUDGET);
            received.drain(..).map(|received| received.item.0[0]).fold((0, 0), |(n, sum), x| (n + 1, sum ^ x))
        },
    )?;
    let counts = reader.counts();
    anyhow::ensure!(counts.refused.pool_full == 0, "the pool was the limit, not the socket");
    Ok(rate)
}

/// The same with a lock-free multi-producer queue, with the charge in an atomic, released in bulk.
fn flood_lock_free(producers: usize) -> Result<f64> {
    let queue = ArrayQueue::new(LIMIT / CHARGE);
    let charged = AtomicUsize::new(0);
    let mut gathered = 0;
    race_of_sides(
        producers,
        |burst| {
            for datagram in burst.drain(..) {
                if charged.load(Ordering::Relaxed) + CHARGE > LIMIT {
                    continue;
                }
                charged.fetch_add(CHARGE, Ordering::Relaxed);
                if queue.push(datagram).is_err() {
                    charged.fetch_sub(CHARGE, Ordering::Relaxed);
                }
            }
        },
        || {
            let mut found = (0, 0);
            while found.0 < BURST as u64 {
                let Some(Datagram(words)) = queue.pop() else {
                    if found.0 == 0 {
                        (0..16).for_each(|_| std::hint::spin_loop()); // as in udpath's reader
                    }
                    break;
                };
                found = (found.0 + 1, found.1 ^ words[0]);
            }
            gathered += found.0 as usize * CHARGE;
            if gathered >= LIMIT / RELEASE_SHARE || (found.0 == 0 && gathered > 0) {
                charged.fetch_sub(gathered, Ordering::Relaxed);
                gathered = 0;
            }
            found
        },
    )
}

/// Calls `send` with full bursts in `producers` threads on the other CPUs and `receive` on CPU 0 for the length of a trial;
/// returns the rate of `receive`: the median of its windows.
fn race_of_sides(
    producers: usize,
    send: impl Fn(&mut ArrayVec<Datagram, BURST>) + Sync,
    mut receive: impl FnMut() -> (u64, u64) + Send,
) -> Result<f64> {
    let others = std::thread::available_parallelism()?.get() - 1;
    anyhow::ensure!(others > 0, "this needs two CPUs");
    let start = Barrier::new(producers + 1);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..producers)
            .map(|worker| {
                let (send, start, stop) = (&send, &start, &stop);
                scope.spawn(move || {
                    let pinned = pin(1 + worker % others);
                    start.wait();
                    let mut number = 0;
                    let mut burst = ArrayVec::new();
                    while !stop.load(Ordering::Relaxed) {
                        burst.clear();
                        while !burst.is_full() {
                            burst.push(Datagram([number; 3]));
                            number += 1;
                        }
                        send(&mut burst);
                    }
                    pinned
                })
            })
            .collect();
        let reader = scope.spawn(|| -> Result<f64> {
            let pinned = pin(0);
            start.wait();
            let end = Instant::now() + TRIAL;
            let mut rates = Vec::new();
            let mut began = Instant::now();
            let mut received = 0;
            while began < end {
                // A few iterations between two clock reads.
                for _ in 0..16 {
                    let (count, sum) = receive();
                    received += count;
                    black_box(sum);
                }
                let now = Instant::now();
                if now - began >= WINDOW {
                    rates.push(received as f64 / (now - began).as_secs_f64());
                    (began, received) = (now, 0);
                }
            }
            stop.store(true, Ordering::Relaxed);
            pinned.map(|()| quantile(rates, 0.5))
        });
        let rate = reader.join().ok().context("the reader panicked")?;
        for worker in workers {
            worker.join().ok().context("a worker panicked")??;
        }
        rate
    })
}
