//! One TCP connection: read, run the service, write, and keep what the peer does not take.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use super::counters::{TcpCounters, add};
use crate::dispatch::{StreamDispatch, StreamOutcome};

pub(super) struct Connection {
    pub(super) stream: TcpStream,
    /// Bytes the peer has not taken yet. If empty, the connection is polled for reading.
    unsent: Vec<u8>,
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
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, unsent: Vec::new() }
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
                }
                Err(_) => return TurnResult::Failed,
            }
            if !self.unsent.is_empty() {
                return TurnResult::Idle;
            }
            // Free the memory: a peer that keeps up needs none.
            self.unsent = Vec::new();
        }
        let read = match self.stream.read(input) {
            Ok(0) => return TurnResult::Ended,
            Ok(read) => read,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return TurnResult::Idle;
            }
            Err(_) => return TurnResult::Failed,
        };
        add(&counters.received_bytes, read);
        match dispatch.serve(&input[..read], output) {
            StreamOutcome::Reply(len) => match write_some(&mut self.stream, &output[..len]) {
                Ok(sent) => {
                    add(&counters.answered_bytes, sent);
                    self.unsent.extend_from_slice(&output[sent..len]);
                    if self.unsent.is_empty() { TurnResult::Progressed } else { TurnResult::Idle }
                }
                Err(_) => TurnResult::Failed,
            },
            StreamOutcome::Continue => TurnResult::Progressed,
            StreamOutcome::Close => TurnResult::Failed,
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
