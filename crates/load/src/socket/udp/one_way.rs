//! `stream` and `flood`: there are no replies, so the receiver's report is requested afterwards (see `run`).

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::sys::MAX_SEGMENTS;
use super::Sender;
use crate::plan::{MAX_SIZE, Mode, Plan};
use crate::threads::Poller;
use crate::transmit::{Ledger, Transmit};

/// Messages per system call. Higher: longer bursts of one flow. Lower: more system calls.
const FLOOD_BATCH: usize = 32;
const STREAM_BATCH: usize = 4;
/// Bytes of buffers: with large payloads a batch is smaller.
const BATCH_BYTES: usize = 1 << 20;

/// See the module.
pub(in crate::socket) struct OneWay {
    sender: Sender,
    /// Sleeps with nanosecond precision; watches no socket, since the kernel would notify it of every datagram sent.
    poller: Poller,
    /// The flow whose send queue is full.
    full: Option<usize>,
}

impl OneWay {
    /// For flows with these sockets.
    pub(in crate::socket) fn new(plan: &Plan, sockets: Vec<OwnedFd>, poller: Poller) -> Self {
        let segments = match plan.mode {
            Mode::Stream => (MAX_SIZE / plan.size).clamp(1, MAX_SEGMENTS),
            Mode::Rr | Mode::Flood => 1,
        };
        let messages = if segments > 1 { STREAM_BATCH } else { FLOOD_BATCH.min(BATCH_BYTES / plan.size) };
        Self { sender: Sender::new(sockets, messages * segments, segments, plan.size), poller, full: None }
    }
}

impl Transmit for OneWay {
    /// The wait ends earlier once there is room.
    const RETRY: u64 = 10_000_000;

    fn batch(&self) -> usize {
        self.sender.batch.capacity()
    }

    fn send(&mut self, ledger: &mut Ledger<'_>, index: usize, intended: &[u64]) -> usize {
        let done = self.sender.send(ledger, index, intended);
        self.full = (done < intended.len()).then_some(index);
        done
    }

    fn wait(&mut self, pause: u64) {
        if pause == 0 {
            return;
        }
        match self.full.take() {
            Some(index) => {
                let timeout = Timespec { tv_sec: 0, tv_nsec: pause.min(Self::RETRY) as i64 };
                let socket = self.sender.socket(index);
                // Errors show at the next send; a wait that ends early costs one more.
                let _ = poll(&mut [PollFd::from_borrowed_fd(socket, PollFlags::OUT)], Some(&timeout));
            }
            None => {
                self.poller.wait(pause);
            }
        }
    }

    fn receive(&mut self, _ledger: &mut Ledger<'_>) -> usize {
        0
    }
}
