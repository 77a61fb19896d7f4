//! A socket under flood: the gain of each step from one locked queue to two queues and bulk accounting.
//!
//! One worker, pinned to CPU 1, floods the socket in bursts and never waits; one reader, pinned to CPU 0, polls it. The
//! result is the reader's rate, as in the kernel's measurements with a flood and `udp_sink`.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use arrayvec::ArrayVec;
use crossbeam_queue::ArrayQueue;
use udpath_stack::socket::memory::{Charged, Pool, RELEASE_SHARE};
use udpath_stack::socket::queue::{Config, Received, Step, queue};

use crate::Claim;
use crate::race::{pin, quantile, race, words};

/// Burst size of the worker and of the reader.
const BURST: usize = 32;
/// The kernel's default receive buffer, bytes.
const LIMIT: usize = 212_992;
/// The kernel's charge for a datagram of 100 bytes over loopback: 256 of them fit.
const CHARGE: usize = 832;
/// Length of one trial.
const TRIAL: Duration = Duration::from_millis(80);
/// A trial is cut into windows, because on a shared machine both sides only sometimes have their CPUs at the same time.
/// Shorter: datagrams queued before the window have too much weight. Longer: few windows are undisturbed.
const WINDOW: Duration = Duration::from_millis(1);
/// The trial's rate is exceeded by this share of its windows. Lower: windows in which the reader found datagrams that
/// had accumulated while it did not run. Higher: windows in which one side did not run.
const EXCEEDED_BY: f64 = 0.1;
/// How long the reader polls before it checks the trial's clock.
const BUDGET: Duration = Duration::from_micros(20);
/// Required gain of both queues, bulk accounting and bursts together.
const AT_LEAST: f64 = 3.0;

/// As large as a frame's handle with its addresses.
#[derive(Clone, Copy)]
struct Datagram([u64; 3]);

impl Charged for Datagram {
    fn charge(&self) -> usize {
        CHARGE
    }
}

pub(crate) fn run() -> Result<Vec<Claim>> {
    let steps = [
        (Step::BulkRelease, "+ bulk release", None),
        (Step::TwoQueues, "+ second queue", None),
        (Step::Bursts, "+ a lock per burst", None),
        (Step::Ring, "+ splice without the lock", Some(AT_LEAST)),
    ];
    let mut claims = Vec::new();
    for (step, what, at_least) in steps {
        let ratio = race(0.05, 12, || flood(Step::OneQueue), || flood(step))?;
        claims.push(Claim {
            what: format!("two_queue: {what} / one locked queue"),
            measured: words(&ratio),
            bound: at_least.map_or("shown".into(), |at_least| format!(">= {at_least}")),
            holds: at_least.is_none_or(|at_least| ratio.ratio >= at_least),
        });
    }
    let ratio = race(0.05, 12, flood_lock_free, || flood(Step::default()))?;
    claims.push(Claim {
        what: "two_queue: all / lock-free queue, atomic accounting".into(),
        measured: words(&ratio),
        // With one worker the lock-free queue is faster; `socket::queue` explains what the lock provides.
        bound: "shown".into(),
        holds: true,
    });
    Ok(claims)
}

/// Datagrams per second that the reader gets.
fn flood(step: Step) -> Result<f64> {
    let pool = Pool::new(64 * LIMIT);
    let (producer, mut reader) = queue(Config { limit: LIMIT, step }, &pool)?;
    let mut received: ArrayVec<Received<Datagram>, BURST> = ArrayVec::new();
    let rate = race_of_two(
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
fn flood_lock_free() -> Result<f64> {
    let queue = ArrayQueue::new(LIMIT / CHARGE);
    let charged = AtomicUsize::new(0);
    let mut gathered = 0;
    race_of_two(
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

/// Calls `send` with full bursts on CPU 1 and `receive` on CPU 0 for the length of a trial; returns the rate of
/// `receive` while both were running.
fn race_of_two(
    mut send: impl FnMut(&mut ArrayVec<Datagram, BURST>) + Send,
    mut receive: impl FnMut() -> (u64, u64) + Send,
) -> Result<f64> {
    let start = Barrier::new(2);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let pinned = pin(1);
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
        });
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
            pinned.map(|()| quantile(rates, 1.0 - EXCEEDED_BY))
        });
        let rate = reader.join().ok().context("the reader panicked")?;
        worker.join().ok().context("the worker panicked")??;
        rate
    })
}
