//! Request and reply: replies are received with `recvmmsg`, from the sockets that epoll reports.

use std::io;
use std::os::fd::OwnedFd;

use super::super::sys::{MAX_SEGMENTS, Messages, dropped};
use super::super::try_later;
use super::Sender;
use crate::plan::Plan;
use crate::threads::Poller;
use crate::transmit::{Ledger, Transmit};

/// Datagrams per system call. Higher: replies to the first wait until the last is handled, and buffers leave the cache.
/// Lower: more system calls.
const BATCH: usize = 64;
/// Bytes of buffers for each direction: with large payloads a batch is smaller.
const BATCH_BYTES: usize = 1 << 20;
/// Calls of `recvmmsg` per flow and turn.
const READS: usize = 4;

/// See the module.
pub(in crate::socket) struct RequestReply {
    sender: Sender,
    replies: Messages,
    poller: Poller,
    /// Sockets with something to receive, after a wait.
    ready: usize,
}

impl RequestReply {
    /// For flows with these sockets; replies have at most `max_reply` bytes.
    pub(in crate::socket) fn new(
        plan: &Plan,
        sockets: Vec<OwnedFd>,
        poller: Poller,
        max_reply: usize,
    ) -> Self {
        // One byte more than the longest reply, so that a longer one is detected.
        let reply = max_reply.max(plan.size) + 1;
        let batch = (BATCH_BYTES / reply).clamp(1, BATCH);
        let segments = if plan.gso { MAX_SEGMENTS } else { 1 };
        let sender = Sender::new(sockets, batch, segments, plan.size);
        Self { sender, replies: Messages::new(batch, reply), poller, ready: 0 }
    }

    /// Receives the replies of one flow; returns how many.
    fn receive_flow(&mut self, ledger: &mut Ledger<'_>, index: usize) -> usize {
        let mut taken = 0;
        for _ in 0..READS {
            let count = match self.replies.receive(self.sender.socket(index)) {
                Ok(count) => count,
                Err(error) if try_later(&error) => break,
                Err(error) => {
                    // Reported once per event, and cleared; send errors show whether sending works.
                    ledger.failures.refused += u64::from(error.kind() == io::ErrorKind::ConnectionRefused);
                    continue;
                }
            };
            let now = ledger.clock.now();
            for reply in 0..count {
                ledger.receive(index, self.replies.received(reply), now);
            }
            taken += count;
            ledger.refill(self);
            if count < self.replies.count() {
                break;
            }
        }
        taken
    }
}

impl Transmit for RequestReply {
    const RETRY: u64 = 1_000_000;

    fn batch(&self) -> usize {
        self.sender.batch.capacity()
    }

    fn begin(&mut self, ledger: &mut Ledger<'_>) {
        for index in 0..ledger.flows() {
            if let Err(error) = self.poller.watch(self.sender.socket(index), index, false) {
                let number = ledger.number(index);
                ledger.give_up_run(format!("cannot watch the socket of flow {number}: {error}"));
            }
        }
    }

    fn send(&mut self, ledger: &mut Ledger<'_>, index: usize, intended: &[u64]) -> usize {
        self.sender.send(ledger, index, intended)
    }

    fn wait(&mut self, pause: u64) {
        self.ready = self.poller.wait(pause);
    }

    fn receive(&mut self, ledger: &mut Ledger<'_>) -> usize {
        (0..self.ready).map(|place| self.receive_flow(ledger, self.poller.ready(place))).sum()
    }

    fn close(self, ledger: &mut Ledger<'_>) {
        ledger.own_drops += (0..ledger.flows()).map(|index| dropped(self.sender.socket(index))).sum::<u64>();
    }
}
