//! The loop over kernel sockets: receive a burst, run the service over it, send the replies, publish the counters.
//!
//! With one socket the worker blocks in the receive call and makes no other call. With several it waits in `epoll` and
//! takes bursts from those that are ready. Stopping adds nothing to the packet path: the server shuts the sockets for
//! receiving, which wakes the worker once their queues are empty.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rustix::event::epoll;

use crate::dispatch::{Dispatch, ReceivedCount};
use crate::endpoint::Endpoint;
use crate::io::{BurstSocket, KernelSocket};
use crate::service::{Service, WorkerId};
use crate::sys::{ReceiveResult, Wait};

/// Bursts taken from one ready socket before the others are served. With fewer, `epoll_wait` is called more often, up
/// to once per datagram at batch 1; with more, a busy address delays a quiet one.
const BURSTS_PER_TURN: usize = 64;

/// First and longest pause while receive calls keep failing. A single error (an ICMP message, a short lack of memory)
/// causes no pause. Shorter pauses waste a CPU on a socket that is permanently broken; longer ones delay answers once
/// it recovers.
const MIN_BACKOFF: Duration = Duration::from_millis(1);
const MAX_BACKOFF: Duration = Duration::from_millis(100);

/// A socket with the worker's buffers and counters.
pub(crate) struct SocketSource {
    pub(crate) socket: KernelSocket,
    pub(crate) endpoint: Arc<Endpoint>,
}

/// Takes bursts from kernel sockets and runs the service over them.
pub(super) struct ServiceRunner<S, F> {
    pub(super) dispatch: Dispatch<S, F>,
}

/// The result of trying to serve one burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BurstResult {
    Served,
    Empty,
    Woken,
    Failed,
}

impl<S: Service, F: Fn(WorkerId) -> S> ServiceRunner<S, F> {
    pub(super) fn is_stopping(&self) -> bool {
        self.dispatch.shared().stopping.load(Relaxed)
    }

    /// Serves one socket, blocking in the receive call, until the server stops.
    pub(super) fn serve_socket<P: BurstSocket>(&mut self, socket: &mut P, endpoint: &Arc<Endpoint>) {
        let mut backoff = Backoff::default();
        loop {
            while self.serve_next(socket, endpoint, Wait::Block) == BurstResult::Served {
                backoff.reset();
            }
            // The call was woken or failed.
            if self.is_stopping() {
                return;
            }
            backoff.wait();
        }
    }

    /// Serves several sockets until the server stops. `stop` becomes readable then.
    pub(super) fn serve_sockets(
        &mut self,
        sources: &mut [SocketSource],
        stop: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // Exclusive: if workers share a socket, a datagram wakes only one of them.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
        for (name, source) in (0..).zip(sources.iter()) {
            epoll::add(&epoll, source.endpoint.socket.fd(), epoll::EventData::new_u64(name), flags)?;
        }
        epoll::add(&epoll, stop, epoll::EventData::new_u64(u64::MAX), epoll::EventFlags::IN)?;
        let mut events = Vec::with_capacity(sources.len() + 1);
        let mut backoff = Backoff::default();
        while !self.is_stopping() {
            events.clear();
            match epoll::wait(epoll.as_fd(), rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                let name = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
                if let Some(source) = sources.get_mut(name) {
                    self.turn(source, &mut backoff);
                }
            }
        }
        // The sockets no longer receive: serve what is queued.
        for source in sources {
            while self.serve_burst(source) == BurstResult::Served {}
        }
        Ok(())
    }

    /// Serves bursts of a ready socket.
    fn turn(&mut self, source: &mut SocketSource, backoff: &mut Backoff) {
        for _ in 0..BURSTS_PER_TURN {
            match self.serve_burst(source) {
                BurstResult::Served => backoff.reset(),
                BurstResult::Empty | BurstResult::Woken => return,
                BurstResult::Failed => return backoff.wait(),
            }
        }
    }

    /// Serves one burst without waiting.
    pub(super) fn serve_burst(&mut self, source: &mut SocketSource) -> BurstResult {
        match &mut source.socket {
            KernelSocket::Single(socket) => self.serve_next(socket, &source.endpoint, Wait::Now),
            KernelSocket::Control(socket) => self.serve_next(socket, &source.endpoint, Wait::Now),
            KernelSocket::Many(socket) => self.serve_next(socket, &source.endpoint, Wait::Now),
        }
    }

    /// Receives a burst, serves it, sends the replies and counts. Inlined for the reason given in `io/kernel.rs`.
    #[inline(always)]
    fn serve_next<P: BurstSocket>(
        &mut self,
        socket: &mut P,
        endpoint: &Arc<Endpoint>,
        wait: Wait,
    ) -> BurstResult {
        match socket.receive(wait) {
            Ok(ReceiveResult::Datagrams(0)) => BurstResult::Empty,
            Ok(ReceiveResult::Datagrams(count)) => {
                let mut received = ReceivedCount::default();
                self.dispatch.begin_burst();
                self.dispatch.serve(socket, endpoint, count, &mut received);
                socket.send(&endpoint.counters);
                endpoint.counters.received(received.datagrams, received.bytes);
                BurstResult::Served
            }
            Ok(ReceiveResult::Woken) => BurstResult::Woken,
            Err(_) => {
                endpoint.counters.receive_error();
                BurstResult::Failed
            }
        }
    }
}

/// Prevents a busy loop when receive calls keep failing.
#[derive(Default)]
struct Backoff {
    next: Option<Duration>,
}

impl Backoff {
    fn reset(&mut self) {
        self.next = None;
    }

    fn wait(&mut self) {
        if let Some(now) = self.next {
            std::thread::sleep(now);
        }
        self.next = Some(self.next.map_or(MIN_BACKOFF, |last| (last * 2).min(MAX_BACKOFF)));
    }
}
