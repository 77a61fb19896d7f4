//! TCP: `rr` with messages of a fixed size, and `stream`.
//!
//! ```text
//!   backlog (intended times) ──▶ messages written into one buffer ──write──▶ connection ──read──▶ cut into messages
//!      bounded, per connection     the first may be half sent already            the last may be incomplete
//! ```
//! A message that the kernel accepted in part is written again from its transaction's number, so no connection keeps
//! bytes to send. It counts as sent when the kernel has accepted its last byte.

mod inbox;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::try_later;
use crate::plan::{Arrivals, Mode, Plan};
use crate::threads::Poller;
use crate::transmit::{Ledger, Transmit};
use inbox::Inbox;

/// Bytes per `write` and `read`. Higher: longer turns of one connection. Lower: more system calls.
const CHUNK_LEN: usize = 256 << 10;
/// Open loop: requests that may wait for a connection whose send buffer is full; then the whole schedule waits.
const MAX_BACKLOG: usize = 256;
/// Writes to one connection per turn.
const MAX_WRITES: usize = 4;

struct Connection {
    socket: OwnedFd,
    /// Intended times of requests that are not completely sent; the first may be half sent.
    backlog: VecDeque<u64>,
    /// Bytes of the first one that the kernel has accepted.
    offset: usize,
    /// Watched for room to send.
    blocked: bool,
    closed: bool,
    inbox: Inbox,
}

/// The connections of one thread's flows.
pub(super) struct Connections {
    connections: Vec<Connection>,
    /// Bytes of a message.
    size: usize,
    /// Most requests in a connection's backlog.
    depth: usize,
    /// Whether replies are expected.
    replies: bool,
    scheduled: bool,
    poller: Poller,
    /// Connections that are ready, after a wait.
    ready: usize,
    /// Connections that are not closed.
    alive: usize,
    output: Box<[u8]>,
    input: Box<[u8]>,
}

impl Connections {
    /// For flows with these connected sockets.
    pub(super) fn new(plan: &Plan, sockets: Vec<OwnedFd>, poller: Poller) -> Self {
        let chunk = CHUNK_LEN.max(plan.size);
        let replies = plan.mode == Mode::Rr;
        let depth = match plan.arrivals {
            Arrivals::Closed { inflight } if replies => inflight as usize,
            Arrivals::Closed { .. } => chunk / plan.size,
            Arrivals::Open { .. } | Arrivals::Ramp { .. } => MAX_BACKLOG,
        };
        let connections: Vec<Connection> = sockets
            .into_iter()
            .map(|socket| Connection {
                socket,
                backlog: VecDeque::with_capacity(depth),
                offset: 0,
                blocked: false,
                closed: false,
                inbox: Inbox::new(if replies { plan.size } else { 0 }),
            })
            .collect();
        Self {
            alive: connections.len(),
            connections,
            size: plan.size,
            depth,
            replies,
            scheduled: plan.peak_rate().is_some(),
            poller,
            ready: 0,
            output: vec![0; chunk].into(),
            input: vec![0; CHUNK_LEN].into(),
        }
    }

    /// Writes as much of connection `index`'s backlog as the kernel accepts, within a turn's bound.
    fn write(&mut self, ledger: &mut Ledger<'_>, index: usize) {
        for _ in 0..MAX_WRITES {
            let connection = &mut self.connections[index];
            if connection.closed || connection.blocked || connection.backlog.is_empty() {
                return;
            }
            let now = ledger.clock.now();
            let count = connection.backlog.len().min(self.output.len() / self.size);
            for (ahead, message) in (0..).zip(self.output.chunks_exact_mut(self.size).take(count)) {
                let len = ledger.write(index, ahead, message);
                debug_assert_eq!(len, message.len(), "protocols over TCP have one size");
            }
            let bytes = &self.output[connection.offset..count * self.size];
            match rustix::net::send(&connection.socket, bytes, rustix::net::SendFlags::NOSIGNAL) {
                Ok(accepted) => self.account(ledger, index, accepted, now),
                Err(error) => {
                    let error = io::Error::from(error);
                    if !try_later(&error) {
                        return self.close_connection(ledger, index, &error.to_string());
                    }
                    ledger.queue_full += 1;
                    break;
                }
            }
        }
        // The rest, if the kernel's buffer is full or the turn is over, is sent when there is room.
        if !self.connections[index].backlog.is_empty() {
            self.watch(ledger, index, true);
        }
    }

    /// Accounts for `accepted` more bytes of the backlog that the kernel accepted at `at`.
    fn account(&mut self, ledger: &mut Ledger<'_>, index: usize, accepted: usize, at: u64) {
        let connection = &mut self.connections[index];
        let total = connection.offset + accepted;
        let messages = total / self.size;
        connection.offset = total % self.size;
        for intended in connection.backlog.drain(..messages) {
            ledger.sent(index, intended, at);
        }
        ledger.unstage(index, messages as u64);
        ledger.failures.sent();
    }

    /// Watches connection `index` for room to send, or stops watching it.
    fn watch(&mut self, ledger: &mut Ledger<'_>, index: usize, blocked: bool) {
        let connection = &mut self.connections[index];
        if connection.blocked != blocked {
            connection.blocked = blocked;
            if let Err(error) = self.poller.rewatch(connection.socket.as_fd(), index, blocked) {
                self.close_connection(ledger, index, &error.to_string());
            }
        }
    }

    /// Handles the close of connection `index`. Closing the last one ends the run.
    fn close_connection(&mut self, ledger: &mut Ledger<'_>, index: usize, why: &str) {
        let connection = &mut self.connections[index];
        if connection.closed {
            return;
        }
        connection.closed = true;
        connection.backlog.clear();
        self.poller.forget(connection.socket.as_fd());
        self.alive -= 1;
        ledger.close_flow(index);
        let when = ledger.clock.now() as f64 / 1e9;
        if ledger.warnings.is_empty() {
            let number = ledger.number(index);
            ledger.warnings.push(format!("the connection of flow {number} ended after {when:.1} s: {why}"));
        }
        if self.alive == 0 {
            ledger.give_up_run(format!("no connection is left; the last ended after {when:.1} s: {why}"));
        }
    }

    /// Reads once from connection `index`; returns the number of bytes.
    fn read(&mut self, ledger: &mut Ledger<'_>, index: usize) -> usize {
        let connection = &self.connections[index];
        if connection.closed {
            return 0;
        }
        let flags = rustix::net::RecvFlags::DONTWAIT;
        match rustix::net::recv(&connection.socket, &mut *self.input, flags) {
            Ok((0, _)) => self.close_connection(ledger, index, "closed by the peer"),
            Ok((count, _)) => {
                if self.replies {
                    let now = ledger.clock.now();
                    let inbox = &mut self.connections[index].inbox;
                    inbox.cut(&self.input[..count], |reply| ledger.receive(index, reply, now));
                    ledger.refill(self);
                }
                return count;
            }
            Err(error) => {
                let error = io::Error::from(error);
                if !try_later(&error) {
                    self.close_connection(ledger, index, &error.to_string());
                }
            }
        }
        0
    }
}

impl Transmit for Connections {
    const RETRY: u64 = 1_000_000;

    fn batch(&self) -> usize {
        self.depth
    }

    fn begin(&mut self, ledger: &mut Ledger<'_>) {
        for (index, connection) in self.connections.iter().enumerate() {
            if let Err(error) = self.poller.watch(connection.socket.as_fd(), index, false) {
                let number = ledger.number(index);
                ledger.give_up_run(format!("cannot watch the connection of flow {number}: {error}"));
            }
        }
    }

    fn is_ready(&self, index: usize) -> bool {
        let connection = &self.connections[index];
        !connection.closed && !connection.blocked
    }

    fn send(&mut self, ledger: &mut Ledger<'_>, index: usize, intended: &[u64]) -> usize {
        let connection = &mut self.connections[index];
        if connection.closed {
            ledger.undeliverable(intended);
            return intended.len();
        }
        let count = intended.len().min(self.depth - connection.backlog.len());
        connection.backlog.extend(&intended[..count]);
        ledger.stage(index, count as u64);
        ledger.queue_full += u64::from(self.scheduled && count < intended.len());
        self.write(ledger, index);
        count
    }

    fn wait(&mut self, pause: u64) {
        self.ready = self.poller.wait(pause);
    }

    fn receive(&mut self, ledger: &mut Ledger<'_>) -> usize {
        let mut bytes = 0;
        for place in 0..self.ready {
            let index = self.poller.ready(place);
            if self.poller.writable(place) && self.connections[index].blocked {
                self.watch(ledger, index, false);
                self.write(ledger, index);
            }
            bytes += self.read(ledger, index);
        }
        bytes
    }

    fn close(self, ledger: &mut Ledger<'_>) {
        if self.scheduled {
            ledger.unsent += self.connections.iter().map(|one| one.backlog.len() as u64).sum::<u64>();
        }
    }
}
