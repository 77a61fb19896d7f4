//! One TCP connection: read, run the service, write; what the peer does not take is kept.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use super::counters::{TcpCounters, add};
use crate::dispatch::{StreamDispatch, StreamOutcome};

pub(super) struct Connection {
    pub(super) stream: TcpStream,
    /// What the peer has not taken yet. Empty: the connection is watched for reading.
    unsent: Vec<u8>,
}

/// What a turn did to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TurnResult {
    /// Bytes moved; there may be more.
    Progressed,
    /// Nothing to do until the peer sends, or takes what is unsent.
    Idle,
    /// The peer said it is done and has everything.
    Ended,
    Failed,
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, unsent: Vec::new() }
    }

    /// Whether it waits for the peer to take what is unsent.
    pub(super) fn is_waiting(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Writes what is unsent, then reads and answers once.
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
            // Nothing is kept for a peer that keeps up.
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

/// Writes as much as the peer takes now.
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
