//! Calls of a [`StreamService`], for TCP.

use std::sync::Arc;

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
    /// Send this many bytes of the output.
    Reply(usize),
    /// Read on.
    Continue,
    /// Close it as failed.
    Close,
}

impl StreamDispatch {
    /// Makes the service instance, on the calling thread.
    pub(crate) fn new(worker: WorkerId, factory: Arc<StreamFactory>) -> Self {
        Self { instance: Instance::new(worker, factory) }
    }

    /// Runs the service over the bytes of one read. A panic closes this connection alone.
    pub(crate) fn serve(&mut self, input: &[u8], output: &mut [u8]) -> StreamOutcome {
        let mut reply = Reply::new(output);
        match self.instance.call(|service| service.serve(input, &mut reply)) {
            Ok(Outcome::Reply) => StreamOutcome::Reply(reply.len()),
            Ok(Outcome::Drop(DropReason::Consumed)) => StreamOutcome::Continue,
            Ok(Outcome::Drop(_) | Outcome::Defer) | Err(_) => StreamOutcome::Close,
        }
    }
}
