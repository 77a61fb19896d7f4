//! Verdicts on replies that arrived at another thread than their flow's.
//!
//! One ring for each ordered pair of threads, so that each has one writer and one reader. Verdicts leave in bursts, once
//! per turn, and the reader is woken if it sleeps.

use arrayvec::ArrayVec;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use udpath_stack::frame::BURST;
use udpath_stack::port::Port;
use udpath_stack::ring::{Consumer, Producer, ring};
use udpath_stack::wake::{Sleeper, Waker, pair};

use super::failed;
use super::lane::Lane;
use crate::Error;
use crate::template::Judgement;

/// Verdicts in all rings to one thread together, and bounds of each ring. Fewer: a thread that waits for a CPU loses
/// replies. More: memory, 32 bytes each.
const VERDICTS: usize = 32_768;
const RING: (usize, usize) = (64, 8192);
/// Ports that a sleeping thread is woken by, and how long one that has more sleeps at most, nanoseconds. More ports: a
/// longer list is made for every sleep. Fewer, or a longer sleep: replies on the rest of them are seen late.
const WATCHED: usize = 64;
const UNWATCHED: u64 = 50_000;

/// A reply, judged; what its flow's thread still has to count.
#[derive(Debug, Clone, Copy)]
pub(super) struct Verdict {
    /// The flow's number among its thread's.
    pub(super) index: u32,
    pub(super) judgement: Judgement,
    /// When it arrived, nanoseconds since the start.
    pub(super) at: u64,
}

/// One thread's ends of all rings.
pub(super) struct Links {
    /// To each thread; none to itself.
    to: Vec<Option<Outbox>>,
    from: Vec<Consumer<Verdict>>,
    sleeper: Sleeper,
    /// Verdicts given to others, and those that found a full ring: replies lost in the generator.
    pub(super) handed_over: u64,
    pub(super) lost: u64,
}

struct Outbox {
    ring: Producer<Verdict>,
    waker: Waker,
    burst: ArrayVec<Verdict, BURST>,
}

/// The ends for `threads` threads, in order.
pub(super) fn links(threads: usize) -> Result<Vec<Links>, Error> {
    let capacity = (VERDICTS / threads).clamp(RING.0, RING.1).next_power_of_two();
    let mut all = Vec::with_capacity(threads);
    let mut wakers = Vec::with_capacity(threads);
    for _ in 0..threads {
        let (waker, sleeper) = pair().map_err(|e| Error::system("make an eventfd", e))?;
        wakers.push(waker);
        all.push(Links { to: Vec::new(), from: Vec::new(), sleeper, handed_over: 0, lost: 0 });
    }
    for from in 0..threads {
        for to in 0..threads {
            if from == to {
                all[from].to.push(None);
                continue;
            }
            let (producer, consumer) = ring(capacity).map_err(|e| failed(e.to_string()))?;
            let waker = wakers[to].clone();
            all[from].to.push(Some(Outbox { ring: producer, waker, burst: ArrayVec::new() }));
            all[to].from.push(consumer);
        }
    }
    Ok(all)
}

impl Links {
    /// Gives `verdict` to `thread`, at the latest with the next [`Links::publish`].
    #[inline]
    pub(super) fn hand_over(&mut self, thread: u32, verdict: Verdict) {
        let Some(Some(outbox)) = self.to.get_mut(thread as usize) else { return };
        if outbox.burst.is_full() {
            outbox.send();
        }
        match outbox.burst.try_push(verdict) {
            Ok(()) => self.handed_over += 1,
            // The burst is full still, so the ring is: the other thread has not looked for a long time.
            Err(_) => self.lost += 1,
        }
    }

    /// Sends what is gathered, and wakes those who get it.
    pub(super) fn publish(&mut self) {
        self.to.iter_mut().flatten().filter(|outbox| !outbox.burst.is_empty()).for_each(Outbox::send);
    }

    /// Takes what others have handed over, as far as `into` has room; how many.
    pub(super) fn take(&mut self, into: &mut ArrayVec<Verdict, BURST>) -> usize {
        self.from.iter_mut().map(|ring| ring.pop_burst(into)).sum()
    }

    /// Sleeps at most `pause` nanoseconds, or until a port of `lanes` or another thread has something.
    ///
    /// By poll(2), which registers with the sockets for as long as it waits. What stays registered (epoll) would be
    /// called by the kernel for every packet that was sent: a tenth of the cost of sending it.
    pub(super) fn sleep(&mut self, lanes: &[Lane], pause: u64) {
        let announced = (self.to.len() > 1).then(|| self.sleeper.announce());
        // Whoever hands over after this look sees the announcement, and wakes us.
        if !self.from.iter().all(Consumer::is_empty) {
            return;
        }
        let mut waiting: ArrayVec<PollFd<'_>, { WATCHED + 1 }> = ArrayVec::new();
        let ports = lanes.iter().filter_map(|lane| lane.port.descriptor());
        waiting.extend(ports.take(WATCHED).map(|port| PollFd::from_borrowed_fd(port, PollFlags::IN)));
        waiting.extend(announced.iter().map(|announced| PollFd::new(announced, PollFlags::IN)));
        let pause = if lanes.len() > WATCHED { pause.min(UNWATCHED) } else { pause };
        let timeout =
            Timespec { tv_sec: (pause / 1_000_000_000) as i64, tv_nsec: (pause % 1_000_000_000) as i64 };
        // However it ends, the rings are looked at next.
        let _ = poll(&mut waiting, Some(&timeout));
    }
}

impl Outbox {
    fn send(&mut self) {
        if self.ring.push_burst(&mut self.burst) > 0 {
            self.waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(index: u32) -> Verdict {
        Verdict { index, judgement: Judgement::Valid { seq: 7 }, at: 9 }
    }

    fn all(links: &mut Links) -> Vec<u32> {
        let (mut burst, mut indices) = (ArrayVec::new(), Vec::new());
        while links.take(&mut burst) > 0 {
            indices.extend(burst.drain(..).map(|verdict| verdict.index));
        }
        indices
    }

    #[test]
    fn verdicts_arrive_where_they_belong_in_order() {
        let mut three = links(3).unwrap();
        for index in 0..200 {
            three[0].hand_over(2, verdict(index));
        }
        three[1].hand_over(2, verdict(1000));
        three[0].hand_over(1, verdict(2000));
        three.iter_mut().for_each(Links::publish);
        let arrived = all(&mut three[2]);
        assert_eq!(arrived.iter().filter(|i| **i == 1000).count(), 1);
        assert!(arrived.iter().filter(|i| **i < 1000).copied().eq(0..200));
        assert_eq!(all(&mut three[1]), [2000]);
        assert_eq!(all(&mut three[0]), [0u32; 0]);
        assert_eq!((three[0].handed_over, three[0].lost), (201, 0));
    }

    #[test]
    fn what_a_full_ring_refuses_is_counted() {
        let mut two = links(2).unwrap();
        for index in 0..20_000 {
            two[0].hand_over(1, verdict(index));
        }
        two[0].publish();
        let arrived = all(&mut two[1]);
        two[0].publish();
        let later = all(&mut two[1]);
        assert_eq!((arrived.len() + later.len()) as u64, two[0].handed_over);
        assert_eq!(two[0].handed_over + two[0].lost, 20_000);
        assert!(two[0].lost > 0);
    }
}
