//! Calls, wake-ups and switches between threads.

use std::io;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::io::{read, write};
use rustix::process::getppid;

use super::{ROUNDS, both, on, quickest};

/// Round trips in a round, some milliseconds of them.
const TRIPS: u32 = 500;
/// Calls in a round.
const CALLS: u32 = 5000;

/// Nanoseconds of each of so many.
fn timed(count: u32, mut work: impl FnMut() -> io::Result<()>) -> io::Result<f64> {
    let begin = Instant::now();
    for _ in 0..count {
        work()?;
    }
    Ok(begin.elapsed().as_nanos() as f64 / f64::from(count))
}

/// A call that does nothing.
pub(super) fn call(cpu: u32) -> io::Result<f64> {
    on(cpu, || {
        quickest(|| {
            timed(CALLS, || {
                std::hint::black_box(getppid());
                Ok(())
            })
        })
    })
}

/// A counter that wakes a thread.
fn counter() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC)?)
}

fn post(to: &OwnedFd) -> io::Result<()> {
    write(to, &1_u64.to_ne_bytes())?;
    Ok(())
}

fn wait(at: &OwnedFd) -> io::Result<u64> {
    let mut count = [0; 8];
    read(at, &mut count)?;
    Ok(u64::from_ne_bytes(count))
}

/// A post and a wait that find nobody asleep and something to read.
pub(super) fn quiet(cpu: u32) -> io::Result<f64> {
    on(cpu, || {
        let counter = counter()?;
        quickest(|| timed(CALLS, || post(&counter).and_then(|()| wait(&counter).map(drop))))
    })
}

/// A token that goes to and fro between two threads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Token {
    /// From a post until the thread that it wakes returns.
    pub(super) way: f64,
    /// Of that, the post.
    pub(super) post: f64,
}

/// A token between threads of these CPUs. Each way has a post that wakes, a wait that sleeps, and a switch.
pub(super) fn token(pair: [u32; 2]) -> io::Result<Token> {
    let (to, back) = (counter()?, counter()?);
    both(
        pair,
        || {
            let mut posts = Vec::with_capacity(ROUNDS);
            let way = quickest(|| {
                let mut posting = Duration::ZERO;
                let trip = timed(TRIPS, || {
                    let begin = Instant::now();
                    post(&to)?;
                    posting += begin.elapsed();
                    wait(&back).map(drop)
                })?;
                posts.push(posting.as_nanos() as f64 / f64::from(TRIPS));
                Ok(trip / 2.0)
            })?;
            let mut posts = posts.into_iter();
            let post = quickest(|| Ok(posts.next().unwrap_or(way)))?;
            Ok(Token { way, post })
        },
        || (0..TRIPS * ROUNDS as u32).try_for_each(|_| wait(&to).and_then(|_| post(&back))),
    )
}
