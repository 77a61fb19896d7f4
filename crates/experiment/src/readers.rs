//! Readers that look something up for every packet while a writer replaces what they look up.
//!
//! ```text
//!   reader 0 .. n   pinned, CPU n mod CPUs: bursts of lookups until the end
//!   writer          every PUBLISH_EVERY: one replacement; how long it took is its wait
//! ```

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::threads::{ThreadError, cpu_time, cpus, pin};

/// Packets of a burst.
pub const BURST: usize = 32;
/// Interval between replacements: far shorter than between changes of routes or sockets, so that the writer's cost
/// counts too.
const PUBLISH_EVERY: Duration = Duration::from_millis(1);
/// Bursts between two looks at the end of the trial. Fewer: the flag's cache line is part of the figure. More: with
/// many readers per CPU, those that run last decide when a trial ends.
const BURSTS_PER_CHECK: usize = 100;

/// Looks up a burst of ports; returns a result, so that the compiler cannot remove the lookup.
pub type Burst<'s> = Box<dyn FnMut(&[u16; BURST]) -> u32 + Send + 's>;

/// What a trial showed.
#[derive(Debug)]
pub struct Reading {
    /// Packets per second of a reader's CPU time, the mean of the readers.
    pub per_cpu_second: f64,
    /// Packets per second of all readers together.
    pub rate: f64,
    /// How long each replacement took.
    pub waits: Vec<Duration>,
}

/// Lets `readers` readers work for `trial`, each with what `reader` makes for its number, while `publish` is called
/// with new versions.
///
/// # Errors
/// A thread cannot be pinned, or one panicked.
pub fn read<'s>(
    readers: usize,
    trial: Duration,
    mut reader: impl FnMut(usize) -> Burst<'s>,
    publish: impl Fn(u32),
) -> Result<Reading, ThreadError> {
    let start = Barrier::new(readers + 1);
    let stop = AtomicBool::new(false);
    let cpus = cpus();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..readers)
            .map(|number| {
                let mut look_up = reader(number);
                let (start, stop) = (&start, &stop);
                scope.spawn(move || -> Result<Done, ThreadError> {
                    let pinned = pin(number % cpus);
                    start.wait();
                    pinned?;
                    let (from, began) = (Instant::now(), cpu_time());
                    let mut bursts = 0_u64;
                    let mut ports = [0_u16; BURST];
                    while !stop.load(Ordering::Relaxed) {
                        for _ in 0..BURSTS_PER_CHECK {
                            for (port, n) in ports.iter_mut().zip(0_u64..) {
                                *port = ((bursts * 7 + n * 31) & 1023) as u16;
                            }
                            black_box(look_up(black_box(&ports)));
                            bursts += 1;
                        }
                    }
                    let cpu = (cpu_time() - began).as_secs_f64();
                    Ok(Done { packets: (bursts * BURST as u64) as f64, cpu, from, to: Instant::now() })
                })
            })
            .collect();
        start.wait();
        let began = Instant::now();
        let mut waits = Vec::new();
        let mut version = 0;
        while began.elapsed() < trial {
            std::thread::sleep(PUBLISH_EVERY);
            version += 1;
            let asked = Instant::now();
            publish(version);
            waits.push(asked.elapsed());
        }
        stop.store(true, Ordering::Relaxed);
        let joined =
            threads.into_iter().map(|thread| thread.join().map_err(|_panic| ThreadError::Panicked)?);
        let done: Vec<Done> = joined.collect::<Result<_, _>>()?;
        // From the first one's first packet to the last one's last: this thread may get a CPU later, and tells them
        // later.
        let (from, to) = (done.iter().map(|one| one.from).min(), done.iter().map(|one| one.to).max());
        let length = from.zip(to).map_or(trial, |(from, to)| to - from);
        let rate = done.iter().map(|one| one.packets).sum::<f64>() / length.as_secs_f64();
        // A reader that never got a CPU has no rate.
        let own = done.iter().filter(|one| one.cpu > 0.0).map(|one| one.packets / one.cpu);
        Ok(Reading { per_cpu_second: own.sum::<f64>() / readers as f64, rate, waits })
    })
}

/// What one reader did.
struct Done {
    packets: f64,
    /// Its CPU time, seconds.
    cpu: f64,
    from: Instant,
    to: Instant,
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn every_reader_reads_and_every_replacement_is_timed() {
        let calls = [const { AtomicU32::new(0) }; 3];
        let last = AtomicU32::new(0);
        let reading = read(
            3,
            Duration::from_millis(20),
            |number| {
                let calls = &calls[number];
                Box::new(move |ports| calls.fetch_add(1, Ordering::Relaxed) + u32::from(ports[0]))
            },
            |version| last.store(version, Ordering::Relaxed),
        )
        .unwrap();
        assert!(calls.iter().all(|calls| calls.load(Ordering::Relaxed) >= BURSTS_PER_CHECK as u32));
        assert_eq!(reading.waits.len(), last.load(Ordering::Relaxed) as usize);
        let packets: u32 =
            calls.iter().map(|calls| calls.load(Ordering::Relaxed)).sum::<u32>() * BURST as u32;
        // The trial is no shorter than asked for.
        assert!(reading.rate > 0.0 && reading.rate <= f64::from(packets) / 0.02, "{}", reading.rate);
    }
}
