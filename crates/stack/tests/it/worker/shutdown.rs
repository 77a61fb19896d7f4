//! What happens to replies after they reach the port, and to frames when workers end.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use proptest::prelude::*;
use udpath_stack::counters::DropReason;
use udpath_stack::frame::{Burst, Frame};
use udpath_stack::handler::{Datagram, Handler, Outcome};
use udpath_stack::port::memory::End;
use udpath_stack::port::{Completions, Counts, Lost, Port, Properties, Unsent};
use udpath_stack::wire::{Packet, Tags};
use udpath_stack::worker::{Progress, Worker};

use super::support::*;

/// A port whose device accepts a few frames at each flush, and loses some of them.
struct Slow {
    end: End,
    room: usize,
    waiting: VecDeque<Frame>,
    /// How many frames each flush accepts, and which of each burst are lost; used cyclically.
    flushes: Vec<(usize, Vec<usize>)>,
    flush: usize,
    completions: Completions,
}

impl Slow {
    fn new(end: End, room: usize, flushes: Vec<(usize, Vec<usize>)>) -> Self {
        Self { end, room, waiting: VecDeque::new(), flushes, flush: 0, completions: Completions::default() }
    }

    fn leave(&mut self, frame: Frame, lost: bool) {
        if lost {
            let headers = Packet::parse(frame.bytes()).unwrap();
            let datagram = Unsent { from: headers.source(), len: headers.payload(frame.bytes()).len() };
            self.completions.lost.push(Lost { place: self.completions.frames, datagram: Some(datagram) });
        }
        let mut burst = Burst::new();
        burst.push(frame);
        if lost {
            self.end.recycle(&mut burst);
        } else {
            self.end.transmit(&mut burst);
        }
        assert!(burst.is_empty());
        self.completions.frames += 1;
    }
}

impl Port for Slow {
    fn properties(&self) -> &Properties {
        self.end.properties()
    }
    fn receive(&mut self, into: &mut Burst) -> usize {
        self.end.receive(into)
    }
    fn transmit(&mut self, frames: &mut Burst) {
        let count = frames.len().min(self.room - self.waiting.len());
        self.waiting.extend(frames.drain(..count));
    }
    fn recycle(&mut self, frames: &mut Burst) {
        self.end.recycle(frames);
    }
    fn supply(&mut self, into: &mut Burst, wanted: usize) {
        self.end.supply(into, wanted);
    }
    fn flush(&mut self) {
        if self.flushes.is_empty() {
            return;
        }
        let (count, lost) = self.flushes[self.flush % self.flushes.len()].clone();
        self.flush += 1;
        for place in 0..count {
            let Some(frame) = self.waiting.pop_front() else { return };
            self.leave(frame, lost.contains(&place));
        }
    }
    fn completions(&mut self, into: &mut Completions) {
        into.frames += std::mem::take(&mut self.completions.frames);
        into.lost.append(&mut self.completions.lost);
    }
    fn is_sending(&self) -> bool {
        !self.waiting.is_empty()
    }
    fn abandon(&mut self) {
        while let Some(frame) = self.waiting.pop_front() {
            self.leave(frame, true);
        }
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    fn counts(&self) -> Counts {
        self.end.counts()
    }
}

/// By worker: replies given, and those not sent, with their addresses and lengths.
type Given = Rc<RefCell<Vec<(u64, Vec<Option<Unsent>>)>>>;

/// Echoes the payload, and records the outcome.
struct Noting(usize, Given);

impl Handler for Noting {
    fn handle(&mut self, datagram: Datagram<'_>, room: &mut [u8]) -> Outcome {
        self.1.borrow_mut()[self.0].0 += 1;
        echo(datagram, room)
    }
    fn unsent(&mut self, worker: usize, reply: Option<Unsent>, reason: DropReason) {
        assert_eq!(reason, DropReason::TransmitFull);
        self.1.borrow_mut()[worker].1.push(reply);
    }
}

const WORKERS: u16 = 3;

fn noting(room: usize, flushes: Vec<(usize, Vec<usize>)>) -> (Given, End, Vec<Worker<Slow, Noting>>) {
    let given: Given = Rc::new(RefCell::new(vec![(0, Vec::new()); WORKERS.into()]));
    let handler = |index| Noting(usize::from(index), Rc::clone(&given));
    let steering = || Some(spread("0-2"));
    let (far, workers) = workers_on(WORKERS, 256, handler, steering, |near| Slow::new(near, room, flushes));
    (given, far, workers)
}

fn requests(round: usize, count: usize) -> Vec<Vec<u8>> {
    let flow = |i| 6000 + ((round * 31 + i) % 40) as u16;
    (0..count).map(|i| request(Tags::NONE, flow(i), SERVER[i % 2], &[7; 10][..1 + i % 10])).collect()
}

/// Shutdown polls, in this order of workers, until all are done.
fn finish(workers: &mut [Worker<Slow, Noting>]) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    let mut done = vec![false; workers.len()];
    while !done.iter().all(|done| *done) {
        assert!(std::time::Instant::now() < deadline, "they never end: {done:?}");
        for (worker, done) in workers.iter_mut().zip(&mut done) {
            *done = worker.finish() == Progress::Done;
        }
    }
}

fn bursts() -> impl Strategy<Value = Vec<(usize, Vec<usize>)>> {
    prop::collection::vec((0_usize..40, prop::collection::vec(0_usize..40, 0..6)), 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn every_reply_is_counted_once_by_whose_it_was(
        room in 1_usize..80,
        flushes in bursts(),
        rounds in prop::collection::vec((0_usize..64, 0_usize..5), 1..20),
    ) {
        let (given, mut far, mut workers) = noting(room, flushes);
        let (mut asked, mut got) = (0, 0);
        for (round, (count, polls)) in rounds.into_iter().enumerate() {
            send(&mut far, &requests(round, count));
            asked += count as u64;
            for poll in 0..polls {
                workers[(poll * 7 + round) % 3].poll();
                let now = sum(&workers);
                prop_assert!(now.under_way() >= 0 && now.answered <= now.replied);
            }
            // All frames are returned before the next round: the far end has few frames.
            run_until_idle(&mut workers);
            got += receive(&mut far).len() as u64;
        }
        workers.reverse();
        // If no flush accepts any, waiting frames are given up after a second: too long for so many cases.
        prop_assume!(!workers.last().is_some_and(|worker| worker.port().is_some_and(|port| port.flushes.iter().all(|(count, _)| *count == 0))));
        finish(&mut workers);
        got += receive(&mut far).len() as u64;
        let sum = sum(&workers);
        prop_assert!(sum.is_at_rest(), "{:?}", sum);
        prop_assert_eq!((sum.received, sum.answered), (asked, got));
        let mut unsent = 0;
        for (worker, (replied, lost)) in given.borrow().iter().enumerate() {
            prop_assert_eq!(sum.completed(worker), *replied);
            unsent += lost.len() as u64;
            for reply in lost {
                let reply = reply.unwrap();
                let served: Vec<SocketAddr> = SERVER.iter().map(|bind| bind.parse().unwrap()).collect();
                prop_assert!(served.contains(&reply.from) && (1..=10).contains(&reply.len), "{:?}", reply);
            }
        }
        prop_assert_eq!(sum.dropped(DropReason::TransmitFull), unsent);
        prop_assert_eq!(sum.answered + sum.dropped_total(), asked);
        prop_assert_eq!(far.outstanding(), 0);
    }
}

#[test]
fn a_reply_that_waits_is_under_way_and_one_that_is_given_up_is_dropped() {
    let (given, mut far, mut workers) = noting(256, Vec::new());
    send(&mut far, &requests(0, 60));
    run_until_idle(&mut workers);
    let now = sum(&workers);
    assert_eq!((now.received, now.replied, now.answered, now.under_way()), (60, 60, 0, 60));
    finish(&mut workers);
    let end = sum(&workers);
    assert_eq!((end.answered, end.dropped(DropReason::TransmitFull), end.under_way()), (0, 60, 0));
    assert_eq!(given.borrow().iter().map(|(_, lost)| lost.len()).sum::<usize>(), 60);
    assert!(receive(&mut far).is_empty());
    assert_eq!(far.outstanding(), 0);
}

#[test]
fn no_worker_ends_while_another_may_steer_to_it() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let (_, mut far, mut workers) = noting(256, vec![(64, Vec::new())]);
        send(&mut far, &requests(0, 60));
        // Workers without a port have nothing to do, and would exit.
        for _ in 0..100 {
            for worker in &mut workers[1..] {
                assert_eq!(worker.finish(), Progress::Waits);
            }
        }
        let mut done = 0;
        while done < 3 {
            done = order.iter().filter(|worker| workers[**worker].finish() == Progress::Done).count();
        }
        let sum = sum(&workers);
        assert_eq!((sum.received, sum.answered), (60, 60));
        assert!(sum.steered > 0);
        assert_eq!(receive(&mut far).len(), 60);
    }
}

#[test]
fn a_worker_that_is_gone_is_not_waited_for() {
    let (_, mut far, mut workers) = noting(256, vec![(64, Vec::new())]);
    drop(workers.pop());
    send(&mut far, &requests(0, 20));
    finish(&mut workers);
    let sum = sum(&workers);
    // Frames handed to the dropped worker are lost.
    assert_eq!(sum.received, 20);
    assert_eq!(receive(&mut far).len() as u64, sum.answered);
}
