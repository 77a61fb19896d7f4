//! A socket under flood: the gain of each step from one locked queue to two queues and bulk accounting.
//!
//! One, two or four workers flood the socket in bursts and never wait; one reader, pinned to CPU 0, polls it. The
//! workers share the other CPUs. The result is the reader's rate, as in the kernel's measurements with a flood and
//! `udp_sink`.
//!
//! A trial's rate is the median of its windows, and a step's rate the median of its trials; the figure is the ratio of
//! two such medians, from trials in alternation (A B B A).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use crossbeam_queue::ArrayQueue;
use udpath_experiment::socket_flood::{self, BURST, CHARGE, Datagram, LIMIT, race_of_sides};
use udpath_stack::socket::memory::RELEASE_SHARE;
use udpath_stack::socket::queue::Step;

use crate::claim::{Bound, Claim};
use crate::race::medians;
use crate::results::Results;

/// Length of one trial.
const TRIAL: Duration = Duration::from_millis(80);
/// Blocks of four trials of each comparison.
const BLOCKS: usize = 12;
/// Floods: how many workers.
const PRODUCERS: [usize; 3] = [1, 2, 4];
/// Required gain of two queues and bulk accounting together, under this many workers.
const AT_LEAST: f64 = 3.0;
const UNDER: usize = 2;

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let steps = [
        (Step::BulkRelease, "released", "bulk accounting"),
        (Step::BusyLock, "busy_lock", "the same, a lock of the workers' own"),
        (Step::TwoQueues, "two_queues", "two queues, bulk accounting"),
        (Step::Bursts, "bursts", "the same, a lock per burst"),
        (Step::Ring, "ring", "the same, a ring instead of the splice"),
    ];
    for producers in PRODUCERS {
        let workers = if producers == 1 { "worker" } else { "workers" };
        let what =
            format!("two_queue, {producers} {workers}: one locked queue / a lock of the socket beside it");
        let ratio = medians(
            &what,
            BLOCKS,
            || flood(Step::SocketLock, producers),
            || flood(Step::OneQueue, producers),
        )?;
        results.add(&Claim::ratio(&format!("two_queue.one_lock.{producers}"), what, &ratio, Bound::Shown));
        let mut before = (Step::OneQueue, "one locked queue");
        for (step, id, name) in steps {
            let what = format!("two_queue, {producers} {workers}: {name} / one locked queue");
            let ratio =
                medians(&what, BLOCKS, || flood(Step::OneQueue, producers), || flood(step, producers))?;
            let judged = step == Step::TwoQueues && producers == UNDER;
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
    Ok(socket_flood::flood(step, producers, TRIAL)?)
}

/// The same with a lock-free multi-producer queue, with the charge in an atomic, released in bulk.
fn flood_lock_free(producers: usize) -> Result<f64> {
    let queue = ArrayQueue::new(LIMIT / CHARGE);
    let charged = AtomicUsize::new(0);
    let mut gathered = 0;
    Ok(race_of_sides(
        producers,
        TRIAL,
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
    )?)
}
