//! The datapath's own socket under a flood, in memory: what its reader gets at each step of its queue's history.
//!
//! ```text
//!   producers, on the other CPUs: full bursts, never waiting ──▸ socket::queue ──▸ reader, on CPU 0: polls
//!                                                                              rate: the median of the trial's windows
//! ```

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use udpath_stack::socket::memory::{Charged, Pool};
use udpath_stack::socket::queue::{self, Config, Received, Step, queue};

use crate::threads::{ThreadError, cpus, pin, quantile};

/// Burst size of the producers and of the reader.
pub const BURST: usize = 32;
/// The kernel's default receive buffer, bytes.
pub const LIMIT: usize = 212_992;
/// The kernel's charge for a datagram of 100 bytes over loopback: 256 of them fit.
pub const CHARGE: usize = 832;
/// A trial is cut into windows. Shorter: datagrams queued before the window have too much weight. Longer: a disturbance
/// affects more of the trial.
const WINDOW: Duration = Duration::from_millis(1);
/// How long the reader polls before it checks the trial's clock.
const BUDGET: Duration = Duration::from_micros(20);

/// As large as a frame's handle with its addresses.
#[derive(Debug, Clone, Copy)]
pub struct Datagram(pub [u64; 3]);

impl Charged for Datagram {
    fn charge(&self) -> usize {
        CHARGE
    }
}

/// Why a flood was not measured.
#[derive(Debug, thiserror::Error)]
pub enum FloodError {
    /// Its threads.
    #[error(transparent)]
    Threads(#[from] ThreadError),
    /// Its queue.
    #[error("cannot make the queue of a socket")]
    Queue(#[from] queue::Error),
    /// The memory of all sockets was the limit.
    #[error("the memory pool refused {0} datagrams, so the figure is not the socket's")]
    PoolFull(u64),
}

/// Datagrams per second that the reader gets from `producers` producers in a trial of this length.
///
/// # Errors
/// There is one CPU only, or a thread cannot be pinned.
pub fn flood(step: Step, producers: usize, trial: Duration) -> Result<f64, FloodError> {
    let pool = Pool::new(64 * LIMIT);
    let (producer, mut reader) = queue(Config { limit: LIMIT, step }, &pool)?;
    let mut received: ArrayVec<Received<Datagram>, BURST> = ArrayVec::new();
    let rate = race_of_sides(
        producers,
        trial,
        |burst| {
            producer.enqueue_burst(burst);
        },
        || {
            reader.busy_receive_burst(&mut received, BUDGET);
            received.drain(..).map(|received| received.item.0[0]).fold((0, 0), |(n, sum), x| (n + 1, sum ^ x))
        },
    )?;
    match reader.counts().refused.pool_full {
        0 => Ok(rate),
        refused => Err(FloodError::PoolFull(refused)),
    }
}

/// Calls `send` with full bursts in `producers` threads on the other CPUs and `receive` on CPU 0 for the length of a
/// trial; returns the rate of `receive`: the median of its windows. `receive` returns how many datagrams it got, and
/// their sum, so that the compiler cannot leave them out.
///
/// # Errors
/// There is one CPU only, a thread cannot be pinned, or one panicked.
pub fn race_of_sides(
    producers: usize,
    trial: Duration,
    send: impl Fn(&mut ArrayVec<Datagram, BURST>) + Sync,
    mut receive: impl FnMut() -> (u64, u64) + Send,
) -> Result<f64, ThreadError> {
    let others = cpus() - 1;
    if others == 0 {
        return Err(ThreadError::TooFewCpus { needed: 2, have: 1 });
    }
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
        let reader = scope.spawn(|| -> Result<f64, ThreadError> {
            let pinned = pin(0);
            start.wait();
            let end = Instant::now() + trial;
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
        let rate = reader.join().map_err(|_panic| ThreadError::Panicked)?;
        for worker in workers {
            worker.join().map_err(|_panic| ThreadError::Panicked)??;
        }
        rate
    })
}
