//! One TCP connection: read, run the service, write, and keep what the peer does not take.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use super::MESSAGE_ROOM;
use super::counters::{TcpCounters, add};
use super::limits::{Network, TcpLimits};
use crate::dispatch::{StreamDispatch, StreamOutcome};

pub(super) struct Connection {
    pub(super) stream: TcpStream,
    peer: SocketAddr,
    pub(super) network: Network,
    /// Bytes the peer has not taken yet.
    unsent: Vec<u8>,
    /// Bytes read and not handled: the beginning of a message or, with `more`, messages for the next turn.
    unread: Vec<u8>,
    more: bool,
    waits: Waits,
    /// Since when it waits for that; for replies to be read: since the period of the drain rate began.
    since: Instant,
    /// Bytes taken by the peer in that period.
    drained: usize,
    /// When a message was last answered, or replies were last read in time.
    pub(super) progress: Instant,
}

/// What a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waits {
    /// The next message.
    Message,
    /// The rest of a message.
    Rest,
    /// The peer to read replies: those that are unsent, or so many of those in the socket that there is room for more.
    /// The next turn comes then.
    Drain,
}

/// The result of serving a connection once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TurnResult {
    /// Bytes moved; there may be more.
    Progressed,
    /// Nothing to do until the peer sends, or takes unsent bytes.
    Idle,
    /// The peer closed its side and has received everything.
    Ended,
    Failed,
}

/// Why a connection is closed that has waited for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expired {
    /// It asks nothing.
    Idle,
    /// It has half a message, or reads its replies too slowly.
    Slow,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, peer: SocketAddr, now: Instant) -> Self {
        Self {
            stream,
            peer,
            network: Network::of(peer.ip()),
            unsent: Vec::new(),
            unread: Vec::new(),
            more: false,
            waits: Waits::Message,
            since: now,
            drained: 0,
            progress: now,
        }
    }

    /// Whether it is polled for writing: the peer has to take unsent bytes, or messages are left for the next turn,
    /// which comes when the other connections have had theirs.
    pub(super) fn is_waiting(&self) -> bool {
        !self.unsent.is_empty() || self.more
    }

    /// Whether it has waited for too long. Begins the next period of the drain rate.
    pub(super) fn expired(&mut self, now: Instant, limits: &TcpLimits) -> Option<Expired> {
        let waited = now.saturating_duration_since(self.since);
        match self.waits {
            Waits::Message if waited >= limits.idle_timeout => Some(Expired::Idle),
            Waits::Rest if waited >= limits.message_timeout => Some(Expired::Slow),
            Waits::Drain if waited >= limits.drain_period => {
                let in_time = limits.drained_in_time(self.drained);
                (self.since, self.drained) = (now, 0);
                if !in_time {
                    return Some(Expired::Slow);
                }
                self.progress = now;
                None
            }
            Waits::Message | Waits::Rest | Waits::Drain => None,
        }
    }

    /// Writes unsent bytes, then reads and answers once.
    pub(super) fn serve(
        &mut self,
        now: Instant,
        dispatch: &mut StreamDispatch,
        counters: &TcpCounters,
        input: &mut [u8],
        output: &mut [u8],
    ) -> TurnResult {
        if !self.unsent.is_empty() {
            match write_some(&mut self.stream, &self.unsent) {
                Ok(sent) => {
                    add(&counters.answered_bytes, sent);
                    self.unsent.drain(..sent);
                    self.drained += sent;
                }
                Err(_) => return TurnResult::Failed,
            }
            if !self.unsent.is_empty() {
                return TurnResult::Idle;
            }
            // Free the memory: a peer that keeps up needs none.
            self.unsent = Vec::new();
            self.progress = now;
        }
        let mut have = self.unread.len();
        input[..have].copy_from_slice(&self.unread);
        if !std::mem::take(&mut self.more) {
            let read = match self.stream.read(&mut input[have..]) {
                Ok(0) => return TurnResult::Ended,
                Ok(read) => read,
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) =>
                {
                    self.settle(now, false);
                    return TurnResult::Idle;
                }
                Err(_) => return TurnResult::Failed,
            };
            add(&counters.received_bytes, read);
            have += read;
        }
        self.answer(now, dispatch, counters, &input[..have], output, have == input.len())
    }

    /// Answers the messages of `input` as far as the replies fit `output`, and keeps what is not handled: one
    /// connection with many requests does not hold up the others. `full`: no more can be read before something is
    /// handled.
    fn answer(
        &mut self,
        now: Instant,
        dispatch: &mut StreamDispatch,
        counters: &TcpCounters,
        input: &[u8],
        output: &mut [u8],
        full: bool,
    ) -> TurnResult {
        let (mut used, mut written, mut more) = (0, 0, true);
        let mut result = TurnResult::Progressed;
        while more && output.len() - written >= MESSAGE_ROOM {
            match dispatch.serve(self.peer, &input[used..], &mut output[written..]) {
                StreamOutcome::Reply { of, len } => (used, written) = (used + of, written + len),
                StreamOutcome::Continue(of) => used += of,
                StreamOutcome::Incomplete if used > 0 || !full => more = false,
                // What was answered before is still sent.
                StreamOutcome::Incomplete | StreamOutcome::Close => {
                    (more, result) = (false, TurnResult::Failed);
                }
            }
            more = more && used < input.len();
        }
        match write_some(&mut self.stream, &output[..written]) {
            Ok(sent) => {
                add(&counters.answered_bytes, sent);
                self.unsent.extend_from_slice(&output[sent..written]);
            }
            Err(_) => return TurnResult::Failed,
        }
        self.unread.clear();
        self.unread.extend_from_slice(&input[used..]);
        if self.unread.is_empty() {
            self.unread = Vec::new();
        }
        self.more = more;
        self.settle(now, used > 0);
        if !self.unsent.is_empty() && result == TurnResult::Progressed { TurnResult::Idle } else { result }
    }

    /// Notes what it waits for from now on. `served`: a message was answered.
    fn settle(&mut self, now: Instant, served: bool) {
        let waits = match self.unread.is_empty() {
            _ if self.is_waiting() => Waits::Drain,
            true => Waits::Message,
            false => Waits::Rest,
        };
        if served {
            self.progress = now;
        }
        if served || waits != self.waits {
            (self.waits, self.since, self.drained) = (waits, now, 0);
        }
    }
}

/// Writes as much as the socket accepts now; returns how much.
fn write_some(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match stream.write(&bytes[sent..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(more) => sent += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}
