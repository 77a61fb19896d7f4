//! One TCP connection: read, run the service, write, and keep what the peer does not take.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use super::MESSAGE_ROOM;
use super::counters::{TcpCounters, add};
use crate::dispatch::{StreamDispatch, StreamOutcome};

pub(super) struct Connection {
    pub(super) stream: TcpStream,
    peer: SocketAddr,
    /// When bytes last moved.
    pub(super) active: Instant,
    /// Bytes the peer has not taken yet. If empty, the connection is polled for reading.
    unsent: Vec<u8>,
    /// Bytes read and not handled: the beginning of a message or, with `waiting`, messages that wait for `unsent` to be sent.
    unread: Vec<u8>,
    waiting: bool,
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

impl Connection {
    pub(super) fn new(stream: TcpStream, peer: SocketAddr) -> Self {
        let (unsent, unread) = (Vec::new(), Vec::new());
        Self { stream, peer, active: Instant::now(), unsent, unread, waiting: false }
    }

    /// Whether it waits for the peer to take unsent bytes.
    pub(super) fn is_waiting(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Writes unsent bytes, then reads and answers once.
    pub(super) fn serve(
        &mut self,
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
                    self.touch(sent);
                }
                Err(_) => return TurnResult::Failed,
            }
            if !self.unsent.is_empty() {
                return TurnResult::Idle;
            }
            // Free the memory: a peer that keeps up needs none.
            self.unsent = Vec::new();
        }
        let mut have = self.unread.len();
        input[..have].copy_from_slice(&self.unread);
        if !std::mem::take(&mut self.waiting) {
            let read = match self.stream.read(&mut input[have..]) {
                Ok(0) => return TurnResult::Ended,
                Ok(read) => read,
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) =>
                {
                    return TurnResult::Idle;
                }
                Err(_) => return TurnResult::Failed,
            };
            add(&counters.received_bytes, read);
            self.touch(read);
            have += read;
        }
        self.answer(dispatch, counters, &input[..have], output, have == input.len())
    }

    /// Answers the messages of `input`, and keeps what is not handled. `full`: no more can be read before something is.
    fn answer(
        &mut self,
        dispatch: &mut StreamDispatch,
        counters: &TcpCounters,
        input: &[u8],
        output: &mut [u8],
        full: bool,
    ) -> TurnResult {
        let (mut used, mut result) = (0, TurnResult::Progressed);
        loop {
            let (mut written, mut more) = (0, true);
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
            if !more || self.is_waiting() {
                self.unread.clear();
                self.unread.extend_from_slice(&input[used..]);
                if self.unread.is_empty() {
                    self.unread = Vec::new();
                }
                self.waiting = more;
                return if self.is_waiting() && result == TurnResult::Progressed {
                    TurnResult::Idle
                } else {
                    result
                };
            }
        }
    }

    fn touch(&mut self, moved: usize) {
        if moved > 0 {
            self.active = Instant::now();
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
