//! The one place where a [`Service`] is called.
//!
//! ```text
//! kernel socket: a datagram or a burst ─┐                                 ┌▸ reply: Exchange::reply
//! frame from a device's queue ──────────┴▸ Dispatch::serve ─▸ Service ────┼▸ dropped, counted by reason
//!                                             ├▸ starting: probes are     ├▸ deferred
//!                                             │  answered, nothing else   │
//!                                             └▸ truncated, broadcast:    └▸ panic: dropped, new instance
//!                                                dropped
//! TCP connection: a message ──────────────▸ StreamDispatch::serve ─▸ StreamService
//! ```
//! The caller implements [`Exchange`]: where a datagram is and where its reply goes. Everything is compiled for each
//! service and exchange, so the packet path has no allocation, lock or dynamic call.

mod call;
mod exchange;
mod instance;
mod once;
mod stream;

use std::cell::Cell;
use std::sync::Arc;

use crate::endpoint::Endpoint;
use crate::outcome::{DropReason, Outcome};
use crate::probe::ProbeState;
use crate::request::{BurstContext, Origin};
use crate::service::{Service, WorkerId};
use crate::shared::Shared;
use crate::sys::Control;

pub(crate) use exchange::{Exchange, Incoming};
pub(crate) use stream::{StreamDispatch, StreamFactory, StreamOutcome};

pub use once::serve_once;

use call::call;
use instance::{Failure, Instance};

/// A worker's service instance and what a call needs.
pub(crate) struct Dispatch<S, F> {
    instance: Instance<S, F>,
    /// Whether this worker answers requests to broadcast and multicast addresses.
    answers_broadcast: bool,
    /// Whether the server is starting: probes are recognised and answered, and nothing else is served. Never becomes
    /// true again.
    starting: bool,
    context: BurstContext,
    shared: Arc<Shared>,
}

/// Datagrams a worker received and has not published yet.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct ReceivedCount {
    pub(crate) datagrams: u64,
    pub(crate) bytes: u64,
}

impl ReceivedCount {
    #[inline]
    fn add(&mut self, len: usize) {
        self.datagrams += 1;
        self.bytes += len as u64;
    }
}

impl<S: Service, F: Fn(WorkerId) -> S> Dispatch<S, F> {
    /// Makes the service instance, on the calling thread.
    pub(crate) fn new(worker: WorkerId, factory: Arc<F>, shared: Arc<Shared>) -> Self {
        Self {
            instance: Instance::new(worker, factory),
            answers_broadcast: shared.broadcast.answers(worker),
            starting: true,
            context: BurstContext::default(),
            shared,
        }
    }

    /// State that all workers share.
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Begins a burst: its requests read the clock and the CPU once. After the probe the first burst waits at the
    /// [gate](crate::gate).
    #[inline]
    pub(crate) fn begin_burst(&mut self) {
        self.context = BurstContext::default();
        if self.starting {
            self.start();
        }
    }

    #[cold]
    fn start(&mut self) {
        self.starting = self.shared.probe.is_on() || !self.shared.gate.pass();
    }

    /// Runs the service over datagrams `0..count` of `exchange`, with a new instance after a panic. Counts drops and
    /// deferrals on `endpoint` and adds the datagrams to `received`; the caller counts replies when they are sent.
    ///
    /// Inlined, so that the caller's receive and send calls and the service end up in one function (`io/kernel.rs`
    /// gives the reason).
    #[inline(always)]
    pub(crate) fn serve<E: Exchange>(
        &mut self,
        exchange: &mut E,
        endpoint: &Arc<Endpoint>,
        count: usize,
        received: &mut ReceivedCount,
    ) {
        let Self { instance, answers_broadcast, starting, context, shared } = self;
        let deferred = Cell::new(false);
        let call = Call {
            endpoint,
            deferred: &deferred,
            context,
            probe: starting.then_some(&shared.probe),
            worker: instance.worker(),
            answers_broadcast: *answers_broadcast,
        };
        let mut next = 0;
        while next < count {
            let result = instance.call(|service| {
                while next < count {
                    let i = next;
                    // Advanced before the service runs: after a panic the loop continues with the next datagram.
                    next += 1;
                    call.serve(service, exchange, received, i);
                }
            });
            match result {
                Ok(()) => {}
                // A handle taken before the panic counts the request itself.
                Err(Failure::Panicked) if deferred.get() => endpoint.counters.deferred(),
                Err(Failure::Panicked) => endpoint.counters.dropped(DropReason::Panicked),
                // This datagram is lost; the next one tries again to make an instance.
                Err(Failure::NoInstance) => {
                    received.add(exchange.datagram(next).0.payload.len());
                    endpoint.counters.dropped(DropReason::Panicked);
                    next += 1;
                }
            }
        }
    }
}

/// What the calls of one burst share.
struct Call<'a> {
    endpoint: &'a Arc<Endpoint>,
    /// Whether the service took a [`Deferred`](crate::Deferred) from the current request.
    deferred: &'a Cell<bool>,
    context: &'a BurstContext,
    /// The start-up probe, while the server is starting.
    probe: Option<&'a ProbeState>,
    worker: WorkerId,
    answers_broadcast: bool,
}

impl Call<'_> {
    /// Serves datagram `i`.
    #[inline(always)]
    fn serve<E: Exchange, S: Service>(
        &self,
        service: &mut S,
        exchange: &mut E,
        received: &mut ReceivedCount,
        i: usize,
    ) {
        let (incoming, buffer) = exchange.datagram(i);
        let counters = &self.endpoint.counters;
        if let Some(probe) = self.probe {
            if probe.matches(incoming.payload) {
                let answer = |buffer: &mut [u8]| probe.answer(self.worker.index(), buffer);
                return exchange.answer_probe(i, counters, answer);
            }
            received.add(incoming.payload.len());
            return counters.dropped(DropReason::Starting);
        }
        received.add(incoming.payload.len());
        if incoming.truncated {
            return counters.dropped(DropReason::Truncated);
        }
        if !self.answers_broadcast && incoming.control.is_some_and(Control::is_broadcast_or_multicast) {
            return counters.dropped(DropReason::Broadcast);
        }
        self.deferred.set(false);
        let origin = Origin::Endpoint { endpoint: self.endpoint, deferred: self.deferred };
        match call(service, incoming, origin, self.context, buffer) {
            _ if self.deferred.get() => counters.deferred(),
            (Outcome::Reply, len) => exchange.reply(i, len),
            (Outcome::Drop(reason), _) => counters.dropped(reason),
            (Outcome::Defer, _) => counters.dropped(DropReason::Abandoned),
        }
    }
}
