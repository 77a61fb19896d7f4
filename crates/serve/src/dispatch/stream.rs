//! Calls of a [`StreamService`], for TCP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::instance::Instance;
use crate::outcome::{DropReason, Outcome};
use crate::reply::Reply;
use crate::service::{StreamService, WorkerId};

/// Makes a stream service for each worker. Dynamic, unlike datagrams: a read from a connection costs far more.
pub(crate) type StreamFactory = dyn Fn(WorkerId) -> Box<dyn StreamService> + Send + Sync;

/// A worker's stream service.
pub(crate) struct StreamDispatch {
    instance: Instance<Box<dyn StreamService>, StreamFactory>,
}

/// What to do with the connection after a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamOutcome {
    /// A message of `of` bytes: send `len` bytes of the output.
    Reply { of: usize, len: usize },
    /// A message of this many bytes that has no reply.
    Continue(usize),
    /// Read on: the message has not ended.
    Incomplete,
    /// Close it as failed.
    Close,
}

impl StreamDispatch {
    /// Makes the service instance, on the calling thread.
    pub(crate) fn new(worker: WorkerId, factory: Arc<StreamFactory>) -> Self {
        Self { instance: Instance::new(worker, factory) }
    }

    /// The service's limit of a connection's silence.
    pub(crate) fn idle_timeout(&mut self) -> Option<Duration> {
        self.instance.call(|service| service.idle_timeout()).ok().flatten()
    }

    /// Runs the service over the first message of `input`. A panic closes this connection alone.
    pub(crate) fn serve(&mut self, peer: SocketAddr, input: &[u8], output: &mut [u8]) -> StreamOutcome {
        let mut reply = Reply::new(output);
        let called = self.instance.call(|service| {
            let of = service.message_len(input)?;
            // A message of no bytes would never end.
            let message = input.get(..of).filter(|message| !message.is_empty());
            Some((of, message.map(|message| service.serve_from(peer, message, &mut reply))))
        });
        match called {
            Ok(None) => StreamOutcome::Incomplete,
            Ok(Some((of, Some(Outcome::Reply)))) => StreamOutcome::Reply { of, len: reply.len() },
            Ok(Some((of, Some(Outcome::Drop(DropReason::Consumed))))) => StreamOutcome::Continue(of),
            Ok(Some((_, Some(Outcome::Drop(_) | Outcome::Defer) | None))) | Err(_) => StreamOutcome::Close,
        }
    }
}
