//! Replies that arrived on a thread other than their flow's: judged where they arrived, counted by the flow's thread.
//!
//! There is a ring for each ordered pair of threads, so each ring has one writer and one reader. Judged replies are
//! sent in bursts, once per turn, and wake the reader if it sleeps.

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

/// Places in all rings to one thread together, and bounds of each ring. Fewer: a thread that waits for a CPU loses
/// replies. More: memory, 32 bytes each.
const CAPACITY: usize = 32_768;
const RING_LEN: (usize, usize) = (64, 8192);
/// Most ports that wake a sleeping thread, and the longest sleep of a thread with more, nanoseconds. More ports: a
/// longer list is made for every sleep. Fewer, or a longer sleep: replies on the others are received late.
const MAX_WATCHED: usize = 64;
const POLL_INTERVAL: u64 = 50_000;

/// A reply that its flow's thread has to count.
#[derive(Debug, Clone, Copy)]
pub(super) struct JudgedReply {
    /// The flow's index in its thread's list.
    pub(super) index: u32,
    pub(super) judgement: Judgement,
    /// When it arrived, nanoseconds since the start.
    pub(super) at: u64,
}

/// One thread's ends of all rings.
pub(super) struct Mailboxes {
    /// To each thread; none to itself.
    to: Vec<Option<Outbox>>,
    from: Vec<Consumer<JudgedReply>>,
    sleeper: Sleeper,
    /// Replies handed to other threads, and those that found a full ring: lost in the generator.
    pub(super) handed_over: u64,
    pub(super) lost: u64,
}

struct Outbox {
    ring: Producer<JudgedReply>,
    waker: Waker,
    burst: ArrayVec<JudgedReply, BURST>,
}

/// The mailboxes of `threads` threads, in order.
pub(super) fn mailboxes(threads: usize) -> Result<Vec<Mailboxes>, Error> {
    let capacity = (CAPACITY / threads).clamp(RING_LEN.0, RING_LEN.1).next_power_of_two();
    let mut all = Vec::with_capacity(threads);
    let mut wakers = Vec::with_capacity(threads);
    for _ in 0..threads {
        let (waker, sleeper) = pair().map_err(|e| Error::system("make an eventfd", e))?;
        wakers.push(waker);
        all.push(Mailboxes { to: Vec::new(), from: Vec::new(), sleeper, handed_over: 0, lost: 0 });
    }
    for from in 0..threads {
        for to in 0..threads {
            if from == to {
                all[from].to.push(None);
                continue;
            }
            let (producer, consumer) = ring(capacity).map_err(failed)?;
            let waker = wakers[to].clone();
            all[from].to.push(Some(Outbox { ring: producer, waker, burst: ArrayVec::new() }));
            all[to].from.push(consumer);
        }
    }
    Ok(all)
}

impl Mailboxes {
    /// Passes `reply` to `thread`, at the latest with the next [`Mailboxes::publish`].
    #[inline]
    pub(super) fn hand_over(&mut self, thread: u32, reply: JudgedReply) {
        let Some(Some(outbox)) = self.to.get_mut(thread as usize) else { return };
        if outbox.burst.is_full() {
            outbox.send();
        }
        match outbox.burst.try_push(reply) {
            Ok(()) => self.handed_over += 1,
            // The burst is still full, so the ring is: the other thread has not read it for a long time.
            Err(_) => self.lost += 1,
        }
    }

    /// Sends the gathered replies, and wakes the receiving threads.
    pub(super) fn publish(&mut self) {
        self.to.iter_mut().flatten().filter(|outbox| !outbox.burst.is_empty()).for_each(Outbox::send);
    }

    /// Takes the replies passed by other threads, as many as `into` has room for; returns how many.
    pub(super) fn take(&mut self, into: &mut ArrayVec<JudgedReply, BURST>) -> usize {
        self.from.iter_mut().map(|ring| ring.pop_burst(into)).sum()
    }

    /// Sleeps at most `pause` nanoseconds, or until a port of `lanes` or another thread has replies.
    ///
    /// By poll(2), which registers with the sockets only while it waits. The kernel would notify a lasting registration
    /// (epoll) of every packet sent: a tenth of the cost of sending it.
    pub(super) fn sleep(&mut self, lanes: &[Lane], pause: u64) {
        let announced = (self.to.len() > 1).then(|| self.sleeper.announce());
        // A thread that sends a reply after this check sees the announcement, and wakes this one.
        if !self.from.iter().all(Consumer::is_empty) {
            return;
        }
        let mut waiting: ArrayVec<PollFd<'_>, { MAX_WATCHED + 1 }> = ArrayVec::new();
        let ports = lanes.iter().filter_map(|lane| lane.port.descriptor());
        waiting.extend(ports.take(MAX_WATCHED).map(|port| PollFd::from_borrowed_fd(port, PollFlags::IN)));
        waiting.extend(announced.iter().map(|announced| PollFd::new(announced, PollFlags::IN)));
        let pause = if lanes.len() > MAX_WATCHED { pause.min(POLL_INTERVAL) } else { pause };
        let timeout =
            Timespec { tv_sec: (pause / 1_000_000_000) as i64, tv_nsec: (pause % 1_000_000_000) as i64 };
        // However it ends, the rings are read next.
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

    fn judged(index: u32) -> JudgedReply {
        JudgedReply { index, judgement: Judgement::Valid { seq: 7 }, at: 9 }
    }

    fn all(boxes: &mut Mailboxes) -> Vec<u32> {
        let (mut burst, mut indices) = (ArrayVec::new(), Vec::new());
        while boxes.take(&mut burst) > 0 {
            indices.extend(burst.drain(..).map(|reply| reply.index));
        }
        indices
    }

    #[test]
    fn replies_arrive_where_they_belong_in_order() {
        let mut three = mailboxes(3).unwrap();
        for index in 0..200 {
            three[0].hand_over(2, judged(index));
        }
        three[1].hand_over(2, judged(1000));
        three[0].hand_over(1, judged(2000));
        three.iter_mut().for_each(Mailboxes::publish);
        let arrived = all(&mut three[2]);
        assert_eq!(arrived.iter().filter(|i| **i == 1000).count(), 1);
        assert!(arrived.iter().filter(|i| **i < 1000).copied().eq(0..200));
        assert_eq!(all(&mut three[1]), [2000]);
        assert_eq!(all(&mut three[0]), [0u32; 0]);
        assert_eq!((three[0].handed_over, three[0].lost), (201, 0));
    }

    #[test]
    fn replies_rejected_by_a_full_ring_are_counted() {
        let mut two = mailboxes(2).unwrap();
        for index in 0..20_000 {
            two[0].hand_over(1, judged(index));
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
